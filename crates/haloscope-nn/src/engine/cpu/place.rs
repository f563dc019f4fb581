//! Where the values of a program lie, and whose border is clear already.

use super::lower::Program;
use super::memory::{Demand, assign};
use super::operation::Value;

/// Floats in a cache line, at which values and workspaces start.
const LINE: usize = 16;

/// A length in whole cache lines.
pub(crate) fn pad(len: usize) -> usize {
    len.next_multiple_of(LINE)
}

/// Gives every value its place.
pub(crate) fn place(
    program: &Program,
    may_overwrite: &dyn Fn(usize, usize) -> bool,
) -> (Vec<Value>, usize) {
    let count = program.layouts.len();
    // PlanStep 0 loads the input; step i + 1 is the program's step i; the last one stores the output.
    let mut first = vec![0; count];
    let mut last = vec![0; count];
    for (index, step) in program.steps.iter().enumerate() {
        first[step.output] = index + 1;
        last[step.output] = index + 1;
        for &input in &step.inputs {
            last[input] = index + 1;
        }
    }
    last[program.output] = program.steps.len() + 1;
    let mut overwrites = vec![None; count];
    for (index, step) in program.steps.iter().enumerate() {
        overwrites[step.output] = (step.inputs.iter().enumerate())
            .find(|&(position, &input)| {
                let others = step.inputs.iter().enumerate();
                let elsewhere = others.filter(|&(other, &value)| {
                    value == input && other != position && !may_overwrite(index, other)
                });
                may_overwrite(index, position)
                    && last[input] == index + 1
                    && program.layouts[input] == program.layouts[step.output]
                    && elsewhere.count() == 0
            })
            .map(|(_, &input)| input);
    }
    let demands: Vec<Demand> = (0..count)
        .map(|value| Demand {
            len: pad(program.layouts[value].len()),
            alive: first[value]..=last[value],
            overwrites: overwrites[value],
        })
        .collect();
    let (offsets, total) = assign(&demands);
    let values = program.layouts.iter().zip(offsets);
    (values.map(|(&layout, offset)| Value { layout, offset, first: 0 }).collect(), total)
}

/// For each step, whether the border of its output is clear before it runs: the last value that was
/// written to any of its memory in the same run lay in the same place with the same layout.
pub(crate) fn clear_borders(program: &Program, values: &[Value]) -> Vec<bool> {
    let written: Vec<usize> =
        std::iter::once(0).chain(program.steps.iter().map(|step| step.output)).collect();
    let range = |value: &Value| value.offset..value.offset + value.layout.len();
    (1..written.len())
        .map(|step| {
            let value = &values[written[step]];
            let before = written[..step].iter().rev().map(|&other| &values[other]);
            let mut overlapping = before.filter(|other| {
                range(other).start < range(value).end && range(value).start < range(other).end
            });
            overlapping
                .next()
                .is_some_and(|other| other.offset == value.offset && other.layout == value.layout)
        })
        .collect()
}

//! A network made ready for one shape: what to run, in which order, where in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::buffer::AlignedBuffer;
use super::convert::{load_plane, store_channel, three};
use super::cost::{Choice, Method, choose};
use super::kernels::InstructionSet;
use super::layout::Tensor as Values;
use super::lower::{ConvDraft, Program, Work, lower};
use super::memory::{Demand, assign};
use super::operation::{Operands, Operation, Value};
use super::operations::{DirectConv, WinogradConv, phase_taps};
use super::options::Options;
use super::step::Step;
use super::team::Team;
use super::weights::{DirectWeights, Fill, Weights, WinogradWeights};
use crate::error::{Error, Result};
use crate::footprint::Footprint;
use crate::network::{Network, Node};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// A network planned for one shape of input: immutable, and shared by as many runs as you like.
///
/// ```
/// use haloscope_nn::engine::{Options, Plan};
/// use haloscope_nn::{Conv, NetworkBuilder, Shape, Tensor};
///
/// let mut builder = NetworkBuilder::new("mean", 2)?;
/// let input = builder.input(1)?;
/// let weight = Tensor::filled(Shape::new([1, 1, 3, 3])?, 1.0 / 9.0);
/// let mean = builder.conv("mean", Conv::new(weight).padding(1), input)?;
/// let network = builder.finish(mean)?;
///
/// let plan = Plan::new(&network, &Shape::new([1, 1, 20, 30])?, &Options::default())?;
/// let (input, mut output) = (vec![1.0; 600], vec![0.0; 600]);
/// plan.run(&input, &mut output, &mut plan.scratch())?;
/// assert!((output[31] - 1.0).abs() < 1e-5);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
pub struct Plan {
    name: String,
    /// Which network it is, without keeping its weights.
    network: Weak<[Node]>,
    input: Shape,
    output: Shape,
    values: Vec<Value>,
    output_value: usize,
    steps: Vec<Step>,
    threads: usize,
    memory: Memory,
}

/// The bytes that a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Weights in the form that the kernels read; part of the plan.
    pub weights: usize,
    /// The values between the steps; part of each [`Scratch`].
    pub activations: usize,
    /// Working memory of all threads together; part of each [`Scratch`].
    pub workspace: usize,
}

impl Memory {
    /// Bytes of a plan and one scratch.
    #[must_use]
    pub fn total(&self) -> usize {
        self.weights + self.activations + self.workspace
    }
}

/// The memory and the threads of one run at a time.
pub struct Scratch {
    memory: AlignedBuffer,
    team: Team,
}

impl Plan {
    /// Plans a network for inputs of this shape, any size that the network accepts when its sides
    /// are rounded up to the alignment. Transforms all weights.
    pub fn new(network: &Network, input: &Shape, options: &Options) -> Result<Self> {
        Self::build(network, input, options, HashMap::new())
    }

    /// Plans the same network for another shape. Layers that both plans compute in the same way
    /// share their weights, which exist once then; each plan counts them.
    pub fn with_shape(&self, network: &Network, input: &Shape, options: &Options) -> Result<Self> {
        // The weak pointer keeps the address from being used again, so equal addresses mean the
        // same network.
        if !Weak::ptr_eq(&self.network, &Arc::downgrade(&network.nodes)) {
            return Err(argument(
                "network",
                format!(
                    "`{}` is not the network of the plan for {}; plans share weights only for \
                     clones of one network",
                    network.name(),
                    self.input
                ),
            ));
        }
        let weights = self.steps.iter().filter_map(|step| {
            step.operation().weights().map(|weights| (step.name().to_owned(), weights))
        });
        Self::build(network, input, options, weights.collect())
    }

    fn build(
        network: &Network,
        input: &Shape,
        options: &Options,
        shared: HashMap<String, Weights>,
    ) -> Result<Self> {
        if options.threads == 0 {
            return Err(argument("threads", "0; at least 1 is needed".into()));
        }
        let instructions = options.instructions.unwrap_or_else(InstructionSet::detect);
        if !instructions.is_available() {
            return Err(argument(
                "instructions",
                format!("{instructions:?}, which this CPU does not have"),
            ));
        }
        // Networks whose output is not as large as their input have no footprint; they take the
        // input as it is.
        let spatial = match Footprint::of(network) {
            Ok(footprint) if input.spatial().len() == network.rank() && input.count() > 0 => {
                footprint.aligned(input.spatial())
            }
            _ => input.spatial().to_vec(),
        };
        let aligned = Shape::image(input.batch(), input.channels(), &spatial)?;
        let mut program = lower(network, &aligned, options.threads)?;
        let output = output_shape(network, input, &aligned, &program)?;
        let builder = Builder { instructions, options, shared };
        let (operations, weights) = builder.operations(&mut program)?;
        let may_overwrite = |step: usize, input: usize| operations[step].may_overwrite(input);
        let (values, activations) = place(&program, &may_overwrite);
        let workspace =
            operations.iter().map(|operation| operation.scratch_len()).max().unwrap_or(0);
        let memory = Memory {
            weights,
            activations: activations * size_of::<f32>(),
            workspace: options.threads * pad(workspace) * size_of::<f32>(),
        };
        let output_value = program.output;
        let clear = clear_borders(&program, &values);
        let steps = (program.steps.into_iter().zip(operations).zip(clear))
            .map(|((draft, operation), clear)| {
                Step::new(draft.name, operation, draft.inputs, draft.output, clear)
            })
            .collect();
        Ok(Self {
            name: network.name().into(),
            network: Arc::downgrade(&network.nodes),
            input: input.clone(),
            output,
            values,
            output_value,
            steps,
            threads: options.threads,
            memory,
        })
    }

    /// The shape of the input.
    #[must_use]
    pub fn input_shape(&self) -> &Shape {
        &self.input
    }

    /// The shape of the output.
    #[must_use]
    pub fn output_shape(&self) -> &Shape {
        &self.output
    }

    /// The bytes that the plan and a scratch take.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Floating-point operations by the definition of the layers, two for each multiplication: the
    /// kernels need fewer.
    #[must_use]
    pub fn flops(&self) -> f64 {
        self.steps.iter().map(Step::flops).sum()
    }

    /// The steps in the order in which they run.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Memory and threads for one run at a time. Any number of them may be in use at once.
    #[must_use]
    pub fn scratch(&self) -> Scratch {
        let bytes = self.memory.activations + self.memory.workspace;
        Scratch {
            memory: AlignedBuffer::uninitialised(bytes / size_of::<f32>()),
            team: Team::new(self.threads),
        }
    }

    /// Runs the network on `input`, in row-major order as its shape says, into `output`. Allocates
    /// nothing.
    pub fn run(&self, input: &[f32], output: &mut [f32], scratch: &mut Scratch) -> Result<()> {
        self.run_observed(input, output, scratch, &mut |_, _| ())
    }

    /// As [`run`](Self::run); `observe` is told of each step and the time it took.
    pub fn run_observed(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        observe: &mut dyn FnMut(&Step, Duration),
    ) -> Result<()> {
        self.check(input, output, scratch)?;
        let memory = scratch.memory.as_ptr();
        let workspaces = memory.wrapping_add(self.memory.activations / size_of::<f32>());
        let workspaces = Values { layout: self.values[0].layout, data: workspaces };
        let workspace_len = self.memory.workspace / size_of::<f32>() / self.threads;
        let tensor = |index: usize| {
            let Value { layout, offset } = self.values[index];
            Values { layout, data: memory.wrapping_add(offset) }
        };

        let source = tensor(0);
        let sizes = three(self.input.spatial(), 1);
        scratch.team.for_each(source.layout.planes(), &|_, plane| {
            // SAFETY: the scratch is borrowed by this run, and each plane is loaded once.
            unsafe { load_plane(input, sizes, &source, plane) };
        });
        for step in &self.steps {
            let start = Instant::now();
            let operands = Operands {
                memory,
                values: &self.values,
                inputs: step.inputs(),
                output: step.output(),
                border_is_clear: step.border_is_clear(),
            };
            scratch.team.for_each(step.operation().items(), &|thread, item| {
                let workspaces = &workspaces;
                let workspace = workspaces.data.wrapping_add(thread * workspace_len);
                // SAFETY: `place` gave each value its own memory as long as it lives; the team runs
                // each item once; each thread has its own workspace of the largest length.
                unsafe { step.operation().run(item, &operands, workspace) };
            });
            observe(step, start.elapsed());
        }
        let result = tensor(self.output_value);
        let sizes = three(self.output.spatial(), 1);
        let channels = self.output.channels();
        let target = Target(output.as_mut_ptr());
        let plane: usize = sizes.iter().product();
        scratch.team.for_each(self.output.batch() * channels, &|_, index| {
            let target = &target;
            // SAFETY: `check` compared the output's length with its shape; each index is a part of
            // its own.
            unsafe {
                let target = std::slice::from_raw_parts_mut(target.0.add(index * plane), plane);
                store_channel(&result, index / channels, index % channels, sizes, target);
            }
        });
        Ok(())
    }

    fn check(&self, input: &[f32], output: &[f32], scratch: &Scratch) -> Result<()> {
        let lengths = [("input", input.len(), &self.input), ("output", output.len(), &self.output)];
        for (what, len, shape) in lengths {
            if len != shape.count() {
                let count = shape.count();
                return Err(argument(
                    what,
                    format!("{len} values; the plan's shape {shape} needs {count}"),
                ));
            }
        }
        let bytes = self.memory.activations + self.memory.workspace;
        if scratch.memory.bytes() < bytes || scratch.team.threads() != self.threads {
            return Err(argument(
                "scratch",
                format!(
                    "{} bytes and {} threads; the plan needs {bytes} and {}: make it with the plan's \
                     own `scratch`",
                    scratch.memory.bytes(),
                    scratch.team.threads(),
                    self.threads
                ),
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("network", &self.name)
            .field("input", &self.input)
            .field("steps", &self.steps.len())
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// A pointer into the caller's output that threads share, each for a part of its own.
struct Target(*mut f32);
// SAFETY: see above.
unsafe impl Sync for Target {}

/// Workspaces start at cache lines.
fn pad(len: usize) -> usize {
    len.next_multiple_of(16)
}

fn argument(what: &'static str, reason: String) -> Error {
    Error::Argument { what, reason }
}

/// The output for an input that was extended: as much of it as belongs to the input.
fn output_shape(
    network: &Network,
    input: &Shape,
    aligned: &Shape,
    program: &Program,
) -> Result<Shape> {
    let layout = program.layouts[program.output];
    let sizes = [layout.depth, layout.height, layout.width];
    let spatial: Vec<usize> = (input.spatial().iter().zip(aligned.spatial()))
        .zip(&sizes[3 - network.rank()..])
        .map(|((&size, &aligned), &output)| (size * output).div_ceil(aligned).max(1))
        .collect();
    Shape::image(input.batch(), layout.channels, &spatial)
}

/// Gives every value its place.
fn place(program: &Program, may_overwrite: &dyn Fn(usize, usize) -> bool) -> (Vec<Value>, usize) {
    let count = program.layouts.len();
    // Step 0 loads the input; step i + 1 is the program's step i; the last one stores the output.
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
    (values.map(|(&layout, offset)| Value { layout, offset }).collect(), total)
}

/// For each step, whether the border of its output is clear before it runs: the last value that was
/// written to any of its memory in the same run lay in the same place with the same layout.
fn clear_borders(program: &Program, values: &[Value]) -> Vec<bool> {
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

/// Chooses how to convolve, and makes the operations with their weights.
struct Builder<'a> {
    instructions: InstructionSet,
    options: &'a Options,
    /// Weights of another plan by the names of its steps.
    shared: HashMap<String, Weights>,
}

/// Weights that wait to be filled from a network's tensor.
struct Job {
    weights: Arc<dyn Fill>,
    source: Tensor,
}

impl Builder<'_> {
    /// The operations of all steps and the bytes of their weights.
    fn operations(&self, program: &mut Program) -> Result<(Vec<Box<dyn Operation>>, usize)> {
        let choices = self.choices(program)?;
        let mut choices = choices.into_iter();
        let mut jobs = Vec::new();
        let operations: Vec<Box<dyn Operation>> = (program.steps.iter_mut())
            .map(|step| match std::mem::replace(&mut step.work, Work::Done) {
                Work::Fixed(operation) => operation,
                Work::Conv(conv) => {
                    let choice = choices.next().expect("a choice for each convolution");
                    self.convolution(&step.name, *conv, choice, &mut jobs)
                }
                Work::Done => unreachable!("each step is taken once"),
            })
            .collect();
        fill(&jobs, self.options.threads);
        let weights = operations.iter().filter_map(|operation| operation.weights());
        let bytes = weights.map(|weights| weights.bytes()).sum();
        Ok((operations, bytes))
    }

    /// A choice for each convolution that keeps the memory budget.
    fn choices(&self, program: &Program) -> Result<Vec<Choice>> {
        let options: Vec<Vec<Choice>> = (program.steps.iter())
            .filter_map(|step| match &step.work {
                Work::Conv(conv) => Some(conv.problem.choices(self.options.accuracy)),
                _ => None,
            })
            .collect();
        let fixed = Self::activation_bytes(program);
        let chosen = choose(&options, self.options.threads, fixed, self.options.memory_budget)
            .map_err(|least| {
                let budget = self.options.memory_budget.unwrap_or(0);
                argument(
                    "memory budget",
                    format!("{budget} bytes; at least {least} are needed for this shape"),
                )
            })?;
        Ok(options.iter().zip(chosen).map(|(list, index)| list[index]).collect())
    }

    /// Bytes of the activations, which do not depend on the choices: every way to convolve may
    /// overwrite what it adds.
    fn activation_bytes(program: &Program) -> usize {
        let may_overwrite = |step: usize, input: usize| match &program.steps[step].work {
            Work::Fixed(operation) => operation.may_overwrite(input),
            _ => input > 0,
        };
        place(program, &may_overwrite).1 * size_of::<f32>()
    }

    fn convolution(
        &self,
        name: &str,
        conv: ConvDraft,
        choice: Choice,
        jobs: &mut Vec<Job>,
    ) -> Box<dyn Operation> {
        let ConvDraft { problem, weight, bias, adds, activation } = conv;
        let (input, output, axes) = (problem.input, problem.output, problem.axes);
        let (instructions, epilogue) = (self.instructions, (adds, activation));
        match choice.method {
            Method::Direct => {
                let taps = phase_taps(&axes);
                let weights = match self.shared.get(name) {
                    Some(Weights::Direct(shared)) if shared.has_taps(&taps) => Arc::clone(shared),
                    _ => {
                        let channels = [output.channels, input.channels];
                        let kernel = axes.map(|axis| axis.kernel);
                        let transposed = axes[2].transposed;
                        let weights =
                            DirectWeights::new(transposed, channels, kernel, taps, bias.as_ref());
                        new_weights(weights, weight, jobs)
                    }
                };
                Box::new(DirectConv::new(instructions, input, output, axes, weights, epilogue))
            }
            Method::Winograd { tile, form } => {
                let weights = match self.shared.get(name) {
                    Some(Weights::Winograd(shared))
                        if shared.instructions() == instructions
                            && (shared.tile(), shared.form()) == (tile, form) =>
                    {
                        Arc::clone(shared)
                    }
                    _ => {
                        let kernel = problem.kernel_shape();
                        let form = (tile, form);
                        let weights =
                            WinogradWeights::new(instructions, form, kernel, bias.as_ref());
                        new_weights(weights, weight, jobs)
                    }
                };
                let padding = axes.map(|axis| axis.padding);
                let blocking = problem.blocking(tile, form);
                Box::new(WinogradConv::new(
                    instructions,
                    input,
                    output,
                    padding,
                    weights,
                    epilogue,
                    blocking,
                ))
            }
        }
    }
}

/// Weights that will be filled from `source`.
fn new_weights<W: Fill + 'static>(weights: W, source: Tensor, jobs: &mut Vec<Job>) -> Arc<W> {
    let weights = Arc::new(weights);
    jobs.push(Job { weights: weights.clone(), source });
    weights
}

/// Fills all weights, panel by panel, on several threads.
fn fill(jobs: &[Job], threads: usize) {
    let panels: Vec<(usize, usize)> = (jobs.iter().enumerate())
        .flat_map(|(job, Job { weights, .. })| (0..weights.panels()).map(move |panel| (job, panel)))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(job, panel)) = panels.get(next.fetch_add(1, Ordering::Relaxed)) {
            // SAFETY: each panel is taken once, and the weights are not read before all are filled.
            unsafe { jobs[job].weights.fill(&jobs[job].source, panel) };
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

//! A network made ready for one shape: what to run, in which order, where in memory.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use super::build::{Builder, bytes_with, choose_methods, fastest_bytes};
use super::convert::three;
use super::cost::Method;
use super::ghosts::{Exchange, add_ghosts, grains};
use super::kernels::InstructionSet;
use super::layout::Layout;
use super::lower::lower;
use super::operation::Value;
use super::place::{clear_borders, place};
use super::stage::Stage;
use super::stock::Shelf;
use super::workplace::{Room, Workplace};
use crate::engine::graph::Aligned;
use crate::engine::halo::{Halo, HaloPlan, NoHalo, check_whole};
use crate::engine::options::EngineOptions;
use crate::engine::{EnginePlan, Grain, PlanMemory, PlanStep, Scratch, Shard};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;

/// A network planned for one shape of input.
pub(crate) struct CpuPlan {
    name: String,
    input: Shape,
    output: Shape,
    values: Vec<Value>,
    output_value: usize,
    steps: Vec<PlanStep>,
    /// What the steps do, in the same order.
    stages: Vec<Stage>,
    halo: HaloPlan,
    /// What the rounds of the halo do, in the same order.
    exchanges: Vec<Exchange>,
    room: Room,
    memory: PlanMemory,
}

/// What one run at a time works with.
struct Bench {
    workplace: Workplace,
    /// The faces of the largest exchange.
    faces: Vec<f32>,
}

/// What the whole image decides for its parts: the shape on which the network runs, the methods of its convolutions, and
/// with them where it may be cut.
pub(crate) struct Cut {
    run: Shape,
    pub(crate) methods: Vec<Method>,
    pub(crate) grains: Vec<Grain>,
}

impl Cut {
    pub(crate) fn of(network: &Network, whole: &Shape, options: &EngineOptions) -> Result<Self> {
        if let Some(budget) = options.memory_budget {
            let reason = format!(
                "{budget} bytes for a part of an image; the methods that keep it would not be those of the whole: leave it \
                 out and take more parts, or keep it with tiles that overlap"
            );
            return Err(argument("memory budget", reason));
        }
        let Aligned { input, run } = Aligned::of(network, whole)?;
        let program = lower(network, &run, options.threads)?;
        let methods = choose_methods(&program, options)?;
        let grains = grains(network, &input, &run, &program, &methods)?;
        Ok(Self { run, methods, grains })
    }

    /// What a part exchanges.
    pub(crate) fn halo(
        network: &Network,
        shard: &Shard,
        options: &EngineOptions,
    ) -> Result<HaloPlan> {
        if shard.is_whole() {
            return Ok(HaloPlan::default());
        }
        let aligned = Self::of(network, shard.whole(), options)?.part(shard)?;
        let mut program = lower(network, &aligned.run, options.threads)?;
        Ok(halo_of(&add_ghosts(network, shard, &mut program)))
    }

    /// The bytes that a plan for a part would take, without the cost of making one.
    pub(crate) fn bytes(
        network: &Network,
        shard: &Shard,
        options: &EngineOptions,
    ) -> Result<usize> {
        let cut = Self::of(network, shard.whole(), options)?;
        let mut program = lower(network, &cut.part(shard)?.run, options.threads)?;
        let faces = halo_of(&add_ghosts(network, shard, &mut program)).faces_len();
        Ok(bytes_with(&program, &cut.methods, options.threads) + faces * size_of::<f32>())
    }

    /// The shape on which the network runs for a part: that of the part, extended where the whole is.
    pub(crate) fn part(&self, shard: &Shard) -> Result<Aligned> {
        let sides = shard.whole().spatial();
        let mut spatial = Vec::with_capacity(sides.len());
        for (axis, (part, &side)) in shard.region().iter().zip(sides).enumerate() {
            self.grains[axis].check(part, side)?;
            let end = if part.end == side { self.run.spatial()[axis] } else { part.end };
            spatial.push(end - part.start);
        }
        let input = shard.shape().clone();
        let run = Shape::image(input.batch(), input.channels(), &spatial)?;
        Ok(Aligned { input, run })
    }
}

impl CpuPlan {
    /// Plans a network, of which it may be the only owner, for an image or a part of one. Transforms all weights that are
    /// not on the shelf.
    pub(crate) fn new(
        network: Cow<'_, Network>,
        shard: &Shard,
        options: &EngineOptions,
        instructions: InstructionSet,
        shelf: &Shelf,
    ) -> Result<Self> {
        let cut =
            if shard.is_whole() { None } else { Some(Cut::of(&network, shard.whole(), options)?) };
        let aligned = match &cut {
            None => Aligned::of(&network, shard.shape())?,
            Some(cut) => cut.part(shard)?,
        };
        let mut program = lower(&network, &aligned.run, options.threads)?;
        let methods = match cut {
            None => choose_methods(&program, options)?,
            Some(cut) => cut.methods,
        };
        let output =
            aligned.output(&shape_of(&program.layouts[program.output], network.rank())?)?;
        let exchanges = add_ghosts(&network, shard, &mut program);
        let name = network.name().to_owned();
        // From here on only the program holds the weights of a network that is consumed.
        drop(network);
        let mut builder = Builder { instructions, options, shelf: shelf.open() };
        let (operations, weights) = builder.operations(&mut program, &methods)?;
        drop(builder);
        let may_overwrite = |step: usize, input: usize| operations[step].may_overwrite(input);
        let (values, activations) = place(&program, &may_overwrite);
        let workspace =
            operations.iter().map(|operation| operation.scratch_len()).max().unwrap_or(0);
        let room = Room::new(activations, workspace, options.threads);
        let halo = halo_of(&exchanges);
        let memory = PlanMemory {
            weights,
            activations: activations * size_of::<f32>(),
            workspace: room.workspace_bytes() + halo.faces_len() * size_of::<f32>(),
            ..PlanMemory::default()
        };
        let output_value = program.output;
        let clear = clear_borders(&program, &values);
        let (steps, stages) = (program.steps.into_iter().zip(operations).zip(clear))
            .map(|((draft, operation), border_is_clear)| {
                let flops = 2.0 * operation.multiplications();
                let step = PlanStep::new(draft.name, operation.describe(), flops);
                let (inputs, output) = (draft.inputs, draft.output);
                (step, Stage { operation, inputs, output, border_is_clear })
            })
            .unzip();
        let input = aligned.input;
        Ok(Self {
            name,
            input,
            output,
            values,
            output_value,
            steps,
            stages,
            halo,
            exchanges,
            room,
            memory,
        })
    }

    /// The scratch as what it is, if everything fits the plan.
    fn check<'a>(
        &self,
        input: &[f32],
        output: &[f32],
        scratch: &'a mut Scratch,
    ) -> Result<&'a mut Bench> {
        check_lengths(input, output, &self.input, &self.output)?;
        let Some(scratch) = scratch.get_mut::<Bench>() else {
            let reason = "that of another engine; make it with the plan's own `scratch`";
            return Err(argument("scratch", reason.into()));
        };
        self.room.check(&scratch.workplace)?;
        if scratch.faces.len() < self.halo.faces_len() {
            let reason = "that of another part of the image; make it with the plan's own `scratch`";
            return Err(argument("scratch", reason.into()));
        }
        Ok(scratch)
    }
}

impl EnginePlan for CpuPlan {
    fn input_shape(&self) -> &Shape {
        &self.input
    }

    fn output_shape(&self) -> &Shape {
        &self.output
    }

    fn memory(&self) -> PlanMemory {
        self.memory
    }

    fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    fn scratch(&self) -> Scratch {
        Scratch::new(Bench {
            workplace: self.room.workplace(),
            faces: vec![0.0; self.halo.faces_len()],
        })
    }

    fn run_observed(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        check_whole(&self.halo)?;
        self.run_shard(input, output, scratch, &mut NoHalo, observe)
    }

    fn halo(&self) -> &HaloPlan {
        &self.halo
    }

    /// Allocates nothing.
    fn run_shard(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        halo: &mut dyn Halo,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        let scratch = self.check(input, output, scratch)?;
        let memory = scratch.workplace.memory();
        let tensor = |index: usize| self.values[index].tensor(memory);
        let sizes = three(self.input.spatial(), 1);
        let rows = 0..self.values[0].layout.height;
        scratch.workplace.load(input, &(0..sizes[1]), sizes, &self.values[0], &rows);
        let mut exchanges = self.exchanges.iter().peekable();
        for (index, (step, stage)) in self.steps.iter().zip(&self.stages).enumerate() {
            let start = Instant::now();
            while let Some(exchange) = exchanges.next_if(|next| next.round.step == index) {
                let (round, value) = (&exchange.round, tensor(exchange.value));
                // SAFETY: the value is complete, and only this thread uses it between two steps.
                unsafe { exchange.run(round, &exchange.rows(), &value, &mut scratch.faces, halo) }
                    .map_err(|reason| halo_failed(&self.name, step, reason))?;
            }
            let rows = 0..self.values[stage.output].layout.height;
            scratch.workplace.run(&self.room, stage, &self.values, rows)?;
            observe(step, start.elapsed());
        }
        let sizes = three(self.output.spatial(), 1);
        scratch.workplace.store(&self.values[self.output_value], sizes, &(0..sizes[1]), output);
        Ok(())
    }
}

impl fmt::Debug for CpuPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuPlan")
            .field("network", &self.name)
            .field("input", &self.input)
            .field("steps", &self.steps.len())
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

fn argument(what: &'static str, reason: String) -> Error {
    Error::Argument { what, reason }
}

/// The exchanges as neighbours see them.
fn halo_of(exchanges: &[Exchange]) -> HaloPlan {
    HaloPlan::new(exchanges.iter().map(|exchange| exchange.round.clone()).collect())
}

/// That something went wrong between the parts of an image.
pub(crate) fn halo_failed(network: &str, step: &PlanStep, reason: String) -> Error {
    Error::Halo { network: network.to_owned(), step: step.name().to_owned(), reason }
}

/// The bytes that a plan for a whole image would take without a budget.
pub(crate) fn whole_bytes(
    network: &Network,
    input: &Shape,
    options: &EngineOptions,
) -> Result<usize> {
    let program = lower(network, &Aligned::of(network, input)?.run, options.threads)?;
    Ok(fastest_bytes(&program, options))
}

/// Refuses arrays that have not the shapes of a plan.
pub(crate) fn check_lengths(
    input: &[f32],
    output: &[f32],
    input_shape: &Shape,
    output_shape: &Shape,
) -> Result<()> {
    for (what, len, shape) in
        [("input", input.len(), input_shape), ("output", output.len(), output_shape)]
    {
        if len != shape.count() {
            let count = shape.count();
            let reason = format!("{len} values; the plan's shape {shape} needs {count}");
            return Err(argument(what, reason));
        }
    }
    Ok(())
}

/// A layout as a network of so many axes sees it.
pub(crate) fn shape_of(layout: &Layout, rank: usize) -> Result<Shape> {
    let sizes = [layout.depth, layout.height, layout.width];
    Shape::image(layout.batch, layout.channels, &sizes[3 - rank..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Architecture, Drunet, Unet};

    fn plan(network: &Network, input: &Shape, options: &EngineOptions) -> CpuPlan {
        let instructions = InstructionSet::detect();
        let shard = Shard::whole_of(input);
        CpuPlan::new(Cow::Borrowed(network), &shard, options, instructions, &Shelf::default())
            .expect("any size can be planned")
    }

    #[test]
    fn a_run_does_not_depend_on_what_the_scratch_held() {
        let drunet = Drunet { channels: [8, 16, 24, 40], blocks: 2, ..Drunet::default() };
        let unet = Unet { channels: vec![9, 17, 24], ..Unet::default() };
        let volume = Drunet { rank: 3, blocks: 1, ..drunet.clone() };
        for (model, spatial) in [
            (drunet.random(1), &[34, 50][..]),
            (unet.random(1), &[21, 40][..]),
            (volume.random(1), &[8, 16, 11][..]),
        ] {
            let model = model.expect("the options are valid");
            let channels = model.network().input_channels();
            let shape = Shape::image(2, channels, spatial).expect("small");
            let options = EngineOptions { threads: 2, ..EngineOptions::default() };
            let plan = plan(model.network(), &shape, &options);
            let input: Vec<f32> = (0..shape.count()).map(|i| (i % 13) as f32 - 6.0).collect();
            let results = [0.0, f32::NAN, 1e30].map(|filling| {
                let mut scratch = plan.scratch();
                let workplace = &scratch.get_mut::<Bench>().expect("the CPU's").workplace;
                for index in 0..workplace.len() {
                    // SAFETY: the scratch has this many floats and nobody else uses it.
                    unsafe { workplace.memory().add(index).write(filling) };
                }
                let mut output = vec![0.0; plan.output_shape().count()];
                plan.run(&input, &mut output, &mut scratch).expect("lengths fit");
                output
            });
            assert!(results[0].iter().all(|value| value.is_finite()));
            assert_eq!(results[0], results[1]);
            assert_eq!(results[0], results[2]);
        }
    }
}

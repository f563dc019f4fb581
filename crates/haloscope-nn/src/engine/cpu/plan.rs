//! A network made ready for one shape: what to run, in which order, where in memory.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use super::buffer::AlignedBuffer;
use super::build::{Builder, choose_methods};
use super::convert::{load_plane, store_channel, three};
use super::cost::Method;
use super::ghosts::{Exchange, exchanges, grains};
use super::kernels::InstructionSet;
use super::layout::{Layout, Tensor as Values};
use super::lower::lower;
use super::operation::{Operands, Value};
use super::place::{clear_borders, pad, place};
use super::stage::Stage;
use super::stock::Shelf;
use super::team::Team;
use crate::engine::graph::Aligned;
use crate::engine::halo::{Faces, Halo, HaloPlan, NoHalo, Round, check_whole};
use crate::engine::options::EngineOptions;
use crate::engine::{EnginePlan, Grain, PlanMemory, PlanStep, Scratch, Shard};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;
use crate::stop::Stop;

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
    threads: usize,
    memory: PlanMemory,
}

/// The memory and the threads of one run at a time.
struct Workplace {
    memory: AlignedBuffer,
    /// The faces of the largest exchange.
    faces: Vec<f32>,
    team: Team,
}

/// What the whole image decides for its parts: the shape on which the network runs, the methods of its convolutions, and
/// with them where it may be cut.
pub(crate) struct Cut {
    run: Shape,
    methods: Vec<Method>,
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
        let program = lower(network, &aligned.run, options.threads)?;
        Ok(halo_of(&exchanges(network, shard, &program)))
    }

    /// The shape on which the network runs for a part: that of the part, extended where the whole is.
    fn part(&self, shard: &Shard) -> Result<Aligned> {
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
        let exchanges = exchanges(&network, shard, &program);
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
        let memory = PlanMemory {
            weights,
            activations: activations * size_of::<f32>(),
            workspace: (options.threads * pad(workspace) + faces_len(&exchanges))
                * size_of::<f32>(),
            device: 0,
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
        let halo = halo_of(&exchanges);
        let (input, threads) = (aligned.input, options.threads);
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
            threads,
            memory,
        })
    }

    /// Bytes of the activations and the workspaces of the threads.
    fn buffer_bytes(&self) -> usize {
        let faces = faces_len(&self.exchanges) * size_of::<f32>();
        self.memory.activations + self.memory.workspace - faces
    }

    /// Fills the ghosts of a value.
    fn exchange(
        &self,
        exchange: &Exchange,
        tensor: &Values,
        faces: &mut [f32],
        halo: &mut dyn Halo,
    ) -> Result<()> {
        let Round { step, sent, received, .. } = &exchange.round;
        let (before, rest) = faces.split_at_mut(sent[0]);
        let (after, rest) = rest.split_at_mut(sent[1]);
        let (from_before, rest) = rest.split_at_mut(received[0]);
        let from_after = &mut rest[..received[1]];
        // SAFETY: the value is complete, and only this thread uses it between two steps.
        unsafe {
            exchange.poison(tensor);
            for (side, face) in [&mut *before, &mut *after].into_iter().enumerate() {
                if !face.is_empty() {
                    exchange.pack(tensor, side, face);
                }
            }
        }
        let faces =
            Faces { sent: [before, after], received: [&mut *from_before, &mut *from_after] };
        halo.exchange(&exchange.round, faces).map_err(|reason| {
            let step = self.steps[*step].name().to_owned();
            Error::Halo { network: self.name.clone(), step, reason }
        })?;
        for (side, face) in [from_before, from_after].into_iter().enumerate() {
            if !face.is_empty() {
                // SAFETY: as above.
                unsafe { exchange.unpack(tensor, side, face) };
            }
        }
        Ok(())
    }

    /// The scratch as what it is, if everything fits the plan.
    fn check<'a>(
        &self,
        input: &[f32],
        output: &[f32],
        scratch: &'a mut Scratch,
    ) -> Result<&'a mut Workplace> {
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
        let Some(scratch) = scratch.get_mut::<Workplace>() else {
            let reason = "that of another engine; make it with the plan's own `scratch`";
            return Err(argument("scratch", reason.into()));
        };
        let bytes = self.buffer_bytes();
        if scratch.memory.bytes() < bytes
            || scratch.faces.len() < faces_len(&self.exchanges)
            || scratch.team.threads() != self.threads
        {
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
        Scratch::new(Workplace {
            memory: AlignedBuffer::uninitialised(self.buffer_bytes() / size_of::<f32>()),
            faces: vec![0.0; faces_len(&self.exchanges)],
            team: Team::new(self.threads),
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
        let memory = scratch.memory.as_ptr();
        let workspaces = memory.wrapping_add(self.memory.activations / size_of::<f32>());
        let workspaces = Values { layout: self.values[0].layout, data: workspaces };
        let workspace_len =
            (self.buffer_bytes() - self.memory.activations) / size_of::<f32>() / self.threads;
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
        let stop = Stop::current();
        let mut exchanges = self.exchanges.iter().peekable();
        for (index, (step, stage)) in self.steps.iter().zip(&self.stages).enumerate() {
            let start = Instant::now();
            while let Some(exchange) = exchanges.next_if(|next| next.round.step == index) {
                self.exchange(exchange, &tensor(exchange.value), &mut scratch.faces, halo)?;
            }
            let Stage { operation, inputs, output, border_is_clear } = stage;
            let operands = Operands {
                memory,
                values: &self.values,
                inputs,
                output: *output,
                border_is_clear: *border_is_clear,
            };
            scratch.team.for_each(operation.items(), &|thread, item| {
                if stop.is_requested() {
                    return;
                }
                let workspaces = &workspaces;
                let workspace = workspaces.data.wrapping_add(thread * workspace_len);
                // SAFETY: `place` gave each value its own memory as long as it lives; the team runs
                // each item once; each thread has its own workspace of the largest length.
                unsafe { operation.run(item, &operands, workspace) };
            });
            if stop.is_requested() {
                return Err(Error::Interrupted);
            }
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

/// A pointer into the caller's output that threads share, each for a part of its own.
struct Target(*mut f32);
// SAFETY: see above.
unsafe impl Sync for Target {}

fn argument(what: &'static str, reason: String) -> Error {
    Error::Argument { what, reason }
}

/// The exchanges as neighbours see them.
fn halo_of(exchanges: &[Exchange]) -> HaloPlan {
    HaloPlan::new(exchanges.iter().map(|exchange| exchange.round.clone()).collect())
}

/// Values of the faces of the largest exchange.
fn faces_len(exchanges: &[Exchange]) -> usize {
    exchanges.iter().map(Exchange::len).max().unwrap_or(0)
}

/// A layout as a network of so many axes sees it.
fn shape_of(layout: &Layout, rank: usize) -> Result<Shape> {
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
                let memory = &scratch.get_mut::<Workplace>().expect("the CPU's").memory;
                for index in 0..memory.bytes() / size_of::<f32>() {
                    // SAFETY: the scratch has this many floats and nobody else uses it.
                    unsafe { memory.as_ptr().add(index).write(filling) };
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

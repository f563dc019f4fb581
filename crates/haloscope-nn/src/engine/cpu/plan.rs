//! A network made ready for one shape: what to run, in which order, where in memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::buffer::AlignedBuffer;
use super::build::Builder;
use super::convert::{load_plane, store_channel, three};
use super::kernels::InstructionSet;
use super::layout::Tensor as Values;
use super::lower::{Program, lower};
use super::operation::{Operands, Value};
use super::place::{clear_borders, pad, place};
use super::step::Step;
use super::team::Team;
use super::weights::Weights;
use crate::engine::options::{MAX_THREADS, Options};
use crate::error::{Error, Result};
use crate::footprint::Footprint;
use crate::network::{Network, Node};
use crate::shape::Shape;

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
        Self::build(Cow::Borrowed(network), input, options, HashMap::new())
    }

    /// As [`new`](Self::new), and lets go of each weight of the network as soon as it is
    /// transformed: what is alive at any time is no more than the finished plan and one layer's
    /// weights. That holds if no clone of the network and no [`StateDict`](crate::weights::StateDict)
    /// keeps the weights too.
    ///
    /// ```
    /// use haloscope_nn::Shape;
    /// use haloscope_nn::engine::{Options, Plan};
    /// use haloscope_nn::models::{Architecture, Dncnn};
    ///
    /// let model = Dncnn { channels: 16, depth: 4, ..Dncnn::default() }.random(1)?;
    /// let options = Options { memory_budget: Some(1_000_000), ..Options::default() };
    /// let plan = Plan::consuming(model.into_network(), &Shape::new([1, 3, 32, 32])?, &options)?;
    /// assert!(plan.memory().total() <= 1_000_000);
    /// # Ok::<(), haloscope_nn::Error>(())
    /// ```
    pub fn consuming(network: Network, input: &Shape, options: &Options) -> Result<Self> {
        Self::build(Cow::Owned(network), input, options, HashMap::new())
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
        Self::build(Cow::Borrowed(network), input, options, weights.collect())
    }

    fn build(
        network: Cow<'_, Network>,
        input: &Shape,
        options: &Options,
        shared: HashMap<String, Weights>,
    ) -> Result<Self> {
        if !(1..=MAX_THREADS).contains(&options.threads) {
            let reason = format!("{}; a number from 1 to {MAX_THREADS} is needed", options.threads);
            return Err(argument("threads", reason));
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
        let spatial = match Footprint::of(&network) {
            Ok(footprint) if input.spatial().len() == network.rank() && input.count() > 0 => {
                footprint.aligned(input.spatial())
            }
            _ => input.spatial().to_vec(),
        };
        let aligned = Shape::image(input.batch(), input.channels(), &spatial)?;
        let mut program = lower(&network, &aligned, options.threads)?;
        let output = output_shape(&network, input, &aligned, &program)?;
        let (name, nodes) = (network.name().to_owned(), Arc::downgrade(&network.nodes));
        // From here on only the program holds the weights of a network that is consumed.
        drop(network);
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
            name,
            network: nodes,
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

    /// The threads that a run uses.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Architecture, Drunet, Unet};

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
            let options = Options { threads: 2, ..Options::default() };
            let plan = Plan::new(model.network(), &shape, &options).expect("any size");
            let input: Vec<f32> = (0..shape.count()).map(|i| (i % 13) as f32 - 6.0).collect();
            let results = [0.0, f32::NAN, 1e30].map(|filling| {
                let mut scratch = plan.scratch();
                let len = scratch.memory.bytes() / size_of::<f32>();
                for index in 0..len {
                    // SAFETY: the scratch has this many floats and nobody else uses it.
                    unsafe { scratch.memory.as_ptr().add(index).write(filling) };
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

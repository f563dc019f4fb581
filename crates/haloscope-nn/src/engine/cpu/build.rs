//! From a program to operations: a method for each convolution, and weights for the methods.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buffer::return_free_memory;
use super::cost::{Choice, Method, choose};
use super::kernels::InstructionSet;
use super::lower::{ConvDraft, Program, Work};
use super::operation::Operation;
use super::operations::{DirectConv, WinogradConv, phase_taps};
use super::place::place;
use super::stock::OpenShelf;
use super::weights::{DirectWeights, Fill, Weights, WinogradWeights};
use crate::engine::options::EngineOptions;
use crate::error::{Error, Result};
use crate::stop::Stop;
use crate::tensor::Tensor;

/// Chooses how to convolve, and makes the operations with their weights.
pub(crate) struct Builder<'a> {
    pub(crate) instructions: InstructionSet,
    pub(crate) options: &'a EngineOptions,
    /// Weights that other plans of the network have.
    pub(crate) shelf: OpenShelf<'a>,
}

/// Weights that wait to be filled from a network's tensor.
struct Job {
    weights: Arc<dyn Fill>,
    /// Gone when the last panel is filled.
    source: Mutex<Option<Tensor>>,
    /// Panels that are not filled yet.
    left: AtomicUsize,
}

impl Builder<'_> {
    /// The operations of all steps, with a method for each convolution, and the bytes of their weights.
    pub(crate) fn operations(
        &mut self,
        program: &mut Program,
        methods: &[Method],
    ) -> Result<(Vec<Box<dyn Operation>>, usize)> {
        let mut methods = methods.iter();
        let mut jobs = Vec::new();
        let operations: Vec<Box<dyn Operation>> = (program.steps.iter_mut())
            .map(|step| match std::mem::replace(&mut step.work, Work::Done) {
                Work::Fixed(operation) => operation,
                Work::Conv(conv) => {
                    let method = methods.next().expect("a method for each convolution");
                    self.convolution(&step.name, *conv, *method, &mut jobs)
                }
                Work::Done => unreachable!("each step is taken once"),
            })
            .collect();
        if let Err(interrupted) = fill(&jobs, self.options.threads) {
            // Nobody may find weights that are not filled.
            drop((operations, jobs));
            self.shelf.tidy();
            return Err(interrupted);
        }
        self.shelf.tidy();
        let weights = operations.iter().filter_map(|operation| operation.weights());
        let bytes = weights.map(|weights| weights.bytes()).sum();
        Ok((operations, bytes))
    }

    fn convolution(
        &mut self,
        name: &str,
        conv: ConvDraft,
        method: Method,
        jobs: &mut Vec<Job>,
    ) -> Box<dyn Operation> {
        let ConvDraft { problem, weight, bias, adds, activation } = conv;
        let (input, output, axes) = (problem.input, problem.output, problem.axes);
        let (instructions, epilogue) = (self.instructions, (adds, activation));
        match method {
            Method::Direct => {
                let taps = phase_taps(&axes);
                let weights = match self.shelf.get(name, method) {
                    Some(Weights::Direct(shared)) if shared.has_taps(&taps) => shared,
                    _ => {
                        let channels = [output.channels, input.channels];
                        let kernel = axes.map(|axis| axis.kernel);
                        let transposed = axes[2].transposed;
                        let weights =
                            DirectWeights::new(transposed, channels, kernel, taps, bias.as_ref());
                        let weights = new_weights(weights, weight, jobs);
                        self.shelf.put(name, method, &Weights::Direct(Arc::clone(&weights)));
                        weights
                    }
                };
                Box::new(DirectConv::new(instructions, input, output, axes, weights, epilogue))
            }
            Method::Winograd { tile, form } => {
                let shared = self.shelf.get(name, method);
                let weights = if let Some(Weights::Winograd(shared)) = shared {
                    shared
                } else {
                    let (kernel, form) = (problem.kernel_shape(), (tile, form));
                    let weights = WinogradWeights::new(instructions, form, kernel, bias.as_ref());
                    let weights = new_weights(weights, weight, jobs);
                    self.shelf.put(name, method, &Weights::Winograd(Arc::clone(&weights)));
                    weights
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

/// A method for each convolution of a program, so that all of it keeps the memory budget.
pub(crate) fn choose_methods(program: &Program, options: &EngineOptions) -> Result<Vec<Method>> {
    let choices = choices(program, options);
    let fixed = activation_bytes(program);
    let chosen =
        choose(&choices, options.threads, fixed, options.memory_budget).map_err(|least| {
            let budget = options.memory_budget.unwrap_or(0);
            Error::Argument {
                what: "memory budget",
                reason: format!("{budget} bytes; at least {least} are needed for this shape"),
            }
        })?;
    Ok(choices.iter().zip(chosen).map(|(list, index)| list[index].method).collect())
}

/// The bytes of a plan of a program with the fastest methods.
pub(crate) fn fastest_bytes(program: &Program, options: &EngineOptions) -> usize {
    let choices = choices(program, options);
    let fastest = || choices.iter().map(|list| &list[0]);
    let weights: usize = fastest().map(|choice| choice.weight_bytes).sum();
    let scratch = fastest().map(|choice| choice.scratch_bytes).max().unwrap_or(0);
    activation_bytes(program) + weights + scratch * options.threads
}

/// The bytes of a plan of a program with these methods.
pub(crate) fn bytes_with(program: &Program, methods: &[Method], threads: usize) -> usize {
    let convolutions = program.steps.iter().filter_map(|step| match &step.work {
        Work::Conv(conv) => Some(&conv.problem),
        _ => None,
    });
    let (mut weights, mut scratch) = (0, 0);
    for (problem, method) in convolutions.zip(methods) {
        let choice = problem.choice(*method);
        weights += choice.weight_bytes;
        scratch = scratch.max(choice.scratch_bytes);
    }
    activation_bytes(program) + weights + scratch * threads
}

/// The ways to compute each convolution.
fn choices(program: &Program, options: &EngineOptions) -> Vec<Vec<Choice>> {
    let convolutions = program.steps.iter().filter_map(|step| match &step.work {
        Work::Conv(conv) => Some(conv.problem.choices(options.accuracy)),
        _ => None,
    });
    convolutions.collect()
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

/// Weights that will be filled from `source`.
fn new_weights<W: Fill + 'static>(weights: W, source: Tensor, jobs: &mut Vec<Job>) -> Arc<W> {
    let weights = Arc::new(weights);
    let left = AtomicUsize::new(weights.panels());
    jobs.push(Job { weights: weights.clone(), source: Mutex::new(Some(source)), left });
    weights
}

impl Job {
    /// Fills one panel and returns the bytes that were freed with the last one.
    ///
    /// # Safety
    /// Each panel is filled once, before anybody reads it.
    unsafe fn fill(&self, panel: usize) -> usize {
        let source = self.lock().clone().expect("it is there until the last panel is filled");
        // SAFETY: the caller's contract.
        unsafe { self.weights.fill(&source, panel) };
        drop(source);
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return 0;
        }
        let source = self.lock().take().filter(Tensor::is_only_owner);
        source.map_or(0, |source| size_of_val(source.values()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fills all weights, layer by layer, on several threads.
fn fill(jobs: &[Job], threads: usize) -> Result<()> {
    /// Bytes that may be let go before the system gets them back.
    const KEPT: usize = 16 << 20;
    let panels: Vec<(usize, usize)> = (jobs.iter().enumerate())
        .flat_map(|(job, Job { weights, .. })| (0..weights.panels()).map(move |panel| (job, panel)))
        .collect();
    let next = AtomicUsize::new(0);
    let released = AtomicUsize::new(0);
    let stop = Stop::current();
    let work = || {
        while !stop.is_requested()
            && let Some(&(job, panel)) = panels.get(next.fetch_add(1, Ordering::Relaxed))
        {
            // SAFETY: each panel is taken once, and the weights are not read before all are filled.
            let bytes = unsafe { jobs[job].fill(panel) };
            let before = released.fetch_add(bytes, Ordering::Relaxed);
            if bytes > 0 && before / KEPT < (before + bytes) / KEPT {
                return_free_memory();
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A thread that cannot be started is done without: the others take its panels.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    if released.into_inner() > 0 {
        return_free_memory();
    }
    if stop.is_requested() { Err(Error::Interrupted) } else { Ok(()) }
}

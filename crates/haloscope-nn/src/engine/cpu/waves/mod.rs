//! Waves: a network run from the first rows of an image to the last in memory that does not grow with its height.
//!
//! Each wave takes a band of rows and runs every step on as many rows as its inputs allow (`flow.rs`). Within a wave, values
//! share memory as in any plan, only that they are as high as a band (`size.rs`). What a later wave reads is kept in rings
//! of rows (`ring.rs`): some rows at the lower end of each value, and as many as the delay where a skip connection reads
//! them. Steps compute the tiles that they compute for a whole image, each once, so the result has the same bits.
//!
//! A part of an image that is cut between columns, or of a volume that is cut between columns and planes, runs in waves beside
//! its neighbours. As soon as rows of a value are made, their ghosts are exchanged, and kept with them in the ring, so each row travels once. Cuts between rows would make
//! a part wait for the last wave of the part above.

mod flow;
mod ring;
mod size;

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use flow::{Flow, Wave};
use ring::Ring;
use size::Places;

use super::build::{Builder, choose_methods};
use super::convert::three;
use super::cost::Method;
use super::ghosts::{Exchange, add_ghosts};
use super::kernels::InstructionSet;
use super::lower::{Program, Work, lower};
use super::operation::Value;
use super::operations::tiles;
use super::plan::{Cut, check_lengths, halo_failed, shape_of};
use super::stage::Stage;
use super::stock::Shelf;
use super::workplace::{Room, Workplace};
use crate::engine::graph::Aligned;
use crate::engine::halo::{Halo, HaloPlan, NoHalo, check_whole};
use crate::engine::options::EngineOptions;
use crate::engine::plan::{BandSink, BandSource};
use crate::engine::{EnginePlan, PlanMemory, PlanStep, Scratch, Shard, Waves, WavesOutline};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;

/// A network planned to run on images of one shape, or on a part of them, in waves.
pub(crate) struct WavesPlan {
    name: String,
    input: Shape,
    output: Shape,
    output_value: usize,
    flow: Flow,
    windows: Vec<Value>,
    rings: Vec<Ring>,
    /// The most rows that are read and written at a time.
    bands: [usize; 2],
    steps: Vec<PlanStep>,
    stages: Vec<Stage>,
    /// For each value how its ghosts are exchanged, axis by axis.
    ghosts: Vec<Vec<Exchange>>,
    halo: HaloPlan,
    waves: Waves,
    room: Room,
    memory: PlanMemory,
}

/// What one run at a time works with.
struct Bench {
    workplace: Workplace,
    windows: Vec<Value>,
    wave: Wave,
    /// The steps with the operations of a wave.
    steps: Vec<PlanStep>,
    /// A band of the input and one of the output.
    bands: [Vec<f32>; 2],
    /// The faces of the largest exchange.
    faces: Vec<f32>,
}

/// What is known of a plan before its weights are transformed.
pub(crate) struct WavesDraft {
    name: String,
    input: Shape,
    output: Shape,
    program: Program,
    methods: Vec<Method>,
    ghosts: Vec<Vec<Exchange>>,
    flow: Flow,
    places: Places,
    halo: HaloPlan,
    bytes: usize,
}

impl WavesDraft {
    /// Drafts a plan with the methods that a plan for the whole image would have without a memory budget, and with bands of
    /// so many rows, if they are given.
    pub(crate) fn new(
        network: &Network,
        shard: &Shard,
        band: Option<usize>,
        options: &EngineOptions,
    ) -> Result<Self> {
        check_rows(shard)?;
        let unlimited = EngineOptions { memory_budget: None, ..options.clone() };
        let (aligned, mut program, methods) = if shard.is_whole() {
            let aligned = Aligned::of(network, shard.shape())?;
            let program = lower(network, &aligned.run, options.threads)?;
            let methods = choose_methods(&program, &unlimited)?;
            (aligned, program, methods)
        } else {
            let cut = Cut::of(network, shard.whole(), &unlimited)?;
            let aligned = cut.part(shard)?;
            let program = lower(network, &aligned.run, options.threads)?;
            (aligned, program, cut.methods)
        };
        let output =
            aligned.output(&shape_of(&program.layouts[program.output], network.rank())?)?;
        let mut ghosts = vec![Vec::new(); program.layouts.len()];
        for exchange in add_ghosts(network, shard, &mut program) {
            ghosts[exchange.value].push(exchange);
        }
        let input = aligned.input;
        let flow = Flow::new(&program, &methods, three(input.spatial(), 1)[1]);
        let (name, places, halo) =
            (network.name().to_owned(), Places::default(), HaloPlan::default());
        let mut draft =
            Self { name, input, output, program, methods, ghosts, flow, places, halo, bytes: 0 };
        match band {
            Some(0) => {
                let reason = "0 rows; at least 1 is needed".into();
                return Err(Error::Argument { what: "band", reason });
            }
            Some(band) => draft.set_band(band, options.threads),
            None => draft.choose_band(options)?,
        }
        Ok(draft)
    }

    /// What the plan will be.
    pub(crate) fn outline(self) -> WavesOutline {
        WavesOutline { waves: self.places.waves, halo: self.halo, bytes: self.bytes }
    }

    /// Transforms all weights that are not on the shelf.
    pub(crate) fn build(
        self,
        options: &EngineOptions,
        instructions: InstructionSet,
        shelf: &Shelf,
    ) -> Result<WavesPlan> {
        let Self { name, input, output, mut program, methods, ghosts, flow, places, halo, .. } =
            self;
        let mut builder = Builder { instructions, options, shelf: shelf.open() };
        let (operations, weights) = builder.operations(&mut program, &methods)?;
        drop(builder);
        let workspace =
            operations.iter().map(|operation| operation.scratch_len()).max().unwrap_or(0);
        let Places { windows, rings, activations, bands, waves } = places;
        let room = Room::new(activations, workspace, options.threads);
        let memory = PlanMemory {
            weights,
            activations: activations * size_of::<f32>() + band_bytes([&input, &output], bands),
            workspace: room.workspace_bytes() + halo.faces_len() * size_of::<f32>(),
            device: 0,
        };
        let mut far = program.layouts.len()..;
        let (steps, stages) = (program.steps.into_iter().zip(operations).zip(flow.steps()))
            .map(|((draft, operation), step)| {
                let flops = 2.0 * operation.multiplications();
                let inputs = step.inputs.iter().map(|input| {
                    if input.is_far { far.next().expect("endless") } else { input.value }
                });
                let inputs = inputs.collect();
                let stage =
                    Stage { operation, inputs, output: draft.output, border_is_clear: false };
                (PlanStep::new(draft.name, stage.operation.describe(), flops), stage)
            })
            .unzip();
        let output_value = program.output;
        Ok(WavesPlan {
            name,
            input,
            output,
            output_value,
            flow,
            windows,
            rings,
            bands,
            steps,
            stages,
            ghosts,
            halo,
            waves,
            room,
            memory,
        })
    }

    /// Follows the waves of bands of so many rows.
    fn set_band(&mut self, band: usize, threads: usize) {
        self.flow.set_band(band);
        let ends = |ghosts: &Vec<Exchange>| ghosts.first().map_or([0; 2], Exchange::row_ends);
        let ends: Vec<[usize; 2]> = self.ghosts.iter().map(ends).collect();
        self.places = Places::of(&self.flow, &self.program.layouts, &ends, self.program.output);
        self.halo = halo_of(&self.flow, &self.ghosts);
        let other = set_rows(&mut self.program, &self.methods, &self.flow, threads);
        let floats = self.places.activations + self.halo.faces_len();
        let images = band_bytes([&self.input, &self.output], self.places.bands);
        self.bytes = floats * size_of::<f32>() + images + other;
    }

    /// Chooses the height of the bands: where weights are read often enough to be worth it, or the highest that keeps the
    /// budget.
    fn choose_band(&mut self, options: &EngineOptions) -> Result<()> {
        let unit = self.flow.unit();
        let whole = self.flow.heights()[0].next_multiple_of(unit);
        let mut band = good_band(&self.program, &self.methods, unit, options.threads).min(whole);
        let mut least = usize::MAX;
        loop {
            self.set_band(band, options.threads);
            let Some(budget) = options.memory_budget.filter(|&budget| self.bytes > budget) else {
                return Ok(());
            };
            least = least.min(self.bytes);
            if band == unit {
                let reason = format!(
                    "{budget} bytes; at least {least} are needed for images of this width, of whatever height"
                );
                return Err(Error::Argument { what: "memory budget", reason });
            }
            let step = (band / 8).next_multiple_of(unit).max(unit);
            band = band.saturating_sub(step).max(unit);
        }
    }
}

impl WavesPlan {
    /// The scratch as what it is, if it is of this plan.
    fn bench<'a>(&self, scratch: &'a mut Scratch) -> Result<&'a mut Bench> {
        let lengths = self.band_lengths();
        let Some(bench) = scratch.get_mut::<Bench>().filter(|bench| {
            bench.windows.len() == self.windows.len()
                && bench.steps.len() == self.steps.len()
                && bench.wave.fresh.len() == self.flow.heights().len()
                && bench.bands.iter().zip(lengths).all(|(band, len)| band.len() >= len)
                && bench.faces.len() >= self.halo.faces_len()
        }) else {
            let reason = "that of another plan; make it with the plan's own `scratch`".into();
            return Err(Error::Argument { what: "scratch", reason });
        };
        self.room.check(&bench.workplace)?;
        bench.windows.copy_from_slice(&self.windows);
        Ok(bench)
    }

    fn band_lengths(&self) -> [usize; 2] {
        [band_len(&self.input, self.bands[0]), band_len(&self.output, self.bands[1])]
    }

    /// Makes the fresh rows of a value: fetches what is read together with them, computes them, exchanges their ghosts before
    /// the step that comes next, and keeps what is read later.
    fn make(
        &self,
        bench: &mut Bench,
        halo: &mut dyn Halo,
        (value, next): (usize, usize),
        compute: impl FnOnce(&mut Bench, &Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let (fresh, first) = (bench.wave.fresh[value].clone(), bench.wave.first[value]);
        bench.windows[value].first = first;
        let memory = bench.workplace.memory();
        let tensor = bench.windows[value].tensor(memory);
        let ring = &self.rings[value];
        poison(&bench.windows[value], memory);
        ring.fetch(bench.workplace.team(), memory, &tensor, first..fresh.start);
        if fresh.is_empty() {
            return Ok(());
        }
        compute(bench, &fresh)?;
        for exchange in &self.ghosts[value] {
            let round = exchange.round_of(&fresh, next);
            // SAFETY: the rows are complete, and only this thread uses the value between two steps.
            unsafe { exchange.run(&round, &fresh, &tensor, &mut bench.faces, halo) }
                .map_err(|reason| halo_failed(&self.name, &self.steps[next], reason))?;
        }
        let kept = bench.wave.keep[value].max(fresh.start)..fresh.end;
        ring.store(bench.workplace.team(), memory, &tensor, kept);
        Ok(())
    }

    /// Runs a step on the rows of this wave.
    fn run_step(&self, bench: &mut Bench, halo: &mut dyn Halo, index: usize) -> Result<()> {
        let (step, stage) = (&self.flow.steps()[index], &self.stages[index]);
        for (position, (input, &window)) in step.inputs.iter().zip(&stage.inputs).enumerate() {
            if input.is_far && !step.reads_in_place(position) {
                let rows = self.flow.read(step, position, &bench.wave);
                bench.windows[window].first = rows.start;
                let memory = bench.workplace.memory();
                poison(&bench.windows[window], memory);
                let tensor = bench.windows[window].tensor(memory);
                self.rings[input.value].fetch(bench.workplace.team(), memory, &tensor, rows);
            }
        }
        self.make(bench, halo, (stage.output, index + 1), |bench, rows| {
            let mut left = rows.clone();
            // Where a ring that is read in place begins again, the rows are computed in two parts.
            while !left.is_empty() {
                let in_place = || {
                    let inputs = step.inputs.iter().zip(&stage.inputs).enumerate();
                    inputs.filter(|&(position, _)| step.reads_in_place(position))
                };
                let piece = in_place().fold(left.clone(), |piece, (_, (input, _))| {
                    self.rings[input.value].piece(&piece)
                });
                for (_, (input, &window)) in in_place() {
                    bench.windows[window] = self.rings[input.value].value(&piece);
                }
                bench.workplace.run(&self.room, stage, &bench.windows, piece.clone())?;
                left.start = piece.end;
            }
            Ok(())
        })
    }

    /// All waves.
    fn run_waves(
        &self,
        read: &mut BandSource<'_>,
        write: &mut BandSink<'_>,
        scratch: &mut Scratch,
        halo: &mut dyn Halo,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        let bench = self.bench(scratch)?;
        let sizes = [&self.input, &self.output].map(|shape| three(shape.spatial(), 1));
        bench.wave.restart();
        while self.flow.advance(&mut bench.wave) {
            self.make(bench, halo, (0, 0), |bench, rows| {
                let band = self.flow.rows_of(rows);
                let images = &mut bench.bands[0][..band_len(&self.input, band.len())];
                read(band.clone(), images).map_err(Error::Band)?;
                bench.workplace.load(images, &band, sizes[0], &bench.windows[0], rows);
                Ok(())
            })?;
            for index in 0..self.steps.len() {
                let start = Instant::now();
                self.run_step(bench, halo, index)?;
                let value = self.stages[index].output;
                let rows = bench.wave.fresh[value].len();
                if rows > 0 {
                    let share = rows as f64 / self.flow.heights()[value] as f64;
                    bench.steps[index].set_flops(self.steps[index].flops() * share);
                    observe(&bench.steps[index], start.elapsed());
                }
            }
            let made = &bench.wave.fresh[self.output_value];
            let rows = made.start..made.end.min(sizes[1][1]);
            if !rows.is_empty() {
                let images = &mut bench.bands[1][..band_len(&self.output, rows.len())];
                let value = &bench.windows[self.output_value];
                bench.workplace.store(value, sizes[1], &rows, images);
                write(rows, images).map_err(Error::Band)?;
            }
        }
        Ok(())
    }
}

impl EnginePlan for WavesPlan {
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

    fn waves(&self) -> Option<&Waves> {
        Some(&self.waves)
    }

    fn scratch(&self) -> Scratch {
        Scratch::new(Bench {
            workplace: self.room.workplace(),
            windows: self.windows.clone(),
            wave: self.flow.start(),
            steps: self.steps.clone(),
            bands: self.band_lengths().map(|len| vec![0.0; len]),
            faces: vec![0.0; self.halo.faces_len()],
        })
    }

    fn halo(&self) -> &HaloPlan {
        &self.halo
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

    /// Allocates nothing.
    fn run_shard(
        &self,
        input: &[f32],
        output: &mut [f32],
        scratch: &mut Scratch,
        halo: &mut dyn Halo,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        check_lengths(input, output, &self.input, &self.output)?;
        let sizes = [&self.input, &self.output].map(|shape| three(shape.spatial(), 1));
        let mut read = |rows: Range<usize>, band: &mut [f32]| {
            let [_, height, width] = sizes[0];
            let planes = input.chunks_exact(height * width);
            for (band, plane) in band.chunks_exact_mut(rows.len() * width).zip(planes) {
                band.copy_from_slice(&plane[rows.start * width..rows.end * width]);
            }
            Ok(())
        };
        let mut write = |rows: Range<usize>, band: &[f32]| {
            let [_, height, width] = sizes[1];
            let planes = output.chunks_exact_mut(height * width);
            for (band, plane) in band.chunks_exact(rows.len() * width).zip(planes) {
                plane[rows.start * width..rows.end * width].copy_from_slice(band);
            }
            Ok(())
        };
        self.run_waves(&mut read, &mut write, scratch, halo, observe)
    }

    /// Allocates nothing itself.
    fn run_bands(
        &self,
        read: &mut BandSource<'_>,
        write: &mut BandSink<'_>,
        scratch: &mut Scratch,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> Result<()> {
        check_whole(&self.halo)?;
        self.run_waves(read, write, scratch, &mut NoHalo, observe)
    }
}

impl fmt::Debug for WavesPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WavesPlan")
            .field("network", &self.name)
            .field("input", &self.input)
            .field("band", &self.waves.band)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Fills a window with NaN, so that no result depends on what a wave did not write. Only where assertions are on.
fn poison(window: &Value, memory: *mut f32) {
    if cfg!(debug_assertions) {
        for at in 0..window.layout.len() {
            // SAFETY: the window's own memory, which nobody uses before this wave writes it.
            unsafe { memory.add(window.offset + at).write(f32::NAN) };
        }
    }
}

/// Values of so many rows of images.
fn band_len(shape: &Shape, rows: usize) -> usize {
    let [depth, _, width] = three(shape.spatial(), 1);
    shape.batch() * shape.channels() * depth * rows * width
}

/// Bytes of the bands of the input and the output.
fn band_bytes(shapes: [&Shape; 2], bands: [usize; 2]) -> usize {
    (band_len(shapes[0], bands[0]) + band_len(shapes[1], bands[1])) * size_of::<f32>()
}

/// Refuses parts that are cut between rows.
fn check_rows(shard: &Shard) -> Result<()> {
    let rows = shard.region().len() - 2;
    if shard.is_cut(rows) == [false; 2] {
        return Ok(());
    }
    let accepted = if rows == 0 { "columns" } else { "planes and columns" };
    let reason = format!(
        "the part {:?} of {}; waves run from the first rows to the last, so only {accepted} can be cut",
        shard.region(),
        shard.whole()
    );
    Err(Error::Argument { what: "waves", reason })
}

/// What is exchanged in all waves: the ghosts of the rows that each makes, value by value.
fn halo_of(flow: &Flow, ghosts: &[Vec<Exchange>]) -> HaloPlan {
    let mut rounds = Vec::new();
    if ghosts.iter().any(|exchanges| !exchanges.is_empty()) {
        let mut wave = flow.start();
        while flow.advance(&mut wave) {
            let made = std::iter::once(0).chain(flow.steps().iter().map(|step| step.output));
            for (next, value) in made.enumerate() {
                let rows = &wave.fresh[value];
                if !rows.is_empty() {
                    let exchanges = ghosts[value].iter();
                    rounds.extend(exchanges.map(|exchange| exchange.round_of(rows, next)));
                }
            }
        }
    }
    HaloPlan::new(rounds)
}

/// The least multiple of a unit at which each convolution has enough tiles in a wave that to read its weights again for
/// each wave costs little.
fn good_band(program: &Program, methods: &[Method], unit: usize, threads: usize) -> usize {
    /// Tiles of a wave for each thread. Blocks have 36 to 66 of them, and each reads the weights.
    const TILES: usize = 132;
    /// Rows below which the copies to and from the rings show, and rows above which no image is so narrow that it matters.
    const ROWS: [usize; 2] = [144, 768];
    let rows = program.layouts[0].height;
    let convolutions = program.steps.iter().filter_map(|draft| match &draft.work {
        Work::Conv(conv) => Some(&conv.problem.output),
        _ => None,
    });
    let band = convolutions.zip(methods).filter_map(|(output, method)| match method {
        Method::Winograd { tile, .. } => {
            let needed = (TILES * threads).div_ceil(tiles(output, 1, *tile) * output.depth) * tile;
            Some((needed * rows).div_ceil(output.height))
        }
        Method::Direct => None,
    });
    band.max().unwrap_or(0).clamp(ROWS[0], ROWS[1]).next_multiple_of(unit)
}

/// Tells the convolutions how many rows they compute at a time. Returns the bytes of weights and workspaces.
fn set_rows(program: &mut Program, methods: &[Method], flow: &Flow, threads: usize) -> usize {
    let mut methods = methods.iter();
    let (mut weights, mut scratch) = (0, 0);
    for (draft, step) in program.steps.iter_mut().zip(flow.steps()) {
        if let Work::Conv(conv) = &mut draft.work {
            conv.problem.rows = step.most.min(conv.problem.output.height);
            let choice =
                conv.problem.choice(*methods.next().expect("a method for each convolution"));
            weights += choice.weight_bytes;
            scratch = scratch.max(choice.scratch_bytes);
        }
    }
    weights + scratch * threads
}

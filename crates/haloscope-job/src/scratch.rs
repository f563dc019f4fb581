//! What a job with a scratch folder takes of the disk and of memory, before it takes it.
//!
//! Arrays above a threshold are in files. They are visited piece by piece, and nothing of a piece stays in memory after the visit, so
//! that the bytes of an iteration are those of its visits: each array that is read or changed is read once, and each that is changed is
//! written once. `V` below is an image, `M` all measurements.

use std::path::{Path, PathBuf};

use haloscope::denoise::{Axes, NetworkDenoiser};
use haloscope::solve::{Analysis, DataUse};
use haloscope::{Error, Result};
use haloscope_scratch::{Folder, Options, Scratch};
use serde::Serialize;

use crate::Job;
use crate::layout::Layout;
use crate::machine::{Machine, address_space_left};
use crate::memory::size;
use crate::sections::memory::MemoryPlan;
use crate::sections::operators::Recipe;
use crate::sections::prior::PriorKind;

/// What the program, its threads and small arrays take beside all that is counted.
const BASE: u64 = 64_000_000;

/// Pieces of arrays that are in memory at once: of several arrays, each with the one before and the one after.
const PIECES: u64 = 6;

/// The bytes of a run or an iteration that go through the scratch folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiskTraffic {
    /// Bytes that are read.
    pub read: u64,
    /// Bytes that are written.
    pub written: u64,
}

/// A job with its large arrays in files.
#[derive(Clone, Debug, Serialize)]
pub struct ScratchPlan {
    /// The folder of the files.
    pub folder: PathBuf,
    /// The bytes that a process should have in memory at most.
    pub limit: u64,
    /// Arrays of at least so many bytes are in files.
    pub threshold: usize,
    /// The most bytes of the files of this machine at once.
    pub file_bytes: u64,
    /// The bytes of results and of regular checkpoints that are written on the same disk.
    pub saved_bytes: u64,
    /// The bytes of a process that have to be in memory at once.
    pub memory_bytes: u64,
    /// What is read and written in an iteration after the first, or in the run of a method without iterations; `None` where it is
    /// not forecast.
    pub traffic: Option<DiskTraffic>,
    /// Bytes that the folder has room for.
    pub free: u64,
    /// Whether its files are in memory themselves.
    pub is_memory: bool,
    /// The bytes of all processes of this machine that have to be in memory at once, and of the address space of one.
    #[serde(skip)]
    all_processes: u64,
    #[serde(skip)]
    addresses: u64,
    #[serde(skip)]
    needs: Needs,
    /// What is refused, with its place in the job file.
    #[serde(skip)]
    plan: MemoryPlan,
    #[serde(skip)]
    is_direct: bool,
    /// What can be done about the memory of the network, and about that of a measurement.
    #[serde(skip)]
    remedies: [&'static str; 2],
}

/// What a process has in memory beside its files, in bytes.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// Of the weights and activations of a rank's network.
    network: u64,
    /// Of the largest measurement of an operator.
    largest: u64,
    /// Of all measurements.
    all: u64,
    /// The ranks of a process.
    together: u64,
}

impl Needs {
    fn bytes(&self, options: &Options) -> u64 {
        // The measurement of an operator with its sums, or a stripe of filtered views and what is sent of it.
        let operators = (2 * self.largest).max(2 * self.all.min(stripe(options)));
        let pieces = PIECES * options.piece as u64;
        BASE + (self.network + operators + pieces) * self.together
    }

    /// A limit from one that is too small: pieces grow with it.
    fn least_limit(&self, folder: &Path, limit: u64) -> u64 {
        let mut least = limit;
        for _ in 0..100 {
            let needed = self.bytes(&Options::new(folder, least));
            if needed <= least {
                break;
            }
            least = needed;
        }
        // It is printed in two or three digits, and must not become too small by that.
        least + least / 20
    }
}

/// What a forecast says of a rank, as far as it matters here.
pub(crate) struct Share {
    /// Its most bytes, of all kinds.
    pub all: u64,
    /// Those of them that are weights and what a network computes with.
    pub network: u64,
    /// Whether its network is exact.
    pub is_exact: bool,
    /// Whether it could have tiles, too: an image in shards has none.
    pub can_have_tiles: bool,
}

impl ScratchPlan {
    /// Of a job that has a folder, on so many ranks of this machine of which each process has `together`.
    pub(crate) fn of(
        job: &Job,
        layout: &Layout,
        network: Option<&NetworkDenoiser>,
        share: &Share,
        (here, together): (usize, usize),
    ) -> Result<Option<Self>> {
        let Some((options, folder)) = job.memory.options()? else { return Ok(None) };
        let image = 4 * layout.image.iter().product::<usize>() as u64;
        let measured = layout.recipes.iter().map(Recipe::measured_values);
        let of_values = |values: usize| 4 * (layout.image[0] * values) as u64;
        let largest = of_values(measured.clone().max().unwrap_or(0));
        let all = of_values(measured.sum());
        // Operators on volumes cut them into bricks, and are given room for their sums; filtered views are a copy.
        let extra = image + largest.max(all.min(stripe(&options)));
        let of_rank = share.all.saturating_sub(share.network).saturating_add(extra);
        let file_bytes = of_rank.saturating_mul(here as u64);
        let together = together.max(1) as u64;
        let needs = Needs { network: share.network, largest, all, together };
        let memory_bytes = needs.bytes(&options);
        let traffic = (here == 1).then(|| traffic(job, layout, network, &options)).flatten();
        let Options { folder: path, limit, threshold, .. } = options;
        let saved_bytes = saved_bytes(job, layout, &path);
        Ok(Some(Self {
            folder: path,
            limit,
            threshold,
            file_bytes,
            saved_bytes,
            memory_bytes,
            traffic,
            // What is in files already is part of the job.
            free: folder.free.saturating_add(haloscope_scratch::bytes_in_files()),
            is_memory: folder.is_memory,
            all_processes: memory_bytes.saturating_mul((here as u64).div_ceil(together)),
            addresses: of_rank.saturating_mul(together).saturating_add(memory_bytes),
            needs,
            plan: job.memory.clone(),
            is_direct: job.solver.method.is_direct(),
            remedies: [
                match (share.is_exact, share.can_have_tiles) {
                    (true, true) => {
                        "most of it for its network; in [prior], a `memory_budget` or a smaller one can change that, or \
                         small tiles (`patch`) instead of it"
                    }
                    (true, false) => {
                        "most of it for its network; in [prior], a `memory_budget` or a smaller one can change that"
                    }
                    _ => {
                        "most of it for its network; smaller tiles (`patch`) in [prior] can change that"
                    }
                },
                match layout.recipes[0].scan() {
                    Some(_) => {
                        "most of it for the measurement of an operator, which more `groups` make smaller"
                    }
                    None => "most of it for the measurement of an operator",
                },
            ],
        }))
    }

    /// Refuses what does not fit.
    pub(crate) fn check(&self) -> Result<()> {
        self.plan.check_room(&self.folder, (self.file_bytes, self.saved_bytes), self.free)?;
        if self.memory_bytes > self.limit {
            let Needs { network, largest, together, .. } = self.needs;
            let half = self.memory_bytes / 2;
            let remedy = if network * together > half {
                self.remedies[0]
            } else if 2 * largest * together > half {
                self.remedies[1]
            } else {
                "for the program and pieces of its arrays"
            };
            return Err(self.plan.refuse(format!(
                "the limit is {} of memory, and a process needs a limit of about {} beside its files, {remedy}",
                size(self.limit),
                size(self.needs.least_limit(&self.folder, self.limit))
            )));
        }
        if let Some(available) = Machine::detect().memory_available_bytes
            && self.all_processes > available
        {
            return Err(self.plan.refuse(format!(
                "the job needs about {} of memory on this machine beside its files, and {} are available",
                size(self.all_processes),
                size(available)
            )));
        }
        if let Some(left) = address_space_left()
            && self.addresses > left
        {
            return Err(self.plan.refuse(format!(
                "a process needs about {} of address space, in which files count, and its limit leaves {}; limit memory with \
                 `ulimit -d` or a control group instead of `ulimit -v`",
                size(self.addresses),
                size(left)
            )));
        }
        Ok(())
    }

    /// What may be wrong, though the job can be run.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.is_memory.then(|| {
            format!(
                "{} is in memory itself (tmpfs), so that its files take what they should save; a folder on a disk is meant",
                self.folder.display()
            )
        })
    }

    /// Where the arrays are.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "about {} in a process, at most {}; arrays of {} and more are in files in {}, up to {}{} of {} that are free",
            size(self.memory_bytes),
            size(self.limit),
            size(self.threshold as u64),
            self.folder.display(),
            size(self.file_bytes),
            and_saved(self.saved_bytes),
            size(self.free)
        )
    }

    /// What goes through the disk, and how long it takes by a trial.
    pub(crate) fn describe_traffic(&self) -> String {
        let Some(traffic) = self.traffic else {
            return "not forecast for this method, prior and operators; the result has the same bits".into();
        };
        let when = if self.is_direct { "in the run" } else { "per iteration" };
        let (read, written) = (size(traffic.read), size(traffic.written));
        let words = format!("about {read} read and {written} written {when}");
        match Folder::measure_rate(&self.folder, TRIAL) {
            Ok(rate) => {
                let seconds = (traffic.read + traffic.written) as f64 / rate.max(1.0);
                let rate = size(rate as u64);
                let trial = size(TRIAL as u64);
                format!("{words}: {seconds:.1} s at {rate}/s, measured by writing {trial}")
            }
            Err(error) => format!("{words}; the rate of the disk was not measured: {error}"),
        }
    }
}

/// The bytes that are written to learn how fast a disk is.
const TRIAL: usize = 64_000_000;

/// What results and checkpoints take beside the files, in words.
pub(crate) fn and_saved(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(" and {} for results and checkpoints", size(bytes)),
    }
}

/// The bytes of the results and of the checkpoints that are kept while another is written, as far as they are on the disk of a folder.
/// Checkpoints of earlier runs are replaced; results of earlier runs stay until the new ones are complete. A checkpoint of a run that is
/// cut short is not counted.
fn saved_bytes(job: &Job, layout: &Layout, folder: &Path) -> u64 {
    let Some(disk) = disk_of(folder) else { return 0 };
    let is_there = |path: &Path| disk_of(path) == Some(disk);
    let image = 4 * layout.image.iter().product::<usize>() as u64;
    let results = job.output.images().filter(|path| is_there(path)).count() as u64 * image;
    let Some((_, count)) = job.checkpoint.kept().filter(|(folder, _)| is_there(folder)) else {
        return results;
    };
    let map = match &job.prior.kind {
        PriorKind::Wavelets { denoiser, .. } => Analysis::Wavelets(*denoiser),
        _ => Analysis::Differences,
    };
    let method = job.solver.method;
    let mut state = (method.holds.state.count_with(&map, &layout.image) * image as f64) as u64;
    if method.data_term == DataUse::Dual {
        // A dual for each measurement.
        let measured: usize = layout.recipes.iter().map(Recipe::measured_values).sum();
        state += 4 * (layout.image[0] * measured) as u64;
    }
    // Old ones are removed when the new one is complete.
    results + (count * state).saturating_sub(job.checkpoint.left_bytes()).max(state)
}

/// The disk on which a file is or will be: that of the nearest folder that is there.
#[cfg(unix)]
fn disk_of(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let here = std::path::absolute(path).ok()?;
    here.ancestors().find_map(|place| Some(place.metadata().ok()?.dev()))
}

#[cfg(not(unix))]
fn disk_of(_: &Path) -> Option<u64> {
    None
}

/// The bytes of filtered views that are back-projected together.
fn stripe(options: &Options) -> u64 {
    haloscope::distribute::STRIPE_PIECES as u64 * options.piece as u64
}

impl Job {
    /// The same job with its large arrays in files of a folder, and at most so many bytes of each process in memory; without a
    /// limit, that of the job, or what is available. The result has the same bits.
    #[must_use]
    pub fn in_scratch(mut self, folder: &Path, limit: Option<u64>) -> Self {
        self.memory = self.memory.with(folder, limit);
        self
    }

    /// The same job with so many bytes of each process in memory, if it has a scratch folder.
    #[must_use]
    pub fn with_memory_limit(mut self, limit: u64) -> Option<Self> {
        self.memory = self.memory.limited(limit)?;
        Some(self)
    }

    /// Opens the scratch folder, if the job has one: large arrays are in files while the result lives.
    pub(crate) fn open_scratch(&self) -> Result<Option<Scratch>> {
        let Some((options, _)) = self.memory.options()? else { return Ok(None) };
        let refused = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::Unsupported => {
                Error::Unsupported { file: "scratch".into(), reason: error.to_string() }
            }
            _ => self.memory.refuse(format!("{}: {error}", options.folder.display())),
        };
        Scratch::open(&options).map(Some).map_err(refused)
    }
}

/// Reads and writes of images, in images.
#[derive(Clone, Copy, Default)]
struct Visits(u64, u64);

impl std::ops::Add for Visits {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0, self.1 + other.1)
    }
}

/// An operator on a volume: planes of y, bricks for planes of x, and those.
const FORWARD: Visits = Visits(3, 1);
/// Planes of y, bricks of planes of x, and both together.
const ADJOINT: Visits = Visits(2, 3);
/// The next term of a sum.
const ADD: Visits = Visits(2, 1);
/// `x − γ ∇f(x)`.
const DESCEND: Visits = Visits(2, 1);
/// `x + λ C r`, in the array of `r`.
const CORRECT: Visits = Visits(3, 1);
/// What is clamped, scaled or scaled back.
const CHANGE: Visits = Visits(1, 1);
/// Slices are checked, and go through the network.
const DENOISE: Visits = Visits(2, 1);
/// A copy of the image and its change ahead.
const EXTRAPOLATE: Visits = Visits(3, 2);
/// The length of the image and of its change.
const MEASURE: Visits = Visits(3, 0);
/// The adjoint of the gradient, the next image, the point ahead, the gradient, and its projection.
const DUAL_STEP: Visits = Visits(3 + 2 + 3 + 4 + 3, 1 + 1 + 1 + 3 + 3);

/// What an iteration reads and writes, where that is known: for scans of a volume on one rank, with squares as the fidelity.
fn traffic(
    job: &Job,
    layout: &Layout,
    network: Option<&NetworkDenoiser>,
    options: &Options,
) -> Option<DiskTraffic> {
    let [1, 1, depth, height, width] = layout.image[..] else { return None };
    let image = 4 * (depth * height * width);
    let scan = layout.recipes[0].scan()?;
    let is_upright = scan.draft(0).is_ok_and(|projector| projector.is_upright());
    // All of it could be one piece.
    let is_cut =
        options.piece / (image / height) < height && options.piece / (image / width) < width;
    if !is_upright || !is_cut || image < options.threshold || job.is_sharded() {
        return None;
    }
    let bytes = |values: usize| Some(4 * values).filter(|bytes| *bytes >= options.threshold);
    let measured = layout.recipes.iter().filter_map(|recipe| bytes(recipe.measured_values()));
    let measured: u64 = measured.sum::<usize>() as u64;
    let operators = layout.recipes.len() as u64;
    let image = image as u64;
    let total = |visits: Visits, [read, written]: [u64; 2]| DiskTraffic {
        read: visits.0 * image + read * measured,
        written: visits.1 * image + written * measured,
    };
    if job.solver.method.is_direct() {
        // The file of the views, and an array of them; filtered copies of this rank and of all. Every stripe visits the image, of
        // which then a digest is taken, and which goes to its file.
        let all: usize = layout.recipes.iter().map(Recipe::measured_values).sum();
        let stripes = (4 * all as u64).div_ceil(stripe(options));
        return Some(total(Visits(stripes + 1, stripes + 1), [2, 3]));
    }
    if job.fidelity.name != "l2" {
        return None;
    }
    let times = |visits: Visits, count: u64| Visits(visits.0 * count, visits.1 * count);
    // Measured and compared twice, once for the value; and the residuals.
    let data = times(FORWARD + ADJOINT, operators) + times(ADD, operators - 1);
    let step = data + DESCEND + MEASURE;
    let clamps = u64::from(job.prior.clamp.is_some());
    if let (PriorKind::None, "sirt" | "os-sart") = (&job.prior.kind, job.solver.name) {
        let subsets = job.solver.subsets(layout.recipes.len()) as u64;
        let sums =
            times(ADD, operators - subsets) + times(CORRECT + times(CHANGE, clamps), subsets);
        // The difference to the data and its weights, each in the array of what was measured.
        return Some(total(times(FORWARD + ADJOINT, operators) + sums + MEASURE, [5, 3]));
    }
    let prior = match (&job.prior.kind, network, job.solver.name) {
        (PriorKind::TotalVariation { .. }, _, "primal-dual") => DUAL_STEP + times(CHANGE, clamps),
        (PriorKind::Network(plan), Some(network), "pgd" | "fista") => {
            let choice = plan.tiling().choose(&layout.image, network).ok()?;
            let is_slices = network.model().network().rank() == 2;
            if !choice.is_exact() || !is_slices || plan.axes != Axes::Axial {
                return None;
            }
            let scaled = u64::from(job.prior.may_scale());
            let ahead = u64::from(job.solver.name == "fista");
            DENOISE + times(CHANGE, 2 * clamps + 2 * scaled) + times(EXTRAPOLATE, ahead)
        }
        (PriorKind::None, _, "pgd" | "landweber") => times(CHANGE, clamps),
        _ => return None,
    };
    Some(total(step + prior, [4, 2]))
}

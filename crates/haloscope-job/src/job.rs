//! A job: what is measured, how, and what is to be made of it, as a file in TOML says it.
//!
//! Reading a job touches no other file; checking and running it does.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haloscope::denoise::NetworkDenoiser;
use haloscope::solve::JobId;
use haloscope::{Digest, Error, Result};
use haloscope_comm::Context;

use crate::builder::JobBuilder;
use crate::device::DeviceChoice;
use crate::document::{Document, Place, Section};
use crate::saving::Resuming;
use crate::sections::files::{CheckpointPlan, OutputPlan, StartPlan};
use crate::sections::measurements::{ImageFile, Source};
use crate::sections::memory::MemoryPlan;
use crate::sections::operators::Entry;
use crate::sections::preparation::PreparationPlan;
use crate::sections::prior::{PriorKind, PriorPlan};
use crate::sections::solver::{FidelityPlan, SolverPlan, StopPlan};
use crate::shards::{Grid, ShardedPlan};

/// The sections that decide the result; others say when to stop and what to do with it.
const DECISIVE: [&str; 8] =
    ["image", "measurements", "preparation", "operators", "fidelity", "prior", "solver", "start"];

/// What says where the values of the image are, what a network may hold of them, and where it runs. Only the last may decide the
/// result; checkpoints record what was taken.
const PLACES: [&str; 6] = [
    "image",
    "image.layout",
    "image.shards",
    "prior.shards",
    "prior.device",
    "prior.memory_budget",
];

/// All sections that a job file may have.
pub(crate) const SECTIONS: [&str; 13] = [
    "image",
    "measurements",
    "preparation",
    "operators",
    "fidelity",
    "prior",
    "solver",
    "stop",
    "start",
    "truth",
    "output",
    "checkpoint",
    "memory",
];

/// A reconstruction: what is measured, how, what is known of the image, and what is to be made of it.
///
/// A job is read from a file ([`from_file`](Self::from_file)) or made by a program ([`builder`](Self::builder)); both have
/// the same sections and keys, which `docs/guide.md` explains. [`check`](Self::check) finds what is wrong with it and what
/// it will take, and [`run`](Self::run) runs it on any number of ranks.
#[derive(Clone, Debug)]
pub struct Job {
    /// What messages call it.
    pub(crate) name: String,
    pub(crate) image: ImagePlan,
    pub(crate) measurements: Source,
    pub(crate) preparation: PreparationPlan,
    pub(crate) operators: Vec<Entry>,
    pub(crate) fidelity: FidelityPlan,
    pub(crate) prior: PriorPlan,
    pub(crate) solver: SolverPlan,
    pub(crate) stop: StopPlan,
    pub(crate) start: StartPlan,
    pub(crate) truth: Option<TruthPlan>,
    pub(crate) output: OutputPlan,
    pub(crate) checkpoint: CheckpointPlan,
    pub(crate) memory: MemoryPlan,
    pub(crate) resuming: Resuming,
    /// The keys and values of the file, for reports.
    pub(crate) settings: Vec<(String, String)>,
    /// What its author should know, though it is no mistake.
    pub(crate) notices: Vec<String>,
    fingerprint: String,
}

/// `[image]`: the shape of what is to be found, where the measurements do not tell, and where its values are.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImagePlan {
    pub place: Option<Place>,
    pub size: Option<Vec<usize>>,
    pub channels: Option<usize>,
    /// Where its values are.
    pub layout: LayoutPlan,
    /// The parts along each side, if they are given.
    pub grid: Option<Grid>,
}

/// Where the values of the image are.
#[derive(Clone, Debug, Default)]
pub(crate) enum LayoutPlan {
    /// Where they take less memory and fewer messages, if that changes no bits.
    #[default]
    Auto,
    /// All of them on every rank.
    Replicated,
    /// A part of them on each rank.
    Sharded(ShardedPlan),
}

/// The layouts of an image: whether it is in shards, if that is not left open.
const LAYOUTS: [(&str, Option<bool>); 3] =
    [("auto", None), ("replicated", Some(false)), ("sharded", Some(true))];

/// `[truth]`: an image to compare with.
#[derive(Clone, Debug)]
pub(crate) struct TruthPlan {
    pub place: Place,
    pub file: Option<ImageFile>,
    /// The difference between black and white.
    pub range: Option<f64>,
}

impl TruthPlan {
    /// There is a truth already.
    pub(crate) fn refuse_second(&self) -> Error {
        self.place.refuse("the image that is simulated is the truth; leave `file` out")
    }
}

impl Job {
    /// The job of a file, in which paths are relative to its folder.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Self::of(&Document::open(path.as_ref())?, false)
    }

    /// The job of a text, whose paths are relative to `folder`.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Self> {
        Self::of(&Document::new(name, text, folder), false)
    }

    /// A job that is made of sections, as a file would have them.
    #[must_use]
    pub fn builder() -> JobBuilder {
        JobBuilder::default()
    }

    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its method.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.solver.name
    }

    /// Its prior, in a few words.
    #[must_use]
    pub fn prior(&self) -> String {
        self.prior.describe()
    }

    /// The folder for pictures and a report, if it has one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.output.folder.as_deref()
    }

    /// The values that are black and white in pictures, if it says so.
    #[must_use]
    pub fn contrast(&self) -> Option<(f32, f32)> {
        self.output.contrast
    }

    /// The same job with other plans for checkpoints. That of a file refuses to run if an earlier run did not finish; one
    /// that was built without `[checkpoint]` has none.
    #[must_use]
    pub fn resuming(mut self, resuming: Resuming) -> Self {
        self.resuming = resuming;
        self
    }

    /// The same job with its network on another device; a job without a network stays as it is.
    #[must_use]
    pub fn on_device(mut self, device: DeviceChoice) -> Self {
        self.prior.run_on(device);
        self
    }

    /// The same job, of which only pictures are written, to this folder.
    #[must_use]
    pub fn with_pictures_in(mut self, folder: &Path) -> Self {
        self.output = OutputPlan::pictures(folder);
        self.settings.retain(|(key, _)| !key.starts_with("output."));
        self
    }

    /// A job that may be without `[output]`, because its caller takes the image.
    pub(crate) fn parse_for_caller(name: &str, text: &str, folder: &Path) -> Result<Self> {
        Self::of(&Document::new(name, text, folder), true)
    }

    fn of(document: &Document, has_caller: bool) -> Result<Self> {
        let mut job = document.read(|top| Self::read(document, top, has_caller))?;
        // After all sections are read, so that one whose name is misspelt is not taken for one that is missing.
        job.solver.check(&job.prior, &job.fidelity, &job.operators)?;
        job.check_shards()?;
        job.notices = document.notices.take();
        if let Some(start) = job.solver.direct_start() {
            // The image to begin with is the result.
            job.start = start;
            job.stop.iterations = 0;
        }
        job.output.check_inputs(&job.files())?;
        Ok(job)
    }

    fn read(document: &Document, top: &Section, has_caller: bool) -> Result<Self> {
        let missing = |key: &str, what: &str| Error::Content {
            file: document.name.clone(),
            reason: format!("[{key}] is missing: {what}"),
        };
        top.refuse_all_but(&[&SECTIONS[..], &["shards"]].concat())?;
        let mut image = ImagePlan::at_top(top)?;
        let mut measurements = top
            .section("measurements", Source::read)?
            .ok_or_else(|| missing("measurements", "files, a scan, or what to simulate"))?;
        let operators = top.sections("operators", Entry::read)?;
        if operators.is_empty() {
            return Err(missing("[operators]", "what measured the image"));
        }
        measurements.suit(&operators)?;
        let preparation = top.section("preparation", PreparationPlan::read)?.unwrap_or_default();
        preparation.check(&operators)?;
        let fidelity = top.section("fidelity", FidelityPlan::read)?.unwrap_or_default();
        let mut prior = top.section("prior", PriorPlan::read)?.unwrap_or_default();
        image.grid = Grid::only(image.grid.take(), prior.take_grid())?;
        prior.cut_into(image.grid.as_ref())?;
        let solver = top
            .section("solver", SolverPlan::read)?
            .ok_or_else(|| missing("solver", "the method"))?
            .suiting(&fidelity, &operators);
        let stop = top
            .section("stop", |section| StopPlan::read(section, &solver, &fidelity))?
            .unwrap_or_default();
        let start = top.section("start", StartPlan::read)?;
        if start.is_some() && solver.method.is_direct() {
            return Err(top.place_of("start").refuse(format!(
                "method = \"{}\" begins with no image; leave [start] out, and give `window` in [solver]",
                solver.name
            )));
        }
        let start = start.unwrap_or_else(|| StartPlan::standard(&prior.kind));
        let truth = top.section("truth", TruthPlan::read)?;
        let output = match top.section("output", OutputPlan::read)? {
            Some(output) => output,
            None if has_caller => OutputPlan::default(),
            None => return Err(missing("output", "where the result goes")),
        };
        let standard = CheckpointPlan::beside(Path::new(&document.name));
        let checkpoint = top
            .section("checkpoint", |section| CheckpointPlan::read(section, &standard))?
            .unwrap_or(standard);
        let memory = top.section("memory", MemoryPlan::read)?.unwrap_or_default();
        let fingerprint =
            top.fingerprint(&DECISIVE, &PLACES) + &solver.fingerprint(stop.iterations);
        let name = document.name.clone();
        Ok(Self {
            name,
            image,
            measurements,
            preparation,
            operators,
            fidelity,
            prior,
            solver,
            stop,
            start,
            truth,
            output,
            checkpoint,
            memory,
            resuming: Resuming::Refuse,
            settings: top.settings(),
            notices: Vec::new(),
            fingerprint,
        })
    }

    /// The network on one rank, if the prior is one, for images of this shape (batch, channel, spatial…).
    pub(crate) fn open_network(
        &self,
        threads: usize,
        image: &[usize],
    ) -> Result<Option<NetworkDenoiser>> {
        let opened = self.prior.open(threads, image, &self.solver.levels(), 0)?;
        Ok(opened.map(|opened| opened.denoiser))
    }

    /// [`open_network`](Self::open_network), once for all ranks of this process.
    pub(crate) fn share_network(
        &self,
        ctx: &Context,
        image: &[usize],
    ) -> Result<Option<Arc<NetworkDenoiser>>> {
        let open = || {
            let (threads, levels) = (ctx.threads_per_rank(), self.solver.levels());
            // The ranks of a process share a device, whichever of them opens the network.
            let process = ctx.local_rank() / ctx.process_size();
            let opened = self.prior.open(threads, image, &levels, process);
            let opened = opened.map_err(Some)?.ok_or(None)?;
            if let Some(note) = opened.note {
                ctx.log_once(log::Level::Info, note);
            }
            Ok(opened.denoiser)
        };
        match ctx.share("the network of the prior", open) {
            Ok(network) => Ok(Some(network)),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    /// What the job is, for its checkpoints: all that decides its result on so many ranks, the content of its files
    /// included. `data` are digests of the measurements, so that nobody reads those again.
    pub(crate) fn id(&self, ranks: usize, data: &[u8]) -> Result<JobId> {
        let name = Path::new(&self.name).file_name().unwrap_or_default().display().to_string();
        let mut id = JobId::new(name, self.fingerprint.as_bytes());
        if self.prior.depends_on_ranks() {
            id = id.with_content(&ranks.to_le_bytes());
        }
        let simulated = match &self.measurements {
            Source::Simulation(_) => self.measurements.files(),
            Source::Files(_) | Source::Scan(_) => {
                id = id.with_content(data);
                Vec::new()
            }
        };
        for path in simulated.into_iter().chain(self.other_inputs()) {
            id = with_file(id, &path)?;
        }
        Ok(id)
    }

    /// All files that are read.
    fn files(&self) -> Vec<PathBuf> {
        let mut paths = self.inputs();
        paths.push(PathBuf::from(&self.name));
        paths.extend(self.truth.iter().flat_map(|truth| &truth.file).map(|file| file.path.clone()));
        paths
    }

    /// The files that decide the result.
    fn inputs(&self) -> Vec<PathBuf> {
        self.measurements.files().into_iter().chain(self.other_inputs()).collect()
    }

    /// Those of them that are not measured.
    fn other_inputs(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.operators.iter().flat_map(Entry::files).collect();
        if let StartPlan::File(file) = &self.start {
            paths.push(file.path.clone());
        }
        if let PriorKind::Network(network) = &self.prior.kind {
            paths.push(PathBuf::from(&network.model));
        }
        paths
    }
}

/// The bytes of a file that are one content of a job.
const PIECE: usize = 16 << 20;

/// A job with the content of a file. Names that are no files, and folders, stand for themselves.
fn with_file(mut id: JobId, path: &Path) -> Result<JobId> {
    let failed = |error: std::io::Error| Error::File {
        file: path.display().to_string(),
        reason: error.to_string(),
    };
    if !path.is_file() {
        return Ok(id.with_content(path.as_os_str().as_encoded_bytes()));
    }
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = vec![0; 1 << 16];
    loop {
        // As `with_content` of a piece, which nobody holds.
        let (mut digest, mut length) = (Digest::default(), 0);
        digest.add_bytes(&id.hash.to_le_bytes());
        while length < PIECE {
            let most = bytes.len().min(PIECE - length);
            match file.read(&mut bytes[..most]).map_err(failed)? {
                0 => break,
                read => {
                    digest.add_bytes(&bytes[..read]);
                    length += read;
                }
            }
        }
        if length == 0 {
            return Ok(id);
        }
        id.hash = digest.value();
    }
}

impl ImagePlan {
    /// `[image]`, or `image = "sharded"` with `shards` beside it.
    fn at_top(top: &Section) -> Result<Self> {
        let beside = Grid::read(top)?;
        let mut plan = if top.has("image") && !top.is_table("image") {
            Self { layout: LayoutPlan::read(top, "image")?, ..Self::default() }
        } else {
            top.section("image", Self::read)?.unwrap_or_default()
        };
        if let (Some(beside), Some(_)) = (&beside, &plan.grid) {
            let reason = "`shards` are also given in [image]; one of them is expected";
            return Err(beside.place.refuse(reason));
        }
        plan.grid = plan.grid.or(beside);
        Ok(plan)
    }

    fn read(section: &Section) -> Result<Self> {
        let size = section.get::<Vec<usize>>("size")?;
        if let Some(size) =
            size.as_ref().filter(|size| !(2..=3).contains(&size.len()) || size.contains(&0))
        {
            return Err(section.place_of("size").refuse(format!(
                "{size:?} is given; (height, width) or (depth, height, width) is expected, none of them 0"
            )));
        }
        let channels = section.count("channels")?;
        let layout = LayoutPlan::read(section, "layout")?;
        let grid = Grid::read(section)?;
        Ok(Self { place: Some(section.place()), size, channels, layout, grid })
    }
}

impl LayoutPlan {
    fn read(section: &Section, key: &'static str) -> Result<Self> {
        Ok(match section.choose(key, &LAYOUTS)?.flatten() {
            None => Self::Auto,
            Some(false) => Self::Replicated,
            Some(true) => Self::Sharded(ShardedPlan { place: Some(section.place_of(key)) }),
        })
    }
}

impl TruthPlan {
    fn read(section: &Section) -> Result<Self> {
        let file = section.has("file").then(|| ImageFile::read(section, "file")).transpose()?;
        Ok(Self { place: section.place(), file, range: section.positive("range")? })
    }
}

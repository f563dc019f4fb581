//! A job: what is measured, how, and what is to be made of it, as a file in TOML says it.
//!
//! One file for each part of a job: what its section may hold, and what becomes of it. Reading a job touches no
//! other file; [`crate::reconstruct`] does. `docs/guide.md` is the reference of the keys.

pub mod beam;
pub mod document;
pub mod files;
mod kernel;
pub mod measurements;
mod numbers;
pub mod operators;
mod paths;
pub mod placement;
pub mod prior;
pub mod solver;
mod stack;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haloscope::denoise::NetworkDenoiser;
use haloscope::solve::JobId;
use haloscope::{Error, Result};
use haloscope_comm::Context;

use document::{Document, Place, Section};
use files::{CheckpointPlan, OutputPlan, StartPlan};
use measurements::{ImageFile, Source};
use operators::Entry;
use prior::{PriorKind, PriorPlan};
use solver::{FidelityPlan, SolverPlan, StopPlan};

/// The sections that decide the result; others say when to stop and what to do with it.
const DECISIVE: [&str; 7] =
    ["image", "measurements", "operators", "fidelity", "prior", "solver", "start"];

/// All that a job file may have.
const SECTIONS: [&str; 11] = [
    "image",
    "measurements",
    "operators",
    "fidelity",
    "prior",
    "solver",
    "stop",
    "start",
    "truth",
    "output",
    "checkpoint",
];

/// A job, as its file says it.
#[derive(Clone, Debug)]
pub struct Job {
    /// What messages call it.
    pub name: String,
    pub image: ImagePlan,
    pub measurements: Source,
    pub operators: Vec<Entry>,
    pub fidelity: FidelityPlan,
    pub prior: PriorPlan,
    pub solver: SolverPlan,
    pub stop: StopPlan,
    pub start: StartPlan,
    pub truth: Option<TruthPlan>,
    pub output: OutputPlan,
    pub checkpoint: CheckpointPlan,
    /// The keys and values of the file, for reports.
    pub settings: Vec<(String, String)>,
    /// What its author should know, though it is no mistake.
    pub notices: Vec<String>,
    fingerprint: String,
}

/// `[image]`: the shape of what is to be found, where the measurements do not tell.
#[derive(Clone, Debug, Default)]
pub struct ImagePlan {
    pub place: Option<Place>,
    pub size: Option<Vec<usize>>,
    pub channels: Option<usize>,
}

/// `[truth]`: an image to compare with.
#[derive(Clone, Debug)]
pub struct TruthPlan {
    pub place: Place,
    pub file: Option<ImageFile>,
    /// The difference between black and white.
    pub range: Option<f64>,
}

impl Job {
    /// The job of a file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(&Document::open(path)?)
    }

    /// The job of a text, whose paths are relative to `folder`.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Self> {
        Self::of(&Document::new(name, text, folder))
    }

    fn of(document: &Document) -> Result<Self> {
        let mut job = document.read(|top| Self::read(document, top))?;
        // After all sections are read, so that one whose name is misspelt is not taken for one that is missing.
        job.solver.check(&job.prior, &job.fidelity, &job.operators)?;
        job.notices = document.notices.take();
        if let Some(start) = job.solver.direct_start() {
            // The image to begin with is the result.
            job.start = start;
            job.stop.iterations = 0;
        }
        job.output.check_inputs(&job.files())?;
        Ok(job)
    }

    fn read(document: &Document, top: &Section) -> Result<Self> {
        let missing = |key: &str, what: &str| Error::Content {
            file: document.name.clone(),
            reason: format!("[{key}] is missing: {what}"),
        };
        top.refuse_all_but(&SECTIONS)?;
        let image = top.section("image", ImagePlan::read)?.unwrap_or_default();
        let mut measurements = top
            .section("measurements", Source::read)?
            .ok_or_else(|| missing("measurements", "files, a scan, or what to simulate"))?;
        let operators = top.sections("operators", Entry::read)?;
        if operators.is_empty() {
            return Err(missing("[operators]", "what measured the image"));
        }
        measurements.suit(&operators)?;
        let fidelity = top.section("fidelity", FidelityPlan::read)?.unwrap_or_default();
        let prior = top.section("prior", PriorPlan::read)?.unwrap_or_default();
        let solver = top
            .section("solver", SolverPlan::read)?
            .ok_or_else(|| missing("solver", "the method"))?
            .suiting(&fidelity, &operators);
        let stop = top
            .section("stop", |section| StopPlan::read(section, &solver, &fidelity))?
            .unwrap_or_default();
        let start = top
            .section("start", StartPlan::read)?
            .unwrap_or_else(|| StartPlan::standard(&prior.kind));
        let truth = top.section("truth", TruthPlan::read)?;
        let output = top
            .section("output", OutputPlan::read)?
            .ok_or_else(|| missing("output", "where the result goes"))?;
        let standard = CheckpointPlan::beside(Path::new(&document.name));
        let checkpoint = top
            .section("checkpoint", |section| CheckpointPlan::read(section, &standard))?
            .unwrap_or(standard);
        let fingerprint = top.fingerprint(&DECISIVE) + &solver.fingerprint(stop.iterations);
        let name = document.name.clone();
        Ok(Self {
            name,
            image,
            measurements,
            operators,
            fidelity,
            prior,
            solver,
            stop,
            start,
            truth,
            output,
            checkpoint,
            settings: top.settings(),
            notices: Vec::new(),
            fingerprint,
        })
    }

    /// The network on one rank, if the prior is one, for images of this shape (batch, channel, spatial…).
    pub fn open_network(&self, threads: usize, image: &[usize]) -> Result<Option<NetworkDenoiser>> {
        self.prior.open(threads, image, &self.solver.levels())
    }

    /// [`open_network`](Self::open_network), once for all ranks of this process.
    pub fn share_network(
        &self,
        ctx: &Context,
        image: &[usize],
    ) -> Result<Option<Arc<NetworkDenoiser>>> {
        let open = || self.open_network(ctx.threads_per_rank(), image).map_err(Some)?.ok_or(None);
        match ctx.share("the network of the prior", open) {
            Ok(network) => Ok(Some(network)),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    /// What the job is, for its checkpoints: all that decides its result on so many ranks, the content of its files
    /// included.
    pub fn id(&self, ranks: usize) -> Result<JobId> {
        let name = Path::new(&self.name).file_name().unwrap_or_default().display().to_string();
        let mut id = JobId::new(name, self.fingerprint.as_bytes());
        if self.prior.depends_on_ranks() {
            id = id.with_content(&ranks.to_le_bytes());
        }
        for path in self.inputs() {
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
        let mut paths = self.measurements.files();
        paths.extend(self.operators.iter().flat_map(Entry::files));
        if let StartPlan::File(file) = &self.start {
            paths.push(file.path.clone());
        }
        if let PriorKind::Network(network) = &self.prior.kind {
            paths.push(PathBuf::from(&network.model));
        }
        paths
    }
}

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
    let mut piece = Vec::new();
    loop {
        piece.clear();
        file.by_ref().take(16 << 20).read_to_end(&mut piece).map_err(failed)?;
        if piece.is_empty() {
            return Ok(id);
        }
        id = id.with_content(&piece);
    }
}

impl ImagePlan {
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
        Ok(Self { place: Some(section.place()), size, channels })
    }
}

impl TruthPlan {
    fn read(section: &Section) -> Result<Self> {
        let file = section.has("file").then(|| ImageFile::read(section, "file")).transpose()?;
        Ok(Self { place: section.place(), file, range: section.positive("range")? })
    }
}

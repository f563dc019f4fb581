//! Reconstructions on several numbers of ranks, timed or only counted.

use haloscope_job::{DeviceChoice, Distribution};
use haloscope_nn::models::ModelName;

use super::{Preset, alone, check_list, check_trials, reconstruction, trial};
use crate::error::{Error, Result};
use crate::problem::{self, Problem, Size};
use crate::row::{Backend, Configuration, Layout, Mode, Study};
use crate::tiles;
use crate::trial::{Settings, Trial};

/// Reconstructions on several numbers of ranks.
#[derive(Clone, Debug)]
pub struct ScalingStudy {
    /// The problems.
    pub problems: Vec<Problem>,
    /// Their sizes; those that suit each problem if none is given.
    pub sizes: Vec<Size>,
    /// The numbers of ranks.
    pub ranks: Vec<usize>,
    /// What grows with them.
    pub modes: Vec<Mode>,
    /// What ranks are.
    pub backends: Vec<Backend>,
    /// What ranks share.
    pub distribute: Vec<Distribution>,
    /// Where the image is.
    pub layouts: Vec<Layout>,
    /// Whether an image in tiles is measured in one piece on one rank, too.
    pub untiled: bool,
    /// The network; the one that suits each problem if none is given.
    pub model: Option<ModelName>,
    /// The side of tiles. If neither it nor the next two are given, the image is cut as by a job that says nothing of it: the
    /// network is exact, or tiles have the usual lengths.
    pub patch: Option<usize>,
    /// The overlap of tiles.
    pub overlap: Option<usize>,
    /// The tiles that are denoised at once.
    pub batch: Option<usize>,
    /// The number of operators.
    pub operators: usize,
    /// The device for the network.
    pub device: DeviceChoice,
    /// Threads of each rank.
    pub threads: usize,
    /// How often each configuration is measured.
    pub repetitions: usize,
    /// Whether sizes that are not given are those of the full grid.
    pub full: bool,
    /// Whether messages are counted and nothing is timed, so that ranks may be more than cores.
    pub counts_only: bool,
    /// What is the same for all.
    pub settings: Settings,
}

/// The network of studies that only count, which takes next to no time.
const COUNTED_MODEL: &str = "drunet:4-4-4-4:1";

/// The iterations of studies that only count. The word on whether to go on comes after an iteration, so the first lacks one.
const COUNTED_ITERATIONS: usize = 2;

impl ScalingStudy {
    /// This study with nothing but counts: a small network unless one is given, and two iterations, once.
    #[must_use]
    pub fn counting(mut self) -> Self {
        self.counts_only = true;
        self.repetitions = 1;
        self.settings.iterations = COUNTED_ITERATIONS;
        self.settings.warm_up = 0;
        self.model = self.model.or_else(|| COUNTED_MODEL.parse().ok());
        self
    }

    /// One trial per configuration: for each problem and size, all numbers of ranks.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("ranks", &self.ranks)?;
        let mut configurations = Vec::new();
        for &problem in &self.problems {
            let preset = Preset::of(problem, self.full);
            for size in preset.sizes_or(&self.sizes) {
                for &mode in &self.modes {
                    configurations.extend(self.of_image(problem, &size, mode)?);
                }
            }
        }
        if self.counts_only {
            self.check_counts()?;
        }
        let trial = |configuration| trial(configuration, &self.settings, self.repetitions);
        check_trials(configurations.into_iter().map(trial).collect())
    }

    /// Refuses what no plan foretells.
    fn check_counts(&self) -> Result<()> {
        let bad = |what, reason: String| Err(Error::argument(what, reason));
        let iterations = self.settings.iterations;
        if iterations < COUNTED_ITERATIONS {
            return bad("iterations", format!("{iterations}; counts need at least 2"));
        }
        if self.distribute != [Distribution::Both] {
            let reason = "plans are of ranks that share operators and denoiser: distribute both";
            return bad("distribute", reason.into());
        }
        if self.modes.contains(&Mode::Contention) {
            return bad("mode", "contention; problems side by side send nothing".into());
        }
        Ok(())
    }

    /// The configurations of a problem at a size.
    fn of_image(&self, problem: Problem, size: &Size, mode: Mode) -> Result<Vec<Configuration>> {
        let tiles = self.tiles(problem, size)?;
        let on = |ranks: usize| -> Result<Configuration> {
            let stretch = if mode == Mode::Weak { ranks } else { 1 };
            let configuration = self.configuration(problem, size, stretch, tiles)?;
            Ok(Configuration { mode: Some(mode), ranks, ..configuration })
        };
        let mut configurations = Vec::new();
        if mode == Mode::Contention {
            for &backend in &self.backends {
                for &ranks in self.ranks.iter().filter(|ranks| **ranks > 1) {
                    configurations.push(Configuration { backend, ..on(ranks)? });
                }
            }
            return Ok(configurations);
        }
        if self.untiled && self.device != DeviceChoice::Cpu {
            let reason = format!("{}; an image in one piece needs the CPU engine", self.device);
            return Err(Error::argument("device", reason));
        }
        if self.untiled && tiles.is_some() {
            let (patch, overlap, batch) = (None, None, None);
            configurations.push(Configuration { patch, overlap, batch, ..on(1)? });
        }
        for &backend in &self.backends {
            for &distribute in &self.distribute {
                for &ranks in self.ranks.iter().filter(|_| self.has(Layout::Replicated)) {
                    let distribute = Some(distribute);
                    configurations.push(Configuration { backend, distribute, ..on(ranks)? });
                }
            }
            for &ranks in self.ranks.iter().filter(|_| self.has(Layout::Sharded)) {
                let (patch, overlap, batch) = (None, None, None);
                let layout = Some(Layout::Sharded);
                let parts = Configuration { backend, patch, overlap, batch, layout, ..on(ranks)? };
                configurations.push(parts);
            }
        }
        if let Some(parts) = configurations.iter().find(|one| one.layout == Some(Layout::Sharded)) {
            self.check_shards(parts)?;
        }
        Ok(configurations)
    }

    fn has(&self, layout: Layout) -> bool {
        self.layouts.contains(&layout)
    }

    /// Refuses what an image in shards cannot be studied with.
    fn check_shards(&self, of: &Configuration) -> Result<()> {
        let bad = |reason: String| Err(Error::argument("layout", format!("sharded; {reason}")));
        if self.device != DeviceChoice::Cpu {
            return bad(format!(
                "an image in shards needs the CPU engine: leave device {} out",
                self.device
            ));
        }
        if self.patch.is_some() || self.overlap.is_some() || self.batch.is_some() {
            return bad(
                "an image in shards has no tiles: leave patch, overlap and batch out".into()
            );
        }
        if !self.distribute.contains(&Distribution::Both) {
            return bad(
                "an image in shards has operators and denoiser on all ranks: distribute both"
                    .into(),
            );
        }
        match of.job(&self.settings, None)?.without("output").build() {
            Ok(_) => Ok(()),
            Err(error) => bad(format!("leave {of} out: {error}")),
        }
    }

    /// The patch and the overlap of the image of one rank, however long it gets on more of them; none if the network is exact.
    fn tiles(&self, problem: Problem, size: &Size) -> Result<Option<(usize, usize)>> {
        let model = Preset::of(problem, self.full).model_or(self.model.as_ref(), problem)?;
        let sides = problem::sides(problem, size, 1)?;
        let is_given = self.patch.is_some() || self.overlap.is_some() || self.batch.is_some();
        // Networks are exact on the CPU engine only.
        let may_be_exact = !is_given && self.device == DeviceChoice::Cpu;
        if may_be_exact && tiles::is_exact(&model, problem.channels(), &sides)? {
            return Ok(None);
        }
        let (patch, overlap) = tiles::standard(&model, &sides)?;
        Ok(Some((self.patch.unwrap_or(patch), self.overlap.unwrap_or(overlap))))
    }

    /// What is the same on all ranks.
    fn configuration(
        &self,
        problem: Problem,
        size: &Size,
        stretch: usize,
        tiles: Option<(usize, usize)>,
    ) -> Result<Configuration> {
        let preset = Preset::of(problem, self.full);
        let model = preset.model_or(self.model.as_ref(), problem)?;
        let study = if self.counts_only { Study::Counts } else { Study::Scaling };
        let base = Configuration {
            patch: tiles.map(|(patch, _)| patch),
            overlap: tiles.map(|(_, overlap)| overlap),
            batch: self.batch,
            distribute: Some(Distribution::Both),
            layout: Some(Layout::Replicated),
            ..alone(study, &model, self.threads).on_device(self.device)
        };
        let sides = problem::sides(problem, size, stretch)?;
        reconstruction(base, problem, &sides, self.operators, &self.settings)
    }
}

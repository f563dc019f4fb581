//! The configurations of each study: quick ones that take minutes on two cores, and the full grids.

use crate::error::{Error, Result};
use crate::problem::{self, Problem};
use crate::row::{Backend, Configuration, Layout, Mode, Study};
use crate::tiles;
use crate::trial::{Settings, Trial};
use haloscope_job::{DeviceChoice, Distribution};
use haloscope_nn::models::{Builtin, ModelName};

/// What is chosen for a problem unless the caller does.
#[derive(Clone, Debug)]
struct Preset {
    sizes: &'static [usize],
    model: &'static str,
}

impl Preset {
    fn of(problem: Problem, full: bool) -> Self {
        let model = match problem {
            Problem::Tomography3d => "drunet:32-64-128-256:2",
            _ => "drunet",
        };
        // The quick ones are in eight blocks and in four tiles of the usual lengths.
        let sizes: &[usize] = match (problem, full) {
            (Problem::Tomography3d, false) => &[80],
            (Problem::Tomography3d, true) => &[128, 256],
            (_, false) => &[384],
            (Problem::Deblur, true) => &[1024, 2048, 4096],
            (_, true) => &[1024, 2048],
        };
        Self { sizes, model }
    }

    /// The sizes that are given, if there are any.
    fn sizes_or<'a>(&self, given: &'a [usize]) -> &'a [usize] {
        if given.is_empty() { self.sizes } else { given }
    }

    /// The network that is given, if there is one, as it suits the problem.
    fn model_or(&self, given: Option<&ModelName>, problem: Problem) -> Result<ModelName> {
        given.map_or_else(|| Ok(self.model.parse()?), |model| Ok(suiting(model, problem)))
    }
}

/// The network that a problem gets where this one is asked for: the built-in one for gray images in the place of that for
/// colour, if the image has one channel.
#[must_use]
pub fn suiting(model: &ModelName, problem: Problem) -> ModelName {
    match model {
        ModelName::Builtin(Builtin::Color) if problem.channels() == 1 => {
            ModelName::Builtin(Builtin::Gray)
        }
        model => model.clone(),
    }
}

/// Reconstructions on several numbers of ranks.
#[derive(Clone, Debug)]
pub struct ScalingStudy {
    /// The problems.
    pub problems: Vec<Problem>,
    /// Their sizes; those that suit each problem if none is given.
    pub sizes: Vec<usize>,
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
    /// What is the same for all.
    pub settings: Settings,
}

impl ScalingStudy {
    /// One trial per configuration: for each problem and size, all numbers of ranks.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("ranks", &self.ranks)?;
        let mut configurations = Vec::new();
        for &problem in &self.problems {
            let preset = Preset::of(problem, self.full);
            for &size in preset.sizes_or(&self.sizes) {
                for &mode in &self.modes {
                    configurations.extend(self.of_image(problem, size, mode)?);
                }
            }
        }
        let trial = |configuration| trial(configuration, &self.settings, self.repetitions);
        check_trials(configurations.into_iter().map(trial).collect())
    }

    /// The configurations of a problem at a size.
    fn of_image(&self, problem: Problem, size: usize, mode: Mode) -> Result<Vec<Configuration>> {
        let tiles = self.tiles(problem, size)?;
        let on = |ranks: usize| -> Result<Configuration> {
            let stretch = if mode == Mode::Weak { ranks } else { 1 };
            let configuration = self.configuration(problem, size, stretch, tiles)?;
            Ok(Configuration { mode: Some(mode), ranks, ..configuration })
        };
        let mut configurations = Vec::new();
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
    fn tiles(&self, problem: Problem, size: usize) -> Result<Option<(usize, usize)>> {
        let model = Preset::of(problem, self.full).model_or(self.model.as_ref(), problem)?;
        let sides = problem::sides(problem, size, 1);
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
        size: usize,
        stretch: usize,
        tiles: Option<(usize, usize)>,
    ) -> Result<Configuration> {
        let preset = Preset::of(problem, self.full);
        let model = preset.model_or(self.model.as_ref(), problem)?;
        let base = Configuration {
            patch: tiles.map(|(patch, _)| patch),
            overlap: tiles.map(|(_, overlap)| overlap),
            batch: self.batch,
            distribute: Some(Distribution::Both),
            layout: Some(Layout::Replicated),
            ..alone(Study::Scaling, &model, self.threads).on_device(self.device)
        };
        let sides = problem::sides(problem, size, stretch);
        reconstruction(base, problem, &sides, self.operators, &self.settings)
    }
}

/// Networks on images of several widths.
#[derive(Clone, Debug)]
pub struct MemoryStudy {
    /// The networks.
    pub models: Vec<ModelName>,
    /// Rows of the image.
    pub height: usize,
    /// Columns of the image.
    pub widths: Vec<usize>,
    /// The device for the network.
    pub device: DeviceChoice,
    /// Threads.
    pub threads: usize,
    /// How often each is timed.
    pub repetitions: usize,
    /// What is the same for all.
    pub settings: Settings,
}

impl MemoryStudy {
    /// The widths from half of `longest` to it in steps of 64, which every network likes, and of 68, which DRUNet
    /// must pad: the two grids that show whether memory depends on anything but the number of pixels.
    #[must_use]
    pub fn widths(longest: usize) -> Vec<usize> {
        let steps = [64, 68].map(|step| (longest / 2..=longest).step_by(step));
        let mut widths: Vec<usize> = steps.into_iter().flatten().collect();
        widths.sort_unstable();
        widths.dedup();
        widths
    }

    /// One trial per network and width.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("widths", &self.widths)?;
        let mut trials = Vec::new();
        for model in &self.models {
            for &width in &self.widths {
                let configuration = Configuration {
                    height: self.height,
                    width,
                    ..alone(Study::Memory, model, self.threads).on_device(self.device)
                };
                trials.push(trial(configuration, &self.settings, self.repetitions));
            }
        }
        check_trials(trials)
    }
}

/// An image as patches, several of which are denoised at once.
#[derive(Clone, Debug)]
pub struct BatchStudy {
    /// The network.
    pub model: ModelName,
    /// The side of the image.
    pub size: usize,
    /// The sides of patches.
    pub patches: Vec<usize>,
    /// How many are denoised at once.
    pub batches: Vec<usize>,
    /// The pixels that a patch sees beyond its own.
    pub overlap: usize,
    /// The device for the network.
    pub device: DeviceChoice,
    /// Threads.
    pub threads: usize,
    /// How often each is timed.
    pub repetitions: usize,
    /// What is the same for all.
    pub settings: Settings,
}

impl BatchStudy {
    /// One trial per patch and batch; batches of more patches than the image has are left out.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        check_list("size", &[self.size])?;
        check_list("patches", &self.patches)?;
        check_list("batches", &self.batches)?;
        let mut trials = Vec::new();
        for &patch in &self.patches {
            let base = Configuration {
                height: self.size,
                width: self.size,
                patch: Some(patch),
                overlap: Some(self.overlap),
                ..alone(Study::Batch, &self.model, self.threads).on_device(self.device)
            };
            let tiles = tiles::plan(&base)?.len();
            for &batch in self.batches.iter().filter(|batch| **batch <= tiles) {
                let configuration = Configuration { batch: Some(batch), ..base.clone() };
                trials.push(trial(configuration, &self.settings, self.repetitions));
            }
        }
        check_trials(trials)
    }
}

/// Reconstructions in haloscope and in other systems, each alone on the machine, of images in one piece.
#[derive(Clone, Debug)]
pub struct CompareStudy {
    /// The systems.
    pub systems: Vec<String>,
    /// The problems.
    pub problems: Vec<Problem>,
    /// Their sizes; those of the scaling study if none is given.
    pub sizes: Vec<usize>,
    /// The network.
    pub model: Option<ModelName>,
    /// The number of operators.
    pub operators: usize,
    /// Threads.
    pub threads: usize,
    /// How often each is measured.
    pub repetitions: usize,
    /// Whether sizes that are not given are those of the full grid.
    pub full: bool,
    /// What is the same for all.
    pub settings: Settings,
}

impl CompareStudy {
    /// One trial per problem, size and system.
    pub fn trials(&self) -> Result<Vec<Trial>> {
        let mut trials = Vec::new();
        for system in &self.systems {
            for &problem in &self.problems {
                let preset = Preset::of(problem, self.full);
                let model = preset.model_or(self.model.as_ref(), problem)?;
                for &size in preset.sizes_or(&self.sizes) {
                    let base = Configuration {
                        system: system.clone(),
                        ..alone(Study::Compare, &model, self.threads)
                    };
                    let sides = problem::sides(problem, size, 1);
                    let configuration =
                        reconstruction(base, problem, &sides, self.operators, &self.settings)?;
                    trials.push(trial(configuration, &self.settings, self.repetitions));
                }
            }
        }
        check_trials(trials)
    }
}

/// A configuration on one rank, of which the image is still to be said.
fn alone(study: Study, model: &ModelName, threads: usize) -> Configuration {
    Configuration {
        study,
        system: "haloscope".into(),
        problem: None,
        mode: None,
        backend: Backend::Solo,
        model: model.to_string(),
        height: 0,
        width: 0,
        depth: None,
        patch: None,
        overlap: None,
        batch: None,
        operators: None,
        distribute: None,
        layout: None,
        device: None,
        ranks: 1,
        threads,
    }
}

/// A configuration for the reconstruction of an image. What cannot be made is better known before the first hour than
/// after it.
fn reconstruction(
    base: Configuration,
    problem: Problem,
    sides: &[usize],
    operators: usize,
    settings: &Settings,
) -> Result<Configuration> {
    let (problem, operators) = (Some(problem), Some(operators));
    let configuration = Configuration { problem, operators, ..base.with_sides(sides) };
    configuration.job(settings, None)?.build()?.operators()?;
    tiles::plan(&configuration)?;
    Ok(configuration)
}

fn trial(configuration: Configuration, settings: &Settings, repetitions: usize) -> Trial {
    let repetitions = (0..repetitions).collect();
    Trial { configuration, settings: settings.clone(), repetitions, truth: None }
}

fn check_list(what: &'static str, list: &[usize]) -> Result<()> {
    if list.is_empty() || list.contains(&0) {
        let reason = format!("{list:?} were given; at least one is needed, all of at least 1");
        return Err(Error::argument(what, reason));
    }
    Ok(())
}

/// Refuses a study in which nothing would happen.
fn check_trials(trials: Vec<Trial>) -> Result<Vec<Trial>> {
    let Some(trial) = trials.first() else {
        return Err(Error::argument("study", "no configuration is left; give longer lists"));
    };
    let settings = &trial.settings;
    let counts = [trial.repetitions.len(), trial.configuration.threads, settings.iterations];
    if counts.contains(&0) {
        let [repetitions, threads, iterations] = counts;
        return Err(Error::argument(
            "study",
            format!(
                "{repetitions} repetitions of {iterations} iterations on {threads} threads; each is at least 1"
            ),
        ));
    }
    let is_flat = |trial: &&Trial| trial.configuration.problem != Some(Problem::Tomography3d);
    if let Some(trial) = trials.iter().find(is_flat).filter(|_| settings.volume.is_some()) {
        let problem = trial.configuration.problem.map_or("none", Problem::name);
        return Err(Error::argument(
            "volume",
            format!(
                "it is for tomography-3d, and {problem} is asked for; use `--problem tomography-3d`"
            ),
        ));
    }
    if settings.noise.is_some_and(|noise| !(noise.is_finite() && noise >= 0.0)) {
        return Err(Error::argument("noise", "it is a number of at least 0"));
    }
    Ok(trials)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling() -> ScalingStudy {
        ScalingStudy {
            problems: vec![Problem::Deblur, Problem::Tomography3d],
            sizes: vec![16],
            ranks: vec![1, 2],
            modes: vec![Mode::Strong, Mode::Weak],
            backends: vec![Backend::Threads],
            distribute: vec![Distribution::Both],
            layouts: vec![Layout::Replicated],
            untiled: false,
            model: None,
            patch: None,
            overlap: None,
            batch: Some(1),
            operators: 4,
            device: DeviceChoice::Cpu,
            threads: 1,
            repetitions: 3,
            full: false,
            settings: Settings::default(),
        }
    }

    #[test]
    fn weak_studies_grow_with_the_ranks_and_strong_ones_do_not() {
        let trials = scaling().trials().expect("trials");
        let sides: Vec<Vec<usize>> =
            trials.iter().map(|trial| trial.configuration.sides()).collect();
        assert_eq!(sides[..4], [[16, 16], [16, 16], [16, 16], [16, 32]]);
        assert_eq!(sides[4..], [[16, 16, 16], [16, 16, 16], [16, 16, 16], [32, 16, 16]]);
        assert_eq!(trials[0].repetitions, [0, 1, 2]);
    }

    #[test]
    fn tiles_are_those_of_jobs_that_have_some() {
        // Lengths that nobody gives are the usual ones.
        let study = ScalingStudy { sizes: vec![], ..scaling() };
        let tiles = |of: &Configuration| (of.patch, of.overlap, of.batch);
        let trials = study.trials().expect("trials");
        for Trial { configuration, .. } in &trials {
            let expected = match configuration.problem {
                Some(Problem::Deblur) => (Some(192), Some(32), Some(1)),
                _ => (Some(40), Some(16), Some(1)),
            };
            assert_eq!(tiles(configuration), expected, "{configuration}");
            // As many for each rank, in a longer image.
            let all = if configuration.depth.is_some() { 8 } else { 4 };
            let ranks =
                if configuration.mode == Some(Mode::Weak) { configuration.ranks } else { 1 };
            assert_eq!(tiles::plan(configuration).expect("tiles").len(), all * ranks);
        }
        let given = ScalingStudy { patch: Some(96), overlap: Some(8), batch: None, ..study };
        let given = given.trials().expect("trials").remove(0).configuration;
        assert_eq!(tiles(&given), (Some(96), Some(8), None));
    }

    #[test]
    fn images_have_no_tiles_if_their_jobs_have_none() {
        let model = Some("drunet:2-2-2-2:1".parse().expect("a network"));
        let study = ScalingStudy { batch: None, untiled: true, model, ..scaling() };
        let trials = study.trials().expect("trials");
        // The image in one piece is the one on one rank.
        assert_eq!(trials.len(), 8);
        assert!(trials.iter().all(|trial| trial.configuration.patch.is_none()));
        let huge = ScalingStudy { sizes: vec![32_768], problems: vec![Problem::Deblur], ..study };
        // Nor has one that is denoised in waves.
        let huge = huge.trials().expect("trials").remove(1).configuration;
        assert_eq!((huge.patch, huge.overlap), (None, None));
    }

    #[test]
    fn the_image_in_one_piece_is_measured_once_and_each_way_to_share_on_all_ranks() {
        let study = ScalingStudy {
            problems: vec![Problem::Deblur],
            modes: vec![Mode::Strong],
            backends: vec![Backend::Threads, Backend::Mpi],
            distribute: vec![Distribution::Both, Distribution::Denoiser],
            untiled: true,
            ..scaling()
        };
        let trials = study.trials().expect("trials");
        let whole = &trials[0].configuration;
        assert_eq!((whole.patch, whole.ranks, whole.backend), (None, 1, Backend::Solo));
        assert_eq!(trials.len(), 1 + 2 * 2 * 2);
        let shared: Vec<_> =
            trials[1..5].iter().map(|trial| trial.configuration.distribute).collect();
        let (both, denoiser) = (Some(Distribution::Both), Some(Distribution::Denoiser));
        assert_eq!(shared, [both, both, denoiser, denoiser]);
        let tiled = trials[1..].iter().all(|trial| trial.configuration.patch.is_some());
        assert!(tiled);
    }

    #[test]
    fn shards_are_measured_beside_whole_images_and_have_no_tiles() {
        let layouts = vec![Layout::Replicated, Layout::Sharded];
        let model = Some("dncnn:4:3".parse().expect("a network"));
        let study = ScalingStudy { layouts, model, batch: None, ..scaling() };
        let deblur = ScalingStudy { problems: vec![Problem::Deblur], ..study.clone() };
        let trials = deblur.trials().expect("trials");
        let of_strong = |trial: &&Trial| trial.configuration.mode == Some(Mode::Strong);
        let found: Vec<_> = trials
            .iter()
            .filter(of_strong)
            .map(|trial| (trial.configuration.layout, trial.configuration.ranks))
            .collect();
        let [whole, parts] = [Layout::Replicated, Layout::Sharded].map(Some);
        assert_eq!(found, [(whole, 1), (whole, 2), (parts, 1), (parts, 2)]);
        let job = trials[2].job_text().expect("a job");
        assert!(job.contains("layout = \"sharded\""), "{job}");
        for (study, words) in [
            (ScalingStudy { batch: Some(1), ..deblur.clone() }, "no tiles"),
            (ScalingStudy { distribute: vec![Distribution::Physics], ..deblur }, "distribute both"),
        ] {
            let error = study.trials().expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn gray_problems_get_the_network_for_gray_images() {
        let color = ModelName::Builtin(Builtin::Color);
        assert_eq!(suiting(&color, Problem::Deblur), color);
        let gray = ModelName::Builtin(Builtin::Gray);
        assert_eq!(suiting(&color, Problem::Tomography3d), gray);
        // That takes the channels of a picture one by one.
        assert_eq!(suiting(&gray, Problem::SuperResolution), gray);
    }

    #[test]
    fn empty_and_impossible_studies_are_refused_before_they_begin() {
        let with_volume = Settings { volume: Some("digest".into()), ..Settings::default() };
        for (study, words) in [
            (ScalingStudy { ranks: vec![0], ..scaling() }, "at least 1"),
            (ScalingStudy { untiled: true, device: DeviceChoice::Auto, ..scaling() }, "CPU engine"),
            (ScalingStudy { problems: vec![], ..scaling() }, "no configuration"),
            (ScalingStudy { patch: Some(0), ..scaling() }, "patch size 0"),
            (ScalingStudy { operators: 49, ..scaling() }, "1 to 48"),
            (ScalingStudy { repetitions: 0, ..scaling() }, "0 repetitions"),
            (ScalingStudy { settings: with_volume, ..scaling() }, "deblur is asked for"),
        ] {
            let error = study.trials().expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn widths_are_those_of_both_steps() {
        assert_eq!(MemoryStudy::widths(512), [256, 320, 324, 384, 392, 448, 460, 512]);
        assert_eq!(MemoryStudy::widths(2048).len(), 17 + 16 - 1);
    }

    #[test]
    fn batches_are_not_larger_than_the_image() {
        let study = BatchStudy {
            model: "dncnn:4:2".parse().expect("a network"),
            size: 64,
            patches: vec![16, 32],
            batches: vec![1, 4, 16],
            overlap: 0,
            device: DeviceChoice::Cpu,
            threads: 1,
            repetitions: 1,
            settings: Settings::default(),
        };
        let trials = study.trials().expect("trials");
        let batches = |trials: &[Trial]| -> Vec<Option<usize>> {
            trials.iter().map(|trial| trial.configuration.batch).collect()
        };
        assert_eq!(batches(&trials), [1, 4, 16, 1, 4].map(Some));
        // With an overlap of 8 on either side, 9 patches of 16 are enough.
        let trials = BatchStudy { overlap: 8, ..study }.trials().expect("trials");
        assert_eq!(batches(&trials), [1, 4, 1, 4].map(Some));
    }
}

//! The job that a configuration measures: the template of its problem, with the network, the tiles, the method and the
//! measurements of the study. `haloscope reconstruct` finds the same image with it.

use std::path::Path;

use haloscope_job::words::sides;
use haloscope_job::{Choices, Job, JobBuilder, Keys};
use haloscope_nn::models::ModelName;
use toml::Value;

use crate::error::{Error, Result};
use crate::problem;
use crate::row::{Configuration, Layout, Study};
use crate::tiles::Cut;
use crate::trial::{Settings, Trial};

impl Configuration {
    /// The job of a reconstruction, of the image in a file if there is one.
    ///
    /// ```
    /// use haloscope_study::plan::{CompareStudy, Cutting};
    /// use haloscope_study::problem::Problem;
    /// use haloscope_study::trial::Settings;
    ///
    /// let study = CompareStudy {
    ///     systems: vec!["haloscope".into()],
    ///     problems: vec![Problem::Deblur],
    ///     sizes: vec![64.into()],
    ///     ranks: vec![1],
    ///     cuts: vec![Cutting::Whole],
    ///     model: None,
    ///     operators: 2,
    ///     threads: 1,
    ///     repetitions: 1,
    ///     full: false,
    ///     settings: Settings::default(),
    /// };
    /// let job = study.trials()?[0].configuration.job(&Settings::default(), None)?;
    /// assert!(job.to_string().contains("model = \"random:drunet\""));
    /// # Ok::<(), haloscope_study::Error>(())
    /// ```
    pub fn job(&self, settings: &Settings, truth: Option<&Path>) -> Result<JobBuilder> {
        let missing =
            |what: &'static str| Error::argument(what, "none was given; a reconstruction needs it");
        let problem = self.problem.ok_or_else(|| missing("problem"))?;
        let operators = self.operators.ok_or_else(|| missing("operators"))?;
        let sides = self.sides();
        problem::check(problem, &sides, operators)?;
        let name = self.job_name();
        let choices = Choices {
            name: name.clone(),
            sides,
            operators: Some(operators),
            model: None,
            iterations: Some(settings.iterations),
        };
        let (seed, model) = (whole("seed", settings.seed)?, model(&self.model)?);
        let cut = Cut::of(self)?;
        let (patch, overlap) = (list("patch", &cut.patches)?, list("overlap", &cut.overlaps)?);
        let batch = self.batch.map(|batch| whole("batch", batch as u64)).transpose()?;
        let iterations = whole("iterations", settings.iterations as u64)?;
        let truth = truth.map(absolute).transpose()?;
        let prior = |it: Keys| {
            let it = it
                .set("model", model)
                .set("sigma", settings.sigma)
                // What is found is from 0 to 1. Random weights may make it larger at every step.
                .set("clamp", vec![0, 1])
                .set("scale", 1);
            let it = match self.patch {
                None => it.set("strategy", "exact"),
                Some(_) => it
                    .set("strategy", if cut.is_basic() { "basic" } else { "overlap" })
                    .set("patch", patch)
                    .set("overlap", overlap),
            };
            let it = match &self.device {
                Some(device) => it.set("device", device.clone()),
                None => it,
            };
            match batch {
                Some(batch) => it.set("batch", batch),
                None => it,
            }
        };
        let measurements = |it: Keys| {
            let it = it.set("seed", seed);
            let it = match settings.noise {
                Some(noise) => it.set("noise", JobBuilder::keys().set("gaussian", noise)),
                None => it,
            };
            match truth {
                Some(truth) => {
                    it.unset("phantom").unset("size").unset("points").set("image", truth)
                }
                None => it,
            }
        };
        let job = JobBuilder::from_text(&problem.job(&choices))?;
        let job = match self.study {
            // Other systems do not start from a back-projection.
            Study::Compare => job.edit("start", |it| it.set("kind", "zeros")),
            _ => job,
        };
        Ok(job
            .name(name.clone())
            .edit("image", |it| match self.layout {
                Some(layout) => it.set("layout", layout.to_string()),
                None => it,
            })
            .edit("measurements", measurements)
            .prior("network", prior)
            .solver("pgd", |it| it)
            .stop(|it| it.set("iterations", iterations))
            .output(|it| it.set("file", format!("{name}.npy"))))
    }

    /// What its job is called.
    #[must_use]
    pub fn job_name(&self) -> String {
        let problem = self.problem.map_or("image", haloscope_job::Problem::name);
        let cut = match (self.layout, self.patch) {
            (Some(Layout::Sharded), _) => "-shards",
            (_, None) => "-untiled",
            (_, Some(_)) => "",
        };
        format!("{problem}-{}{cut}", sides(&self.sides()))
    }
}

impl Trial {
    /// The job that is measured. Nothing of it is written.
    pub fn job(&self) -> Result<Job> {
        let job = self.configuration.job(&self.settings, self.truth.as_deref())?;
        Ok(job.without("output").build()?)
    }

    /// The file of the job, for `haloscope reconstruct`.
    pub fn job_text(&self) -> Result<String> {
        Ok(self.configuration.job(&self.settings, self.truth.as_deref())?.to_string())
    }
}

/// A network as job files name it. Files of weights are found from wherever the job is.
fn model(name: &str) -> Result<String> {
    match name.parse()? {
        ModelName::File(path) => absolute(&path),
        name => Ok(name.in_jobs()),
    }
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(|error| Error::file(path, error))?;
    Ok(path.display().to_string())
}

/// A number as TOML has it.
fn whole(what: &'static str, number: u64) -> Result<i64> {
    i64::try_from(number)
        .map_err(|_| Error::argument(what, format!("{number}; at most {} is possible", i64::MAX)))
}

/// One number for all sides if they are the same, else one for each.
fn list(what: &'static str, lengths: &[usize]) -> Result<Value> {
    let each: Vec<i64> =
        lengths.iter().map(|length| whole(what, *length as u64)).collect::<Result<_>>()?;
    let is_one = each.windows(2).all(|pair| pair[0] == pair[1]);
    Ok(if is_one { each[0].into() } else { each.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{PROBLEMS, Problem};
    use crate::row::tests::configuration;

    fn text(configuration: &Configuration) -> String {
        let settings = Settings { noise: Some(0.25), seed: 9, ..Settings::default() };
        configuration.job(&settings, None).expect("a job").to_string()
    }

    #[test]
    fn a_job_has_what_the_configuration_says() {
        for problem in PROBLEMS {
            let one = Configuration { problem: Some(problem), ..configuration(2) };
            let one = one.with_sides(&problem::sides(problem, &64.into(), 1).expect("sides"));
            let text = text(&one);
            for line in [
                "seed = 9",
                "gaussian = 0.25",
                "model = \"random:drunet\"",
                "patch = 32",
                "overlap = 8",
                "batch = 1",
                "method = \"pgd\"",
                "iterations = 10",
            ] {
                assert!(text.lines().any(|found| found == line), "{line}: {text}");
            }
            let job = one.job(&Settings::default(), None).expect("a job").build().expect("valid");
            assert_eq!(job.operators().expect("operators").count, 8, "{problem}");
        }
    }

    #[test]
    fn jobs_that_are_compared_start_from_zeros() {
        for problem in PROBLEMS {
            let sides = problem::sides(problem, &64.into(), 1).expect("sides");
            let one = Configuration { problem: Some(problem), ..configuration(1) };
            let one = one.with_sides(&sides);
            let compared = text(&Configuration { study: Study::Compare, ..one.clone() });
            let start = "[start]\nkind = \"zeros\"\n";
            assert!(compared.contains(start), "{compared}");
            assert!(!text(&one).contains(start), "{problem}");
        }
    }

    #[test]
    fn patches_are_no_longer_than_the_image_and_untiled_images_have_none() {
        let flat = configuration(1).with_sides(&[16, 64]);
        assert!(text(&flat).contains("patch = [16, 32]"), "{}", text(&flat));
        let whole = Configuration { patch: None, overlap: None, batch: None, ..flat };
        let text = text(&whole);
        assert!(!text.contains("patch =") && text.contains("strategy = \"exact\""), "{text}");
        assert!(!text.contains("batch") && text.contains("-untiled.npy"), "{text}");
    }

    #[test]
    fn a_volume_of_a_file_takes_the_place_of_the_phantom() {
        let volume = Configuration { problem: Some(Problem::Tomography3d), ..configuration(1) };
        let volume = volume.with_sides(&[16, 16, 16]);
        let job = volume.job(&Settings::default(), Some(Path::new("a volume.nii")));
        let text = job.expect("a job").to_string();
        assert!(text.contains("a volume.nii\"") && !text.contains("phantom"), "{text}");
        assert!(!text.contains("points") && !text.contains("size ="), "{text}");
    }

    #[test]
    fn what_no_job_can_say_is_refused() {
        let settings = Settings { seed: u64::MAX, ..Settings::default() };
        let error = configuration(1).job(&settings, None).expect_err("refused").to_string();
        assert!(error.contains("seed: 18446744073709551615"), "{error}");
        let none = Configuration { problem: None, ..configuration(1) };
        assert!(none.job(&Settings::default(), None).is_err());
    }
}

//! Detects from the environment how this process was started, and refuses what cannot work.
//!
//! This only reads variables; [`Context::detect`](crate::Context::detect) acts on the answer.

use std::fmt;

use crate::error::{Error, Result};

/// The program that started this process as one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// MPICH's `mpiexec` (Hydra), Intel MPI and others that speak PMI.
    Pmi,
    /// A launcher that speaks PMIx (PRRTE, `srun --mpi=pmix`).
    Pmix,
    /// Slurm's `srun`.
    Slurm,
    /// `torchrun`, which sets `RANK` and `WORLD_SIZE` and starts no MPI.
    Torchrun,
}

/// What a launcher says about this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Who started it.
    pub launcher: Launcher,
    /// Its number.
    pub rank: usize,
    /// The number of processes, if the launcher states it.
    pub size: Option<usize>,
}

/// The variable by which a user chooses, whatever the launcher: `solo` or `mpi`.
pub const CHOICE_VARIABLE: &str = "HALOSCOPE_COMM";

/// What [`CHOICE_VARIABLE`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One rank, even under a launcher.
    Solo,
    /// MPI, even without a launcher's variables.
    Mpi,
}

impl Launcher {
    const ALL: [Self; 5] = [Self::OpenMpi, Self::Pmi, Self::Pmix, Self::Slurm, Self::Torchrun];

    /// The variable with the rank, and those that may hold the number of ranks.
    fn variables(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::OpenMpi => ("OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"]),
            Self::Pmi => ("PMI_RANK", &["PMI_SIZE"]),
            Self::Pmix => ("PMIX_RANK", &[]),
            Self::Slurm => ("SLURM_PROCID", &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]),
            Self::Torchrun => ("RANK", &["WORLD_SIZE"]),
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "mpirun of Open MPI",
            Self::Pmi => "a PMI launcher (mpiexec of MPICH or Intel MPI)",
            Self::Pmix => "a PMIx launcher",
            Self::Slurm => "srun",
            Self::Torchrun => "torchrun",
        })
    }
}

impl Launch {
    /// What the variables of the process say; nothing if no launcher started it.
    pub fn detect() -> Result<Option<Self>> {
        Self::from_variables(read_variable)
    }

    /// What the variables that `read` gives say.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        for launcher in Launcher::ALL {
            let (rank_variable, size_variables) = launcher.variables();
            let Some(rank) = read_number(&read, rank_variable)? else { continue };
            let mut size = None;
            for variable in size_variables {
                size = match size {
                    None => read_number(&read, variable)?.map(|number| (*variable, number)),
                    found => found,
                };
            }
            let is_launch = match launcher {
                // `RANK` alone is a common name; torchrun sets both.
                Launcher::Torchrun => size.is_some(),
                // In a batch script, before any srun, Slurm sets rank 0 and the number of tasks.
                Launcher::Slurm => rank > 0 || read("SLURM_STEP_ID").is_some(),
                _ => true,
            };
            if !is_launch {
                continue;
            }
            if let Some((variable, size)) = size
                && rank >= size
            {
                return Err(Error::Setup(format!(
                    "{rank_variable}={rank} but {variable}={size}; the rank must be from 0 to {}",
                    size.saturating_sub(1)
                )));
            }
            return Ok(Some(Self { launcher, rank, size: size.map(|(_, size)| size) }));
        }
        Ok(None)
    }

    /// The error for a launch that this build or this launcher cannot turn into ranks.
    pub(crate) fn unsupported(&self) -> Error {
        let ranks = self.size.map_or_else(|| "N".into(), |size| size.to_string());
        let started = match self.size {
            Some(size) => format!("{} started {size} ranks", self.launcher),
            None => format!("{} started this process as rank {}", self.launcher, self.rank),
        };
        Error::Unsupported(match self.launcher {
            Launcher::Torchrun => format!(
                "{started} (RANK and WORLD_SIZE are set), but ranks find each other by MPI here: \
                 start with mpirun or srun and a build with `--features mpi`, or use thread ranks \
                 in one process (`--ranks {ranks}`); {CHOICE_VARIABLE}=solo runs this process alone"
            ),
            _ => format!(
                "{started}, but this build has no MPI and would run independent copies; \
                 rebuild with `cargo build --release --features mpi`, or use thread ranks in one \
                 process (`--ranks {ranks}`); {CHOICE_VARIABLE}=solo runs this process alone"
            ),
        })
    }
}

impl Choice {
    /// What the user chose, if anything.
    pub fn detect() -> Result<Option<Self>> {
        Self::parse(read_variable(CHOICE_VARIABLE).as_deref())
    }

    fn parse(value: Option<&str>) -> Result<Option<Self>> {
        match value {
            None | Some("" | "auto") => Ok(None),
            Some("solo") => Ok(Some(Self::Solo)),
            Some("mpi") => Ok(Some(Self::Mpi)),
            Some(other) => Err(Error::Setup(format!(
                "{CHOICE_VARIABLE}={other} is not known; the values are solo, mpi and auto"
            ))),
        }
    }
}

/// What is not Unicode stays visible, so that it is refused and not passed over.
fn read_variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn read_number(read: impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<usize>> {
    let Some(value) = read(name) else { return Ok(None) };
    value.trim().parse().map(Some).map_err(|_| {
        Error::Setup(format!(
            "{name}={value} is not a number; a launcher sets it to 0 or more, \
             and {CHOICE_VARIABLE}=solo ignores it"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
        Launch::from_variables(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn each_launcher_is_recognised_by_its_variables() {
        for (variables, launcher, size) in [
            (
                &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")][..],
                Launcher::OpenMpi,
                Some(4),
            ),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "2")], Launcher::Pmi, Some(2)),
            (&[("PMIX_RANK", "1")], Launcher::Pmix, None),
            (&[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "3")], Launcher::Slurm, Some(3)),
            (&[("RANK", "1"), ("WORLD_SIZE", "2")], Launcher::Torchrun, Some(2)),
        ] {
            assert_eq!(launch(variables), Ok(Some(Launch { launcher, rank: 1, size })));
        }
        assert_eq!(launch(&[]), Ok(None));
        assert_eq!(launch(&[("RANK", "1")]), Ok(None), "RANK alone can mean anything");
        let mut batch = vec![("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(launch(&batch), Ok(None), "a batch script is not a rank");
        batch.push(("SLURM_STEP_ID", "0"));
        let (launcher, size) = (Launcher::Slurm, Some(4));
        assert_eq!(launch(&batch), Ok(Some(Launch { launcher, rank: 0, size })));
    }

    #[test]
    fn unknown_values_are_errors_that_name_the_variable() {
        for (variables, names) in [
            (&[("PMI_RANK", "one")][..], ["PMI_RANK=one", "0 or more"]),
            (&[("SLURM_PROCID", "4"), ("SLURM_NTASKS", "4")], ["SLURM_PROCID=4", "0 to 3"]),
            (
                &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "")],
                ["OMPI_COMM_WORLD_SIZE=", "number"],
            ),
        ] {
            let error = launch(variables).expect_err("not a launch").to_string();
            assert!(names.iter().all(|name| error.contains(name)), "{error}");
        }
        let error = Choice::parse(Some("mqi")).expect_err("not a choice").to_string();
        assert!(error.contains("solo, mpi and auto"), "{error}");
    }

    #[test]
    fn a_build_without_mpi_says_how_to_get_it() {
        for (launcher, words) in
            [(Launcher::Slurm, "--features mpi"), (Launcher::Torchrun, "mpirun or srun")]
        {
            let error = Launch { launcher, rank: 0, size: Some(4) }.unsupported().to_string();
            assert!(error.contains(words) && error.contains("--ranks 4"), "{error}");
        }
    }
}

//! `haloscope info`: what this build and this machine can do, for people and for scripts.

use std::fmt::Write;

use anyhow::Result;
use haloscope_comm::{ContextOptions, Launch};
use serde::Serialize;

use haloscope_job::Machine;
use haloscope_job::words::count;

/// The options of `haloscope info`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    version: &'static str,
    features: Vec<&'static str>,
    #[serde(flatten)]
    machine: Machine,
    launcher: Option<String>,
    /// Processes that the launcher says it started.
    launched: Option<usize>,
    ranks: usize,
    threads_per_rank: usize,
    mpi: Option<String>,
    /// ONNX Runtime, its providers and GPUs, or what is missing.
    onnx_runtime: Runtime,
    /// Why a job would not start here.
    problem: Option<String>,
}

/// Prints the information; under a launcher, rank 0 does.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let launch = Launch::detect().ok().flatten();
    let mut info = Info {
        version: env!("CARGO_PKG_VERSION"),
        features: features(),
        machine: Machine::detect(),
        launcher: launch.map(|launch| launch.launcher.to_string()),
        launched: launch.and_then(|launch| launch.size),
        ranks: 1,
        threads_per_rank: 1,
        mpi: mpi_library(),
        onnx_runtime: Runtime::detect(),
        problem: None,
    };
    // Kept until the end, so that all ranks leave together.
    let context = ContextOptions::default().detect();
    let is_root = match &context {
        Ok(context) => {
            (info.ranks, info.threads_per_rank) = (context.size(), context.threads_per_rank());
            context.is_root()
        }
        Err(error) => {
            info.problem = Some(error.to_string());
            launch.is_none_or(|launch| launch.rank == 0)
        }
    };
    if !is_root {
        return Ok(());
    }
    let text =
        if arguments.json { serde_json::to_string_pretty(&info)? + "\n" } else { describe(&info)? };
    crate::print(&text)
}

/// The library of ONNX Runtime that networks of files and GPUs need.
#[derive(Default, Serialize)]
struct Runtime {
    library: Option<String>,
    version: Option<String>,
    providers: Vec<&'static str>,
    /// GPUs that this process may use.
    gpus: Vec<String>,
    /// What is missing for one.
    problem: Option<String>,
}

impl Runtime {
    #[cfg(feature = "onnx")]
    fn detect() -> Self {
        let library = match haloscope_onnx::Library::load() {
            Ok(library) => library,
            Err(error) => return Self { problem: Some(error.to_string()), ..Self::default() },
        };
        let (gpus, problem) = match haloscope_onnx::gpus() {
            Ok(gpus) => (gpus.iter().map(ToString::to_string).collect(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Self {
            library: Some(library.path().display().to_string()),
            version: Some(library.version().to_owned()),
            providers: library.providers(),
            gpus,
            problem,
        }
    }

    #[cfg(not(feature = "onnx"))]
    fn detect() -> Self {
        let problem = "not in this build (--features onnx adds it)".to_owned();
        Self { problem: Some(problem), ..Self::default() }
    }

    /// In a few words for each line.
    fn describe(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        match (&self.library, &self.version) {
            (Some(library), Some(version)) => {
                lines.push(("ONNX Runtime", format!("{version}, {library}")));
                lines.push(("providers", self.providers.join(" ")));
                let gpus = match &self.gpus[..] {
                    [] => format!("none: {}", self.problem.as_deref().unwrap_or_default()),
                    gpus => gpus.join(", "),
                };
                lines.push(("GPUs", gpus));
            }
            _ => lines.push(("ONNX Runtime", self.problem.clone().unwrap_or_default())),
        }
        lines
    }
}

/// The features of this build, by the names that cargo has for them.
fn features() -> Vec<&'static str> {
    let all = [
        ("builtin", cfg!(feature = "builtin")),
        ("hdf5", cfg!(feature = "hdf5")),
        ("zarr", cfg!(feature = "zarr")),
        ("parquet", cfg!(feature = "parquet")),
        ("mpi", cfg!(feature = "mpi")),
        ("onnx", cfg!(feature = "onnx")),
    ];
    all.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect()
}

#[cfg(feature = "mpi")]
#[allow(clippy::unnecessary_wraps)]
fn mpi_library() -> Option<String> {
    Some(haloscope_comm::Mpi::library())
}

#[cfg(not(feature = "mpi"))]
fn mpi_library() -> Option<String> {
    None
}

fn describe(info: &Info) -> Result<String> {
    let machine = &info.machine;
    let unknown = || "unknown".to_string();
    let gigabytes = |bytes: Option<u64>| {
        bytes.map_or_else(unknown, |bytes| format!("{:.1} GB", bytes as f64 / 1e9))
    };
    let list = |items: &[&str]| if items.is_empty() { "none".into() } else { items.join(" ") };
    let mut text = String::new();
    let mut line = |name: &str, value: String| writeln!(text, "{name:<18} {value}");
    line("version", info.version.into())?;
    line("features", list(&info.features))?;
    line("processor", machine.processor.clone().unwrap_or_else(unknown))?;
    line("cores", machine.cores.to_string())?;
    line(
        "memory",
        format!(
            "{}, {} available",
            gigabytes(machine.memory_bytes),
            gigabytes(machine.memory_available_bytes)
        ),
    )?;
    line("instruction sets", list(&machine.instruction_sets))?;
    let launcher = info.launcher.clone().unwrap_or_else(|| "none".into());
    let launched = info.launched.map_or_else(String::new, |size| match size {
        1 => ", 1 process".into(),
        size => format!(", {size} processes"),
    });
    line("launcher", launcher + &launched)?;
    let threads = count(info.threads_per_rank, "thread");
    let each = if info.ranks == 1 { "" } else { " each" };
    line("ranks", format!("{}, {threads}{each}", info.ranks))?;
    line(
        "MPI",
        info.mpi.clone().unwrap_or_else(|| "not in this build (--features mpi adds it)".into()),
    )?;
    for (name, value) in info.onnx_runtime.describe() {
        line(name, value)?;
    }
    if let Some(problem) = &info.problem {
        line("problem", problem.clone())?;
    }
    Ok(text)
}

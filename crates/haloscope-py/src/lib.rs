//! `_haloscope`, the extension of the Python package `haloscope`.
//!
//! It is thin: classes hold objects of the library, and functions pass arrays to them. Names, defaults, kinds of arrays and
//! everything that users see are in `python/haloscope`. All classes are frozen, so that threads may share them.
// Arguments from Python are owned, and only read.
#![expect(clippy::needless_pass_by_value, reason = "pyo3 hands over what it extracts")]

mod array;
mod context;
mod denoiser;
mod error;
mod fidelity;
mod files;
mod fourier;
mod function;
mod job;
mod operator;
mod run;
mod solve;
mod stack;

use haloscope_job::Machine;
use pyo3::prelude::*;

/// Arrays of jobs with a scratch folder are in its files.
#[global_allocator]
static ALLOCATOR: haloscope_scratch::Allocator = haloscope_scratch::Allocator;

/// The command `haloscope`, with the arguments of the process behind the first; `program` are the words that start it again.
#[pyfunction]
fn command(py: Python<'_>, program: Vec<String>, arguments: Vec<String>) -> u8 {
    py.detach(|| haloscope_cli::run_by(&program, arguments))
}

/// This machine and this build, as JSON.
#[pyfunction]
fn info() -> String {
    let features = [
        ("builtin", cfg!(feature = "builtin")),
        ("hdf5", cfg!(feature = "hdf5")),
        ("zarr", cfg!(feature = "zarr")),
        ("mpi", cfg!(feature = "mpi")),
        ("onnx", cfg!(feature = "onnx")),
    ];
    let built: Vec<_> =
        features.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect();
    let launcher = haloscope_comm::Launch::detect().ok().flatten();
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "features": built,
        "machine": Machine::detect(),
        "launcher": launcher.map(|launch| launch.launcher.to_string()),
        "mpi": mpi_library(),
    })
    .to_string()
}

#[cfg(feature = "mpi")]
#[expect(clippy::unnecessary_wraps, reason = "a build without MPI has no library")]
fn mpi_library() -> Option<String> {
    Some(haloscope_comm::Mpi::library())
}

#[cfg(not(feature = "mpi"))]
fn mpi_library() -> Option<String> {
    None
}

#[pymodule(gil_used = false)]
mod _haloscope {
    #[pymodule_export]
    use super::{command, info};
    #[pymodule_export]
    use crate::array::{PyMeasurements, address};
    #[pymodule_export]
    use crate::context::{PyContext, is_launched, launch};
    #[pymodule_export]
    use crate::denoiser::{PyDenoiser, builtin_for};
    #[pymodule_export]
    use crate::fidelity::{PyFidelity, fidelity_gradient, fidelity_prox, fidelity_value};
    #[pymodule_export]
    use crate::files::{
        estimate_noise, kernel, landscape, metric, read, read_scan, read_shape, shepp_logan, write,
    };
    #[pymodule_export]
    use crate::fourier::{
        PyNufft, RawScan, birdcage_map, cartesian, density, radial_points, read_ismrmrd,
        sensitivities, spiral_points, trajectory, visibilities,
    };
    #[pymodule_export]
    use crate::job::{PyJob, job_template, plan};
    #[pymodule_export]
    use crate::operator::{Operator, add_noise, random_mask};
    #[pymodule_export]
    use crate::run::{get_num_threads, set_num_threads};
    #[pymodule_export]
    use crate::solve::{PyStop, Snapshot, method_keys, run_solver};
    #[pymodule_export]
    use crate::stack::Stack;
}

//! Denoising networks by name: `builtin:color`, `builtin:gray`, or the path of a file with weights.

use std::path::Path;

use anyhow::{Context as _, Result};
use haloscope_nn::models::{Builtin, Model};
use haloscope_nn::weights::{Limits, StateDict};

/// The model that a command line or a job file names.
pub fn open(name: &str) -> Result<Model> {
    if let Some(builtin) = Builtin::named(name) {
        return Ok(builtin?.model()?);
    }
    let state = StateDict::open(Path::new(name), &Limits::default())?;
    Model::recognize(&state).with_context(|| name.to_owned())
}

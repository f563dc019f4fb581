//! Python callables as denoisers.
//!
//! A callable gets a copy that it may keep or change, and its result is copied: its memory is Python's. What it raises comes back
//! as itself, however many ranks and tiles are in between.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use haloscope::denoise::{Denoiser, NoiseLevel};
use haloscope::{Array, Error, Result, View};
use pyo3::prelude::*;

use crate::array::{Input, output};
use crate::run::call_python;

/// What Python code returned, as an array that can be read.
pub(crate) fn to_input(py: Python<'_>, result: &Bound<'_, PyAny>) -> PyResult<Input> {
    py.import("haloscope._arrays")?.getattr("as_input")?.call1((result,))?.extract()
}

/// A callable `f(x, sigma)` on numpy arrays.
pub(crate) struct Function {
    name: String,
    call: Py<PyAny>,
    alignment: usize,
    /// Held by the one call at a time that a callable allows.
    turn: Option<Mutex<()>>,
}

impl Function {
    pub(crate) fn new(name: String, call: Py<PyAny>, alignment: usize, threadsafe: bool) -> Self {
        Self { name, call, alignment, turn: (!threadsafe).then(Mutex::default) }
    }
}

impl Denoiser for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        // Taken before the thread attaches, and only here: a callable that denoises with itself would wait forever.
        let _turn =
            self.turn.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        let copy = image.as_standard_layout().into_owned();
        let call = |py: Python<'_>| {
            let sigma = match level {
                NoiseLevel::Uniform(level) => f64::from(*level).into_pyobject(py)?.into_any(),
                NoiseLevel::PerImage(levels) => levels.clone().into_pyobject(py)?.into_any(),
                NoiseLevel::Map(map) => output(py, map.clone()).into_any(),
            };
            to_input(py, &self.call.bind(py).call1((output(py, copy), sigma))?)
        };
        let result = call_python(call)
            .map_err(|exception| Error::foreign(format!("denoiser {:?}", self.name), exception))?;
        if result.view().shape() == image.shape() {
            return Ok(result.to_array());
        }
        Err(Error::Shape {
            what: format!("what the denoiser {:?} returned", self.name),
            expected: format!("{:?} is expected, as of the image", image.shape()),
            found: result.view().shape().to_vec(),
        })
    }

    fn alignment(&self) -> usize {
        self.alignment
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).finish_non_exhaustive()
    }
}

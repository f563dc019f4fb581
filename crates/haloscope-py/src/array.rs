//! numpy arrays in and out, without copies.

use std::sync::Arc;

use haloscope::{Array, Measurements};
use ndarray::{ArrayViewD, IxDyn};
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// An aligned array of float32 in C order that a call reads where it lies.
///
/// The package converts what users give to such arrays. Other threads must not write to one while a call reads it.
pub(crate) struct Input {
    start: *const f32,
    shape: Vec<usize>,
    /// Keeps the memory.
    _array: Py<PyArrayDyn<f32>>,
}

// SAFETY: the memory is only read, and lives as long as the array, whose reference is released by whichever thread drops it.
unsafe impl Send for Input {}
// SAFETY: as above.
unsafe impl Sync for Input {}

impl Input {
    /// The memory of the array.
    pub(crate) fn view(&self) -> ArrayViewD<'_, f32> {
        // SAFETY: `extract` found as many elements, in C order and aligned, and `_array` keeps them.
        unsafe { ArrayViewD::from_shape_ptr(IxDyn(&self.shape), self.start) }
    }

    /// A copy, for what keeps or changes it.
    pub(crate) fn to_array(&self) -> Array {
        self.view().to_owned()
    }
}

impl<'py> FromPyObject<'_, 'py> for Input {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let array = object.cast::<PyArrayDyn<f32>>()?;
        if !array.is_c_contiguous() {
            return Err(PyTypeError::new_err("the array is not in C order"));
        }
        let start: *const f32 = array.data();
        if !start.is_aligned() {
            let reason = "the array does not start at a multiple of 4 bytes; np.require aligns it";
            return Err(PyTypeError::new_err(reason));
        }
        let shape = array.shape().to_vec();
        Ok(Self { start, shape, _array: array.to_owned().unbind() })
    }
}

/// An array of Rust as one of numpy, which takes its memory over.
pub(crate) fn output(py: Python<'_>, array: Array) -> Bound<'_, PyArrayDyn<f32>> {
    array.into_pyarray(py)
}

/// The address at which a call reads an array.
#[pyfunction]
pub(crate) fn address(array: Input) -> usize {
    array.start as usize
}

/// The outputs of several operators, of which some may be on other ranks only.
#[pyclass(frozen, name = "Measurements", module = "haloscope._haloscope")]
pub(crate) struct PyMeasurements(pub Arc<Measurements>);

#[pymethods]
impl PyMeasurements {
    /// Of arrays that are copied; `None` is one on another rank.
    #[new]
    fn new(parts: Vec<Option<Input>>) -> PyResult<Self> {
        let count = parts.len();
        let known = parts.iter().enumerate();
        let known = known.filter_map(|(index, part)| Some((index, part.as_ref()?.to_array())));
        let parts = Measurements::partial(count, known);
        Ok(Self(Arc::new(parts.map_err(|error| PyTypeError::new_err(error.to_string()))?)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// A part, where it lies and to be read only; `None` if it is on another rank.
    fn get<'py>(this: &Bound<'py, Self>, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(part) = this.get().0.get(index) else { return Ok(None) };
        let standard = part.is_standard_layout();
        if !standard {
            return Ok(Some(output(this.py(), part.as_standard_layout().into_owned()).into_any()));
        }
        // SAFETY: the parts are never changed, and `this` keeps them for as long as the array is there.
        let array = unsafe { PyArrayDyn::borrow_from_array(part, this.clone().into_any()) };
        array.call_method1("setflags", (false,))?;
        Ok(Some(array.into_any()))
    }

    /// `self + factor · other`.
    fn add_scaled(&self, factor: f32, other: &Self) -> PyResult<Self> {
        let mut sum = (*self.0).clone();
        sum.add_scaled(factor, &other.0)
            .map_err(|error| Python::attach(|py| crate::error::raise(py, error)))?;
        Ok(Self(Arc::new(sum)))
    }

    /// `factor · self`.
    fn scaled(&self, factor: f32) -> Self {
        let mut product = (*self.0).clone();
        product.scale(factor);
        Self(Arc::new(product))
    }
}

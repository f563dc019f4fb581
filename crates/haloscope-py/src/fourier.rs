//! Instruments that measure frequencies: operators of MRI and radio interferometry, trajectories, sensitivities, and the
//! non-uniform transform.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::Array;
use haloscope::fourier::{Complex, Nufft};
use haloscope::physics::fourier::{
    Calibration, Cartesian, Spiral, Trajectory, Visibilities, birdcage, radial,
};
use ndarray::{ArrayD, IxDyn};
use numpy::{IntoPyArray, PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::prelude::*;

use crate::array::{Input, output};
use crate::error::Raised;
use crate::operator::Operator;
use crate::run::compute;

/// Numbers in double precision.
type Numbers<'py> = PyReadonlyArrayDyn<'py, f64>;

fn list(numbers: &Numbers<'_>) -> Vec<f64> {
    numbers.as_array().iter().copied().collect()
}

fn numbers<'py>(py: Python<'py>, sides: &[usize], values: Vec<f64>) -> Bound<'py, PyArrayDyn<f64>> {
    let array = ArrayD::from_shape_vec(IxDyn(sides), values).expect("as many as its sides have");
    array.into_pyarray(py)
}

/// MRI on a grid of frequencies.
#[pyfunction]
pub(crate) fn cartesian(
    py: Python<'_>,
    shape: Vec<usize>,
    coil: Option<Input>,
    mask: Option<Input>,
) -> PyResult<Operator> {
    let scan = compute(py, || {
        let (coil, mask) = (coil.as_ref().map(Input::view), mask.as_ref().map(Input::view));
        Cartesian::new(&shape, coil.as_deref(), mask.as_deref())
    })?;
    Ok(Operator::of(Arc::new(scan)))
}

/// MRI along a trajectory.
#[pyfunction]
pub(crate) fn trajectory(
    py: Python<'_>,
    shape: Vec<usize>,
    coil: Option<Input>,
    points: Numbers<'_>,
    density: Option<Numbers<'_>>,
    accuracy: f64,
) -> PyResult<Operator> {
    let (points, density) = (list(&points), density.as_ref().map(list));
    let scan = compute(py, || {
        let coil = coil.as_ref().map(Input::view);
        Trajectory::new(&shape, coil.as_deref(), &points, density.as_deref(), accuracy)
    })?;
    Ok(Operator::of(Arc::new(scan)))
}

/// Radio interferometry; `uvw` is (visibility, 3).
#[pyfunction]
pub(crate) fn visibilities(
    py: Python<'_>,
    shape: Vec<usize>,
    uvw: Numbers<'_>,
    cell: f64,
    weights: Option<Numbers<'_>>,
    beam: Option<Input>,
    accuracy: f64,
) -> PyResult<Operator> {
    let uvw: Vec<[f64; 3]> =
        list(&uvw).chunks_exact(3).map(|place| [place[0], place[1], place[2]]).collect();
    let weights = weights.as_ref().map(list);
    let telescope = compute(py, || {
        let beam = beam.as_ref().map(Input::view);
        Visibilities::with(&shape, &uvw, cell, weights.as_deref(), beam.as_deref(), accuracy)
    })?;
    Ok(Operator::of(Arc::new(telescope)))
}

/// Weights of samples against their density.
#[pyfunction]
pub(crate) fn density<'py>(
    py: Python<'py>,
    sides: Vec<usize>,
    points: Numbers<'py>,
) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
    let points = list(&points);
    let weights = compute(py, || Trajectory::density(&sides, &points))?;
    Ok(numbers(py, &[weights.len()], weights))
}

/// The points of a radial scan: (sample, 2).
#[pyfunction]
pub(crate) fn radial_points(
    py: Python<'_>,
    spokes: usize,
    samples: usize,
    first: f64,
) -> PyResult<Bound<'_, PyArrayDyn<f64>>> {
    let points = radial(spokes, samples, first).raised(py)?;
    Ok(numbers(py, &[points.len() / 2, 2], points))
}

/// The points of a spiral scan: (sample, 2).
#[pyfunction]
pub(crate) fn spiral_points(
    py: Python<'_>,
    sides: Vec<usize>,
    interleaves: usize,
    samples: Option<usize>,
    turns: Option<f64>,
    power: f64,
    is_golden: bool,
) -> PyResult<Bound<'_, PyArrayDyn<f64>>> {
    let turns = turns.unwrap_or_else(|| Spiral::covering(interleaves, power, &sides).turns);
    let samples = samples.unwrap_or_else(|| Spiral::samples_of(turns, power, &sides));
    let spiral = Spiral { interleaves, samples, turns, power, is_golden };
    let points = spiral.points().raised(py)?;
    Ok(numbers(py, &[points.len() / 2, 2], points))
}

/// The sensitivity of a coil of a birdcage: (2, spatial…).
#[pyfunction]
pub(crate) fn birdcage_map(
    py: Python<'_>,
    sides: Vec<usize>,
    coils: usize,
    coil: usize,
) -> PyResult<Bound<'_, PyArrayDyn<f32>>> {
    Ok(output(py, compute(py, || birdcage(&sides, coils, coil))?))
}

/// Sensitivities of coils from the middle of their frequencies; what suits the axes stands for a width or kernel that is not given.
#[pyfunction]
pub(crate) fn sensitivities(
    py: Python<'_>,
    measured: Vec<Input>,
    width: Option<usize>,
    kernel: Option<usize>,
    threshold: f64,
    crop: f64,
) -> PyResult<Vec<Bound<'_, PyArrayDyn<f32>>>> {
    let measured: Vec<Array> = measured.iter().map(Input::to_array).collect();
    let axes = measured.first().map_or(2, |coil| coil.ndim().saturating_sub(1));
    let usual = Calibration::of_axes(axes);
    let (width, kernel) = (width.unwrap_or(usual.width), kernel.unwrap_or(usual.kernel));
    let calibration = Calibration { width, kernel, threshold, crop };
    let maps = compute(py, || calibration.sensitivities(&measured))?;
    Ok(maps.into_iter().map(|map| output(py, map)).collect())
}

/// The non-uniform transform in double precision.
#[pyclass(frozen, name = "Nufft", module = "haloscope._haloscope")]
pub(crate) struct PyNufft(Nufft<f64>);

/// Complex numbers in double precision.
type Numbers2<'py> = PyReadonlyArrayDyn<'py, Complex<f64>>;

#[pymethods]
impl PyNufft {
    /// Points are radians along each axis, sample by sample.
    #[new]
    fn new(
        py: Python<'_>,
        sides: Vec<usize>,
        points: Numbers<'_>,
        accuracy: f64,
    ) -> PyResult<Self> {
        let points = list(&points);
        Ok(Self(compute(py, || Nufft::new(&sides, &points, accuracy))?))
    }

    #[getter]
    fn sides(&self) -> Vec<usize> {
        self.0.sides().to_vec()
    }

    #[getter]
    fn samples(&self) -> usize {
        self.0.samples()
    }

    /// The samples of an image of as many values as the sides have.
    fn forward<'py>(
        &self,
        py: Python<'py>,
        image: Numbers2<'py>,
    ) -> PyResult<Bound<'py, PyArrayDyn<Complex<f64>>>> {
        let image: Vec<_> = image.as_array().iter().copied().collect();
        let samples = compute(py, || {
            let mut samples = vec![Complex::default(); self.0.samples()];
            self.0.forward(&image, &mut samples, &mut self.0.scratch())?;
            Ok(samples)
        })?;
        let array = ArrayD::from_shape_vec(IxDyn(&[samples.len()]), samples);
        Ok(array.expect("a row").into_pyarray(py))
    }

    /// What samples give to an image.
    fn adjoint<'py>(
        &self,
        py: Python<'py>,
        samples: Numbers2<'py>,
    ) -> PyResult<Bound<'py, PyArrayDyn<Complex<f64>>>> {
        let samples: Vec<_> = samples.as_array().iter().copied().collect();
        let image = compute(py, || {
            let mut image = vec![Complex::default(); self.0.sides().iter().product()];
            self.0.adjoint(&samples, &mut image, &mut self.0.scratch())?;
            Ok(image)
        })?;
        let array = ArrayD::from_shape_vec(IxDyn(self.0.sides()), image);
        Ok(array.expect("as many as the sides have").into_pyarray(py))
    }
}

/// A scan in a file of ISMRMRD.
#[pyclass(frozen, get_all, module = "haloscope._haloscope")]
pub(crate) struct RawScan {
    /// (2, …) for each coil.
    coils: Vec<Py<PyArrayDyn<f32>>>,
    /// (1, spatial…) of a scan on a grid.
    mask: Option<Py<PyArrayDyn<f32>>>,
    /// (sample, axis) of another.
    points: Option<Py<PyArrayDyn<f64>>>,
    sides: Vec<usize>,
    calibration: Option<Vec<Py<PyArrayDyn<f32>>>>,
    noise: Option<f64>,
}

/// Reads a slice of a file of ISMRMRD.
#[cfg(feature = "hdf5")]
#[pyfunction]
pub(crate) fn read_ismrmrd(
    py: Python<'_>,
    path: PathBuf,
    group: String,
    slice: usize,
    keeps_oversampling: bool,
) -> PyResult<RawScan> {
    use haloscope::io::Limits;
    use haloscope::io::ismrmrd::{Samples, Scan, Selection};

    let selection = Selection { group, slice, keeps_oversampling };
    let scan = compute(py, || Scan::read(&path, &selection, &Limits::default()))?;
    let all = |coils: Vec<Array>| coils.into_iter().map(|coil| output(py, coil).unbind()).collect();
    let (coils, mask, points, sides) = match scan.samples {
        Samples::Grid { coils, mask } => {
            let sides = mask.shape()[1..].to_vec();
            (coils, Some(output(py, mask).unbind()), None, sides)
        }
        Samples::Anywhere { coils, points, sides, .. } => {
            let points = numbers(py, &[points.len() / sides.len(), sides.len()], points);
            (coils, None, Some(points.unbind()), sides)
        }
    };
    let (calibration, noise) = (scan.calibration.map(all), scan.noise);
    Ok(RawScan { coils: all(coils), mask, points, sides, calibration, noise })
}

#[cfg(not(feature = "hdf5"))]
#[pyfunction]
pub(crate) fn read_ismrmrd(
    py: Python<'_>,
    path: PathBuf,
    group: String,
    slice: usize,
    keeps_oversampling: bool,
) -> PyResult<RawScan> {
    let _ = (group, slice, keeps_oversampling);
    let reason = "files of ISMRMRD are HDF5, and this build is without the feature hdf5".into();
    let file = path.display().to_string();
    Err(crate::error::raise(py, haloscope::Error::Unsupported { file, reason }))
}

//! Measurement operators: those of the library, and those that a user defines in Python.

use std::fmt;
use std::sync::Arc;

use haloscope::least_squares::{
    LeastSquaresOptions, LinearSolver, NormOptions, prox_l2, pseudo_inverse, squared_norm,
};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::physics::tomography::{
    BackProjection, ConeBeam, FanBeam, Grouping, ParallelBeam, ParallelBeam3d, Scan2d, Scan3d,
    Tomography2d, Tomography3d, View2d, View3d, Window,
};
use haloscope::physics::{
    Affine, Blur, BlurMethod, Clipping, Compose, Decolorize, Downsampling, DownsamplingFilter,
    Identity, Inpainting, LinearPhysics, Matrix, Padding, Physics, Saturation, Scaled, VaryingBlur,
};
use haloscope::{Array, Error, Result};
use numpy::PyArrayDyn;
use pyo3::prelude::*;

use crate::array::{Input, output};
use crate::error::{Raised, raise};
use crate::run::{compute, on_threads};

/// An operator of the library.
#[pyclass(frozen, module = "haloscope._haloscope")]
pub(crate) struct Operator {
    pub physics: Arc<dyn Physics>,
    scan: Option<Scan>,
    /// The scan whose views it has some of, if these are an interleaved group.
    group: Option<Group>,
    /// Whether Python code runs in it, which must not hold up a thread that others share.
    calls_python: bool,
}

/// A scan, which knows more than other operators.
#[derive(Clone)]
pub(crate) enum Scan {
    Planar(Arc<Tomography2d>),
    Spatial(Arc<Tomography3d>),
}

impl Scan {
    /// The plan of filtered back-projection.
    pub(crate) fn back_projection(&self, window: Window) -> Result<BackProjection> {
        match self {
            Self::Planar(scan) => scan.back_projection(window),
            Self::Spatial(scan) => scan.back_projection(window),
        }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Planar(one), Self::Planar(other)) => Arc::ptr_eq(one, other),
            (Self::Spatial(one), Self::Spatial(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Every `count`-th view of a scan, from `index` on.
#[derive(Clone)]
struct Group {
    whole: Scan,
    index: usize,
    count: usize,
}

/// The scan that the operators are together: a single one, or all of its interleaved groups in their order.
pub(crate) fn only_scan(operators: &[PyRef<'_, Operator>]) -> Option<Scan> {
    if let [alone] = operators
        && alone.group.is_none()
    {
        return alone.scan.clone();
    }
    let whole = &operators.first()?.group.as_ref()?.whole;
    let is_group = |(index, operator): (usize, &PyRef<'_, Operator>)| {
        operator.group.as_ref().is_some_and(|group| {
            let place = (group.index, group.count);
            place == (index, operators.len()) && group.whole.is_same_as(whole)
        })
    };
    operators.iter().enumerate().all(is_group).then(|| whole.clone())
}

type Output<'py> = PyResult<Bound<'py, PyArrayDyn<f32>>>;

impl Operator {
    pub(crate) fn of(physics: Arc<dyn Physics>) -> Self {
        Self { physics, scan: None, group: None, calls_python: false }
    }

    fn planar(scan: Tomography2d) -> Self {
        let scan = Arc::new(scan);
        Self { scan: Some(Scan::Planar(scan.clone())), ..Self::of(scan) }
    }

    fn spatial(scan: Tomography3d) -> Self {
        let scan = Arc::new(scan);
        Self { scan: Some(Scan::Spatial(scan.clone())), ..Self::of(scan) }
    }

    fn linear(&self) -> Result<&dyn LinearPhysics> {
        self.physics.as_linear().ok_or_else(|| {
            let reason = "it is not linear and has no adjoint; use A_vjp";
            Error::argument(self.physics.name(), reason)
        })
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        work: impl FnOnce() -> Result<Array> + Send,
    ) -> Output<'py> {
        let array = compute(py, || if self.calls_python { work() } else { on_threads(work) })?;
        Ok(output(py, array))
    }
}

#[pymethods]
impl Operator {
    #[staticmethod]
    #[pyo3(signature = (shape, kernel, padding, fft))]
    fn blur(
        py: Python<'_>,
        shape: Vec<usize>,
        kernel: Input,
        padding: &str,
        fft: Option<bool>,
    ) -> PyResult<Self> {
        let method = match fft {
            None => BlurMethod::Automatic,
            Some(true) => BlurMethod::Fourier,
            Some(false) => BlurMethod::Direct,
        };
        let padding = padding_named(padding).raised(py)?;
        let blur = compute(py, || Blur::with_method(&shape, &kernel.view(), padding, method))?;
        Ok(Self::of(Arc::new(blur)))
    }

    #[staticmethod]
    fn downsampling(
        py: Python<'_>,
        shape: Vec<usize>,
        factor: usize,
        filter: Option<&str>,
        kernel: Option<Input>,
        padding: &str,
        phase: Option<Vec<usize>>,
    ) -> PyResult<Self> {
        let filter = match (filter, &kernel) {
            (_, Some(kernel)) => DownsamplingFilter::Kernel(kernel.to_array()),
            (None, None) => DownsamplingFilter::None,
            (Some("gaussian"), None) => DownsamplingFilter::Gaussian,
            (Some("box"), None) => DownsamplingFilter::Box,
            (Some("bilinear"), None) => DownsamplingFilter::Bilinear,
            (Some("bicubic"), None) => DownsamplingFilter::Bicubic,
            (Some("sinc"), None) => DownsamplingFilter::Sinc,
            (Some(other), None) => {
                let reason = format!(
                    "{other:?}; gaussian, box, bilinear, bicubic, sinc, None or a kernel is accepted"
                );
                return Err(raise(py, Error::argument("filter", reason)));
            }
        };
        let padding = padding_named(padding).raised(py)?;
        let operator = compute(py, || {
            let operator = Downsampling::new(&shape, factor, &filter, padding)?;
            match &phase {
                Some(phase) => operator.with_phase(phase),
                None => Ok(operator),
            }
        })?;
        Ok(Self::of(Arc::new(operator)))
    }

    #[staticmethod]
    fn varying_blur(
        py: Python<'_>,
        shape: Vec<usize>,
        grid: Vec<usize>,
        kernels: Vec<Input>,
        padding: &str,
    ) -> PyResult<Self> {
        let padding = padding_named(padding).raised(py)?;
        let kernels: Vec<Array> = kernels.iter().map(|kernel| kernel.view().to_owned()).collect();
        let blur = compute(py, || VaryingBlur::new(&shape, &grid, &kernels, padding))?;
        Ok(Self::of(Arc::new(blur)))
    }

    #[staticmethod]
    fn affine(
        py: Python<'_>,
        shape: Vec<usize>,
        sides: Vec<usize>,
        rows: Vec<f64>,
    ) -> PyResult<Self> {
        Ok(Self::of(Arc::new(Affine::new(&shape, &sides, &rows).raised(py)?)))
    }

    #[staticmethod]
    fn inpainting(py: Python<'_>, shape: Vec<usize>, mask: Input) -> PyResult<Self> {
        Ok(Self::of(Arc::new(Inpainting::new(&shape, &mask.view()).raised(py)?)))
    }

    #[staticmethod]
    fn decolorize(py: Python<'_>, shape: Vec<usize>, weights: Vec<f32>) -> PyResult<Self> {
        Ok(Self::of(Arc::new(Decolorize::with_weights(&shape, &weights).raised(py)?)))
    }

    #[staticmethod]
    fn identity(shape: Vec<usize>) -> Self {
        Self::of(Arc::new(Identity::new(&shape)))
    }

    #[staticmethod]
    fn matrix(py: Python<'_>, shape: Vec<usize>, matrix: Input) -> PyResult<Self> {
        Ok(Self::of(Arc::new(Matrix::new(&shape, &matrix.view()).raised(py)?)))
    }

    #[staticmethod]
    fn saturation(py: Python<'_>, shape: Vec<usize>, limit: f32, smooth: bool) -> PyResult<Self> {
        let clipping = if smooth { Clipping::Smooth } else { Clipping::Hard };
        Ok(Self::of(Arc::new(Saturation::new(&shape, limit, clipping).raised(py)?)))
    }

    /// A scan of a slice. With distances to source and detector the rays are a fan.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "a scan has as many numbers")]
    fn planar_scan(
        py: Python<'_>,
        shape: Vec<usize>,
        pixel: [f64; 2],
        angles: Vec<f64>,
        bins: usize,
        spacing: f64,
        offset: f64,
        distances: Option<(f64, f64)>,
    ) -> PyResult<Self> {
        let scan = match distances {
            None => Scan2d::from(ParallelBeam { angles, bins, spacing, offset }),
            Some((source_distance, detector_distance)) => Scan2d::from(FanBeam {
                angles,
                bins,
                spacing,
                offset,
                source_distance,
                detector_distance,
            }),
        };
        Ok(Self::planar(compute(py, || Tomography2d::with_pixels(&shape, pixel, scan))?))
    }

    /// A scan of a volume. With distances to source and detector the rays are a cone.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "a scan has as many numbers")]
    fn spatial_scan(
        py: Python<'_>,
        shape: Vec<usize>,
        voxel: [f64; 3],
        angles: Vec<f64>,
        detector: [usize; 2],
        spacing: [f64; 2],
        offset: [f64; 2],
        distances: Option<(f64, f64)>,
    ) -> PyResult<Self> {
        let scan = match distances {
            None => Scan3d::from(ParallelBeam3d { angles, detector, spacing, offset }),
            Some((source_distance, detector_distance)) => Scan3d::from(ConeBeam {
                angles,
                detector,
                spacing,
                offset,
                source_distance,
                detector_distance,
            }),
        };
        Ok(Self::spatial(compute(py, || Tomography3d::with_voxels(&shape, voxel, scan))?))
    }

    /// Views of a slice as ASTRA lists them: direction or source, middle of the detector, and step of its bins.
    #[staticmethod]
    fn planar_views(
        py: Python<'_>,
        shape: Vec<usize>,
        pixel: [f64; 2],
        bins: usize,
        views: Vec<[f64; 6]>,
        fan: bool,
    ) -> PyResult<Self> {
        let views = views.into_iter().map(|vector| View2d::of_vector(vector, fan));
        let scan = Scan2d::Views { views: views.collect(), bins };
        Ok(Self::planar(compute(py, || Tomography2d::with_pixels(&shape, pixel, scan))?))
    }

    /// Views of a volume as ASTRA lists them: direction or source, middle of the detector, and steps of its columns and rows.
    #[staticmethod]
    fn spatial_views(
        py: Python<'_>,
        shape: Vec<usize>,
        voxel: [f64; 3],
        detector: [usize; 2],
        views: Vec<[f64; 12]>,
        cone: bool,
    ) -> PyResult<Self> {
        let views = views.into_iter().map(|vector| View3d::of_vector(vector, cone));
        let scan = Scan3d::Views { views: views.collect(), detector };
        Ok(Self::spatial(compute(py, || Tomography3d::with_voxels(&shape, voxel, scan))?))
    }

    /// An operator that a Python object defines: `forward(x)`, `vjp(x, v)` and, if it is linear, `adjoint(y)`.
    #[staticmethod]
    fn python(
        name: String,
        shape: Vec<usize>,
        measurement: Vec<usize>,
        forward: Py<PyAny>,
        vjp: Option<Py<PyAny>>,
        adjoint: Option<Py<PyAny>>,
        cost: Option<f64>,
    ) -> Self {
        let defined = Defined { name, shape, measurement, forward, vjp, adjoint, cost };
        Self { calls_python: true, ..Self::of(Arc::new(defined)) }
    }

    /// `self ∘ inner`.
    fn compose(&self, py: Python<'_>, inner: &Self) -> PyResult<Self> {
        let both = Compose::new(self.physics.clone(), inner.physics.clone()).raised(py)?;
        let calls_python = self.calls_python || inner.calls_python;
        Ok(Self { calls_python, ..Self::of(Arc::new(both)) })
    }

    /// `factor · self`.
    fn scaled(&self, py: Python<'_>, factor: f32) -> PyResult<Self> {
        let scaled = Scaled::new(factor, self.physics.clone()).raised(py)?;
        Ok(Self { calls_python: self.calls_python, ..Self::of(Arc::new(scaled)) })
    }

    #[getter]
    fn name(&self) -> String {
        self.physics.name().to_owned()
    }

    #[getter]
    fn image_shape(&self) -> Vec<usize> {
        self.physics.image_shape().to_vec()
    }

    #[getter]
    fn measurement_shape(&self) -> Vec<usize> {
        self.physics.measurement_shape().to_vec()
    }

    #[getter]
    fn is_linear(&self) -> bool {
        self.physics.as_linear().is_some()
    }

    fn forward<'py>(&self, py: Python<'py>, image: Input) -> Output<'py> {
        self.run(py, || self.physics.forward(&image.view()))
    }

    fn vjp<'py>(&self, py: Python<'py>, image: Input, v: Input) -> Output<'py> {
        self.run(py, || self.physics.vjp(&image.view(), &v.view()))
    }

    fn adjoint<'py>(&self, py: Python<'py>, measurement: Input) -> Output<'py> {
        self.run(py, || self.linear()?.adjoint(&measurement.view()))
    }

    fn normal<'py>(&self, py: Python<'py>, image: Input) -> Output<'py> {
        self.run(py, || self.linear()?.normal(&image.view()))
    }

    fn pseudo_inverse<'py>(
        &self,
        py: Python<'py>,
        measurement: Input,
        solver: &str,
        iterations: usize,
        tolerance: f64,
    ) -> Output<'py> {
        let options = least_squares(solver, iterations, tolerance).raised(py)?;
        self.run(py, || {
            Ok(pseudo_inverse(self.linear()?, &measurement.to_array(), &options.options())?.image)
        })
    }

    fn prox_l2<'py>(
        &self,
        py: Python<'py>,
        z: Input,
        measurement: Input,
        gamma: f64,
        iterations: usize,
        tolerance: f64,
    ) -> Output<'py> {
        let options = least_squares("cg", iterations, tolerance).raised(py)?;
        self.run(py, || {
            let (z, y) = (z.to_array(), measurement.to_array());
            Ok(prox_l2(self.linear()?, &z, &y, gamma, &options.options())?.image)
        })
    }

    fn squared_norm(&self, py: Python<'_>, iterations: usize, tolerance: f64) -> PyResult<f64> {
        let options =
            NormOptions { max_iterations: iterations, tolerance, ..NormOptions::default() };
        compute(py, || {
            let linear = self.linear()?;
            match linear.exact_squared_norm() {
                Some(norm) => Ok(norm),
                None => Ok(squared_norm(linear, &options)?.estimate),
            }
        })
    }

    /// Filtered back-projection of a scan.
    fn filtered_back_projection<'py>(
        &self,
        py: Python<'py>,
        measurement: Input,
        window: &str,
    ) -> Output<'py> {
        let window = window_named(window).raised(py)?;
        self.run(py, || match &self.scan {
            Some(Scan::Planar(scan)) => scan.filtered_back_projection(&measurement.view(), window),
            Some(Scan::Spatial(scan)) => scan.filtered_back_projection(&measurement.view(), window),
            None => Err(Error::argument(self.physics.name(), "it is no scan")),
        })
    }

    /// The scan, scaled to a norm of 1.
    fn normalised(&self, py: Python<'_>) -> PyResult<Self> {
        compute(py, || match &self.scan {
            Some(Scan::Planar(scan)) => Ok(Self::planar((**scan).clone().normalised()?)),
            Some(Scan::Spatial(scan)) => Ok(Self::spatial((**scan).clone().normalised()?)),
            None => Err(Error::argument(self.physics.name(), "it is no scan")),
        })
    }

    /// Groups of the views of a scan.
    fn split(&self, py: Python<'_>, groups: usize, interleaved: bool) -> PyResult<Vec<Self>> {
        let grouping = if interleaved { Grouping::Interleaved } else { Grouping::Contiguous };
        let mut parts: Vec<Self> = compute(py, || match &self.scan {
            Some(Scan::Planar(scan)) => {
                Ok(scan.split(groups, grouping)?.into_iter().map(Self::planar).collect())
            }
            Some(Scan::Spatial(scan)) => {
                Ok(scan.split(groups, grouping)?.into_iter().map(Self::spatial).collect())
            }
            None => Err(Error::argument(self.physics.name(), "it is no scan")),
        })?;
        if let Some(whole) = self.scan.as_ref().filter(|_| interleaved) {
            let count = parts.len();
            for (index, part) in parts.iter_mut().enumerate() {
                part.group = Some(Group { whole: whole.clone(), index, count });
            }
        }
        Ok(parts)
    }
}

pub(crate) fn padding_named(name: &str) -> Result<Padding> {
    Ok(match name {
        "valid" => Padding::Valid,
        "circular" => Padding::Circular,
        "reflect" => Padding::Reflect,
        "replicate" => Padding::Replicate,
        "constant" => Padding::Constant,
        other => {
            let reason =
                format!("{other:?}; valid, circular, reflect, replicate or constant is accepted");
            return Err(Error::argument("padding", reason));
        }
    })
}

pub(crate) fn window_named(name: &str) -> Result<Window> {
    Ok(match name {
        "ram-lak" | "ramp" => Window::Ramp,
        "shepp-logan" => Window::SheppLogan,
        "cosine" => Window::Cosine,
        "hamming" => Window::Hamming,
        "hann" => Window::Hann,
        other => {
            let reason =
                format!("{other:?}; ram-lak, shepp-logan, cosine, hamming or hann is accepted");
            return Err(Error::argument("window", reason));
        }
    })
}

/// How a least-squares problem is solved, as what threads can share.
pub(crate) struct LeastSquares {
    method: LinearSolver,
    iterations: usize,
    tolerance: f64,
}

impl LeastSquares {
    pub(crate) fn options(&self) -> LeastSquaresOptions<'static> {
        LeastSquaresOptions {
            method: self.method,
            max_iterations: self.iterations,
            tolerance: self.tolerance,
            ..LeastSquaresOptions::default()
        }
    }
}

pub(crate) fn least_squares(
    solver: &str,
    iterations: usize,
    tolerance: f64,
) -> Result<LeastSquares> {
    let method = match solver {
        "lsqr" => LinearSolver::Lsqr,
        "cg" | "CG" => LinearSolver::ConjugateGradient,
        "minres" => LinearSolver::Minres,
        "bicgstab" | "BiCGStab" => LinearSolver::Bicgstab,
        other => {
            let reason = format!("{other:?}; lsqr, cg, minres or bicgstab is accepted");
            return Err(Error::argument("solver", reason));
        }
    };
    Ok(LeastSquares { method, iterations, tolerance })
}

/// Noise by name, with its one or two numbers.
pub(crate) fn noise(kind: &str, first: f64, second: f64) -> Result<Noise> {
    match kind {
        "gaussian" => Noise::gaussian(first),
        "poisson" => Noise::poisson(first),
        "poisson-gaussian" => Noise::poisson_gaussian(first, second),
        "uniform" => Noise::uniform(first),
        other => Err(Error::argument("noise", format!("there is no {other:?}"))),
    }
}

/// The measurement with noise.
#[pyfunction]
pub(crate) fn add_noise<'py>(
    py: Python<'py>,
    measurement: Input,
    kind: &str,
    first: f64,
    second: f64,
    seed: u64,
) -> Output<'py> {
    let noise = noise(kind, first, second).raised(py)?;
    let array = compute(py, || {
        let mut array = measurement.to_array();
        noise.add(&mut array, NoiseSource { seed, operator: 0 })?;
        Ok(array)
    })?;
    Ok(output(py, array))
}

/// A mask that leaves pixels out at random.
#[pyfunction]
pub(crate) fn random_mask(
    py: Python<'_>,
    shape: Vec<usize>,
    missing: f64,
    seed: u64,
) -> Output<'_> {
    Ok(output(py, Inpainting::random_mask(&shape, missing, seed).raised(py)?))
}

/// An operator whose maps are Python callables on numpy arrays.
struct Defined {
    name: String,
    shape: Vec<usize>,
    measurement: Vec<usize>,
    forward: Py<PyAny>,
    vjp: Option<Py<PyAny>>,
    adjoint: Option<Py<PyAny>>,
    cost: Option<f64>,
}

impl Defined {
    /// Calls a map with arrays of these shapes behind the batch, and copies what it returns.
    fn call(
        &self,
        map: &Py<PyAny>,
        batch: usize,
        arguments: &[(&[usize], &[f32])],
        to: (&[usize], &mut [f32]),
    ) -> Result<()> {
        let of = |shape: &[usize]| [&[batch][..], shape].concat();
        let arrays: Vec<Array> = arguments
            .iter()
            .map(|(shape, values)| {
                Array::from_shape_vec(of(shape), values.to_vec()).expect("checked by the caller")
            })
            .collect();
        let call = |py: Python<'_>| {
            let arrays = arrays.into_iter().map(|array| output(py, array));
            let result = map.bind(py).call1(pyo3::types::PyTuple::new(py, arrays)?)?;
            crate::function::to_input(py, &result)
        };
        let result = crate::run::call_python(call)
            .map_err(|exception| Error::foreign(format!("operator {:?}", self.name), exception))?;
        let (shape, to) = to;
        let view = result.view();
        if view.shape() != of(shape) {
            return Err(Error::Shape {
                what: format!("what the operator {:?} returned", self.name),
                expected: format!("{:?} is expected", of(shape)),
                found: view.shape().to_vec(),
            });
        }
        to.copy_from_slice(view.as_slice().expect("inputs are in C order"));
        Ok(())
    }
}

impl Physics for Defined {
    fn name(&self) -> &str {
        &self.name
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let to = (&*self.measurement, measurement);
        self.call(&self.forward, batch, &[(&self.shape, image)], to)
    }

    fn apply_vjp(&self, batch: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
        match &self.vjp {
            Some(vjp) => {
                let arguments = [(&*self.shape, image), (&*self.measurement, v)];
                self.call(vjp, batch, &arguments, (&self.shape, result))
            }
            None => match self.as_linear() {
                Some(linear) => linear.apply_adjoint(batch, v, result),
                None => Err(Error::argument(&*self.name, "it defines no A_vjp")),
            },
        }
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        self.adjoint.as_ref().map(|_| self as &dyn LinearPhysics)
    }

    fn cost(&self) -> f64 {
        self.cost.unwrap_or_else(|| {
            (self.shape.iter().product::<usize>() + self.measurement.iter().product::<usize>())
                as f64
        })
    }
}

impl LinearPhysics for Defined {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let adjoint = self.adjoint.as_ref().expect("only linear operators come here");
        self.call(adjoint, batch, &[(&self.measurement, measurement)], (&self.shape, image))
    }
}

impl fmt::Debug for Defined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Defined").field("name", &self.name).finish_non_exhaustive()
    }
}

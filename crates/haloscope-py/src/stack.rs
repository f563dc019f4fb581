//! Stacks of operators over ranks.
//!
//! A stack that is not distributed is one on a single rank: the bits are the same.

use std::sync::Arc;

use haloscope::distribute::{
    Assignment, DistributedStack, Factory, StackOptions, agree, back_project, distribute_with,
};
use haloscope::least_squares::NormOptions;
use haloscope::physics::Physics;
use haloscope::physics::tomography::Window;
use haloscope::{Array, Error, Measurements, Result};
use numpy::PyArrayDyn;
use pyo3::prelude::*;

use crate::array::{Input, PyMeasurements, output};
use crate::context::PyContext;
use crate::error::Raised;
use crate::operator::{Operator, Scan, least_squares, noise, only_scan};
use crate::run::{call_python, compute};

/// Operators that ranks share.
#[pyclass(frozen, module = "haloscope._haloscope")]
pub(crate) struct Stack {
    pub operators: Arc<DistributedStack>,
    /// The scan of which the operators are the groups of views, if they are all of one.
    scan: Option<Scan>,
}

impl Stack {
    /// An image to begin with, by filtered back-projection; all ranks call it, each with its own measurements.
    pub(crate) fn back_project(&self, data: &Measurements) -> Result<Array> {
        let scan = self.scan.as_ref().ok_or_else(|| {
            let reason = "\"fbp\" for operators that are not one scan; a Tomography, or all its interleaved groups as \
                          split gives them, is accepted";
            Error::argument("x_init", reason)
        })?;
        back_project(&self.operators, &scan.back_projection(Window::Ramp)?, data)
    }
}

fn options(assignment: &str, owners: Option<Vec<usize>>, gather: &str) -> Result<StackOptions> {
    let assignment = match (assignment, owners) {
        (_, Some(owners)) => Assignment::Owners(owners),
        ("round_robin", None) => Assignment::RoundRobin,
        ("balanced", None) => Assignment::Balanced,
        (other, None) => {
            let reason = format!("{other:?}; round_robin, balanced or a list of ranks is accepted");
            return Err(Error::argument("assignment", reason));
        }
    };
    Ok(StackOptions { assignment, gather: gather.parse()? })
}

fn measured(measurements: Measurements) -> PyMeasurements {
    PyMeasurements(Arc::new(measurements))
}

#[pymethods]
impl Stack {
    /// Of operators that every rank has.
    #[new]
    fn new(
        py: Python<'_>,
        context: &PyContext,
        operators: Vec<PyRef<'_, Operator>>,
        assignment: &str,
        owners: Option<Vec<usize>>,
        gather: &str,
    ) -> PyResult<Self> {
        let context = context.context().raised(py)?;
        let options = options(assignment, owners, gather).raised(py)?;
        let scan = only_scan(&operators);
        let operators: Vec<Arc<dyn Physics>> =
            operators.iter().map(|operator| operator.physics.clone()).collect();
        let operators = compute(py, || distribute_with(operators, &context, options))?;
        Ok(Self { operators: Arc::new(operators), scan })
    }

    /// Of operators that `make(index)` gives, which is called where they are.
    #[staticmethod]
    fn of_factory(
        py: Python<'_>,
        context: &PyContext,
        count: usize,
        make: Py<PyAny>,
        assignment: &str,
        owners: Option<Vec<usize>>,
        gather: &str,
    ) -> PyResult<Self> {
        let context = context.context().raised(py)?;
        let options = options(assignment, owners, gather).raised(py)?;
        let factory = Factory::new(count, move |index, _, _| {
            let made = |py: Python<'_>| {
                let operator = make.bind(py).call1((index,))?;
                Ok(operator.cast::<Operator>()?.get().physics.clone())
            };
            let what = || format!("factory of operator {index}");
            call_python(made).map_err(|exception| Error::foreign(what(), exception))
        });
        let operators = compute(py, || distribute_with(factory, &context, options))?;
        Ok(Self { operators: Arc::new(operators), scan: None })
    }

    fn __len__(&self) -> usize {
        self.operators.len()
    }

    #[getter]
    fn owners(&self) -> Vec<usize> {
        self.operators.owners().to_vec()
    }

    #[getter]
    fn local_indices(&self) -> Vec<usize> {
        self.operators.local_indices().collect()
    }

    #[getter]
    fn image_shape(&self) -> Vec<usize> {
        self.operators.image_shape().to_vec()
    }

    #[getter]
    fn measurement_shapes(&self) -> Vec<Vec<usize>> {
        self.operators.measurement_shapes().to_vec()
    }

    #[getter]
    fn is_linear(&self) -> bool {
        self.operators.is_linear()
    }

    fn forward(&self, py: Python<'_>, image: Input, gather: bool) -> PyResult<PyMeasurements> {
        let all = compute(py, || {
            let terms = self.operators.forward_terms(&image.view())?;
            if gather {
                terms.gather()
            } else {
                agree(self.operators.context(), terms.into_local())
            }
        })?;
        Ok(measured(all))
    }

    /// With noise: one kind for all operators, or one for each.
    fn measure(
        &self,
        py: Python<'_>,
        image: Input,
        kinds: Vec<(String, f64, f64)>,
        seed: u64,
        gather: bool,
    ) -> PyResult<PyMeasurements> {
        let kinds = kinds.iter().map(|(kind, first, second)| noise(kind, *first, *second));
        let kinds = kinds.collect::<Result<Vec<_>>>().raised(py)?;
        let all = compute(py, || {
            let terms = self.operators.measure_terms(&image.view(), &kinds, seed)?;
            if gather {
                terms.gather()
            } else {
                agree(self.operators.context(), terms.into_local())
            }
        })?;
        Ok(measured(all))
    }

    fn adjoint<'py>(
        &self,
        py: Python<'py>,
        measurements: &PyMeasurements,
        gather: bool,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || {
            if gather {
                return self.operators.adjoint(&measurements.0);
            }
            agree(
                self.operators.context(),
                self.operators.adjoint_terms(&measurements.0)?.local_sum(),
            )
        })?;
        Ok(output(py, array))
    }

    fn vjp<'py>(
        &self,
        py: Python<'py>,
        image: Input,
        v: &PyMeasurements,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.operators.vjp(&image.view(), &v.0))?;
        Ok(output(py, array))
    }

    fn normal<'py>(&self, py: Python<'py>, image: Input) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.operators.normal(&image.view()))?;
        Ok(output(py, array))
    }

    fn gram(&self, py: Python<'_>, measurements: &PyMeasurements) -> PyResult<PyMeasurements> {
        Ok(measured(compute(py, || self.operators.gram(&measurements.0))?))
    }

    fn pseudo_inverse<'py>(
        &self,
        py: Python<'py>,
        measurements: &PyMeasurements,
        solver: &str,
        iterations: usize,
        tolerance: f64,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let options = least_squares(solver, iterations, tolerance).raised(py)?;
        let array = compute(py, || {
            Ok(self.operators.pseudo_inverse(&measurements.0, &options.options())?.image)
        })?;
        Ok(output(py, array))
    }

    fn squared_norm(&self, py: Python<'_>, iterations: usize, tolerance: f64) -> PyResult<f64> {
        let options =
            NormOptions { max_iterations: iterations, tolerance, ..NormOptions::default() };
        compute(py, || Ok(self.operators.squared_norm(&options)?.estimate))
    }
}

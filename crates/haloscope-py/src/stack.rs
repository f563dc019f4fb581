//! Stacks of operators over ranks, and data fidelities on them.
//!
//! A stack that is not distributed is one on a single rank: the bits are the same.

use std::sync::Arc;

use haloscope::distribute::{
    Assignment, DistributedFidelity, DistributedStack, Factory, FidelityReduction, StackOptions,
    agree, distribute_with,
};
use haloscope::fidelity::{Amplitude, Ball, Fidelities, Fidelity, L1, L2, Poisson};
use haloscope::least_squares::NormOptions;
use haloscope::physics::Physics;
use haloscope::{Error, Measurements, Result};
use numpy::PyArrayDyn;
use pyo3::prelude::*;

use crate::array::{Input, PyMeasurements, output};
use crate::context::PyContext;
use crate::error::{Raised, raise};
use crate::operator::{Operator, least_squares, noise};
use crate::run::{call_python, compute};

/// Operators that ranks share.
#[pyclass(frozen, module = "haloscope._haloscope")]
pub(crate) struct Stack(pub Arc<DistributedStack>);

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
        let operators: Vec<Arc<dyn Physics>> =
            operators.iter().map(|operator| operator.physics.clone()).collect();
        Ok(Self(Arc::new(compute(py, || distribute_with(operators, &context, options))?)))
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
        Ok(Self(Arc::new(compute(py, || distribute_with(factory, &context, options))?)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn owners(&self) -> Vec<usize> {
        self.0.owners().to_vec()
    }

    #[getter]
    fn local_indices(&self) -> Vec<usize> {
        self.0.local_indices().collect()
    }

    #[getter]
    fn image_shape(&self) -> Vec<usize> {
        self.0.image_shape().to_vec()
    }

    #[getter]
    fn measurement_shapes(&self) -> Vec<Vec<usize>> {
        self.0.measurement_shapes().to_vec()
    }

    #[getter]
    fn is_linear(&self) -> bool {
        self.0.is_linear()
    }

    fn forward(&self, py: Python<'_>, image: Input, gather: bool) -> PyResult<PyMeasurements> {
        let all = compute(py, || {
            let terms = self.0.forward_terms(&image.view())?;
            if gather { terms.gather() } else { agree(self.0.context(), terms.into_local()) }
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
            let terms = self.0.measure_terms(&image.view(), &kinds, seed)?;
            if gather { terms.gather() } else { agree(self.0.context(), terms.into_local()) }
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
                return self.0.adjoint(&measurements.0);
            }
            agree(self.0.context(), self.0.adjoint_terms(&measurements.0)?.local_sum())
        })?;
        Ok(output(py, array))
    }

    fn vjp<'py>(
        &self,
        py: Python<'py>,
        image: Input,
        v: &PyMeasurements,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.0.vjp(&image.view(), &v.0))?;
        Ok(output(py, array))
    }

    fn normal<'py>(&self, py: Python<'py>, image: Input) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.0.normal(&image.view()))?;
        Ok(output(py, array))
    }

    fn gram(&self, py: Python<'_>, measurements: &PyMeasurements) -> PyResult<PyMeasurements> {
        Ok(measured(compute(py, || self.0.gram(&measurements.0))?))
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
        let array =
            compute(py, || Ok(self.0.pseudo_inverse(&measurements.0, &options.options())?.image))?;
        Ok(output(py, array))
    }

    fn squared_norm(&self, py: Python<'_>, iterations: usize, tolerance: f64) -> PyResult<f64> {
        let options =
            NormOptions { max_iterations: iterations, tolerance, ..NormOptions::default() };
        compute(py, || Ok(self.0.squared_norm(&options)?.estimate))
    }
}

/// A distance between what an image would measure and what was measured.
#[pyclass(frozen, name = "Fidelity", module = "haloscope._haloscope")]
pub(crate) struct PyFidelity(pub Arc<dyn Fidelity>);

#[pymethods]
impl PyFidelity {
    /// `l2` of σ, `l1`, `poisson` of gain and background, `ball` of a radius, or `amplitude`.
    #[new]
    fn new(py: Python<'_>, kind: &str, first: f64, second: f64, counts: bool) -> PyResult<Self> {
        Ok(Self(match kind {
            "l2" => Arc::new(L2::new(first).raised(py)?),
            "l1" => Arc::new(L1),
            "poisson" => {
                let poisson = Poisson::new(first, second).raised(py)?;
                Arc::new(if counts { poisson.of_counts() } else { poisson })
            }
            "ball" => Arc::new(Ball::new(first).raised(py)?),
            "amplitude" => Arc::new(Amplitude),
            other => {
                let reason = format!("{other:?}; l2, l1, poisson, ball or amplitude is accepted");
                return Err(raise(py, Error::argument("fidelity", reason)));
            }
        }))
    }

    #[getter]
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    /// Of a measurement itself.
    fn value(&self, py: Python<'_>, u: Input, y: Input) -> PyResult<f64> {
        compute(py, || self.0.value(&u.view(), &y.view()))
    }

    fn gradient<'py>(
        &self,
        py: Python<'py>,
        u: Input,
        y: Input,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.0.gradient(&u.view(), &y.view()))?;
        Ok(output(py, array))
    }

    fn prox<'py>(
        &self,
        py: Python<'py>,
        u: Input,
        y: Input,
        gamma: f64,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.0.prox(&u.view(), &y.view(), gamma))?;
        Ok(output(py, array))
    }
}

/// One fidelity for all operators, or one for each, on the ranks of a stack.
pub(crate) fn shared_fidelity(
    fidelities: &[PyRef<'_, PyFidelity>],
    stack: &Stack,
    mean: bool,
) -> Result<DistributedFidelity> {
    let list = match fidelities {
        [one] => Fidelities::same(one.0.clone()),
        many => Fidelities::each(many.iter().map(|fidelity| fidelity.0.clone()).collect()),
    };
    let reduction = if mean { FidelityReduction::Mean } else { FidelityReduction::Sum };
    distribute_with(list, stack.0.context(), reduction)
}

/// `Σ dᵢ(Aᵢ x, yᵢ)`, or the mean.
#[pyfunction]
pub(crate) fn fidelity_value(
    py: Python<'_>,
    fidelities: Vec<PyRef<'_, PyFidelity>>,
    stack: &Stack,
    image: Input,
    data: &PyMeasurements,
    mean: bool,
) -> PyResult<f64> {
    let fidelity = shared_fidelity(&fidelities, stack, mean).raised(py)?;
    compute(py, || fidelity.value(&stack.0, &image.view(), &data.0))
}

/// Its gradient.
#[pyfunction]
pub(crate) fn fidelity_gradient<'py>(
    py: Python<'py>,
    fidelities: Vec<PyRef<'py, PyFidelity>>,
    stack: &Stack,
    image: Input,
    data: &PyMeasurements,
    mean: bool,
) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let fidelity = shared_fidelity(&fidelities, stack, mean).raised(py)?;
    let array = compute(py, || fidelity.gradient(&stack.0, &image.view(), &data.0))?;
    Ok(output(py, array))
}

/// Its prox, of squares.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "a prox, and how it is found")]
pub(crate) fn fidelity_prox<'py>(
    py: Python<'py>,
    fidelities: Vec<PyRef<'py, PyFidelity>>,
    stack: &Stack,
    image: Input,
    data: &PyMeasurements,
    gamma: f64,
    iterations: usize,
    tolerance: f64,
    mean: bool,
) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let fidelity = shared_fidelity(&fidelities, stack, mean).raised(py)?;
    let options = least_squares("cg", iterations, tolerance).raised(py)?;
    let array = compute(py, || {
        let image = image.to_array();
        Ok(fidelity.prox(&stack.0, &image, &data.0, gamma, &options.options())?.image)
    })?;
    Ok(output(py, array))
}

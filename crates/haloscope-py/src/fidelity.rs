//! Data fidelities, those that a Python class defines among them, on the ranks of a stack.

use std::fmt;
use std::sync::Arc;

use haloscope::distribute::{DistributedFidelity, FidelityReduction, distribute_with};
use haloscope::fidelity::{Amplitude, Ball, Fidelities, Fidelity, L1, L2, Poisson};
use haloscope::{Array, Error, Result, View};
use numpy::PyArrayDyn;
use pyo3::prelude::*;

use crate::array::{Input, PyMeasurements, output};
use crate::error::{Raised, raise};
use crate::function::to_input;
use crate::operator::least_squares;
use crate::run::{call_python, compute};
use crate::stack::Stack;

/// A distance between what an image would measure and what was measured.
#[pyclass(frozen, name = "Fidelity", module = "haloscope._haloscope")]
pub(crate) struct PyFidelity {
    fidelity: Arc<dyn Fidelity>,
    /// Whether a class of Python defines it.
    is_python: bool,
}

impl PyFidelity {
    /// What names it among those that methods and checkpoints know; one of Python has no name there.
    pub(crate) fn listed_name(&self) -> String {
        let name = self.fidelity.name();
        if self.is_python { format!("python:{name}") } else { name.to_owned() }
    }
}

#[pymethods]
impl PyFidelity {
    /// `l2` of σ, `l1`, `poisson` of gain and background, `ball` of a radius, or `amplitude`.
    #[new]
    fn new(py: Python<'_>, kind: &str, first: f64, second: f64, counts: bool) -> PyResult<Self> {
        let fidelity: Arc<dyn Fidelity> = match kind {
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
        };
        Ok(Self { fidelity, is_python: false })
    }

    /// One that a Python object defines: `value(u, y)` and, if there are such, `gradient(u, y)` and `prox(u, y, gamma)`.
    #[staticmethod]
    fn python(
        name: String,
        value: Py<PyAny>,
        gradient: Option<Py<PyAny>>,
        prox: Option<Py<PyAny>>,
    ) -> Self {
        Self { fidelity: Arc::new(Defined { name, value, gradient, prox }), is_python: true }
    }

    #[getter]
    fn name(&self) -> String {
        self.fidelity.name().to_owned()
    }

    /// Of a measurement itself.
    fn value(&self, py: Python<'_>, u: Input, y: Input) -> PyResult<f64> {
        compute(py, || self.fidelity.value(&u.view(), &y.view()))
    }

    fn gradient<'py>(
        &self,
        py: Python<'py>,
        u: Input,
        y: Input,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.fidelity.gradient(&u.view(), &y.view()))?;
        Ok(output(py, array))
    }

    fn prox<'py>(
        &self,
        py: Python<'py>,
        u: Input,
        y: Input,
        gamma: f64,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let array = compute(py, || self.fidelity.prox(&u.view(), &y.view(), gamma))?;
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
        [one] => Fidelities::same(one.fidelity.clone()),
        many => Fidelities::each(many.iter().map(|fidelity| fidelity.fidelity.clone()).collect()),
    };
    let reduction = if mean { FidelityReduction::Mean } else { FidelityReduction::Sum };
    distribute_with(list, stack.operators.context(), reduction)
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
    compute(py, || fidelity.value(&stack.operators, &image.view(), &data.0))
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
    let array = compute(py, || fidelity.gradient(&stack.operators, &image.view(), &data.0))?;
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
        Ok(fidelity.prox(&stack.operators, &image, &data.0, gamma, &options.options())?.image)
    })?;
    Ok(output(py, array))
}

/// A fidelity whose maps are Python callables on numpy arrays, which get copies that they may keep or change.
struct Defined {
    name: String,
    value: Py<PyAny>,
    gradient: Option<Py<PyAny>>,
    prox: Option<Py<PyAny>>,
}

impl Defined {
    /// What a map makes of two measurements and, for a prox, of its step.
    fn call<T>(
        &self,
        map: &Py<PyAny>,
        u: &View,
        y: &View,
        gamma: Option<f64>,
        read: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        let [u, y] = [u, y].map(|array| array.as_standard_layout().into_owned());
        let call = |py: Python<'_>| {
            let (u, y) = (output(py, u), output(py, y));
            let result = match gamma {
                Some(gamma) => map.bind(py).call1((u, y, gamma)),
                None => map.bind(py).call1((u, y)),
            };
            read(py, &result?)
        };
        call_python(call).map_err(|exception| {
            Error::foreign(format!("data fidelity {:?}", self.name), exception)
        })
    }

    fn array(&self, map: &Py<PyAny>, u: &View, y: &View, gamma: Option<f64>) -> Result<Array> {
        let result = self.call(map, u, y, gamma, to_input)?;
        if result.view().shape() == u.shape() {
            return Ok(result.to_array());
        }
        Err(Error::Shape {
            what: format!("what the data fidelity {:?} returned", self.name),
            expected: format!("{:?} is expected, as of the measurement", u.shape()),
            found: result.view().shape().to_vec(),
        })
    }

    fn missing(&self, method: &str, instead: &str) -> Error {
        Error::argument(
            &*self.name,
            format!("it defines no {method}; use a method that takes its {instead}"),
        )
    }
}

impl Fidelity for Defined {
    fn name(&self) -> &str {
        &self.name
    }

    fn value(&self, u: &View, y: &View) -> Result<f64> {
        self.call(&self.value, u, y, None, |_, value| value.extract())
    }

    fn gradient(&self, u: &View, y: &View) -> Result<Array> {
        let gradient = self.gradient.as_ref().ok_or_else(|| self.missing("grad_d", "prox"))?;
        self.array(gradient, u, y, None)
    }

    fn prox(&self, u: &View, y: &View, gamma: f64) -> Result<Array> {
        let prox = self.prox.as_ref().ok_or_else(|| self.missing("prox_d", "gradient"))?;
        self.array(prox, u, y, Some(gamma))
    }
}

impl fmt::Debug for Defined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Defined").field("name", &self.name).finish_non_exhaustive()
    }
}

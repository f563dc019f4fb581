//! What job files can name.

use haloscope::solve::METHODS;
use haloscope_nn::engine::ENGINES;

use crate::sections::operators::KINDS;
use crate::sections::prior::PRIORS;
use crate::sections::solver::FIDELITIES;

/// The names of all operators, priors, fidelities and methods that a job can have, and of the engines that run its networks,
/// each from the table that decides.
///
/// ```
/// let registered = haloscope_job::registered();
/// let (what, names) = &registered[0];
/// assert_eq!(*what, "operators");
/// assert!(names.contains(&"blur"));
/// ```
#[must_use]
pub fn registered() -> [(&'static str, Vec<&'static str>); 5] {
    fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
        table.iter().map(|(name, _)| *name).collect()
    }
    let methods = METHODS
        .iter()
        .flat_map(|method| std::iter::once(method.name()).chain(method.aliases.iter().copied()));
    let mut engines = names(ENGINES);
    if cfg!(feature = "onnx") {
        engines.push("onnxruntime");
    }
    [
        ("operators", names(&KINDS)),
        ("priors", names(&PRIORS)),
        ("fidelities", names(&FIDELITIES)),
        ("methods", methods.collect()),
        ("engines", engines),
    ]
}

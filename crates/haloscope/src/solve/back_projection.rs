//! Filtered back-projection as a method of jobs: without steps, because its start is its result.

use super::method::{DataUse, Held, Key, KeyValue, Method, Priors, Taken, Traits};

/// Filtered back-projection of a scan, of cone beams by the method of Feldkamp, Davis and Kress:
/// [`tomography`](crate::physics::tomography) computes it. All measurements are on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilteredBackProjection;

static FBP: Traits = Traits {
    name: "fbp",
    aliases: &["fdk"],
    summary: "filtered back-projection of a scan, for cones by Feldkamp, Davis and Kress; no iterations",
    keys: &[Key::optional("window", KeyValue::Window, Some("ramp"), "as in `[start]`")],
    priors: Priors::None,
    clamps: true,
    fidelities: &[("l2", Taken::AsItIs), ("l1", Taken::AsItIs), ("poisson", Taken::AsItIs)],
    data_term: DataUse::Nothing,
    knows_data_term: false,
    holds: Held::images(0, 0, 2),
};

impl FilteredBackProjection {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&FBP);
}

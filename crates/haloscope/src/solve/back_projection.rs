//! Filtered back-projection as a method of jobs: without steps, because its start is its result.

use super::algorithm::{Algorithm, Setting};
use super::keys::{Key, KeyKind, KeyValue};
use super::method::{DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::state::State;
use crate::error::Result;
use crate::image::Image;
use crate::physics::tomography::Window;

/// Filtered back-projection of a scan, of cone beams by the method of Feldkamp, Davis and Kress:
/// [`back_project`](crate::distribute::back_project) computes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilteredBackProjection;

static FBP: Traits = Traits {
    name: "fbp",
    aliases: &["fdk"],
    summary: "filtered back-projection of a scan, for cones by Feldkamp, Davis and Kress; no iterations",
    keys: &[Key::optional(
        "window",
        KeyKind::Window,
        Some(KeyValue::Window(Window::Ramp)),
        "as in `[start]`",
    )],
    priors: Priors::None,
    clamps: true,
    fidelities: &[("l2", Taken::AsItIs), ("l1", Taken::AsItIs), ("poisson", Taken::AsItIs)],
    data_term: DataUse::Nothing,
    knows_data_term: false,
    holds: Held::images(0, 0, 1),
    variants: &[],
    check: any_keys,
    make: |_| Ok(Box::new(FilteredBackProjection)),
};

impl FilteredBackProjection {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&FBP);
}

impl Algorithm for FilteredBackProjection {
    fn name(&self) -> &'static str {
        FBP.name
    }

    /// The image stays as it is: it is the result.
    fn step(&self, _setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        Ok(state.image.clone())
    }
}

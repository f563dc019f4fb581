//! The built-in denoisers: three compact `DRUNet`s that we trained.
//!
//! Their weights are part of the program, at half precision, so nothing has to be downloaded.
//! `training/` describes how they were trained, `docs/model-card.md` what they are suited for.

use std::io::Cursor;

use super::Model;
use crate::error::{Error, Result};
use crate::weights::{Limits, StateDict};

/// How the name of a built-in model begins where a file could be named too.
const PREFIX: &str = "builtin:";

/// The largest noise level that they were trained for, where white is 1.
const LARGEST_LEVEL: f32 = 75.0 / 255.0;

/// Their weights, in the order of [`Builtin`].
const FILES: Option<[&[u8]; 3]> = {
    #[cfg(feature = "builtin")]
    let files = Some([
        include_bytes!("../../weights/color.safetensors") as &[u8],
        include_bytes!("../../weights/gray.safetensors"),
        include_bytes!("../../weights/volume.safetensors"),
    ]);
    #[cfg(not(feature = "builtin"))]
    let files = None;
    files
};

/// A denoiser that ships with the build.
///
/// ```
/// # #[cfg(feature = "builtin")] {
/// use haloscope_nn::models::Builtin;
///
/// let model = Builtin::named("builtin:gray").expect("it has this prefix")?.model()?;
/// assert_eq!((model.network().name(), model.image_channels()), ("drunet", 1));
/// assert_eq!(*model.levels().end(), 75.0 / 255.0);
/// # }
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// For colour photographs.
    Color,
    /// For gray images, and for volumes slice by slice.
    Gray,
    /// For gray volumes, whose slices see their neighbours.
    Volume,
}

impl Builtin {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Color, Self::Gray, Self::Volume];

    /// The one that `name` asks for, if it begins with `builtin:`.
    #[must_use]
    pub fn named(name: &str) -> Option<Result<Self>> {
        let short = name.strip_prefix(PREFIX)?;
        let found = Self::ALL.into_iter().find(|builtin| builtin.name() == short);
        Some(found.ok_or_else(|| Error::Argument {
            what: "model",
            reason: format!(
                "there is no `{name}`; builtin:color, builtin:gray and builtin:volume are there"
            ),
        }))
    }

    /// Its name behind `builtin:`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Color => "color",
            Self::Gray => "gray",
            Self::Volume => "volume",
        }
    }

    /// The one for images of so many channels and axes, which are 3 for a volume.
    #[must_use]
    pub fn for_image(channels: usize, axes: usize) -> Self {
        match (channels, axes) {
            (3, _) => Self::Color,
            (1, 3) => Self::Volume,
            _ => Self::Gray,
        }
    }

    /// The model with its weights; a build without the feature `builtin` has none.
    pub fn model(self) -> Result<Model> {
        let name = format!("{PREFIX}{}", self.name());
        let Some(files) = FILES else {
            let reason = format!("`{name}` is not in this build, which is without `builtin`");
            return Err(Error::Argument { what: "model", reason });
        };
        let state = StateDict::read(Cursor::new(files[self as usize]), &name, &Limits::default())?;
        Ok(Model::recognize(&state)?.with_levels(0.0..=LARGEST_LEVEL))
    }
}

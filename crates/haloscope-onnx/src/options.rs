//! What a user may say of an ONNX file where it says nothing itself.

/// What is said of a file. What is not given is found in the file, or by trying.
///
/// ```
/// use haloscope_onnx::{FileOptions, LevelKind};
///
/// let mut options = FileOptions::default();
/// options.set("white", "255")?;
/// options.set("noise", "scalar")?;
/// assert_eq!((options.white, options.level_kind), (Some(255.0), Some(LevelKind::Scalar)));
/// assert!(options.set("colour", "1").unwrap_err().contains("layout"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileOptions {
    /// The name of the input that takes the image.
    pub image: Option<String>,
    /// The name of the input that takes the noise level.
    pub level: Option<String>,
    /// The name of the output that is the image.
    pub output: Option<String>,
    /// Whether channels are the last axis.
    pub channels_last: Option<bool>,
    /// How the noise level enters.
    pub level_kind: Option<LevelKind>,
    /// What the sides of images are multiples of.
    pub alignment: Option<usize>,
    /// The channels of images.
    pub channels: Option<usize>,
    /// The value that is white to the network, 1 unless it says otherwise; black is 0.
    pub white: Option<f32>,
}

/// How a noise level enters a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelKind {
    /// Not at all.
    None,
    /// As one more channel of the image, its last.
    Channel,
    /// As an input with a value for each pixel.
    Map,
    /// As an input with one value.
    Scalar,
}

impl FileOptions {
    /// The keys of [`set`](Self::set).
    pub const KEYS: [&'static str; 8] =
        ["image", "level", "output", "layout", "noise", "alignment", "channels", "white"];

    /// Sets one of them by its name, from text; fails with what is accepted.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = |expected: &str| format!("`{key}` is `{value}`; {expected} is expected");
        let whole = || match value.parse() {
            Ok(number @ 1..=65_536) => Ok(Some(number)),
            _ => Err(bad("a whole number above 0")),
        };
        let name = || match value {
            "" => Err(bad("a name")),
            name => Ok(Some(name.to_owned())),
        };
        match key {
            "image" => self.image = name()?,
            "level" => self.level = name()?,
            "output" => self.output = name()?,
            "layout" => {
                self.channels_last = Some(match value {
                    "nchw" | "ncdhw" => false,
                    "nhwc" | "ndhwc" => true,
                    _ => return Err(bad("nchw or nhwc")),
                });
            }
            "noise" => {
                self.level_kind = Some(match value {
                    "none" => LevelKind::None,
                    "channel" => LevelKind::Channel,
                    "map" => LevelKind::Map,
                    "scalar" => LevelKind::Scalar,
                    _ => return Err(bad("none, channel, map or scalar")),
                });
            }
            "alignment" => self.alignment = whole()?,
            "channels" => self.channels = whole()?,
            "white" => {
                let white =
                    value.parse().ok().filter(|white: &f32| white.is_finite() && *white > 0.0);
                self.white = Some(white.ok_or_else(|| bad("a number above 0"))?);
            }
            _ => return Err(format!("`{key}` is unknown; there are {}", Self::KEYS.join(", "))),
        }
        Ok(())
    }
}

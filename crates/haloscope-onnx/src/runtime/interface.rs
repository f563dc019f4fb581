//! How an image and its noise level enter a file's network, and how the result leaves it.

/// The names and forms of what goes into a session and comes out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interface {
    /// The input that takes the image.
    pub(crate) image: String,
    /// How the noise level enters.
    pub(crate) level: LevelInput,
    /// The output that is the image.
    pub(crate) output: String,
    /// Where the channels are.
    pub(crate) layout: Layout,
    /// The type of the image's values.
    pub(crate) element: Element,
    /// The channels of the image.
    pub(crate) channels: usize,
    /// What the network has for white.
    pub(crate) white: f32,
    /// Whether it takes one image at a time.
    pub(crate) is_single: bool,
}

/// How the noise level enters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LevelInput {
    /// Not at all, or as a channel that the caller has put behind the image's.
    None,
    /// As one more channel of the image.
    Channel,
    /// As an input of its own with a value for each pixel.
    Map { name: String, element: Element },
    /// As an input of its own with one value, in a tensor of so many axes.
    Scalar { name: String, element: Element, axes: usize },
}

impl LevelInput {
    /// Whether the engine's input has a channel for it.
    pub(crate) fn has_channel(&self) -> bool {
        *self != Self::None
    }
}

/// Where the channels of an image are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// (batch, channel, spatial…)
    ChannelsFirst,
    /// (batch, spatial…, channel)
    ChannelsLast,
}

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    F16,
}

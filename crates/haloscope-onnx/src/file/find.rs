//! How a file's network is used, from the names, types and sizes of its inputs and outputs.
//!
//! A denoiser takes an image and perhaps a noise level, and gives an image. What the file leaves open is an error that names
//! the option which settles it; nothing is guessed.

use super::header::{Extent, Header, Port};
use crate::options::{FileOptions, LevelKind};
use crate::runtime::{Element, Interface, Layout, LevelInput};

/// How a network is used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) interface: Interface,
    /// The number of spatial axes.
    pub(super) rank: usize,
    /// The sides of the only images that it takes, if it takes no others.
    pub(super) fixed: Option<Vec<usize>>,
    /// Names of sizes: of the batch, then of each side.
    pub(super) names: Vec<(String, usize)>,
}

/// Longer sides of fixed images are no tiles.
const LONGEST_SIDE: usize = 8192;
/// More channels are none of images.
const MOST_CHANNELS: usize = 64;

/// Finds out how the network is used, or why it cannot be.
pub(super) fn find(header: &Header, options: &FileOptions) -> Result<Found, String> {
    let output = output(header, options)?;
    let (image, level) = inputs(header, output, options)?;
    let rank = image.sizes.len() - 2;
    if !output.sizes.is_empty() && output.sizes.len() != image.sizes.len() {
        return Err(format!(
            "its output `{}` has {} axes, and its image `{}` has {}; a denoiser gives images like those it takes",
            output.name,
            output.sizes.len(),
            image.name,
            image.sizes.len()
        ));
    }
    let layout = layout(image, options);
    let axis = if layout == Layout::ChannelsFirst { 1 } else { image.sizes.len() - 1 };
    let channels_of = |port: &Port| match port.sizes.get(axis) {
        Some(Extent::Fixed(channels)) => Some(*channels),
        _ => None,
    };
    let given = channels_of(output).or(options.channels);
    let taken = channels_of(image).or(given);
    let Some(taken) = taken else {
        return Err(format!(
            "it does not say how many channels `{}` has; `channels` does",
            image.name
        ));
    };
    let kind = options.level_kind.or(match (&level, given) {
        (Some(level), _) => Some(level_kind(level, image)),
        (None, Some(given)) if taken == given + 1 => Some(LevelKind::Channel),
        _ => Some(LevelKind::None),
    });
    let has_channel = kind == Some(LevelKind::Channel);
    let channels = given.unwrap_or(taken - usize::from(has_channel));
    if options.channels.is_some_and(|given| given != channels) {
        return Err(format!("it is for {channels} channels, and `channels` says otherwise"));
    }
    if taken != channels + usize::from(has_channel) || channels == 0 || channels > MOST_CHANNELS {
        return Err(format!(
            "it takes {taken} channels and gives {channels}; a denoiser gives as many as the image has, and takes one more \
             for a noise level at most"
        ));
    }
    let level = match (kind, level) {
        (Some(LevelKind::None) | None, None) => LevelInput::None,
        (Some(LevelKind::Channel), None) => LevelInput::Channel,
        (Some(LevelKind::Map), Some(port)) => {
            LevelInput::Map { name: port.name.clone(), element: element(port)? }
        }
        (Some(LevelKind::Scalar), Some(port)) => LevelInput::Scalar {
            name: port.name.clone(),
            element: element(port)?,
            axes: port.sizes.len(),
        },
        (_, Some(port)) => {
            return Err(format!(
                "`noise` says that there is no input of the level, and `{}` is one",
                port.name
            ));
        }
        (_, None) => return Err("`noise` is map or scalar, and there is no input for it".into()),
    };
    let (fixed, names) = sides(image, axis)?;
    let interface = Interface {
        image: image.name.clone(),
        is_single: matches!(level, LevelInput::Scalar { .. }) || image.sizes[0] == Extent::Fixed(1),
        level,
        output: output.name.clone(),
        layout,
        element: element(image)?,
        channels,
        white: options.white.unwrap_or(1.0),
    };
    Ok(Found { interface, rank, fixed, names })
}

/// The output that is the image.
fn output<'a>(header: &'a Header, options: &FileOptions) -> Result<&'a Port, String> {
    let outputs = &header.outputs;
    if let Some(name) = &options.output {
        return named(outputs, name, "output");
    }
    let images: Vec<&Port> = outputs.iter().filter(|port| is_image(port)).collect();
    match (&outputs[..], &images[..]) {
        // Some writers say nothing of an output's sizes.
        ([only], _) if only.sizes.is_empty() || is_image(only) => Ok(only),
        (_, [only]) => Ok(only),
        ([], _) => Err("it has no output".into()),
        (_, []) => Err(format!(
            "none of its outputs ({}) is an image, which has 4 axes, or 5 for a volume; it is no denoiser",
            list(outputs)
        )),
        (_, several) => Err(format!(
            "{} of its outputs ({}) may be the image; `output` says which",
            several.len(),
            list(outputs)
        )),
    }
}

/// The input that takes the image, and that which takes the noise level.
fn inputs<'a>(
    header: &'a Header,
    output: &Port,
    options: &FileOptions,
) -> Result<(&'a Port, Option<&'a Port>), String> {
    let all = &header.inputs;
    if all.len() > 2 || all.is_empty() {
        return Err(format!(
            "it has {} inputs ({}); a denoiser has an image, and a noise level at most",
            all.len(),
            list(all)
        ));
    }
    let image = options.image.as_ref().map(|name| named(all, name, "input")).transpose()?;
    let level = options.level.as_ref().map(|name| named(all, name, "input")).transpose()?;
    let is_other =
        |port: &&Port, other: Option<&Port>| other.is_none_or(|other| other.name != port.name);
    let (image, level) = match (image, level) {
        (Some(image), level) => {
            (image, level.or(all.iter().find(|port| is_other(port, Some(image)))))
        }
        (None, Some(level)) => {
            let image = all.iter().find(|port| is_other(port, Some(level)));
            (image.ok_or("`level` names its only input, which is the image")?, Some(level))
        }
        (None, None) => match &all[..] {
            [only] => (only, None),
            [first, second] => {
                let first_is_level = tells_level(first, second, output);
                let second_is_level = tells_level(second, first, output);
                match (first_is_level, second_is_level) {
                    (true, false) => (second, Some(first)),
                    (false, true) => (first, Some(second)),
                    _ => {
                        return Err(format!(
                            "its inputs are {}, and neither is called a noise level; `image` and `level` say which is which",
                            list(all)
                        ));
                    }
                }
            }
            _ => return Err("it has no input".into()),
        },
    };
    if !is_image(image) {
        return Err(format!(
            "its input `{}` has {} axes; images have 4, and volumes 5: it is no denoiser",
            image.name,
            image.sizes.len()
        ));
    }
    Ok((image, level))
}

/// Whether one of two inputs is that of the level, by its name or because it can be no image.
fn tells_level(port: &Port, other: &Port, output: &Port) -> bool {
    let name = port.name.to_lowercase();
    let is_called = ["sigma", "noise", "level", "std"].iter().any(|word| name.contains(word));
    let fits = |port: &Port| port.sizes.get(1) == output.sizes.get(1);
    is_called || !is_image(port) && is_image(other) || !fits(port) && fits(other)
}

fn level_kind(level: &Port, image: &Port) -> LevelKind {
    let is_map = level.sizes.len() == image.sizes.len()
        && level.sizes[1..].iter().any(|size| *size != Extent::Fixed(1));
    if is_map { LevelKind::Map } else { LevelKind::Scalar }
}

/// Where the channels are: second, unless only the last axis can be that of channels.
fn layout(image: &Port, options: &FileOptions) -> Layout {
    let is_few = |size: Option<&Extent>| matches!(size, Some(Extent::Fixed(1..=16)));
    let is_last =
        options.channels_last.unwrap_or(!is_few(image.sizes.get(1)) && is_few(image.sizes.last()));
    if is_last { Layout::ChannelsLast } else { Layout::ChannelsFirst }
}

/// The sides, if they are fixed, and the names of those that are not.
#[allow(clippy::type_complexity)]
fn sides(
    image: &Port,
    channel: usize,
) -> Result<(Option<Vec<usize>>, Vec<(String, usize)>), String> {
    if let Extent::Fixed(batch @ 2..) = image.sizes[0] {
        return Err(format!(
            "it is for {batch} images at once; a file for one image, or for any number, is needed"
        ));
    }
    let own: Vec<usize> = (0..image.sizes.len()).filter(|axis| *axis != channel).collect();
    let name = |(at, axis): (usize, &usize)| match &image.sizes[*axis] {
        Extent::Named(name) => Some((name.clone(), at)),
        _ => None,
    };
    let names: Vec<(String, usize)> = own.iter().enumerate().filter_map(name).collect();
    let fixed: Vec<usize> = own[1..]
        .iter()
        .filter_map(|axis| match image.sizes[*axis] {
            Extent::Fixed(side) => Some(side),
            _ => None,
        })
        .collect();
    if let Some(side) = fixed.iter().find(|side| **side > LONGEST_SIDE) {
        return Err(format!(
            "it is for images with a side of {side}; {LONGEST_SIDE} is the longest for a fixed one"
        ));
    }
    match fixed.len() {
        0 => Ok((None, names)),
        all if all == own.len() - 1 => Ok((Some(fixed), names)),
        _ => Err("some of its sides are fixed and others are not; all or none are needed".into()),
    }
}

fn element(port: &Port) -> Result<Element, String> {
    match port.element {
        1 => Ok(Element::F32),
        10 => Ok(Element::F16),
        other => Err(format!(
            "`{}` has values of type {other}; f32 (1) or f16 (10) is needed",
            port.name
        )),
    }
}

fn is_image(port: &Port) -> bool {
    matches!(port.sizes.len(), 4 | 5)
}

fn named<'a>(ports: &'a [Port], name: &str, what: &str) -> Result<&'a Port, String> {
    let found = ports.iter().find(|port| port.name == name);
    found.ok_or_else(|| format!("it has no {what} `{name}`; there are {}", list(ports)))
}

/// Names with their sizes.
fn list(ports: &[Port]) -> String {
    let size = |size: &Extent| match size {
        Extent::Fixed(size) => size.to_string(),
        Extent::Named(name) => name.clone(),
        Extent::Unknown => "?".to_owned(),
    };
    let port = |port: &Port| {
        let sizes: Vec<String> = port.sizes.iter().map(size).collect();
        format!("{} [{}]", port.name, sizes.join("×"))
    };
    ports.iter().map(port).collect::<Vec<_>>().join(", ")
}

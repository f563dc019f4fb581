//! A model as an ONNX file: the frame around the network's own nodes.
//!
//! The file takes an image of any size that it is for, and a noise level if the network has one: extending the sides to the
//! network's alignment and cutting the result are part of the graph, so that values are those of the engines.

mod frame;
mod graph;
mod operations;
mod protobuf;

use haloscope_nn::models::{Model, Sigma};
use haloscope_nn::{Error, Footprint, Op, PaddingMode, Result, Shape};

use frame::Frame;
use graph::{Dimension, Graph};
use operations::Operations;
#[cfg(not(feature = "runtime"))]
use protobuf::Message;
#[cfg(feature = "runtime")]
pub(crate) use protobuf::Message;

/// The version of the file format: that of ONNX 1.14.
const FORMAT: i64 = 9;
/// The version of the operations, and that in which images can be continued periodically.
const OPERATIONS: [i64; 2] = [17, 19];
/// The input that is the image.
pub(crate) const IMAGE: &str = "image";
/// The output.
pub(crate) const DENOISED: &str = "denoised";
/// Protocol buffers have no lengths beyond this.
const LARGEST: usize = i32::MAX as usize;

/// The images that a file is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many images at a time of these sides: what runtimes that compile for a size want.
    Fixed {
        /// Images at a time.
        batch: usize,
        /// Height and width, or depth, height and width.
        sides: Vec<usize>,
    },
    /// Any number of images of any sides.
    Dynamic,
}

/// The bytes of an ONNX file of this model.
///
/// Its inputs are `image` (batch, channel, spatial…) and, if the network takes a noise level, `sigma`: the standard deviation
/// with the same axes and one channel, each side 1 for a level that is the same everywhere or that of the image for a map. Its
/// output is `denoised`. All values are f32 on the scale of the network, where white is 1.
///
/// ```
/// use haloscope_nn::models::{Architecture, Dncnn};
/// use haloscope_onnx::{Size, encode};
///
/// let model = Dncnn { channels: 8, depth: 3, ..Dncnn::default() }.random(1)?;
/// let file = encode(&model, &Size::Fixed { batch: 1, sides: vec![33, 47] })?;
/// // Protocol buffers begin with the first field: here, the version of the format.
/// assert_eq!(file[..2], [0x08, 9]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
pub fn encode(model: &Model, size: &Size) -> Result<Vec<u8>> {
    encode_as(model, size, false)
}

/// As [`encode`], for a network that computes in half precision if `is_half`; what goes in and comes out is f32 all the same.
pub(crate) fn encode_as(model: &Model, size: &Size, is_half: bool) -> Result<Vec<u8>> {
    let network = model.network();
    check(model, size)?;

    let mut graph = Graph::new(is_half);
    let channels = model.image_channels();
    let sizes = dimensions(size, network.rank(), channels);
    graph.input(IMAGE, &sizes);
    if model.sigma() == Sigma::Map {
        graph.input("sigma", &level_dimensions(network.rank()));
    }
    let alignment = Footprint::of(network).map(|footprint| footprint.alignment);
    let frame = Frame { size, alignment: alignment.as_deref().unwrap_or(&[]) };
    let input = match model.sigma() {
        Sigma::Map => frame.with_level(&mut graph, IMAGE, "sigma", network.rank()),
        Sigma::Ignored => IMAGE.to_owned(),
    };
    let (input, is_extended) = frame.extend(&mut graph, input);
    let input = if is_half { graph.cast("frame/half", &input, true) } else { input };
    let result = Operations { network, graph: &mut graph }.push_all(&input);
    let result = if is_half { graph.cast("frame/single", &result, false) } else { result };
    let result = if is_extended { frame.cut(&mut graph, &result) } else { result };
    graph.node("Identity", DENOISED, &[&result], &[]);
    let sizes = output_dimensions(model, size, &sizes)?;
    graph.output(DENOISED, &sizes);

    let operations = OPERATIONS[usize::from(is_periodic(model))];
    let (low, high) = (model.levels().start(), model.levels().end());
    let note = |key: &str, value: &str| Message::default().text(1, key).text(2, value);
    let mut notes = vec![note("haloscope.network", network.name())];
    if model.sigma() == Sigma::Map && *high < f32::MAX {
        notes.push(note("haloscope.levels", &format!("{low} {high}")));
    }
    let model = Message::default()
        .integer(1, FORMAT)
        .text(2, "haloscope")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(7, &graph.finish(network.name()))
        .message(8, &Message::default().text(1, "").integer(2, operations))
        .messages(14, notes);
    Ok(model.into_bytes())
}

/// Refuses a size that the network cannot take, and what no file holds.
fn check(model: &Model, size: &Size) -> Result<()> {
    let network = model.network();
    if network.foreign().is_some() {
        let reason = format!("{} is of an ONNX file already", network.name());
        return Err(argument("model", reason));
    }
    // The weights, and for each side where its pixels come from.
    let mut bytes = network.parameters().saturating_mul(size_of::<f32>());
    if let Size::Fixed { batch, sides } = size {
        let words = || sides.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
        if sides.len() != network.rank() {
            let needed = ["height and width", "depth, height and width"][network.rank() - 2];
            return Err(argument(
                "size",
                format!("{}; {} takes {needed}", words(), network.name()),
            ));
        }
        if *batch == 0 || sides.contains(&0) {
            let reason = format!("{batch} images of {}; at least 1 of each is needed", words());
            return Err(argument("size", reason));
        }
        Shape::image(*batch, network.input_channels(), sides)?;
        let indices = sides.iter().fold(0, |sum: usize, side| sum.saturating_add(*side));
        bytes = bytes.saturating_add(indices.saturating_mul(size_of::<i64>()));
    }
    if bytes > LARGEST - (1 << 20) {
        let reason = format!(
            "{bytes} bytes for {}; an ONNX file without files beside it holds at most {LARGEST}",
            network.name()
        );
        return Err(argument("model", reason));
    }
    if let Size::Fixed { batch, sides } = size {
        let sides = Footprint::of(network)
            .map_or_else(|_| sides.clone(), |footprint| footprint.aligned(sides));
        network.infer(&Shape::image(*batch, network.input_channels(), &sides)?)?;
    }
    Ok(())
}

fn argument(what: &'static str, reason: String) -> Error {
    Error::Argument { what, reason }
}

/// The sizes of the image.
fn dimensions(size: &Size, rank: usize, channels: usize) -> Vec<Dimension> {
    match size {
        Size::Fixed { batch, sides } => {
            [*batch, channels].iter().chain(sides).map(|&size| Dimension::Fixed(size)).collect()
        }
        Size::Dynamic => named("", rank, channels),
    }
}

/// The sizes of the noise level, which are 1 or those of the image.
fn level_dimensions(rank: usize) -> Vec<Dimension> {
    named("sigma_", rank, 1)
}

fn named(prefix: &str, rank: usize, channels: usize) -> Vec<Dimension> {
    let name = |name: &str| Dimension::Named(format!("{prefix}{name}"));
    let sides = ["depth", "height", "width"][3 - rank..].iter().map(|side| name(side));
    [name("batch"), Dimension::Fixed(channels)].into_iter().chain(sides).collect()
}

/// The sizes of the result: those of the image, unless the network changes them.
fn output_dimensions(model: &Model, size: &Size, image: &[Dimension]) -> Result<Vec<Dimension>> {
    let network = model.network();
    let channels = Dimension::Fixed(network.output_channels());
    let mut sizes = image.to_vec();
    sizes[1] = channels.clone();
    if Footprint::of(network).is_ok() {
        return Ok(sizes);
    }
    match size {
        Size::Dynamic => {
            let mut sizes = named("output_", network.rank(), 0);
            sizes[1] = channels;
            Ok(sizes)
        }
        Size::Fixed { batch, sides } => {
            let input = Shape::image(*batch, network.input_channels(), sides)?;
            let shapes = network.infer(&input)?;
            let output = shapes[network.output().index()].sizes();
            Ok(output.iter().map(|&size| Dimension::Fixed(size)).collect())
        }
    }
}

fn is_periodic(model: &Model) -> bool {
    let mut nodes = model.network().nodes().iter();
    nodes.any(|node| matches!(node.op(), Op::Conv(conv) if conv.mode == PaddingMode::Circular))
}

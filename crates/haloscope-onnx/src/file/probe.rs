//! What is found out about a file's network by running it on small images, on the CPU.

use std::path::Path;

use haloscope_nn::{Error, Result as NnResult};

use super::find::Found;
use super::header::Header;
use crate::export::Message;
use crate::runtime::{Device, Layout, LevelInput, Model, Session, Settings, Tensor, failed};

/// What sides may have to be multiples of.
const ALIGNMENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Bytes of values for each pixel where nothing can be found out: 256 channels.
const UNKNOWN: f64 = 1024.0;

/// Larger files are not loaded once more to find out what their values take.
const LARGEST: usize = 1 << 29;

/// What was found out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probed {
    pub(super) alignment: usize,
    /// The sides of an image that it took.
    pub(super) sides: Vec<usize>,
}

/// Runs the network on images of some sides, and returns what the sides must be multiples of; or why it is no denoiser.
pub(super) fn probe(path: &Path, found: &Found, given: Option<usize>) -> Result<Probed, String> {
    let mut session =
        Session::new(Model::File(path), &settings(true)).map_err(|error| words(&error))?;
    if let Some(fixed) = &found.fixed {
        attempt(&mut session, found, fixed)?;
        return Ok(Probed { alignment: 1, sides: fixed.clone() });
    }
    let alignments = given.map_or_else(|| ALIGNMENTS.to_vec(), |given| vec![given]);
    let mut reasons = Vec::new();
    for alignment in alignments {
        let sides = sides(found.rank, alignment);
        match attempt(&mut session, found, &sides) {
            Ok(()) => return Ok(Probed { alignment, sides }),
            Err(reason) => reasons.push(reason),
        }
    }
    let last = reasons.pop().unwrap_or_default();
    Err(format!("it denoises images of no size that was tried; of the last: {last}"))
}

/// Sides that are multiples of one number and of nothing greater, and differ.
fn sides(rank: usize, alignment: usize) -> Vec<usize> {
    let base = (if rank == 2 { 64_usize } else { 16 }).next_multiple_of(alignment);
    // 64 or 16 and an odd number of times the alignment, unless that is as large.
    let more =
        if alignment >= base { [0, alignment, 0] } else { [alignment, 3 * alignment, alignment] };
    more[..rank].iter().map(|more| base + more).collect()
}

/// Runs the network on one image of these sides.
fn attempt(session: &mut Session, found: &Found, sides: &[usize]) -> Result<(), String> {
    let run = run(session, found, sides, |session, tensors, expected| {
        session.run(tensors, &found.interface.output, |sizes, values| {
            if sizes != expected {
                return Err(failed(format!(
                    "it gives {sizes:?} for an image of {expected:?}; a denoiser gives the image's shape"
                )));
            }
            if values.iter().all(|value| value.is_finite()) {
                return Ok(());
            }
            Err(failed("it gives values that are not finite for an image that is half black".into()))
        })
    });
    run.map_err(|error| words(&error))
}

/// Calls `body` with the inputs of an image of these sides, and the sizes that the output should have.
fn run<T>(
    session: &mut Session,
    found: &Found,
    sides: &[usize],
    body: impl FnOnce(&mut Session, &[Tensor<'_>], &[usize]) -> NnResult<T>,
) -> NnResult<T> {
    let interface = &found.interface;
    let pixels: usize = sides.iter().product();
    let sizes = |channels: usize| match interface.layout {
        Layout::ChannelsFirst => [&[1, channels], sides].concat(),
        Layout::ChannelsLast => [&[1], sides, &[channels]].concat(),
    };
    let channels = interface.channels + usize::from(interface.level == LevelInput::Channel);
    let image: Vec<f32> =
        (0..channels * pixels).map(|at| interface.white * 0.1 * (at % 8) as f32).collect();
    let level = vec![0.05 * interface.white; pixels];
    let mut tensors = vec![Tensor {
        name: &interface.image,
        element: interface.element,
        sizes: sizes(channels),
        values: &image,
    }];
    match &interface.level {
        LevelInput::None | LevelInput::Channel => (),
        LevelInput::Map { name, element } => {
            tensors.push(Tensor { name, element: *element, sizes: sizes(1), values: &level });
        }
        LevelInput::Scalar { name, element, axes } => {
            let sizes = vec![1; *axes];
            tensors.push(Tensor { name, element: *element, sizes, values: &level[..1] });
        }
    }
    body(session, &tensors, &sizes(interface.channels))
}

/// The most bytes of values that are alive at once, for each pixel: by the sizes of all values in a run without
/// optimization, each of which lives until its last reader.
pub(super) fn value_bytes(bytes: &[u8], header: &Header, found: &Found, sides: &[usize]) -> f64 {
    if header.has_files || bytes.len() > LARGEST {
        return UNKNOWN;
    }
    let is_output = |name: &String| header.outputs.iter().any(|port| port.name == *name);
    let inner = header.nodes.iter().flat_map(|node| &node.outputs);
    let ports = inner
        .filter(|name| !name.is_empty() && !is_output(name))
        .map(|name| Message::default().text(1, name));
    // Messages that come twice are one, whose lists are joined.
    let graph = Message::default().messages(12, ports);
    let mut all = bytes.to_vec();
    all.extend(Message::default().message(7, &graph).into_bytes());
    let sizes = Session::new(Model::Bytes(&all), &settings(false)).and_then(|mut session| {
        run(&mut session, found, sides, |session, tensors, _| session.output_bytes(tensors))
    });
    let Ok(sizes) = sizes else { return UNKNOWN };
    let sizes: std::collections::HashMap<String, u64> = sizes.into_iter().collect();
    peak(header, &sizes) as f64 / sides.iter().product::<usize>() as f64
}

fn peak(header: &Header, sizes: &std::collections::HashMap<String, u64>) -> u64 {
    let mut last = std::collections::HashMap::new();
    for (at, node) in header.nodes.iter().enumerate() {
        for name in node.inputs.iter().chain(&node.outputs) {
            last.insert(name, at);
        }
    }
    let size = |name: &String| sizes.get(name).copied().unwrap_or(0);
    let (mut alive, mut most) = (0_u64, 0);
    for (at, node) in header.nodes.iter().enumerate() {
        alive += node.outputs.iter().map(size).sum::<u64>();
        most = most.max(alive);
        let mut ended: Vec<&String> = node.inputs.iter().chain(&node.outputs).collect();
        ended.sort();
        ended.dedup();
        let freed = ended.into_iter().filter(|name| last.get(name) == Some(&at)).map(size);
        alive = alive.saturating_sub(freed.sum());
    }
    most
}

fn settings(optimizes: bool) -> Settings<'static> {
    Settings { device: Device::default(), threads: 1, sizes: &[], optimizes }
}

/// What an error says, without the name of the engine.
fn words(error: &Error) -> String {
    match error {
        Error::Engine { reason, .. } => reason.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Node;
    use super::*;

    #[test]
    fn sides_are_multiples_of_the_alignment_and_of_no_greater_one() {
        for rank in [2, 3] {
            for alignment in ALIGNMENTS {
                let sides = sides(rank, alignment);
                assert_eq!(sides.len(), rank);
                assert!(sides.iter().all(|side| side % alignment == 0), "{sides:?}");
                let is_worse = sides.iter().any(|side| side % (2 * alignment) != 0);
                assert!(is_worse, "{sides:?} would do for {}", 2 * alignment);
            }
        }
    }

    #[test]
    fn values_live_until_their_last_reader() {
        let node = |inputs: &[&str], output: &str| Node {
            inputs: inputs.iter().map(ToString::to_string).collect(),
            outputs: vec![output.into()],
        };
        // a → b → c → d, and a is read again at the end.
        let nodes =
            vec![node(&["x"], "a"), node(&["a"], "b"), node(&["b"], "c"), node(&["c", "a"], "d")];
        let header = Header { nodes, ..Header::default() };
        let sizes = [("a", 10), ("b", 7), ("c", 5), ("d", 1)];
        let sizes = sizes.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        assert_eq!(peak(&header, &sizes), 22);
    }
}

//! What is around a network in a file: the noise level as a channel, sides that the network can halve, and the cut behind it.
//!
//! With a fixed size all of this is constants. With a dynamic one the graph computes them from the size of the image.

use haloscope_nn::engine::graph::extended;

use super::Size;
use super::graph::{Attribute, Graph};

/// The frame for images of some size and a network with this alignment, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) size: &'a Size,
    pub(crate) alignment: &'a [usize],
}

impl Frame<'_> {
    /// The image with the noise level as one more channel.
    pub(crate) fn with_level(
        &self,
        graph: &mut Graph,
        image: &str,
        level: &str,
        rank: usize,
    ) -> String {
        let shape = match self.size {
            Size::Fixed { batch, sides } => {
                let sizes: Vec<i64> =
                    [*batch, 1].iter().chain(sides).map(|&size| size as i64).collect();
                graph.integers("frame/level_shape", &sizes)
            }
            Size::Dynamic => {
                let batch = side(graph, "frame/batch", image, 0);
                let one = graph.integers("frame/one_channel", &[1]);
                let range = [
                    ("start", Attribute::Integer(2)),
                    ("end", Attribute::Integer(2 + rank as i64)),
                ];
                let sides = graph.node("Shape", "frame/sides", &[image], &range);
                let axis = [("axis", Attribute::Integer(0))];
                graph.node("Concat", "frame/level_shape", &[&batch, &one, &sides], &axis)
            }
        };
        let map = graph.node("Expand", "frame/level_map", &[level, &shape], &[]);
        let axis = [("axis", Attribute::Integer(1))];
        graph.node("Concat", "frame/input", &[image, &map], &axis)
    }

    /// The input with its sides rounded up to the alignment, and whether anything had to be done for it.
    pub(crate) fn extend(&self, graph: &mut Graph, mut input: String) -> (String, bool) {
        let mut is_extended = false;
        for (axis, &alignment) in self.alignment.iter().enumerate() {
            let indices = match self.size {
                _ if alignment == 1 => continue,
                Size::Fixed { sides, .. } => {
                    let (size, length) = (sides[axis], sides[axis].next_multiple_of(alignment));
                    if size == length {
                        continue;
                    }
                    let indices: Vec<i64> = (0..length)
                        .map(|position| extended(position, size, length) as i64)
                        .collect();
                    graph.integers(format!("frame/indices_{axis}"), &indices)
                }
                Size::Dynamic => indices(graph, axis, alignment as i64),
            };
            let along = [("axis", Attribute::Integer(2 + axis as i64))];
            input =
                graph.node("Gather", format!("frame/extended_{axis}"), &[&input, &indices], &along);
            is_extended = true;
        }
        (input, is_extended)
    }

    /// The part of a result that belongs to the image.
    pub(crate) fn cut(&self, graph: &mut Graph, result: &str) -> String {
        let rank = self.alignment.len();
        let axes: Vec<i64> = (2..2 + rank as i64).collect();
        let starts = graph.integers("frame/starts", &vec![0; rank]);
        let axes = graph.integers("frame/axes", &axes);
        let ends = match self.size {
            Size::Fixed { sides, .. } => {
                let sides: Vec<i64> = sides.iter().map(|&side| side as i64).collect();
                graph.integers("frame/ends", &sides)
            }
            Size::Dynamic => {
                let range = [
                    ("start", Attribute::Integer(2)),
                    ("end", Attribute::Integer(2 + rank as i64)),
                ];
                graph.node("Shape", "frame/ends", &["image"], &range)
            }
        };
        graph.node("Slice", "frame/cut", &[result, &starts, &ends, &axes], &[])
    }
}

/// One size of a value, as a list of one.
fn side(graph: &mut Graph, name: impl Into<String>, value: &str, axis: usize) -> String {
    let axis = axis as i64;
    let range = [("start", Attribute::Integer(axis)), ("end", Attribute::Integer(axis + 1))];
    graph.node("Shape", name, &[value], &range)
}

/// The positions that [`extended`] gives, computed in the graph from the side of the image.
fn indices(graph: &mut Graph, axis: usize, alignment: i64) -> String {
    let name = |part: &str| format!("frame/{part}_{axis}");
    let zero = graph.integer(name("zero"), 0);
    let one = graph.integer(name("one"), 1);
    let two = graph.integer(name("two"), 2);
    let step = graph.integer(name("alignment"), alignment);
    let more = graph.integer(name("alignment_less_one"), alignment - 1);
    let size = side(graph, name("size_in_list"), "image", 2 + axis);
    let first = graph.integers(name("first_axis"), &[0]);
    let size = graph.node("Squeeze", name("size"), &[&size, &first], &[]);
    let last = graph.node("Sub", name("last"), &[&size, &one], &[]);
    let sum = graph.node("Add", name("rounding"), &[&size, &more], &[]);
    let steps = graph.node("Div", name("steps"), &[&sum, &step], &[]);
    let length = graph.node("Mul", name("length"), &[&steps, &step], &[]);
    let positions = graph.node("Range", name("positions"), &[&zero, &length, &one], &[]);
    // last − |position − last| is the position itself up to the last one, and its mirror image beyond.
    let beyond = graph.node("Sub", name("beyond"), &[&positions, &last], &[]);
    let distance = graph.node("Abs", name("distance"), &[&beyond], &[]);
    let mirrored = graph.node("Sub", name("mirrored"), &[&last, &distance], &[]);
    let repeated = graph.node("Min", name("repeated"), &[&positions, &last], &[]);
    let twice = graph.node("Mul", name("twice"), &[&size, &two], &[]);
    let mirrors = graph.node("Less", name("mirrors"), &[&length, &twice], &[]);
    graph.node("Where", name("indices"), &[&mirrors, &mirrored, &repeated], &[])
}

//! Parts of an image that run at once and exchange halos through memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use haloscope_nn::engine::{Cpu, Engine, EngineOptions, EnginePlan, Faces, Halo, Round};
use haloscope_nn::{Network, Shape, Tensor};

/// The places of a sender and a receiver in the grid.
type Way = (Vec<usize>, Vec<usize>);

/// A place in a grid of parts, and the region there.
pub(crate) type Part = (Vec<usize>, Vec<Range<usize>>);

/// Messages that wait for their receiver, the oldest first.
#[derive(Default)]
struct Mail {
    waiting: Mutex<HashMap<Way, Vec<Vec<f32>>>>,
    arrived: Condvar,
}

/// A part's connection to its neighbours in a grid of parts.
struct Post<'a> {
    mail: &'a Mail,
    /// The place of the part.
    at: Vec<usize>,
    /// Rounds that the plan foretells and that have not come yet.
    expected: std::vec::IntoIter<Round>,
}

impl Post<'_> {
    fn neighbour(&self, axis: usize, side: usize) -> Vec<usize> {
        let mut other = self.at.clone();
        other[axis] = if side == 0 { other[axis] - 1 } else { other[axis] + 1 };
        other
    }
}

impl Halo for Post<'_> {
    fn exchange(&mut self, round: &Round, faces: Faces<'_>) -> Result<(), String> {
        assert_eq!(self.expected.next().as_ref(), Some(round), "another round was foretold");
        for side in 0..2 {
            assert_eq!(faces.sent[side].len(), round.sent[side]);
            assert_eq!(faces.received[side].len(), round.received[side]);
            if round.sent[side] > 0 {
                let key = (self.at.clone(), self.neighbour(round.axis, side));
                let mut waiting = self.mail.waiting.lock().expect("no panic");
                waiting.entry(key).or_default().push(faces.sent[side].to_vec());
                self.mail.arrived.notify_all();
            }
        }
        for (side, face) in faces.received.into_iter().enumerate() {
            if face.is_empty() {
                continue;
            }
            let key = (self.neighbour(round.axis, side), self.at.clone());
            let mut waiting = self.mail.waiting.lock().expect("no panic");
            loop {
                if let Some(message) = waiting.get_mut(&key).filter(|list| !list.is_empty()) {
                    face.copy_from_slice(&message.remove(0));
                    break;
                }
                waiting = self.mail.arrived.wait(waiting).expect("no panic");
            }
        }
        Ok(())
    }
}

/// The part of an array that lies in a region.
fn crop(tensor: &Tensor, region: &[Range<usize>]) -> Vec<f32> {
    let sizes = tensor.shape().sizes();
    let mut ranges = vec![0..sizes[0], 0..sizes[1]];
    ranges.extend_from_slice(region);
    let count: usize = ranges.iter().map(Range::len).product();
    (0..count)
        .map(|mut index| {
            let (mut at, mut stride) = (0, 1);
            for (range, size) in ranges.iter().zip(sizes).rev() {
                at += (range.start + index % range.len()) * stride;
                index /= range.len();
                stride *= size;
            }
            tensor.values()[at]
        })
        .collect()
}

/// All combinations of parts of each axis, with their places.
pub(crate) fn grid(cuts: &[Vec<Range<usize>>]) -> Vec<Part> {
    cuts.iter().fold(vec![(vec![], vec![])], |parts, ranges| {
        let extend = |(at, region): &(Vec<usize>, Vec<Range<usize>>)| {
            let each = |(index, range): (usize, &Range<usize>)| {
                let (mut at, mut region) = (at.clone(), region.clone());
                at.push(index);
                region.push(range.clone());
                (at, region)
            };
            ranges.iter().enumerate().map(each).collect::<Vec<_>>()
        };
        parts.iter().flat_map(extend).collect()
    })
}

/// Runs plans of parts at once, twice, and compares each with the whole.
pub(crate) fn run_together(
    plans: &[Arc<dyn EnginePlan>],
    parts: &[Part],
    input: &Tensor,
    expected: &Tensor,
) {
    // Ranks count their calls, so that parts should have equally many.
    assert!(plans.iter().all(|plan| plan.halo().rounds().len() == plans[0].halo().rounds().len()));
    let mail = Mail::default();
    std::thread::scope(|scope| {
        for ((at, region), plan) in parts.iter().zip(plans) {
            let mail = &mail;
            scope.spawn(move || {
                let values = crop(input, region);
                let right = crop(expected, region);
                let mut scratch = plan.scratch();
                // The second run finds what the first left in the scratch.
                for _ in 0..2 {
                    let mut output = vec![f32::NAN; plan.output_shape().count()];
                    let rounds = plan.halo().rounds().to_vec();
                    let mut post = Post { mail, at: at.clone(), expected: rounds.into_iter() };
                    plan.run_shard(&values, &mut output, &mut scratch, &mut post, &mut |_, _| ())
                        .expect("nobody fails");
                    assert_eq!(post.expected.len(), 0, "rounds that did not come");
                    let differing =
                        output.iter().zip(&right).filter(|(a, b)| a.to_bits() != b.to_bits());
                    let (differing, shape) = (differing.count(), input.shape());
                    assert_eq!(differing, 0, "of {} values at {region:?} of {shape}", output.len());
                }
            });
        }
    });
}

/// Cuts each axis into about so many parts, as far as possible.
pub(crate) fn cuts(
    engine: &Cpu,
    network: &Network,
    shape: &Shape,
    parts: &[usize],
    options: &EngineOptions,
) -> Vec<Vec<Range<usize>>> {
    let grains = engine.grains(network, shape, options).expect("the network can be cut");
    let axes = grains.iter().zip(shape.spatial()).zip(parts);
    axes.map(|((grain, &side), &parts)| {
        grain.cut(side, parts.min(grain.most_parts(side))).expect("no more than possible")
    })
    .collect()
}

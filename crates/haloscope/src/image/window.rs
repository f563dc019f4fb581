//! Windows of arrays in parts: what a rank needs of the parts of others, in one message from each of them.
//!
//! All ranks know all parts and all windows, so each finds out by itself what it sends and receives; only values travel, and
//! how many is known before. A window that extends beyond an end of the array continues at the other one.

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::{Collectives, Context};
use ndarray::{ArrayD, ArrayViewD, Axis, Slice, Zip};

use super::layout::Space;
use crate::array::{Array, View};
use crate::error::Result;
use crate::region::{Region, copied, is_empty, place};

/// What a window holds where nothing has arrived. Where assertions are on it is no number, so that no result depends on it unseen.
const UNFILLED: f32 = if cfg!(debug_assertions) { f32::NAN } else { 0.0 };

/// A box that may extend beyond an array.
pub(crate) type Window = Vec<Range<isize>>;

/// An array in parts, and the window that each rank needs of it; an empty one for nothing.
#[derive(Clone, Debug)]
pub(crate) struct Needed {
    pub(crate) space: Arc<Space>,
    pub(crate) windows: Vec<Window>,
}

impl Needed {
    /// The values in the window of a rank.
    pub(crate) fn window_len(&self, rank: usize) -> usize {
        self.windows[rank].iter().map(length).product()
    }
}

/// Which values of which arrays go where.
#[derive(Clone, Debug)]
pub(crate) struct WindowPlan {
    ctx: Context,
    /// The shape of this rank's window of each array.
    shapes: Vec<Vec<usize>>,
    /// What each other rank is sent, what it sends, and what stays.
    sends: Vec<(usize, Vec<Piece>)>,
    receives: Vec<(usize, Vec<Piece>)>,
    own: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    array: usize,
    /// Where it is in the part of the sender.
    from: Region,
    /// Where it goes in the window.
    to: Region,
}

impl Piece {
    fn len(&self) -> usize {
        self.from.iter().map(Range::len).product()
    }
}

impl WindowPlan {
    /// Plans the windows of all these arrays, which are gathered together.
    pub(crate) fn new(ctx: &Context, needed: &[Needed]) -> Self {
        let (rank, ranks) = (ctx.rank(), ctx.size());
        let shape = |needed: &Needed| needed.windows[rank].iter().map(length).collect();
        let others = (0..ranks).filter(|other| *other != rank);
        let between = |from: usize, to: usize| pieces(needed, from, to);
        let is_any = |(_, pieces): &(usize, Vec<Piece>)| !pieces.is_empty();
        Self {
            ctx: ctx.clone(),
            shapes: needed.iter().map(shape).collect(),
            sends: others.clone().map(|to| (to, between(rank, to))).filter(is_any).collect(),
            receives: others.map(|from| (from, between(from, rank))).filter(is_any).collect(),
            own: between(rank, rank),
        }
    }

    /// The bytes that a rank sends each time.
    pub(crate) fn bytes_sent(needed: &[Needed], rank: usize) -> u64 {
        let ranks = needed.first().map_or(0, |needed| needed.windows.len());
        let others = (0..ranks).filter(|other| *other != rank);
        let values: usize =
            others.flat_map(|to| pieces(needed, rank, to)).map(|piece| piece.len()).sum();
        (values * size_of::<f32>()) as u64
    }

    /// The bytes that a rank receives each time.
    pub(crate) fn bytes_received(needed: &[Needed], rank: usize) -> u64 {
        let ranks = needed.first().map_or(0, |needed| needed.windows.len());
        let others = (0..ranks).filter(|other| *other != rank);
        let values: usize =
            others.flat_map(|from| pieces(needed, from, rank)).map(|piece| piece.len()).sum();
        (values * size_of::<f32>()) as u64
    }

    /// The sums over all ranks of what their windows of the only array have in this rank's part, which has this shape: the transpose of
    /// [`gather`](Self::gather), in integers, so that no order matters. All ranks call it.
    pub(crate) fn add_up(&self, window: &ArrayD<i64>, shape: &[usize]) -> Result<ArrayD<i64>> {
        let mut sums = ArrayD::<i64>::zeros(shape);
        let mut add = |piece: &Piece, values: ArrayViewD<'_, i64>| {
            let mut to = sums.view_mut();
            for (axis, range) in piece.from.iter().enumerate() {
                to.slice_axis_inplace(Axis(axis), Slice::from(range.clone()));
            }
            Zip::from(to).and(values).for_each(|to: &mut i64, value| *to = to.wrapping_add(*value));
        };
        let of_window = |piece: &Piece| {
            let mut from = window.view();
            for (axis, range) in piece.to.iter().enumerate() {
                from.slice_axis_inplace(Axis(axis), Slice::from(range.clone()));
            }
            from
        };
        for piece in &self.own {
            add(piece, of_window(piece));
        }
        if self.ctx.size() == 1 {
            return Ok(sums);
        }
        // What is received to fill a window is sent to add it up, as words: integers of either sign are added alike.
        let packed = |(rank, pieces): &(usize, Vec<Piece>)| {
            let words = pieces.iter().flat_map(|piece| of_window(piece).into_iter());
            (*rank, words.map(|value| *value as u64).collect::<Vec<u64>>())
        };
        let sends: Vec<(usize, Vec<u64>)> = self.receives.iter().map(packed).collect();
        let room = |(rank, pieces): &(usize, Vec<Piece>)| {
            (*rank, vec![0_u64; pieces.iter().map(Piece::len).sum()])
        };
        let mut arrived: Vec<(usize, Vec<u64>)> = self.sends.iter().map(room).collect();
        let sends: Vec<(usize, &[u64])> =
            sends.iter().map(|(to, words)| (*to, &words[..])).collect();
        let mut receives: Vec<(usize, &mut [u64])> =
            arrived.iter_mut().map(|(from, words)| (*from, &mut words[..])).collect();
        self.ctx.comm().exchange(&sends, &mut receives)?;
        for ((_, pieces), (_, words)) in self.sends.iter().zip(arrived) {
            let mut words = words.into_iter().map(|word| word as i64);
            for piece in pieces {
                let values: Vec<i64> = words.by_ref().take(piece.len()).collect();
                let sides: Vec<usize> = piece.from.iter().map(Range::len).collect();
                add(piece, ArrayViewD::from_shape(sides, &values).expect("its length"));
            }
        }
        Ok(sums)
    }

    /// This rank's windows, from its own parts. All ranks call it. Parts cover their array, so they fill the windows.
    pub(crate) fn gather(&self, parts: &[&View]) -> Result<Vec<Array>> {
        let mut windows: Vec<Array> =
            self.shapes.iter().map(|shape| Array::from_elem(&shape[..], UNFILLED)).collect();
        for piece in &self.own {
            place(&mut windows[piece.array], &piece.to, &copied(parts[piece.array], &piece.from));
        }
        let packed = self.pack(|piece| copied(parts[piece.array], &piece.from));
        self.exchange(&packed, |piece, part| place(&mut windows[piece.array], &piece.to, part))?;
        Ok(windows)
    }

    /// Brings up to date what a window of the only array has of other ranks' parts; its own part begins at `own` in it. A rank
    /// that needs nothing has no window, and calls it, too.
    pub(crate) fn refresh(&self, window: Option<&mut View>, own: &[usize]) -> Result<()> {
        let Some(window) = window else { return self.exchange(&[], |_, _| ()) };
        let packed = self.pack(|piece| {
            let shift = |(range, own): (&Range<usize>, &usize)| range.start + own..range.end + own;
            copied(window, &piece.from.iter().zip(own).map(shift).collect::<Region>())
        });
        if cfg!(debug_assertions) {
            for piece in self.receives.iter().flat_map(|(_, pieces)| pieces) {
                let shape: Vec<usize> = piece.to.iter().map(Range::len).collect();
                place(window, &piece.to, &Array::from_elem(shape, UNFILLED));
            }
        }
        self.exchange(&packed, |piece, part| place(window, &piece.to, part))
    }

    /// What is sent to each rank.
    fn pack(&self, values: impl Fn(&Piece) -> Array) -> Vec<Vec<f32>> {
        let of_rank = |(_, pieces): &(usize, Vec<Piece>)| {
            let mut packed = Vec::with_capacity(pieces.iter().map(Piece::len).sum());
            for piece in pieces {
                packed.extend(values(piece));
            }
            packed
        };
        self.sends.iter().map(of_rank).collect()
    }

    /// Sends what is packed, and calls `arrive` for each piece that the others send.
    fn exchange(&self, packed: &[Vec<f32>], mut arrive: impl FnMut(&Piece, &View)) -> Result<()> {
        if self.ctx.size() == 1 {
            return Ok(());
        }
        let bytes = size_of::<f32>() * packed.iter().map(Vec::len).sum::<usize>();
        let _span = self.ctx.span("window").with("bytes", bytes as f64);
        let room = |pieces: &Vec<Piece>| vec![UNFILLED; pieces.iter().map(Piece::len).sum()];
        let mut arrived: Vec<Vec<f32>> =
            self.receives.iter().map(|(_, pieces)| room(pieces)).collect();
        let sends: Vec<(usize, &[f32])> =
            self.sends.iter().zip(packed).map(|((to, _), values)| (*to, &values[..])).collect();
        let mut receives: Vec<(usize, &mut [f32])> = (self.receives.iter().zip(&mut arrived))
            .map(|((from, _), values)| (*from, &mut values[..]))
            .collect();
        self.ctx.comm().exchange(&sends, &mut receives)?;
        for ((_, pieces), values) in self.receives.iter().zip(arrived) {
            let mut rest = &values[..];
            for piece in pieces {
                let (values, others) = rest.split_at(piece.len());
                rest = others;
                let shape: Vec<usize> = piece.to.iter().map(Range::len).collect();
                let part = ArrayViewD::from_shape(shape, values).expect("its length");
                arrive(piece, &part);
            }
        }
        Ok(())
    }
}

fn length(range: &Range<isize>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(0)
}

/// What the window of rank `to` needs of the part of rank `from`, in an order that both know.
fn pieces(needed: &[Needed], from: usize, to: usize) -> Vec<Piece> {
    let mut all = Vec::new();
    for (array, needed) in needed.iter().enumerate() {
        let (own, window) = (&needed.space.regions()[from], &needed.windows[to]);
        if is_empty(own) || window.iter().any(|range| length(range) == 0) {
            continue;
        }
        let mut found = vec![(Region::new(), Region::new())];
        for axis in 0..own.len() {
            let side = needed.space.whole()[axis];
            let along = overlaps(&own[axis], &window[axis], side);
            found = found
                .iter()
                .flat_map(|(from, to)| {
                    along.iter().map(move |(next_from, next_to)| {
                        let with = |region: &Region, next: &Range<usize>| {
                            region.iter().chain([next]).cloned().collect()
                        };
                        (with(from, next_from), with(to, next_to))
                    })
                })
                .collect();
        }
        all.extend(found.into_iter().map(|(from, to)| Piece { array, from, to }));
    }
    all
}

/// Where a part and a window overlap along an axis: in the part, and in the window.
fn overlaps(
    own: &Range<usize>,
    window: &Range<isize>,
    side: usize,
) -> Vec<(Range<usize>, Range<usize>)> {
    let side = side as isize;
    let turns = window.start.div_euclid(side)..(window.end - 1).div_euclid(side) + 1;
    turns
        .filter_map(|turn| {
            let (start, end) = (own.start as isize + turn * side, own.end as isize + turn * side);
            let (first, last) = (start.max(window.start), end.min(window.end));
            let relative = |to: isize| (first - to) as usize..(last - to) as usize;
            (first < last).then(|| (relative(start), relative(window.start)))
        })
        .collect()
}

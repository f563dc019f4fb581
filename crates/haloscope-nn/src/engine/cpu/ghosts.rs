//! Ghosts: the pixels of neighbours next to a cut, in the border that every value has anyway.
//!
//! On a true edge the border holds zeros, which is the convolutions' padding. On a cut side it holds the neighbour's pixels,
//! which are filled in before the first step that reads them; so no kernel knows of cuts. Columns are exchanged first, then
//! rows together with the ghosts in their columns, which brings the corners along.

use std::ops::Range;

use super::cost::Method;
use super::layout::{BLOCK, BORDER, Layout, Tensor, signed};
use super::lower::{Program, Work};
use crate::engine::halo::{Faces, Halo, Round};
use crate::engine::{Grain, Shard};
use crate::error::Result;
use crate::footprint::{reach, scales};
use crate::network::{Network, NodeId};
use crate::op::{Op, PaddingMode};
use crate::shape::Shape;

/// The axes of a layout on which values have a border: rows and columns.
const ROWS: usize = 1;
const COLUMNS: usize = 2;

/// Where images of this shape may be cut, when `methods` are those of its convolutions; the shape is the aligned one.
pub(crate) fn grains(
    network: &Network,
    input: &Shape,
    aligned: &Shape,
    program: &Program,
    methods: &[Method],
) -> Result<Vec<Grain>> {
    let depth_axes = network.rank() - 2;
    (0..network.rank())
        .map(|axis| {
            let (side, whole) = (input.spatial()[axis], aligned.spatial()[axis]);
            let last = whole - side + 1;
            if axis < depth_axes {
                // Values have no border along their depth.
                return Ok(Grain { step: whole, last });
            }
            let scales = scales(network, axis)?;
            check(network, axis, &scales)?;
            let mut step = alignment(&scales);
            let convolutions =
                program.steps.iter().filter(|step| matches!(step.work, Work::Conv(_)));
            for (draft, method) in convolutions.zip(methods) {
                if let (Method::Winograd { tile, .. }, Some((above, below))) =
                    (*method, scales[draft.node.index()])
                {
                    // A cut at n is one at n · above / below there, which must be a multiple of the tile.
                    step = lcm(step, tile * below / gcd(tile * below, above));
                }
            }
            Ok(Grain { step, last })
        })
        .collect()
}

/// Refuses a network with a node that cannot be computed in parts.
fn check(network: &Network, axis: usize, scales: &[Option<(usize, usize)>]) -> Result<()> {
    // Any length that all strides divide shows how far a node reaches.
    let length = 64 * alignment(scales);
    for id in network.ids() {
        let op = network.node(id).op();
        let refuse = |reason: &str| {
            let advice = "only the whole image, or tiles that overlap, can be computed";
            Err(network
                .fault(id, format!("it {reason}, which parts of an image cannot serve; {advice}")))
        };
        let Some((above, below)) = scales[id.index()] else {
            return refuse("has not the same number of pixels for each pixel of the image");
        };
        let outputs = length * above / below;
        let inputs = network.node(id).inputs().first().map_or(outputs, |first| {
            scales[first.index()].map_or(0, |(above, below)| length * above / below)
        });
        let reach = reach(op, axis, inputs, outputs);
        let most = reach[0].max(reach[1]);
        match op {
            _ if most == 0 => (),
            Op::Conv(conv) if conv.mode != PaddingMode::Zero => {
                return refuse(&format!("has {} padding", conv.mode.name()));
            }
            Op::Conv(_) | Op::ConvTranspose(_) if most > BORDER => {
                return refuse(&format!("reads {most} pixels of its neighbours"));
            }
            Op::Conv(_) | Op::ConvTranspose(_) => (),
            _ => return refuse("interpolates between neighbours"),
        }
    }
    Ok(())
}

/// The length of which every node has whole pixels.
fn alignment(scales: &[Option<(usize, usize)>]) -> usize {
    scales.iter().flatten().fold(1, |length, &(_, below)| lcm(length, below))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: usize, b: usize) -> usize {
    a / gcd(a, b) * b
}

/// The exchange of one value's ghosts along one axis.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// What the neighbours need to know of it.
    pub(crate) round: Round,
    pub(crate) value: usize,
    /// Rows or columns.
    axis: usize,
    /// The ghosts before and after.
    ghosts: [usize; 2],
    /// Which sides of rows and columns are cut.
    cut: [[bool; 2]; 2],
    /// The ghosts that rows have at both ends.
    pub(crate) ends: [usize; 2],
    /// Rows of the value.
    height: usize,
    /// Whether it is the first one of the value.
    is_first: bool,
}

/// All exchanges of a part in the order of the steps.
pub(crate) fn exchanges(network: &Network, shard: &Shard, program: &Program) -> Vec<Exchange> {
    let depth_axes = network.rank() - 2;
    let cut = [0, 1].map(|axis| shard.is_cut(depth_axes + axis));
    if cut == [[false; 2]; 2] {
        return Vec::new();
    }
    let reaches: Vec<[[usize; 2]; 2]> = program
        .steps
        .iter()
        .map(|step| reach_of(network, step.node, program, step.inputs[0], step.output))
        .collect();
    // All that is ever read of a value's neighbours is exchanged at once.
    let mut needed = vec![[[0; 2]; 2]; program.layouts.len()];
    for (step, reach) in program.steps.iter().zip(&reaches) {
        let needed = needed[step.inputs[0]].as_flattened_mut();
        for (needed, reach) in needed.iter_mut().zip(reach.as_flattened()) {
            *needed = (*needed).max(*reach);
        }
    }
    let mut done = vec![false; program.layouts.len()];
    let mut exchanges = Vec::new();
    for (index, (step, reach)) in program.steps.iter().zip(&reaches).enumerate() {
        let value = step.inputs[0];
        if done[value] || *reach == [[0; 2]; 2] {
            continue;
        }
        done[value] = true;
        let layout = &program.layouts[value];
        let [rows, columns] = needed[value];
        let here = |ghosts: usize, cut: bool| if cut { ghosts } else { 0 };
        let ends = std::array::from_fn(|side| here(columns[side], cut[1][side]));
        let mut is_first = true;
        for (axis, ghosts, sides) in [(COLUMNS, columns, cut[1]), (ROWS, rows, cut[0])] {
            let cross = match axis {
                COLUMNS => layout.height,
                _ => ends[0] + layout.width + ends[1],
            };
            let line = layout.batch * layout.channels * layout.depth * cross;
            // What I need before me, the neighbour after me needs of me.
            let sent = std::array::from_fn(|side| here(ghosts[1 - side], sides[side]) * line);
            let received = std::array::from_fn(|side| here(ghosts[side], sides[side]) * line);
            if sent == [0, 0] && received == [0, 0] {
                continue;
            }
            let round = Round { step: index, axis: depth_axes + axis - ROWS, sent, received };
            let height = layout.height;
            exchanges.push(Exchange { round, value, axis, ghosts, cut, ends, height, is_first });
            is_first = false;
        }
    }
    exchanges
}

/// How far a step reads its first input beyond rows and columns.
fn reach_of(
    network: &Network,
    node: NodeId,
    program: &Program,
    input: usize,
    output: usize,
) -> [[usize; 2]; 2] {
    let sides = |layout: &Layout| [layout.height, layout.width];
    let (inputs, outputs) = (sides(&program.layouts[input]), sides(&program.layouts[output]));
    let (op, depth_axes) = (network.node(node).op(), network.rank() - 2);
    std::array::from_fn(|axis| reach(op, depth_axes + axis, inputs[axis], outputs[axis]))
}

impl Exchange {
    /// Rows of the value.
    pub(crate) fn rows(&self) -> Range<usize> {
        0..self.height
    }

    /// The round of an exchange of columns in which some rows of the value take part, before another step.
    pub(crate) fn round_of(&self, rows: &Range<usize>, step: usize) -> Round {
        let part = |values: [usize; 2]| values.map(|count| count / self.height * rows.len());
        let Round { axis, sent, received, .. } = self.round;
        Round { step, axis, sent: part(sent), received: part(received) }
    }

    /// Fills the ghosts of a value; of columns, those beside some rows. `faces` has room for those of the round.
    ///
    /// # Safety
    /// The tensor is valid, has the layout of the exchange's value, is complete in these rows, and nobody else uses it.
    pub(crate) unsafe fn run(
        &self,
        round: &Round,
        rows: &Range<usize>,
        tensor: &Tensor,
        faces: &mut [f32],
        halo: &mut dyn Halo,
    ) -> std::result::Result<(), String> {
        let Round { sent, received, .. } = round;
        let (before, rest) = faces.split_at_mut(sent[0]);
        let (after, rest) = rest.split_at_mut(sent[1]);
        let (from_before, rest) = rest.split_at_mut(received[0]);
        let from_after = &mut rest[..received[1]];
        if cfg!(debug_assertions) {
            // As with the border: what does not arrive shows.
            from_before.fill(f32::NAN);
            from_after.fill(f32::NAN);
        }
        // SAFETY: the caller's contract.
        unsafe {
            self.poison(tensor, rows);
            for (side, face) in [&mut *before, &mut *after].into_iter().enumerate() {
                if !face.is_empty() {
                    self.pack(tensor, rows, side, face);
                }
            }
        }
        let faces =
            Faces { sent: [before, after], received: [&mut *from_before, &mut *from_after] };
        halo.exchange(round, faces)?;
        for (side, face) in [from_before, from_after].into_iter().enumerate() {
            if !face.is_empty() {
                // SAFETY: as above.
                unsafe { self.unpack(tensor, rows, side, face) };
            }
        }
        Ok(())
    }

    /// Copies what the neighbour on one side needs.
    ///
    /// # Safety
    /// The tensor is valid, has the layout of the exchange's value, and nobody writes it.
    unsafe fn pack(&self, tensor: &Tensor, rows: &Range<usize>, side: usize, face: &mut [f32]) {
        let length =
            signed(if self.axis == ROWS { tensor.layout.height } else { tensor.layout.width });
        let count = signed(self.ghosts[1 - side]);
        let lines = if side == 0 { 0..count } else { length - count..length };
        let mut face = face.iter_mut();
        self.for_each_pixel(tensor, rows, lines, |pixel, lanes| {
            for (value, lane) in face.by_ref().take(lanes).zip(0..) {
                // SAFETY: a pixel of the value, or one of its ghosts that were received before.
                *value = unsafe { *pixel.add(lane) };
            }
        });
    }

    /// Puts what the neighbour on one side sent into the border.
    ///
    /// # Safety
    /// As for [`pack`](Self::pack), and nobody else uses the tensor.
    unsafe fn unpack(&self, tensor: &Tensor, rows: &Range<usize>, side: usize, face: &[f32]) {
        let length =
            signed(if self.axis == ROWS { tensor.layout.height } else { tensor.layout.width });
        let count = signed(self.ghosts[side]);
        let lines = if side == 0 { -count..0 } else { length..length + count };
        let mut face = face.iter();
        self.for_each_pixel(tensor, rows, lines, |pixel, lanes| {
            for lane in 0..BLOCK {
                let value = if lane < lanes { face.next().copied().unwrap_or(0.0) } else { 0.0 };
                // SAFETY: a pixel in the border of the value.
                unsafe { *pixel.add(lane) = value };
            }
        });
    }

    /// Calls `visit` with each pixel of some lines, which are rows, or columns of some rows, and the number of its channels.
    fn for_each_pixel(
        &self,
        tensor: &Tensor,
        rows: &Range<usize>,
        lines: Range<isize>,
        mut visit: impl FnMut(*mut f32, usize),
    ) {
        let layout = &tensor.layout;
        let [before, after] = self.ends.map(signed);
        let cross = match self.axis {
            COLUMNS => signed(rows.start)..signed(rows.end),
            _ => -before..signed(layout.width) + after,
        };
        for plane in 0..layout.planes() {
            let (image, block, depth) = layout.plane(plane);
            let lanes = BLOCK.min(layout.channels - block * BLOCK);
            for line in lines.clone() {
                for at in cross.clone() {
                    let (row, column) = if self.axis == ROWS { (line, at) } else { (at, line) };
                    visit(tensor.at(image, block, depth, row, column), lanes);
                }
            }
        }
    }

    /// Fills the border on cut sides with NaN before the first exchange of a value, so that no result depends on what was
    /// not exchanged. Only where assertions are on.
    ///
    /// # Safety
    /// As for [`unpack`](Self::unpack).
    unsafe fn poison(&self, tensor: &Tensor, rows: &Range<usize>) {
        if !cfg!(debug_assertions) || !self.is_first {
            return;
        }
        let layout = &tensor.layout;
        let range = |[before, after]: [bool; 2], inside: &Range<usize>, end: usize| {
            let start = if before { -signed(BORDER) } else { signed(inside.start) };
            start..signed(if after { end } else { inside.end })
        };
        let rows = range(self.cut[0], rows, layout.rows_after());
        let columns = range(self.cut[1], &(0..layout.width), layout.columns_after());
        let (height, width) = (signed(layout.height), signed(layout.width));
        for plane in 0..layout.planes() {
            let (image, block, depth) = layout.plane(plane);
            for row in rows.clone() {
                for column in columns.clone() {
                    if (0..height).contains(&row) && (0..width).contains(&column) {
                        continue;
                    }
                    let pixel = tensor.at(image, block, depth, row, column);
                    // SAFETY: a pixel in the border of the value.
                    unsafe { pixel.cast::<[f32; BLOCK]>().write([f32::NAN; BLOCK]) };
                }
            }
        }
    }
}

//! Ghosts: the pixels of neighbours next to a cut, in the border that every value has anyway.
//!
//! On a true edge the border holds zeros, which is the convolutions' padding. On a cut side it holds the neighbour's pixels,
//! which are filled in before the first step that reads them; so no kernel knows of cuts. Along depth, where values have no
//! border, a value that is read across a cut gets ghost planes, and convolutions count them as planes of their input.
//! Columns are exchanged first, then rows together with the ghosts in their columns, then planes together with both, which
//! brings edges and corners along.

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

/// The axes of a layout.
const PLANES: usize = 0;
const ROWS: usize = 1;
const COLUMNS: usize = 2;
/// How many they are.
const AXES: usize = 3;

/// A number for both sides of each axis.
type Sides = [[usize; 2]; AXES];

/// Where images of this shape may be cut, when `methods` are those of its convolutions; the shape is the aligned one.
pub(crate) fn grains(
    network: &Network,
    input: &Shape,
    aligned: &Shape,
    program: &Program,
    methods: &[Method],
) -> Result<Vec<Grain>> {
    (0..network.rank())
        .map(|axis| {
            let (side, whole) = (input.spatial()[axis], aligned.spatial()[axis]);
            let last = whole - side + 1;
            let scales = scales(network, axis)?;
            let of_layout = axis + AXES - network.rank();
            match check(network, axis, &scales) {
                // The plane can be cut all the same.
                Err(_) if of_layout == PLANES => return Ok(Grain { step: whole, last }),
                other => other?,
            }
            let mut step = alignment(&scales);
            let convolutions =
                program.steps.iter().filter(|step| matches!(step.work, Work::Conv(_)));
            for (draft, method) in convolutions.zip(methods) {
                if let Some((above, below)) = scales[draft.node.index()] {
                    // A cut at n is one at n · above / below there, which must be a multiple of the tile.
                    let tile = method.tile(of_layout) * below;
                    step = lcm(step, tile / gcd(tile, above));
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
    /// Planes, rows or columns.
    axis: usize,
    /// The ghosts before and after.
    ghosts: [usize; 2],
    /// Which sides are cut.
    cut: [[bool; 2]; AXES],
    /// The ghosts that the value has on the sides that are cut.
    ends: Sides,
    /// Rows of the value.
    height: usize,
    /// Whether it is the first one of the value.
    is_first: bool,
}

/// Gives the values of a part that are read across a cut between planes their ghost planes. Returns all exchanges in the
/// order of the steps.
pub(crate) fn add_ghosts(network: &Network, shard: &Shard, program: &mut Program) -> Vec<Exchange> {
    let missing = AXES - network.rank();
    let cut: [[bool; 2]; AXES] = std::array::from_fn(|axis| {
        axis.checked_sub(missing).map_or([false; 2], |axis| shard.is_cut(axis))
    });
    if cut == [[false; 2]; AXES] {
        return Vec::new();
    }
    let reaches: Vec<Sides> = program
        .steps
        .iter()
        .map(|step| reach_of(network, step.node, program, step.inputs[0], step.output))
        .collect();
    // All that is ever read of a value's neighbours is exchanged at once.
    let mut needed: Vec<Sides> = vec![[[0; 2]; AXES]; program.layouts.len()];
    for (step, reach) in program.steps.iter().zip(&reaches) {
        let needed = needed[step.inputs[0]].as_flattened_mut();
        for (needed, reach) in needed.iter_mut().zip(reach.as_flattened()) {
            *needed = (*needed).max(*reach);
        }
    }
    let here = |ghosts: usize, cut: bool| if cut { ghosts } else { 0 };
    let ends_of = |needed: &Sides| -> Sides {
        std::array::from_fn(|axis| {
            std::array::from_fn(|side| here(needed[axis][side], cut[axis][side]))
        })
    };
    program.set_ghosts(|value| ends_of(&needed[value])[PLANES]);
    let mut done = vec![false; program.layouts.len()];
    let mut exchanges = Vec::new();
    for (index, (step, reach)) in program.steps.iter().zip(&reaches).enumerate() {
        let value = step.inputs[0];
        if done[value] || *reach == [[0; 2]; AXES] {
            continue;
        }
        done[value] = true;
        let layout = &program.layouts[value];
        let ends = ends_of(&needed[value]);
        let with_ends = |axis: usize, length: usize| ends[axis][0] + length + ends[axis][1];
        let mut is_first = true;
        for axis in [COLUMNS, ROWS, PLANES] {
            let (ghosts, sides) = (needed[value][axis], cut[axis]);
            let face = match axis {
                COLUMNS => layout.depth * layout.height,
                ROWS => layout.depth * with_ends(COLUMNS, layout.width),
                _ => with_ends(ROWS, layout.height) * with_ends(COLUMNS, layout.width),
            };
            let line = layout.batch * layout.channels * face;
            // What I need before me, the neighbour after me needs of me.
            let sent = std::array::from_fn(|side| here(ghosts[1 - side], sides[side]) * line);
            let received = std::array::from_fn(|side| here(ghosts[side], sides[side]) * line);
            if sent == [0, 0] && received == [0, 0] {
                continue;
            }
            let round = Round { step: index, axis: axis - missing, sent, received };
            let height = layout.height;
            exchanges.push(Exchange { round, value, axis, ghosts, cut, ends, height, is_first });
            is_first = false;
        }
    }
    exchanges
}

/// How far a step reads its first input beyond planes, rows and columns.
fn reach_of(
    network: &Network,
    node: NodeId,
    program: &Program,
    input: usize,
    output: usize,
) -> Sides {
    let sides = |layout: &Layout| [layout.depth, layout.height, layout.width];
    let (inputs, outputs) = (sides(&program.layouts[input]), sides(&program.layouts[output]));
    let (op, missing) = (network.node(node).op(), AXES - network.rank());
    std::array::from_fn(|axis| {
        axis.checked_sub(missing)
            .map_or([0; 2], |of_network| reach(op, of_network, inputs[axis], outputs[axis]))
    })
}

impl Exchange {
    /// Rows of the value.
    pub(crate) fn rows(&self) -> Range<usize> {
        0..self.height
    }

    /// The ghosts that rows have at both ends.
    pub(crate) fn row_ends(&self) -> [usize; 2] {
        self.ends[COLUMNS]
    }

    /// The round of an exchange of planes or columns in which some rows of the value take part, before another step. Rows are
    /// not cut.
    pub(crate) fn round_of(&self, rows: &Range<usize>, step: usize) -> Round {
        let part = |values: [usize; 2]| values.map(|count| count / self.height * rows.len());
        let Round { axis, sent, received, .. } = self.round;
        Round { step, axis, sent: part(sent), received: part(received) }
    }

    /// Fills the ghosts of a value; of planes and columns, those beside some rows. `faces` has room for those of the round.
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

    /// The length of the axis.
    fn length(&self, layout: &Layout) -> isize {
        signed([layout.depth, layout.height, layout.width][self.axis])
    }

    /// Copies what the neighbour on one side needs.
    ///
    /// # Safety
    /// The tensor is valid, has the layout of the exchange's value, and nobody writes it.
    unsafe fn pack(&self, tensor: &Tensor, rows: &Range<usize>, side: usize, face: &mut [f32]) {
        let length = self.length(&tensor.layout);
        let count = signed(self.ghosts[1 - side]);
        let lines = if side == 0 { 0..count } else { length - count..length };
        let mut face = face.iter_mut();
        self.for_each_pixel(tensor, rows, &lines, |pixel, lanes| {
            for (value, lane) in face.by_ref().take(lanes).zip(0..) {
                // SAFETY: a pixel of the value, or one of its ghosts that were received before.
                *value = unsafe { *pixel.add(lane) };
            }
        });
    }

    /// Puts what the neighbour on one side sent into the border, or into the ghost planes, whose own border is cleared.
    ///
    /// # Safety
    /// As for [`pack`](Self::pack), and nobody else uses the tensor.
    unsafe fn unpack(&self, tensor: &Tensor, rows: &Range<usize>, side: usize, face: &[f32]) {
        let length = self.length(&tensor.layout);
        let count = signed(self.ghosts[side]);
        let lines = if side == 0 { -count..0 } else { length..length + count };
        if self.axis == PLANES {
            for_each_ghost(tensor, &lines, |tensor, image, block, plane| {
                for row in rows.clone() {
                    // SAFETY: the border of a ghost plane.
                    unsafe { tensor.clear_border(image, block, plane, row) };
                }
            });
        }
        let mut face = face.iter();
        self.for_each_pixel(tensor, rows, &lines, |pixel, lanes| {
            for lane in 0..BLOCK {
                let value = if lane < lanes { face.next().copied().unwrap_or(0.0) } else { 0.0 };
                // SAFETY: a pixel in the border of the value.
                unsafe { *pixel.add(lane) = value };
            }
        });
    }

    /// Calls `visit` with each pixel of some lines, which are planes, rows, or columns of some rows, and the number of its
    /// channels.
    fn for_each_pixel(
        &self,
        tensor: &Tensor,
        rows: &Range<usize>,
        lines: &Range<isize>,
        mut visit: impl FnMut(*mut f32, usize),
    ) {
        let layout = &tensor.layout;
        let lanes = |block: usize| BLOCK.min(layout.channels - block * BLOCK);
        let [before, after] = self.ends[COLUMNS].map(signed);
        let columns = -before..signed(layout.width) + after;
        if self.axis == PLANES {
            let [above, below] = self.ends[ROWS].map(signed);
            for_each_ghost(tensor, lines, |tensor, image, block, plane| {
                for row in signed(rows.start) - above..signed(rows.end) + below {
                    for column in columns.clone() {
                        visit(tensor.at(image, block, plane, row, column), lanes(block));
                    }
                }
            });
            return;
        }
        let cross = match self.axis {
            COLUMNS => signed(rows.start)..signed(rows.end),
            _ => columns,
        };
        for plane in 0..layout.planes() {
            let (image, block, depth) = layout.plane(plane);
            for line in lines.clone() {
                for at in cross.clone() {
                    let (row, column) = if self.axis == ROWS { (line, at) } else { (at, line) };
                    visit(tensor.at(image, block, depth, row, column), lanes(block));
                }
            }
        }
    }

    /// Fills the border on cut sides and the ghost planes with NaN before the first exchange of a value, so that no result
    /// depends on what was not exchanged. Only where assertions are on.
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
        let fill = |pixel: *mut f32| {
            // SAFETY: a pixel in the border of the value, or of a ghost plane.
            unsafe { pixel.cast::<[f32; BLOCK]>().write([f32::NAN; BLOCK]) };
        };
        let cut_rows = range(self.cut[ROWS], rows, layout.rows_after());
        let columns = range(self.cut[COLUMNS], &(0..layout.width), layout.columns_after());
        let (height, width) = (signed(layout.height), signed(layout.width));
        for plane in 0..layout.planes() {
            let (image, block, depth) = layout.plane(plane);
            for row in cut_rows.clone() {
                for column in columns.clone() {
                    if (0..height).contains(&row) && (0..width).contains(&column) {
                        continue;
                    }
                    fill(tensor.at(image, block, depth, row, column));
                }
            }
        }
        // Of ghost planes all that these rows touch, their border on true edges included.
        let depth = signed(layout.depth);
        let [before, after] = layout.ghosts.map(signed);
        let all = [rows.start == 0, rows.end == layout.height];
        for lines in [-before..0, depth..depth + after] {
            for_each_ghost(tensor, &lines, |tensor, image, block, plane| {
                for row in range(all, rows, layout.rows_after()) {
                    for column in -signed(BORDER)..signed(layout.columns_after()) {
                        fill(tensor.at(image, block, plane, row, column));
                    }
                }
            });
        }
    }
}

/// Calls `visit` with image, block and plane of some planes of a tensor, of which those before plane 0 and those after the last
/// are ghosts, and with the tensor that has them as planes.
fn for_each_ghost(
    tensor: &Tensor,
    planes: &Range<isize>,
    mut visit: impl FnMut(&Tensor, usize, usize, usize),
) {
    let layout = &tensor.layout;
    let with_ghosts = tensor.with_ghosts();
    for at in 0..layout.batch * layout.blocks() {
        for plane in planes.clone() {
            let plane = (signed(layout.ghosts[0]) + plane).cast_unsigned();
            visit(&with_ghosts, at / layout.blocks(), at % layout.blocks(), plane);
        }
    }
}

//! The tiles of images of one shape.

use std::ops::Range;

use haloscope_comm::partition;
use ndarray::{ArrayD, IxDyn};

use super::axis::{AxisTiling, Cut, Span};
use super::{Batch, Border, Extent, Overlap, Patch, Strategy, Tiles, Tiling, auto, standard};
use crate::array::{Array, View};
use crate::denoise::Denoiser;
use crate::error::{Error, Result};

/// The bytes that [`Batch::Auto`] allows.
const AUTO_BATCH_BYTES: usize = 1 << 30;
/// The tiles that [`Batch::Auto`] and [`Batch::Memory`] allow.
const MOST_TILES_AT_ONCE: usize = 8;

/// The tiles of images of one shape, which all ranks compute alike. All windows have one shape.
#[derive(Clone, Debug)]
pub struct TilePlan {
    image: Vec<usize>,
    cuts: Vec<Cut>,
    window: Vec<usize>,
    overlap: Vec<usize>,
    border: Border,
    batch: Batch,
    ranks: usize,
    notes: Vec<String>,
}

/// One tile, in spatial axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The pixels of the image that it sees; those before 0 and behind the end are beyond the edge.
    pub read: Vec<Range<isize>>,
    /// The pixels of what it sees that the image needs of the result.
    pub keep: Vec<Range<usize>>,
    /// The pixels of the image that they belong to.
    pub write: Vec<Range<usize>>,
}

impl TilePlan {
    pub(super) fn new(
        tiling: &Tiling,
        image: &[usize],
        alignment: usize,
        seen: Option<usize>,
        ranks: usize,
    ) -> Result<Self> {
        let bad = |reason: String| Err(Error::argument("tiling", reason));
        if image.len() < 3 || image.contains(&0) {
            return bad(format!(
                "images of shape {image:?} have no tiles; (batch, channel, spatial…) is needed"
            ));
        }
        if alignment == 0 || ranks == 0 {
            return bad(format!("alignment {alignment}, {ranks} ranks; both are at least 1"));
        }
        let strategy = match tiling.strategy {
            Strategy::Standard => Strategy::Overlap,
            strategy => strategy,
        };
        if strategy == Strategy::Exact {
            return bad(
                "an exact denoiser has no tiles, but a part of the image for each rank".into()
            );
        }
        if tiling.batch == Batch::AtMost(0) {
            return bad("batches of at most 0 tiles; at least 1 is needed".into());
        }
        let spatial = &image[2..];
        let axes = tiling.axes.clone().unwrap_or_else(|| (0..spatial.len()).collect());
        let is_set = axes.iter().enumerate().all(|(i, axis)| !axes[..i].contains(axis));
        if !is_set || axes.iter().any(|axis| *axis >= spatial.len()) {
            return bad(format!(
                "the axes {axes:?}; images of shape {image:?} have the spatial axes 0 to {}",
                spatial.len() - 1
            ));
        }
        let (patches, overlaps) = standard::lengths(spatial, seen.unwrap_or(spatial.len()));
        let of_axes = |lengths: &[usize]| axes.iter().map(|axis| lengths[*axis]).collect();
        let overlaps = match &tiling.overlap {
            Overlap::Standard => of_axes(&overlaps),
            Overlap::Given(extent) => lengths("overlap", extent, axes.len())?,
        };
        let mut cut_axes: Vec<AxisTiling> = Vec::new();
        for (axis, overlap) in axes.iter().zip(overlaps) {
            let length = spatial[*axis];
            let overlap = if strategy == Strategy::Basic { 0 } else { overlap };
            if overlap > 1 << 40 {
                return bad(format!("an overlap of {overlap}; images are not as large"));
            }
            cut_axes.push(AxisTiling {
                length,
                patch: length,
                overlap,
                alignment,
                border: tiling.border,
            });
        }
        let mut notes = Vec::new();
        let given: Option<Vec<usize>> = match &tiling.patch {
            Patch::Auto => None,
            Patch::Standard => Some(of_axes(&patches)),
            Patch::Given(extent) => Some(lengths("patch size", extent, axes.len())?),
        };
        match given {
            None => auto::choose(&mut cut_axes, ranks),
            Some(patches) => {
                for (cut, patch) in cut_axes.iter_mut().zip(patches) {
                    if patch == 0 {
                        return bad("patch size 0; it must be at least 1".into());
                    }
                    if patch > cut.length {
                        notes.push(format!(
                            "the patch size {patch} is larger than the image's side of {}: one tile",
                            cut.length
                        ));
                    }
                    cut.patch = patch.min(cut.length);
                    // Windows that stay inside keep more at the edges, so that shorter ones may do.
                    if cut.border == Border::Inside && cut.count() > 1 {
                        cut.patch = cut.patch_for(cut.count());
                    }
                }
            }
        }
        let mut overlap = vec![0; spatial.len()];
        for (axis, cut) in axes.iter().zip(&cut_axes) {
            overlap[*axis] = cut.overlap;
        }
        let whole = |length: &usize| {
            let span = Span { read: 0, write: 0..*length, weights: None };
            Cut { window: *length, spans: vec![span] }
        };
        let mut cuts: Vec<Cut> = spatial.iter().map(whole).collect();
        for (axis, cut) in axes.iter().zip(&cut_axes) {
            cuts[*axis] = cut.cut(strategy);
        }
        let window = cuts.iter().map(|cut| cut.window).collect();
        let (image, border, batch) = (image.to_vec(), tiling.border, tiling.batch);
        Ok(Self { image, cuts, window, overlap, border, batch, ranks, notes })
    }

    /// How many tiles there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cuts.iter().map(|cut| cut.spans.len()).product()
    }

    /// Never: an image has at least one tile.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// How many tiles there are along each spatial axis.
    #[must_use]
    pub fn grid(&self) -> Vec<usize> {
        self.cuts.iter().map(|cut| cut.spans.len()).collect()
    }

    /// The sides of every window.
    #[must_use]
    pub fn window(&self) -> &[usize] {
        &self.window
    }

    /// What tiles see beyond their own pixels along each spatial axis, on either side; 0 along axes that are not cut.
    #[must_use]
    pub fn overlap(&self) -> &[usize] {
        &self.overlap
    }

    /// What the caller might not expect, to be said once: a patch that is larger than the image.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Pixels that are computed for each pixel of the image.
    #[must_use]
    pub fn work_multiplier(&self) -> f64 {
        let product = |sizes: &[usize]| sizes.iter().map(|size| *size as f64).product::<f64>();
        self.len() as f64 * product(&self.window) / product(&self.image[2..])
    }

    /// The tiles of each rank: contiguous blocks that differ by one at the most.
    #[must_use]
    pub fn blocks(&self) -> Vec<Range<usize>> {
        partition::even(self.len(), self.ranks)
    }

    /// The pixels that each rank computes, in pixels of the image per rank: 1 is a fair share without
    /// any overlap.
    #[must_use]
    pub fn loads(&self) -> Vec<f64> {
        let share = self.work_multiplier() * self.ranks as f64 / self.len() as f64;
        self.blocks().iter().map(|block| block.len() as f64 * share).collect()
    }

    /// A tile, in the order of the image's rows.
    #[must_use]
    pub fn tile(&self, tile: usize) -> Tile {
        let spans = self.spans(tile);
        let axes = || spans.iter().zip(&self.window);
        let read =
            axes().map(|(span, window)| span.read..span.read + window.cast_signed()).collect();
        let keep = spans.iter().map(|span| keep(span)).collect();
        let write = spans.iter().map(|span| span.write.clone()).collect();
        Tile { read, keep, write }
    }

    /// How many tiles `denoiser` gets at once.
    pub(crate) fn batch_for(&self, denoiser: &dyn Denoiser) -> Result<usize> {
        let most = self.blocks().iter().map(Range::len).max().unwrap_or(1).max(1);
        let bytes = match self.batch {
            Batch::AtMost(tiles) => return Ok(tiles.min(most)),
            Batch::Memory(bytes) => bytes,
            Batch::Auto => AUTO_BATCH_BYTES,
        };
        let mut shape = self.image[..2].to_vec();
        shape.extend(&self.window);
        for tiles in (2..=most.min(MOST_TILES_AT_ONCE)).rev() {
            shape[0] = self.image[0] * tiles;
            if denoiser.memory(&shape)?.is_some_and(|memory| memory <= bytes) {
                return Ok(tiles);
            }
        }
        Ok(1)
    }

    fn spans(&self, mut tile: usize) -> Vec<&Span> {
        let mut spans: Vec<&Span> = Vec::with_capacity(self.cuts.len());
        for cut in self.cuts.iter().rev() {
            spans.push(&cut.spans[tile % cut.spans.len()]);
            tile /= cut.spans.len();
        }
        spans.reverse();
        spans
    }
}

/// Where the pixels that are written lie in the window.
fn keep(span: &Span) -> Range<usize> {
    let begin = (span.write.start.cast_signed() - span.read).cast_unsigned();
    begin..begin + span.write.len()
}

fn lengths(what: &str, extent: &Extent, axes: usize) -> Result<Vec<usize>> {
    match extent {
        Extent::Same(length) => Ok(vec![*length; axes]),
        Extent::PerAxis(lengths) if lengths.len() == axes => Ok(lengths.clone()),
        Extent::PerAxis(lengths) => Err(Error::argument(
            "tiling",
            format!("{} lengths as {what}; there are {axes} axes to cut", lengths.len()),
        )),
    }
}

impl Tiles for TilePlan {
    fn count(&self) -> usize {
        self.len()
    }

    fn image_shape(&self) -> &[usize] {
        &self.image
    }

    fn extract(&self, image: &View, tile: usize) -> Result<Array> {
        let spatial = &self.image[2..];
        if image.ndim() != self.image.len() || image.shape()[2..] != *spatial {
            return Err(Error::Shape {
                what: "the image to cut into tiles".into(),
                expected: format!("the sides {spatial:?} were planned for"),
                found: image.shape().to_vec(),
            });
        }
        let sources: Vec<Vec<Option<usize>>> = self
            .spans(tile)
            .iter()
            .zip(spatial.iter().zip(&self.window))
            .map(|(span, (length, window))| {
                let positions = span.read..span.read + window.cast_signed();
                positions.map(|position| self.border.source(position, *length)).collect()
            })
            .collect();
        let planes = image.shape()[0] * image.shape()[1];
        let mut shape = image.shape()[..2].to_vec();
        shape.extend(&self.window);
        let image = image.as_standard_layout();
        let from = image.as_slice().expect("standard layout");
        let mut window = Vec::with_capacity(shape.iter().product());
        let volume: usize = spatial.iter().product();
        for plane in 0..planes {
            gather(&from[plane * volume..][..volume], spatial, &sources, &mut window);
        }
        Ok(ArrayD::from_shape_vec(IxDyn(&shape), window).expect("as many as the shape says"))
    }

    fn finish(&self, result: Array, tile: usize) -> Result<Array> {
        let shape = result.shape();
        if shape.len() != self.image.len() || shape[2..] != *self.window {
            return Err(Error::Shape {
                what: "the denoiser's result for a tile".into(),
                expected: format!("it was given the sides {:?}", self.window),
                found: shape.to_vec(),
            });
        }
        let spans = self.spans(tile);
        let mut part = result;
        for (axis, span) in spans.iter().enumerate() {
            let range = keep(span);
            part.slice_axis_inplace(ndarray::Axis(axis + 2), ndarray::Slice::from(range));
        }
        let mut part = part.as_standard_layout().into_owned();
        for (axis, span) in spans.iter().enumerate() {
            let Some(weights) = &span.weights else { continue };
            for (mut lane, weight) in part.axis_iter_mut(ndarray::Axis(axis + 2)).zip(weights) {
                lane *= *weight;
            }
        }
        Ok(part)
    }

    fn part_len(&self, tile: usize) -> usize {
        self.spans(tile).iter().map(|span| span.write.len()).product()
    }

    fn place(&self, image: &mut [f32], part: &[f32], tile: usize) -> Result<()> {
        let spans = self.spans(tile);
        let (volume, part_volume) =
            (self.image[2..].iter().product::<usize>(), self.part_len(tile));
        let planes = self.image[0] * self.image[1];
        if image.len() != planes * volume || part.len() != planes * part_volume {
            return Err(Error::Shape {
                what: "a part of the image".into(),
                expected: format!(
                    "{} elements for {} are expected",
                    planes * part_volume,
                    planes * volume
                ),
                found: vec![part.len(), image.len()],
            });
        }
        let adds = spans.iter().any(|span| span.weights.is_some());
        for (image, part) in image.chunks_exact_mut(volume).zip(part.chunks_exact(part_volume)) {
            scatter(image, &self.image[2..], &spans, part, adds);
        }
        Ok(())
    }

    fn cost(&self, _tile: usize) -> f64 {
        self.window.iter().map(|side| *side as f64).product()
    }
}

/// Appends the pixels of `from` that each axis names; zeros where it names none.
fn gather(from: &[f32], sides: &[usize], sources: &[Vec<Option<usize>>], to: &mut Vec<f32>) {
    let (Some((axis, rest)), Some(sides)) = (sources.split_first(), sides.get(1..)) else { return };
    if rest.is_empty() {
        return gather_row(from, axis, to);
    }
    let stride: usize = sides.iter().product();
    for source in axis {
        match source {
            Some(index) => gather(&from[index * stride..][..stride], sides, rest, to),
            None => to.extend(std::iter::repeat_n(0.0, rest.iter().map(Vec::len).product())),
        }
    }
}

/// As [`gather`] for one row, whose pixels inside the image are copied at once.
fn gather_row(from: &[f32], sources: &[Option<usize>], to: &mut Vec<f32>) {
    let mut index = 0;
    while index < sources.len() {
        let Some(begin) = sources[index] else {
            to.push(0.0);
            index += 1;
            continue;
        };
        let run =
            sources[index..].iter().zip(begin..).take_while(|(found, next)| **found == Some(*next));
        let run = run.count();
        to.extend_from_slice(&from[begin..begin + run]);
        index += run;
    }
}

/// Writes or adds `part` where the spans say.
fn scatter(image: &mut [f32], sides: &[usize], spans: &[&Span], part: &[f32], adds: bool) {
    let Some((span, rest)) = spans.split_first() else { return };
    if rest.is_empty() {
        let to = &mut image[span.write.clone()];
        if adds {
            to.iter_mut().zip(part).for_each(|(to, part)| *to += part);
        } else {
            to.copy_from_slice(part);
        }
        return;
    }
    let stride: usize = sides[1..].iter().product();
    let part_stride: usize = rest.iter().map(|span| span.write.len()).product();
    for (index, part) in span.write.clone().zip(part.chunks_exact(part_stride)) {
        scatter(&mut image[index * stride..][..stride], &sides[1..], rest, part, adds);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tiling::Strategy;

    fn image(shape: &[usize]) -> Array {
        let mut next = 0.0;
        ArrayD::from_shape_simple_fn(IxDyn(shape), || {
            next += 1.0;
            next
        })
    }

    fn through(plan: &TilePlan, image: &View) -> Array {
        let mut result = Array::zeros(image.raw_dim());
        for tile in 0..plan.len() {
            let window = plan.extract(image, tile).expect("a window");
            let part = plan.finish(window, tile).expect("a part");
            let part = part.as_slice().expect("standard layout");
            plan.place(result.as_slice_mut().expect("standard layout"), part, tile)
                .expect("placed");
        }
        result
    }

    proptest! {
        #[test]
        fn tiles_of_any_plan_make_the_image_again(
            sides in prop_oneof![
                proptest::collection::vec(1_usize..24, 1..3),
                proptest::collection::vec(1_usize..9, 3),
            ],
            patch in 1_usize..30,
            overlap in 0_usize..12,
            alignment in 1_usize..5,
            strategy in prop_oneof![Just(Strategy::Basic), Just(Strategy::Overlap), Just(Strategy::Blend)],
            border in prop_oneof![
                Just(Border::Reflect), Just(Border::Replicate), Just(Border::Circular), Just(Border::Zero),
                Just(Border::Inside)
            ],
        ) {
            let mut shape = vec![2, 3];
            shape.extend(&sides);
            let tiling = Tiling {
                patch: patch.into(), overlap: overlap.into(), border, ..Tiling::new(strategy)
            };
            let plan = tiling.plan(&shape, alignment, 2).expect("a plan");
            let image = image(&shape);
            let again = through(&plan, &image);
            if strategy == Strategy::Blend {
                prop_assert!(again.iter().zip(&image).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs()));
            } else {
                prop_assert_eq!(again, image);
            }
        }
    }

    #[test]
    fn only_the_chosen_axes_are_cut() {
        let tiling =
            Tiling { axes: Some(vec![1]), patch: 4.into(), ..Tiling::new(Strategy::Basic) };
        let plan = tiling.plan(&[1, 1, 10, 12, 9], 1, 1).expect("a plan");
        assert_eq!((plan.grid(), plan.window()), (vec![1, 3, 1], &[10, 4, 9][..]));
    }

    #[test]
    fn a_patch_larger_than_the_image_becomes_one_tile_and_is_noted() {
        let tiling = Tiling { patch: 256.into(), ..Tiling::default() };
        let plan = tiling.plan(&[1, 1, 40, 512], 8, 1).expect("a plan");
        assert_eq!(plan.grid(), [1, 2]);
        assert!(plan.notes()[0].contains("256 is larger than the image's side of 40"));
    }

    #[test]
    fn bad_tilings_say_what_would_be_accepted() {
        let shape = [1, 1, 32, 32];
        let cases = [
            (Tiling { patch: 0.into(), ..Tiling::default() }, "at least 1"),
            (Tiling { axes: Some(vec![2]), ..Tiling::default() }, "spatial axes 0 to 1"),
            (Tiling { axes: Some(vec![0, 0]), ..Tiling::default() }, "spatial axes 0 to 1"),
            (Tiling { batch: Batch::AtMost(0), ..Tiling::default() }, "at least 1"),
            (
                Tiling { overlap: Extent::PerAxis(vec![1]).into(), ..Tiling::default() },
                "2 axes to cut",
            ),
            (Tiling::new(Strategy::Exact), "has no tiles"),
        ];
        for (tiling, words) in cases {
            let error = tiling.plan(&shape, 8, 1).expect_err("a bad tiling").to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(Tiling::default().plan(&[32, 32], 8, 1).is_err());
        let error = "smooth".parse::<Strategy>().expect_err("unknown").to_string();
        assert!(error.contains("standard, exact, overlap, blend and basic"), "{error}");
    }

    #[test]
    fn without_instructions_tiles_do_not_depend_on_the_ranks() {
        for shape in [&[1, 3, 700, 500][..], &[1, 1, 40, 130, 70], &[2, 1, 90], &[1, 1, 8, 8]] {
            for strategy in [Strategy::Basic, Strategy::Overlap, Strategy::Blend] {
                let tiling = Tiling::new(strategy);
                let alone = tiling.plan(shape, 8, 1).expect("a plan");
                assert!(alone.notes().is_empty(), "{:?}", alone.notes());
                for ranks in [2, 3, 5, 8, 64] {
                    let plan = tiling.plan(shape, 8, ranks).expect("a plan");
                    assert_eq!((&plan.cuts, &plan.window), (&alone.cuts, &alone.window));
                }
            }
        }
    }

    #[test]
    fn the_standard_lengths_are_those_of_the_axes_that_are_cut() {
        let tiling = Tiling { axes: Some(vec![2, 0]), ..Tiling::default() };
        let plan = tiling.plan(&[1, 1, 100, 90, 110], 1, 1).expect("a plan");
        assert_eq!((plan.grid(), plan.overlap()), (vec![2, 1, 2], &[16, 0, 16][..]));
        let basic = Tiling::new(Strategy::Basic).plan(&[1, 1, 300, 300], 1, 1).expect("a plan");
        assert_eq!(basic.overlap(), [0, 0]);
    }

    #[test]
    fn loads_add_up_to_the_work_multiplier() {
        let tiling = Tiling { patch: 64.into(), ..Tiling::default() };
        let plan = tiling.plan(&[1, 3, 200, 200], 8, 3).expect("a plan");
        let mean = plan.loads().iter().sum::<f64>() / 3.0;
        assert!((mean - plan.work_multiplier()).abs() < 1e-12);
    }
}

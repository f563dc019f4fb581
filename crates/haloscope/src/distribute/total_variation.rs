//! Total variation whose rows are shared by the ranks.
//!
//! Every rank holds the image and computes a slab of it. Before each of its iterations it exchanges one row with the ranks beside
//! it; once in an iteration all ranks add up two sums, to decide together when to stop. At the end the slabs are gathered. The result has the bits of [`TotalVariation`] on one rank.

use std::ops::Range;

use haloscope_comm::{Collectives, Context, partition};

use super::agree::agree;
use super::workers::Workers;
use crate::array::{Array, View};
use crate::denoise::slab::{Alone, Field, Neighbours, Slab};
use crate::denoise::{Denoiser, NoiseLevel, TotalVariation};
use crate::error::Result;
use crate::image::{Image, Layout, Sum, totals};

/// [`TotalVariation`] over ranks, used like any denoiser: all ranks call it with the same image.
///
/// Images are cut along their first side; those of one side are not cut, and every rank computes them whole.
///
/// ```
/// use haloscope::denoise::{Denoiser, TotalVariation};
/// use haloscope::distribute::DistributedTotalVariation;
/// use haloscope_comm::Context;
///
/// let image = ndarray::ArrayD::from_shape_fn(vec![1, 1, 12, 9], |at| (at[2] * at[3] % 5) as f32);
/// let expected = TotalVariation::default().denoise(&image, &0.3.into())?;
/// let shared = Context::threads(3, move |ctx| {
///     let denoiser = DistributedTotalVariation::new(TotalVariation::default(), ctx)?;
///     denoiser.denoise(&image, &0.3.into())
/// })?;
/// assert!(shared.iter().all(|image| *image == expected));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DistributedTotalVariation {
    ctx: Context,
    workers: Workers,
    denoiser: TotalVariation,
}

impl DistributedTotalVariation {
    /// Shares it between the ranks of a context; all of them call it.
    pub fn new(denoiser: TotalVariation, ctx: &Context) -> Result<Self> {
        let workers = agree(ctx, Workers::new(ctx))?;
        Ok(Self { ctx: ctx.clone(), workers, denoiser })
    }

    /// One image of this shape, which has a batch of 1.
    fn minimise(&self, image: &[f32], shape: &[usize], weight: f32) -> Result<Vec<f32>> {
        if self.ctx.size() == 1 || shape.len() < 4 {
            let slab = Slab::whole(image, shape, weight);
            let slab = self.denoiser.minimise(Some(slab), &mut Alone)?;
            return Ok(slab.map(Slab::into_result).unwrap_or_default());
        }
        let mut ranks = Ranks::new(&self.ctx, shape);
        let own = ranks.rows[self.ctx.rank()].clone();
        let slab = (!own.is_empty()).then(|| Slab::cut(image, shape, own, weight));
        let slab = self.denoiser.minimise(slab, &mut ranks)?;
        let mut result = vec![0.0; image.len()];
        let length: usize = shape[3..].iter().product();
        let counts: Vec<usize> = ranks.rows.iter().map(|rows| rows.len() * length).collect();
        for (channel, to) in result.chunks_mut(shape[2] * length).enumerate() {
            let own = slab.as_ref().map_or(&[][..], |slab| slab.result(channel));
            self.ctx.comm().all_gather_into(own, &counts, to)?;
        }
        Ok(result)
    }
}

impl Denoiser for DistributedTotalVariation {
    fn name(&self) -> &str {
        self.denoiser.name()
    }

    fn denoise_image(&self, image: &Image, level: &NoiseLevel) -> Result<Image> {
        match image.layout() {
            Layout::Replicated => Ok(self.denoise(image.local(), level)?.into()),
            Layout::Sharded(_) => self.denoiser.denoise_image(image, level),
        }
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        let _span = self.ctx.span("total variation");
        self.workers.run(|| {
            TotalVariation::denoise_each(image, level, |values, shape, weight| {
                self.minimise(values, shape, weight)
            })
        })
    }
}

/// The ranks that share an image.
struct Ranks<'a> {
    ctx: &'a Context,
    /// The rows of each rank.
    rows: Vec<Range<usize>>,
    /// The ranks with the rows before and after the own ones.
    beside: [Option<usize>; 2],
}

impl<'a> Ranks<'a> {
    fn new(ctx: &'a Context, shape: &[usize]) -> Self {
        let rows = partition::even(shape[2], ctx.size());
        let (own, rank) = (&rows[ctx.rank()], ctx.rank());
        // The first ranks have rows, and the last ones none if there are not enough.
        let before = (own.start > 0 && !own.is_empty()).then(|| rank - 1);
        let after = (own.end < shape[2] && !own.is_empty()).then(|| rank + 1);
        Self { ctx, beside: [before, after], rows }
    }
}

impl Neighbours for Ranks<'_> {
    fn exchange(&mut self, slab: Option<&mut Slab<'_>>, field: Field) -> Result<()> {
        let comm = self.ctx.comm();
        let Some(slab) = slab else { return Ok(comm.exchange::<f32>(&[], &mut [])?) };
        let _span = self.ctx.span("halo");
        let sent = slab.sent(field);
        let mut arrived = slab.awaited().map(|length| vec![0.0; length]);
        let sends: Vec<(usize, &[f32])> = (self.beside.iter().zip(&sent))
            .filter_map(|(rank, row)| Some(((*rank)?, &row[..])))
            .collect();
        let mut receives: Vec<(usize, &mut [f32])> = (self.beside.iter().zip(&mut arrived))
            .filter_map(|(rank, row)| Some(((*rank)?, &mut row[..])))
            .collect();
        comm.exchange(&sends, &mut receives)?;
        slab.receive(field, [&arrived[0], &arrived[1]]);
        Ok(())
    }

    fn totals(&mut self, own: [Sum; 2]) -> Result<[f64; 2]> {
        totals(self.ctx, own)
    }
}

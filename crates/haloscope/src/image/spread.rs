//! Between one rank that has the whole of an image and the parts of all: scattering it, and the digest of all parts.

use std::sync::Arc;

use haloscope_comm::Collectives;

use super::Image;
use super::layout::{Layout, Space};
use crate::array::{Array, View, slice_mut};
use crate::digest::Digest;
use crate::distribute::agree;
use crate::error::{Error, Result};
use crate::region::{self, Region, copied, is_empty};

/// The values that the first rank holds of what others have.
const BAND: usize = 1 << 20;

impl Image {
    /// This rank's part of an array that the first rank has as a whole; the others give `None`. All ranks call it.
    ///
    /// ```
    /// use haloscope::image::{Image, Space};
    /// use haloscope::tiling::ShardPlan;
    /// use haloscope_comm::Context;
    /// use haloscope_nn::engine::Grain;
    ///
    /// let parts = Context::threads(2, |ctx| {
    ///     let grain = Grain { step: 1, last: 1 };
    ///     let space = Space::new(ctx, &ShardPlan::new(&[1, 1, 4, 8], &[grain, grain], 2)?)?;
    ///     let whole = ctx.is_root().then(|| ndarray::ArrayD::ones(vec![1, 1, 4, 8]));
    ///     Ok::<_, haloscope::Error>(Image::scatter(&space, whole.as_deref())?.into_local())
    /// })?;
    /// assert!(parts.iter().all(|part| part.shape() == [1, 1, 2, 8] && part.sum() == 16.0));
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn scatter(space: &Arc<Space>, whole: Option<&View>) -> Result<Self> {
        let ctx = space.context();
        let first = match whole {
            Some(whole) if ctx.is_root() => Self::cut(space, whole).map(Some),
            None if ctx.is_root() => Err(Error::argument("image", "the first rank has none")),
            _ => Ok(None),
        };
        let first = agree(ctx, first)?;
        let mut mine = Array::zeros(space.own_shape());
        for (rank, part) in space.regions().iter().enumerate().skip(1) {
            if is_empty(part) {
                continue;
            }
            match whole {
                Some(whole) if ctx.is_root() => {
                    let mut values = copied(whole, part);
                    ctx.comm().exchange(&[(rank, &*slice_mut(&mut values))], &mut [])?;
                }
                _ if ctx.rank() == rank => {
                    ctx.comm().exchange(&[], &mut [(0, slice_mut(&mut mine))])?;
                }
                _ => ctx.comm().exchange::<f32>(&[], &mut [])?,
            }
        }
        first.map_or_else(|| Self::sharded(space, mine), Ok)
    }

    /// The digest of the whole image, the same in every layout. All ranks that share the image call it; none holds more than its
    /// part and 4 MB, or one row of the image.
    pub fn digest(&self) -> Result<u64> {
        let Layout::Sharded(space) = &self.layout else {
            return Ok(Digest::of(&self.local).value());
        };
        let ctx = space.context();
        let mut digest = Digest::default();
        for band in region::bands(space.whole(), BAND) {
            let shared = |part: &Region| region::overlap(part, &band);
            if !ctx.is_root() {
                let own: Option<Vec<f32>> = shared(space.own()).map(|common| {
                    let own = region::cut(&self.local, &region::within(&common, space.own()));
                    own.iter().copied().collect()
                });
                let sent: Vec<(usize, &[f32])> = own.iter().map(|own| (0, &own[..])).collect();
                ctx.comm().exchange(&sent, &mut [])?;
                continue;
            }
            let mut arrived: Vec<(usize, Region, Array)> = (space.regions().iter().enumerate())
                .skip(1)
                .filter_map(|(rank, part)| {
                    let common = shared(part)?;
                    let values = Array::zeros(region::sides(&common));
                    Some((rank, common, values))
                })
                .collect();
            let mut receives: Vec<(usize, &mut [f32])> =
                arrived.iter_mut().map(|(rank, _, values)| (*rank, slice_mut(values))).collect();
            ctx.comm().exchange::<f32>(&[], &mut receives)?;
            let mut whole = Array::zeros(region::sides(&band));
            region::copy(&self.local, space.own(), &mut whole, &band);
            for (_, common, values) in &arrived {
                region::copy(values, common, &mut whole, &band);
            }
            digest.add(&whole);
        }
        let mut value = [digest.value()];
        ctx.comm().broadcast(0, &mut value)?;
        Ok(value[0])
    }
}

//! An image in tiles: what a denoiser sees at a time, and how the results become an image again.
//!
//! A [`Tiling`] says how to cut; [`Tiling::plan`] applies it to a shape and gives a [`TilePlan`], whose
//! tiles every rank knows. Anything else that cuts and joins is a [`Tiles`] of its own.
//!
//! A network needs no tiles where it can be exact: each rank has one part of the image ([`ShardPlan`]), and parts exchange
//! what they read of each other. [`Tiling::choose`] says which of the two it is.
//!
//! Without other instructions neither that choice ([`Strategy::Standard`]) nor the tiles ([`Patch::Standard`]) depend on the
//! number of ranks, and so neither do the bits of what is computed with them.

mod auto;
mod axis;
mod border;
mod choice;
mod grid;
mod plan;
mod shards;
mod standard;

use std::fmt;

use crate::array::{Array, View};
use crate::denoise::Denoiser;
use crate::error::{Error, Result};

pub use border::Border;
pub use choice::{Choice, MOST_WAVE_BYTES};
pub use plan::{Tile, TilePlan};
pub(crate) use shards::Kind;
pub use shards::{COLUMN_STEP, ShardPlan, Shards, coarse_grains};
pub use standard::lengths as standard_lengths;

/// How to cut images into tiles.
///
/// ```
/// use haloscope::tiling::{Strategy, Tiling};
///
/// let tiling = Tiling { patch: 128.into(), overlap: 16.into(), ..Tiling::new(Strategy::Overlap) };
/// let plan = tiling.plan(&[1, 3, 512, 384], 8, 2)?;
/// assert_eq!((plan.len(), plan.window()), (12, &[152, 152][..]));
/// assert_eq!(plan.work_multiplier(), 152.0 * 152.0 / (128.0 * 128.0));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// How results become an image.
    pub strategy: Strategy,
    /// The pixels that a tile contributes at the most, along each axis that is cut; tiles at an edge, where there is no
    /// overlap, contribute more.
    pub patch: Patch,
    /// The pixels that a tile sees beyond its own, on either side.
    pub overlap: Overlap,
    /// The spatial axes that are cut, counted from 0; all if `None`.
    pub axes: Option<Vec<usize>>,
    /// What a tile sees beyond the image's edge.
    pub border: Border,
    /// How many tiles the denoiser gets at once.
    pub batch: Batch,
    /// The parts of the image that ranks have if the strategy is exact.
    pub shards: Shards,
}

/// How the results of tiles become an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// [`Exact`](Self::Exact) for networks that can be, on images of which a pass holds at most
    /// [`MOST_PASS_BYTES`](crate::denoise::MOST_PASS_BYTES) at once or [`MOST_WAVE_BYTES`] in waves;
    /// [`Overlap`](Self::Overlap) for anything else, or if lengths of tiles are given. It depends on the image and the network,
    /// never on the number of ranks.
    #[default]
    Standard,
    /// Tiles see nothing but themselves; seams show.
    Basic,
    /// Tiles see an overlap, which is cut off the result.
    Overlap,
    /// Results are faded into each other in the inner half of the overlap; no seams show.
    Blend,
    /// No tiles: each rank has one part of the image, and the layers of the network exchange what they read of other parts.
    /// The result is that of the whole image to the bit, on any number of ranks. Patch, overlap, border and batch do not
    /// matter. Only networks can do it.
    Exact,
}

/// The length of a tile along the axes that are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Patch {
    /// Equal parts of at most 256 pixels along the sides of a picture and 64 along those of a volume; a denoiser of
    /// pictures gets volumes in blocks of 8 slices. A network that sees few planes of a volume gets slabs of whole planes, where its
    /// strategy is [`Strategy::Standard`]. The same on any number of ranks.
    #[default]
    Standard,
    /// The lengths that give the rank with the most work the least. They depend on the number of ranks, and so do the bits
    /// of the result.
    Auto,
    /// These.
    Given(Extent),
}

/// What a tile sees beyond its own pixels along the axes that are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// 32 pixels along the sides of a picture and 16 along those of a volume; none between slices that the denoiser treats
    /// one by one.
    #[default]
    Standard,
    /// This.
    Given(Extent),
}

/// A length along the axes that are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The same along all of them.
    Same(usize),
    /// One for each.
    PerAxis(Vec<usize>),
}

/// How many tiles are denoised at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// As many as the denoiser takes no more than a gigabyte for, and eight at the most; one if it
    /// cannot tell what it takes.
    #[default]
    Auto,
    /// As many as fit in so many bytes by the denoiser's own plan.
    Memory(usize),
    /// So many at the most.
    AtMost(usize),
}

impl From<usize> for Extent {
    fn from(length: usize) -> Self {
        Self::Same(length)
    }
}

impl From<usize> for Patch {
    fn from(length: usize) -> Self {
        Self::Given(length.into())
    }
}

impl From<Extent> for Patch {
    fn from(extent: Extent) -> Self {
        Self::Given(extent)
    }
}

impl From<usize> for Overlap {
    fn from(length: usize) -> Self {
        Self::Given(length.into())
    }
}

impl From<Extent> for Overlap {
    fn from(extent: Extent) -> Self {
        Self::Given(extent)
    }
}

impl std::str::FromStr for Strategy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "standard" => Ok(Self::Standard),
            "basic" => Ok(Self::Basic),
            "overlap" => Ok(Self::Overlap),
            "blend" => Ok(Self::Blend),
            "exact" => Ok(Self::Exact),
            _ => Err(Error::argument(
                "strategy",
                format!("`{name}` is unknown; there are standard, exact, overlap, blend and basic"),
            )),
        }
    }
}

impl Default for Tiling {
    fn default() -> Self {
        Self::new(Strategy::default())
    }
}

impl Tiling {
    /// Tiles of the standard lengths, which do not depend on the number of ranks; with the standard overlap unless the
    /// strategy has none.
    ///
    /// ```
    /// use haloscope::tiling::{Strategy, Tiling};
    ///
    /// let tiles = |ranks| Tiling::new(Strategy::Overlap).plan(&[1, 3, 512, 512], 8, ranks);
    /// assert_eq!((tiles(1)?.len(), tiles(3)?.len()), (4, 4));
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    #[must_use]
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            patch: Patch::Standard,
            overlap: Overlap::Standard,
            axes: None,
            border: Border::default(),
            batch: Batch::default(),
            shards: Shards::default(),
        }
    }

    /// The tiles of images of this shape, (batch, channel, spatial…), for a denoiser with this
    /// alignment that sees all sides of the image, and so many ranks. The standard strategy is that of overlapping tiles here;
    /// an exact one has no tiles, which is an error.
    pub fn plan(&self, image: &[usize], alignment: usize, ranks: usize) -> Result<TilePlan> {
        TilePlan::new(self, image, alignment, None, ranks)
    }

    /// As [`plan`](Self::plan), for this denoiser, which may see fewer sides than the image has.
    pub fn plan_for(
        &self,
        image: &[usize],
        denoiser: &dyn Denoiser,
        ranks: usize,
    ) -> Result<TilePlan> {
        TilePlan::new(self, image, denoiser.alignment(), denoiser.sides(), ranks)
    }
}

/// Tiles of an image: how they are read, and how what became of them is put together.
///
/// [`TilePlan`] is the one that ships. Every rank asks for its own tiles only, and gets the parts of all
/// of them to put together, in order.
pub trait Tiles: Send + Sync + fmt::Debug {
    /// How many there are.
    fn count(&self) -> usize;

    /// The shape of the images, (batch, channel, spatial…).
    fn image_shape(&self) -> &[usize];

    /// Cuts tile `tile` out of an image, or out of a map that has other channels or batches. Tiles of
    /// the same shape can be denoised at once.
    fn extract(&self, image: &View, tile: usize) -> Result<Array>;

    /// What the image needs of a tile's result: it is this that ranks send each other.
    fn finish(&self, result: Array, tile: usize) -> Result<Array>;

    /// The elements of what [`finish`](Self::finish) returns, for images of one channel and a batch of 1.
    fn part_len(&self, tile: usize) -> usize;

    /// Puts a part into the image; called for all tiles in their order on an image of zeros.
    fn place(&self, image: &mut [f32], part: &[f32], tile: usize) -> Result<()>;

    /// The work that a tile is, for balancing ranks.
    fn cost(&self, tile: usize) -> f64;
}

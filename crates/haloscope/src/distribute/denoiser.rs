//! A denoiser whose tiles are shared by the ranks.
//!
//! Every rank holds the image, cuts and denoises its own tiles, and sends the others the pixels that they
//! contribute. Those are placed, not summed: a rank receives the pixels that it has not computed, where
//! summing full images would move each pixel twice.
//!
//! An exact denoiser has one part of the image for each rank instead of tiles, and the network exchanges halos between its
//! layers, so that the result is that of the whole image. Which of the two it is, [`Tiling::choose`] says; whether the parts run at
//! once or in waves, [`NetworkDenoiser::pass`].

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use haloscope_comm::{Collectives, Context, partition};
use haloscope_nn::Stop;
use ndarray::{Axis, IxDyn, Slice, concatenate};

use super::Distribute;
use super::agree::agree;
use super::halo::RankHalo;
use super::workers::Workers;
use crate::array::{Array, View, slice, slice_mut};
use crate::denoise::{Denoiser, NetworkDenoiser, NetworkShard, NoiseLevel, Work};
use crate::error::{Error, Result};
use crate::tiling::{Batch, Choice, ShardPlan, Shards, Tiles, Tiling};

/// How a denoiser is distributed.
#[derive(Clone, Debug)]
pub struct DenoiserOptions {
    /// How images are cut.
    pub cutting: Cutting,
    /// Which rank gets which tile.
    pub dealing: Dealing,
}

/// How images are cut into tiles.
#[derive(Clone, Debug)]
pub enum Cutting {
    /// By a plan for the shape that comes.
    Tiling(Tiling),
    /// Into these tiles, of images of one shape, so many at once.
    Custom(Arc<dyn Tiles>, usize),
}

/// Which rank gets which tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dealing {
    /// Contiguous blocks of about equal cost.
    #[default]
    Blocks,
    /// One after the other.
    RoundRobin,
}

/// Tiles that are dealt out one by one.
const MOST_TILES: usize = 10_000_000;

impl Dealing {
    /// The tiles of each rank.
    pub(crate) fn shares(self, tiles: &dyn Tiles, ranks: usize) -> Result<Vec<Vec<usize>>> {
        let count = tiles.count();
        if count > MOST_TILES {
            let reason =
                format!("{count} tiles; at most {MOST_TILES} are possible: a larger patch");
            return Err(Error::argument("tiling", reason));
        }
        Ok(match self {
            Self::RoundRobin => (0..ranks)
                .map(|rank| partition::round_robin(count, rank, ranks).collect())
                .collect(),
            Self::Blocks => {
                let costs: Vec<f64> = (0..count).map(|tile| tiles.cost(tile)).collect();
                partition::contiguous(&costs, ranks)?.into_iter().map(Range::collect).collect()
            }
        })
    }
}

impl Default for DenoiserOptions {
    fn default() -> Self {
        Tiling::default().into()
    }
}

impl From<Tiling> for DenoiserOptions {
    fn from(tiling: Tiling) -> Self {
        Self { cutting: Cutting::Tiling(tiling), dealing: Dealing::default() }
    }
}

/// A [`Denoiser`] over ranks, used like any other: all ranks call it with the same image.
///
/// See [`distribute`](super::distribute) for an example.
pub struct DistributedDenoiser {
    ctx: Context,
    workers: Workers,
    denoiser: Arc<dyn Denoiser>,
    options: DenoiserOptions,
    /// Whether it is exact, for the last shape.
    chosen: Mutex<Option<(Vec<usize>, Option<Choice>)>>,
    /// The tiles for the last shape.
    planned: Mutex<Option<Planned>>,
}

#[derive(Clone)]
struct Planned {
    tiles: Arc<dyn Tiles>,
    batch: usize,
    /// The tiles of each rank.
    shares: Arc<[Vec<usize>]>,
    /// The parts of an exact denoiser.
    exact: Option<Arc<Exact>>,
}

/// An image in parts, one for each rank as far as there are enough.
struct Exact {
    shards: Arc<ShardPlan>,
    own: Option<NetworkShard>,
    /// The rounds of the part that has the most.
    rounds: usize,
}

/// What one rank's tiles contribute to the image.
#[derive(Clone, Debug)]
pub struct LocalTiles {
    /// The tiles and what became of them, as [`Tiles::finish`] returns it.
    pub parts: Vec<(usize, Array)>,
    /// What tiles they are.
    pub tiles: Arc<dyn Tiles>,
}

impl DistributedDenoiser {
    /// What its tiles are for images of this shape, (batch, channel, spatial…).
    pub fn tiles(&self, image: &[usize]) -> Result<Arc<dyn Tiles>> {
        Ok(self.planned(image)?.tiles)
    }

    /// As [`denoise`](Denoiser::denoise), but each rank keeps what its tiles contribute. Nothing is sent, unless the
    /// denoiser is exact: then all ranks call it, and exchange halos.
    pub fn denoise_local(&self, image: &View, level: &NoiseLevel) -> Result<LocalTiles> {
        if self.is_exact(image.shape())? {
            return self.denoise_exact(image, level);
        }
        level.check(image.shape())?;
        let Planned { tiles, batch, shares, .. } = self.planned(image.shape())?;
        let share = &shares[self.ctx.rank()];
        let mut parts = Vec::with_capacity(share.len());
        for group in share.chunks(batch) {
            Stop::check()?;
            let results = self.workers.run(|| self.denoise_group(image, level, &*tiles, group))?;
            parts.extend(group.iter().copied().zip(results));
        }
        Ok(LocalTiles { parts, tiles })
    }

    /// All tiles of an only rank, each of which goes to its place as soon as it is denoised.
    fn denoise_alone(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        level.check(image.shape())?;
        let Planned { tiles, batch, shares, .. } = self.planned(image.shape())?;
        let mut result = Array::zeros(IxDyn(image.shape()));
        for group in shares.iter().flat_map(|share| share.chunks(batch)) {
            Stop::check()?;
            let parts = self.workers.run(|| self.denoise_group(image, level, &*tiles, group))?;
            let _span = self.ctx.span("stitch");
            for (tile, part) in group.iter().zip(parts) {
                tiles.place(slice_mut(&mut result), &slice(&part), *tile)?;
            }
        }
        Ok(result)
    }

    /// This rank's part of the whole image's result, while the other ranks compute theirs.
    fn denoise_exact(&self, image: &View, level: &NoiseLevel) -> Result<LocalTiles> {
        // Parts that run wait for each other, so all begin or none does. What fails after that fails between ranks.
        let ready = self.network().and_then(|network| network.check(image, level));
        let planned = agree(&self.ctx, ready.and_then(|()| self.planned(image.shape())))?;
        let Planned { tiles, exact: Some(exact), .. } = planned else {
            return Err(Error::argument("strategy", "tiles were planned for an exact denoiser"));
        };
        let axes = self.network()?.model().network().rank();
        let mut halo = RankHalo::new(&self.ctx, &exact.shards, axes);
        let Some(shard) = &exact.own else {
            halo.finish(exact.rounds)?;
            return Ok(LocalTiles { parts: Vec::new(), tiles });
        };
        let rank = self.ctx.rank();
        let _span = self.ctx.span("part");
        let levels = tile_levels(level, image.shape()[0], &*tiles, &[rank])?;
        // A part that is the whole image is no copy of it, if it may not be in memory.
        let is_whole = haloscope_scratch::is_active() && exact.shards.count() == 1;
        let part = if is_whole { None } else { Some(tiles.extract(image, rank)?) };
        let part = part.as_deref().unwrap_or(image);
        let trace = self.ctx.trace().filter(|trace| trace.wants_layers());
        let mut note = |layer: &str, length| {
            if let Some(trace) = trace {
                trace.note(layer.to_owned(), length);
            }
        };
        // Ranks talk from the thread that is theirs, so not in the pool; the engine has threads of its own.
        let result = shard.denoise(part, &levels, &mut halo, &mut note);
        let result = halo.failure().map_or(result, |error| Err(error.into()))?;
        halo.finish(exact.rounds)?;
        Ok(LocalTiles { parts: vec![(rank, result)], tiles })
    }

    /// The denoiser, as what can be exact in parts.
    fn network(&self) -> Result<&NetworkDenoiser> {
        self.denoiser.network().ok_or_else(|| {
            let name = self.denoiser.name();
            Error::argument(
                "strategy",
                format!("`exact` for {name}, which is no network; there are basic, overlap and blend for it"),
            )
        })
    }

    /// The parts of an image, of which this rank gets one.
    fn cut_exactly(&self, image: &[usize], shards: &Shards) -> Result<Planned> {
        let network = self.network()?;
        let (ranks, rank) = (self.ctx.size(), self.ctx.rank());
        let shards = Arc::new(network.cut(image, shards, ranks)?);
        let pass = network.pass(&shards)?;
        let count = shards.count();
        if count < ranks {
            let idle = format!(
                "the image can be cut into {count} parts for {ranks} ranks: ranks {count} to {} idle",
                ranks - 1
            );
            self.ctx.log_once(log::Level::Warn, idle);
        }
        let own = (rank < count).then(|| network.shard(&shards, rank, pass)).transpose()?;
        let share = |rank: usize| if rank < count { vec![rank] } else { Vec::new() };
        let shares = (0..ranks).map(share).collect();
        let exchanges = network.exchanges(&shards, pass)?;
        let rounds = exchanges.iter().map(|exchanges| exchanges.rounds).max().unwrap_or(0);
        let exact = Some(Arc::new(Exact { shards: shards.clone(), own, rounds }));
        Ok(Planned { tiles: shards, batch: 1, shares, exact })
    }

    /// The parts of some tiles, which the denoiser gets at once if they have one shape.
    fn denoise_group(
        &self,
        image: &View,
        level: &NoiseLevel,
        tiles: &dyn Tiles,
        group: &[usize],
    ) -> Result<Vec<Array>> {
        let cut = |tile: &usize| tiles.extract(image, *tile);
        let windows = group.iter().map(cut).collect::<Result<Vec<Array>>>()?;
        if windows.windows(2).any(|pair| pair[0].shape() != pair[1].shape()) {
            let alone = |tile: &usize| self.denoise_group(image, level, tiles, &[*tile]);
            return Ok(group.iter().map(alone).collect::<Result<Vec<_>>>()?.concat());
        }
        let first = group.first().copied().unwrap_or_default();
        let _span =
            self.ctx.span("tiles").with("first", first as f64).with("count", group.len() as f64);
        let levels = tile_levels(level, image.shape()[0], tiles, group)?;
        let views: Vec<_> = windows.iter().map(|window| window.view()).collect();
        let batch = concatenate(Axis(0), &views).expect("all windows have one shape");
        drop(windows);
        let shape = batch.shape().to_vec();
        let result = match self.ctx.trace().filter(|trace| trace.wants_layers()) {
            None => self.denoiser.denoise(&batch, &levels)?,
            Some(trace) => {
                let mut note = |layer: &str, length| trace.note(layer.to_owned(), length);
                self.denoiser.denoise_observed(&batch, &levels, &mut note)?
            }
        };
        if result.shape() != shape {
            return Err(Error::Shape {
                what: format!("the result of {}", self.denoiser.name()),
                expected: format!("it was given {shape:?}"),
                found: result.shape().to_vec(),
            });
        }
        let images = image.shape()[0];
        let part = |(index, tile): (usize, &usize)| {
            let range = index * images..(index + 1) * images;
            let result = result.slice_axis(Axis(0), Slice::from(range)).to_owned();
            tiles.finish(result, *tile)
        };
        group.iter().enumerate().map(part).collect()
    }

    fn planned(&self, image: &[usize]) -> Result<Planned> {
        let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planned) = &*planned
            && planned.tiles.image_shape() == image
        {
            return Ok(planned.clone());
        }
        // The plan of another shape goes before a new one takes memory.
        *planned = None;
        let choice = self.choice(image)?;
        if let Some(choice) = choice.as_ref().filter(|choice| choice.is_exact()) {
            let made = self.cut_exactly(image, &choice.tiling.shards)?;
            *planned = Some(made.clone());
            return Ok(made);
        }
        let (tiles, batch): (Arc<dyn Tiles>, usize) = match &self.options.cutting {
            Cutting::Tiling(given) => {
                let tiling = choice.as_ref().map_or(given, |choice| &choice.tiling);
                let plan = tiling.plan_for(image, &*self.denoiser, self.ctx.size())?;
                for note in plan.notes() {
                    self.ctx.log_once(log::Level::Warn, note);
                }
                let batch = plan.batch_for(&*self.denoiser)?;
                (Arc::new(plan), batch)
            }
            Cutting::Custom(tiles, batch) if tiles.image_shape() == image => {
                (tiles.clone(), *batch)
            }
            Cutting::Custom(tiles, _) => {
                return Err(Error::Shape {
                    what: "the image to cut into tiles".into(),
                    expected: format!("the tiles are of {:?}", tiles.image_shape()),
                    found: image.to_vec(),
                });
            }
        };
        let shares = self.shares(&*tiles)?.into();
        let made = Planned { tiles, batch: batch.max(1), shares, exact: None };
        *planned = Some(made.clone());
        Ok(made)
    }

    /// How images of this shape are cut, and why; `None` if tiles of another kind are given.
    pub fn choice(&self, image: &[usize]) -> Result<Option<Choice>> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((shape, choice)) = &*chosen
            && shape == image
        {
            return Ok(choice.clone());
        }
        let choice = match &self.options.cutting {
            Cutting::Tiling(tiling) => Some(tiling.choose(image, &*self.denoiser)?),
            Cutting::Custom(..) => None,
        };
        *chosen = Some((image.to_vec(), choice.clone()));
        Ok(choice)
    }

    fn is_exact(&self, image: &[usize]) -> Result<bool> {
        Ok(self.choice(image)?.is_some_and(|choice| choice.is_exact()))
    }

    fn shares(&self, tiles: &dyn Tiles) -> Result<Vec<Vec<usize>>> {
        let (count, ranks) = (tiles.count(), self.ctx.size());
        if count < ranks {
            let idle = ranks - count;
            let have = if idle == 1 { "has" } else { "have" };
            let message = format!(
                "{idle} of {ranks} ranks {have} no tiles (tiles: {count}); a smaller patch makes more"
            );
            self.ctx.log_once(log::Level::Warn, message);
        }
        self.options.dealing.shares(tiles, ranks)
    }

    /// All ranks' parts, put together; of an only rank, the one of an exact denoiser.
    fn join(&self, shape: &[usize], local: LocalTiles, shares: &[Vec<usize>]) -> Result<Array> {
        let _span = self.ctx.span("stitch");
        let LocalTiles { parts, tiles } = local;
        let planes = shape[0] * shape[1];
        let blank = || Array::zeros(IxDyn(shape));
        if self.ctx.size() == 1 {
            if let [(_, part)] = &parts[..]
                && haloscope_scratch::is_active()
                && part.shape() == shape
            {
                return Ok(parts.into_iter().map(|(_, part)| part).next().unwrap_or_default());
            }
            let mut image = blank();
            let pixels = slice_mut(&mut image);
            for (tile, part) in parts {
                tiles.place(pixels, &slice(&part), tile)?;
            }
            return Ok(image);
        }
        let len = |tile: &usize| planes * tiles.part_len(*tile);
        let counts: Vec<usize> = shares.iter().map(|share| share.iter().map(len).sum()).collect();
        let mut mine = Vec::with_capacity(counts[self.ctx.rank()]);
        for (_, part) in parts {
            mine.extend(part.iter());
        }
        let mut all = vec![0.0_f32; counts.iter().sum()];
        self.ctx.comm().all_gather_into(&mine, &counts, &mut all)?;
        // The image comes after what it is made of has been received, so that the two are never there with a third.
        drop(mine);
        let mut image = blank();
        let pixels = slice_mut(&mut image);
        let mut placed = vec![0..0; tiles.count()];
        let mut begin = 0;
        for tile in shares.iter().flatten() {
            placed[*tile] = begin..begin + len(tile);
            begin = placed[*tile].end;
        }
        for (tile, range) in placed.into_iter().enumerate() {
            tiles.place(pixels, &all[range], tile)?;
        }
        Ok(image)
    }
}

/// The levels of a batch of tiles.
fn tile_levels(
    level: &NoiseLevel,
    images: usize,
    tiles: &dyn Tiles,
    group: &[usize],
) -> Result<NoiseLevel> {
    Ok(match level {
        NoiseLevel::Uniform(level) => NoiseLevel::Uniform(*level),
        NoiseLevel::PerImage(levels) => NoiseLevel::PerImage(levels.repeat(group.len())),
        NoiseLevel::Map(map) => {
            let mut cut = Vec::with_capacity(group.len());
            for tile in group {
                let window = tiles.extract(map, *tile)?;
                let mut full = window.shape().to_vec();
                full[0] = images;
                cut.push(
                    window.broadcast(IxDyn(&full)).expect("one map or one for each").to_owned(),
                );
            }
            let views: Vec<_> = cut.iter().map(|window| window.view()).collect();
            NoiseLevel::Map(concatenate(Axis(0), &views).expect("all windows have one shape"))
        }
    })
}

impl Denoiser for DistributedDenoiser {
    fn name(&self) -> &str {
        self.denoiser.name()
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        let _span = self.ctx.span("denoise");
        let is_exact = self.is_exact(image.shape())?;
        if self.ctx.size() == 1 && !is_exact {
            return self.denoise_alone(image, level);
        }
        let local = self.denoise_local(image, level);
        // The ranks of an exact denoiser have agreed before they began.
        let local = if is_exact { local? } else { agree(&self.ctx, local)? };
        let shares = self.planned(image.shape())?.shares;
        self.join(image.shape(), local, &shares)
    }

    fn alignment(&self) -> usize {
        self.denoiser.alignment()
    }

    fn sides(&self) -> Option<usize> {
        self.denoiser.sides()
    }

    fn work(&self, image: &[usize]) -> Result<Work> {
        let Planned { tiles, shares, .. } = self.planned(image)?;
        let share = &shares[self.ctx.rank()];
        Ok(Work {
            computed: share.iter().map(|tile| tiles.cost(*tile)).sum::<f64>() as u64,
            kept: share.iter().map(|tile| tiles.part_len(*tile) as u64).sum(),
        })
    }
}

impl fmt::Debug for DistributedDenoiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedDenoiser")
            .field("denoiser", &self.denoiser)
            .field("options", &self.options)
            .field("ranks", &self.ctx.size())
            .finish_non_exhaustive()
    }
}

impl<D: Denoiser + 'static> Distribute for D {
    type Options = DenoiserOptions;
    type Output = DistributedDenoiser;

    fn distribute(self, ctx: &Context, options: DenoiserOptions) -> Result<DistributedDenoiser> {
        if let Cutting::Tiling(Tiling { batch: Batch::AtMost(0), .. }) | Cutting::Custom(_, 0) =
            &options.cutting
        {
            let reason = "batches of at most 0 tiles; at least 1 is needed";
            return Err(Error::argument("tiling", reason));
        }
        let workers = agree(ctx, Workers::new(ctx))?;
        let (ctx, denoiser) = (ctx.clone(), Arc::new(self));
        let (chosen, planned) = (Mutex::default(), Mutex::default());
        Ok(DistributedDenoiser { ctx, workers, denoiser, options, chosen, planned })
    }
}

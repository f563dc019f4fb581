//! Forecasts the work, the memory and the messages of each rank before a reconstruction runs.
//!
//! Everything follows from shapes: a [`Workload`] has no measurements and its weights do not matter, and a [`Forecast`] takes
//! milliseconds once the network is planned. Messages are exact to the byte, except for methods and priors with inner iterations,
//! where they are an upper bound. Memory is that of the arrays and the network when a rank holds the most. The program itself and
//! the tables of operators are not included, nor is what the system's allocator keeps: up to a third more for arrays of less
//! than 32 MB.

mod communication;
mod memory;
mod shards;

use std::ops::Range;

use haloscope_comm::partition;

use crate::denoise::{
    Axes, Exchanges, NetworkDenoiser, NetworkShard, Pass, TotalVariation, Wavelets,
};
use crate::distribute::Dealing;
use crate::error::{Error, Result};
use crate::solve::{Analysis, DataUse, PriorKind, Priors};
use crate::tiling::{Choice, ShardPlan, TilePlan, Tiles, Tiling};
use communication::DataTerm;

pub use crate::solve::Method;
pub use memory::Memory;

/// More than any machine holds; sums of a few of them do not overflow.
const MOST_ELEMENTS: f64 = 1e13;

/// A reconstruction as it would be asked for. Operators are dealt to the ranks one after the other.
///
/// ```
/// use haloscope::denoise::{Axes, NetworkDenoiser};
/// use haloscope::forecast::{Denoising, Workload, PriorWork};
/// use haloscope::tiling::{Strategy, Tiling};
/// use haloscope_nn::engine::EngineOptions;
/// use haloscope_nn::models::{Architecture, Dncnn};
///
/// let model = Dncnn { depth: 4, channels: 16, ..Dncnn::default() }.random(1)?;
/// let denoiser = NetworkDenoiser::new(model, EngineOptions::default())?;
/// let tiling = Tiling { patch: 64.into(), overlap: 8.into(), ..Tiling::new(Strategy::Overlap) };
/// let job = Workload {
///     image: vec![1, 3, 128, 128],
///     measurements: vec![vec![3, 128, 128]; 3],
///     ranks: 2,
///     method: "pgd".parse()?,
///     inner_iterations: 0,
///     subsets: 1,
///     prior: PriorWork::Network(Denoising { denoiser: &denoiser, tiling, has_range: false, axes: Axes::Axial }),
/// };
/// let forecast = job.forecast()?;
/// assert_eq!(forecast.ranks[0].operators, 2);
/// assert_eq!(forecast.ranks[1].tiles, 2);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    /// The shape of the images, (batch, channel, spatial…).
    pub image: Vec<usize>,
    /// The shape of each operator's measurement, without the batch.
    pub measurements: Vec<Vec<usize>>,
    /// How many ranks.
    pub ranks: usize,
    /// The method.
    pub method: Method,
    /// The most iterations for a prox of the data term, of the methods that take one.
    pub inner_iterations: usize,
    /// The ordered subsets of the operators, of the methods that have them; 1 for all others.
    pub subsets: usize,
    /// What the method knows of images.
    pub prior: PriorWork<'a>,
}

/// A prior, as far as it matters what it takes.
#[derive(Clone, Debug)]
pub enum PriorWork<'a> {
    /// None.
    None,
    /// Total variation, whose rows are shared by the ranks where a method takes its prox
    /// ([`DistributedTotalVariation`](crate::distribute::DistributedTotalVariation)).
    TotalVariation {
        /// How its prox is computed.
        denoiser: TotalVariation,
        /// Whether images are clamped around it.
        has_range: bool,
    },
    /// Wavelets, of which every rank computes all.
    Wavelets {
        /// The bases, the range, and how a prox is computed.
        denoiser: Wavelets,
    },
    /// A network, whose tiles or parts of the image are dealt to the ranks.
    Network(Denoising<'a>),
}

/// A network over ranks.
#[derive(Clone, Debug)]
pub struct Denoising<'a> {
    /// The network.
    pub denoiser: &'a NetworkDenoiser,
    /// How images are cut.
    pub tiling: Tiling,
    /// Whether images are clamped or scaled around the network ([`Range`](crate::solve::Range)), which takes a copy of them.
    pub has_range: bool,
    /// The slices of volumes that a network of pictures sees.
    pub axes: Axes,
}

/// What a [`Workload`] will take.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The tiles, if there is a denoiser that takes some.
    pub tiles: Option<TilePlan>,
    /// The parts of the image, if there is a denoiser that is exact.
    pub shards: Option<ShardPlan>,
    /// Which of the two it is, and why.
    pub choice: Option<Choice>,
    /// How an exact denoiser runs on its parts.
    pub pass: Pass,
    /// The tiles that the network gets at once.
    pub batch: usize,
    /// Floating-point operations of the network for all tiles, by the definition of its layers.
    pub flops: f64,
    /// Each rank's part.
    pub ranks: Vec<Share>,
}

/// What one rank has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Its operators.
    pub operators: usize,
    /// Its tiles.
    pub tiles: usize,
    /// The pixels that its network computes, in fair shares of the image's: 1 without overlap on ranks of equal work, 0
    /// without a network.
    pub load: f64,
    /// The most bytes that it holds at once, if it is a process of its own.
    pub memory: Memory,
    /// What its part of an exact denoiser exchanges with its neighbours in one iteration.
    pub exchanges: Exchanges,
    /// The bytes that it sends in one iteration; the most, if the method takes a prox of the data term or of total variation.
    pub bytes_sent: u64,
    /// The bytes that go to its device and back in one iteration, if that has memory of its own.
    pub device_traffic: u64,
}

impl Forecast {
    /// The load of the rank that has the most to do.
    #[must_use]
    pub fn largest_load(&self) -> f64 {
        self.ranks.iter().map(|share| share.load).fold(0.0, f64::max)
    }

    /// The bytes of the rank that needs the most.
    #[must_use]
    pub fn largest_memory(&self) -> usize {
        self.ranks.iter().map(|share| share.memory.total()).max().unwrap_or(0)
    }

    /// The bytes of a process with these ranks as its threads, which have the weights of the network once.
    #[must_use]
    pub fn process_memory(&self, ranks: Range<usize>) -> usize {
        let ranks = self.ranks.get(ranks).unwrap_or(&[]);
        let own: usize =
            ranks.iter().map(|share| share.memory.total() - share.memory.weights).sum();
        own + ranks.iter().map(|share| share.memory.weights).max().unwrap_or(0)
    }

    /// The bytes in the memory of the device of the rank that needs the most there.
    #[must_use]
    pub fn largest_device_memory(&self) -> usize {
        self.ranks.iter().map(|share| share.memory.device).max().unwrap_or(0)
    }

    /// The bytes of the rank that moves the most to its device and back in one iteration.
    #[must_use]
    pub fn largest_device_traffic(&self) -> u64 {
        self.ranks.iter().map(|share| share.device_traffic).max().unwrap_or(0)
    }

    /// The exchanges of the rank that has the most, and of the one that sends the most.
    #[must_use]
    pub fn largest_exchanges(&self) -> Exchanges {
        let most = |of: fn(&Exchanges) -> u64| {
            self.ranks.iter().map(|share| of(&share.exchanges)).max().unwrap_or(0)
        };
        Exchanges {
            rounds: most(|exchanges| exchanges.rounds as u64) as usize,
            messages: most(|exchanges| exchanges.messages as u64) as usize,
            bytes_sent: most(|exchanges| exchanges.bytes_sent),
        }
    }

    /// The bytes that all ranks send in one iteration.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.ranks.iter().map(|share| share.bytes_sent).sum()
    }
}

/// What the ranks do of a denoiser's work.
struct Denoised {
    choice: Choice,
    tiles: Option<TilePlan>,
    shards: Option<(ShardPlan, Pass)>,
    batch: usize,
    flops: f64,
    ranks: Vec<DenoisedPart>,
    /// The elements that each rank contributes to the image, for each time that it is denoised.
    passes: Vec<Vec<usize>>,
}

/// What one rank does of it.
struct DenoisedPart {
    /// Its tiles, or its part of the image.
    tiles: usize,
    load: f64,
    /// The most elements that it contributes to the image at once.
    elements: usize,
    exchanges: Exchanges,
    /// The bytes to a device and back.
    device_traffic: u64,
    memory: memory::Network,
}

impl Workload<'_> {
    /// What it will take. Plans the network for the shape of its tiles.
    pub fn forecast(&self) -> Result<Forecast> {
        self.check()?;
        let terms: Vec<usize> = (0..self.ranks)
            .map(|rank| partition::round_robin(self.measurements.len(), rank, self.ranks).count())
            .collect();
        let denoised = self.network().map(|network| self.cut(network)).transpose()?;
        let elements: usize = self.image.iter().product();
        let part = |rank: usize| denoised.as_ref().map(|denoised| &denoised.ranks[rank]);
        let passes = denoised.as_ref().map_or(&[][..], |denoised| &denoised.passes);
        let mut sent = if self.method.data_term == DataUse::Nothing {
            // Every rank computes it for itself.
            vec![0; self.ranks]
        } else {
            let row = self.image.last().copied().unwrap_or(1);
            communication::iteration(elements, row, &terms, self.data_term(), passes)
        };
        if let Some(denoiser) = self.shared_variation() {
            let more = communication::total_variation(&self.image, self.ranks, denoiser.iterations);
            sent.iter_mut().zip(more).for_each(|(sent, more)| *sent = sent.saturating_add(more));
        }
        let memory = self.memory(denoised.as_ref(), None);
        let exchanges = |rank: usize| part(rank).map(|part| part.exchanges).unwrap_or_default();
        let share = |rank: usize| Share {
            operators: terms[rank],
            tiles: part(rank).map_or(0, |part| part.tiles),
            load: part(rank).map_or(0.0, |part| part.load),
            memory: memory[rank],
            exchanges: exchanges(rank),
            bytes_sent: sent[rank] + exchanges(rank).bytes_sent,
            device_traffic: part(rank).map_or(0, |part| part.device_traffic),
        };
        let (shards, pass) = denoised.as_ref().and_then(|denoised| denoised.shards.clone()).unzip();
        Ok(Forecast {
            flops: denoised.as_ref().map_or(0.0, |denoised| denoised.flops),
            batch: denoised.as_ref().map_or(0, |denoised| denoised.batch),
            ranks: (0..self.ranks).map(share).collect(),
            choice: denoised.as_ref().map(|denoised| denoised.choice.clone()),
            shards,
            pass: pass.unwrap_or_default(),
            tiles: denoised.and_then(|denoised| denoised.tiles),
        })
    }

    fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(Error::argument("forecast", reason));
        if self.ranks == 0 || self.measurements.is_empty() {
            let (ranks, operators) = (self.ranks, self.measurements.len());
            return bad(format!("{ranks} ranks and {operators} operators; at least 1 of each"));
        }
        if self.image.len() < 3 || self.image.contains(&0) {
            return bad(format!(
                "images of shape {:?}; (batch, channel, spatial…) is needed",
                self.image
            ));
        }
        let elements = |shape: &[usize]| shape.iter().map(|side| *side as f64).product::<f64>();
        let measured: f64 = self.measurements.iter().map(|shape| elements(shape)).sum();
        if elements(&self.image).max(measured * self.image[0] as f64) > MOST_ELEMENTS {
            let image = &self.image;
            return bad(format!(
                "images of shape {image:?} with {measured:e} measured values; at most {MOST_ELEMENTS:e} of each"
            ));
        }
        self.method.check_prior(match &self.prior {
            PriorWork::None => PriorKind::None,
            PriorWork::TotalVariation { .. } => PriorKind::TotalVariation,
            PriorWork::Wavelets { .. } => PriorKind::Wavelets,
            PriorWork::Network(_) => PriorKind::Network,
        })
    }

    fn network(&self) -> Option<&Denoising<'_>> {
        match &self.prior {
            PriorWork::Network(network) => Some(network),
            PriorWork::None | PriorWork::TotalVariation { .. } | PriorWork::Wavelets { .. } => None,
        }
    }

    /// The map whose dual a primal-dual method has.
    fn analysis(&self) -> Analysis {
        match &self.prior {
            PriorWork::Wavelets { denoiser } => Analysis::Wavelets(*denoiser),
            _ => Analysis::Differences,
        }
    }

    /// Total variation whose prox the method takes.
    fn shared_variation(&self) -> Option<&TotalVariation> {
        match &self.prior {
            PriorWork::TotalVariation { denoiser, .. }
                if self.method.priors != Priors::Analysis =>
            {
                Some(denoiser)
            }
            _ => None,
        }
    }

    /// How often, and with what, the ranks talk about the data term.
    fn data_term(&self) -> DataTerm {
        match self.method.data_term {
            DataUse::Prox => DataTerm::Prox { iterations: self.inner_iterations },
            DataUse::Normal => DataTerm::Normal,
            DataUse::Dual => DataTerm::Dual,
            DataUse::Subsets { .. } => DataTerm::Subsets { count: self.subsets.max(1) },
            DataUse::Gradient { values } => DataTerm::Gradient { values },
            DataUse::Nothing => DataTerm::Gradient { values: 0 },
        }
    }

    /// What all slices that the network sees take. The tiles or parts are those of the slices along depth.
    fn cut(&self, network: &Denoising<'_>) -> Result<Denoised> {
        network.axes.check(network.denoiser, &self.image)?;
        let mut all = self.cut_along(network)?;
        let window =
            |denoised: &Denoised| denoised.tiles.as_ref().map(|plan| plan.window().to_vec());
        let mut windows = vec![window(&all)];
        for image in network.axes.shapes(&self.image).into_iter().skip(1) {
            let turned = Workload { image, ..self.clone() }.cut_along(network)?;
            let own = window(&turned);
            // A network keeps its plans for tiles of some shapes; parts of the image have one plan at a time.
            let is_kept = own.is_some() && !windows.contains(&own);
            windows.push(own);
            all.flops += turned.flops;
            all.passes.extend(turned.passes);
            for (sum, more) in all.ranks.iter_mut().zip(turned.ranks) {
                sum.tiles += more.tiles;
                sum.load += more.load;
                sum.elements = sum.elements.max(more.elements);
                sum.exchanges = sum.exchanges + more.exchanges;
                sum.device_traffic += more.device_traffic;
                sum.memory = if is_kept {
                    sum.memory.and(more.memory)
                } else {
                    sum.memory.most(more.memory)
                };
            }
        }
        Ok(all)
    }

    /// The tiles or parts, dealt as [`DistributedDenoiser`](crate::distribute::DistributedDenoiser) deals them.
    fn cut_along(&self, network: &Denoising<'_>) -> Result<Denoised> {
        let choice = network.tiling.choose(&self.image, network.denoiser)?;
        if choice.is_exact() {
            return self.cut_exactly(network.denoiser, choice);
        }
        let plan = choice.tiling.plan_for(&self.image, network.denoiser, self.ranks)?;
        let shares = Dealing::default().shares(&plan, self.ranks)?;
        let batch = plan.batch_for(network.denoiser)?;
        let planes = self.image[0] * self.image[1];
        let each = plan.work_multiplier() * self.ranks as f64 / plan.len() as f64;
        let windows = self.windows(&plan, batch);
        let memory = Self::tile_memory(network.denoiser, &windows)?;
        let run = network.denoiser.plan(&windows)?;
        // A gray network runs once for each channel or slice.
        let runs = windows.iter().product::<usize>() / run.output_shape().count().max(1);
        let values = runs * (run.input_shape().count() + run.output_shape().count()) / batch.max(1);
        let moved = if memory.has_device() { 4 * values as u64 } else { 0 };
        let ranks = (shares.iter())
            .map(|share| DenoisedPart {
                tiles: share.len(),
                load: share.len() as f64 * each,
                elements: share.iter().map(|tile| planes * plan.part_len(*tile)).sum(),
                exchanges: Exchanges::default(),
                device_traffic: moved * share.len() as u64,
                memory: memory.for_tiles(share.len(), batch),
            })
            .collect::<Vec<DenoisedPart>>();
        let passes = vec![ranks.iter().map(|part| part.elements).collect()];
        let flops = run.flops() * runs as f64 / batch.max(1) as f64 * plan.len() as f64;
        Ok(Denoised { choice, tiles: Some(plan), shards: None, batch, flops, ranks, passes })
    }

    /// One part of the image for each rank, as far as there are enough.
    fn cut_exactly(&self, denoiser: &NetworkDenoiser, choice: Choice) -> Result<Denoised> {
        let shards = denoiser.cut(&self.image, &choice.tiling.shards, self.ranks)?;
        let pass = denoiser.pass(&shards)?;
        let planes = self.image[0] * self.image[1];
        let mut flops = 0.0;
        let mut ranks = Vec::with_capacity(self.ranks);
        // Parts of one shape that are cut at the same sides cost the same, and those that are kept share their weights.
        let mut kinds: Vec<Vec<(usize, [bool; 2])>> = Vec::new();
        let mut planned: Vec<NetworkShard> = Vec::new();
        for rank in 0..self.ranks {
            if rank >= shards.count() {
                let memory = Self::shard_memory(denoiser, None, 0);
                let exchanges = Exchanges::default();
                let (tiles, load, elements, device_traffic) = (0, 0.0, 0, 0);
                ranks.push(DenoisedPart {
                    tiles,
                    load,
                    elements,
                    exchanges,
                    device_traffic,
                    memory,
                });
                continue;
            }
            let kind = shards.kind(rank);
            let index = kinds.iter().position(|other| *other == kind).unwrap_or(kinds.len());
            if index == kinds.len() {
                kinds.push(kind);
                planned.push(denoiser.shard(&shards, rank, pass)?);
            }
            let own = &planned[index];
            let elements = planes * shards.part_len(rank);
            flops += own.flops();
            ranks.push(DenoisedPart {
                tiles: 1,
                load: shards.load(rank, self.ranks),
                elements,
                exchanges: own.exchanges(),
                // Engines with a device have tiles.
                device_traffic: 0,
                memory: Self::shard_memory(denoiser, Some(own), elements),
            });
        }
        let passes = vec![ranks.iter().map(|part| part.elements).collect()];
        let shards = Some((shards, pass));
        Ok(Denoised { choice, tiles: None, shards, batch: 1, flops, ranks, passes })
    }

    /// The shape of so many windows at once.
    fn windows(&self, plan: &TilePlan, count: usize) -> Vec<usize> {
        let mut shape = vec![self.image[0] * count, self.image[1]];
        shape.extend(plan.window());
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve::{Landweber, PrimalDual, RedGradient};

    fn total_variation(ranks: usize, operators: usize) -> Workload<'static> {
        Workload {
            image: vec![1, 1, 32, 32],
            measurements: vec![vec![1, 32, 32]; operators],
            ranks,
            method: PrimalDual::METHOD,
            inner_iterations: 0,
            subsets: 1,
            prior: variation(),
        }
    }

    fn variation() -> PriorWork<'static> {
        PriorWork::TotalVariation { denoiser: TotalVariation::default(), has_range: false }
    }

    #[test]
    fn one_rank_sends_nothing_and_more_hold_less() {
        let alone = total_variation(1, 4).forecast().expect("a job");
        let four = total_variation(4, 4).forecast().expect("a job");
        assert_eq!(alone.bytes_sent(), 0);
        assert!(four.bytes_sent() > 0 && four.largest_memory() < alone.largest_memory());
        assert!(four.ranks.iter().all(|share| share.operators == 1 && share.load == 0.0));
    }

    #[test]
    fn back_projection_holds_the_image_and_own_measurements() {
        let job = Workload {
            method: "fdk".parse().expect("a method"),
            prior: PriorWork::None,
            ..total_variation(3, 4)
        };
        let forecast = job.forecast().expect("a job");
        assert_eq!(forecast.bytes_sent(), 0);
        // Four operators on three ranks.
        let held: Vec<usize> = forecast.ranks.iter().map(|share| share.memory.total()).collect();
        assert_eq!(held, [3, 2, 2].map(|arrays| arrays * 4 * 32 * 32));
        let job = Workload { prior: variation(), ..job };
        assert!(job.forecast().expect_err("a prior").to_string().contains("takes no prior"));
    }

    #[test]
    fn threads_of_one_process_have_the_weights_once() {
        let mut forecast = total_variation(3, 4).forecast().expect("a job");
        let without: usize = forecast.ranks.iter().map(|share| share.memory.total()).sum();
        assert_eq!(forecast.process_memory(0..3), without);
        for share in &mut forecast.ranks {
            share.memory.weights = 1000;
        }
        assert_eq!(forecast.process_memory(0..3), without + 1000);
        assert_eq!(forecast.process_memory(1..2), forecast.ranks[1].memory.total());
    }

    #[test]
    fn jobs_that_make_no_sense_are_refused() {
        let job = total_variation(1, 1);
        for (job, words) in [
            (Workload { ranks: 0, ..job.clone() }, "at least 1"),
            (Workload { measurements: vec![], ..job.clone() }, "at least 1"),
            (Workload { image: vec![3, 3], ..job.clone() }, "(batch, channel, spatial…)"),
            (Workload { image: vec![1, 1, 1 << 31, 1 << 31], ..job.clone() }, "at most 1e13"),
            (
                Workload { measurements: vec![vec![1 << 40, 1 << 24]], ..job.clone() },
                "at most 1e13",
            ),
            (Workload { method: Landweber::METHOD, ..job.clone() }, "takes no prior"),
            (Workload { prior: PriorWork::None, ..job.clone() }, "takes total variation"),
            (
                Workload { method: RedGradient::METHOD, prior: PriorWork::None, ..job.clone() },
                "needs a prior that denoises",
            ),
        ] {
            let error = job.forecast().expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = "newton".parse::<Method>().expect_err("unknown").to_string();
        assert!(error.contains("pgd, fista, hqs"), "{error}");
    }
}

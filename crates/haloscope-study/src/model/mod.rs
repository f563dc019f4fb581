//! Predicts the time of an iteration on more ranks than are available.
//!
//! The seconds per pixel of one operator, of the network and of the vector operations are taken from measurements on the
//! fewest ranks, the cost of messages from a [`Cluster`], and how much ranks of a node slow each other down from problems that were
//! measured side by side ([`Contention`]). The rest is counting: which rank has the most operators and the
//! most pixels to denoise, and what it sends and receives. Parts and bytes are those that the plan of the job says.
//! [`validate`] compares predictions with measurements.
//!
//! For an image that every rank holds ([`Layout::Replicated`]), the ranks add up their operators' images and send
//! each other their tiles or parts: see the `README.md` of `haloscope::distribute`. For one in shards ([`Layout::Sharded`]),
//! they exchange borders with their neighbours only, and the network is exact; operators that see all of the image add up
//! their measurements.
//!
//! A prediction has an interval for what is not known: the costs, within the intervals of their medians; the slowdown, from none
//! to the worst that was measured; and messages, which may take up to twice what latency and bandwidth say.

mod cluster;
mod contention;
mod traffic;
mod validation;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::figures::{Summary, summarise};
use crate::problem::{self, Size};
use crate::row::{Backend, Configuration, Mode, Row, SYSTEM, Study};
use crate::tiles;
use crate::trial::Settings;
use haloscope::denoise::Exchanges;
use haloscope::physics::Reach;
use haloscope_job::{Distribution, Expected, Operators, Outlook};
use traffic::{Call, Shard, Traffic};

pub use crate::row::Layout;
pub use cluster::Cluster;
pub use contention::{Contention, Slowdown};
pub use validation::{Unseen, VALIDATION, Validation, validate, write_validation};

/// Seconds of the parts of an iteration, on one rank that computes alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The gradient of one operator's data term, per pixel of the image.
    pub operator_per_pixel: f64,
    /// The network, per pixel that it computes.
    pub network_per_pixel: f64,
    /// What is done to the image besides, per pixel.
    pub rest_per_pixel: f64,
    /// The interval of the median that they come from, in parts of the median.
    pub spread: (f64, f64),
}

/// The most that messages may take, in parts of what latency and bandwidth say.
const MOST_TRANSFER: f64 = 2.0;

/// What plans say of numbers of ranks.
type Known = HashMap<(Layout, usize), Arc<Expected>>;

/// What there is to do in an iteration.
#[derive(Clone, Debug)]
pub struct Workload {
    configuration: Configuration,
    /// Spatial sides.
    sides: Vec<usize>,
    channels: usize,
    operators: Operators,
    distribute: Distribution,
    /// How many tiles there are, and the pixels of their windows; none if the network is exact.
    tiles: Option<(usize, f64)>,
    /// What the jobs in both layouts take, opened where it matters.
    replicated: Arc<OnceLock<Outlook>>,
    sharded: Arc<OnceLock<Outlook>>,
    /// What they say of numbers of ranks that were asked for; a plan of many ranks takes a second.
    expected: Arc<Mutex<Known>>,
}

/// The seconds of one iteration on the rank with the most to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The whole of it.
    pub total: f64,
    /// The least of what is possible, as far as that is known.
    pub low: f64,
    /// The most of it.
    pub high: f64,
    /// The data term, with its messages.
    pub data: f64,
    /// The denoiser, with its messages.
    pub prior: f64,
    /// The messages.
    pub transfer: f64,
    /// What the rank sends.
    pub bytes_sent: f64,
    /// What it holds, if it is a process of its own.
    pub memory_bytes: Option<u64>,
    /// Whether the same problem was measured side by side on as many ranks of a node.
    pub has_own_contention: bool,
}

/// What the rank with the most to do computes, in pixels.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Of all of its operators.
    operators: f64,
    /// Of the network.
    denoised: f64,
    /// Of the image.
    rest: f64,
}

impl Workload {
    /// That of a configuration of a reconstruction.
    pub fn of(configuration: &Configuration) -> Result<Self> {
        let missing = |what: &'static str| Error::argument(what, "none is given; a model needs it");
        let problem = configuration.problem.ok_or_else(|| missing("problem"))?;
        let operators = configuration.job(&Settings::default(), None)?.build()?.operators()?;
        let tiles = if configuration.patch.is_some() {
            let plan = tiles::plan(configuration)?;
            Some((plan.len(), plan.window().iter().map(|side| *side as f64).product()))
        } else {
            None
        };
        Ok(Self {
            configuration: configuration.clone(),
            sides: configuration.sides(),
            channels: problem.channels(),
            operators,
            distribute: configuration.distribute.unwrap_or_default(),
            tiles,
            replicated: Arc::default(),
            sharded: Arc::default(),
            expected: Arc::default(),
        })
    }

    fn pixels(&self) -> f64 {
        self.sides.iter().map(|side| *side as f64).product()
    }

    /// What the plan of the job says of so many ranks.
    pub fn expect(&self, layout: Layout, ranks: usize) -> Result<Arc<Expected>> {
        let mut known = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(expected) = known.get(&(layout, ranks)) {
            return Ok(Arc::clone(expected));
        }
        let expected = Arc::new(self.outlook(layout)?.expect(ranks)?);
        known.insert((layout, ranks), Arc::clone(&expected));
        Ok(expected)
    }

    /// The job in a layout, opened once.
    fn outlook(&self, layout: Layout) -> Result<&Outlook> {
        let known = match layout {
            Layout::Replicated => &self.replicated,
            Layout::Sharded => &self.sharded,
        };
        if let Some(outlook) = known.get() {
            return Ok(outlook);
        }
        let mut configuration =
            Configuration { layout: Some(layout), ..self.configuration.clone() };
        if layout == Layout::Sharded {
            (configuration.patch, configuration.overlap, configuration.batch) = (None, None, None);
        }
        let job = configuration.job(&Settings::default(), None)?.without("output").build()?;
        let outlook = job.outlook(configuration.threads)?;
        Ok(known.get_or_init(|| outlook))
    }

    /// What the rank with the most to do computes.
    fn most(&self, layout: Layout, ranks: usize) -> Result<Work> {
        let (pixels, all) = (self.pixels(), self.operators.count as f64);
        if layout == Layout::Sharded {
            let shard = self.shard(layout, ranks)?;
            // Every rank applies all operators to its shard, and those that see a neighbourhood to a border, too.
            let area = match self.operators.reach {
                Reach::Local(radius) => (shard.pixels() + shard.border(radius)).min(pixels),
                Reach::Everywhere => shard.pixels(),
            };
            let (denoised, rest) = (shard.pixels(), shard.pixels());
            return Ok(Work { operators: all * area, denoised, rest });
        }
        let share = |count: usize| count.div_ceil(ranks) as f64;
        let own = share(self.operators.count);
        let whole = self.tiles.map_or(pixels, |(tiles, window)| tiles as f64 * window);
        let shared = match self.tiles {
            Some((tiles, window)) => share(tiles) * window,
            None if ranks == 1 => pixels,
            None => self.shard(layout, ranks)?.pixels(),
        };
        let (operators, denoised) = match self.distribute {
            Distribution::Both => (own, shared),
            Distribution::Physics => (own, whole),
            Distribution::Denoiser => (all, shared),
        };
        Ok(Work { operators: operators * pixels, denoised, rest: pixels })
    }

    /// The largest part of the image on so many ranks, with the exchanges of the busiest.
    fn shard(&self, layout: Layout, ranks: usize) -> Result<Shard> {
        let expected = self.expect(layout, ranks)?;
        let forecast = &expected.forecast;
        let Some(plan) = &forecast.shards else {
            return Err(Error::argument("network", "it is not exact, and the image has no parts"));
        };
        let exchanges: Vec<Exchanges> = forecast.ranks.iter().map(|rank| rank.exchanges).collect();
        Ok(Shard::new(plan, &exchanges))
    }

    fn image_bytes(&self) -> f64 {
        4.0 * self.channels as f64 * self.pixels()
    }

    /// The messages of the data term and of the denoiser.
    fn messages(&self, layout: Layout, traffic: &Traffic<'_>) -> Result<(Call, Call)> {
        let (ranks, bytes) = (traffic.ranks, self.image_bytes());
        if ranks == 1 {
            return Ok((Call::default(), Call::default()));
        }
        if layout == Layout::Sharded {
            let exchanges = self.shard(layout, ranks)?.exchanges();
            let expected = self.expect(layout, ranks)?;
            let of_data = expected
                .forecast
                .ranks
                .iter()
                .map(|rank| rank.bytes_sent.saturating_sub(rank.exchanges.bytes_sent));
            let of_data = of_data.max().unwrap_or(0);
            let sum = match self.operators.reach {
                // Once forward and once back.
                Reach::Local(_) => {
                    traffic.neighbours(Exchanges { rounds: 2, messages: 2, bytes_sent: of_data })
                }
                Reach::Everywhere => traffic.sums(of_data as f64, 2 * self.operators.count),
            };
            return Ok((sum, traffic.neighbours(exchanges)));
        }
        let sum = match self.distribute {
            Distribution::Denoiser => Call::default(),
            _ => traffic.ordered_sum(bytes, self.operators.count),
        };
        let join = match (self.distribute, self.tiles) {
            (Distribution::Physics, _) => Call::default(),
            (_, Some(_)) => traffic.assembly(bytes),
            (_, None) => {
                let exchanges = self.shard(layout, ranks)?.exchanges();
                traffic.neighbours(exchanges) + traffic.assembly(bytes)
            }
        };
        Ok((sum, join))
    }
}

impl Costs {
    /// What a summary of measurements says, communication left out. What several ranks slowed each other down by, as far as it was
    /// measured, is divided out; they are taken to be on one node.
    pub fn from_summary(summary: &Summary, contention: &Contention) -> Result<Self> {
        let none = || Error::argument("rows", "there are no seconds of data term and denoiser");
        let workload = Workload::of(&summary.configuration)?;
        let ranks = summary.configuration.ranks;
        let (data, prior) =
            (summary.data.ok_or_else(none)?.value, summary.prior.ok_or_else(none)?.value);
        let communication = summary.transfer.unwrap_or(0.0) + summary.waiting.unwrap_or(0.0);
        // On one rank there is none; on more, its shares of the two are taken as those of the seconds.
        let computing = 1.0 - communication / (data + prior);
        let layout = match summary.configuration.layout {
            Some(Layout::Sharded) if ranks > 1 => Layout::Sharded,
            _ => Layout::Replicated,
        };
        let work = workload.most(layout, ranks)?;
        let total = summary.total;
        let slowdown = contention.of_ranks(&summary.configuration, ranks).slowdown;
        let rest = (total.value - data - prior).max(0.0);
        Ok(Self {
            operator_per_pixel: data * computing / slowdown.data / work.operators,
            network_per_pixel: prior * computing / slowdown.prior / work.denoised,
            rest_per_pixel: rest / slowdown.total / work.rest,
            spread: (total.low / total.value, total.high / total.value),
        })
    }
}

/// The seconds of an iteration of `workload` on so many ranks of a cluster, whose ranks slow each other down as the cluster says, or
/// else as measured.
pub fn predict(
    workload: &Workload,
    costs: &Costs,
    contention: &Contention,
    cluster: &Cluster,
    ranks: usize,
    layout: Layout,
) -> Result<Prediction> {
    if !(1..=cluster.most_ranks()).contains(&ranks) {
        return Err(Error::argument(
            "ranks",
            format!("{ranks}; {} has 1 to {}", cluster.name, cluster.most_ranks()),
        ));
    }
    let here = cluster.ranks_on_node(ranks);
    let found = contention.of_ranks(&workload.configuration, here);
    let given = cluster.slowdown.filter(|_| here > 1).map(Slowdown::same);
    let slowdown = given.unwrap_or(found.slowdown);
    let worst = given.unwrap_or_else(|| contention.worst(here));
    let best = given.unwrap_or(Slowdown::same(1.0));
    let work = workload.most(layout, ranks)?;
    let (sum, join) = workload.messages(layout, &Traffic { cluster, ranks })?;
    let computed = |slowdown: Slowdown| {
        [
            work.operators * costs.operator_per_pixel * slowdown.data / cluster.speed,
            work.denoised * costs.network_per_pixel * slowdown.prior / cluster.speed,
            work.rest * costs.rest_per_pixel * slowdown.total / cluster.speed,
        ]
    };
    let transfer = sum.seconds + join.seconds;
    let [data, prior, rest] = computed(slowdown);
    let total = data + prior + rest + transfer;
    let bound = |slowdown: Slowdown, spread: f64, messages: f64| {
        computed(slowdown).iter().sum::<f64>() * spread + messages * transfer
    };
    let expected = match workload.distribute {
        Distribution::Both => workload.expect(layout, ranks).ok(),
        _ => None,
    };
    let busiest = |expected: &Expected| {
        expected.forecast.ranks.iter().map(|rank| rank.bytes_sent).max().unwrap_or(0) as f64
    };
    Ok(Prediction {
        total,
        low: bound(best, costs.spread.0, 1.0).min(total),
        high: bound(worst, costs.spread.1, MOST_TRANSFER).max(total),
        data: data + sum.seconds,
        prior: prior + join.seconds,
        transfer,
        bytes_sent: expected.as_deref().map_or(sum.bytes + join.bytes, busiest),
        memory_bytes: expected.map(|expected| expected.rank_bytes),
        has_own_contention: found.is_own || given.is_some(),
    })
}

/// Predicted rows of all measured problems on a cluster, one per number of ranks and layout. The sizes are those that
/// were measured, unless others are given. The contention may be that of more problems.
pub fn predicted_rows(
    rows: &[Row],
    contention: &Contention,
    cluster: &Cluster,
    ranks: &[usize],
    sizes: &[Size],
) -> Result<Vec<Row>> {
    let summaries = summarise(rows);
    let is_strong = |one: &&Summary| one.configuration.mode == Some(Mode::Strong);
    let measured: Vec<Summary> = measured(&summaries).filter(is_strong).cloned().collect();
    let mut predicted = Vec::new();
    let mut families: Vec<Configuration> = Vec::new();
    for summary in &measured {
        let family = family(&summary.configuration);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    for family in &families {
        let Some(problem) = family.problem else { continue };
        let own = sizes_of(&measured, family);
        for size in if sizes.is_empty() { &own } else { sizes } {
            let sides = problem::sides(problem, size, 1)?;
            let configuration = Configuration {
                backend: Backend::Mpi,
                mode: Some(Mode::Strong),
                ranks: 1,
                ..family.clone().with_sides(&sides)
            };
            let workload = Workload::of(&configuration)?;
            // An image in shards has nothing that is whole on every rank, and a network that can be exact.
            let layouts: &[Layout] = match workload.distribute {
                Distribution::Both if workload.expect(Layout::Sharded, 1).is_ok() => {
                    &[Layout::Replicated, Layout::Sharded]
                }
                _ => &[Layout::Replicated],
            };
            for &layout in layouts {
                let Some(source) = source(&measured, &configuration, layout) else { continue };
                let costs = Costs::from_summary(source, contention)?;
                for &ranks in ranks {
                    let prediction =
                        predict(&workload, &costs, contention, cluster, ranks, layout)?;
                    let configuration =
                        Configuration { ranks, layout: Some(layout), ..configuration.clone() };
                    predicted.push(prediction.row(&configuration));
                }
            }
        }
    }
    Ok(predicted)
}

impl Prediction {
    /// The row of the rank with the most to do; nothing is said of the others.
    fn row(&self, configuration: &Configuration) -> Row {
        Row {
            predicted: true,
            data_seconds: Some(self.data),
            prior_seconds: Some(self.prior),
            transfer_seconds: Some(self.transfer),
            low_seconds: Some(self.low),
            high_seconds: Some(self.high),
            bytes_sent: Some(self.bytes_sent as u64),
            predicted_bytes: self.memory_bytes,
            ..configuration.row(0, 0, self.total)
        }
    }
}

/// The measured reconstructions that share one problem among their ranks.
fn measured(summaries: &[Summary]) -> impl Iterator<Item = &Summary> {
    summaries.iter().filter(|summary| {
        let configuration = &summary.configuration;
        !summary.predicted
            && configuration.study == Study::Scaling
            && matches!(configuration.mode, Some(Mode::Strong | Mode::Weak))
            && configuration.system == SYSTEM
    })
}

/// What must be the same between a prediction and the measurement that its costs come from, of whatever size.
fn family(of: &Configuration) -> Configuration {
    Configuration {
        ranks: 0,
        backend: Backend::Solo,
        layout: None,
        height: 0,
        width: 0,
        depth: of.depth.map(|_| 0),
        ..of.clone()
    }
}

/// The sizes at which a family was measured.
fn sizes_of(measured: &[Summary], of: &Configuration) -> Vec<Size> {
    let mut sizes = Vec::new();
    for other in measured.iter().filter(|other| family(&other.configuration) == *of) {
        let size = Size::of_sides(other.configuration.sides());
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

/// The measurement that costs are taken from: in the same layout, if there is one, because an operator on a shard is not the one on the
/// whole image; of this size or the nearest smaller one, else the smallest; on the fewest ranks, threads before processes.
fn source<'a>(
    measured: &'a [Summary],
    configuration: &Configuration,
    layout: Layout,
) -> Option<&'a Summary> {
    let pixels = |of: &Configuration| of.sides().iter().product::<usize>();
    let wanted = pixels(configuration);
    measured
        .iter()
        .filter(|other| family(&other.configuration) == family(configuration))
        .min_by_key(|other| {
            let here = pixels(&other.configuration);
            let (is_other, ranks, backend) = preference(other, layout);
            (is_other, here > wanted, here.abs_diff(wanted), ranks, backend)
        })
}

/// Costs come from the same layout if it was measured, and from the fewest ranks; by threads before processes.
fn preference(other: &Summary, layout: Layout) -> (bool, usize, Backend) {
    let of = &other.configuration;
    (of.layout.is_some_and(|other| other != layout), of.ranks, of.backend)
}

#[cfg(test)]
mod tests;

//! Predicts the time of an iteration on more ranks than are available.
//!
//! The seconds per pixel of one operator, of the network and of the vector operations are taken from measurements on the
//! fewest ranks, the cost of messages from a [`Cluster`]. The rest is counting: which rank has the most operators and the
//! most pixels to denoise, and what it sends and receives, as the implementation does it. What the parts of an exact network
//! exchange is what its plan says. A prediction is right as long as ranks do
//! not slow each other down by more than the description says; [`validate`] compares it with measurements.
//!
//! For an image that every rank holds ([`Layout::Replicated`]), the ranks add up their operators' images and send
//! each other their tiles or parts: see the `README.md` of `haloscope::distribute`. For one in shards ([`Layout::Sharded`]),
//! they exchange borders with their neighbours only, and the network is exact; operators that see all of the image add up
//! their measurements.

mod cluster;
mod traffic;

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::figures::{Summary, summarise};
use crate::problem;
use crate::row::{Backend, Configuration, Mode, Row, SYSTEM, Study};
use crate::tiles;
use crate::trial::{LinkSpeed, Settings};
use haloscope::denoise::{Exchanges, NetworkDenoiser};
use haloscope::physics::Reach;
use haloscope::tiling::Shards;
use haloscope_job::{Distribution, Operators};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;
use traffic::{Call, Shard, Traffic};

pub use crate::row::Layout;
pub use cluster::Cluster;

/// Seconds of the parts of an iteration, on one rank that computes alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The gradient of one operator's data term, per pixel of the image.
    pub operator_per_pixel: f64,
    /// The network, per pixel that it computes.
    pub network_per_pixel: f64,
    /// What is done to the image besides, per pixel.
    pub rest_per_pixel: f64,
}

/// What there is to do in an iteration.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Spatial sides.
    sides: Vec<usize>,
    channels: usize,
    operators: Operators,
    distribute: Distribution,
    /// How many tiles there are, and the pixels of their windows; none if the network is exact.
    tiles: Option<(usize, f64)>,
    model: ModelName,
    /// Opened where its exchanges matter.
    network: Arc<OnceLock<NetworkDenoiser>>,
}

/// The seconds of one iteration on the rank with the most to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The whole of it.
    pub total: f64,
    /// The data term, with its messages.
    pub data: f64,
    /// The denoiser, with its messages.
    pub prior: f64,
    /// The messages.
    pub transfer: f64,
    /// What the rank sends.
    pub bytes_sent: f64,
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
            sides: configuration.sides(),
            channels: problem.channels(),
            operators,
            distribute: configuration.distribute.unwrap_or_default(),
            tiles,
            model: configuration.model.parse()?,
            network: Arc::default(),
        })
    }

    fn pixels(&self) -> f64 {
        self.sides.iter().map(|side| *side as f64).product()
    }

    /// The operators of the rank that has the most, and the pixels that the network computes on the rank that has the most.
    fn most(&self, ranks: usize) -> Result<(f64, f64)> {
        let share = |count: usize| count.div_ceil(ranks) as f64;
        let operators = self.operators.count;
        let shared = match self.tiles {
            Some((tiles, window)) => share(tiles) * window,
            None => self.shard(ranks)?.pixels(),
        };
        let all = self.tiles.map_or_else(|| self.pixels(), |(tiles, window)| tiles as f64 * window);
        Ok(match self.distribute {
            Distribution::Both => (share(operators), shared),
            Distribution::Physics => (share(operators), all),
            Distribution::Denoiser => (operators as f64, shared),
        })
    }

    /// The largest part of the image on so many ranks, with the exchanges of the busiest.
    fn shard(&self, ranks: usize) -> Result<Shard> {
        let image = [&[1, self.channels], &self.sides[..]].concat();
        let network = self.network()?;
        let plan = network.cut(&image, &Shards::Auto, ranks)?;
        Ok(Shard::new(&plan, &network.exchanges(&plan, network.pass(&plan)?)?))
    }

    fn network(&self) -> Result<&NetworkDenoiser> {
        if let Some(network) = self.network.get() {
            return Ok(network);
        }
        let model = self.model.open(self.channels, self.sides.len())?;
        let network = NetworkDenoiser::new(model, EngineOptions::default())?;
        Ok(self.network.get_or_init(|| network))
    }

    fn image_bytes(&self) -> f64 {
        4.0 * self.channels as f64 * self.pixels()
    }
}

impl Costs {
    /// What a summary of measurements says, communication left out.
    pub fn from_summary(summary: &Summary) -> Result<Self> {
        let none = || Error::argument("rows", "there are no seconds of data term and denoiser");
        let workload = Workload::of(&summary.configuration)?;
        let ranks = summary.configuration.ranks;
        let (data, prior) =
            (summary.data.ok_or_else(none)?.value, summary.prior.ok_or_else(none)?.value);
        let communication = summary.transfer.unwrap_or(0.0) + summary.waiting.unwrap_or(0.0);
        // On one rank there is none; on more, its shares of the two are taken as those of the seconds.
        let computing = 1.0 - communication / (data + prior);
        let (operators, denoised) = workload.most(ranks)?;
        Ok(Self {
            operator_per_pixel: data * computing / operators / workload.pixels(),
            network_per_pixel: prior * computing / denoised,
            rest_per_pixel: (summary.total.value - data - prior).max(0.0) / workload.pixels(),
        })
    }
}

/// The seconds of an iteration of `workload` on so many ranks of a cluster.
pub fn predict(
    workload: &Workload,
    costs: &Costs,
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
    let slowdown = if ranks > 1 { cluster.slowdown } else { 1.0 } / cluster.speed;
    let (pixels, bytes) = (workload.pixels(), workload.image_bytes());
    let traffic = Traffic { cluster, ranks };
    let all = workload.operators.count as f64;
    let (data, sum, rest, denoised, join) = match layout {
        Layout::Replicated => {
            let (operators, denoised) = workload.most(ranks)?;
            let sum = match workload.distribute {
                Distribution::Denoiser => Call::default(),
                _ => traffic.ordered_sum(bytes, workload.operators.count),
            };
            let join = match (workload.distribute, workload.tiles) {
                (Distribution::Physics, _) => Call::default(),
                (_, Some(_)) => traffic.assembly(bytes),
                (_, None) => {
                    traffic.neighbours(workload.shard(ranks)?.exchanges()) + traffic.assembly(bytes)
                }
            };
            (operators * costs.operator_per_pixel * pixels, sum, pixels, denoised, join)
        }
        Layout::Sharded => {
            let shard = workload.shard(ranks)?;
            let (data, sum) = match workload.operators.reach {
                // Every rank applies all operators to its shard and a border, once forward and once back.
                Reach::Local(radius) => {
                    let border = shard.border(radius);
                    let area = (shard.pixels() + border).min(pixels);
                    let bytes_sent = 2.0 * border * 4.0 * workload.channels as f64;
                    let both = Exchanges { rounds: 2, messages: 2, bytes_sent: bytes_sent as u64 };
                    (all * costs.operator_per_pixel * area, traffic.neighbours(both))
                }
                Reach::Everywhere => {
                    let sum = traffic.all_reduce(4.0 * workload.operators.values as f64);
                    (all * costs.operator_per_pixel * shard.pixels(), sum)
                }
            };
            let join = traffic.neighbours(shard.exchanges());
            (data, sum, shard.pixels(), shard.pixels(), join)
        }
    };
    let rest = costs.rest_per_pixel * rest;
    let denoised = costs.network_per_pixel * denoised;
    let data = data * slowdown + sum.seconds;
    let prior = denoised * slowdown + join.seconds;
    Ok(Prediction {
        total: data + prior + rest * slowdown,
        data,
        prior,
        transfer: sum.seconds + join.seconds,
        bytes_sent: sum.bytes + join.bytes,
    })
}

/// A measured configuration with what the model says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// What was measured.
    pub configuration: Configuration,
    /// Seconds of an iteration, measured.
    pub measured: f64,
    /// Seconds of an iteration, predicted.
    pub predicted: f64,
}

impl Validation {
    /// How far the prediction is off, relative to the measurement.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.predicted - self.measured).abs() / self.measured
    }
}

/// Compares the model with all measured numbers of ranks that it did not get its costs from, on a machine with so
/// many cores and links that cost what `link` says. Ranks that had to share a core are left out.
pub fn validate(
    rows: &[Row],
    cores: usize,
    link: impl Fn(Backend) -> Option<LinkSpeed>,
) -> Result<Vec<Validation>> {
    let measured: Vec<Summary> = reconstructions(rows);
    let mut validations = Vec::new();
    for summary in &measured {
        let configuration = &summary.configuration;
        let Some(source) = source(&measured, configuration) else { continue };
        let Some(speed) = link(configuration.backend) else { continue };
        let is_crowded = configuration.ranks * configuration.threads > cores;
        if source.configuration == *configuration || is_crowded {
            continue;
        }
        let cluster = Cluster::one_node("this machine", configuration.ranks, speed);
        let costs = Costs::from_summary(source)?;
        let workload = Workload::of(configuration)?;
        let prediction =
            predict(&workload, &costs, &cluster, configuration.ranks, Layout::Replicated)?;
        validations.push(Validation {
            configuration: configuration.clone(),
            measured: summary.total.value,
            predicted: prediction.total,
        });
    }
    Ok(validations)
}

/// Predicted rows of all measured problems on a cluster, one per number of ranks and layout. The sizes are those that
/// were measured, unless others are given.
pub fn predicted_rows(
    rows: &[Row],
    cluster: &Cluster,
    ranks: &[usize],
    sizes: &[usize],
) -> Result<Vec<Row>> {
    let measured = reconstructions(rows);
    let mut predicted = Vec::new();
    for summary in measured.iter().filter(|summary| {
        source(&measured, &summary.configuration).is_some_and(|source| source == *summary)
    }) {
        let costs = Costs::from_summary(summary)?;
        let Some(problem) = summary.configuration.problem else { continue };
        let own = vec![summary.configuration.height];
        for &size in if sizes.is_empty() { &own } else { sizes } {
            let configuration = Configuration {
                backend: Backend::Mpi,
                mode: Some(Mode::Strong),
                ..summary.configuration.clone().with_sides(&problem::sides(problem, size, 1))
            };
            let workload = Workload::of(&configuration)?;
            // An image in shards has nothing that is whole on every rank, and a network that can be exact.
            let layouts: &[Layout] = match workload.distribute {
                Distribution::Both if workload.shard(1).is_ok() => {
                    &[Layout::Replicated, Layout::Sharded]
                }
                _ => &[Layout::Replicated],
            };
            for &layout in layouts {
                for &ranks in ranks {
                    let prediction = predict(&workload, &costs, cluster, ranks, layout)?;
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
            bytes_sent: Some(self.bytes_sent as u64),
            ..configuration.row(0, 0, self.total)
        }
    }
}

/// The measured reconstructions that a model can be made of.
fn reconstructions(rows: &[Row]) -> Vec<Summary> {
    let is_wanted = |summary: &Summary| {
        let configuration = &summary.configuration;
        !summary.predicted
            && configuration.study == Study::Scaling
            && configuration.mode == Some(Mode::Strong)
            && configuration.system == SYSTEM
            && configuration.layout == Some(Layout::Replicated)
    };
    summarise(rows).into_iter().filter(is_wanted).collect()
}

/// The measurement that costs are taken from: the same on the fewest ranks, threads before processes.
fn source<'a>(measured: &'a [Summary], configuration: &Configuration) -> Option<&'a Summary> {
    let family =
        |of: &Configuration| Configuration { ranks: 0, backend: Backend::Solo, ..of.clone() };
    measured
        .iter()
        .filter(|other| family(&other.configuration) == family(configuration))
        .min_by_key(|other| (other.configuration.ranks, other.configuration.backend))
}

#[cfg(test)]
mod tests;

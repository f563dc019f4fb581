//! A reconstruction whose image is in shards: every rank has its part of the image and of all measurements.

use std::ops::Range;

use haloscope_comm::{ElementKind, traffic};

use super::communication::DataTerm;
use super::{Denoised, DenoisedPart, Forecast, PriorWork, Share, Workload};
use crate::denoise::differences::on_images;
use crate::denoise::{Axes, NetworkShard};
use crate::distribute::RankTraffic;
use crate::error::{Error, Result};
use crate::image::{Space, Sum};
use crate::solve::DataUse;
use crate::tiling::{Choice, ShardPlan, Strategy, Tiles, Tiling};

impl Workload<'_> {
    /// What it will take with the image in these shards. `messages` are what each rank sends for a forward and an adjoint and has
    /// of the measurements, as [`ShardedStack::messages`](crate::distribute::ShardedStack::messages) says it. Iterations inside
    /// an iteration count at their most, and so do the sums that end them.
    pub fn forecast_shards(
        &self,
        shards: &ShardPlan,
        messages: &[RankTraffic],
    ) -> Result<Forecast> {
        self.check()?;
        let all_values: usize = messages.iter().map(|of_rank| of_rank.values).sum();
        let network = self.network();
        if let Some(axes) = network.map(|network| network.axes).filter(|axes| *axes != Axes::Axial)
        {
            let reason = format!(
                "\"{}\" for an image in shards, which no rank can turn; replicate the image, or take \"axial\"",
                axes.name()
            );
            return Err(Error::argument("axes", reason));
        }
        let pass = network.map(|network| network.denoiser.pass(shards)).transpose()?;
        let pass = pass.unwrap_or_default();
        let mut flops = 0.0;
        let mut choice = None;
        let mut ranks = Vec::with_capacity(self.ranks);
        // Parts of one kind cost the same.
        let mut kinds = Vec::new();
        let mut plans: Vec<NetworkShard> = Vec::new();
        for (rank, variation) in self.variation_sent(shards).into_iter().enumerate() {
            let is_idle = rank >= shards.count();
            let region =
                if is_idle { vec![0..0; self.image.len() - 2] } else { shards.region(rank) };
            let own: usize = region.iter().map(Range::len).product();
            let traffic = messages.get(rank).copied().unwrap_or_default();
            let share = traffic.values as f64 / all_values.max(1) as f64;
            let part = |values: usize| (values as f64 * share).ceil() as usize;
            let measured = self.measurements.iter().map(|shape| vec![part(shape.iter().product())]);
            let elements = self.image[0] * self.image[1] * own;
            let mut denoised = None;
            if let Some(network) = network {
                let mut planned = None;
                if !is_idle {
                    let kind = shards.kind(rank);
                    let known = kinds.iter().position(|other| *other == kind);
                    let index = known.unwrap_or(kinds.len());
                    if known.is_none() {
                        kinds.push(kind);
                        plans.push(network.denoiser.shard(shards, rank, pass)?);
                    }
                    planned = plans.get(index);
                }
                flops += planned.map_or(0.0, NetworkShard::flops);
                choice = Some(Choice {
                    tiling: Tiling::new(Strategy::Exact),
                    reason: "the image is in shards".into(),
                    pass_bytes: None,
                });
                let own_part = DenoisedPart {
                    tiles: usize::from(!is_idle),
                    load: 0.0,
                    elements,
                    exchanges: planned.map(NetworkShard::exchanges).unwrap_or_default(),
                    device_traffic: 0,
                    memory: Self::shard_memory(network.denoiser, planned, elements),
                };
                denoised = choice.clone().map(|choice| Denoised {
                    choice,
                    tiles: None,
                    shards: None,
                    batch: 1,
                    flops: 0.0,
                    ranks: vec![own_part],
                    passes: vec![vec![elements]],
                });
            }
            let sides = region.iter().map(Range::len);
            let alone = Workload {
                image: self.image[..2].iter().copied().chain(sides).collect(),
                measurements: measured.collect(),
                ranks: 1,
                ..self.clone()
            };
            let memory = alone.memory(denoised.as_ref(), Some(&traffic)).remove(0);
            let exchanges = denoised.map(|one| one.ranks[0].exchanges).unwrap_or_default();
            let sent = self.sent(&traffic, variation, rank);
            let bytes_sent = sent.saturating_add(exchanges.bytes_sent);
            ranks.push(Share {
                operators: if is_idle { 0 } else { self.measurements.len() },
                tiles: usize::from(!is_idle),
                load: if is_idle { 0.0 } else { shards.load(rank, self.ranks) },
                memory,
                exchanges,
                bytes_sent,
                device_traffic: 0,
            });
        }
        let shards = Some(shards.clone());
        Ok(Forecast { tiles: None, shards, choice, pass, batch: 1, flops, ranks })
    }

    /// The bytes that a rank sends in an iteration, without those of a network.
    fn sent(&self, traffic: &RankTraffic, variation: u64, rank: usize) -> u64 {
        if self.ranks == 1 {
            return 0;
        }
        let sum = |count: usize| {
            traffic::all_reduce(ElementKind::U64, count * Sum::WORDS, self.ranks)[rank]
        };
        let RankTraffic { forward, adjoint, .. } = *traffic;
        let value = sum(self.measurements.len());
        let data = match self.data_term() {
            _ if self.method.data_term == DataUse::Nothing => 0,
            DataTerm::Gradient { values } => {
                (1 + values as u64).saturating_mul(forward + value) + adjoint
            }
            DataTerm::Normal | DataTerm::Dual => forward + adjoint,
            // Each subset agrees on its projections and on what is projected back.
            DataTerm::Subsets { count } => {
                let agreements = 2 * traffic::all_gather(&vec![1; self.ranks])[rank];
                forward + adjoint + (count - 1) as u64 * agreements
            }
            // Products of the direction and the residual in every iteration.
            DataTerm::Prox { iterations } => {
                let normals = (4 + iterations + iterations / 32) as u64;
                normals.saturating_mul(forward + adjoint + 3 * sum(1))
            }
        };
        // Two sums in every iteration but the first.
        let ends = self.shared_variation().map_or(0, |denoiser| {
            let sums = denoiser.iterations.saturating_sub(1) * self.image[0];
            sum(2).saturating_mul(sums as u64)
        });
        // That all begin to denoise.
        let denoises = self.network().is_some() || self.shared_variation().is_some();
        let agreement = if denoises { traffic::all_gather(&vec![1; self.ranks])[rank] } else { 0 };
        // How far the image moved, and whether to stop.
        let rest = 2 * sum(1) + traffic::all_reduce(ElementKind::U64, 2, self.ranks)[rank];
        data.saturating_add(variation).saturating_add(ends).saturating_add(rest + agreement)
    }

    /// The borders that each rank sends for total variation in an iteration.
    fn variation_sent(&self, shards: &ShardPlan) -> Vec<u64> {
        let space = Space::outline(shards, self.ranks);
        match (&self.prior, self.shared_variation()) {
            (PriorWork::TotalVariation { .. }, Some(denoiser)) => denoiser.bytes_sent(&space),
            (PriorWork::TotalVariation { .. }, None) => on_images::bytes_sent(&space),
            _ => vec![0; self.ranks],
        }
    }
}

#[cfg(test)]
mod tests {
    use haloscope_nn::engine::Grain;

    use super::*;
    use crate::denoise::{Exchanges, TotalVariation};

    #[test]
    fn parts_hold_and_send_less_than_a_replicated_image() {
        let image = vec![1, 1, 256, 256];
        let grain = Grain { step: 8, last: 1 };
        let job = |ranks| Workload {
            image: image.clone(),
            measurements: vec![vec![1, 256, 256]; 3],
            ranks,
            method: "fista".parse().expect("a method"),
            inner_iterations: 0,
            subsets: 1,
            prior: PriorWork::TotalVariation {
                denoiser: TotalVariation::default(),
                has_range: false,
            },
        };
        let alone = job(1).forecast().expect("a job");
        for ranks in [1, 4, 16] {
            let shards = ShardPlan::new(&image, &[grain, grain], ranks).expect("it fits");
            let values = 3 * 256 * 256 / ranks;
            let traffic = RankTraffic {
                forward: 1000,
                adjoint: 1000,
                values,
                gathered: 0,
                in_transit: 0,
                read: values / 3,
                read_back: values,
            };
            let parts = job(ranks).forecast_shards(&shards, &vec![traffic; ranks]);
            let parts = parts.expect("a job");
            let whole = job(ranks).forecast().expect("a job");
            let share = alone.largest_memory() as f64 / ranks as f64;
            // All residuals are there at once.
            let most = 1.3 * share + 4.0 * 256.0 * 256.0;
            assert!((parts.largest_memory() as f64) < most, "{ranks} ranks");
            assert_eq!(parts.bytes_sent() == 0, ranks == 1);
            assert!(ranks == 1 || parts.largest_memory() < whole.largest_memory());
            assert_eq!(parts.ranks[0].exchanges, Exchanges::default());
        }
    }
}

//! A reconstruction whose image is in shards: every rank has its part of the image and of all measurements.

use std::ops::Range;

use haloscope_comm::{ElementKind, traffic};

use super::communication::DataTerm;
use super::{Denoised, DenoisedPart, Forecast, Share, Workload};
use crate::denoise::NetworkShard;
use crate::error::Result;
use crate::image::Sum;
use crate::solve::DataUse;
use crate::tiling::{Choice, ShardPlan, Strategy, Tiles, Tiling};

impl Workload<'_> {
    /// What it will take with the image in these shards. `messages` are the bytes that each rank sends for a forward and an
    /// adjoint, as [`ShardedStack::messages`](crate::distribute::ShardedStack::messages) has them. Iterations inside an iteration
    /// count at their most, and so do the sums that end them.
    pub fn forecast_shards(&self, shards: &ShardPlan, messages: &[(u64, u64)]) -> Result<Forecast> {
        self.check()?;
        let pixels: usize = self.image[2..].iter().product();
        let mut flops = 0.0;
        let mut choice = None;
        let mut ranks = Vec::with_capacity(self.ranks);
        for rank in 0..self.ranks {
            let is_idle = rank >= shards.count();
            let region =
                if is_idle { vec![0..0; self.image.len() - 2] } else { shards.region(rank) };
            let own: usize = region.iter().map(Range::len).product();
            let part = |values: usize| (values as f64 * own as f64 / pixels as f64).ceil() as usize;
            let measured = self.measurements.iter().map(|shape| vec![part(shape.iter().product())]);
            let elements = self.image[0] * self.image[1] * own;
            let mut denoised = None;
            if let Some(network) = self.network() {
                let planned = if is_idle {
                    None
                } else {
                    Some(network.denoiser.shard(&self.image, &region)?)
                };
                let planned = planned.as_ref();
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
                    memory: Self::shard_memory(network.denoiser, planned, elements),
                };
                denoised = choice.clone().map(|choice| Denoised {
                    choice,
                    tiles: None,
                    shards: None,
                    batch: 1,
                    flops: 0.0,
                    ranks: vec![own_part],
                });
            }
            let sides = region.iter().map(Range::len);
            let alone = Workload {
                image: self.image[..2].iter().copied().chain(sides).collect(),
                measurements: measured.collect(),
                ranks: 1,
                ..self.clone()
            };
            let mut memory = alone.memory(denoised.as_ref()).remove(0);
            let values = |shape: &Vec<usize>| 4 * self.image[0] * shape.iter().product::<usize>();
            let all: usize = alone.measurements.iter().map(values).sum();
            let largest = alone.measurements.iter().map(values).max().unwrap_or(0);
            // What all operators measure, and the residuals, are there at once.
            memory.measurements += 2 * (all - largest);
            let exchanges = denoised.map(|one| one.ranks[0].exchanges).unwrap_or_default();
            let bytes_sent = self.sent(shards, messages, rank).saturating_add(exchanges.bytes_sent);
            ranks.push(Share {
                operators: if is_idle { 0 } else { self.measurements.len() },
                tiles: usize::from(!is_idle),
                load: if is_idle { 0.0 } else { shards.load(rank, self.ranks) },
                memory,
                exchanges,
                bytes_sent,
            });
        }
        let shards = Some(shards.clone());
        Ok(Forecast { tiles: None, shards, choice, batch: 1, flops, ranks })
    }

    /// The bytes that a rank sends in an iteration, without those of a network.
    fn sent(&self, shards: &ShardPlan, messages: &[(u64, u64)], rank: usize) -> u64 {
        if self.ranks == 1 {
            return 0;
        }
        let sum = |count: usize| {
            traffic::all_reduce(ElementKind::U64, count * Sum::WORDS, self.ranks)[rank]
        };
        let (forward, adjoint) = messages.get(rank).copied().unwrap_or_default();
        let value = sum(self.measurements.len());
        let data = match self.data_term() {
            _ if self.method.data_term == DataUse::Nothing => 0,
            DataTerm::Gradient { values } => {
                (1 + values as u64).saturating_mul(forward + value) + adjoint
            }
            DataTerm::Normal | DataTerm::Dual => forward + adjoint,
            // Products of the direction and the residual in every iteration.
            DataTerm::Prox { iterations } => {
                let normals = (4 + iterations + iterations / 32) as u64;
                normals.saturating_mul(forward + adjoint + 3 * sum(1))
            }
        };
        let variation = self.shared_variation().map_or(0, |denoiser| {
            let one = variation_halo(&self.image, shards, rank) + sum(2);
            one.saturating_mul((denoiser.iterations.max(1) * self.image[0]) as u64)
        });
        // That all begin to denoise.
        let agreement =
            self.network().map_or(0, |_| traffic::all_gather(&vec![1; self.ranks])[rank]);
        // How far the image moved, and whether to stop.
        let rest = 2 * sum(1) + traffic::all_reduce(ElementKind::U64, 2, self.ranks)[rank];
        data.saturating_add(variation).saturating_add(rest + agreement)
    }
}

/// What a part sends in an iteration of total variation: all axes of a face of the dual to the part before, one to that after.
fn variation_halo(image: &[usize], shards: &ShardPlan, rank: usize) -> u64 {
    if rank >= shards.count() {
        return 0;
    }
    let axes = image.len() - 2;
    let sides: Vec<usize> = shards.region(rank).iter().map(Range::len).collect();
    let volume: usize = sides.iter().product();
    let of_axis = |axis: usize| {
        let face = image[1] * volume / sides[axis];
        let is_there = |side: usize| shards.neighbour(rank, axis, side).is_some();
        face * (axes * usize::from(is_there(0)) + usize::from(is_there(1)))
    };
    4 * (0..axes).map(of_axis).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use haloscope_nn::engine::Grain;

    use super::super::PriorWork;
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
            prior: PriorWork::TotalVariation {
                denoiser: TotalVariation::default(),
                has_range: false,
            },
        };
        let alone = job(1).forecast().expect("a job");
        for ranks in [1, 4, 16] {
            let shards = ShardPlan::new(&image, &[grain, grain], ranks).expect("it fits");
            let parts = job(ranks).forecast_shards(&shards, &vec![(1000, 1000); ranks]);
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

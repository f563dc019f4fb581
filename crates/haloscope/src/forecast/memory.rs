//! The most bytes that a rank holds at once: the largest of the moments of an iteration.

use std::ops::Add;

use super::{Denoised, PriorWork, Workload};
use crate::denoise::{Axes, NetworkDenoiser, NetworkShard, Wavelets};
use crate::distribute::RankTraffic;
use crate::error::Result;
use crate::solve::{Arrays, DataUse, Priors};

/// The bytes of a rank at the moment when it holds the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Arrays as large as the image.
    pub images: usize,
    /// The rank's measurements, and what is computed from them.
    pub measurements: usize,
    /// Tiles on their way into the network, out of it and into the image.
    pub tiles: usize,
    /// Weights, as they were read and as the engine uses them. Ranks that are threads of one process have them once
    /// between them.
    pub weights: usize,
    /// What the engine computes with.
    pub activations: usize,
    /// All that lies in the memory of a device, each rank's own. It is no part of the total, which is host memory.
    pub device: usize,
}

impl Memory {
    /// All of it in host memory.
    #[must_use]
    pub fn total(&self) -> usize {
        self.images + self.measurements + self.tiles + self.weights + self.activations
    }
}

impl Add for Memory {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            images: self.images + other.images,
            measurements: self.measurements + other.measurements,
            tiles: self.tiles + other.tiles,
            weights: self.weights + other.weights,
            activations: self.activations + other.activations,
            device: self.device + other.device,
        }
    }
}

/// Arrays as large as the image that a prox of the data term holds: the image, the best one, the residual and the direction.
const PROX: f64 = 4.0;

/// The same where ranks share it, each with its own rows: those, where it begins, and `Aᵀy`.
const SHARED_PROX: f64 = PROX + 2.0;

impl Workload<'_> {
    /// What each rank holds at most; the only rank holds a part of the image if it has `traffic`.
    pub(super) fn memory(
        &self,
        denoised: Option<&Denoised>,
        traffic: Option<&RankTraffic>,
    ) -> Vec<Memory> {
        let image = 4 * self.image.iter().product::<usize>();
        let held = self.method.holds;
        let map = self.analysis();
        let count = |arrays: Arrays| arrays.count_with(&map, &self.image);
        let arrays =
            |count: f64| Memory { images: (count * image as f64) as usize, ..Memory::default() };
        let tiles = |bytes: usize| Memory { tiles: bytes, ..Memory::default() };
        let total_variation = self.variation_arrays();
        let of_rank = |rank: usize| {
            let own: Vec<usize> = (rank..self.measurements.len())
                .step_by(self.ranks)
                .map(|index| 4 * self.image[0] * self.measurements[index].iter().product::<usize>())
                .collect();
            let measured = |bytes: usize| Memory { measurements: bytes, ..Memory::default() };
            let base_measurements = measured(own.iter().sum());
            if self.method.is_direct() {
                return base_measurements + arrays(count(held.other));
            }
            let network = denoised.map(|denoised| denoised.ranks[rank].memory).unwrap_or_default();
            let base = base_measurements + network.resident;
            // `Aᵀy`, which proxes keep.
            let kept = f64::from(u8::from(self.method.has_prox()));
            let largest = own.iter().copied().max().unwrap_or(0);
            // At once, and not one subset after the other.
            let several = own.len() > self.subsets.max(1);
            let mut data = count(held.data) + kept;
            if self.method.has_prox() {
                let is_shared = self.ranks > 1 && self.measurements.len() > 1;
                // The operators see the whole image.
                data += if is_shared { SHARED_PROX / self.ranks as f64 + 1.0 } else { PROX };
            }
            // The sum over the operators so far and the next term, or the rank's own term and the sum over all ranks.
            let sum = if several || self.ranks > 1 { 2.0 } else { 1.0 };
            // A term that waits for those of other ranks while the next one is computed.
            data += f64::from(u8::from(several && self.ranks > 1));
            let mut moments = match traffic {
                None => vec![
                    // What an operator measures, and the derivative of the fidelity there.
                    arrays(data + f64::from(u8::from(several))) + measured(2 * largest),
                    arrays(data + sum) + measured(largest),
                ],
                // What operators read of the image, and what all of them measure; then the residuals, and what adjoints read of
                // them. Of an operator that sees the whole image there is what a grain gives, and sums of that in 64 bits, of which
                // some are on their way to other ranks.
                Some(traffic) => {
                    let all: usize = own.iter().sum();
                    // Duals are what adjoints are taken of.
                    let residuals = if self.method.data_term == DataUse::Dual { 0 } else { all };
                    let reads = if several { 2 * traffic.read } else { traffic.read };
                    let gathered = measured(12 * traffic.gathered);
                    vec![
                        arrays(data)
                            + measured(all + 4 * reads + 8 * traffic.in_transit)
                            + gathered,
                        arrays(data + sum) + measured(residuals + 4 * traffic.read_back) + gathered,
                    ]
                }
            };
            moments.push(arrays(count(held.other) + kept));
            let mut base = base;
            if self.method.data_term == DataUse::Dual {
                // Each measurement has a dual; the next one is computed from three more, one of which replaces it. Parts have
                // the points of all measurements at once.
                base = base + base_measurements;
                let points = traffic.map_or(largest, |_| own.iter().sum());
                // The image, the point ahead and the dual of total variation.
                moments.push(arrays(count(held.data) + 1.0) + measured(points + largest));
                moments.push(arrays(count(held.prior)));
            }
            if let DataUse::Subsets { has_weights } = self.method.data_term {
                // What an operator expects, and the residual in its place or beside it.
                base = if has_weights { base + base_measurements } else { base };
            }
            let prior = count(held.prior) + kept;
            // A denoiser that clamps or scales what the method needs once more has a copy.
            let copies = |has_range: bool| f64::from(u8::from(has_range && held.prior_copies));
            match (&self.prior, denoised) {
                (PriorWork::Network(network_prior), Some(denoised)) => {
                    // An image that is turned to be seen in another way, and the sum of what was denoised before.
                    let turned = if network_prior.axes == Axes::Axial { 0.0 } else { 2.0 };
                    let held = prior + copies(network_prior.has_range) + turned;
                    let part = 4 * denoised.ranks[rank].elements;
                    let all = denoised.passes.iter().map(|parts| parts.iter().sum::<usize>());
                    let all = 4 * all.max().unwrap_or(0);
                    if self.ranks == 1 && denoised.tiles.is_some() {
                        // Tiles go to their places as they come.
                        moments.push(arrays(held + 1.0) + tiles(network.batch));
                    } else if self.ranks == 1 {
                        moments.push(arrays(held) + tiles(part + network.batch));
                        moments.push(arrays(held + 1.0) + tiles(part));
                    } else {
                        moments.push(arrays(held) + tiles(part + network.batch));
                        moments.push(arrays(held) + tiles(part + all));
                        moments.push(arrays(held + 1.0) + tiles(all));
                    }
                }
                // The primal-dual method has the arrays of its prior itself.
                (PriorWork::TotalVariation { has_range, .. }, _)
                    if self.shared_variation().is_some() =>
                {
                    // A part has the pixels around it beside itself, and its result beside them.
                    let around = if traffic.is_some() { 2.0 } else { 0.0 };
                    moments.push(arrays(prior + copies(*has_range) + total_variation + around));
                }
                (PriorWork::Wavelets { denoiser }, _) => {
                    let bytes = |bytes| Memory { images: bytes, ..Memory::default() };
                    moments.push(arrays(prior) + bytes(self.wavelet_bytes(denoiser)));
                    // The value of the prior.
                    moments.push(arrays(count(held.other) + kept) + bytes(self.transform_bytes()));
                }
                _ => (),
            }
            let most = moments.into_iter().max_by_key(Memory::total).unwrap_or_default();
            base + most
        };
        (0..self.ranks).map(of_rank).collect()
    }

    /// Arrays as large as the image that a prox of total variation takes.
    fn variation_arrays(&self) -> f64 {
        let (channels, axes) = (self.image[1] as f64, (self.image.len() - 2) as f64);
        // Two dual variables, of one array for each axis, their lengths, and two estimates: of all rows, or of the rank's own,
        // those beside them, and so much of the image.
        if self.ranks == 1 || self.image.len() < 4 {
            2.0 * axes + 2.0 + 1.0 / channels
        } else {
            let rows = (self.image[2].div_ceil(self.ranks) + 2).min(self.image[2]);
            let share = rows as f64 / self.image[2] as f64;
            // In the end one dual, the image, the estimate, and the whole that becomes of it.
            let [during, after] = [2.0 * axes + 3.0 + 1.0 / channels, axes + 2.0];
            (share * during).max(share * after + 1.0)
        }
    }

    /// The bytes of wavelets while a method uses them: what transforms work in where the method has the dual, and else what the
    /// prox has besides, with its result.
    fn wavelet_bytes(&self, denoiser: &Wavelets) -> usize {
        match self.method.priors {
            Priors::Analysis => self.transform_bytes(),
            _ => denoiser.prox_bytes(&self.image) + 4 * self.image.iter().product::<usize>(),
        }
    }

    /// The bytes of the two arrays of a channel that transforms of wavelets work in.
    fn transform_bytes(&self) -> usize {
        8 * self.image[2..].iter().product::<usize>()
    }

    /// What a network takes for a batch of tiles.
    pub(super) fn tile_memory(denoiser: &NetworkDenoiser, windows: &[usize]) -> Result<Network> {
        let plan = denoiser.plan(windows)?;
        let memory = plan.memory();
        Ok(Network {
            resident: Memory {
                weights: memory.weights + weights_read(denoiser),
                activations: memory.activations + memory.workspace,
                device: memory.device,
                ..Memory::default()
            },
            // The windows and the result, and between them the input with its noise map.
            batch: 4 * (2 * windows.iter().product::<usize>() + plan.input_shape().count()),
        })
    }

    /// What a network takes for a part of the image; a rank without one has the weights as they were read.
    pub(super) fn shard_memory(
        denoiser: &NetworkDenoiser,
        shard: Option<&NetworkShard>,
        elements: usize,
    ) -> Network {
        let memory = shard.map(NetworkShard::memory).unwrap_or_default();
        Network {
            resident: Memory {
                weights: memory.weights + weights_read(denoiser),
                activations: memory.activations + memory.workspace,
                device: memory.device,
                ..Memory::default()
            },
            batch: 4 * (2 * elements + shard.map_or(0, NetworkShard::input_len)),
        }
    }
}

/// The weights as they were read.
fn weights_read(denoiser: &NetworkDenoiser) -> usize {
    4 * denoiser.model().network().parameters()
}

/// What a network takes, always and for a batch of tiles.
#[derive(Clone, Copy, Default)]
pub(super) struct Network {
    resident: Memory,
    batch: usize,
}

impl Network {
    /// The most of two, which are not there at once.
    pub(super) fn most(self, other: Self) -> Self {
        let (own, others) = (self.resident, other.resident);
        Self {
            resident: Memory {
                weights: own.weights.max(others.weights),
                activations: own.activations.max(others.activations),
                device: own.device.max(others.device),
                ..own
            },
            batch: self.batch.max(other.batch),
        }
    }

    /// Both, of which one works at a time.
    pub(super) fn and(self, other: Self) -> Self {
        Self { resident: self.resident + other.resident, batch: self.batch.max(other.batch) }
    }

    /// Whether a part of it is in the memory of a device.
    pub(super) fn has_device(&self) -> bool {
        self.resident.device > 0
    }

    /// The same for a rank with so many tiles: on a device, a last batch that is smaller has weights and values of its own, which are
    /// counted as those of a full one.
    pub(super) fn for_tiles(mut self, tiles: usize, batch: usize) -> Self {
        if tiles > batch && !tiles.is_multiple_of(batch) {
            self.resident.device *= 2;
        }
        self
    }
}

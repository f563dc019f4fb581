//! The most bytes that a rank holds at once: the largest of the moments of an iteration.

use std::ops::Add;

use super::{Denoised, Job, Method, Prior};
use crate::denoise::{NetworkDenoiser, NetworkShard};
use crate::error::Result;

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
}

impl Memory {
    /// All of it.
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
        }
    }
}

/// Arrays as large as the image that a prox of the data term holds: two of the right-hand side, the image, the best one, the
/// residual, the direction, and two more when the residual is computed anew.
const PROX: f64 = 8.0;

impl Job<'_> {
    /// What each rank holds at most.
    pub(super) fn memory(&self, denoised: Option<&Denoised>) -> Vec<Memory> {
        let image = 4 * self.image.iter().product::<usize>();
        let held = self.method.held(&self.image);
        let arrays =
            |count: f64| Memory { images: (count * image as f64) as usize, ..Memory::default() };
        let tiles = |bytes: usize| Memory { tiles: bytes, ..Memory::default() };
        if self.method == Method::FilteredBackProjection {
            // As they are read, put together, and filtered.
            let values: usize =
                self.measurements.iter().map(|shape| shape.iter().product::<usize>()).sum();
            let measured =
                Memory { measurements: 12 * self.image[0] * values, ..Memory::default() };
            return vec![measured + arrays(held.other); self.ranks];
        }
        let (channels, axes) = (self.image[1] as f64, (self.image.len() - 2) as f64);
        // Of its dual variables there are four, of one array for each axis.
        let total_variation = 4.0 * axes + 2.0 + 1.0 / channels;
        let of_rank = |rank: usize| {
            let own: Vec<usize> = (rank..self.measurements.len())
                .step_by(self.ranks)
                .map(|index| 4 * self.image[0] * self.measurements[index].iter().product::<usize>())
                .collect();
            let measured = |bytes: usize| Memory { measurements: bytes, ..Memory::default() };
            let base_measurements = measured(own.iter().sum());
            let network = denoised.map(|denoised| denoised.ranks[rank].memory).unwrap_or_default();
            let base = base_measurements + network.resident;
            // What an operator measures, and the derivative of the fidelity there.
            let largest = measured(2 * own.iter().copied().max().unwrap_or(0));
            let terms = own.len() as f64;
            let data = if self.method.has_prox() {
                // The prox has the measurements of its own.
                arrays(held.data + PROX + terms) + base_measurements
            } else {
                arrays(held.data + terms)
            };
            let mut moments = vec![data + largest, data + arrays(1.0), arrays(held.other)];
            match (&self.prior, denoised) {
                (Prior::Network(network_prior), Some(denoised)) => {
                    let held = held.prior + f64::from(u8::from(network_prior.has_range));
                    let part = 4 * denoised.ranks[rank].elements;
                    let all: usize =
                        4 * denoised.ranks.iter().map(|part| part.elements).sum::<usize>();
                    let joined = if self.ranks == 1 { part } else { all + part };
                    moments.push(arrays(held) + tiles(part + network.batch));
                    moments.push(arrays(held + 1.0) + tiles(joined));
                }
                // The primal-dual method has the arrays of its prior itself.
                (Prior::TotalVariation, _) if self.method != Method::PrimalDual => {
                    moments.push(arrays(held.prior + total_variation));
                }
                _ => (),
            }
            let most = moments.into_iter().max_by_key(Memory::total).unwrap_or_default();
            base + most
        };
        (0..self.ranks).map(of_rank).collect()
    }

    /// What a network takes for a batch of tiles.
    pub(super) fn tile_memory(denoiser: &NetworkDenoiser, windows: &[usize]) -> Result<Network> {
        let plan = denoiser.plan(windows)?;
        let memory = plan.memory();
        Ok(Network {
            resident: Memory {
                weights: memory.weights + weights_read(denoiser),
                activations: memory.activations + memory.workspace,
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

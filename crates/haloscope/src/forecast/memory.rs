//! The most bytes that a rank holds at once: the largest of the moments of an iteration.

use std::ops::Add;

use super::{Job, Method, Tiled};
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
    /// Weights, as they were read and as the engine uses them.
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

/// Arrays as large as the image that a method holds itself.
struct Held {
    /// While the gradient of the data term is computed.
    gradient: f64,
    /// While the denoiser runs.
    prior: f64,
    /// At any other time.
    other: f64,
}

impl Method {
    /// As the steps in `solve` are written; the iterate and the one before it are always there.
    fn held(self, image: &[usize]) -> Held {
        let (channels, axes) = (image[1] as f64, (image.len() - 2) as f64);
        match self {
            Self::ProximalGradient => Held { gradient: 2.0, prior: 3.0, other: 4.0 },
            Self::Fista => Held { gradient: 3.0, prior: 4.0, other: 7.0 },
            Self::Red => Held { gradient: 3.0, prior: 2.0, other: 5.0 },
            // The dual variable and the gradient that it moves along have an array for each axis.
            Self::PrimalDual => {
                Held { gradient: 2.0 + axes, prior: 0.0, other: 5.0 + 2.0 * axes + 1.0 / channels }
            }
        }
    }
}

impl Job<'_> {
    /// What each rank holds at most.
    pub(super) fn memory(&self, tiled: Option<&Tiled>) -> Result<Vec<Memory>> {
        let image = 4 * self.image.iter().product::<usize>();
        let held = self.method.held(&self.image);
        let arrays =
            |count: f64| Memory { images: (count * image as f64) as usize, ..Memory::default() };
        let tiles = |bytes: usize| Memory { tiles: bytes, ..Memory::default() };
        let network = self.network(tiled)?;
        let of_rank = |rank: usize| {
            let own: Vec<usize> = (rank..self.measurements.len())
                .step_by(self.ranks)
                .map(|index| 4 * self.image[0] * self.measurements[index].iter().product::<usize>())
                .collect();
            let measured = |bytes: usize| Memory { measurements: bytes, ..Memory::default() };
            let base = measured(own.iter().sum()) + network.resident;
            // What an operator measures, and the derivative of the fidelity there.
            let largest = 2 * own.iter().copied().max().unwrap_or(0);
            let terms = own.len() as f64;
            let mut moments = vec![
                arrays(held.gradient + terms) + measured(largest),
                arrays(held.gradient + terms + 1.0),
                arrays(held.other),
            ];
            if let Some(tiled) = tiled {
                let part = 4 * tiled.parts[rank];
                let all: usize = 4 * tiled.parts.iter().sum::<usize>();
                let joined = if self.ranks == 1 { part } else { all + part };
                moments.push(arrays(held.prior) + tiles(part + network.batch));
                moments.push(arrays(held.prior + 1.0) + tiles(joined));
            }
            let most = moments.into_iter().max_by_key(Memory::total).unwrap_or_default();
            base + most
        };
        Ok((0..self.ranks).map(of_rank).collect())
    }

    /// What a network takes.
    fn network(&self, tiled: Option<&Tiled>) -> Result<Network> {
        let (Some(prior), Some(tiled)) = (&self.prior, tiled) else {
            return Ok(Network::default());
        };
        let windows = self.windows(tiled, tiled.batch);
        let plan = prior.denoiser.plan(&windows)?;
        let memory = plan.memory();
        let read = 4 * prior.denoiser.model().network().parameters();
        Ok(Network {
            resident: Memory {
                weights: memory.weights + read,
                activations: memory.activations + memory.workspace,
                ..Memory::default()
            },
            // The windows and the result, and between them the input with its noise map.
            batch: 4 * (2 * windows.iter().product::<usize>() + plan.input_shape().count()),
        })
    }
}

/// What a network takes, always and for a batch of tiles.
#[derive(Default)]
struct Network {
    resident: Memory,
    batch: usize,
}

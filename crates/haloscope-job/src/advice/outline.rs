//! A reconstruction that is described by its shapes: there need be neither data nor operators.

use haloscope::denoise::NetworkDenoiser;
use haloscope::forecast::Method;
use haloscope::tiling::Tiling;
use haloscope::{Error, Result};

use super::Advice;
use super::planner::Planner;

/// A reconstruction by its shapes, its network and its method, to ask what it would take.
///
/// ```
/// use haloscope::tiling::Tiling;
/// use haloscope_job::Outline;
///
/// let outline = Outline {
///     image: vec![1, 3, 1024, 1024],
///     measurements: vec![vec![3, 512, 512]; 8],
///     denoiser: None,
///     method: None,
///     inner_iterations: 50,
///     tiling: Tiling::default(),
///     ranks: 4,
///     threads: Some(1),
///     memory_budget: Some(1_000_000_000),
/// };
/// assert!(outline.advise()?.to_string().contains("from 8 operators, primal-dual with total variation"));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    /// The shape of the images, (batch, channel, spatial…).
    pub image: Vec<usize>,
    /// The shape of each operator's measurement, without the batch.
    pub measurements: Vec<Vec<usize>>,
    /// The network, or total variation for methods that take a prior.
    pub denoiser: Option<&'a NetworkDenoiser>,
    /// By default pgd with a network, else primal-dual.
    pub method: Option<Method>,
    /// The most iterations for a prox of the data term, of the methods that take one.
    pub inner_iterations: usize,
    /// How the image is cut.
    pub tiling: Tiling,
    /// The number of ranks.
    pub ranks: usize,
    /// The threads of each rank; by default the ranks share the cores of this machine.
    pub threads: Option<usize>,
    /// The bytes that each rank may take; without it, all ranks together must fit on this machine.
    pub memory_budget: Option<usize>,
}

impl Outline<'_> {
    /// What it would take, and what to change. Changes are named as the options of `haloscope plan`.
    pub fn advise(self) -> Result<Advice> {
        let planner = Planner::new(self);
        if planner.what.denoiser.is_some() && !planner.method.takes_network() {
            let reason = format!(
                "{} takes no network: leave the model out, or choose another solver",
                planner.method
            );
            return Err(Error::argument("plan", reason));
        }
        Advice::of(&planner)
    }
}

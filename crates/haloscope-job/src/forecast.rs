//! What a job would take cut in another way or on other ranks, without running it: for plans and advice.

use std::sync::Arc;

use haloscope::Result;
use haloscope::denoise::NetworkDenoiser;
use haloscope::forecast::Method;
use haloscope::tiling::Tiling;

use crate::Job;
use crate::layout::Layout;
use crate::memory::Expected;
use crate::sections::prior::PriorKind;

/// A job whose data and network are opened, to ask what it takes.
#[derive(Debug)]
pub struct JobForecast<'a> {
    job: &'a Job,
    layout: Layout,
    network: Option<Arc<NetworkDenoiser>>,
}

impl Job {
    /// Opens the data and the network, for ranks of so many threads. What one rank needs of them must fit here.
    pub fn forecast(&self, threads: usize) -> Result<JobForecast<'_>> {
        let layout = Layout::survey(self, 1)?;
        let network = self.open_network(threads, &layout.image)?.map(Arc::new);
        Ok(JobForecast { job: self, layout, network })
    }
}

impl JobForecast<'_> {
    /// What the job takes on so many ranks, with its images cut in another way if one is given.
    pub fn expect(&self, ranks: usize, tiling: Option<&Tiling>) -> Result<Expected> {
        Expected::with_tiling(self.job, &self.layout, ranks, self.network.as_deref(), tiling)
    }

    /// The shape of the image, (batch, channel, spatial…).
    #[must_use]
    pub fn image(&self) -> &[usize] {
        &self.layout.image
    }

    /// The number of operators.
    #[must_use]
    pub fn operators(&self) -> usize {
        self.layout.recipes.len()
    }

    /// The network of the prior, if it is one.
    #[must_use]
    pub fn network(&self) -> Option<&Arc<NetworkDenoiser>> {
        self.network.as_ref()
    }

    /// How the images of a network are cut; `None` for other priors.
    #[must_use]
    pub fn tiling(&self) -> Option<Tiling> {
        match &self.job.prior.kind {
            PriorKind::Network(network) => Some(network.tiling()),
            _ => None,
        }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.job.solver.method
    }

    /// Whether total variation is the prior.
    #[must_use]
    pub fn has_total_variation(&self) -> bool {
        matches!(self.job.prior.kind, PriorKind::TotalVariation { .. })
    }
}

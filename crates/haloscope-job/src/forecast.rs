//! What a job would take cut in another way or on other ranks, without running it: for advice.

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
pub(crate) struct JobForecast<'a> {
    job: &'a Job,
    layout: Layout,
    network: Option<Arc<NetworkDenoiser>>,
}

impl Job {
    /// Opens the data and the network, for ranks of so many threads. What one rank needs of them must fit here.
    pub(crate) fn forecast(&self, threads: usize) -> Result<JobForecast<'_>> {
        let layout = Layout::survey(self, 1, self.is_sharded())?;
        let network = self.open_network(threads, &layout.image)?.map(Arc::new);
        Ok(JobForecast { job: self, layout, network })
    }
}

impl JobForecast<'_> {
    /// What the job takes on so many ranks, in the layout that it has there. A grid that it gives suits one number of ranks;
    /// without `keeps_grid` it is the one that shares the work best.
    pub(crate) fn expect(&self, ranks: usize, keeps_grid: bool) -> Result<Expected> {
        let mut job = self.job.clone();
        if !keeps_grid {
            job.leave_grid_open();
        }
        let network = self.network.as_deref();
        let choice = job.compare_layouts(&self.layout, network, ranks)?;
        let job = job.in_layout(choice.is_sharded);
        let mut expected = Expected::of(&job, &self.layout, ranks, network)?;
        expected.layout = Some(choice);
        Ok(expected)
    }

    /// What the job takes on so many ranks with the whole image on each of them, for a network that cuts it in this way.
    pub(crate) fn expect_replicated(&self, ranks: usize, tiling: &Tiling) -> Result<Expected> {
        let job = self.job.in_layout(false);
        Expected::with_tiling(&job, &self.layout, ranks, self.network.as_deref(), Some(tiling))
    }

    /// Whether the job says that its image is in shards.
    pub(crate) fn is_sharded(&self) -> bool {
        self.job.is_sharded()
    }

    /// The shape of the image, (batch, channel, spatial…).
    pub(crate) fn image(&self) -> &[usize] {
        &self.layout.image
    }

    /// The number of operators.
    pub(crate) fn operators(&self) -> usize {
        self.layout.recipes.len()
    }

    /// The network of the prior, if it is one.
    pub(crate) fn network(&self) -> Option<&Arc<NetworkDenoiser>> {
        self.network.as_ref()
    }

    /// How the images of a network are cut; `None` for other priors.
    pub(crate) fn tiling(&self) -> Option<Tiling> {
        match &self.job.prior.kind {
            PriorKind::Network(network) => Some(network.tiling()),
            _ => None,
        }
    }

    /// The method.
    pub(crate) fn method(&self) -> Method {
        self.job.solver.method
    }

    /// Whether total variation is the prior.
    pub(crate) fn has_total_variation(&self) -> bool {
        matches!(self.job.prior.kind, PriorKind::TotalVariation { .. })
    }
}

//! What a job would take on any number of ranks, from shapes alone: no data are read or made, and nothing of it has to fit into
//! the memory of this machine.

use haloscope::denoise::NetworkDenoiser;
use haloscope::{Array, Result};

use crate::Job;
use crate::job::LayoutPlan;
use crate::layout::Layout;
use crate::memory::Expected;
use crate::sections::measurements::Source;

/// A job whose shapes and network are known, to ask what it takes.
///
/// ```
/// use haloscope_job::Job;
///
/// let job = Job::builder()
///     .measurements(|it| it.set("phantom", "landscape").set("size", vec![8192, 8192]))
///     .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.5).set("angle", vec![0, 90]))
///     .edit("image", |it| it.set("layout", "sharded"))
///     .solver("landweber", |it| it)
///     .build()?;
/// let outlook = job.outlook(1)?;
/// let [few, many] = [4, 64].map(|ranks| outlook.expect(ranks));
/// assert!(many?.rank_bytes < few?.rank_bytes);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Debug)]
pub struct Outlook {
    job: Job,
    layout: Layout,
    network: Option<NetworkDenoiser>,
}

impl Job {
    /// Opens the network, for ranks of so many threads, and nothing else. The data of a job that reads files are looked at.
    pub fn outlook(&self, threads: usize) -> Result<Outlook> {
        let layout = Layout::outline(self)?;
        let network = self.open_network(threads, &layout.image)?;
        Ok(Outlook { job: self.clone(), layout, network })
    }

    /// The image that a simulation measures, (batch, channel, spatial…); none if the job reads measurements.
    pub fn simulated_truth(&self) -> Result<Option<Array>> {
        match &self.measurements {
            Source::Simulation(simulation) => Ok(Some(simulation.truth()?.0)),
            Source::Files(_) | Source::Scan(_) => Ok(None),
        }
    }
}

impl Outlook {
    /// What the job takes on so many ranks, in the layout that it has there.
    pub fn expect(&self, ranks: usize) -> Result<Expected> {
        let network = self.network.as_ref();
        if !matches!(self.job.image.layout, LayoutPlan::Auto) {
            return Expected::of(&self.job, &self.layout, ranks, network);
        }
        let choice = self.job.choose_layout(&self.layout, network, ranks)?;
        let job = self.job.in_layout(choice.is_sharded);
        let mut expected = Expected::of(&job, &self.layout, ranks, network)?;
        expected.layout = Some(choice);
        Ok(expected)
    }

    /// The network of the prior, if it is one.
    #[must_use]
    pub fn network(&self) -> Option<&NetworkDenoiser> {
        self.network.as_ref()
    }

    /// The shape of the image, (batch, channel, spatial…).
    #[must_use]
    pub fn image(&self) -> &[usize] {
        &self.layout.image
    }
}

//! What a job will take of the machine's memory, before it takes it.
//!
//! The iterations are the library's to forecast. Around them the first rank holds the truth and the picture of the
//! measurements; before them the ranks read, project back and find an image to begin with.

use haloscope::denoise::{NetworkDenoiser, Wavelets};
use haloscope::distribute::{RankTraffic, ShardedStack};
use haloscope::forecast::{self, Denoising, Forecast};
use haloscope::physics::fourier::Footprint;
use haloscope::tiling::{Choice, ShardPlan, Tiling};
use haloscope::{Error, Result};
use serde_json::{Value, json};

use crate::Job;
use crate::choice::LayoutChoice;
use crate::devices::{describe_device, transfer_seconds};
use crate::layout::Layout;
use crate::machine::{Machine, address_space_left};
use crate::scratch::{ScratchPlan, Share};
use crate::sections::files::StartPlan;
use crate::sections::measurements::Source;
use crate::sections::operators::Recipe;
use crate::sections::prior::PriorKind;

/// What a job will take: its iterations by the library's forecast, and what is held around them.
#[derive(Debug)]
pub struct Expected {
    /// Of the iterations, rank by rank.
    pub forecast: Forecast,
    /// Where the values of the image are, once that is settled.
    pub layout: Option<LayoutChoice>,
    /// The most bytes that the first rank holds at once, if it is a process of its own; no other holds more.
    pub rank_bytes: u64,
    /// The same of the others.
    other_bytes: u64,
    /// Those of them that all ranks of one process share.
    shared_bytes: u64,
    /// The files of its large arrays, if it has a scratch folder.
    pub scratch: Option<ScratchPlan>,
}

impl Expected {
    /// Of a job on so many ranks, with its network, if it has one.
    pub(crate) fn of(
        job: &Job,
        layout: &Layout,
        ranks: usize,
        network: Option<&NetworkDenoiser>,
    ) -> Result<Self> {
        Self::with_tiling(job, layout, ranks, network, None)
    }

    /// The same, with images cut in another way, if one is given.
    pub(crate) fn with_tiling(
        job: &Job,
        layout: &Layout,
        ranks: usize,
        network: Option<&NetworkDenoiser>,
        tiling: Option<&Tiling>,
    ) -> Result<Self> {
        let measured: Vec<usize> = layout.recipes.iter().map(Recipe::measured_values).collect();
        let prior = match (&job.prior.kind, network) {
            (PriorKind::Network(plan), Some(denoiser)) => {
                let (has_range, own) = (job.prior.has_range(), || plan.tiling());
                let tiling = tiling.cloned().unwrap_or_else(own);
                forecast::PriorWork::Network(Denoising {
                    denoiser,
                    tiling,
                    has_range,
                    axes: plan.axes,
                })
            }
            (PriorKind::TotalVariation { denoiser, .. }, _) => {
                forecast::PriorWork::TotalVariation {
                    denoiser: *denoiser,
                    has_range: job.prior.has_range(),
                }
            }
            (PriorKind::Wavelets { denoiser, .. }, _) => forecast::PriorWork::Wavelets {
                denoiser: Wavelets { range: job.prior.clamp, ..*denoiser },
            },
            _ => forecast::PriorWork::None,
        };
        let workload = forecast::Workload {
            image: layout.image.clone(),
            measurements: measured.iter().map(|values| vec![*values]).collect(),
            ranks,
            method: job.solver.algorithm,
            inner_iterations: job.solver.inner_iterations(),
            subsets: job.solver.subsets(measured.len()),
            prior,
        };
        if let Some(shards) = job.shard_plan(&layout.image, network, ranks)? {
            return Self::in_shards(job, layout, &workload, &shards);
        }
        let forecast = workload.forecast()?;
        let image = bytes_of(&layout.image);
        let preparation = Preparation::of(job, layout, ranks, &measured);
        let iterations =
            |rank: usize| forecast.ranks.get(rank).map_or(0, |share| share.memory.total()) as u64;
        let truth = if layout.range.is_some() { image } else { 0 };
        let looks = job.output.folder.is_some() && !job.solver.method.is_direct();
        let before = if looks { image } else { 0 };
        let others = (1..ranks).map(iterations).max().unwrap_or(0);
        let operators = Operators::of(layout, ranks);
        let rank_bytes = truth + operators.around(preparation.first, before + iterations(0));
        let rank_bytes = rank_bytes.max(job.bytes_before_shrinking()?);
        let other_bytes = operators.around(preparation.other, others).min(rank_bytes);
        let weights = forecast.ranks.iter().map(|share| share.memory.weights).max();
        let shared_bytes = (weights.unwrap_or(0) as u64).min(other_bytes.max(1)).min(rank_bytes);
        Ok(Self { forecast, layout: None, rank_bytes, other_bytes, shared_bytes, scratch: None })
    }

    /// Of an image in shards. The first rank holds a truth that is no file as a whole until it has sent the parts of it.
    fn in_shards(
        job: &Job,
        layout: &Layout,
        workload: &forecast::Workload<'_>,
        shards: &ShardPlan,
    ) -> Result<Self> {
        let operators = layout.recipes.iter().map(Recipe::outline).collect::<Result<Vec<_>>>()?;
        let messages = ShardedStack::messages(&operators, shards, workload.ranks)?;
        let mut forecast = workload.forecast_shards(shards, &messages)?;
        if let (forecast::PriorWork::Network(network), false) =
            (&workload.prior, job.must_be_sharded())
        {
            // It would be the same if the image were replicated.
            forecast.choice = Some(network.tiling.choose(&layout.image, network.denoiser)?);
        }
        let image = bytes_of(&layout.image);
        let share = shards.largest_load(workload.ranks) / workload.ranks as f64;
        let of_part = |bytes: u64| (bytes as f64 * share).ceil() as u64;
        let measured: usize = workload.measurements.iter().flatten().sum();
        let data = of_part(bytes_of(&[layout.image[0], measured]));
        let most =
            |of: fn(&RankTraffic) -> usize| bytes_of(&[messages.iter().map(of).max().unwrap_or(0)]);
        // All of a measurement of operators that see the whole image, and its sums.
        let gathered = 3 * most(|traffic| traffic.gathered);
        // What operators make of an image, forward and back, with a sum and its next term.
        let terms = if workload.measurements.len() > 1 { 2 } else { 1 };
        let normal = data + most(|traffic| traffic.read_back) + terms * of_part(image) + gathered;
        // Beside the measurements: as they are read, or the image to begin with and what operators make of it.
        let mut moments = vec![
            data,
            match &job.start {
                StartPlan::Filled => 2 * of_part(image) + normal,
                StartPlan::Adjoint | StartPlan::PseudoInverse(_) => of_part(image) + normal,
                StartPlan::Zeros | StartPlan::BackProjection(..) | StartPlan::File(_) => {
                    of_part(image) + gathered
                }
            },
        ];
        if job.solver.needs_norm() {
            // The image to begin with, and two images of the norm's.
            moments.push(3 * of_part(image) + normal);
        }
        if layout.recipes[0].scan().is_some_and(|scan| scan.is_normalised()) {
            moments.push(2 * of_part(image) + normal);
        }
        if matches!(job.start, StartPlan::BackProjection(..)) {
            let stripe = bytes_of(&[layout.image[0], layout.recipes.len(), largest_view(layout)]);
            let stripe = bytes_of(&[layout.image[0], measured]).min(STRIPE.max(stripe));
            // Of filtered views that are sent, a copy is on its way.
            let sent = if workload.ranks > 1 { 2 } else { 1 };
            moments.push(of_part(image) + stripe + sent * of_part(stripe));
        }
        if job.output.clamp.is_some() {
            // The result as it is written.
            moments.push(2 * of_part(image));
        }
        let begins = data + moments.into_iter().max().unwrap_or(0);
        let truth = if layout.range.is_some() { of_part(image) } else { 0 };
        let is_dealt = layout.range.is_some() && job.truth_in_parts().is_none()
            || matches!(&job.start, StartPlan::File(file) if !file.has_parts());
        let mut whole = if is_dealt { image + of_part(image) } else { 0 };
        if layout.scans.values().any(|scanned| scanned.is_dealt) {
            // All of a scan, of which the first rank sends the others their parts.
            let largest = workload.measurements.iter().flatten().max().copied().unwrap_or(0);
            whole += bytes_of(&[layout.image[0], measured + largest]);
        }
        let iterations = forecast.largest_memory() as u64;
        let other_bytes = truth + begins.max(iterations);
        let weights = forecast.ranks.iter().map(|share| share.memory.weights).max();
        let shared_bytes = (weights.unwrap_or(0) as u64).min(other_bytes.max(1));
        let rank_bytes = (truth + whole).max(other_bytes).max(job.bytes_before_shrinking()?);
        Ok(Self { forecast, layout: None, rank_bytes, other_bytes, shared_bytes, scratch: None })
    }

    /// The bytes of so many ranks in so many processes.
    #[must_use]
    pub fn bytes(&self, ranks: usize, processes: usize) -> u64 {
        let own = |bytes: u64| bytes.saturating_sub(self.shared_bytes);
        let others = own(self.other_bytes).saturating_mul(ranks.saturating_sub(1) as u64);
        let shared = self.shared_bytes.saturating_mul(processes as u64);
        own(self.rank_bytes).saturating_add(others).saturating_add(shared)
    }

    /// Refuses what does not fit on this machine, which has `here` of the ranks in so many processes.
    pub(crate) fn check(&self, here: usize, processes: usize) -> Result<()> {
        if let Some(scratch) = &self.scratch {
            return scratch.check();
        }
        // A replicated image has other ways to be denoised.
        let choice = self.forecast.choice.as_ref();
        let has_tiles =
            choice.is_some_and(|choice| choice.is_exact() && choice.pass_bytes.is_some());
        let remedy = match choice {
            _ if has_tiles => "more machines, or tiles: strategy = \"overlap\" in [prior]",
            Some(choice) if choice.pass_bytes.is_some() => {
                "more machines, or smaller tiles: `patch` in [prior]"
            }
            _ => "or more machines",
        };
        check(self.bytes(here, processes), remedy)?;
        let together = here.div_ceil(processes.max(1));
        check_address_space(self.bytes(together, 1), address_space_left())
    }

    /// The same with large arrays in files, if the job has a scratch folder, of `here` ranks on this machine in so many processes.
    pub(crate) fn in_scratch(
        mut self,
        job: &Job,
        layout: &Layout,
        network: Option<&NetworkDenoiser>,
        here: usize,
        processes: usize,
    ) -> Result<Self> {
        let of_network = |share: &forecast::Share| share.memory.weights + share.memory.activations;
        let of_network = self.forecast.ranks.iter().map(of_network).max().unwrap_or(0) as u64;
        let choice = self.forecast.choice.as_ref();
        let share = Share {
            all: self.rank_bytes,
            network: of_network.min(self.rank_bytes),
            is_exact: choice.is_some_and(Choice::is_exact),
            can_have_tiles: choice.is_some_and(|choice| choice.pass_bytes.is_some()),
        };
        let ranks = (here, here.div_ceil(processes.max(1)));
        self.scratch = ScratchPlan::of(job, layout, network, &share, ranks)?;
        Ok(self)
    }

    /// How much it is for so many ranks, of which each process has `together`.
    #[must_use]
    pub fn describe(&self, ranks: usize, together: usize) -> String {
        if let Some(scratch) = &self.scratch {
            return scratch.describe();
        }
        format!("about {}{}", size(self.bytes(together, 1)), whose(ranks, together))
    }

    /// The same as the words that begin a run.
    #[must_use]
    pub fn announce(&self, ranks: usize, together: usize) -> String {
        if let Some(scratch) = &self.scratch {
            return format!(
                "about {} of memory and {} of {}",
                size(scratch.memory_bytes),
                size(scratch.file_bytes),
                scratch.folder.display()
            );
        }
        format!("about {} of memory{}", size(self.bytes(together, 1)), whose(ranks, together))
    }

    /// What the device of a network holds and is sent, if it has memory of its own.
    pub(crate) fn describe_device(&self, network: &NetworkDenoiser) -> Option<String> {
        let bytes = self.forecast.largest_device_memory() as u64;
        let traffic = self.forecast.largest_device_traffic();
        (bytes > 0).then(|| describe_device(&network.device(), bytes, traffic))
    }

    /// For programs.
    #[must_use]
    pub fn details(&self) -> Value {
        let rank = |share: &forecast::Share| {
            json!({
                "operators": share.operators,
                "tiles": share.tiles,
                "load": share.load,
                "memory_bytes": share.memory.total(),
                "device_bytes": share.memory.device,
                "device_traffic_bytes": share.device_traffic,
                "device_traffic_seconds": transfer_seconds(share.device_traffic),
                "halo_rounds": share.exchanges.rounds,
                "halo_bytes_sent": share.exchanges.bytes_sent,
                "bytes_sent_per_iteration": share.bytes_sent,
            })
        };
        let tiles = self.forecast.tiles.as_ref();
        json!({
            "rank_bytes": self.rank_bytes,
            "shared_bytes": self.shared_bytes,
            "available_bytes": Machine::detect().memory_available_bytes,
            "layout": self.layout,
            "scratch": self.scratch,
            "tiles": tiles.map_or(0, haloscope::tiling::TilePlan::len),
            "window": tiles.map(|tiles| tiles.window().to_vec()),
            "shards": self.forecast.shards.as_ref().map(ShardPlan::grid),
            "exact": self.forecast.shards.is_some(),
            "rows_per_wave": self.forecast.pass.band(),
            "reason": self.forecast.choice.as_ref().map(|choice| &choice.reason),
            "teraflop_per_iteration": self.forecast.flops / 1e12,
            "ranks": self.forecast.ranks.iter().map(rank).collect::<Vec<_>>(),
        })
    }
}

impl Job {
    /// What the first rank holds of images that are made smaller: the largest of the originals, one of which is read at a time.
    fn bytes_before_shrinking(&self) -> Result<u64> {
        let simulated = match &self.measurements {
            Source::Simulation(simulation) => simulation.file(),
            Source::Files(_) | Source::Scan(_) => None,
        };
        let truth = self.truth.as_ref().and_then(|truth| truth.file.as_ref());
        let start = match &self.start {
            StartPlan::File(file) => Some(file),
            _ => None,
        };
        let mut most = 0;
        for file in [simulated, truth, start].into_iter().flatten() {
            most = most.max(file.bytes_before_shrinking()?);
        }
        Ok(most)
    }
}

/// What operators themselves take of a rank: those of frequencies, which have grids, screens and maps.
struct Operators {
    /// All of a rank's, of the rank that holds the most, without and with what they keep from their first call on.
    held: u64,
    kept: u64,
    /// One of them while it is applied, and what one takes more while it is made.
    applied: u64,
    made: u64,
}

impl Operators {
    fn of(layout: &Layout, ranks: usize) -> Self {
        let threads = Machine::detect().threads_per_rank(ranks);
        let all: Vec<_> = layout.recipes.iter().map(|recipe| recipe.footprint(threads)).collect();
        let most_of_rank = |of: fn(&Footprint) -> usize| {
            let of_rank = |rank: usize| all.iter().skip(rank).step_by(ranks).map(of).sum::<usize>();
            (0..ranks).map(of_rank).max().unwrap_or(0) as u64
        };
        let most = |of: fn(&Footprint) -> usize| all.iter().map(of).max().unwrap_or(0) as u64;
        Self {
            held: most_of_rank(|bytes| bytes.held),
            kept: most_of_rank(|bytes| bytes.held + bytes.kept),
            applied: most(|bytes| bytes.applied),
            made: most(|bytes| bytes.made.saturating_sub(bytes.held)),
        }
    }

    /// The most at once, where so much else is there before the first iteration and in one.
    fn around(&self, before: u64, iteration: u64) -> u64 {
        (self.held + self.made).max(self.kept + self.applied + before.max(iteration))
    }
}

/// The most bytes that ranks hold before the first iteration.
struct Preparation {
    first: u64,
    other: u64,
}

impl Preparation {
    /// Of operators that measure so many values each.
    fn of(job: &Job, layout: &Layout, ranks: usize, measured: &[usize]) -> Self {
        let image = bytes_of(&layout.image);
        let bytes = |values: usize| bytes_of(&[layout.image[0], values]);
        let own = |rank: usize| bytes(measured.iter().skip(rank).step_by(ranks).sum());
        let (all, largest) =
            (bytes(measured.iter().sum()), bytes(measured.iter().copied().max().unwrap_or(0)));
        let sum = if ranks > 1 { 2 * image } else { image };
        // What a rank holds beside its own measurements.
        let mut moments = vec![match &job.start {
            _ if job.solver.method.is_direct() => 0,
            // The adjoint, what the operators make of it and of a constant image, and a sum.
            StartPlan::Filled => 3 * image + sum,
            StartPlan::Adjoint | StartPlan::PseudoInverse(_) => 2 * image + sum,
            StartPlan::Zeros | StartPlan::BackProjection(..) | StartPlan::File(_) => image,
        }];
        if job.solver.needs_norm() {
            // The image to begin with, two images of the norm's, and what an operator measures.
            moments.push(3 * image + sum + largest);
        }
        let scan = layout.recipes[0].scan();
        if matches!(job.start, StartPlan::BackProjection(..))
            || scan.is_some() && job.output.folder.is_some()
        {
            // Filtered views, of the rank and of all; then the rank's lines and the image.
            let stripe = all.min(STRIPE.max(bytes_of(&[
                layout.image[0],
                measured.len(),
                largest_view(layout),
            ])));
            let lines = image.div_ceil(ranks as u64);
            moments.push(lines + stripe + stripe.div_ceil(ranks as u64));
            // Of the lines that ranks send each other in the end, about half are on their way at a time.
            moments.push(if ranks > 1 { lines + lines / 2 + image } else { image });
        }
        if scan.is_some_and(|scan| scan.is_normalised()) {
            // Two images of the norm's, and what an operator measures.
            moments.push(2 * image + sum + largest);
        }
        if job.preparation.has_rings() {
            // What is sent of rows, and what arrives.
            moments.push(2 * own(0));
        }
        let most = moments.into_iter().max().unwrap_or(0);
        // All of a scan, while its parts are dealt.
        let is_dealt = layout.scans.values().any(|scanned| scanned.is_dealt);
        let dealing = if is_dealt { all + if ranks > 1 { largest } else { 0 } } else { 0 };
        let other = match job.measurements {
            Source::Simulation(_) => most.max(image),
            _ => most,
        };
        Self { first: own(0) + most.max(dealing), other: own(1.min(ranks - 1)) + other }
    }
}

/// The values of a view, of all channels.
fn largest_view(layout: &Layout) -> usize {
    let scan = layout.recipes[0].scan();
    scan.map_or(0, |scan| scan.values(0) / scan.views_of(0).len().max(1))
}

/// What ranks send each other at once of filtered views: 16 MB, as the library has it.
const STRIPE: u64 = 1 << 24;

/// The ranks that an amount of memory is for.
fn whose(ranks: usize, together: usize) -> String {
    match (ranks, together) {
        (1, _) => String::new(),
        (_, 1) => format!(" on each of {ranks} ranks"),
        _ => format!(" for {together} ranks together"),
    }
}

/// Refuses images of which this machine cannot hold even the few that every method needs on each of its ranks, before one
/// is made.
pub(crate) fn check_image(job: &Job, shape: &[usize], here: usize) -> Result<()> {
    let of_rank = bytes_of(shape).saturating_mul(4);
    if let Some((options, folder)) = job.memory.options()? {
        let needed = of_rank.saturating_mul(here as u64);
        return job.memory.check_room(&options.folder, (needed, 0), folder.free);
    }
    check(of_rank.saturating_mul(here as u64), "or more machines")?;
    check_address_space(of_rank, address_space_left())
}

fn check(needed: u64, remedy: &str) -> Result<()> {
    match Machine::detect().memory_available_bytes {
        Some(available) if needed > available => Err(Error::argument(
            "memory",
            format!(
                "the job needs about {} on this machine and {} are available; use a smaller image, fewer ranks, {remedy}",
                gigabytes(needed),
                gigabytes(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// Refuses what does not fit into the address space that a process may still take.
fn check_address_space(needed: u64, left: Option<u64>) -> Result<()> {
    match left {
        Some(left) if needed > left => Err(Error::argument(
            "memory",
            format!(
                "a process of the job needs about {} and its limit on address space leaves {}; raise the limit (`ulimit -v`), or \
                 use a smaller image or more processes with an image in shards",
                gigabytes(needed),
                gigabytes(left)
            ),
        )),
        _ => Ok(()),
    }
}

/// Of an array of this shape.
fn bytes_of(shape: &[usize]) -> u64 {
    shape.iter().fold(4, |bytes: u64, side| bytes.saturating_mul(*side as u64))
}

/// What ranks send, in the unit that suits it.
pub(crate) fn sent(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => gigabytes(bytes),
    }
}

/// In megabytes where gigabytes would say nothing.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{} MB", bytes.div_ceil(1_000_000)),
        _ => gigabytes(bytes),
    }
}

/// In gigabytes with one digit behind the point.
pub(crate) fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_limit_on_address_space_does_not_hold_is_refused_with_the_limit() {
        let check = |left| check_address_space(3_000_000_000, left);
        assert!(check(None).is_ok() && check(Some(3_000_000_000)).is_ok());
        let error = check(Some(2_000_000_000)).expect_err("too much").to_string();
        for words in ["needs about 3.0 GB", "leaves 2.0 GB", "`ulimit -v`"] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn ranks_of_one_process_have_the_weights_once() {
        let forecast = Forecast {
            tiles: None,
            shards: None,
            choice: None,
            pass: haloscope::denoise::Pass::AtOnce,
            batch: 0,
            flops: 0.0,
            ranks: Vec::new(),
        };
        let expected = Expected {
            forecast,
            layout: None,
            rank_bytes: 900_000_000,
            other_bytes: 800_000_000,
            shared_bytes: 600_000_000,
            scratch: None,
        };
        assert_eq!(expected.bytes(4, 1), 1_500_000_000);
        assert_eq!(expected.bytes(4, 4), 3_300_000_000);
        assert_eq!(expected.describe(1, 1), "about 900 MB");
        assert_eq!(expected.describe(4, 4), "about 1.5 GB for 4 ranks together");
        assert_eq!(expected.describe(4, 1), "about 900 MB on each of 4 ranks");
    }
}

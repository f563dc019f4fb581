//! Advice as text: the reconstruction, what each rank has and takes, the alternatives, and what to do.

use std::fmt::{self, Formatter};

use haloscope::words::{count, sides};

use super::arrangement::{Arrangement, RankShare};
use super::room::Room;
use super::{Advice, NetworkFacts};
use crate::devices::describe_device;

/// Ranks that get a line each; of more, the first, the one with the most work and the one with the most memory do.
const MOST_LINES: usize = 8;

/// What is said of a prior that every rank computes whole.
pub(super) const TOTAL_VARIATION: &str = "total variation";

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let prior = self.network.as_ref().map_or(self.prior, |network| &network.name);
        writeln!(
            f,
            "{}{} from {}, {} with {prior}, on {} of {}\n",
            self.job.as_ref().map_or_else(String::new, |job| format!("{job}: ")),
            describe_image(&self.sides, self.channels),
            count(self.operators, "operator"),
            self.solver,
            count(self.plan.ranks.len(), "rank"),
            count(self.threads_per_rank, "thread"),
        )?;
        if let Some(network) = &self.network {
            write_network(f, network, &self.plan)?;
        }
        self.write_messages(f)?;
        self.write_ranks(f)?;
        self.write_memory(f)?;
        self.write_alternatives(f)?;
        self.write_other_ranks(f)?;
        writeln!(f, "\nadvice     {}", self.recommendation)
    }
}

impl Advice {
    fn write_messages(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        if let Some(layout) = &plan.layout {
            writeln!(f, "layout     {}, because {}", layout.name(), layout.reason)?;
            for row in layout.table().iter().filter(|_| plan.ranks.len() > 1) {
                writeln!(f, "           {row}")?;
            }
        }
        writeln!(
            f,
            "messages   {}{} in an iteration, all ranks together\n",
            if self.has_inner_iterations { "at most " } else { "" },
            megabytes(plan.bytes_sent_per_iteration as f64)
        )
    }

    fn write_ranks(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ranks = &self.plan.ranks;
        let of_network = |tiles: &str, load: &str| match self.network {
            Some(_) => format!(" {tiles:>6} {load:>6}"),
            None => String::new(),
        };
        let names = of_network("tiles", "load");
        writeln!(f, "{:>6} {:>10}{names} {:>10} {:>10}", "rank", "operators", "memory", "sends")?;
        let by = |key: &dyn Fn(usize) -> f64| {
            (0..ranks.len()).rev().max_by(|one, other| key(*one).total_cmp(&key(*other)))
        };
        let mut shown: Vec<usize> = (0..ranks.len()).collect();
        if ranks.len() > MOST_LINES {
            let slowest = by(&|rank| ranks[rank].load);
            let hungriest = by(&|rank| ranks[rank].memory_bytes as f64);
            shown = std::iter::once(0).chain(slowest).chain(hungriest).collect();
            shown.sort_unstable();
            shown.dedup();
        }
        for rank in &shown {
            let share = &ranks[*rank];
            writeln!(
                f,
                "{rank:>6} {:>10}{} {:>10} {:>10}",
                share.operators,
                of_network(&share.tiles.to_string(), &format!("{:.2}", share.load)),
                megabytes(share.memory_bytes as f64),
                megabytes(share.bytes_sent_per_iteration as f64)
            )?;
        }
        if shown.len() < ranks.len() {
            let others = count(ranks.len() - shown.len(), "other rank");
            writeln!(f, "{:>6} and {others} with no more than these", "")?;
        }
        Ok(())
    }

    /// What the largest rank takes, and what all of it is compared with.
    fn write_memory(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = &self.plan.largest().memory;
        writeln!(
            f,
            "\nmemory     images {}, measurements {}, tiles {}, weights {}, network {}",
            megabytes(parts.images as f64),
            megabytes(parts.measurements as f64),
            megabytes(parts.tiles as f64),
            megabytes(parts.weights as f64),
            megabytes(parts.activations as f64)
        )?;
        writeln!(f, "           without the program itself, and tables that operators keep")?;
        match self.room {
            Room::Budget(bytes) => {
                writeln!(f, "           a rank may take {}", megabytes(bytes as f64))?;
            }
            Room::Machine(bytes) => writeln!(
                f,
                "           about {} for all ranks together; {} are available on this machine",
                megabytes(self.plan.together_bytes as f64),
                megabytes(bytes as f64)
            )?,
            Room::Unknown => (),
        }
        self.device_words().map_or(Ok(()), |words| writeln!(f, "device     {words}"))
    }

    /// What the device of a rank holds and is sent, if it has memory of its own.
    fn device_words(&self) -> Option<String> {
        let most = |of: fn(&RankShare) -> u64| self.plan.ranks.iter().map(of).max().unwrap_or(0);
        let bytes = most(|share| share.device_bytes as u64);
        let traffic = most(|share| share.device_traffic_bytes);
        let device = &self.network.as_ref()?.device;
        (bytes > 0).then(|| describe_device(device, bytes, traffic))
    }

    fn write_alternatives(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.alternatives.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:>8} {:>6} {:>14} {:>6} {:>10} {:>10}",
            "patch", "tiles", "windows", "load", "memory", "messages"
        )?;
        for plan in std::iter::once(&self.plan).chain(&self.alternatives) {
            writeln!(
                f,
                "{:>8} {:>6} {:>14} {:>6.2} {:>10} {:>10}{}",
                if plan.is_exact() { "exact" } else { &plan.patch },
                plan.tiles,
                sides(&plan.window),
                plan.largest_load,
                megabytes(plan.largest_memory_bytes as f64),
                megabytes(plan.bytes_sent_per_iteration as f64),
                note(plan)
            )?;
        }
        Ok(())
    }

    /// How much faster an iteration gets is not known here, because how long the data term takes beside the prior is not. What
    /// is known is the part of the rank with the most to do, for which all others wait.
    fn write_other_ranks(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let of_network = |windows: &str, tiles: &str, pixels: &str| match self.network {
            Some(_) => format!(" {windows:>14} {tiles:>12} {pixels:>7}"),
            None => String::new(),
        };
        writeln!(
            f,
            "\n{:>6} {:>12}{} {:>10} {:>10}",
            "ranks",
            "operators",
            of_network("windows", "tiles", "pixels"),
            "memory",
            "messages"
        )?;
        for plan in &self.other_ranks {
            let ranks = plan.ranks.len();
            let tiles = format!("{} of {}", plan.most_tiles, plan.tiles);
            let pixels = format!("{:.2}", plan.largest_load / ranks as f64);
            writeln!(
                f,
                "{ranks:>6} {:>12}{} {:>10} {:>10}{}",
                format!("{} of {}", plan.most_operators, self.operators),
                of_network(&sides(&plan.window), &tiles, &pixels),
                megabytes(plan.largest_memory_bytes as f64),
                megabytes(plan.bytes_sent_per_iteration as f64),
                note(plan)
            )?;
        }
        let is_sharded = self.plan.layout.as_ref().is_some_and(|layout| layout.is_sharded);
        let explanation = if self.network.is_some() {
            "operators, tiles and memory of the rank with the most; pixels are those that its network computes for each of the image"
        } else if self.prior == TOTAL_VARIATION && !is_sharded {
            "operators and memory of the rank with the most; total variation is computed whole on every rank, and gets no faster"
        } else {
            "operators and memory of the rank with the most"
        };
        writeln!(f, "           {explanation}")
    }
}

/// The network, and how images are cut for it.
fn write_network(f: &mut Formatter<'_>, network: &NetworkFacts, plan: &Arrangement) -> fmt::Result {
    writeln!(
        f,
        "network    {:.1} million weights; a pixel matters {}, and {}",
        network.parameters as f64 / 1e6,
        network.receptive_radius.map_or_else(
            || "nobody knows how far away".to_owned(),
            |radius| format!("up to {} away", count(radius, "pixel"))
        ),
        if plan.is_exact() {
            "all of them count".to_owned()
        } else {
            format!("the overlap is {}", plan.overlap)
        }
    )?;
    let (tiles, grid, window) = (plan.tiles, sides(&plan.grid), sides(&plan.window));
    let reason = plan.reason.as_deref().unwrap_or("the strategy is given");
    if plan.is_exact() {
        writeln!(
            f,
            "parts      {tiles} ({grid}), at most {window}, one for a rank; the largest is {:.2} fair shares\n           \
             exact, because {reason}",
            plan.largest_load
        )?;
        if let Some(band) = plan.rows_per_wave {
            writeln!(
                f,
                "           in waves of {}, because all rows at once would hold more than a rank should",
                count(band, "row")
            )?;
        }
        writeln!(
            f,
            "halos      {} in an iteration, in which a rank sends {} at most",
            count(plan.halo_rounds, "round"),
            megabytes(plan.halo_bytes as f64)
        )?;
    } else {
        writeln!(
            f,
            "tiles      {tiles} ({grid}), windows of {window}, {} at once\n           tiles, because {reason}",
            plan.tiles_at_once
        )?;
    }
    writeln!(
        f,
        "work       {:.2} pixels are computed for each of the image, {:.2} TFLOP in an iteration",
        plan.work_multiplier, plan.teraflop_per_iteration
    )
}

/// After the line of an arrangement.
fn note(plan: &Arrangement) -> &'static str {
    if plan.fits { "" } else { "  too much" }
}

pub(super) fn megabytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e11 => format!("{:.0} GB", bytes / 1e9),
        bytes if bytes >= 1e10 => format!("{:.1} GB", bytes / 1e9),
        bytes if bytes >= 1e7 => format!("{:.0} MB", bytes / 1e6),
        bytes if bytes >= 1e5 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{bytes:.0} B"),
    }
}

fn describe_image(lengths: &[usize], channels: usize) -> String {
    let (what, order) = match lengths.len() {
        2 => ("an image", "height, width"),
        _ => ("a volume", "depth, height, width"),
    };
    format!("{what} of {} ({order}) with {}", sides(lengths), count(channels, "channel"))
}

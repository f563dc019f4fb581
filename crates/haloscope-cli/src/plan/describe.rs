//! A plan in words.

use std::fmt::Write;

use anyhow::Result;
use haloscope::forecast::PriorWork;
use haloscope::tiling::{Extent, Strategy};

use super::room::Room;
use super::{Plan, Report};
use haloscope_job::words::count;

/// Ranks that get a line each; of more, the first, the one with the most work and the one with the most memory do.
const MOST_LINES: usize = 8;

pub(super) fn text(report: &Report) -> Result<String> {
    let mut text = String::new();
    let plan = &report.plan;
    let ranks = plan.ranks.len();
    let prior = report.network.as_ref().map_or(report.prior, |network| &network.name);
    writeln!(
        text,
        "{}{} from {}, {} with {prior}, on {} of {}\n",
        report.job.as_ref().map_or_else(String::new, |job| format!("{job}: ")),
        describe_image(report.sides.len(), &join(&report.sides), report.channels),
        count(report.operators, "operator"),
        report.solver,
        count(ranks, "rank"),
        count(report.threads_per_rank, "thread"),
    )?;
    if let Some(network) = &report.network {
        writeln!(
            text,
            "network    {:.1} million weights; a pixel matters up to {} away, and {}",
            network.parameters as f64 / 1e6,
            count(network.receptive_radius, "pixel"),
            if plan.is_exact() {
                "all of them count".to_owned()
            } else {
                format!("the overlap is {}", plan.overlap)
            }
        )?;
        let (tiles, grid, window) = (plan.tiles, join(&plan.grid), join(&plan.window));
        let reason = plan.reason.as_deref().unwrap_or("the strategy is given");
        if plan.is_exact() {
            writeln!(
                text,
                "parts      {tiles} ({grid}), at most {window}, one for a rank; the largest is {:.2} fair shares\n           \
                 exact, because {reason}",
                plan.largest_load
            )?;
            writeln!(
                text,
                "halos      {} in an iteration, in which a rank sends {} at most",
                count(plan.halo_rounds, "round"),
                megabytes(plan.halo_bytes as f64)
            )?;
        } else {
            writeln!(
                text,
                "tiles      {tiles} ({grid}), windows of {window}, {} at once\n           tiles, because {reason}",
                plan.tiles_at_once
            )?;
        }
        writeln!(
            text,
            "work       {:.2} pixels are computed for each of the image, {:.2} TFLOP in an iteration",
            plan.work_multiplier, plan.teraflop_per_iteration
        )?;
    }
    writeln!(
        text,
        "messages   {}{} in an iteration, all ranks together\n",
        if report.has_inner_iterations { "at most " } else { "" },
        megabytes(plan.bytes_sent_per_iteration as f64)
    )?;
    write_ranks(&mut text, report)?;
    let parts = &largest(plan).memory;
    writeln!(
        text,
        "\nmemory     images {}, measurements {}, tiles {}, weights {}, network {}",
        megabytes(parts.images as f64),
        megabytes(parts.measurements as f64),
        megabytes(parts.tiles as f64),
        megabytes(parts.weights as f64),
        megabytes(parts.activations as f64)
    )?;
    writeln!(text, "           without the program itself, and tables that operators keep")?;
    write_room(&mut text, report)?;
    write_alternatives(&mut text, report)?;
    write_other_ranks(&mut text, report)?;
    writeln!(text, "\nadvice     {}", report.recommendation)?;
    Ok(text)
}

fn write_ranks(text: &mut String, report: &Report) -> Result<()> {
    let plan = &report.plan;
    let of_network = |tiles: &str, load: &str| match report.network {
        Some(_) => format!(" {tiles:>6} {load:>6}"),
        None => String::new(),
    };
    let names = of_network("tiles", "load");
    writeln!(text, "{:>6} {:>10}{names} {:>10} {:>10}", "rank", "operators", "memory", "sends")?;
    let by = |key: &dyn Fn(usize) -> f64| {
        (0..plan.ranks.len()).rev().max_by(|one, other| key(*one).total_cmp(&key(*other)))
    };
    let mut shown: Vec<usize> = (0..plan.ranks.len()).collect();
    if plan.ranks.len() > MOST_LINES {
        let slowest = by(&|rank| plan.ranks[rank].load);
        let hungriest = by(&|rank| plan.ranks[rank].memory_bytes as f64);
        shown = std::iter::once(0).chain(slowest).chain(hungriest).collect();
        shown.sort_unstable();
        shown.dedup();
    }
    for rank in &shown {
        let share = &plan.ranks[*rank];
        writeln!(
            text,
            "{rank:>6} {:>10}{} {:>10} {:>10}",
            share.operators,
            of_network(&share.tiles.to_string(), &format!("{:.2}", share.load)),
            megabytes(share.memory_bytes as f64),
            megabytes(share.bytes_sent_per_iteration as f64)
        )?;
    }
    if shown.len() < plan.ranks.len() {
        writeln!(
            text,
            "{:>6} and {} with no more than these",
            "",
            count(plan.ranks.len() - shown.len(), "other rank")
        )?;
    }
    Ok(())
}

/// What all of it is compared with.
fn write_room(text: &mut String, report: &Report) -> Result<()> {
    match report.room {
        Room::Budget(bytes) => {
            writeln!(text, "           a rank may take {}", megabytes(bytes as f64))?;
        }
        Room::Machine(bytes) => writeln!(
            text,
            "           about {} for all ranks together; {} are available on this machine",
            megabytes(report.plan.together_bytes as f64),
            megabytes(bytes as f64)
        )?,
        Room::Unknown => (),
    }
    Ok(())
}

fn write_alternatives(text: &mut String, report: &Report) -> Result<()> {
    if report.alternatives.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n{:>8} {:>6} {:>14} {:>6} {:>10} {:>10}",
        "patch", "tiles", "windows", "load", "memory", "messages"
    )?;
    for plan in std::iter::once(&report.plan).chain(&report.alternatives) {
        writeln!(
            text,
            "{:>8} {:>6} {:>14} {:>6.2} {:>10} {:>10}{}",
            if plan.is_exact() { "exact" } else { &plan.patch },
            plan.tiles,
            join(&plan.window),
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
fn write_other_ranks(text: &mut String, report: &Report) -> Result<()> {
    let of_network = |windows: &str, tiles: &str, pixels: &str| match report.network {
        Some(_) => format!(" {windows:>14} {tiles:>12} {pixels:>7}"),
        None => String::new(),
    };
    writeln!(
        text,
        "\n{:>6} {:>12}{} {:>10} {:>10}",
        "ranks",
        "operators",
        of_network("windows", "tiles", "pixels"),
        "memory",
        "messages"
    )?;
    for plan in &report.other_ranks {
        let ranks = plan.ranks.len();
        let tiles = format!("{} of {}", plan.most_tiles, plan.tiles);
        let pixels = format!("{:.2}", plan.largest_load / ranks as f64);
        writeln!(
            text,
            "{ranks:>6} {:>12}{} {:>10} {:>10}{}",
            format!("{} of {}", plan.most_operators, report.operators),
            of_network(&join(&plan.window), &tiles, &pixels),
            megabytes(plan.largest_memory_bytes as f64),
            megabytes(plan.bytes_sent_per_iteration as f64),
            note(plan)
        )?;
    }
    let explanation = if report.network.is_some() {
        "operators, tiles and memory of the rank with the most; pixels are those that its network computes for each of the image"
    } else if report.has_total_variation() {
        "operators and memory of the rank with the most; total variation is computed whole on every rank, and gets no faster"
    } else {
        "operators and memory of the rank with the most"
    };
    writeln!(text, "           {explanation}")?;
    Ok(())
}

/// After the line of a plan.
fn note(plan: &Plan) -> &'static str {
    if plan.fits { "" } else { "  too much" }
}

/// The rank that needs the most memory.
fn largest(plan: &Plan) -> &super::Rank {
    let most = plan.ranks.iter().max_by_key(|rank| rank.memory_bytes);
    most.unwrap_or(&plan.ranks[0])
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

pub(super) fn extent(extent: &Extent) -> String {
    match extent {
        Extent::Same(length) => length.to_string(),
        Extent::PerAxis(lengths) => join(lengths),
    }
}

/// What is said of a prior that every rank computes whole.
pub(super) const TOTAL_VARIATION: &str = "total variation";

impl Report {
    fn has_total_variation(&self) -> bool {
        self.prior == TOTAL_VARIATION
    }
}

pub(super) fn prior(prior: &PriorWork) -> &'static str {
    match prior {
        PriorWork::None => "no prior",
        PriorWork::TotalVariation { .. } => TOTAL_VARIATION,
        PriorWork::Network(_) => "a network",
    }
}

pub(super) fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Standard => "standard",
        Strategy::Basic => "basic",
        Strategy::Overlap => "overlap",
        Strategy::Blend => "blend",
        Strategy::Exact => "exact",
    }
}

fn join(sides: &[usize]) -> String {
    sides.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

fn describe_image(axes: usize, sides: &str, channels: usize) -> String {
    let (what, order) = match axes {
        2 => ("an image", "height, width"),
        _ => ("a volume", "depth, height, width"),
    };
    format!("{what} of {sides} ({order}) with {}", count(channels, "channel"))
}

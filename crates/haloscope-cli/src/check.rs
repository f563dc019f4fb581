//! `haloscope check`: everything that a run would find wrong at its beginning, and what it would do; nothing is run.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use haloscope::forecast::Forecast;
use haloscope_comm::Launch;

use crate::exit::{Code, Misuse};
use crate::job::Job;
use crate::job::files::StartPlan;
use crate::job::measurements::Source;
use crate::machine::Machine;
use crate::memory::{Expected, gigabytes};
use crate::reconstruct::layout::Layout;
use crate::time;
use crate::words::count;

/// The options of `haloscope check`.
#[derive(clap::Args, Clone)]
pub struct Arguments {
    /// Job file
    job: PathBuf,

    /// Number of ranks to plan for, on this machine
    #[arg(long, value_name = "N", value_parser = crate::ranks::parse_ranks)]
    ranks: Option<usize>,
}

/// Prints the plan of the job.
pub fn run(arguments: &Arguments) -> Result<Code> {
    // Under a launcher, one process is enough to look.
    let launch = Launch::detect().ok().flatten();
    if launch.is_some_and(|launch| launch.rank != 0) {
        return Ok(Code::Success);
    }
    let ranks = arguments.ranks.or(launch.and_then(|launch| launch.size)).unwrap_or(1);
    // A launcher's ranks are processes, ours are threads.
    let together = arguments.ranks.unwrap_or(1);
    let job = Job::open(&arguments.job).map_err(Misuse::error)?;
    let text = check(&job, ranks, together).map_err(Misuse::error)?;
    crate::print(&text)?;
    Ok(Code::Success)
}

/// Checks a job on so many ranks, of which each process has `together`.
fn check(job: &Job, ranks: usize, together: usize) -> haloscope::Result<String> {
    // In the order of a run, so that the same fault is found first.
    let layout = Layout::of(job, ranks)?;
    let network = job.open_network((Machine::detect().cores / ranks).max(1), &layout.image)?;
    let expected = Expected::of(job, &layout, ranks, network.as_ref())?;
    expected.check(ranks, ranks / together)?;
    let mut shapes = Vec::new();
    for recipe in &*layout.recipes {
        shapes.push(recipe.draft()?.measurement_shape().to_vec());
    }
    if !matches!(job.measurements, Source::Simulation(_)) {
        // One at a time: all of them need not fit.
        for index in 0..layout.recipes.len() {
            layout.read(job, &shapes, std::iter::once(index))?;
        }
    }
    if let StartPlan::File(file) = &job.start {
        layout.load_start(file)?;
    }
    let warnings = layout.warnings(job)?;
    let checkpoints = job.checkpoint.open()?;
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<13} {value}");
    };
    line("job", format!("{} is valid", job.name));
    line("image", describe_image(&layout));
    line("operators", describe_operators(&layout, &shapes));
    let scan = layout.recipes[0].scan();
    for (name, value) in scan.map(|scan| scan.describe()).unwrap_or_default() {
        line(name, value);
    }
    line("measurements", job.measurements.describe());
    if let Some(values) = &layout.values {
        line("values", values.clone());
    }
    line("fidelity", job.fidelity.name.into());
    line("prior", job.prior.describe() + &describe_tiles(&expected.forecast));
    let name = job.solver.method.name();
    line(
        "solver",
        if job.solver.method.is_direct() {
            format!("{name}, no iterations")
        } else {
            format!("{name}, {} at most", count(job.stop.iterations, "iteration"))
        },
    );
    line("ranks", describe_ranks(ranks, layout.recipes.len()));
    let available = Machine::detect().memory_available_bytes;
    let available =
        available.map_or_else(String::new, |bytes| format!("; {} are available", gigabytes(bytes)));
    line("memory", expected.describe(ranks, together) + &available);
    line("time", time::describe(job, &layout, &expected.forecast, network.as_ref()));
    let files = job.output.files.iter().chain(&job.output.folder);
    line("output", files.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "));
    line("checkpoints", job.checkpoint.describe());
    if let Some(latest) = checkpoints.list()?.first() {
        let words = if checkpoints.is_finished() {
            "is there from a run that finished: a new run starts over, --resume continues it"
        } else {
            "is there: --resume or --start-over is needed"
        };
        line("", format!("{} {words}", latest.display()));
    }
    for warning in warnings {
        line("warning", warning);
    }
    Ok(text)
}

fn describe_image(layout: &Layout) -> String {
    let sides: Vec<String> = layout.image[2..].iter().map(ToString::to_string).collect();
    let bytes = 4.0 * layout.image.iter().product::<usize>() as f64;
    format!(
        "{}{} x {}, {:.1} MB",
        if layout.image[0] == 1 { String::new() } else { format!("{} times ", layout.image[0]) },
        count(layout.image[1], "channel"),
        sides.join(" x "),
        bytes / 1e6
    )
}

/// Operators of one kind and shape in a row are one item.
fn describe_operators(layout: &Layout, shapes: &[Vec<usize>]) -> String {
    let mut items: Vec<(usize, &str, &[usize])> = Vec::new();
    for (recipe, shape) in layout.recipes.iter().zip(shapes) {
        match items.last_mut() {
            Some((count, name, last)) if *name == recipe.name() && *last == &shape[..] => {
                *count += 1;
            }
            _ => items.push((1, recipe.name(), shape)),
        }
    }
    let item = |(count, name, shape): &(usize, &str, &[usize])| {
        format!("{count} {name} measuring {shape:?}")
    };
    items.iter().map(item).collect::<Vec<_>>().join(", ")
}

fn describe_ranks(ranks: usize, operators: usize) -> String {
    let idle = ranks.saturating_sub(operators);
    match idle {
        0 => {
            let most = operators.div_ceil(ranks);
            format!("{ranks}, with {most} of {} at most", count(operators, "operator"))
        }
        idle => format!(
            "{ranks}, {idle} without an operator; more `groups` or fewer ranks would change that"
        ),
    }
}

/// The tiles of a network.
fn describe_tiles(forecast: &Forecast) -> String {
    let idle = forecast.ranks.iter().filter(|share| share.tiles == 0).count();
    let idle =
        if idle > 0 { format!(", {} without one", count(idle, "rank")) } else { String::new() };
    match (&forecast.tiles, &forecast.shards) {
        (Some(plan), _) => format!(
            ", {} of {:?} (work × {:.2}){idle}",
            count(plan.len(), "tile"),
            plan.window(),
            plan.work_multiplier(),
        ),
        (None, Some(shards)) => {
            let grid: Vec<String> = shards.grid().iter().map(ToString::to_string).collect();
            let load = forecast.largest_load();
            format!(", exact, in {} parts (largest load {load:.2}){idle}", grid.join("x"))
        }
        (None, None) => String::new(),
    }
}

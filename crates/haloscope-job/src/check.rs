//! What is wrong with a job, and what it would do; nothing is run.

use std::fmt;

use haloscope::Result;
use haloscope::denoise::NetworkDenoiser;
use haloscope::forecast::Forecast;
use haloscope::tiling::{Shards, Strategy, Tiling};

use crate::Job;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memory::{Expected, gigabytes, sent};
use crate::sections::files::StartPlan;
use crate::sections::measurements::Source;
use crate::sections::prior::PriorKind;
use crate::time;
use crate::words::{count, sides};

/// What a job would do on some ranks. It prints as a table of lines, each a name and what there is to say.
#[derive(Debug)]
pub struct JobPlan {
    /// The lines of the table. A name may be empty, where a line continues the one before.
    pub lines: Vec<(&'static str, String)>,
    /// The shape of the image, (batch, channel, spatial…).
    pub image: Vec<usize>,
    /// The shapes of what the operators measure.
    pub measurements: Vec<Vec<usize>>,
    /// Memory, work and messages of each rank.
    pub expected: Expected,
    /// What may be wrong, though the job can be run.
    pub warnings: Vec<String>,
}

impl fmt::Display for JobPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|(name, value)| writeln!(f, "{name:<13} {value}"))
    }
}

impl Job {
    /// Looks for everything that a run on so many ranks would find wrong at its beginning, reads all data, and says what
    /// the run would do. The ranks are threads of one process on this machine.
    pub fn check(&self, ranks: usize) -> Result<JobPlan> {
        self.check_processes(ranks, ranks)
    }

    /// The same for ranks on this machine of which each process has `together`.
    pub fn check_processes(&self, ranks: usize, together: usize) -> Result<JobPlan> {
        check(self, ranks, together)
    }
}

fn check(job: &Job, ranks: usize, together: usize) -> Result<JobPlan> {
    // In the order of a run, so that the same fault is found first.
    let scratch = job.open_scratch()?;
    let mut layout = Layout::survey(job, ranks, job.may_be_sharded(ranks))?;
    let network = job.open_network((Machine::detect().cores / ranks).max(1), &layout.image)?;
    let choice = job.compare_layouts(&layout, network.as_ref(), ranks)?;
    let job = &job.in_layout(choice.is_sharded);
    layout.read_first(job)?;
    let expected = Expected::of(job, &layout, ranks, network.as_ref())?;
    let processes = ranks / together;
    let mut expected = expected.in_scratch(job, &layout, network.as_ref(), ranks, processes)?;
    expected.check(ranks, processes)?;
    job.output.check_writable()?;
    let mut shapes = Vec::new();
    for recipe in &*layout.recipes {
        let operator = if job.is_sharded() { recipe.outline() } else { recipe.draft() };
        shapes.push(operator?.measurement_shape().to_vec());
    }
    let (values, doubt) = look_at_files(job, &mut layout, &shapes)?;
    let mut warnings = layout.warnings(job)?;
    warnings.extend(doubt);
    warnings.extend(expected.scratch.as_ref().and_then(crate::ScratchPlan::warning));
    let checkpoints = job.checkpoint.open()?;
    let mut lines = Vec::new();
    let mut line = |name: &'static str, value: String| lines.push((name, value));
    line("job", format!("{} is valid", job.name));
    line("image", describe_image(&layout));
    line("operators", describe_operators(&layout, &shapes));
    let scan = layout.recipes[0].scan();
    for (name, value) in scan.map(|scan| scan.describe()).unwrap_or_default() {
        line(name, value);
    }
    line("measurements", job.measurements.describe());
    if let Some(preparation) = job.preparation.describe() {
        line("preparation", preparation);
    }
    if let Some(values) = values {
        line("values", values);
    }
    line("fidelity", job.fidelity.name.into());
    let shared = match job.prior.kind {
        PriorKind::Wavelets { .. } if ranks > 1 => ", computed by every rank",
        _ => "",
    };
    line("prior", job.prior.describe() + shared + &describe_tiles(&expected.forecast));
    let tiles = network.as_ref().filter(|_| !job.is_sharded());
    for (name, value) in describe_choice(&expected.forecast, &layout.image, tiles) {
        line(name, value);
    }
    let name = job.solver.name;
    line(
        "solver",
        if job.solver.method.is_direct() {
            format!("{name}, no iterations")
        } else {
            format!("{name}, {} at most", count(job.stop.iterations, "iteration"))
        },
    );
    line("layout", format!("{}, because {}", choice.name(), choice.reason));
    if job.is_sharded() {
        line("shards", describe_shards(&expected.forecast));
    } else {
        line("ranks", describe_ranks(ranks, layout.recipes.len()));
    }
    if ranks > 1 {
        for row in choice.table() {
            line("", row);
        }
    }
    let available = Machine::detect().memory_available_bytes;
    // A scratch folder has a limit of its own.
    let available = available.filter(|_| expected.scratch.is_none());
    let available =
        available.map_or_else(String::new, |bytes| format!("; {} are available", gigabytes(bytes)));
    line("memory", expected.describe(ranks, together) + &available);
    if let Some(scratch) = &expected.scratch {
        line("disk", scratch.describe_traffic());
    }
    if let Some(device) = network.as_ref().and_then(|network| expected.describe_device(network)) {
        line("device", device);
    }
    line("messages", describe_messages(job, &expected.forecast));
    // What is tried is in memory: a few views visit all of the arrays, whose way through the disk is no part of the proportion.
    drop(scratch);
    let limit = expected.scratch.as_ref().map(|scratch| scratch.limit);
    line("time", time::describe(job, &layout, &expected.forecast, network.as_ref(), limit));
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
    for warning in &warnings {
        line("warning", warning.clone());
    }
    let image = layout.image.clone();
    expected.layout = Some(choice);
    Ok(JobPlan { lines, image, measurements: shapes, expected, warnings })
}

/// Reads the measurements and the start, and says what the values of the first file are and what may be wrong with it.
fn look_at_files(
    job: &Job,
    layout: &mut Layout,
    shapes: &[Vec<usize>],
) -> Result<(Option<String>, Option<String>)> {
    let seen = match &job.measurements {
        Source::Simulation(_) => (None, None),
        Source::Files(files) if job.is_sharded() && !job.has_scan() => {
            layout.inspect_bands(job, files, shapes)?
        }
        _ => layout.inspect(job, shapes)?,
    };
    match &job.start {
        StartPlan::File(file) if job.is_sharded() && file.has_parts() => {
            layout.check_start(file, &file.outline()?.0)?;
            file.extremes()?;
        }
        StartPlan::File(file) => drop(layout.load_start(file)?),
        _ => (),
    }
    Ok(seen)
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

/// The parts of an image in shards, and how even they are.
fn describe_shards(forecast: &Forecast) -> String {
    let Some(shards) = &forecast.shards else { return String::new() };
    let idle = forecast.ranks.iter().filter(|share| share.operators == 0).count();
    let idle =
        if idle > 0 { format!(", {} without one", count(idle, "rank")) } else { String::new() };
    format!(
        "{} parts of up to {} (largest load {:.2}){idle}",
        sides(&shards.grid()),
        sides(&shards.longest()),
        shards.largest_load(forecast.ranks.len()),
    )
}

/// What the ranks send each other in an iteration.
fn describe_messages(job: &Job, forecast: &Forecast) -> String {
    let bytes = forecast.bytes_sent();
    if job.solver.method.is_direct() {
        return "none, because there are no iterations".into();
    }
    if bytes == 0 {
        return "none".into();
    }
    // Iterations inside an iteration end when they have converged.
    let has_inner =
        job.solver.method.has_prox() || matches!(job.prior.kind, PriorKind::TotalVariation { .. });
    let most = if has_inner { "at most " } else { "" };
    let busiest = forecast.ranks.iter().map(|share| share.bytes_sent).max().unwrap_or(0);
    format!(
        "{most}about {} in each iteration by all ranks together, {} by one at most",
        sent(bytes),
        sent(busiest)
    )
}

/// Why a network is exact or has tiles, what exact parts exchange, and what the other way would give with a `network` that could
/// have it.
fn describe_choice(
    forecast: &Forecast,
    image: &[usize],
    network: Option<&NetworkDenoiser>,
) -> Vec<(&'static str, String)> {
    let Some(choice) = &forecast.choice else { return Vec::new() };
    let mut lines = Vec::new();
    let ranks = forecast.ranks.len();
    if let Some(shards) = &forecast.shards {
        let exchanges = forecast.largest_exchanges();
        if exchanges.rounds > 0 {
            let (rounds, bytes) = (count(exchanges.rounds, "round"), sent(exchanges.bytes_sent));
            lines.push((
                "halos",
                format!("{rounds} and {bytes} sent in each iteration by a rank at most, in parts of up to {}", sides(&shards.longest())),
            ));
        }
        lines.push(("", format!("exact, because {}", choice.reason)));
        if let Some(band) = forecast.pass.band() {
            lines.push(("", describe_waves(band)));
        }
        let tiles = |network: &NetworkDenoiser| {
            Tiling::new(Strategy::Overlap).plan_for(image, network, ranks).ok()
        };
        if let Some(tiles) = network.and_then(tiles)
            && tiles.len() > 1
        {
            lines.push((
                "",
                format!(
                    "strategy = \"overlap\" would take less memory, compute {:.2} times the pixels, and approximate the \
                     network",
                    tiles.work_multiplier()
                ),
            ));
        }
        return lines;
    }
    lines.push(("", format!("tiles, because {}", choice.reason)));
    if let Some(network) = network {
        let on = |ranks: usize| {
            let shards = network.cut(image, &Shards::Auto, ranks).ok()?;
            let pass = network.pass(&shards).ok()?;
            Some(gigabytes(network.part_bytes(&shards, pass).ok()?))
        };
        let more = (4 * ranks).max(16);
        if let (Some(here), Some(there)) = (on(ranks), on(more)) {
            lines.push((
                "",
                format!(
                    "strategy = \"exact\" would compute each pixel once and have the bits of the whole network, with about \
                     {here} for the network on each rank, or {there} on each of {more} ranks"
                ),
            ));
        }
    }
    lines
}

/// That an exact network runs in waves, and why.
fn describe_waves(band: usize) -> String {
    format!(
        "in waves of {}, because all rows of a part at once would hold more than a rank should; the bits are the same",
        count(band, "row")
    )
}

/// The tiles of a network.
fn describe_tiles(forecast: &Forecast) -> String {
    let idle = forecast.ranks.iter().filter(|share| share.tiles == 0).count();
    let idle =
        if idle > 0 { format!(", {} without one", count(idle, "rank")) } else { String::new() };
    match (&forecast.tiles, &forecast.shards) {
        _ if forecast.choice.is_none() => String::new(),
        (Some(plan), _) => format!(
            ", {} of {:?} (work × {:.2}){idle}",
            count(plan.len(), "tile"),
            plan.window(),
            plan.work_multiplier(),
        ),
        (None, Some(shards)) => {
            let (grid, load) = (sides(&shards.grid()), forecast.largest_load());
            format!(", exact, in {grid} parts (largest load {load:.2}){idle}")
        }
        (None, None) => String::new(),
    }
}

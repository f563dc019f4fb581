//! `haloscope demo`: measurements that are made here, and the image that is found from them again.
//!
//! The prior is total variation. Every number of ranks gives the same bits, which the report shows as a digest.

mod problem;

use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, L2};
use haloscope::metrics::{Ssim, psnr};
use haloscope::solve::{
    PrimalDual, Reason, Seconds, Start, State, Stopping, gather_records, solve,
};
use haloscope::{Array, io};
use haloscope_comm::{Collectives, Context};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ndarray::{Axis, concatenate};
use serde::Serialize;
use serde_json::json;

use crate::log;
use crate::machine::Machine;
use crate::ranks::RankArguments;
use crate::records::{self, RankSummary};
use crate::report::{Comparison, Iteration, Picture, Report as Page, Table};
use crate::trace::TraceArguments;
use problem::Problem;

/// The options of `haloscope demo`.
#[derive(clap::Args, Clone)]
pub struct Arguments {
    /// What to reconstruct
    #[arg(long, value_enum, default_value = "deblur")]
    problem: Problem,

    /// Pixels along each side; by default what takes seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=16_384))]
    size: Option<u32>,

    /// Iterations of the solver
    #[arg(long, value_name = "N", default_value = "150", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iterations: u32,

    /// Folder for the pictures
    #[arg(long, value_name = "DIR", default_value = "haloscope-demo")]
    out: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    ranks: RankArguments,

    #[command(flatten)]
    trace: TraceArguments,
}

#[derive(Serialize)]
struct Report {
    problem: String,
    shape: Vec<usize>,
    operators: usize,
    ranks: usize,
    iterations: usize,
    seconds: f64,
    /// Of the measurements as one would look at them without a reconstruction.
    before: Quality,
    after: Quality,
    megabytes_moved: f64,
    /// Where the time of each rank went.
    per_rank: Vec<RankSummary>,
    /// A digest of the reconstruction's bits, the same on any number of ranks.
    bits: String,
    pictures: Vec<String>,
    page: String,
}

#[derive(Clone, Copy, Serialize)]
struct Quality {
    psnr_db: f64,
    ssim: f64,
}

/// Makes the measurements, reconstructs, and reports on rank 0.
pub fn run(arguments: &Arguments) -> Result<()> {
    check_memory(arguments)?;
    let job = arguments.clone();
    let report = arguments
        .ranks
        .run(move |context| job.trace.run(context, |context| reconstruct(context, &job)))?;
    // Ranks other than the first have nothing to say.
    let Some(report) = report else { return Ok(()) };
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        describe(&report)?
    };
    crate::print(&text)
}

impl Arguments {
    fn side(&self) -> usize {
        self.size.map_or(self.problem.default_size(), |size| size as usize)
    }
}

/// Refuses what would not fit, before anything is made.
fn check_memory(arguments: &Arguments) -> Result<()> {
    let side = arguments.side() as u64;
    let values = match arguments.problem {
        Problem::Deblur | Problem::SuperResolution => 3 * side * side,
        Problem::Tomography2d => side * side,
        Problem::Tomography3d => side * side * side,
    };
    // Image, gradients, dual variables and measurements, on each rank.
    let needed = values * 4 * 24 * arguments.ranks.ranks.unwrap_or(1) as u64;
    match Machine::detect().memory_available_bytes {
        Some(available) if needed > available => Err(haloscope_comm::Error::Setup(format!(
            "a size of {side} needs {:.1} GB and {:.1} GB are available; use a smaller size or fewer ranks",
            needed as f64 / 1e9,
            available as f64 / 1e9
        ))
        .into()),
        _ => Ok(()),
    }
}

fn reconstruct(context: &Context, arguments: &Arguments) -> Result<Option<Report>> {
    let setup = arguments.problem.set_up(arguments.side())?;
    let truth = &setup.truth;
    let operators = setup.operators.len();
    let physics = distribute(setup.operators.clone(), context)?;
    let data = physics.measure(truth, &[setup.noise], context.shared_seed())?;
    let before = setup.look(&data)?;

    let fidelity = distribute(Fidelities::from(L2::default()), context)?;
    let problem = haloscope::solve::Problem::new(physics, data, fidelity)?;
    let algorithm = PrimalDual { lipschitz: 0.99 / problem.step_size()?, weight: setup.weight };
    let start = if setup.begins_at_look() { Start::Image(before.clone()) } else { Start::Adjoint };
    let start = State::new(problem.start(&start)?);
    let stopping = Stopping { iterations: arguments.iterations as usize, ..Stopping::default() };
    let bar = progress(context, arguments)?;
    announce(context, arguments, truth.shape(), operators);
    context.comm().reset_statistics();
    let begin = Instant::now();
    let mut looking = std::time::Duration::ZERO;
    let mut decibels = Vec::new();
    let outcome = solve(
        &problem,
        &algorithm,
        start,
        &stopping,
        Some(&mut |record, state| {
            // A comparison with the truth is no part of the work.
            if context.is_root() && record.iteration.is_multiple_of(10) {
                let clock = Instant::now();
                let quality = psnr(&state.image, truth, 1.0)?[0];
                decibels.push((record.iteration, quality));
                bar.set_message(format!(
                    "data term {:.4}, {quality:.2} dB",
                    record.data_term.unwrap_or_default()
                ));
                looking += clock.elapsed();
            }
            bar.set_position(record.iteration as u64);
            let psnr_db = decibels.last().filter(|(number, _)| *number == record.iteration);
            log::event(context, "iteration", || {
                records::details(record, psnr_db.map(|(_, psnr_db)| *psnr_db))
            });
            Ok(ControlFlow::Continue(()))
        }),
    )?;
    let seconds = begin.elapsed().saturating_sub(looking).as_secs_f64();
    bar.finish_and_clear();
    let moved: u64 =
        context.comm().gather_statistics()?.iter().map(|costs| costs.total().bytes_sent).sum();
    let per_rank: Vec<RankSummary> = gather_records(context, &outcome.records)?
        .iter()
        .map(|records| RankSummary::of(records))
        .collect();
    if !context.is_root() {
        return Ok(None);
    }
    let after = &outcome.state.image;
    let pictures = write_pictures(&arguments.out, truth, &before, after)?;
    let quality = |image: &Array| -> Result<Quality> {
        Ok(Quality {
            psnr_db: psnr(image, truth, 1.0)?[0],
            ssim: Ssim::new(1.0)?.per_image(image, truth)?[0],
        })
    };
    let report = Report {
        problem: problem_name(arguments.problem),
        shape: truth.shape()[1..].to_vec(),
        operators,
        ranks: context.size(),
        iterations: outcome.state.iteration,
        seconds,
        before: quality(&before)?,
        after: quality(after)?,
        megabytes_moved: moved as f64 / 1e6,
        per_rank,
        bits: digest(after),
        pictures,
        page: arguments.out.join("report.html").display().to_string(),
    };
    let iterations = outcome.records.iter().map(|record| Iteration {
        number: record.iteration,
        data_term: record.data_term,
        psnr: decibels
            .iter()
            .find(|(number, _)| *number == record.iteration)
            .map(|(_, psnr)| *psnr),
        seconds: parts_of(&record.seconds),
    });
    conclude(context, &report, outcome.reason);
    let html = page(&report, iterations.collect())?;
    io::write_atomically(Path::new(&report.page), |file| file.write_all(html.as_bytes()))
        .with_context(|| report.page.clone())?;
    Ok(Some(report))
}

/// Tells programs what begins.
fn announce(context: &Context, arguments: &Arguments, shape: &[usize], operators: usize) {
    log::event(context, "started", || {
        json!({
            "problem": problem_name(arguments.problem),
            "shape": shape,
            "operators": operators,
            "ranks": context.size(),
            "iterations": arguments.iterations,
        })
    });
}

/// Tells programs what came of it.
fn conclude(context: &Context, report: &Report, reason: Reason) {
    log::event(context, "finished", || {
        json!({
            "reason": reason.to_string(),
            "iterations": report.iterations,
            "seconds": report.seconds,
            "psnr_db": report.after.psnr_db,
        })
    });
}

fn problem_name(problem: Problem) -> String {
    clap::ValueEnum::to_possible_value(&problem)
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Seconds that add up to those of the step.
fn parts_of(seconds: &Seconds) -> Vec<f64> {
    let rest = seconds.total - seconds.data - seconds.prior;
    vec![seconds.data, seconds.prior, rest.max(0.0)]
}

/// The report as a page for a browser.
fn page(report: &Report, iterations: Vec<Iteration>) -> Result<String> {
    let picture = |index: usize, caption: &str| -> Result<Picture> {
        let path = &report.pictures[index];
        Ok(Picture {
            caption: caption.into(),
            png: std::fs::read(path).with_context(|| path.clone())?,
        })
    };
    let row = |name: &str, quality: Quality| {
        vec![name.to_owned(), format!("{:.2} dB", quality.psnr_db), format!("{:.3}", quality.ssim)]
    };
    let sides: Vec<String> = report.shape[1..].iter().map(ToString::to_string).collect();
    Ok(Page {
        title: format!("haloscope demo: {}", report.problem),
        subtitle: format!("{} from {} operators", sides.join(" × "), report.operators),
        comparison: Some(Comparison {
            before: picture(1, "measurements")?,
            after: picture(2, "reconstruction")?,
        }),
        pictures: vec![picture(0, "truth")?, picture(3, "four times the difference to the truth")?],
        summary: Table {
            columns: ["", "PSNR", "SSIM"].map(String::from).to_vec(),
            rows: vec![row("measurements", report.before), row("reconstruction", report.after)],
        },
        ranks: if report.ranks > 1 { records::table(&report.per_rank) } else { Table::default() },
        components: ["data", "prior", "rest"].map(String::from).to_vec(),
        iterations,
        parameters: vec![
            ("iterations".into(), report.iterations.to_string()),
            ("ranks".into(), report.ranks.to_string()),
            ("seconds".into(), format!("{:.1}", report.seconds)),
            ("bits".into(), report.bits.clone()),
        ],
        footer: format!("haloscope {}", env!("CARGO_PKG_VERSION")),
    }
    .to_html())
}

/// A bar on rank 0, if its standard error is a terminal.
fn progress(context: &Context, arguments: &Arguments) -> Result<ProgressBar> {
    let bar = ProgressBar::new(u64::from(arguments.iterations));
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left")?);
    if !context.is_root() || log::is_json() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    Ok(bar)
}

fn write_pictures(
    folder: &Path,
    truth: &Array,
    before: &Array,
    after: &Array,
) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let difference = (after - truth).mapv(|value| (0.5 + 4.0 * value).clamp(0.0, 1.0));
    let pictures =
        [("truth", truth), ("before", before), ("after", after), ("difference", &difference)];
    let mut written = Vec::new();
    for (name, image) in pictures {
        let path = folder.join(format!("{name}.png"));
        io::write(&path, &flat(image), &io::WriteOptions::default())?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

/// A picture as it is; of a volume, the three slices through its middle side by side.
fn flat(image: &Array) -> Array {
    if image.ndim() == 4 {
        return image.clone();
    }
    let slices: Vec<Array> = (2..5)
        .map(|axis| image.index_axis(Axis(axis), image.shape()[axis] / 2).to_owned())
        .collect();
    let views: Vec<_> = slices.iter().map(|slice| slice.view()).collect();
    concatenate(Axis(3), &views).unwrap_or_else(|_| slices[0].clone())
}

/// FNV-1a over the bits.
fn digest(image: &Array) -> String {
    let bytes = image.iter().flat_map(|value| value.to_bits().to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn describe(report: &Report) -> Result<String> {
    let mut text = String::new();
    let sides: Vec<String> = report.shape[1..].iter().map(ToString::to_string).collect();
    writeln!(
        text,
        "{}: {} pixels{} from {} operators, on {} {}\n",
        report.problem,
        sides.join("x"),
        if report.shape[0] == 3 { " in colour" } else { "" },
        report.operators,
        report.ranks,
        if report.ranks == 1 { "rank" } else { "ranks" }
    )?;
    writeln!(text, "{:<16} {:>9} {:>7}", "", "PSNR", "SSIM")?;
    for (name, quality) in [("measurements", report.before), ("reconstruction", report.after)] {
        writeln!(text, "{name:<16} {:>6.2} dB {:>7.3}", quality.psnr_db, quality.ssim)?;
    }
    writeln!(
        text,
        "\n{} iterations with total variation in {:.1} s, {:.1} MB moved between ranks",
        report.iterations, report.seconds, report.megabytes_moved
    )?;
    writeln!(text, "bits      {} (the same on any number of ranks)", report.bits)?;
    writeln!(text, "pictures  {}", report.pictures.join(", "))?;
    writeln!(text, "report    {}", report.page)?;
    Ok(text)
}

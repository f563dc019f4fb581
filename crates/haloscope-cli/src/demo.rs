//! `haloscope demo`: many noisy frames of a scene, added up by ranks.
//!
//! The frames are dealt to the ranks; each rank sees only its own. Their ordered sum is the same to
//! the bit on any number of ranks, where adding up per rank first is not.

use std::fmt::Write;
use std::time::Instant;

use anyhow::{Context as _, Result};
use haloscope_comm::{Collectives, Context, Reduction};
use serde::Serialize;

use crate::machine::Machine;
use crate::ranks::RankArguments;

/// The options of `haloscope demo`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Width and height of the scene in pixels
    #[arg(long, value_name = "N", default_value = "512", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    size: u32,

    /// Number of frames
    #[arg(long, value_name = "N", default_value = "24", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frames: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    ranks: RankArguments,
}

/// The noise of a frame, in units of the scene's range.
const SIGMA: f32 = 0.2;

/// What a number of ranks made of the frames.
#[derive(Clone, Debug, Serialize)]
struct Row {
    ranks: usize,
    psnr_db: f64,
    seconds: f64,
    megabytes_moved: f64,
    ordered_bits: String,
    per_rank_bits: String,
}

#[derive(Serialize)]
struct Report {
    size: u32,
    frames: u32,
    frame_psnr_db: f64,
    rows: Vec<Row>,
}

/// Runs on `--ranks`, on the launcher's ranks, or else on several numbers of thread ranks.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (size, frames) = (arguments.size as usize, u64::from(arguments.frames));
    check_memory(size, frames)?;
    let job = move |context: &Context| add_up(context, size, frames);
    let rows = if arguments.ranks.are_chosen()? {
        vec![arguments.ranks.run(job)?]
    } else {
        let on = |ranks| RankArguments { ranks: Some(ranks), ..arguments.ranks }.run(job);
        [1, 2, 3, 5, 8].into_iter().map(on).collect::<Result<_>>()?
    };
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    // Ranks other than the first have nothing to say.
    if rows.is_empty() {
        return Ok(());
    }
    let clean = scene(size);
    let report = Report {
        size: arguments.size,
        frames: arguments.frames,
        frame_psnr_db: psnr(&frame(&clean, 0), &clean),
        rows,
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        describe(&report)?
    };
    crate::print(&text)
}

/// Refuses what would not fit, before anything is made.
fn check_memory(size: usize, frames: u64) -> Result<()> {
    // All frames, and on each rank the scene and two sums, for up to 8 ranks.
    let needed = (frames + 8 * 3) * (size * size * size_of::<f32>()) as u64;
    match Machine::detect().memory_available_bytes {
        Some(available) if needed > available => Err(haloscope_comm::Error::Setup(format!(
            "{frames} frames of {size}x{size} pixels need {:.1} GB and {:.1} GB are available; use \
             fewer frames or a smaller size",
            needed as f64 / 1e9,
            available as f64 / 1e9
        ))
        .into()),
        _ => Ok(()),
    }
}

/// The mean of all frames, on every rank; the row is rank 0's.
fn add_up(context: &Context, size: usize, frames: u64) -> Result<Option<Row>> {
    let comm = context.comm();
    let clean = scene(size);
    let count = usize::try_from(frames).context("the number of frames fits")?;
    let mine: Vec<(u64, Vec<f32>)> = context
        .local_indices(count)
        .map(|index| (index as u64, frame(&clean, index as u64)))
        .collect();
    if context.size() > count {
        context.log_once(
            log::Level::Warn,
            format!("ranks {count} to {} have no frame and wait", context.size() - 1),
        );
    }
    comm.barrier()?;
    comm.reset_statistics();
    let begin = Instant::now();
    let terms: Vec<(u64, &[f32])> = mine.iter().map(|(index, data)| (*index, &data[..])).collect();
    let mut sum = vec![0.0_f32; clean.len()];
    comm.ordered_sum(&terms, &mut sum)?;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes: u64 = comm.gather_statistics()?.iter().map(|costs| costs.total().bytes_sent).sum();

    // For comparison: each rank adds up its own frames first, as one would.
    let mut partial = vec![0.0_f32; clean.len()];
    for (_, data) in &mine {
        partial.iter_mut().zip(data).for_each(|(sum, value)| *sum += value);
    }
    comm.all_reduce(Reduction::Sum, &mut partial)?;

    let mean: Vec<f32> = sum.iter().map(|value| value / frames as f32).collect();
    Ok(context.is_root().then(|| Row {
        ranks: context.size(),
        psnr_db: psnr(&mean, &clean),
        seconds,
        megabytes_moved: bytes as f64 / 1e6,
        ordered_bits: fingerprint(&sum),
        per_rank_bits: fingerprint(&partial),
    }))
}

/// Rings around a bright centre, values from 0 to 1.
fn scene(size: usize) -> Vec<f32> {
    let value = |row: usize, column: usize| {
        let place = |index: usize| (index as f32 + 0.5) / size as f32 - 0.5;
        let radius = place(row).hypot(place(column));
        (-6.0 * radius).exp() * (0.5 + 0.5 * (60.0 * radius).cos())
    };
    (0..size * size).map(|index| value(index / size, index % size)).collect()
}

/// Frame `index`: the scene with noise that depends on the index alone, not on the rank.
fn frame(clean: &[f32], index: u64) -> Vec<f32> {
    // SplitMix64; the sum of four uniform numbers is close enough to Gaussian for a demonstration.
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ca1_ab1e;
    let mut uniform = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1_u32 << 24) as f32
    };
    let mut noise = move || (0..4).map(|_| uniform() - 0.5).sum::<f32>() * 3_f32.sqrt();
    clean.iter().map(|value| value + SIGMA * noise()).collect()
}

/// Peak signal-to-noise ratio in dB, for values from 0 to 1.
fn psnr(image: &[f32], clean: &[f32]) -> f64 {
    let square = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
    let mean = image.iter().zip(clean).map(square).sum::<f64>() / clean.len() as f64;
    -10.0 * mean.log10()
}

/// A short name for the exact bits of an image (FNV-1a).
fn fingerprint(image: &[f32]) -> String {
    let hash = image
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}

fn describe(report: &Report) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "{} noisy frames of {}x{} pixels ({:.1} dB each), dealt to ranks and added up in order:\n",
        report.frames, report.size, report.size, report.frame_psnr_db
    )?;
    writeln!(
        text,
        "{:>5}  {:>7}  {:>8}  {:>9}  {:<16}  {:<16}",
        "ranks", "PSNR", "seconds", "MB moved", "bits, ordered", "bits, per rank"
    )?;
    for row in &report.rows {
        writeln!(
            text,
            "{:>5}  {:>4.1} dB  {:>8.3}  {:>9.1}  {:<16}  {:<16}",
            row.ranks,
            row.psnr_db,
            row.seconds,
            row.megabytes_moved,
            row.ordered_bits,
            row.per_rank_bits
        )?;
    }
    let differ = |bits: fn(&Row) -> &String| {
        report.rows.iter().any(|row| bits(row) != bits(&report.rows[0]))
    };
    if report.rows.len() > 1 {
        let say = |differ: bool| if differ { "differ" } else { "are the same" };
        writeln!(
            text,
            "\nThe bits of the ordered sum {} on all numbers of ranks; those of sums per rank {}.",
            say(differ(|row| &row.ordered_bits)),
            say(differ(|row| &row.per_rank_bits))
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_frames_is_cleaner_than_a_frame() {
        let row = add_up(&Context::solo(), 64, 16).expect("one rank works").expect("rank 0");
        let clean = scene(64);
        let gain = row.psnr_db - psnr(&frame(&clean, 3), &clean);
        // 16 frames: 12 dB, give or take the noise of the noise.
        assert!((gain - 12.0).abs() < 0.7, "{gain} dB");
    }

    #[test]
    fn more_ranks_than_frames_give_the_same_bits() {
        let bits = |ranks| {
            let rows = Context::threads(ranks, |context| add_up(context, 40, 3)).expect("it works");
            rows.into_iter().flatten().next().expect("rank 0").ordered_bits
        };
        assert_eq!(bits(1), bits(5));
    }
}

//! Figures as text for a terminal: a table for each study that rows belong to.

use std::fmt::Write;

use crate::counts;
use crate::figures::{Scaling, Summary, bend, scaling, summarise};
use crate::model::Validation;
use crate::problem::Problem;
use crate::row::{Backend, Configuration, Mode, Row, SYSTEM, Study};
use crate::statistics::Median;
use crate::tiles;

/// The tables of all studies in the rows; predictions apart from measurements.
#[must_use]
pub fn describe(rows: &[Row]) -> String {
    let summaries = summarise(rows);
    let of = |study: Study, predicted: bool| -> Vec<Summary> {
        let is_wanted = |summary: &&Summary| {
            summary.configuration.study == study && summary.predicted == predicted
        };
        summaries.iter().filter(is_wanted).cloned().collect()
    };
    let sections = [
        ("Scaling, measured", scaling_table(&scaling(&of(Study::Scaling, false)))),
        (
            "Side by side, without one rank alone to compare with",
            beside_table(&of(Study::Scaling, false)),
        ),
        ("Scaling, PREDICTED by the model", scaling_table(&scaling(&of(Study::Scaling, true)))),
        ("Memory of one image", memory_table(&of(Study::Memory, false))),
        ("Batches of patches", batch_table(&of(Study::Batch, false))),
        ("Overlap of tiles", overlap_table(&of(Study::Overlap, false))),
        ("Comparison", compare_table(&of(Study::Compare, false))),
        ("Messages in an iteration, counted and as the plan says", counts::table_of(rows)),
    ];
    let mut text = String::new();
    for (title, table) in sections.iter().filter(|(_, table)| !table.is_empty()) {
        let _ = writeln!(text, "{title}\n\n{table}");
    }
    text
}

/// How far the model was off.
#[must_use]
pub fn describe_validation(validations: &[Validation]) -> String {
    let lines: Vec<Vec<String>> = validations
        .iter()
        .map(|validation| {
            vec![
                validation.configuration.to_string(),
                seconds(validation.measured),
                seconds(validation.predicted),
                format!("{} to {}", number(validation.interval.0), number(validation.interval.1)),
                percent(validation.error()),
                if validation.is_inside() { "yes".into() } else { "no".to_owned() },
                validation.unseen_words(),
            ]
        })
        .collect();
    let headers =
        ["configuration", "measured", "predicted", "interval", "error", "inside", "not seen"];
    table(&headers, &lines)
}

fn scaling_table(figures: &[Scaling]) -> String {
    // Few studies measure the image in one piece.
    let has_untiled = figures.iter().any(|figure| figure.over_untiled.is_some());
    let has_interval = figures.iter().any(|figure| figure.summary.interval.is_some());
    let times = |value: f64| format!("{value:.2}");
    let lines: Vec<Vec<String>> = figures
        .iter()
        .map(|figure| {
            let summary = &figure.summary;
            let configuration = &summary.configuration;
            let system = match configuration.system.as_str() {
                "haloscope" => String::new(),
                other => format!(" [{other}]"),
            };
            let mut line = vec![
                format!("{}{system}", label(summary)),
                interval(&summary.total),
                optional(summary.data.map(|median| median.value), seconds),
                optional(summary.prior.map(|median| median.value), seconds),
                optional(summary.transfer, seconds),
                optional(summary.waiting, seconds),
                times(figure.speedup),
                percent(figure.efficiency),
                optional(figure.work_normalised_efficiency, percent),
                optional(figure.data_speedup, times),
                optional(figure.prior_speedup, times),
                optional(summary.load_balance, percent),
                optional(summary.communication_efficiency, percent),
            ];
            line.extend(has_untiled.then(|| optional(figure.over_untiled, times)));
            let between = |(low, high)| format!("{} to {}", number(low), number(high));
            line.extend(has_interval.then(|| optional(summary.interval, between)));
            line
        })
        .collect();
    let mut headers = vec![
        "configuration",
        "iteration",
        "data",
        "prior",
        "transfer",
        "waiting",
        "speedup",
        "efficiency",
        "work-norm.",
        "data x",
        "prior x",
        "balance",
        "comm. eff.",
    ];
    headers.extend(has_untiled.then_some("untiled x"));
    headers.extend(has_interval.then_some("from, to"));
    table(&headers, &lines)
}

/// Problems side by side that have no efficiency.
fn beside_table(summaries: &[Summary]) -> String {
    let compared = scaling(summaries);
    let is_left_out = |one: &&Summary| {
        one.configuration.mode == Some(Mode::Contention)
            && !compared.iter().any(|figure| figure.summary.configuration == one.configuration)
    };
    let left_out = summaries.iter().filter(is_left_out);
    let lines: Vec<Vec<String>> =
        left_out.map(|one| vec![label(one), interval(&one.total)]).collect();
    table(&["configuration", "iteration"], &lines)
}

fn memory_table(summaries: &[Summary]) -> String {
    let has_device = has_device(summaries);
    let lines: Vec<Vec<String>> = summaries
        .iter()
        .map(|summary| {
            let mut line = vec![
                label(summary),
                optional(summary.predicted_bytes, megabytes),
                optional(summary.peak_bytes, megabytes),
                interval(&summary.total),
            ];
            line.extend(has_device.then(|| optional(summary.predicted_device_bytes, megabytes)));
            line
        })
        .collect();
    let mut headers = vec!["configuration", "predicted", "measured", "time"];
    headers.extend(has_device.then_some("on device"));
    let mut text = table(&headers, &lines);
    let of = |summary: &Summary| {
        let of = &summary.configuration;
        (of.model.clone(), of.budget.clone(), of.height)
    };
    let mut kinds: Vec<_> = summaries.iter().map(of).collect();
    kinds.dedup();
    for kind in kinds {
        let points = summaries.iter().filter(|summary| of(summary) == kind);
        let points = points.filter_map(|summary| {
            Some((summary.configuration.width as f64, summary.peak_bytes? as f64))
        });
        let (widths, peaks): (Vec<f64>, Vec<f64>) = points.unzip();
        if let Some(bend) = bend(&widths, &peaks) {
            let _ = writeln!(
                text,
                "{}{}: measured memory is a straight line in the width, within {}",
                kind.0,
                kind.1.map_or_else(String::new, |budget| format!(", {budget}")),
                percent(bend)
            );
        }
    }
    text
}

fn batch_table(summaries: &[Summary]) -> String {
    let has_device = has_device(summaries);
    let lines: Vec<Vec<String>> = summaries
        .iter()
        .map(|summary| {
            let configuration = &summary.configuration;
            // Weights that are in a file which is not here do not say how patches are aligned.
            let patches = tiles::plan(configuration).ok().map(|plan| plan.len() as f64);
            let mut line = vec![
                label(summary),
                interval(&summary.total),
                optional(patches, |count| format!("{:.2}", count / summary.total.value)),
                format!("{:.3}", 1.0 / summary.total.value),
                optional(summary.predicted_bytes, megabytes),
                optional(summary.peak_bytes, megabytes),
                // What is chosen if nobody says how many.
                match (summary.automatic_batch, configuration.batch) {
                    (Some(automatic), Some(batch)) if automatic == batch as u64 => "*".into(),
                    _ => String::new(),
                },
            ];
            line.extend(has_device.then(|| optional(summary.predicted_device_bytes, megabytes)));
            line
        })
        .collect();
    let mut headers =
        vec!["configuration", "image", "patches/s", "images/s", "predicted", "memory", "automatic"];
    headers.extend(has_device.then_some("on device"));
    table(&headers, &lines)
}

fn overlap_table(summaries: &[Summary]) -> String {
    let lines: Vec<Vec<String>> = summaries
        .iter()
        .map(|summary| {
            let scientific = |value: f64| format!("{value:.2e}");
            let pixels = summary.configuration.sides().iter().product::<usize>() as f64;
            vec![
                label(summary),
                optional(summary.seams.map(|(rms, _)| rms), scientific),
                optional(summary.seams.map(|(_, largest)| largest), scientific),
                optional(summary.psnr_db, |psnr| format!("{psnr:.3} dB")),
                optional(summary.pixels_computed, |computed| {
                    format!("{:.2}", computed as f64 / pixels)
                }),
                interval(&summary.total),
            ]
        })
        .collect();
    table(&["configuration", "rms", "largest", "PSNR", "work", "time"], &lines)
}

/// What a summary is of, with the devices that were taken.
fn label(summary: &Summary) -> String {
    match &summary.devices[..] {
        [] => summary.configuration.to_string(),
        devices => format!("{} ({})", summary.configuration, devices.join(", ")),
    }
}

/// Whether a device with memory of its own was used.
fn has_device(summaries: &[Summary]) -> bool {
    summaries.iter().any(|summary| summary.predicted_device_bytes.is_some_and(|bytes| bytes > 0))
}

/// What two systems do that are compared.
fn subject(of: &Configuration) -> Configuration {
    Configuration { system: SYSTEM.into(), backend: Backend::Solo, ..of.clone() }
}

/// How many times longer than ours an iteration and its denoiser take, where both systems do the same work.
///
/// In `tomography-3d` the other system has another data term, so only the denoisers compare. Ours shares an image in one piece
/// among ranks, and the other system denoises it whole on each, so nothing compares.
fn times_ours(of: &Summary, ours: &Summary) -> (Option<f64>, Option<f64>) {
    let what = &of.configuration;
    let is_shared = what.ranks == 1 || what.patch.is_some();
    let has_same_data = what.problem != Some(Problem::Tomography3d);
    let total = of.total.value / ours.total.value;
    let prior = of.prior.zip(ours.prior).map(|(of, ours)| of.value / ours.value);
    (Some(total).filter(|_| is_shared && has_same_data), prior.filter(|_| is_shared))
}

fn compare_table(summaries: &[Summary]) -> String {
    let ours = |of: &Summary| {
        summaries.iter().find(|other| {
            let (a, b) = (&other.configuration, &of.configuration);
            a.system == SYSTEM && subject(a) == subject(b)
        })
    };
    let lines: Vec<Vec<String>> = summaries
        .iter()
        .map(|summary| {
            let is_other = summary.configuration.system != SYSTEM;
            let ours = ours(summary).filter(|_| is_other);
            let (total, prior) = ours.map_or((None, None), |ours| times_ours(summary, ours));
            let times = |value: f64| format!("{value:.2}");
            vec![
                summary.configuration.to_string(),
                interval(&summary.total),
                optional(summary.data.map(|median| median.value), seconds),
                optional(summary.prior.map(|median| median.value), seconds),
                optional(total, times),
                optional(prior, times),
                optional(summary.peak_bytes, megabytes),
                optional(summary.psnr_db, |psnr| format!("{psnr:.2} dB")),
            ]
        })
        .collect();
    let headers = [
        "configuration",
        "iteration",
        "data",
        "prior",
        "times ours",
        "prior, times ours",
        "memory",
        "PSNR",
    ];
    table(&headers, &lines)
}

/// Columns as wide as what is in them, numbers to the right; nothing for no lines.
pub(crate) fn table(headers: &[&str], lines: &[Vec<String>]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.chain([headers[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let mut text = String::new();
    let header: Vec<String> = headers.iter().map(ToString::to_string).collect();
    for line in std::iter::once(&header).chain(lines) {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

fn interval(median: &Median) -> String {
    if median.low == median.high {
        return seconds(median.value);
    }
    format!("{} ({} to {})", seconds(median.value), number(median.low), number(median.high))
}

fn seconds(value: f64) -> String {
    format!("{} s", number(value))
}

/// Three digits that count, without a unit.
fn number(value: f64) -> String {
    let digits = if value > 0.0 { (2 - value.log10().floor() as i32).clamp(0, 6) } else { 0 };
    format!("{value:.*}", digits as usize)
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

fn optional<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::configuration;

    #[test]
    fn predictions_have_a_table_of_their_own() {
        let measured = configuration(1).row(0, 0, 2.0);
        let predicted = Row { predicted: true, ..configuration(64).row(0, 0, 0.1) };
        let text = describe(&[measured, predicted]);
        let (first, second) = text.split_once("PREDICTED").expect("two tables");
        assert!(first.contains("1 rank (threads)") && !first.contains("64 ranks"), "{text}");
        assert!(second.contains("64 ranks"), "{text}");
    }

    #[test]
    fn problems_side_by_side_without_one_rank_are_listed_apart() {
        let beside = Configuration { mode: Some(Mode::Contention), ..configuration(2) };
        let rows = [configuration(2).row(0, 0, 2.0), beside.row(0, 0, 3.0)];
        let text = describe(&rows);
        let (first, second) = text.split_once("Side by side, without one rank").expect("two");
        assert!(!first.contains("side by side") && second.contains("  3.00 s"), "{text}");
        let text = describe(&[&rows[..], &[configuration(1).row(0, 0, 2.5)]].concat());
        assert!(!text.contains("without one rank"), "{text}");
    }

    #[test]
    fn the_image_in_one_piece_has_a_column_where_it_was_measured() {
        let tiled = configuration(1).row(0, 0, 2.0);
        let whole = Configuration { patch: None, overlap: None, batch: None, ..configuration(1) };
        let text = describe(&[tiled.clone(), whole.row(0, 0, 1.5)]);
        assert!(text.contains("untiled x") && text.contains("untiled, 1 rank"), "{text}");
        assert!(text.lines().any(|line| line.ends_with("  0.75")), "{text}");
        assert!(!describe(&[tiled]).contains("untiled"));
    }

    #[test]
    fn devices_are_named_and_their_memory_has_a_column() {
        let of = |device: Option<&str>, bytes| Row {
            device_name: Some("CUDA device 1".into()),
            predicted_device_bytes: Some(bytes),
            ..Configuration {
                study: Study::Memory,
                problem: None,
                device: device.map(Into::into),
                ..configuration(1)
            }
            .row(0, 0, 2.0)
        };
        let text = describe(&[of(Some("gpu"), 3_000_000)]);
        assert!(text.contains("64x64, drunet on gpu (CUDA device 1)"), "{text}");
        assert!(text.contains("on device\n") && text.contains("  3 MB\n"), "{text}");
        let text = describe(&[of(None, 0)]);
        assert!(!text.contains("device") && !text.contains("CUDA"), "{text}");
    }

    #[test]
    fn systems_are_compared_where_they_do_the_same_work() {
        let of = |system: &str, problem, patch: Option<usize>, ranks, threads| Configuration {
            study: Study::Compare,
            system: system.into(),
            problem: Some(problem),
            patch,
            overlap: patch.map(|_| 8),
            batch: patch.map(|_| 1),
            threads,
            ..configuration(ranks)
        };
        let line = |problem, patch, ranks: usize, threads: usize| {
            let row = |system: &str, threads, [total, prior]: [f64; 2]| Row {
                prior_seconds: Some(prior),
                ..of(system, problem, patch, ranks, threads).row(0, 0, total)
            };
            let rows = [row(SYSTEM, 1, [2.0, 1.0]), row("deepinv", threads, [6.0, 4.0])];
            let text = describe(&rows);
            let line = text.lines().find(|line| line.contains("deepinv")).expect("a line");
            let cells: Vec<&str> = line.split("  ").map(str::trim).collect();
            let cells: Vec<&str> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
            [cells[4].to_owned(), cells[5].to_owned()]
        };
        assert_eq!(line(Problem::Deblur, None, 1, 1), ["3.00", "4.00"]);
        assert_eq!(line(Problem::Deblur, Some(32), 2, 1), ["3.00", "4.00"]);
        assert_eq!(line(Problem::Tomography3d, None, 1, 1), ["-", "4.00"], "another data term");
        assert_eq!(line(Problem::Deblur, None, 2, 1), ["-", "-"], "whole on every process");
        assert_eq!(line(Problem::Deblur, None, 1, 2), ["-", "-"], "other threads");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        assert_eq!(
            [1234.4, 12.34, 0.1234, 0.000_123_4, 0.0].map(number),
            ["1234", "12.3", "0.123", "0.000123", "0"]
        );
    }

    #[test]
    fn patches_are_those_of_the_plan() {
        let of = |overlap| Configuration {
            study: Study::Batch,
            problem: None,
            mode: None,
            patch: Some(16),
            overlap: Some(overlap),
            ..configuration(1)
        };
        // 64 pixels are four times 16; windows of 32 that overlap by 16 are three.
        for (overlap, patches) in [(0, "16.00"), (8, "9.00")] {
            let text = describe(&[of(overlap).row(0, 0, 1.0)]);
            assert!(text.contains(&format!("  {patches}  ")), "{text}");
        }
    }
}

//! Figures derived from rows: times of an iteration, speedup, efficiencies, balance. Pure functions over rows.
//!
//! An iteration takes as long as its slowest rank; a configuration's time is the median over all iterations of all
//! repetitions. Efficiencies are fractions of 1. The dashboard's `model.js` has the same definitions.
//!
//! - *speedup*: how many times faster than on the fewest ranks measured, times that number of ranks; in a weak study,
//!   how much more is done in the same time.
//! - *parallel efficiency*: speedup divided by ranks.
//! - *work-normalised efficiency*: the same if all rank counts computed equally many pixels. Tiles overlap, so dividing
//!   an image for more ranks may cause more work; this figure excludes that.
//! - *load balance* and *communication efficiency* are those of the POP project: with the useful seconds of a rank (all
//!   but moving data and waiting), the mean over ranks divided by the largest, and the largest divided by the seconds
//!   that passed. Their product is the share of time in which ranks compute.

use std::collections::{BTreeMap, BTreeSet};

use crate::row::{Configuration, Mode, Row};
use crate::statistics::Median;

/// The figures of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The configuration.
    pub configuration: Configuration,
    /// Whether the figures are predicted.
    pub predicted: bool,
    /// Seconds of an iteration.
    pub total: Median,
    /// Seconds of its data term.
    pub data: Option<Median>,
    /// Seconds of its denoiser.
    pub prior: Option<Median>,
    /// Seconds of moving data: the mean over ranks and iterations.
    pub transfer: Option<f64>,
    /// Seconds of waiting: the mean over ranks and iterations.
    pub waiting: Option<f64>,
    /// See above.
    pub load_balance: Option<f64>,
    /// See above.
    pub communication_efficiency: Option<f64>,
    /// Bytes that all ranks send in an iteration.
    pub bytes_sent: Option<f64>,
    /// The interval of a prediction.
    pub interval: Option<(f64, f64)>,
    /// The tiles that would be denoised at once if nobody said how many.
    pub automatic_batch: Option<u64>,
    /// How far tiles are from the whole network: the root of the mean square, and the largest difference.
    pub seams: Option<(f64, f64)>,
    /// Pixels that the denoiser computes on all ranks.
    pub pixels_computed: Option<u64>,
    /// The most memory of a rank's process.
    pub peak_bytes: Option<u64>,
    /// The predicted memory.
    pub predicted_bytes: Option<u64>,
    /// The predicted memory of the device.
    pub predicted_device_bytes: Option<u64>,
    /// The devices that ran the network, if one was asked for.
    pub devices: Vec<String>,
    /// The quality after the last iteration.
    pub psnr_db: Option<f64>,
}

/// How a configuration compares with the one of the fewest ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The configuration.
    pub summary: Summary,
    /// See above, as the others.
    pub speedup: f64,
    /// Speedup divided by ranks.
    pub efficiency: f64,
    /// The same for equal work.
    pub work_normalised_efficiency: Option<f64>,
    /// Of the data term alone.
    pub data_speedup: Option<f64>,
    /// Of the denoiser alone.
    pub prior_speedup: Option<f64>,
    /// How many times faster than the same image in one piece on one rank, if that was measured.
    pub over_untiled: Option<f64>,
}

/// Summarises each configuration's rows, in the order in which configurations first appear.
#[must_use]
pub fn summarise(rows: &[Row]) -> Vec<Summary> {
    let mut order: Vec<(bool, Configuration)> = Vec::new();
    let mut groups: BTreeMap<(bool, Configuration), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let key = (row.predicted, row.configuration.clone());
        groups
            .entry(key.clone())
            .or_insert_with(|| {
                order.push(key);
                Vec::new()
            })
            .push(row);
    }
    order.into_iter().filter_map(|key| summary(&key, groups.get(&key)?)).collect()
}

/// Compares configurations that differ only in their ranks. Problems side by side are left out where one rank alone was not
/// measured.
#[must_use]
pub fn scaling(summaries: &[Summary]) -> Vec<Scaling> {
    let reference = |of: &Summary| {
        // Problems side by side are compared with one rank alone, and nothing is compared with them.
        let is_beside = of.configuration.mode == Some(Mode::Contention);
        let peers = summaries.iter().filter(|other| {
            other.predicted == of.predicted
                && other.configuration.mode != Some(Mode::Contention)
                && (other.configuration.ranks == 1 || !is_beside)
                && family(&other.configuration) == family(&of.configuration)
        });
        peers.min_by_key(|other| other.configuration.ranks)
    };
    let compared = |summary| {
        let over_untiled = untiled(summaries, summary);
        Some(Scaling { over_untiled, ..compare(summary, reference(summary)?) })
    };
    summaries.iter().filter_map(compared).collect()
}

/// How many times faster a configuration is than the same image in one piece on one rank.
fn untiled(summaries: &[Summary], of: &Summary) -> Option<f64> {
    let image = |of: &Summary| {
        let of = &of.configuration;
        let what = (of.study, of.system.clone(), of.problem, of.model.clone(), of.operators);
        (what, of.mode, of.sides(), of.threads)
    };
    let is_whole =
        |one: &&Summary| one.configuration.patch.is_none() && one.configuration.ranks == 1;
    let whole = summaries.iter().filter(is_whole).filter(|one| one.predicted == of.predicted);
    let whole = whole.filter(|_| of.configuration.patch.is_some());
    let same = whole.into_iter().find(|one| image(one) == image(of))?;
    Some(same.total.value / of.total.value).filter(|times| times.is_finite())
}

fn summary((predicted, configuration): &(bool, Configuration), rows: &[&Row]) -> Option<Summary> {
    // The rows of all ranks of an iteration.
    let mut steps: BTreeMap<(usize, Option<usize>), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        steps.entry((row.repetition, row.iteration)).or_default().push(row);
    }
    let slowest = |seconds: &dyn Fn(&Row) -> Option<f64>| {
        let of_step =
            |rows: &Vec<&Row>| rows.iter().filter_map(|row| seconds(row)).reduce(f64::max);
        Median::of(steps.values().filter_map(of_step))
    };
    let mean = |value: &dyn Fn(&Row) -> Option<f64>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| value(row)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let sum_over_ranks = |value: &dyn Fn(&Row) -> Option<u64>| {
        let first = steps.values().next()?;
        first.iter().map(|row| value(row)).sum::<Option<u64>>()
    };
    let last = steps.keys().next_back().and_then(|key| steps.get(key));
    let (load_balance, communication_efficiency) = pop(&steps).unzip();
    Some(Summary {
        configuration: configuration.clone(),
        predicted: *predicted,
        total: slowest(&|row| Some(row.total_seconds))?,
        data: slowest(&|row| row.data_seconds),
        prior: slowest(&|row| row.prior_seconds),
        transfer: mean(&|row| row.transfer_seconds),
        waiting: mean(&|row| row.waiting_seconds),
        // A prediction has the row of one rank, which stands for all of them.
        load_balance: load_balance.filter(|_| !predicted),
        communication_efficiency,
        bytes_sent: mean(&|row| row.bytes_sent.map(|bytes| bytes as f64))
            .map(|mean| mean * configuration.ranks as f64),
        interval: rows.iter().find_map(|row| row.low_seconds.zip(row.high_seconds)),
        automatic_batch: rows.iter().find_map(|row| row.automatic_batch),
        seams: rows.iter().find_map(|row| row.seam_rms.zip(row.seam_largest)),
        pixels_computed: sum_over_ranks(&|row| row.pixels_computed),
        peak_bytes: rows.iter().filter_map(|row| row.peak_bytes).max(),
        predicted_bytes: rows.iter().filter_map(|row| row.predicted_bytes).max(),
        predicted_device_bytes: rows.iter().filter_map(|row| row.predicted_device_bytes).max(),
        devices: devices(configuration, rows),
        psnr_db: last.and_then(|rows| rows.iter().find_map(|row| row.psnr_db)),
    })
}

/// The names of the devices, each once, if one was asked for.
fn devices(configuration: &Configuration, rows: &[&Row]) -> Vec<String> {
    let names = rows.iter().filter(|_| configuration.device.is_some());
    let names: BTreeSet<&String> = names.filter_map(|row| row.device_name.as_ref()).collect();
    names.into_iter().cloned().collect()
}

/// Load balance and communication efficiency over all steps.
fn pop(steps: &BTreeMap<(usize, Option<usize>), Vec<&Row>>) -> Option<(f64, f64)> {
    let mut useful: BTreeMap<usize, f64> = BTreeMap::new();
    let mut passed = 0.0;
    for rows in steps.values() {
        for row in rows {
            let communication = row.transfer_seconds? + row.waiting_seconds?;
            *useful.entry(row.rank).or_default() += row.total_seconds - communication;
        }
        passed += rows.iter().map(|row| row.total_seconds).fold(0.0, f64::max);
    }
    let most = useful.values().copied().reduce(f64::max)?;
    let mean = useful.values().sum::<f64>() / useful.len() as f64;
    (most > 0.0 && passed > 0.0).then(|| (mean / most, most / passed))
}

/// What configurations have in common that are compared with each other.
fn family(configuration: &Configuration) -> Configuration {
    let mut family = Configuration { ranks: 0, ..configuration.clone() };
    if configuration.mode == Some(Mode::Weak) {
        // The image grows with the ranks along its last side, a volume along its first.
        family.depth = family.depth.map(|_| 0);
        family.width = if family.depth.is_some() { family.width } else { 0 };
    }
    if configuration.mode == Some(Mode::Contention) {
        family.mode = Some(Mode::Strong);
    }
    family
}

fn compare(of: &Summary, reference: &Summary) -> Scaling {
    let more = of.configuration.ranks as f64 / reference.configuration.ranks as f64;
    // In a weak study, and by problems side by side, as many times more is done.
    let grows = matches!(of.configuration.mode, Some(Mode::Weak | Mode::Contention));
    let scale = if grows { more } else { 1.0 };
    // The fewest ranks are taken to be ideal: they do as much as so many.
    let begin = scale * reference.configuration.ranks as f64;
    let faster = |now: Option<Median>, before: Option<Median>| {
        Some(begin * before?.value / now?.value).filter(|speedup| speedup.is_finite())
    };
    let speedup = begin * reference.total.value / of.total.value;
    let efficiency = speedup / of.configuration.ranks as f64;
    let work = |summary: &Summary| summary.pixels_computed.map(|pixels| pixels as f64);
    let work_normalised_efficiency = work(of)
        .zip(work(reference))
        .filter(|(_, before)| *before > 0.0)
        .map(|(now, before)| efficiency * now / (before * scale));
    Scaling {
        summary: of.clone(),
        speedup,
        efficiency,
        work_normalised_efficiency,
        data_speedup: faster(of.data, reference.data),
        prior_speedup: faster(of.prior, reference.prior),
        over_untiled: None,
    }
}

/// How far `values` are from a straight line in `places`: the largest distance from the line of least squares,
/// relative to that line.
#[must_use]
pub fn bend(places: &[f64], values: &[f64]) -> Option<f64> {
    let count = places.len() as f64;
    if places.len() < 3 || places.len() != values.len() {
        return None;
    }
    let mean = |list: &[f64]| list.iter().sum::<f64>() / count;
    let (middle, level) = (mean(places), mean(values));
    let spread: f64 = places.iter().map(|place| (place - middle).powi(2)).sum();
    let slope = places.iter().zip(values).map(|(place, value)| (place - middle) * (value - level));
    let slope = slope.sum::<f64>() / spread;
    let distance = |(place, value): (&f64, &f64)| {
        let line = level + slope * (place - middle);
        (value - line).abs() / line
    };
    let distances = places.iter().zip(values).map(distance);
    distances.reduce(f64::max).filter(|distance| distance.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::configuration;

    /// A row of a rank: total, data, prior, transfer, waiting, and the pixels that it computed.
    fn row(ranks: usize, iteration: usize, rank: usize, seconds: [f64; 5], pixels: u64) -> Row {
        let [total, data, prior, transfer, waiting] = seconds;
        Row {
            iteration: Some(iteration),
            data_seconds: Some(data),
            prior_seconds: Some(prior),
            transfer_seconds: Some(transfer),
            waiting_seconds: Some(waiting),
            pixels_computed: Some(pixels),
            bytes_sent: Some(100),
            ..configuration(ranks).row(0, rank, total)
        }
    }

    /// One rank takes 8 s; two ranks take 5 s, of which the second waits 1 s; they compute a quarter more pixels.
    fn example() -> Vec<Row> {
        vec![
            row(1, 1, 0, [8.0, 2.0, 6.0, 0.0, 0.0], 400),
            row(1, 2, 0, [8.0, 2.0, 6.0, 0.0, 0.0], 400),
            row(2, 1, 0, [5.0, 1.0, 4.0, 0.5, 0.0], 300),
            row(2, 1, 1, [5.0, 1.0, 4.0, 0.5, 1.0], 200),
            row(2, 2, 0, [5.0, 1.0, 4.0, 0.5, 0.0], 300),
            row(2, 2, 1, [4.75, 1.0, 3.75, 0.25, 1.0], 200),
        ]
    }

    #[test]
    fn figures_of_two_ranks_are_those_worked_out_by_hand() {
        let summaries = summarise(&example());
        assert_eq!(summaries.len(), 2);
        let figures = scaling(&summaries);
        let one = &figures[0];
        assert_eq!((one.speedup, one.efficiency, one.data_speedup), (1.0, 1.0, Some(1.0)));
        assert_eq!(one.summary.load_balance, Some(1.0));
        let two = &figures[1];
        assert_eq!(two.speedup, 8.0 / 5.0);
        assert_eq!(two.efficiency, 0.8);
        assert_eq!(two.work_normalised_efficiency, Some(0.8 * 500.0 / 400.0));
        assert_eq!((two.data_speedup, two.prior_speedup), (Some(2.0), Some(1.5)));
        // Useful: 9 s on the first rank, 3.5 + 3.5 on the second, while 10 s passed.
        assert_eq!(two.summary.load_balance, Some(8.0 / 9.0));
        assert_eq!(two.summary.communication_efficiency, Some(0.9));
        assert_eq!(two.summary.bytes_sent, Some(200.0));
    }

    #[test]
    fn a_study_that_begins_with_two_ranks_has_their_speedup() {
        let seconds = |total| [total, total / 4.0, total / 2.0, 0.0, 0.0];
        let rows = [row(2, 1, 0, seconds(6.0), 100), row(4, 1, 0, seconds(4.0), 100)];
        let figures = scaling(&summarise(&rows));
        assert_eq!((figures[0].speedup, figures[0].efficiency), (2.0, 1.0));
        assert_eq!((figures[1].speedup, figures[1].efficiency), (3.0, 0.75));
        assert_eq!((figures[1].data_speedup, figures[1].prior_speedup), (Some(3.0), Some(3.0)));
    }

    /// The numbers of the test of the same in the dashboard.
    #[test]
    fn times_are_medians_over_all_iterations_of_the_slowest_rank() {
        let of = |ranks, repetition, iteration, rank, [total, transfer, waiting]: [f64; 3]| Row {
            repetition,
            ..row(ranks, iteration, rank, [total, 0.0, 0.0, transfer, waiting], 100)
        };
        let rows = [
            of(1, 0, 1, 0, [3.0, 0.0, 0.0]),
            of(1, 0, 2, 0, [5.0, 0.0, 0.0]),
            of(1, 1, 1, 0, [6.0, 0.0, 0.0]),
            of(1, 2, 1, 0, [20.0, 0.0, 0.0]),
            of(2, 0, 1, 0, [2.75, 0.5, 0.0]),
            of(2, 0, 1, 1, [2.5, 0.5, 1.0]),
            of(2, 0, 2, 0, [2.75, 0.5, 1.0]),
            of(2, 0, 2, 1, [2.75, 0.5, 0.0]),
        ];
        let figures = scaling(&summarise(&rows));
        assert_eq!(figures[0].summary.total.value, 5.5);
        assert_eq!((figures[1].speedup, figures[1].efficiency), (2.0, 1.0));
        assert_eq!(figures[1].summary.load_balance, Some(3.375 / 3.5));
        assert_eq!(figures[1].summary.communication_efficiency, Some(3.5 / 5.5));
    }

    #[test]
    fn a_weak_study_is_ideal_when_the_time_does_not_grow() {
        let rows: Vec<Row> = [(1, 64, 4.0), (4, 256, 5.0)]
            .into_iter()
            .map(|(ranks, width, seconds)| {
                let row = row(ranks, 1, 0, [seconds, 1.0, 3.0, 0.0, 0.0], 100 * ranks as u64);
                let mode = Some(Mode::Weak);
                Row { configuration: Configuration { mode, width, ..row.configuration }, ..row }
            })
            .collect();
        let figures = scaling(&summarise(&rows));
        assert_eq!((figures[1].speedup, figures[1].efficiency), (3.2, 0.8));
        assert_eq!(figures[1].data_speedup, Some(4.0));
        // Four times the pixels are four times the work, as it should be.
        assert_eq!(figures[1].work_normalised_efficiency, Some(0.8));
    }

    #[test]
    fn problems_side_by_side_are_compared_with_one_rank_and_no_other() {
        let beside = |seconds| {
            let row = row(4, 1, 0, [seconds, 2.0, 6.0, 0.0, 0.0], 400);
            let mode = Some(Mode::Contention);
            Row { configuration: Configuration { mode, ..row.configuration }, ..row }
        };
        let mut rows = example();
        rows.push(beside(10.0));
        let figures = scaling(&summarise(&rows));
        assert_eq!((figures[2].speedup, figures[2].efficiency), (3.2, 0.8));
        // Without one rank, the two ranks that are left are no measure of it.
        let rows: Vec<Row> = rows.into_iter().filter(|row| row.configuration.ranks > 1).collect();
        let figures = scaling(&summarise(&rows));
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].summary.configuration.ranks, 2);
    }

    #[test]
    fn predicted_rows_are_never_compared_with_measured_ones() {
        let mut rows = example();
        rows.extend([1, 64].map(|ranks| Row {
            predicted: true,
            ..row(ranks, 1, 0, [if ranks == 1 { 10.0 } else { 0.5 }, 0.1, 0.1, 0.0, 0.0], 10)
        }));
        let figures = scaling(&summarise(&rows));
        let predicted: Vec<f64> = figures
            .iter()
            .filter(|figure| figure.summary.predicted)
            .map(|figure| figure.speedup)
            .collect();
        assert_eq!(predicted, [1.0, 20.0]);
        let says_balance = |figure: &Scaling| figure.summary.load_balance.is_some();
        assert!(figures.iter().all(|figure| figure.summary.predicted != says_balance(figure)));
    }

    #[test]
    fn the_image_in_one_piece_is_compared_with_tiles_and_not_their_baseline() {
        let mut rows = example();
        let whole = Configuration { patch: None, overlap: None, batch: None, ..configuration(1) };
        rows.push(Row { configuration: whole, ..row(1, 1, 0, [6.0, 2.0, 4.0, 0.0, 0.0], 300) });
        let figures = scaling(&summarise(&rows));
        let of = |figure: &Scaling| (figure.speedup, figure.over_untiled);
        assert_eq!(of(&figures[0]), (1.0, Some(6.0 / 8.0)));
        assert_eq!(of(&figures[1]), (8.0 / 5.0, Some(6.0 / 5.0)));
        assert_eq!(of(&figures[2]), (1.0, None));
    }

    #[test]
    fn what_ranks_share_is_compared_with_its_own_baseline() {
        let only = |of: Row, seconds| {
            let distribute = Some(haloscope_job::Distribution::Physics);
            let configuration = Configuration { distribute, ..of.configuration };
            Row { configuration, total_seconds: seconds, ..of }
        };
        let mut rows = example();
        rows.push(only(row(1, 1, 0, [0.0; 5], 400), 10.0));
        rows.push(only(row(2, 1, 0, [0.0; 5], 400), 8.0));
        let speedups: Vec<f64> =
            scaling(&summarise(&rows)).iter().map(|figure| figure.speedup).collect();
        assert_eq!(speedups, [1.0, 8.0 / 5.0, 1.0, 10.0 / 8.0]);
    }

    #[test]
    fn a_line_does_not_bend_and_a_step_does() {
        let places = [1.0, 2.0, 3.0, 4.0];
        let line = bend(&places, &[3.0, 5.0, 7.0, 9.0]).expect("four values");
        assert!(line < 1e-12, "{line}");
        // The line of least squares through these is 0.6, 1.2, 1.8, 2.4; the first value is 0.4 above it.
        let step = bend(&places, &[1.0, 1.0, 1.0, 3.0]).expect("four values");
        assert!((step - 0.4 / 0.6).abs() < 1e-12, "{step}");
        assert_eq!(bend(&places[..2], &[1.0, 2.0]), None);
    }
}

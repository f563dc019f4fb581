//! What was noted of the iterations, of all ranks: for reports, pages and `--log json`.

use haloscope::solve::{Record, Seconds};
use serde::Serialize;
use serde_json::{Value, json};

use crate::quality::Quality;
use crate::report::Table;

/// What one rank did: the seconds of all its iterations, which do not overlap, its memory, and each iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankSummary {
    /// The gradient or prox of the data term, with the messages in it.
    pub data_seconds: f64,
    /// The prior, with the messages in it.
    pub prior_seconds: f64,
    /// The arithmetic between the two.
    pub rest_seconds: f64,
    /// Moving data between ranks; part of the ones above.
    pub communication_seconds: f64,
    /// Waiting for other ranks; part of the ones above.
    pub waiting_seconds: f64,
    /// The most memory that its process has held.
    pub peak_bytes: Option<u64>,
    /// The iterations one by one, as [`details`] has them.
    pub records: Vec<Value>,
}

impl RankSummary {
    /// Of the records of a rank, and what is known of the image, which is the same on all ranks.
    pub(crate) fn of(rank: usize, records: &[Record], qualities: &[(usize, Quality)]) -> Self {
        let sum = |part: fn(&Seconds) -> f64| records.iter().map(|one| part(&one.seconds)).sum();
        Self {
            data_seconds: sum(|seconds| seconds.data),
            prior_seconds: sum(|seconds| seconds.prior),
            rest_seconds: sum(|seconds| (seconds.total - seconds.data - seconds.prior).max(0.0)),
            communication_seconds: sum(|seconds| seconds.communication),
            waiting_seconds: sum(|seconds| seconds.waiting),
            peak_bytes: records.iter().filter_map(|one| one.peak_bytes).max(),
            records: records.iter().map(|one| details(rank, one, qualities)).collect(),
        }
    }
}

/// A row for each rank.
pub(crate) fn table(ranks: &[RankSummary]) -> Table {
    let columns =
        ["rank", "data", "prior", "rest", "of these messages", "of these waiting", "memory"];
    let seconds = |seconds: f64| format!("{seconds:.2} s");
    let row = |(rank, summary): (usize, &RankSummary)| {
        vec![
            rank.to_string(),
            seconds(summary.data_seconds),
            seconds(summary.prior_seconds),
            seconds(summary.rest_seconds),
            seconds(summary.communication_seconds),
            seconds(summary.waiting_seconds),
            summary
                .peak_bytes
                .map_or_else(|| "unknown".into(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6)),
        ]
    };
    Table {
        columns: columns.map(String::from).to_vec(),
        rows: ranks.iter().enumerate().map(row).collect(),
    }
}

/// One iteration of one rank, for programs. The image is not compared with the truth after every one.
#[must_use]
pub fn details(rank: usize, record: &Record, qualities: &[(usize, Quality)]) -> Value {
    let quality = qualities.iter().rev().find(|(at, _)| *at == record.iteration);
    let quality = quality.map(|(_, quality)| quality);
    let Seconds { total, data, prior, communication, waiting } = record.seconds;
    json!({
        "rank": rank,
        "iteration": record.iteration,
        "data_term": record.data_term,
        "relative_change": record.relative_change,
        "psnr_db": quality.map(|quality| quality.psnr_db),
        "ssim": quality.and_then(|quality| quality.ssim),
        "seconds": {
            "total": total,
            "data": data,
            "prior": prior,
            "communication": communication,
            "waiting": waiting,
        },
        "peak_bytes": record.peak_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(iteration: usize, peak_bytes: u64) -> Record {
        let seconds =
            Seconds { total: 4.0, data: 1.0, prior: 2.0, communication: 0.5, waiting: 0.25 };
        let (data_term, peak_bytes) = (Some(1.5), Some(peak_bytes));
        Record { iteration, data_term, relative_change: 0.1, seconds, peak_bytes }
    }

    #[test]
    fn seconds_add_up_and_the_peak_is_the_largest() {
        let summary = RankSummary::of(1, &[record(1, 7), record(2, 9)], &[]);
        let parts = [summary.data_seconds, summary.prior_seconds, summary.rest_seconds];
        assert_eq!((parts, summary.peak_bytes), ([2.0, 4.0, 2.0], Some(9)));
        assert_eq!((summary.communication_seconds, summary.waiting_seconds), (1.0, 0.5));
        assert_eq!(table(&[summary.clone(), summary]).rows.len(), 2);
    }

    #[test]
    fn each_iteration_has_its_rank_its_seconds_and_the_quality_that_is_known() {
        let quality = Quality { psnr_db: 30.0, ssim: None };
        let summary = RankSummary::of(3, &[record(1, 7), record(2, 9)], &[(2, quality)]);
        let [first, second] = &summary.records[..] else { panic!("two iterations") };
        assert_eq!((&first["rank"], &first["iteration"]), (&json!(3), &json!(1)));
        assert_eq!((&first["psnr_db"], &second["psnr_db"]), (&Value::Null, &json!(30.0)));
        assert_eq!((&first["peak_bytes"], &second["peak_bytes"]), (&json!(7), &json!(9)));
        assert_eq!(second["seconds"]["waiting"], 0.25);
    }
}

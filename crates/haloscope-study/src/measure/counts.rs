//! Counted messages beside those that the plan of the job foretells. Nothing is timed, so ranks may be more than cores.

use crate::error::Result;
use crate::row::Row;
use crate::trial::Trial;

/// Puts the forecast of each rank beside its counts, and takes the times out.
pub(super) fn compare(trial: &Trial, rows: &mut [Row]) -> Result<()> {
    let configuration = &trial.configuration;
    let outlook = trial.job()?.outlook(configuration.threads)?;
    let expected = outlook.expect(configuration.ranks)?;
    // All threads are one process, whose memory is that of all ranks.
    let process = match configuration.backend {
        crate::row::Backend::Mpi => expected.rank_bytes,
        _ => expected.bytes(configuration.ranks, 1),
    };
    for row in rows {
        let share = expected.forecast.ranks.get(row.rank);
        *row = Row {
            total_seconds: 0.0,
            data_seconds: None,
            prior_seconds: None,
            transfer_seconds: None,
            waiting_seconds: None,
            predicted_bytes: Some(process),
            predicted_bytes_sent: share.map(|share| share.bytes_sent),
            predicted_halo_rounds: share.map(|share| share.exchanges.rounds as u64),
            ..row.clone()
        };
    }
    Ok(())
}

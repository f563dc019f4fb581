//! How many threads a command uses: what `--threads` says, or all cores.

use haloscope_nn::engine::MAX_THREADS;

/// The threads that were asked for, or as many as this process has cores.
pub(crate) fn or_all_cores(threads: Option<usize>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    threads.unwrap_or_else(cores).min(MAX_THREADS)
}

/// A number of threads that a system can start.
pub(crate) fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=MAX_THREADS).contains(&threads) => Ok(threads),
        _ => Err(format!("a number from 1 to {MAX_THREADS} is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_at_least_one_and_no_more_than_can_be_started() {
        assert_eq!(parse_threads("3"), Ok(3));
        assert!(or_all_cores(None) > 0 && or_all_cores(Some(3)) == 3);
        for bad in ["", "0", "-1", "two", "100000", "99999999999999999999"] {
            assert!(parse_threads(bad).expect_err(bad).contains("from 1 to"), "{bad}");
        }
    }
}

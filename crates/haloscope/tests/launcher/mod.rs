//! What tests that kill processes must know of the launcher that started them.

use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Ends a launcher whose processes are gone: Open MPI's may wait for ever for two that die at once. It is watched until
/// what is returned is dropped.
pub(crate) fn end_when_alone(
    launcher: u32,
    is_alone: impl Fn() -> bool + Send + 'static,
) -> mpsc::Sender<()> {
    let (running, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut seconds = 0;
        while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            seconds = if is_alone() { seconds + 1 } else { 0 };
            if seconds == 20 {
                let _ = Command::new("kill").args(["-9", &launcher.to_string()]).output();
            }
        }
    });
    running
}

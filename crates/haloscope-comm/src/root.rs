//! Work that rank 0 does alone while the others wait for it, for as long as it takes.
//!
//! The deadline of a call finds ranks that are gone, and says nothing about how long a file may take to write. So the others
//! do not wait in one call: while rank 0 works, a thread of it tells them again and again that there is more to wait for, in
//! calls that have the usual deadline.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use crate::communicator::{Collectives, Communicator};
use crate::error::Result;

/// What rank 0 says while it works, and when it is done.
const BUSY: [u8; 1] = [1];
const DONE: [u8; 1] = [0];

/// How often it says so within a deadline: often enough for threads that the system runs late.
const SIGNS: u32 = 8;

/// See [`Collectives::on_root`].
pub(crate) fn on_root<C, T>(comm: &C, work: impl FnOnce() -> T) -> Result<Option<T>>
where
    C: Communicator + ?Sized,
{
    if comm.size() == 1 {
        return Ok(Some(work()));
    }
    if comm.rank() != 0 {
        let mut sign = BUSY;
        while sign == BUSY {
            comm.broadcast(0, &mut sign)?;
        }
        return Ok(None);
    }
    let (worker, end) = channel::<()>();
    let interval = comm.deadline() / SIGNS;
    let result = thread::scope(|scope| {
        let tell = move || {
            while end.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                // The next call has the same error.
                if comm.broadcast(0, &mut BUSY.clone()).is_err() {
                    return;
                }
            }
        };
        // Where no thread can be had, the work still has the time of one deadline.
        let _ = thread::Builder::new().name("rank 0, at work".into()).spawn_scoped(scope, tell);
        // Dropped when the work is done, also by a panic.
        let _worker = worker;
        work()
    });
    comm.broadcast(0, &mut DONE.clone())?;
    Ok(Some(result))
}

//! Ending long calculations early, when a user asks for it.
//!
//! A [`Stop`] is shared by those who may ask and those who calculate. A thread [watches](Stop::watch) one, and everything that
//! it calls looks at it in between: engines for each layer and each of its pieces, planners for each panel of weights,
//! solvers for each iteration. So neither networks nor operators nor methods hand it on. Threads that one starts
//! oneself watch what [`Stop::current`] gave.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A request to end calculations, which is made once and stays.
///
/// ```
/// use haloscope_nn::{Error, Stop};
///
/// let stop = Stop::default();
/// assert_eq!(stop.watch(Stop::check), Ok(()));
/// stop.request();
/// assert_eq!(stop.watch(Stop::check), Err(Error::Interrupted));
/// assert_eq!(Stop::check(), Ok(()), "nobody asked this thread, which watches nothing now");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

thread_local! {
    static CURRENT: RefCell<Stop> = RefCell::default();
}

impl Stop {
    /// Asks all who watch it to end.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Calls `body`, in which this thread watches the request, and none that it watched before.
    pub fn watch<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Before(Stop);
        impl Drop for Before {
            fn drop(&mut self) {
                CURRENT.replace(std::mem::take(&mut self.0));
            }
        }
        let _before = Before(CURRENT.replace(self.clone()));
        body()
    }

    /// Whether both are one request.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What this thread watches, for threads that it starts.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.with_borrow(Self::clone)
    }

    /// Fails if what this thread watches was requested.
    pub fn check() -> Result<()> {
        if CURRENT.with_borrow(Self::is_requested) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_watches_the_innermost_and_then_what_it_watched_before() {
        let (outer, inner) = (Stop::default(), Stop::default());
        outer.request();
        outer.watch(|| {
            assert_eq!(inner.watch(Stop::check), Ok(()));
            assert_eq!(Stop::check(), Err(Error::Interrupted));
            let failed = std::panic::catch_unwind(|| inner.watch(|| panic!("inside")));
            assert!(failed.is_err());
            assert_eq!(Stop::check(), Err(Error::Interrupted));
        });
        assert_eq!(Stop::check(), Ok(()));
    }

    #[test]
    fn threads_watch_what_they_are_given() {
        let stop = Stop::default();
        stop.request();
        let given = stop.watch(Stop::current);
        let result = std::thread::spawn(move || (Stop::check(), given.watch(Stop::check))).join();
        assert_eq!(result.ok(), Some((Ok(()), Err(Error::Interrupted))));
        assert!(stop.is_same_as(&stop.watch(Stop::current)) && !stop.is_same_as(&Stop::default()));
    }
}

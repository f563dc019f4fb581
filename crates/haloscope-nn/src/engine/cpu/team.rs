//! The threads of one run: they share the items of each step and meet at its end.
//!
//! Items are handed out one by one, so a thread that loses its core for a while delays nobody for
//! longer than one item. Which thread takes an item never changes a result: an item's arithmetic
//! does not depend on the other items. Between steps the threads spin for some microseconds, then
//! sleep.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

/// Rounds of waiting in a spin before a thread sleeps: some tens of microseconds.
const SPINS: u32 = 4000;

/// A fixed number of threads, of which the caller is one.
pub(crate) struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    threads: usize,
}

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts the jobs; a change is the signal to start.
    epoch: AtomicUsize,
    /// Workers that have not finished the current job.
    busy: AtomicUsize,
    next_item: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
    /// The current job and who waits for it: written before `epoch`, read after.
    job: UnsafeCell<Option<(Job, Thread)>>,
}

// SAFETY: `job` is written only while no worker is busy, and read only after the release of `epoch`.
unsafe impl Sync for Shared {}
// SAFETY: the job's pointer is used only while `Team::run` keeps the closure alive.
unsafe impl Send for Shared {}

impl Team {
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            next_item: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            job: UnsafeCell::new(None),
        });
        // A thread that cannot be started is done without: the others take its items.
        let workers = (1..threads)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                let name = format!("haloscope-nn-{index}");
                thread::Builder::new().name(name).spawn(move || shared.work(index)).ok()
            })
            .collect();
        Self { shared, workers, threads }
    }

    /// The number of threads that were asked for.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work(thread, item)` for every item, each on one of the team's threads.
    pub(crate) fn for_each(&mut self, items: usize, work: &(impl Fn(usize, usize) + Sync)) {
        if self.workers.is_empty() || items <= 1 {
            (0..items).for_each(|item| work(0, item));
            return;
        }
        self.shared.next_item.store(0, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        self.run(&move |thread| {
            loop {
                let item = shared.next_item.fetch_add(1, Ordering::Relaxed);
                if item >= items {
                    break;
                }
                work(thread, item);
            }
        });
    }

    /// Calls `job` once on each thread and returns when all have finished.
    fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; the reference is not used after this function returns,
        // because it waits for `busy` to reach zero even when the job panics.
        let job_static: Job = unsafe {
            std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job)
        };
        // SAFETY: no worker is busy between two runs, and `&mut self` excludes a second caller.
        unsafe { *self.shared.job.get() = Some((job_static, thread::current())) };
        self.shared.busy.store(self.workers.len(), Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        for worker in &self.workers {
            worker.thread().unpark();
        }
        let mine = catch_unwind(AssertUnwindSafe(|| job(0)));
        let mut spins = 0;
        while self.shared.busy.load(Ordering::Acquire) > 0 {
            pause(&mut spins);
        }
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        assert!(
            !self.shared.panicked.swap(false, Ordering::Relaxed),
            "a thread of the engine panicked; its message is above"
        );
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker never panics: it catches the panics of its jobs.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The life of a worker.
    fn work(&self, thread: usize) {
        let mut seen = 0;
        loop {
            let mut spins = 0;
            while self.epoch.load(Ordering::Acquire) == seen {
                pause(&mut spins);
            }
            seen += 1;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: written before `epoch` was released; the caller waits for this worker before
            // it writes again or lets the closure go.
            let (job, caller) = unsafe { (*self.job.get()).clone() }.expect("set before the epoch");
            // SAFETY: the closure is alive until `busy` reaches zero.
            if catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(thread) })).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            if self.busy.fetch_sub(1, Ordering::Release) == 1 {
                caller.unpark();
            }
        }
    }
}

/// Spins for a while, then sleeps until unparked.
fn pause(spins: &mut u32) {
    if *spins < SPINS {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_exactly_once() {
        for threads in 1..5 {
            let mut team = Team::new(threads);
            for items in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                team.for_each(items, &|thread, item| {
                    assert!(thread < threads);
                    counts[item].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_sleeping_team_wakes_up() {
        let mut team = Team::new(3);
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(20));
            let done = AtomicUsize::new(0);
            team.for_each(9, &|_, _| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 9);
        }
    }

    #[test]
    fn a_panic_in_an_item_reaches_the_caller_and_the_team_survives() {
        let mut team = Team::new(2);
        let result = catch_unwind(AssertUnwindSafe(|| {
            team.for_each(8, &|_, item| assert!(item != 5, "item five"));
        }));
        assert!(result.is_err());
        let done = AtomicUsize::new(0);
        team.for_each(8, &|_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 8);
    }
}

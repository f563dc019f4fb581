//! What a run in waves allocates, against what its plan says, at several heights. A test of its own, because it counts the
//! allocations of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use haloscope_nn::Shape;
use haloscope_nn::engine::{Cpu, Engine, EngineOptions, EnginePlan};
use haloscope_nn::models::{Architecture, Drunet};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs waves on an image that is never in memory. Returns the sum of the result.
fn stream(plan: &dyn EnginePlan, scratch: &mut haloscope_nn::engine::Scratch) -> f64 {
    let mut sum = 0.0;
    let mut read = |rows: Range<usize>, band: &mut [f32]| {
        for (value, at) in band.iter_mut().zip(rows.start..) {
            *value = (at % 7) as f32;
        }
        Ok(())
    };
    let mut write = |_: Range<usize>, band: &[f32]| {
        sum += band.iter().map(|&value| f64::from(value)).sum::<f64>();
        Ok(())
    };
    plan.run_bands(&mut read, &mut write, scratch, &mut |_, _| ()).expect("nothing fails");
    sum
}

#[test]
fn the_peak_is_the_predicted_one_at_every_height_and_a_run_allocates_nothing() {
    let drunet = Drunet { channels: [16, 24, 32, 48], blocks: 1, ..Drunet::default() };
    let model = drunet.random(1).expect("the options are valid");
    let mut peaks = Vec::new();
    for height in [900, 1800, 3600] {
        let shape = Shape::new([1, 4, height, 96]).expect("small");
        let options = EngineOptions { threads: 2, ..EngineOptions::default() };
        let whole = Cpu::default().plan(model.network(), &shape, &options).expect("any size");
        let whole = whole.memory().total();
        let before = HELD.load(Ordering::Relaxed);
        let plan = Cpu::default().plan_waves(model.network(), &shape, &options).expect("any size");
        PEAK.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut scratch = plan.scratch();
        let first = stream(&*plan, &mut scratch);
        let count = ALLOCATIONS.load(Ordering::Relaxed);
        assert_eq!(first.to_bits(), stream(&*plan, &mut scratch).to_bits());
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), count, "a run allocates");
        let peak = PEAK.load(Ordering::Relaxed) - before;
        let predicted = plan.memory().total();
        let ratio = peak as f64 / predicted as f64;
        assert!((0.99..1.02).contains(&ratio), "{peak} bytes at the peak, {predicted} predicted");
        peaks.push((predicted, peak, whole));
    }
    // The height of the image is in the number of waves only.
    assert_eq!(peaks[1].0, peaks[2].0);
    assert!(peaks[2].1.abs_diff(peaks[1].1) < 4096, "{peaks:?}");
    assert!(4 * peaks[2].1 < 3 * peaks[2].2, "less than the whole: {peaks:?}");
}

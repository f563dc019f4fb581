//! Plans of one network share their weights: a test of its own process, because it measures the memory that is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Architecture, Drunet};
use haloscope_nn::{Network, Shape};

struct Counting;

static ALIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn plans_of_one_network_have_its_weights_once_and_as_long_as_one_lives() {
    let drunet = Drunet { channels: [32, 64, 64, 128], blocks: 2, ..Drunet::default() };
    let model = drunet.random(1).expect("valid");
    let engine = Cpu::default();
    let plan = &|network: &Network, side: usize, batch: usize| {
        let shape = Shape::new([batch, 4, side, side]).expect("small");
        engine.plan(network, &shape, &EngineOptions::default()).expect("any size")
    };
    let before = ALIVE.load(Ordering::Relaxed);
    let grown = || ALIVE.load(Ordering::Relaxed).saturating_sub(before);
    let first = plan(model.network(), 96, 1);
    let weights = first.memory().weights;
    assert!(grown() >= weights);
    // Ranks plan clones, at the same time; a batch has the methods of its images.
    let others = std::thread::scope(|scope| {
        let rank = |batch: usize| {
            let network = model.network().clone();
            scope.spawn(move || plan(&network, 96, batch))
        };
        let ranks: Vec<_> = (1..5).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a plan")).collect::<Vec<_>>()
    });
    assert!(others.iter().all(|other| other.memory().weights == weights));
    assert!(grown() < weights + weights / 10, "{} bytes for {weights} of weights", grown());
    // The first plan is gone, its weights are not.
    drop(first);
    assert!(grown() >= weights);
    drop(others);
    assert!(grown() < weights / 10, "{} bytes are left", grown());
    let again = plan(model.network(), 96, 1);
    assert!(grown() >= again.memory().weights);
}

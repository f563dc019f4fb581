//! A run allocates nothing: a test of its own, because it counts the allocations of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use haloscope_nn::Shape;
use haloscope_nn::engine::{Cpu, Engine, Options};
use haloscope_nn::models::{Architecture, Drunet, Unet};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_run_allocates_nothing() {
    let drunet = Drunet { channels: [16, 24, 32, 48], blocks: 1, ..Drunet::default() };
    let unet = Unet { channels: vec![16, 24, 32], ..Unet::default() };
    for model in [drunet.random(1), unet.random(1)] {
        let model = model.expect("the options are valid");
        let network = model.network();
        for threads in [1, 2] {
            let shape = Shape::image(1, network.input_channels(), &[44, 37]).expect("small");
            let options = Options { threads, ..Options::default() };
            let plan =
                Cpu::default().plan(network, &shape, &options).expect("any size can be planned");
            let mut scratch = plan.scratch();
            let input = vec![0.5; plan.input_shape().count()];
            let mut output = vec![0.0; plan.output_shape().count()];
            // The first run may set up what threads keep for themselves.
            plan.run(&input, &mut output, &mut scratch).expect("lengths fit");
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            plan.run(&input, &mut output, &mut scratch).expect("lengths fit");
            assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{threads} threads");
        }
    }
}

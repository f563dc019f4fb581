//! A run allocates nothing: a test of its own, because it counts the allocations of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use haloscope_nn::Shape;
use haloscope_nn::engine::{Cpu, Engine, EngineOptions, Faces, Halo, Round, Shard};
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

/// Two parts, one above the other, that meet at a barrier and leave their rows in memory that exists already.
struct Meeting<'a> {
    barrier: &'a Barrier,
    faces: &'a [Mutex<Vec<f32>>; 2],
    part: usize,
}

impl Halo for Meeting<'_> {
    fn exchange(&mut self, round: &Round, faces: Faces<'_>) -> Result<(), String> {
        let side = 1 - self.part;
        let count = round.sent[side];
        self.faces[self.part].lock().expect("no panic")[..count].copy_from_slice(faces.sent[side]);
        self.barrier.wait();
        let other = self.faces[side].lock().expect("no panic");
        faces.received[side].copy_from_slice(&other[..count]);
        drop(other);
        self.barrier.wait();
        Ok(())
    }
}

fn parts_allocate_nothing() {
    let drunet = Drunet { channels: [16, 24, 32, 48], blocks: 1, ..Drunet::default() };
    let model = drunet.random(1).expect("the options are valid");
    let shape = Shape::new([1, 4, 200, 44]).expect("small");
    let (engine, options) = (Cpu::default(), EngineOptions::default());
    let grain = engine.grains(model.network(), &shape, &options).expect("it can be cut")[0];
    let cuts = grain.cut(200, 2).expect("two parts are possible");
    let (barrier, faces) = (Barrier::new(2), [(); 2].map(|()| Mutex::new(vec![0.0; 1 << 16])));
    std::thread::scope(|scope| {
        for (part, rows) in cuts.into_iter().enumerate() {
            let (shape, barrier, faces) = (shape.clone(), &barrier, &faces);
            let (engine, options, network) = (&engine, &options, model.network());
            scope.spawn(move || {
                let shard = Shard::new(shape, vec![rows, 0..44]).expect("inside");
                let plan = engine.plan_shard(network, &shard, options).expect("at a grain");
                let mut scratch = plan.scratch();
                let input = vec![0.5; plan.input_shape().count()];
                let mut output = vec![0.0; plan.output_shape().count()];
                let mut meeting = Meeting { barrier, faces, part };
                let mut run = || {
                    barrier.wait();
                    let before = ALLOCATIONS.load(Ordering::Relaxed);
                    plan.run_shard(&input, &mut output, &mut scratch, &mut meeting, &mut |_, _| ())
                        .expect("nobody fails");
                    barrier.wait();
                    ALLOCATIONS.load(Ordering::Relaxed) - before
                };
                run();
                assert_eq!(run(), 0);
                barrier.wait();
            });
        }
    });
}

#[test]
fn a_run_allocates_nothing() {
    // In one test, because the count is that of all threads.
    parts_allocate_nothing();
    let drunet = Drunet { channels: [16, 24, 32, 48], blocks: 1, ..Drunet::default() };
    let unet = Unet { channels: vec![16, 24, 32], ..Unet::default() };
    for model in [drunet.random(1), unet.random(1)] {
        let model = model.expect("the options are valid");
        let network = model.network();
        for threads in [1, 2] {
            let shape = Shape::image(1, network.input_channels(), &[44, 37]).expect("small");
            let options = EngineOptions { threads, ..EngineOptions::default() };
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

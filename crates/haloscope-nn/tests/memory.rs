//! What a plan says about its memory, against what the system measures. A test of its own process,
//! because a process's peak only grows.

#![cfg(target_os = "linux")]

use haloscope_nn::Shape;
use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Architecture, Drunet};

/// A field of the process's status, in bytes.
fn status(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("it is there");
    let kilobytes: f64 =
        line.split_whitespace().next().expect("a number").parse().expect("a number");
    kilobytes * 1024.0
}

#[test]
fn predicted_memory_is_what_a_run_takes() {
    let drunet = Drunet { channels: [32, 64, 128, 256], blocks: 2, ..Drunet::default() };
    let model = drunet.random(1).expect("valid options");
    let shape = Shape::new([1, 4, 384, 512]).expect("small");
    let input = vec![0.5; shape.count()];
    let mut output = vec![0.5; 3 * 384 * 512];
    let before = status("VmRSS:");
    let plan = Cpu::default()
        .plan(model.network(), &shape, &EngineOptions::default())
        .expect("it can be planned");
    plan.run(&input, &mut output, &mut plan.scratch()).expect("lengths fit");
    let (measured, predicted) = (status("VmHWM:") - before, plan.memory().total() as f64);
    let ratio = measured / predicted;
    assert!((0.95..1.05).contains(&ratio), "{measured} bytes measured, {predicted} predicted");
}

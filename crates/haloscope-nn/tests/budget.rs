//! A memory budget is what a process takes, not only what a plan counts. A file of its own, because
//! the peak of a process only grows.

#![cfg(target_os = "linux")]

use haloscope_nn::Shape;
use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Architecture, Drunet};

/// The most memory that the process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is there");
    line.split_whitespace().next().expect("a number").parse::<usize>().expect("a number") * 1024
}

#[test]
fn the_full_drunet_stays_within_330_megabytes_in_all() {
    let network = Drunet::default().random(1).expect("valid options").into_network();
    let shape = Shape::new([1, 4, 256, 256]).expect("small");
    let input = vec![0.5; shape.count()];
    let mut output = vec![0.0; 3 * 256 * 256];
    let options =
        EngineOptions { memory_budget: Some(315_000_000), threads: 2, ..EngineOptions::default() };
    let plan =
        Cpu::default().plan_consuming(network, &shape, &options).expect("the budget suffices");
    plan.run(&input, &mut output, &mut plan.scratch()).expect("lengths fit");
    assert!(output.iter().all(|value| value.is_finite()));
    assert!(plan.memory().total() <= 315_000_000);
    assert!(peak() <= 330_000_000, "{} bytes at the peak", peak());
}

//! Which instructions a process uses where nobody asks for others.
//!
//! AVX-512 sums in the order of AVX2, so both give the same bits, and ranks on different CPUs agree whichever they use. What
//! a CPU gains by it depends on the width of its units: nothing on AMD's Zen 4, which does the work of one such instruction in
//! two halves (`bench/runs/2026-11-17-amd-epyc/instructions-1.json`). So the first plan of a process convolves a small image
//! with both sets. AVX-512 is used if it gives the same bits in clearly less time.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::kernels::InstructionSet;
use super::plan::CpuPlan;
use super::stock::Shelf;
use crate::builder::NetworkBuilder;
use crate::engine::options::EngineOptions;
use crate::engine::{EnginePlan, Shard};
use crate::error::Result;
use crate::network::Network;
use crate::op::{Activation, Conv, Op};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The share of the time of AVX2 below which AVX-512 is used: what is less is within the noise of such a short trial.
const WORTHWHILE: f64 = 0.9;
/// Turns that each set has, and runs in a turn; the fastest run counts.
const TURNS: usize = 2;
const RUNS: usize = 4;

impl InstructionSet {
    /// What is used where nothing else is asked for: the fastest of those that this CPU has.
    ///
    /// AVX-512 counts only if it gives the bits of AVX2, which the first call of a process tries out in some milliseconds.
    #[must_use]
    pub fn detect() -> Self {
        verdict().set
    }

    /// Why instructions that this CPU has are not trusted, if so.
    ///
    /// ```
    /// use haloscope_nn::engine::InstructionSet;
    ///
    /// if let Some(doubt) = InstructionSet::doubt() {
    ///     eprintln!("warning: {doubt}");
    /// }
    /// ```
    #[must_use]
    pub fn doubt() -> Option<&'static str> {
        verdict().doubt.as_deref()
    }
}

/// What a process uses, and what it found wrong with the rest.
#[derive(Debug, PartialEq)]
struct Verdict {
    set: InstructionSet,
    doubt: Option<String>,
}

/// How a set of instructions did beside another.
struct Comparison {
    same_bits: bool,
    /// The time that it took for each second of the other.
    time: f64,
}

fn verdict() -> &'static Verdict {
    static VERDICT: OnceLock<Verdict> = OnceLock::new();
    VERDICT.get_or_init(|| {
        let (wide, narrow) = (InstructionSet::Avx512, InstructionSet::Avx2);
        if wide.is_available() {
            return judge(wide, narrow, compare(wide, narrow));
        }
        let sets = [narrow, InstructionSet::Neon];
        let set = sets.into_iter().find(|set| set.is_available());
        Verdict { set: set.unwrap_or(InstructionSet::Portable), doubt: None }
    })
}

/// Takes the candidate if it is right and worthwhile.
fn judge(
    candidate: InstructionSet,
    trusted: InstructionSet,
    comparison: Result<Comparison>,
) -> Verdict {
    let reason = match comparison {
        Ok(Comparison { same_bits: true, time }) => {
            let set = if time < WORTHWHILE { candidate } else { trusted };
            return Verdict { set, doubt: None };
        }
        Ok(_) => format!("a convolution with them differs from the same with {trusted}"),
        Err(error) => error.to_string(),
    };
    let doubt = format!(
        "the instructions {candidate} of this CPU are not used, {trusted} is: {reason}; please report this with the name of \
         the CPU"
    );
    Verdict { set: trusted, doubt: Some(doubt) }
}

/// Runs a small network with both, in turn. One plan exists at a time, so that a process holds little for it.
fn compare(candidate: InstructionSet, trusted: InstructionSet) -> Result<Comparison> {
    let network = sample()?;
    let shape = Shape::new([1, 16, 30, 26])?;
    let mut random = fastrand::Rng::with_seed(5);
    let input: Vec<f32> = (0..shape.count()).map(|_| random.f32() - 0.5).collect();
    let shard = Shard::whole_of(&shape);
    let options = EngineOptions::default();
    let mut found = [candidate, trusted].map(|set| (set, Vec::new(), Duration::MAX));
    for _ in 0..TURNS {
        for (set, bits, best) in &mut found {
            let shelf = Shelf::default();
            let plan = CpuPlan::new(Cow::Borrowed(&network), &shard, &options, *set, &shelf)?;
            let mut output = vec![0.0_f32; plan.output_shape().count()];
            let mut scratch = plan.scratch();
            for _ in 0..RUNS {
                let begin = Instant::now();
                plan.run(&input, &mut output, &mut scratch)?;
                *best = begin.elapsed().min(*best);
            }
            *bits = output.iter().map(|value| value.to_bits()).collect();
        }
    }
    let [(_, first, fast), (_, second, slow)] = found;
    let time = fast.as_secs_f64() / slow.as_secs_f64().max(1e-9);
    Ok(Comparison { same_bits: first == second, time })
}

/// A network that uses all kernels: Winograd's method with few and with many channels, a sum, activations, and a direct
/// convolution.
fn sample() -> Result<Network> {
    let mut random = fastrand::Rng::with_seed(4);
    let mut tensor = |sizes: &[usize]| {
        let shape = Shape::new(sizes)?;
        let values: Vec<f32> = (0..shape.count()).map(|_| random.f32() - 0.5).collect();
        Tensor::new(shape, values)
    };
    let mut builder = NetworkBuilder::new("instructions", 2)?;
    let input = builder.input(16)?;
    let conv = Conv::new(tensor(&[80, 16, 3, 3])?).bias(tensor(&[80])?).padding(1);
    let wide = builder.conv("wide", conv, input)?;
    let wide = builder.activation("relu", Activation::Relu, wide)?;
    let conv = Conv::new(tensor(&[80, 80, 3, 3])?).padding(1);
    let deep = builder.conv("deep", conv, wide)?;
    let sum = builder.push("sum", Op::Add, &[deep, wide])?;
    let sum = builder.activation("leaky", Activation::LeakyRelu(0.1), sum)?;
    let conv = Conv::new(tensor(&[24, 80, 2, 2])?).stride(2);
    let half = builder.conv("half", conv, sum)?;
    builder.finish(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Cpu, Engine};

    #[test]
    fn one_wrong_bit_in_one_lane_is_found_and_the_trusted_set_used() {
        let (wrong, trusted) = (InstructionSet::Wrong, InstructionSet::Portable);
        let verdict = judge(wrong, trusted, compare(wrong, trusted));
        assert_eq!(verdict.set, trusted);
        let doubt = verdict.doubt.expect("a warning");
        assert!(doubt.contains("wrong of this CPU are not used, portable is"), "{doubt}");
    }

    #[test]
    fn a_set_has_its_own_bits() {
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            assert!(compare(set, set).expect("it runs").same_bits, "{set}");
        }
    }

    #[test]
    fn avx512_has_the_bits_of_avx2() {
        let (wide, narrow) = (InstructionSet::Avx512, InstructionSet::Avx2);
        if !wide.is_available() {
            eprintln!("skipped: AVX-512, which this CPU does not have");
            return;
        }
        assert!(compare(wide, narrow).expect("it runs").same_bits);
        assert_eq!(InstructionSet::doubt(), None);
        assert!([wide, narrow].contains(&InstructionSet::detect()));
    }

    #[test]
    fn engines_with_the_same_bits_are_of_one_kind() {
        let kind = |set| Cpu::with_instructions(set).map(|engine| engine.kind());
        assert_eq!(kind(InstructionSet::Portable), Ok("cpu (portable)".into()));
        for set in [InstructionSet::Avx2, InstructionSet::Avx512] {
            assert!(!set.is_available() || kind(set) == Ok("cpu".into()), "{set}");
        }
    }

    #[test]
    fn the_faster_of_two_equal_sets_is_used() {
        let (candidate, trusted) = (InstructionSet::Avx512, InstructionSet::Avx2);
        let judged = |time| judge(candidate, trusted, Ok(Comparison { same_bits: true, time })).set;
        assert_eq!([0.6, 0.95, 1.5].map(judged), [candidate, trusted, trusted]);
    }
}

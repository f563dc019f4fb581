//! The devices that run the network, rank by rank: agreed on, and in words.
//!
//! A device belongs to the network of a job and not to the ranks' context, which exists before there is a job, also where nothing
//! runs on a device.

use haloscope::denoise::NetworkDenoiser;
use haloscope::{Error, Result};
use haloscope_comm::{Collectives, Context};

use crate::memory::{sent, size};
use crate::words::count;

/// The bytes per second to a device and back that forecasts assume: those of PCI Express 3 with 16 lanes from memory that is
/// not pinned. `haloscope bench device` measures them.
const TRANSFER_RATE: f64 = 6e9;

/// The device of the network on each rank, in their order; none without a network. All ranks call it.
///
/// # Errors
/// If ranks have engines of several kinds: their bits differ, and an image would depend on which rank computed what. And if there
/// is a memory budget, by which waves follow from the threads, and ranks have several numbers of threads.
pub(crate) fn of_ranks(ctx: &Context, network: Option<&NetworkDenoiser>) -> Result<Vec<String>> {
    let Some(network) = network else { return Ok(Vec::new()) };
    let options = network.options();
    let threads = options.memory_budget.map_or(0, |_| options.threads);
    check_threads(&ctx.comm().all_gather(&[threads as u64])?.concat())?;
    let own = format!("{}\n{}", network.device(), network.engine_kind());
    let all = ctx.comm().all_gather(own.as_bytes())?;
    let all: Vec<String> = all.iter().map(|text| String::from_utf8_lossy(text).into()).collect();
    let pairs: Vec<(&str, &str)> =
        all.iter().map(|text| text.split_once('\n').unwrap_or((text, ""))).collect();
    let (_, first) = pairs[0];
    if let Some(other) = pairs.iter().position(|(_, kind)| *kind != first) {
        let reason = format!(
            "rank 0 would run the network with {first} and rank {other} with {}, whose bits differ; start the ranks on machines \
             that are alike, or choose a device that all have",
            pairs[other].1
        );
        return Err(Error::argument("device", reason));
    }
    Ok(pairs.iter().map(|(device, _)| (*device).to_owned()).collect())
}

fn check_threads(of_ranks: &[u64]) -> Result<()> {
    let Some(other) = of_ranks.iter().position(|threads| *threads != of_ranks[0]) else {
        return Ok(());
    };
    let reason = format!(
        "with it, all ranks need as many threads; rank 0 has {} and rank {other} has {}: give --threads",
        of_ranks[0], of_ranks[other]
    );
    Err(Error::argument("memory_budget", reason))
}

/// The devices of ranks in a few words; nothing if all are the processor.
pub(crate) fn describe(devices: &[String]) -> Option<String> {
    if devices.iter().all(|device| device == "the CPU") {
        return None;
    }
    let mut names: Vec<&String> = Vec::new();
    for device in devices {
        if !names.contains(&device) {
            names.push(device);
        }
    }
    let ranks = |name: &String| devices.iter().filter(|device| *device == name).count();
    Some(match &names[..] {
        [only] => (*only).clone(),
        several => {
            let each: Vec<String> = several
                .iter()
                .map(|name| format!("{name} ({})", count(ranks(name), "rank")))
                .collect();
            each.join(", ")
        }
    })
}

/// What a device with memory of its own holds of a rank's network, and what goes there and back in an iteration.
#[must_use]
pub fn describe_device(device: &str, bytes: u64, traffic: u64) -> String {
    format!(
        "{device}, about {} of its memory for a rank; {} go there and back in an iteration, {:.1} ms at {:.0} GB/s",
        size(bytes),
        sent(traffic),
        1e3 * transfer_seconds(traffic),
        TRANSFER_RATE / 1e9
    )
}

/// The seconds that bytes to a device and back take.
pub(crate) fn transfer_seconds(bytes: u64) -> f64 {
    bytes as f64 / TRANSFER_RATE
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haloscope_nn::engine::{Cpu, Engine, EngineOptions, EnginePlan};
    use haloscope_nn::models::{Architecture, Dncnn};
    use haloscope_nn::{Network, Shape};

    use super::*;

    /// The CPU engine under another name.
    #[derive(Debug)]
    struct Named(&'static str, String);

    impl Engine for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn device(&self) -> String {
            self.1.clone()
        }

        fn plan(
            &self,
            network: &Network,
            input: &Shape,
            options: &EngineOptions,
        ) -> haloscope_nn::Result<Arc<dyn EnginePlan>> {
            Cpu::default().plan(network, input, options)
        }
    }

    fn denoiser(kind: &'static str, device: String) -> NetworkDenoiser {
        let model = Dncnn { depth: 3, channels: 8, ..Dncnn::default() }.random(1).expect("valid");
        let engine = Arc::new(Named(kind, device));
        NetworkDenoiser::with_engine(model, engine, EngineOptions::default()).expect("aligned")
    }

    #[test]
    fn every_rank_knows_the_devices_of_all() {
        let all = Context::threads(3, |ctx| {
            let network = denoiser("CUDA", format!("CUDA device {}", ctx.rank() % 2));
            of_ranks(ctx, Some(&network))
        });
        let expected = [0, 1, 0].map(|index| format!("CUDA device {index}")).to_vec();
        assert_eq!(all.expect("agreed"), vec![expected.clone(); 3]);
        let words = "CUDA device 0 (2 ranks), CUDA device 1 (1 rank)";
        assert_eq!(describe(&expected).as_deref(), Some(words));
        assert_eq!(describe(&vec!["the CPU".into(); 2]), None);
        assert_eq!(describe(&[]), None);
    }

    #[test]
    fn ranks_with_several_kinds_of_engine_are_refused_on_all_of_them() {
        let error = Context::threads(3, |ctx| {
            let kind = if ctx.rank() == 2 { "cpu" } else { "CUDA" };
            let error = of_ranks(ctx, Some(&denoiser(kind, kind.into()))).expect_err("mixed");
            Ok::<_, Error>(error.to_string())
        });
        for error in error.expect("every rank has it") {
            assert!(error.contains("rank 0 would run the network with CUDA"), "{error}");
            assert!(
                error.contains("rank 2 with cpu") && error.contains("that all have"),
                "{error}"
            );
        }
    }

    #[test]
    fn transfers_are_told_in_bytes_and_time() {
        let words = describe_device("CUDA device 1", 1_200_000_000, 60_000_000);
        assert_eq!(
            words,
            "CUDA device 1, about 1.2 GB of its memory for a rank; 60.0 MB go there and back in an iteration, 10.0 ms at 6 GB/s"
        );
    }

    #[test]
    fn ranks_with_a_memory_budget_have_as_many_threads() {
        assert_eq!(check_threads(&[2, 2, 2]), Ok(()));
        let error = check_threads(&[2, 2, 4]).expect_err("another number").to_string();
        assert!(error.contains("rank 0 has 2 and rank 2 has 4"), "{error}");
    }
}

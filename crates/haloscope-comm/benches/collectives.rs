//! Seconds per all-reduce and per exchange on two ranks, as lines of JSON for `bench/compare.py`.
//!
//! `collectives threads` measures thread ranks; under mpirun, `collectives mpi` measures MPI ranks
//! and `collectives mpi-native` the MPI library's own calls. `bench/peers/gloo.py` does the same in
//! the same way with PyTorch. A second argument sets the size of frames.

use std::time::{Duration, Instant};

use haloscope_comm::{Collectives, Communicator, Context, Error, Reduction, Result, Threads};

/// Bytes per message, calls per batch, and batches; the fastest batch counts.
const SIZES: [(usize, usize, usize); 3] =
    [(4 << 10, 200, 20), (1 << 20, 10, 20), (64 << 20, 1, 12)];

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("mpi") => run_mpi(),
        Some("mpi-native") => run_native(),
        Some("threads") => run_threads(),
        _ => Err(Error::Setup("say what to measure: threads, mpi or mpi-native".into())),
    }
}

/// The frame size in bytes, as a second argument, to find the best one.
fn frame_bytes() -> Option<usize> {
    std::env::args().nth(2)?.parse().ok()
}

fn run_threads() -> Result<()> {
    let Some(bytes) = frame_bytes() else {
        return Context::threads(2, |context| measure(context.comm())).map(drop);
    };
    let ranks = Threads::group_with_frames(2, bytes)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.iter().map(|rank| scope.spawn(move || measure(rank))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

fn measure(comm: &dyn Communicator) -> Result<()> {
    let other = 1 - comm.rank();
    for (bytes, calls, batches) in SIZES {
        let mut values = vec![0.0_f32; bytes / 4];
        let mut received = values.clone();
        report(comm, "all_reduce", bytes, calls, batches, || {
            comm.all_reduce(Reduction::Sum, &mut values)
        })?;
        report(comm, "exchange", bytes, calls, batches, || {
            comm.exchange(&[(other, &values[..])], &mut [(other, &mut received[..])])
        })?;
    }
    Ok(())
}

/// Prints the seconds of one call in the fastest batch.
fn report(
    comm: &dyn Communicator,
    operation: &str,
    bytes: usize,
    calls: usize,
    batches: usize,
    mut call: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut best = Duration::MAX;
    call()?;
    for _ in 0..batches {
        comm.barrier()?;
        let begin = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        best = best.min(begin.elapsed());
    }
    if comm.rank() == 0 {
        let seconds = best.as_secs_f64() / calls as f64;
        let size = match bytes >> 20 {
            0 => format!("{} KiB", bytes >> 10),
            mebibytes => format!("{mebibytes} MiB"),
        };
        let line =
            serde_json::json!({ "case": format!("{operation}, {size}"), "seconds": seconds });
        println!("{line}");
    }
    Ok(())
}

#[cfg(not(feature = "mpi"))]
fn run_mpi() -> Result<()> {
    Err(Error::Unsupported("build the benchmark with --features mpi".into()))
}

#[cfg(not(feature = "mpi"))]
fn run_native() -> Result<()> {
    run_mpi()
}

#[cfg(feature = "mpi")]
fn run_mpi() -> Result<()> {
    let comm = match frame_bytes() {
        Some(bytes) => haloscope_comm::Mpi::initialize_with_frames(bytes)?,
        None => haloscope_comm::Mpi::initialize()?,
    };
    if comm.size() != 2 {
        return Err(Error::Setup(format!("{} ranks; start it on 2", comm.size())));
    }
    measure(&comm)
}

/// What the library does when asked directly, with blocking calls.
#[cfg(feature = "mpi")]
fn run_native() -> Result<()> {
    use mpi::collective::SystemOperation;
    use mpi::traits::{Communicator as _, CommunicatorCollectives};

    let (_universe, _) = mpi::initialize_with_threading(mpi::Threading::Serialized)
        .ok_or_else(|| Error::Setup("MPI does not start".into()))?;
    let world = mpi::topology::SimpleCommunicator::world();
    let ours = haloscope_comm::Mpi::attach()?;
    let other = world.process_at_rank(1 - world.rank());
    for (bytes, calls, batches) in SIZES {
        let values = vec![0.0_f32; bytes / 4];
        let mut received = values.clone();
        report(&ours, "all_reduce", bytes, calls, batches, || {
            world.all_reduce_into(&values[..], &mut received[..], SystemOperation::sum());
            Ok(())
        })?;
        report(&ours, "exchange", bytes, calls, batches, || {
            mpi::point_to_point::send_receive_into(&values[..], &other, &mut received[..], &other);
            Ok(())
        })?;
    }
    Ok(())
}

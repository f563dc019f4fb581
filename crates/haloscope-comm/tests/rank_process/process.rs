//! One rank of the MPI tests; `tests/mpi.rs` starts several with mpirun.
//!
//! `rank_process facts FRAME_BYTES` checks the suite, `rank_process endurance` makes many calls, `rank_process patience` waits
//! for rank 0, `rank_process attached` and `rank_process joined` come and go in one MPI, and `rank_process FAULT` lets the last rank fail in some way while the others wait for it, and prints
//! what they get.

#[path = "../resident/mod.rs"]
mod resident;
#[path = "../suite/mod.rs"]
mod suite;

use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Duration;

use haloscope_comm::{Collectives, Communicator, Mpi, Reduction, Result};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let argument = |place: usize| arguments.get(place).map_or("", String::as_str);
    let rank = match argument(1) {
        "facts" => Mpi::initialize_with_frames(argument(2).parse().expect("a number of bytes")),
        "attached" => return attached(),
        "joined" => return joined(),
        _ => Mpi::initialize(),
    };
    let comm = rank.expect("MPI starts");
    comm.set_deadline(Duration::from_secs(30));
    let outcome = match argument(1) {
        "facts" => facts(&comm),
        "endurance" => endurance(&comm),
        "patience" => patience(&comm),
        "large" => {
            suite::large_data_arrives_whole(&comm);
            Ok(())
        }
        fault => {
            comm.set_deadline(Duration::from_secs(2));
            let outcome = fail_on_purpose(&comm, fault);
            if let Err(error) = &outcome {
                // In one write, so that the lines of several ranks do not mix.
                let line = format!("[{}] got: {error}\n", comm.rank());
                std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            }
            outcome
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn facts(comm: &Mpi) -> Result<()> {
    for fact in suite::FACTS {
        (fact.check)(comm);
        comm.barrier()?;
    }
    if comm.rank() == 0 {
        println!("{} facts hold on {} ranks", suite::FACTS.len(), comm.size());
    }
    Ok(())
}

fn endurance(comm: &Mpi) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(comm.rank() as u64);
    let mut early = 0;
    let calls = 100_000;
    for call in 0..calls {
        suite::arrive_at_a_random_time(&mut rng);
        suite::small_call(comm, call)?;
        if call == calls / 10 {
            early = resident::kilobytes().expect("the system tells");
        }
    }
    let late = resident::kilobytes().expect("the system tells");
    assert!(late <= early + 1_024, "{early} kB after a tenth of the calls, {late} kB at the end");
    if comm.rank() == 0 {
        println!("{calls} calls, {early} kB early, {late} kB late");
    }
    Ok(())
}

/// Rank 0 works for longer than the deadline.
fn patience(comm: &Mpi) -> Result<()> {
    let deadline = Duration::from_secs(2);
    comm.set_deadline(deadline);
    let slept = comm.on_root(|| std::thread::sleep(2 * deadline))?;
    assert_eq!(slept.is_some(), comm.rank() == 0);
    comm.barrier()?;
    if comm.rank() == 0 {
        println!("{} ranks have waited", comm.size());
    }
    Ok(())
}

/// The last rank does what `fault` says; the others wait for it.
fn fail_on_purpose(comm: &Mpi, fault: &str) -> Result<()> {
    comm.barrier()?;
    let mut sum = vec![1.0_f32; 100_000];
    if comm.rank() + 1 < comm.size() {
        comm.all_reduce(Reduction::Sum, &mut sum)?;
        return comm.barrier();
    }
    match fault {
        "panic" => panic!("on purpose"),
        "return" => return Ok(()),
        // Longer than any test waits.
        "stall" => std::thread::sleep(Duration::from_mins(10)),
        "kill" => signal("KILL"),
        "stop" => signal("STOP"),
        "exit" => std::process::exit(0),
        "abort" => return Err(comm.abort("the disk is full")),
        "mismatch" => return comm.all_reduce(Reduction::Max, &mut sum[1..]),
        other => unreachable!("unknown fault {other}"),
    }
    Ok(())
}

/// Sends a signal to this process, and waits for it.
fn signal(name: &str) {
    let id = std::process::id().to_string();
    Command::new("kill").args(["-s", name, &id]).status().expect("kill runs");
    std::thread::sleep(Duration::from_mins(10));
}

/// MPI belongs to the program: ours comes and goes within.
fn attached() -> ExitCode {
    let error = Mpi::attach().expect_err("not initialised yet").to_string();
    assert!(error.contains("Mpi::initialize"), "{error}");
    let universe = mpi::initialize_with_threading(mpi::Threading::Multiple).expect("MPI starts");
    let error = Mpi::initialize().expect_err("initialised already").to_string();
    assert!(error.contains("Mpi::attach"), "{error}");
    for _ in 0..3 {
        Mpi::attach().expect("MPI is initialised").barrier().expect("all ranks take part");
    }
    drop(universe);
    let error = Mpi::initialize().expect_err("finalised").to_string();
    assert!(error.contains("one job only"), "{error}");
    println!("attached and left");
    ExitCode::SUCCESS
}

/// Ranks that come and go in an MPI that is there until the process exits, which finalises it.
fn joined() -> ExitCode {
    Mpi::initialize_for_process().expect("MPI starts");
    Mpi::initialize_for_process().expect("nothing is left to do");
    for _ in 0..3 {
        let first = Mpi::join().expect("MPI is initialised");
        let second = Mpi::join().expect("this process is a rank already");
        // Calls on the two need not be in one order.
        let mut sums = [[first.rank() as u64], [2 * first.rank() as u64]];
        let [one, two] = &mut sums;
        std::thread::scope(|scope| {
            scope.spawn(|| first.all_reduce(Reduction::Sum, one).expect("all ranks take part"));
            second.all_reduce(Reduction::Sum, two).expect("all ranks take part");
        });
        let total = (first.size() * (first.size() - 1) / 2) as u64;
        assert_eq!(sums, [[total], [2 * total]]);
        first.leave();
        second.barrier().expect("this one has not left");
        second.leave();
        for left in [&first, &second] {
            let error = left.barrier().expect_err("it has left").to_string();
            assert!(error.contains("has left the job"), "{error}");
        }
        // Handles that outlive it do not matter to a new one.
        Mpi::join().expect("MPI is initialised").barrier().expect("all ranks take part");
    }
    halves();
    println!("joined and left");
    ExitCode::SUCCESS
}

/// A communicator of the program's own, beside that of all ranks.
fn halves() {
    use mpi::raw::AsRaw as _;
    use mpi::topology::{Color, Communicator as _, SimpleCommunicator};
    let world = SimpleCommunicator::world();
    let half = world.split_by_color(Color::with_value(world.rank() % 2)).expect("a color is given");
    let handle = half.as_raw();
    // SAFETY: the communicator lives until the end of this function.
    let ours = unsafe { Mpi::attach_to((&raw const handle).cast()) }.expect("MPI is initialised");
    assert_eq!((ours.rank(), ours.size()), (half.rank() as usize, half.size() as usize));
    let all = Mpi::join().expect("threads may call this MPI");
    assert_eq!(all.size(), world.size() as usize);
    let mut sums = [[1_u64], [1]];
    ours.all_reduce(Reduction::Sum, &mut sums[0]).expect("all of the half take part");
    all.all_reduce(Reduction::Sum, &mut sums[1]).expect("all ranks take part");
    assert_eq!(sums, [[half.size() as u64], [world.size() as u64]]);
    let handle = world.as_raw();
    // SAFETY: the world is always there.
    let same = unsafe { Mpi::attach_to((&raw const handle).cast()) }.expect("MPI is initialised");
    same.barrier().expect("all ranks take part");
}

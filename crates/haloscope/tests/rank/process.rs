//! One rank of the MPI tests: prints the facts of `suite` that it found, one per line, on rank 0. With `panic` or `stall`, the
//! last rank ends like that between two layers of an exact denoiser, and the others say what they got.

#[path = "../mortal/mod.rs"]
mod mortal;
#[path = "../suite/mod.rs"]
mod suite;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use haloscope::denoise::Denoiser;
use haloscope::distribute::distribute_with;
use haloscope::tiling::{Strategy, Tiling};
use haloscope::{Array, Error};
use haloscope_comm::Context;

fn main() -> Result<ExitCode, Error> {
    let ctx = Context::detect()?;
    if let Some(fault) = std::env::args().nth(1) {
        ctx.comm().set_deadline(Duration::from_secs(5));
        let Err(error) = die(&ctx, &fault) else { return Ok(ExitCode::SUCCESS) };
        // In one write, so that the lines of several ranks do not mix.
        let line = format!("[{}] got: {error}\n", ctx.rank());
        std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
        return Ok(ExitCode::FAILURE);
    }
    let facts = suite::facts(&ctx)?;
    if ctx.is_root() {
        for (name, bits) in facts {
            println!("{bits:016x} {name}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Denoises on all ranks, the last of which ends in its eighth round.
fn die(ctx: &Context, fault: &str) -> Result<(), Error> {
    let (network, noisy, level) =
        (mortal::network()?, Array::from_elem(vec![1, 1, 300, 40], 0.5), 0.1.into());
    let denoiser = distribute_with(network.clone(), ctx, Tiling::new(Strategy::Exact))?;
    if ctx.rank() + 1 < ctx.size() {
        return denoiser.denoise(&noisy, &level).map(drop);
    }
    let end = || match fault {
        "panic" => panic!("on purpose"),
        // Longer than any test waits.
        _ => std::thread::sleep(Duration::from_mins(10)),
    };
    mortal::denoise_and_die(ctx, &network, &noisy, &level, (7, &end))
}

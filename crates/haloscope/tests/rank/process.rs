//! One rank of the MPI tests: prints the facts of `suite` that it found, one per line, on rank 0.

#[path = "../suite/mod.rs"]
mod suite;

use haloscope::Error;
use haloscope_comm::Context;

fn main() -> Result<(), Error> {
    let ctx = Context::detect()?;
    let facts = suite::facts(&ctx)?;
    if ctx.is_root() {
        for (name, bits) in facts {
            println!("{bits:016x} {name}");
        }
    }
    Ok(())
}

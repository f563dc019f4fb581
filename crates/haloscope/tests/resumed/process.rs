//! The job as a process, for tests that kill it: `checkpoint_job FOLDER ITERATIONS RANKS LAYOUT`, where the layout is
//! `replicated` or `sharded`. Prints its process id, and at the end the digest of the result. Ranks are threads, or processes if a launcher started them.

#[path = "mod.rs"]
mod resumed;

use haloscope::Error;
use haloscope::solve::{Checkpoints, Every};
use haloscope_comm::Context;
use resumed::Place;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().unwrap_or_default();
    let folder = next();
    let mut number = |what| {
        let text = next();
        text.parse().map_err(|_| Error::argument(what, format!("`{text}` is no number")))
    };
    let (iterations, ranks) = (number("iterations")?, number("ranks")?);
    let place = match &next()[..] {
        "replicated" => Place::Replicated,
        "sharded" => Place::Sharded,
        other => return Err(Error::argument("layout", format!("`{other}` is none"))),
    };
    println!("process {}", std::process::id());
    let body = move |ctx: &Context| {
        let every = Every { iterations: Some(1), time: None };
        let mut checkpoints = Checkpoints::new(&folder, every)?;
        let state = resumed::run(ctx, &mut checkpoints, iterations, place)?;
        let digest = resumed::digest(&state)?;
        if ctx.is_root() {
            println!("digest {digest}");
        }
        Ok(())
    };
    let ctx = Context::detect()?;
    if ctx.launch().is_some() {
        return body(&ctx);
    }
    Context::threads(ranks, body).map(|_| ())
}

//! The `haloscope` program: all of it is in the library beside it, which is compiled while the libraries that it
//! uses still are. A program would wait for them.

use std::process::ExitCode;

/// Arrays of jobs with a scratch folder are in its files.
#[global_allocator]
static ALLOCATOR: haloscope_scratch::Allocator = haloscope_scratch::Allocator;

fn main() -> ExitCode {
    haloscope_cli::main()
}

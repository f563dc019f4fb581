//! The `haloscope` program: all of it is in the library beside it, which is compiled while the libraries that it
//! uses still are. A program would wait for them.

use std::process::ExitCode;

fn main() -> ExitCode {
    haloscope_cli::main()
}

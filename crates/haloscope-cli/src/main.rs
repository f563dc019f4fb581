//! The `haloscope` command. Each subcommand is a file; this one reads the arguments and turns
//! errors into one line and an exit code: 2 for misuse, 1 for failure.

mod bench;
mod dashboard;
mod demo;
mod denoise;
mod info;
mod logger;
mod machine;
mod model;
mod ranks;
mod report;
mod submit;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Reconstructs images and volumes that are too large or too slow for one device.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Say more: -v for information, -vv for details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Measure how this machine or cluster does, and predict larger ones
    Bench(Box<bench::Arguments>),
    /// Show the tables of studies as a page for a browser
    Dashboard(dashboard::Arguments),
    /// Reconstruct an image from measurements that are made for the purpose
    Demo(demo::Arguments),
    /// Denoise an image with a trained network
    Denoise(denoise::Arguments),
    /// Show what this build and this machine can do
    Info(info::Arguments),
    /// Run a reconstruction on a cluster with Slurm
    Submit(submit::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logger::install(arguments.verbose);
    let result = match arguments.command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Dashboard(arguments) => dashboard::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Denoise(arguments) => denoise::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Submit(arguments) => submit::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// One line, in one write, so that the lines of several processes do not mix.
fn report(error: &anyhow::Error) -> ExitCode {
    let line = format!("haloscope: {error:#}\n");
    // If standard error is closed, the exit code still tells.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let is_misuse =
        error.downcast_ref::<haloscope_comm::Error>().is_some_and(|error| !error.is_final())
            || matches!(error.downcast_ref(), Some(haloscope_study::Error::Argument { .. }));
    ExitCode::from(if is_misuse { 2 } else { 1 })
}

/// Prints to standard output; a reader that has gone away (`| head`) is not a failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

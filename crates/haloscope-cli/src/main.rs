//! The `haloscope` command. Each subcommand is a file; this one reads the arguments and turns
//! errors into one line and an exit code: 2 for misuse, 1 for failure.

mod demo;
mod denoise;
mod info;
mod log;
mod logger;
mod machine;
mod model;
mod plan;
mod ranks;
mod records;
mod report;
mod trace;

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

    #[command(flatten)]
    log: log::LogArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Reconstruct an image from measurements that are made for the purpose
    Demo(demo::Arguments),
    /// Denoise an image with a trained network
    Denoise(denoise::Arguments),
    /// Show what this build and this machine can do
    Info(info::Arguments),
    /// Say what a reconstruction will take on each rank, and which tiles suit it
    Plan(Box<plan::Arguments>),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.log.install();
    logger::install(arguments.verbose);
    let result = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Denoise(arguments) => denoise::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// One line, and the exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    let is_misuse =
        error.downcast_ref::<haloscope_comm::Error>().is_some_and(|error| !error.is_final());
    let code = if is_misuse { 2 } else { 1 };
    log::error(&format!("{error:#}"), code);
    ExitCode::from(code)
}

/// Prints to standard output; a reader that has gone away (`| head`) is not a failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

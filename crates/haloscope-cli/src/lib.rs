//! The `haloscope` command. Each subcommand is a file; this one reads the arguments and turns
//! errors into one line and an exit code: 2 for misuse, 1 for failure.

mod bench;
mod check;
mod dashboard;
mod demo;
mod denoise;
mod evaluate;
mod exit;
mod export;
mod info;
mod init;
mod interrupt;
mod invocation;
mod log;
mod logger;
mod onnx;
mod plan;
mod problem;
mod ranks;
mod reconstruct;
mod scratch;
mod submit;
mod threads;
mod trace;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use exit::{Agreed, Code, Misuse};

/// Reconstructs images and volumes that are too large or too slow for one device.
#[derive(Parser)]
#[command(name = "haloscope", version, arg_required_else_help = true, after_help = exit::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Print more: -v prints stages, tiles, step sizes and each iteration; -vv also prints details of each rank
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(flatten)]
    log: log::LogArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the performance of this machine or cluster, and predict that of larger ones
    Bench(Box<bench::Arguments>),
    /// Write the results of `bench` as a page for a browser
    Dashboard(dashboard::Arguments),
    /// Reconstruct an image from simulated measurements
    Demo(demo::Arguments),
    /// Reconstruct an image from the measurements and operators of a job file
    Reconstruct(reconstruct::Arguments),
    /// Write a commented job file to start from
    Init(init::Arguments),
    /// Look for mistakes in a job file and its data, and print the plan
    Check(check::Arguments),
    /// Denoise an image, stack or volume with a trained network
    Denoise(denoise::Arguments),
    /// Measure how well a network removes noise from clean images
    Evaluate(evaluate::Arguments),
    /// Write a network with its weights as an ONNX file
    Export(export::Arguments),
    /// Show the features of this build and this machine
    Info(info::Arguments),
    /// Predict the memory and work of each rank, and suggest tiles and ranks
    Plan(Box<plan::Arguments>),
    /// Run a reconstruction on a Slurm cluster
    Submit(submit::Arguments),
}

/// Runs the command that the arguments of the process name.
#[must_use]
pub fn main() -> ExitCode {
    run(std::env::args_os()).into()
}

/// Runs the command that these arguments name, the first being the program, and gives its exit code. Help and mistakes in the
/// arguments end the process.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> u8 {
    run_by(&[], arguments)
}

/// [`run`] in a program that is not the command: `program` are the words that start the command, as in `python -m haloscope`.
#[must_use]
pub fn run_by(program: &[String], arguments: impl IntoIterator<Item = impl Into<OsString>>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    invocation::note(program, &arguments);
    let arguments = Arguments::parse_from(arguments);
    arguments.log.install();
    logger::install(arguments.verbose);
    let result = match arguments.command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Dashboard(arguments) => dashboard::run(&arguments).map(|()| Code::Success),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Reconstruct(arguments) => reconstruct::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Denoise(arguments) => denoise::run(&arguments),
        Command::Evaluate(arguments) => evaluate::run(&arguments).map(|()| Code::Success),
        Command::Export(arguments) => export::run(&arguments).map(|()| Code::Success),
        Command::Info(arguments) => info::run(&arguments).map(|()| Code::Success),
        Command::Plan(arguments) => plan::run(&arguments).map(|()| Code::Success),
        Command::Submit(arguments) => submit::run(&arguments),
    };
    match result {
        Ok(code) => code.number(),
        Err(error) => report(&error),
    }
}

/// One line, and the exit code.
fn report(error: &anyhow::Error) -> u8 {
    if let Some(Agreed { code, speaks: false, .. }) = error.downcast_ref() {
        return *code;
    }
    let is_misuse =
        error.downcast_ref::<haloscope_comm::Error>().is_some_and(|error| !error.is_final());
    let code = match error.downcast_ref() {
        Some(Agreed { code, .. }) => *code,
        None if is_misuse || error.is::<Misuse>() => 2,
        None => 1,
    };
    log::error(&format!("{error:#}"), code);
    code
}

/// Prints to standard output; a reader that has gone away (`| head`) is not a failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

//! `haloscope submit`: a reconstruction, or any other command of haloscope, as a job of a cluster with Slurm.
//!
//! It writes the script, submits it, and shows what the job prints until it has ended. Whoever stops looking leaves
//! the job running.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use haloscope_study::slurm::{
    Allocation, Campaign, Ending, Event, Grid, Launch, QueuedJob, Script, State, Watch, fill_in,
    follow,
};

use crate::exit::{Code, Misuse, Preparation};
use crate::interrupt::{self, Signal};
use crate::invocation;
use haloscope_job::words::count;

/// The options of `haloscope submit`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Job file of a reconstruction; if there is a checkpoint, the cluster resumes from it
    #[arg(
        value_name = "JOB.toml",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    job: Option<PathBuf>,

    #[command(flatten)]
    allocation: AllocationArguments,

    /// File of allocations, with one job for each; its lists of nodes, tasks and devices are combined element by element
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["AllocationArguments", "job"])]
    grid: Option<PathBuf>,

    /// Name of the job
    #[arg(long, default_value = "haloscope")]
    name: String,

    /// Folder for scripts, output and collected rows
    #[arg(long, value_name = "DIR", default_value = "haloscope-slurm")]
    out: PathBuf,

    /// Print the scripts and submit nothing
    #[arg(long)]
    dry_run: bool,

    /// Submit without waiting for the job to end
    #[arg(long)]
    no_wait: bool,

    /// A haloscope command instead of a job file: `-- demo --size 512`. In it, {out} stands for the job's own folder, and
    /// {ranks}, {nodes}, {tasks} and {cpus} for numbers. srun runs the command once for each rank, except `bench`, which
    /// starts its own ranks
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(clap::Args)]
#[group(id = "AllocationArguments", multiple = true)]
struct AllocationArguments {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,

    /// Number of ranks on each node
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    tasks_per_node: u32,

    /// Number of cores of each rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus_per_task: Option<u32>,

    /// Devices of each node, e.g. gpu:4
    #[arg(long)]
    gres: Option<String>,

    /// Time limit, e.g. 01:30:00
    #[arg(long)]
    time: Option<String>,

    /// Partition of the cluster
    #[arg(long)]
    partition: Option<String>,

    /// Account to charge
    #[arg(long)]
    account: Option<String>,

    /// Another option of sbatch, e.g. --sbatch=--constraint=a100; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,

    /// An option of srun, e.g. --srun=--mpi=pmi2; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    srun: Vec<String>,

    /// A shell line to run before the job, e.g. --setup='module load mpich'; may be given several times
    #[arg(long, value_name = "LINE")]
    setup: Vec<String>,
}

/// How often the queue is asked.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes, submits, follows and collects. An interruption is no success: what comes after in a script may need the job.
pub(crate) fn run(arguments: &Arguments) -> Result<Code> {
    let directory = std::env::current_dir().context("the folder that this was started in")?;
    let command = arguments.command_line()?;
    arguments.check()?;
    let Some(file) = &arguments.grid else { return run_one(arguments, &directory, &command) };
    let grid = Grid::read(file).or_misuse()?;
    let (name, launch) = (&arguments.name, arguments.launch());
    let campaign = Campaign::new(name, &grid, &directory, &arguments.out, launch, &command);
    let campaign = campaign.or_misuse()?;
    run_campaign(&campaign, arguments.until())
}

/// How far to go with jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Their scripts are printed.
    Written,
    /// They are in the queue.
    Submitted,
    /// They have ended, and what they left is collected.
    Collected,
}

impl Arguments {
    /// What each rank runs: this program, with the job file or the command.
    fn command_line(&self) -> Result<Vec<String>> {
        let mut words = invocation::program()?;
        match &self.job {
            Some(job) => {
                let found = std::fs::metadata(job).with_context(|| job.display().to_string());
                found.or_misuse()?;
                // What the queue would take hours to find out.
                haloscope_job::Job::from_file(job).or_misuse()?;
                words.extend(["reconstruct".into(), job.display().to_string(), "--resume".into()]);
            }
            None => words.extend(self.command.iter().cloned()),
        }
        Ok(words)
    }

    /// Refuses what cannot run on a cluster.
    fn check(&self) -> Result<()> {
        let AllocationArguments { nodes, tasks_per_node, time, .. } = &self.allocation;
        let is_time = |text: &String| {
            let is_part = |c: char| c.is_ascii_digit() || matches!(c, ':' | '-');
            text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(is_part)
        };
        if let Some(time) = time.as_ref().filter(|time| !is_time(time)) {
            let reason = format!(
                "--time: {time} is given; minutes, or a time such as 01:30:00 or 2-00:00:00, is expected"
            );
            return Err(Misuse::error(reason));
        }
        let ranks = nodes * tasks_per_node;
        let runs = !self.dry_run && self.grid.is_none() && self.launch() == Launch::Ranks;
        if ranks > 1 && runs && !cfg!(feature = "mpi") {
            let reason = format!(
                "this build has no MPI and refuses to run as {ranks} ranks; rebuild with `cargo build --release --features mpi`"
            );
            return Err(Misuse::error(reason));
        }
        Ok(())
    }

    fn until(&self) -> Until {
        match (self.dry_run, self.no_wait) {
            (true, _) => Until::Written,
            (false, true) => Until::Submitted,
            (false, false) => Until::Collected,
        }
    }

    fn launch(&self) -> Launch {
        if self.command.first().is_some_and(|word| word == "bench") {
            Launch::Once
        } else {
            Launch::Ranks
        }
    }
}

impl AllocationArguments {
    fn allocation(&self) -> Allocation {
        Allocation {
            nodes: self.nodes,
            tasks_per_node: self.tasks_per_node,
            cpus_per_task: self.cpus_per_task,
            gres: self.gres.clone(),
            time: self.time.clone(),
            partition: self.partition.clone(),
            account: self.account.clone(),
            options: self.sbatch.clone(),
            srun: self.srun.clone(),
            setup: self.setup.clone(),
        }
    }
}

fn run_one(arguments: &Arguments, directory: &Path, command: &[String]) -> Result<Code> {
    let allocation = arguments.allocation.allocation();
    let results = directory.join(&arguments.out).join("results");
    let command = fill_in(command, &allocation, &results);
    let launch = arguments.launch();
    let script = Script::new(&arguments.name, &allocation, directory, launch, &command);
    let script = script.or_misuse()?;
    if arguments.until() == Until::Written {
        crate::print(script.text())?;
        return Ok(Code::Success);
    }
    let job = QueuedJob::submit(&script, &arguments.out)?;
    note(&format!("job {} is submitted; its output goes to {}", job.id, job.output().display()));
    if arguments.until() == Until::Submitted {
        return Ok(Code::Success);
    }
    match watch(std::slice::from_ref(&job), true)? {
        Watched::Ended(endings) => judge(&[job], &endings),
        Watched::Left(signal) => Ok(Code::Interrupted(signal)),
    }
}

/// Runs the jobs of a grid as far as is asked for.
pub(crate) fn run_campaign(campaign: &Campaign, until: Until) -> Result<Code> {
    if until == Until::Written {
        let texts: Vec<&str> = campaign.scripts().map(Script::text).collect();
        crate::print(&texts.join("\n"))?;
        return Ok(Code::Success);
    }
    let jobs = campaign.submit()?;
    for job in &jobs {
        note(&format!("job {} ({}) is submitted", job.id, job.name));
    }
    if until == Until::Submitted {
        return Ok(Code::Success);
    }
    let endings = match watch(&jobs, false)? {
        Watched::Ended(endings) => endings,
        Watched::Left(signal) => return Ok(Code::Interrupted(signal)),
    };
    let rows = campaign.collect(&jobs, &endings)?;
    let folder = campaign.folder().display();
    let (ended, rows) = (count(jobs.len(), "job"), count(rows, "row"));
    crate::print(&format!("{ended}, {rows}\nwritten   {folder}\n"))?;
    judge(&jobs, &endings)
}

/// Why nobody looks at jobs any more.
enum Watched {
    /// They have ended.
    Ended(Vec<Ending>),
    /// The user has enough of it; they go on.
    Left(Signal),
}

/// Shows what happens.
fn watch(jobs: &[QueuedJob], shows_output: bool) -> Result<Watched> {
    interrupt::watch()?;
    let watch = Watch { pause: PAUSE, is_interrupted: || interrupt::requested().is_some() };
    let endings = follow(jobs, watch, &mut |job, event| match event {
        Event::Output(text) if shows_output => {
            // If nobody reads it, it is still in the file.
            let _ = std::io::stdout().write_all(text);
            let _ = std::io::stdout().flush();
        }
        Event::Output(_) => (),
        Event::State(State::Waiting(reason)) if reason.is_empty() || reason == "None" => {
            note(&format!("job {} waits", job.id));
        }
        Event::State(State::Waiting(reason)) => note(&format!("job {} waits: {reason}", job.id)),
        Event::State(State::Running) => note(&format!("job {} runs", job.id)),
        Event::State(State::Ended(ending)) => {
            note(&format!("job {} has ended: {}", job.id, ending.word));
        }
    })?;
    let Some(endings) = endings else {
        for job in jobs {
            note(&format!(
                "job {} goes on; `{}` ends it, and its output is in {}",
                job.id,
                job.cancel_command(),
                job.output().display()
            ));
        }
        let signal = interrupt::requested().context("jobs were left without a signal")?;
        return Ok(Watched::Left(signal));
    };
    Ok(Watched::Ended(endings))
}

/// An error that names the jobs that failed.
fn judge(jobs: &[QueuedJob], endings: &[Ending]) -> Result<Code> {
    let failed: Vec<String> = jobs
        .iter()
        .zip(endings)
        .filter(|(_, ending)| !ending.is_success())
        .map(|(job, ending)| {
            let code = ending.code.map_or_else(String::new, |code| format!(" with code {code}"));
            format!("job {} ended as {}{code}: see {}", job.id, ending.word, job.output().display())
        })
        .collect();
    if failed.is_empty() { Ok(Code::Success) } else { bail!("{}", failed.join("; ")) }
}

/// A line about the job, apart from what the job itself prints.
fn note(text: &str) {
    crate::log::message(log::Level::Info, text);
}

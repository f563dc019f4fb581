//! Batch scripts: what Slurm is asked for, and what runs there, as text that can be read before it is submitted.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::error::{Error, Result};

/// The name of a job's output in its folder.
pub const OUTPUT: &str = "output.txt";

/// The file in a job's folder that has the exit code once the job has ended. Not every cluster keeps accounts.
pub const STATUS: &str = "status";

/// What a job gets of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The number of nodes.
    pub nodes: u32,
    /// The ranks on each of them.
    pub tasks_per_node: u32,
    /// The cores of each rank.
    pub cpus_per_task: Option<u32>,
    /// Devices of each node, as Slurm names them: `gpu:4`.
    pub gres: Option<String>,
    /// The time limit: `01:30:00`.
    pub time: Option<String>,
    /// The partition.
    pub partition: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// Other options of `sbatch`: `--constraint=a100`.
    pub options: Vec<String>,
    /// Options of `srun`: `--mpi=pmi2`.
    pub srun: Vec<String>,
    /// Lines of shell that run before: `module load mpich`.
    pub setup: Vec<String>,
}

/// Who starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// `srun`, which runs the command once for each of them.
    Ranks,
    /// The command itself, which runs once, on the first node.
    Once,
}

/// A batch script.
///
/// ```
/// use haloscope_study::slurm::{Allocation, Launch, Script};
///
/// let two = Allocation { nodes: 2, tasks_per_node: 4, ..Allocation::default() };
/// let command = ["haloscope", "info"];
/// let script = Script::new("denoise", &two, "/home/ada", Launch::Ranks, &command)?;
/// assert!(script.text().contains("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"));
/// assert!(script.text().contains("srun --ntasks-per-node=4 haloscope info\n"));
/// # Ok::<(), haloscope_study::slurm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    name: String,
    text: String,
}

impl Script {
    /// A script that runs `command` in the folder `directory`.
    pub fn new(
        name: &str,
        allocation: &Allocation,
        directory: impl AsRef<Path>,
        launch: Launch,
        command: &[impl AsRef<str>],
    ) -> Result<Self> {
        allocation.check()?;
        check_word("the job's name", name)?;
        if command.is_empty() {
            return Err(Error::argument("the command", "is empty; what should the job run?"));
        }
        let mut text = String::from("#!/bin/bash\n");
        for option in allocation.directives(name) {
            let _ = writeln!(text, "#SBATCH {option}");
        }
        let directory = quote(&directory.as_ref().to_string_lossy());
        let _ = writeln!(text, "\nrm -f \"$SLURM_SUBMIT_DIR/{STATUS}\"");
        let _ = writeln!(text, "cd {directory} || exit 1");
        for line in &allocation.setup {
            let _ = writeln!(text, "{line}");
        }
        let mut words = match launch {
            Launch::Ranks => allocation.srun_words(),
            Launch::Once => Vec::new(),
        };
        words.extend(command.iter().map(|word| quote(word.as_ref())));
        let _ = writeln!(text, "{}", words.join(" "));
        // Written last and moved into place, so that whoever sees it sees all of it.
        let _ = writeln!(text, "code=$?");
        let _ = writeln!(text, "echo \"$code\" > \"$SLURM_SUBMIT_DIR/{STATUS}.part\"");
        let _ =
            writeln!(text, "mv \"$SLURM_SUBMIT_DIR/{STATUS}.part\" \"$SLURM_SUBMIT_DIR/{STATUS}\"");
        let _ = writeln!(text, "exit \"$code\"");
        Ok(Self { name: name.into(), text })
    }

    /// The job's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `sbatch` gets.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the script into a folder, which is made if it is not there.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
        let file = folder.join("job.sh");
        std::fs::write(&file, &self.text).map_err(|error| Error::file(&file, error))?;
        Ok(file)
    }
}

impl Allocation {
    /// The ranks of the job.
    #[must_use]
    pub fn ranks(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.tasks_per_node)
    }

    fn check(&self) -> Result<()> {
        for (what, number) in [
            ("nodes", Some(self.nodes)),
            ("tasks-per-node", Some(self.tasks_per_node)),
            ("cpus-per-task", self.cpus_per_task),
        ] {
            if number == Some(0) {
                return Err(Error::argument(what, "0 was given; at least 1 is needed"));
            }
        }
        for (what, text) in [
            ("gres", &self.gres),
            ("time", &self.time),
            ("partition", &self.partition),
            ("account", &self.account),
        ] {
            text.as_deref().map_or(Ok(()), |text| check_word(what, text))?;
        }
        for (what, options) in [("sbatch", &self.options), ("srun", &self.srun)] {
            for option in options {
                check_word(&format!("an option of {what}"), option)?;
                if !option.starts_with('-') {
                    let reason = format!("{option:?} does not begin with a dash: --name=value");
                    return Err(Error::argument(format!("an option of {what}"), reason));
                }
            }
        }
        match self.setup.iter().find(|line| line.contains(['\n', '\r', '\0'])) {
            Some(line) => {
                Err(Error::argument("setup", format!("{line:?} is more than one line of shell")))
            }
            None => Ok(()),
        }
    }

    /// What the script asks `sbatch` for. The output is named in the folder that the job is submitted from.
    fn directives(&self, name: &str) -> Vec<String> {
        let mut lines = vec![
            format!("--job-name={name}"),
            format!("--output={OUTPUT}"),
            format!("--nodes={}", self.nodes),
            format!("--ntasks-per-node={}", self.tasks_per_node),
        ];
        lines.extend(self.cpus_per_task.map(|cpus| format!("--cpus-per-task={cpus}")));
        for (option, value) in [
            ("gres", &self.gres),
            ("time", &self.time),
            ("partition", &self.partition),
            ("account", &self.account),
        ] {
            lines.extend(value.as_ref().map(|value| format!("--{option}={value}")));
        }
        lines.extend(self.options.iter().cloned());
        lines
    }

    /// Slurm 22.05 and later do not pass the cores of a task on from the script to `srun`.
    fn srun_words(&self) -> Vec<String> {
        let mut options = vec!["srun".into(), format!("--ntasks-per-node={}", self.tasks_per_node)];
        options.extend(self.cpus_per_task.map(|cpus| format!("--cpus-per-task={cpus}")));
        options.extend(self.srun.iter().map(|option| quote(option)));
        options
    }
}

/// What stands in a line of options must not end it.
fn check_word(what: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
        let reason = format!("{text:?} is not a word without spaces");
        return Err(Error::argument(what, reason));
    }
    Ok(())
}

/// A word as the shell reads it back.
#[must_use]
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Allocation {
        Allocation { nodes: 1, tasks_per_node: 2, ..Allocation::default() }
    }

    fn script(allocation: &Allocation, command: &[&str]) -> Result<Script> {
        Script::new("job", allocation, "/home/ada", Launch::Ranks, command)
    }

    #[test]
    fn all_that_is_asked_for_is_in_the_script_and_nothing_else() {
        let allocation = Allocation {
            cpus_per_task: Some(8),
            gres: Some("gpu:4".into()),
            time: Some("01:00:00".into()),
            partition: Some("long".into()),
            account: Some("sky".into()),
            options: vec!["--constraint=a100".into()],
            srun: vec!["--mpi=pmi2".into()],
            setup: vec!["module load mpich".into()],
            ..one()
        };
        let text = script(&allocation, &["haloscope", "info"]).expect("a script").text;
        for line in [
            "#SBATCH --gres=gpu:4",
            "#SBATCH --time=01:00:00",
            "#SBATCH --partition=long",
            "#SBATCH --account=sky",
            "#SBATCH --constraint=a100",
            "#SBATCH --cpus-per-task=8",
            "module load mpich",
            "srun --ntasks-per-node=2 --cpus-per-task=8 --mpi=pmi2 haloscope info",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let plain = script(&one(), &["haloscope"]).expect("a script").text;
        assert!(!plain.contains("--gres") && !plain.contains("--cpus"), "{plain}");
    }

    #[test]
    fn a_command_that_starts_its_ranks_itself_runs_once() {
        let command = ["haloscope", "bench", "scaling"];
        let script = Script::new("job", &one(), "/home/ada", Launch::Once, &command);
        let text = script.expect("a script").text;
        assert!(text.contains("\nhaloscope bench scaling\n") && !text.contains("srun"), "{text}");
    }

    #[test]
    fn words_reach_the_command_as_they_were_given() {
        let words = ["it's", "a b", "$HOME", "`id`", "", "*", "back\\slash", "two\nlines"];
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let script = format!("printf '%s\\0' {}", quoted.join(" "));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh");
        let read = String::from_utf8(output.stdout).expect("text");
        let read: Vec<&str> = read.strip_suffix('\0').expect("an end").split('\0').collect();
        assert_eq!(read, words);
    }

    #[test]
    fn what_would_end_a_line_of_options_is_refused() {
        let no_nodes = Allocation { nodes: 0, ..one() };
        let two_lines = Allocation { gres: Some("gpu:1\nrm -rf".into()), ..one() };
        let bare = Allocation { options: vec!["exclusive".into()], ..one() };
        let setup = Allocation { setup: vec!["a\nb".into()], ..one() };
        for (allocation, words) in [
            (no_nodes, "nodes: 0"),
            (two_lines, "gres: "),
            (bare, "does not begin with a dash"),
            (setup, "setup: "),
        ] {
            let error = script(&allocation, &["haloscope"]).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(script(&one(), &[]).is_err(), "nothing to run");
    }
}

//! Job files, and the command on them, for the tests of this folder.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The command without the variables of a launcher that may have started the tests.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"] {
        command.env_remove(name);
    }
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn haloscope(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that succeeds prints as JSON.
pub(crate) fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

/// Waits for something that a process does, for a minute at the most.
pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < Duration::from_mins(1), "{what} does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder with a job in it.
pub(crate) struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).expect("it is written");
        self.name(name)
    }

    /// Runs `job.toml`.
    pub(crate) fn run(&self, job: &str, options: &[&str]) -> Output {
        let job = self.write("job.toml", job);
        haloscope(&[&["reconstruct", &job, "--json"], options].concat())
    }

    /// The digest of what `job.toml` finds.
    pub(crate) fn bits(&self, job: &str, options: &[&str]) -> String {
        let summary = json(&self.run(job, options));
        summary["bits"].as_str().expect("a digest").to_owned()
    }

    /// Begins to run `job.toml`.
    pub(crate) fn start(&self, job: &str, options: &[&str]) -> Child {
        let job = self.write("job.toml", job);
        let arguments = [&["reconstruct", &job, "--json"], options].concat();
        command(&arguments).spawn().expect("the command starts")
    }

    /// The checkpoints of `job.toml`, by name.
    pub(crate) fn checkpoints(&self) -> Vec<PathBuf> {
        list(&self.path("job-checkpoints"))
    }
}

/// The checkpoints in a folder, in their order.
pub(crate) fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "checkpoint"));
    paths.sort();
    paths
}

/// A template of `init` with some options, with the lines of some keys replaced, or removed. Edits of one key are of its lines
/// in their order.
pub(crate) fn edited(folder: &Folder, options: &[&str], edits: &[(&str, &str)]) -> String {
    let path = folder.name("template.toml");
    let output = haloscope(&[&["init"], options, &[&path, "--force"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let template = fs::read_to_string(&path).expect("a template");
    let mut job = String::new();
    let mut used = vec![false; edits.len()];
    for line in template.lines() {
        let key = line.split('=').next().unwrap_or_default().trim();
        let mut open = (0..edits.len()).filter(|edit| !used[*edit] && line.contains('='));
        match open.find(|edit| edits[*edit].0 == key) {
            Some(edit) => {
                used[edit] = true;
                job += edits[edit].1;
            }
            None => job += line,
        }
        job += "\n";
    }
    assert!(used.iter().all(|used| *used), "{edits:?} in\n{template}");
    job
}

/// Three blurred frames of a picture, with `more` sections.
pub(crate) fn deblurring(iterations: usize, more: &str) -> String {
    format!(
        r#"
[measurements]
phantom = "landscape"
size = [24, 20]
noise = {{ gaussian = 0.01 }}
seed = 3

[[operators]]
kind = "blur"
kernel = "gaussian"
sigma = [1.5, 0.7]
angle = [0, 60, 120]

[stop]
iterations = {iterations}

[output]
folder = "pictures"

{more}
"#
    )
}

pub(crate) const PRIMAL_DUAL: &str = r#"
[prior]
kind = "total-variation"
weight = 0.002

[solver]
method = "primal-dual"
"#;

/// A DnCNN of two convolutions for gray images that are all zero: its output is its input.
pub(crate) fn identity_network() -> Vec<u8> {
    let tensors = [
        ("model.0.weight", vec![4, 1, 3, 3]),
        ("model.0.bias", vec![4]),
        ("model.2.weight", vec![1, 4, 3, 3]),
        ("model.2.bias", vec![1]),
    ];
    let mut header = serde_json::Map::new();
    let mut end = 0_usize;
    for (name, shape) in tensors {
        let begin = end;
        end += 4 * shape.iter().product::<usize>();
        let entry = serde_json::json!({
            "dtype": "F32", "shape": shape, "data_offsets": [begin, end]
        });
        header.insert(name.into(), entry);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + end, 0);
    file
}

/// An array of numpy.
pub(crate) fn npy(shape: &[usize], value: impl FnMut(usize) -> f32) -> Vec<u8> {
    let sides: Vec<String> = shape.iter().map(|side| format!("{side},")).collect();
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", sides.concat());
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    let count: usize = shape.iter().product();
    bytes.extend((0..count).map(value).flat_map(f32::to_le_bytes));
    bytes
}

//! Checkpoints: states in files, to resume from after a crash, a kill, or the time limit of a queue.
//!
//! A [`State`] is the same on all ranks, or can be made so. The first rank writes it, and any number of ranks can resume
//! from it bit for bit. A checkpoint is complete or absent: it gets its final name once it is on the disk, it holds its
//! length and a checksum, and only then are older ones removed. A run removes only checkpoints that it resumed from or was
//! told to replace.
//!
//! A state that is spread over ranks is written in [`Parts`], beside a file that names them. Whoever resumes may do so on any
//! number of ranks, with either kind.

mod format;
mod lock;
mod outline;
mod parts;
mod shards;
mod spread;

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haloscope_comm::{Collectives, Context};

use super::state::State;
use crate::array::slice_mut;
use crate::digest::Digest;
use crate::distribute::agree_on_root;
use crate::error::{Error, Result};
use crate::image::Layout;
use crate::io::{PART, write_atomically_as};
use crate::region;

pub use lock::FolderLock;
pub use parts::{Part, Parts, Wanted};

use outline::Outline;

/// The prefix of a checkpoint's name until it is complete.
const PREFIX: &str = ".haloscope-checkpoint-";

/// An empty file beside checkpoints of a run that is over. It has no content, so that a full disk holds it.
const FINISHED: &str = "finished";

/// The identity of a run: a checkpoint of one job is not accepted by another.
///
/// ```
/// use haloscope::solve::JobId;
///
/// let job = JobId::new("deblurring", b"blur = 3").with_content(&[1, 2, 3]);
/// assert_ne!(job.hash, JobId::new("deblurring", b"blur = 4").with_content(&[1, 2, 3]).hash);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobId {
    /// A digest of everything that determines the result: parameters, measurements, weights.
    pub hash: u64,
    /// A name for messages, for example that of the job file.
    pub description: String,
    /// The versions of the programs. Other versions may give other bits; [`Found::notes`] reports it.
    pub versions: String,
}

impl JobId {
    /// A job identified by some text or bytes.
    #[must_use]
    pub fn new(description: impl Into<String>, content: &[u8]) -> Self {
        let versions = concat!("haloscope ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { hash: 0, description: description.into(), versions }.with_content(content)
    }

    /// The same job with additional input that determines its result, such as the measurements.
    #[must_use]
    pub fn with_content(mut self, bytes: &[u8]) -> Self {
        let mut digest = Digest::default();
        digest.add_bytes(&self.hash.to_le_bytes());
        digest.add_bytes(bytes);
        self.hash = digest.value();
        self
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:016x})", self.description, self.hash)
    }
}

/// How often a checkpoint is due: when either interval has passed since the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Every {
    /// This many iterations.
    pub iterations: Option<usize>,
    /// This much time, by the clock of the first rank.
    pub time: Option<Duration>,
}

/// A checkpoint to resume from.
#[derive(Clone, Debug)]
pub struct Found {
    /// The state, bit for bit.
    pub state: State,
    /// The file it was read from.
    pub path: PathBuf,
    /// Newer checkpoints that could not be used, and why.
    pub rejected: Vec<(PathBuf, String)>,
    /// The versions that wrote it, if they differ from the current ones.
    pub other_versions: Option<String>,
}

impl Found {
    /// Everything but the state.
    fn texts(&self) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let mut texts = vec![path(&self.path), self.other_versions.clone().unwrap_or_default()];
        texts.extend(self.rejected.iter().flat_map(|(file, why)| [path(file), why.clone()]));
        texts
    }

    fn from_texts(texts: &str, state: State) -> Self {
        let mut texts = texts.split('\0');
        let path = PathBuf::from(texts.next().unwrap_or_default());
        let other_versions = texts.next().filter(|text| !text.is_empty()).map(str::to_owned);
        let mut rejected = Vec::new();
        while let (Some(file), Some(why)) = (texts.next(), texts.next()) {
            rejected.push((PathBuf::from(file), why.to_owned()));
        }
        Self { state, path, rejected, other_versions }
    }

    /// Notes for the user, one line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let iteration = self.state.iteration;
        let mut notes: Vec<String> = self
            .rejected
            .iter()
            .map(|(path, reason)| {
                format!(
                    "{}: {reason}; resuming from the one before it, at iteration {iteration}",
                    path.display()
                )
            })
            .collect();
        notes.extend(self.other_versions.as_ref().map(|versions| {
            format!("{}: written by {versions}; the bits may differ", self.path.display())
        }));
        notes
    }
}

/// The checkpoints of a run, in a folder of their own.
///
/// ```
/// use haloscope::solve::{Checkpoints, Every, JobId, State};
/// use haloscope_comm::Context;
///
/// let (ctx, folder) = (Context::solo(), tempfile::tempdir()?);
/// let job = JobId::new("example", b"all that decides its result");
/// let every = Every { iterations: Some(10), time: None };
/// let mut checkpoints = Checkpoints::new(folder.path(), every)?;
/// assert!(checkpoints.load_latest(&ctx, &job)?.is_none());
///
/// // In the watcher of `solve`, on all ranks:
/// let mut state = State::new(ndarray::ArrayD::zeros(vec![1, 1, 4, 4]));
/// state.iteration = 10;
/// assert!(checkpoints.save_if_due(&ctx, &state, &job)?);
///
/// let found = checkpoints.load_latest(&ctx, &job)?.expect("it is there");
/// assert_eq!(found.state, state);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    every: Every,
    keep: usize,
    most_bytes: u64,
    last_iteration: usize,
    last_time: Instant,
    /// Files that the next checkpoint replaces, whatever their iteration.
    replaced: Vec<PathBuf>,
}

impl Checkpoints {
    /// Keeps the last two checkpoints, of up to 256 GiB each. The folder is created when it is needed.
    pub fn new(folder: impl Into<PathBuf>, every: Every) -> Result<Self> {
        let bad = |reason: &str| Err(Error::argument("checkpoints", reason));
        if every.iterations == Some(0) {
            return bad("every 0 iterations; 1 or more, or none for never");
        }
        let folder = folder.into();
        if folder.as_os_str().is_empty() {
            return bad("a folder without a name; `.` is the current one");
        }
        Ok(Self {
            folder,
            every,
            keep: 2,
            most_bytes: 256 << 30,
            last_iteration: 0,
            last_time: Instant::now(),
            replaced: Vec::new(),
        })
    }

    /// Keeps this many checkpoints instead of two. While one is being written, there is one more.
    pub fn with_keep(mut self, keep: usize) -> Result<Self> {
        if keep == 0 {
            return Err(Error::argument("checkpoints", "0 to keep; 1 or more"));
        }
        self.keep = keep;
        Ok(self)
    }

    /// Refuses to write or read files larger than this many bytes.
    #[must_use]
    pub fn with_most_bytes(mut self, most_bytes: u64) -> Self {
        self.most_bytes = most_bytes;
        self
    }

    /// The folder of the checkpoints.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The checkpoint files in the folder, newest first, without looking into them.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        Ok(self.scan()?.into_iter().map(|(_, path)| path).collect())
    }

    /// Discards all current checkpoints: they are removed when the first new one is on the disk.
    pub fn start_over(&mut self) -> Result<()> {
        self.replaced = self.list()?;
        Ok(())
    }

    /// The run is over and its result is safe, so that nothing here may stop the next run. Those that were given up are
    /// removed. Checkpoints of a run that writes them [every](Every) so often stay, marked as finished; those of a run
    /// that does not are removed, and so is the folder if it is empty then. What cannot be removed is logged.
    ///
    /// ```
    /// use haloscope::solve::{Checkpoints, Every, JobId, State};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let (job, state) = (JobId::new("example", b""), State::new(ndarray::ArrayD::zeros(vec![1, 1, 4])));
    /// let every = Every { iterations: Some(10), time: None };
    /// let mut kept = Checkpoints::new(folder.path().join("kept"), every)?;
    /// kept.save(&state, &job)?;
    /// kept.finish();
    /// assert!(kept.is_finished() && kept.list()?.len() == 1);
    ///
    /// let mut removed = Checkpoints::new(folder.path().join("removed"), Every::default())?;
    /// removed.save(&state, &job)?;
    /// removed.finish();
    /// assert!(!removed.folder().exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish(&mut self) {
        self.replaced.drain(..).for_each(|path| remove(&path));
        let left = self.list().unwrap_or_default();
        if self.every != Every::default() && !left.is_empty() {
            let mark = self.folder.join(FINISHED);
            if let Err(error) = File::create(&mark) {
                log::warn!(
                    "{}: cannot write it: {error}; the next run has to be told to start over",
                    mark.display()
                );
            }
            return;
        }
        for path in &left {
            remove(path);
        }
        self.remove_leftovers();
        remove(&self.folder.join(FINISHED));
        // Others may have something there.
        let _ = std::fs::remove_dir(&self.folder);
    }

    /// Whether the checkpoints here are of a run that is over, which a new run need not go on from.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.folder.join(FINISHED).exists()
    }

    /// Saves if it is time. All ranks call it, with the same state, and all get the error if there is one; the next
    /// attempt is when the next one is due.
    pub fn save_if_due(&mut self, ctx: &Context, state: &State, job: &JobId) -> Result<bool> {
        let due = self.is_due(ctx, state.iteration)?;
        if due {
            let outcome = self.save_together(ctx, state, job);
            // Whether or not it worked: a disk that is full is not written to after every iteration.
            self.note(state);
            outcome?;
        }
        Ok(due)
    }

    fn is_due(&self, ctx: &Context, iteration: usize) -> Result<bool> {
        let passed = iteration.saturating_sub(self.last_iteration);
        let late = self.every.time.is_some_and(|time| self.last_time.elapsed() >= time);
        let enough = self.every.iterations.is_some_and(|every| passed >= every);
        // Clocks differ between ranks, and the first may have saved more; it decides.
        let mut word = [u8::from(late || enough)];
        ctx.comm().broadcast(0, &mut word)?;
        Ok(word == [1])
    }

    /// [`save`](Self::save) by the first rank, for all of them; of a state in shards every rank
    /// [saves its part](Self::save_parts). All ranks call it.
    pub fn save_together(&mut self, ctx: &Context, state: &State, job: &JobId) -> Result<()> {
        if let Layout::Sharded(_) = state.image.layout() {
            return self.save_shards(ctx, state, job);
        }
        let state = spread::complete(ctx, state)?;
        agree_on_root(ctx, || self.save(&state, job))?;
        self.note(&state);
        Ok(())
    }

    /// Writes a checkpoint and then removes those that are too many. If it fails, the others stay as they are.
    ///
    /// # Errors
    /// [`Error::File`] if the disk is full or cannot be written; [`Error::Argument`] if the folder has a later
    /// checkpoint, which this run neither went on from nor was told to replace.
    pub fn save(&mut self, state: &State, job: &JobId) -> Result<PathBuf> {
        // A part of an image is no checkpoint.
        state.image.whole()?;
        let path = self.path_of(state.iteration);
        let length = format::length(state, job);
        if length > self.most_bytes {
            let most = self.most_bytes;
            let reason = format!("it would have {length} bytes; the limit is {most}");
            return Err(Error::Limit { file: path.display().to_string(), reason });
        }
        let others = self.begin(state.iteration)?;
        write_atomically_as(&path, PREFIX, |file| format::write(file, state, job))?;
        self.settle(others);
        self.note(state);
        Ok(path)
    }

    fn path_of(&self, iteration: usize) -> PathBuf {
        self.folder.join(format!("iteration-{iteration:07}.checkpoint"))
    }

    /// Prepares the folder for a checkpoint, and lists the others in it.
    fn begin(&self, iteration: usize) -> Result<Vec<(usize, PathBuf)>> {
        std::fs::create_dir_all(&self.folder).map_err(|error| Error::File {
            file: self.folder.display().to_string(),
            reason: format!("cannot make the folder: {error}"),
        })?;
        let path = self.path_of(iteration);
        let others: Vec<_> = self.scan()?.into_iter().filter(|(_, other)| *other != path).collect();
        let later = others
            .iter()
            .find(|(number, other)| *number > iteration && !self.replaced.contains(other));
        if let Some((_, later)) = later {
            let reason = format!(
                "{} is there already, and is further than iteration {iteration}; resume from it, start over, or \
                 choose another folder",
                later.display()
            );
            return Err(Error::argument("checkpoints", reason));
        }
        self.remove_leftovers();
        // What is here is of a run that goes on.
        self.unmark_finished();
        Ok(others)
    }

    /// Removes those that are too many, now that a new one is there.
    fn settle(&mut self, others: Vec<(usize, PathBuf)>) {
        let (kept, given_up): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, path)| !self.replaced.contains(path));
        for (_, old) in kept.iter().skip(self.keep - 1).chain(&given_up) {
            remove(old);
        }
        self.remove_leftovers();
        self.replaced.clear();
    }

    fn unmark_finished(&self) {
        remove(&self.folder.join(FINISHED));
    }

    /// The newest checkpoint that is whole, read by the first rank for all of them; all ranks call it. `None` if
    /// there are none.
    ///
    /// # Errors
    /// On all ranks: if all are damaged, or if the newest that is whole is of another job or format.
    pub fn load_latest(&mut self, ctx: &Context, job: &JobId) -> Result<Option<Found>> {
        let mut found = agree_on_root(ctx, || self.load(job))?.flatten();
        if ctx.size() > 1 {
            found = share(ctx, found)?;
        }
        if let Some(found) = &found {
            self.take_up(found);
        }
        Ok(found)
    }

    /// The run goes on from what was found.
    fn take_up(&mut self, found: &Found) {
        self.note(&found.state);
        self.replaced = found.rejected.iter().map(|(path, _)| path.clone()).collect();
    }

    fn load(&mut self, job: &JobId) -> Result<Option<Found>> {
        self.remove_leftovers();
        let mut rejected = Vec::new();
        for (_, path) in self.scan()? {
            match self.read(&path, job) {
                Ok(content) => {
                    // The run that takes it goes on.
                    self.unmark_finished();
                    let same = content.job.versions == job.versions;
                    let other_versions = (!same).then_some(content.job.versions);
                    return Ok(Some(Found {
                        state: content.state,
                        path,
                        rejected,
                        other_versions,
                    }));
                }
                Err(Error::Content { file, reason } | Error::File { file, reason }) => {
                    // A part has a name of its own.
                    let is_part = Path::new(&file) != path;
                    let reason = if is_part { format!("{file}: {reason}") } else { reason };
                    rejected.push((path, reason));
                }
                Err(error) => return Err(error),
            }
        }
        if rejected.is_empty() { Ok(None) } else { Err(self.none_usable(&rejected)) }
    }

    fn none_usable(&self, rejected: &[(PathBuf, String)]) -> Error {
        let reasons: Vec<String> =
            rejected.iter().map(|(path, reason)| format!("{}: {reason}", path.display())).collect();
        Error::Content {
            file: self.folder.display().to_string(),
            reason: format!("no checkpoint here can be used: {}", reasons.join("; ")),
        }
    }

    fn read(&self, path: &Path, job: &JobId) -> Result<format::Content> {
        let name = path.display().to_string();
        let failed =
            |error: std::io::Error| Error::File { file: name.clone(), reason: error.to_string() };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > self.most_bytes {
            let most = self.most_bytes;
            let reason = format!("it has {length} bytes; the limit is {most}");
            return Err(Error::Limit { file: name, reason });
        }
        let mut file = BufReader::new(file);
        if format::token_in(file.fill_buf().map_err(failed)?).is_some() {
            let outline = Outline::open(path, self.most_bytes, job)?;
            let state = outline.read(&|_, shape| Some(region::whole(shape)))?;
            return Ok(format::Content { state, job: outline.job });
        }
        format::read(&name, &mut file, length, job)
    }

    /// Iterations and paths, the newest first.
    fn scan(&self) -> Result<Vec<(usize, PathBuf)>> {
        let mut found: Vec<(usize, PathBuf)> = Vec::new();
        for path in self.entries()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let digits =
                name.strip_prefix("iteration-").and_then(|rest| rest.strip_suffix(".checkpoint"));
            if let Some(iteration) = digits.and_then(|digits| digits.parse().ok()) {
                found.push((iteration, path));
            }
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        Ok(found)
    }

    fn entries(&self) -> Result<Vec<PathBuf>> {
        let failed = |error: std::io::Error| Error::File {
            file: self.folder.display().to_string(),
            reason: format!("cannot list the folder: {error}"),
        };
        match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed(error)),
            Ok(entries) => {
                entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
            }
        }
    }

    /// Removes what processes left that were killed while they wrote. A folder has one run at a time.
    fn remove_leftovers(&self) {
        for path in self.entries().unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_left = match outline::of_part(&path) {
                Some((checkpoint, token)) => !may_name(&checkpoint, token),
                None => name.starts_with(PREFIX) && name.ends_with(PART),
            };
            if is_left {
                remove(&path);
            }
        }
    }

    fn note(&mut self, state: &State) {
        self.note_iteration(state.iteration);
    }

    fn note_iteration(&mut self, iteration: usize) {
        self.last_iteration = iteration;
        self.last_time = Instant::now();
    }
}

/// Whether parts with this token may belong to the checkpoint at a path; one that cannot be read now may be fine later.
fn may_name(checkpoint: &Path, token: u64) -> bool {
    match format::token_of(checkpoint) {
        Ok(found) => found == Some(token),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// One file too many is no reason to end a run.
fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            log::warn!("{}: cannot remove it: {error}", path.display());
        }
        _ => (),
    }
}

/// Sends what the first rank found to all ranks, bit for bit.
fn share(ctx: &Context, found: Option<Found>) -> Result<Option<Found>> {
    let comm = ctx.comm();
    let mut outline = Vec::new();
    let mut texts = Vec::new();
    if let Some(found) = &found {
        outline = format::outline(&found.state);
        texts = found.texts().join("\0").into_bytes();
    }
    comm.broadcast_list(0, &mut outline)?;
    if outline.is_empty() {
        return Ok(None);
    }
    comm.broadcast_list(0, &mut texts)?;
    let mut found = match found {
        Some(found) => found,
        None => Found::from_texts(
            &String::from_utf8_lossy(&texts),
            format::blank(&outline).expect("the first rank made it of a state"),
        ),
    };
    let State { image, arrays, .. } = &mut found.state;
    for array in std::iter::once(image).chain(arrays.values_mut()) {
        comm.broadcast(0, slice_mut(array.local_mut()))?;
    }
    Ok(Some(found))
}

//! The checkpoints of a run: what is done about those of earlier runs, when new ones are written, and who else may write.

use std::path::{Path, PathBuf};

use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::{agree, agree_on_root};
use haloscope::solve::{Checkpoints, FolderLock, JobId, State};
use haloscope::{Error, Result};
use haloscope_comm::{Collectives, Context};

use crate::Job;
use crate::prepare::Acquired;
use crate::run::Told;

/// What a run does about checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resuming {
    /// Resumes from the latest, if there is one.
    Latest,
    /// Discards those of earlier runs.
    Never,
    /// Refuses to run if an earlier run did not finish.
    Refuse,
    /// Neither reads nor writes any.
    Off,
}

/// Checkpoints, and what they are of.
pub(crate) struct Saving {
    pub checkpoints: Checkpoints,
    pub id: JobId,
    resuming: Resuming,
    /// What keeps other runs out of their folder, on the rank that writes them.
    lock: Option<FolderLock>,
    /// Whether one of them is this run's: it resumed from it, or wrote it.
    has_own: bool,
    /// Whether the last attempt failed, which is said once.
    is_in_trouble: bool,
}

impl Saving {
    /// The checkpoints of a job; all ranks call it. Those of earlier runs are kept, refused or discarded.
    pub(crate) fn open(
        ctx: &Context,
        job: &Job,
        network: Option<&NetworkDenoiser>,
        resuming: Resuming,
        told: &mut Told<'_>,
    ) -> Result<Self> {
        // Only the first rank writes and reads them, and keeps other runs away.
        let lock = agree_on_root(ctx, || lock_checkpoints(job, told))?.flatten();
        let mut checkpoints = agree(ctx, job.checkpoint.open())?;
        match resuming {
            Resuming::Latest => (),
            Resuming::Never => {
                agree_on_root(ctx, || checkpoints.start_over())?;
            }
            Resuming::Refuse | Resuming::Off => {
                agree_on_root(ctx, || begin_anew(&mut checkpoints, told))?;
            }
        }
        let id = written_with(JobId::new(&*job.name, &[]), network);
        Ok(Self { checkpoints, id, resuming, lock, has_own: false, is_in_trouble: false })
    }

    /// The state to resume from, if there is one, now that the measurements are known by which checkpoints are told from those
    /// of other jobs; all ranks call it.
    pub(crate) fn resume(
        &mut self,
        ctx: &Context,
        job: &Job,
        acquired: &Acquired,
        told: &mut Told<'_>,
    ) -> Result<Option<State>> {
        let digests = acquired.digests(ctx)?;
        if let Some(id) = agree_on_root(ctx, || job.id(ctx.size(), &digests))? {
            let id = if acquired.has_own_bits { id.with_content(b"in shards") } else { id };
            self.id = JobId { versions: self.id.versions.clone(), ..id };
        }
        // Every rank checks the parts that it reads.
        let mut hash = [self.id.hash];
        ctx.comm().broadcast(0, &mut hash)?;
        self.id.hash = hash[0];
        if self.resuming != Resuming::Latest {
            return Ok(None);
        }
        let found = match acquired.sharded() {
            Some(physics) => self.checkpoints.load_shards(ctx, &self.id, physics)?,
            None => self.checkpoints.load_latest(ctx, &self.id)?,
        };
        match &found {
            Some(found) => {
                for note in found.notes() {
                    told.warn(&note);
                }
            }
            None => told.warn(&format!(
                "there is no checkpoint in {}; the run starts from the beginning",
                self.checkpoints.folder().display()
            )),
        }
        self.has_own = found.is_some();
        Ok(found.map(|found| found.state))
    }

    /// Saves if it is time; all ranks call it. A checkpoint that cannot be written is no reason to stop computing.
    pub(crate) fn save_if_due(
        &mut self,
        ctx: &Context,
        state: &State,
        told: &mut Told<'_>,
    ) -> Result<bool> {
        let outcome = self.checkpoints.save_if_due(ctx, state, &self.id);
        let Some(error) = trouble(&outcome) else {
            let is_saved = outcome?;
            self.is_in_trouble &= !is_saved;
            self.has_own |= is_saved;
            return Ok(is_saved);
        };
        if !std::mem::replace(&mut self.is_in_trouble, true) {
            told.warn(&format!("cannot write a checkpoint: {error}; the run continues without it"));
        }
        Ok(false)
    }

    /// Saves the state that a run is cut short with; all ranks call it. Gives the folder if that worked.
    pub(crate) fn save_last(
        &mut self,
        ctx: &Context,
        state: &State,
        told: &mut Told<'_>,
    ) -> Result<Option<PathBuf>> {
        let outcome = self.checkpoints.save_together(ctx, state, &self.id);
        let Some(error) = trouble(&outcome) else {
            return outcome.map(|()| Some(self.checkpoints.folder().to_owned()));
        };
        if ctx.is_root() {
            let earlier = match self.checkpoints.list().unwrap_or_default().first() {
                Some(latest) if self.has_own => {
                    format!("--resume continues from {}", latest.display())
                }
                _ => "there is none to resume from".to_owned(),
            };
            told.warn(&format!("cannot write a checkpoint: {error}; {earlier}"));
        }
        Ok(None)
    }

    /// What cannot be written is not lost if there is room for a checkpoint; all ranks call it.
    pub(crate) fn rescue(&mut self, ctx: &Context, state: &State, error: Error) -> Error {
        match self.checkpoints.save_together(ctx, state, &self.id) {
            Err(_) => error,
            Ok(()) => Error::File {
                file: "the result".into(),
                reason: format!(
                    "{error}; the image is in a checkpoint in {}, and --resume writes it again",
                    self.checkpoints.folder().display()
                ),
            },
        }
    }

    /// The run is over and its result is written: nothing of it stops the next one.
    pub(crate) fn finish(&mut self) {
        self.checkpoints.finish();
        let is_empty = self.checkpoints.list().is_ok_and(|list| list.is_empty());
        if let Some(lock) = self.lock.as_mut().filter(|_| is_empty) {
            lock.discard_folder();
        }
    }
}

/// The job with what its network runs on among the versions of programs, unless that is the CPU engine as most have it: a run that
/// resumes it on something else is told so.
fn written_with(mut id: JobId, network: Option<&NetworkDenoiser>) -> JobId {
    if let Some(kind) = network.map(NetworkDenoiser::engine_kind).filter(|kind| kind != "cpu") {
        id.versions = format!("{} with {kind}", id.versions);
    }
    id
}

/// Why a checkpoint could not be written, unless it is that ranks are gone.
fn trouble<T>(outcome: &Result<T>) -> Option<&Error> {
    outcome.as_ref().err().filter(|error| !matches!(error, Error::Ranks(_)))
}

/// Checkpoints of a run that is over are given up; others must not be lost.
fn begin_anew(checkpoints: &mut Checkpoints, told: &mut Told<'_>) -> Result<()> {
    let list = checkpoints.list()?;
    let Some(latest) = list.first() else { return Ok(()) };
    if !checkpoints.is_finished() {
        return Err(Error::argument(
            "checkpoints",
            format!(
                "{} is there from an earlier run; --resume continues it, --start-over discards it",
                latest.display()
            ),
        ));
    }
    told.note(&format!(
        "{} is from a run that finished; this run starts over, and --resume would have continued it",
        latest.display()
    ));
    checkpoints.start_over()
}

/// Keeps other runs out of the folder of checkpoints. One that cannot be written does so by itself, and is needed only
/// when there is something to save.
fn lock_checkpoints(job: &Job, told: &mut Told<'_>) -> Result<Option<FolderLock>> {
    match or_without(FolderLock::take(&job.checkpoint.folder), told) {
        Ok(lock) => Ok(lock),
        Err(error @ Error::Argument { .. }) => Err(error),
        Err(error) => {
            let words = format!("{error}; checkpoints cannot be written there");
            if job.checkpoint.is_periodic() {
                told.warn(&words);
            } else {
                told.detail(&words);
            }
            Ok(None)
        }
    }
}

/// Keeps other runs out of the folder of pictures, on the first rank.
pub(crate) fn lock_output(
    ctx: &Context,
    job: &Job,
    has_checkpoints: bool,
    told: &mut Told<'_>,
) -> Result<Option<FolderLock>> {
    let same = |one: &Path, other: &Path| {
        one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
    };
    let is_locked = |folder: &Path| has_checkpoints && same(folder, &job.checkpoint.folder);
    let folder = job.output.folder.as_deref().filter(|_| ctx.is_root());
    let lock = folder.filter(|folder| !is_locked(folder)).map(FolderLock::take);
    agree(ctx, lock.map_or(Ok(None), |lock| or_without(lock, told)))
}

/// A folder whose file system has no locks is used without one. One that cannot be written is better known before the work
/// than after it.
fn or_without(lock: Result<FolderLock>, told: &mut Told<'_>) -> Result<Option<FolderLock>> {
    match lock {
        Err(error @ Error::Unsupported { .. }) => {
            told.detail(&format!("{error}; nothing keeps other runs out of it"));
            Ok(None)
        }
        lock => lock.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::{Event, Observer};

    /// What was told in detail.
    #[derive(Default)]
    struct Details(Vec<String>);

    impl Observer for Details {
        fn event(&mut self, event: Event<'_>) {
            if let Event::Detail(words) = event {
                self.0.push(words.to_owned());
            }
        }
    }

    #[test]
    fn pictures_are_written_where_nothing_can_be_locked() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut details = Details::default();
        let mut told = Told::new(&Context::solo(), &mut details);
        let without = Error::Unsupported {
            file: "pictures".into(),
            reason: "cannot lock the folder: Function not implemented (os error 38)".into(),
        };
        assert!(or_without(Err(without), &mut told).expect("no lock is needed").is_none());
        let lock = or_without(FolderLock::take(folder.path()), &mut told).expect("a lock");
        // Somebody else has it.
        let error = or_without(FolderLock::take(folder.path()), &mut told).expect_err("taken");
        assert!(error.to_string().contains("is in use by"), "{error}");
        drop(lock);
        std::fs::write(folder.path().join("file"), "").expect("written");
        assert!(or_without(FolderLock::take(&folder.path().join("file/in")), &mut told).is_err());
        assert_eq!(details.0.len(), 1, "{:?}", details.0);
        assert!(details.0[0].contains("cannot lock the folder"), "{}", details.0[0]);
    }
}

//! Checkpoints keep every bit, and nothing that is not whole, or of another job, is taken for one.

#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

mod resumed;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haloscope::solve::{Checkpoints, Every, JobId, State};
use haloscope::{Array, Error};
use haloscope_comm::Context;
use resumed::{Place, digest, job};

const EACH: Every = Every { iterations: Some(1), time: None };

/// A small state with all kinds of numbers.
fn state(iteration: usize) -> State {
    let bits = [0x7fc1_2345, 0xff80_0001, 0x8000_0000, 0x0000_0001, 0x7f80_0000, 0x3f80_0000];
    let values = bits.map(f32::from_bits);
    let mut state = State::new(Array::from_shape_vec(vec![1, 1, 2, 3], values.to_vec()).unwrap());
    state.iteration = iteration;
    state.arrays.insert("dual".into(), Array::from_elem(vec![2, 2], -0.0).into());
    state.arrays.insert(String::new(), Array::zeros(vec![3, 0]).into());
    state.arrays.insert("scalar".into(), Array::from_elem(vec![], 1.5).into());
    state.numbers.insert("momentum".into(), f64::from_bits(0x7ff8_dead_beef_0001));
    state.numbers.insert("größe".into(), -0.0);
    state
}

fn same_bits(one: &State, other: &State) -> bool {
    let shapes = |state: &State| {
        let others =
            state.arrays.iter().map(|(name, array)| (name.clone(), array.shape().to_vec()));
        (state.image.shape().to_vec(), others.collect::<Vec<_>>(), state.iteration)
    };
    let names = |state: &State| state.numbers.keys().cloned().collect::<Vec<_>>();
    shapes(one) == shapes(other) && names(one) == names(other) && digest(one) == digest(other)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A folder with the checkpoints of iterations 1 and 2, and the path of the second.
fn two() -> (tempfile::TempDir, Checkpoints, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoints = Checkpoints::new(folder.path(), EACH).expect("checkpoints");
    checkpoints.save(&state(1), &job()).expect("saved");
    let newest = checkpoints.save(&state(2), &job()).expect("saved");
    (folder, checkpoints, newest)
}

#[test]
fn every_bit_comes_back_on_every_rank() {
    let (folder, _, newest) = two();
    assert_eq!(newest.file_name().unwrap(), "iteration-0000002.checkpoint");
    for ranks in 1..=3 {
        let path = folder.path().to_owned();
        let found = Context::threads(ranks, move |ctx| {
            Checkpoints::new(&path, EACH)?.load_latest(ctx, &job())
        });
        for found in found.expect("no rank fails") {
            let found = found.expect("a checkpoint");
            assert!(same_bits(&found.state, &state(2)), "{found:?}");
            assert_eq!(found.path, newest);
            assert!(found.notes().is_empty());
        }
    }
}

#[test]
fn arrays_that_are_not_in_standard_layout_are_saved_in_their_own_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpoints::new(folder.path(), EACH).unwrap();
    let turned = Array::from_shape_fn(vec![2, 3, 4], |at| (at[0] * 12 + at[1] * 4 + at[2]) as f32)
        .permuted_axes(vec![2, 0, 1]);
    checkpoints.save(&State::new(turned.clone()), &job()).unwrap();
    let found = checkpoints.load_latest(&Context::solo(), &job()).unwrap().unwrap();
    assert_eq!(found.state.image.local(), turned);
}

#[test]
fn every_cut_and_every_changed_byte_is_found_and_the_older_one_taken() {
    let (_folder, mut checkpoints, newest) = two();
    let whole = fs::read(&newest).unwrap();
    let mut check = |bytes: &[u8], what: &str| {
        fs::write(&newest, bytes).unwrap();
        let found = checkpoints.load_latest(&Context::solo(), &job()).expect("the older one");
        let found = found.expect("there is one");
        assert!(same_bits(&found.state, &state(1)), "{what}");
        assert_eq!(found.rejected.len(), 1, "{what}");
        assert_eq!(found.rejected[0].0, newest, "{what}");
        let note = &found.notes()[0];
        assert!(note.contains("resuming from the one before it, at iteration 1"), "{note}");
        found.rejected[0].1.clone()
    };
    for length in 0..whole.len() {
        check(&whole[..length], &format!("{length} bytes"));
    }
    let cut = check(&whole[..whole.len() - 1], "cut");
    assert!(cut.contains("cut short"), "{cut}");
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            let reason = check(&bytes, &format!("byte {at} changed"));
            assert!(at < 20 || reason.contains("checksum"), "{reason}");
        }
    }
    check(&[&whole[..], &[0]].concat(), "one more byte");
    check(&vec![0; whole.len()], "zeros");
    fs::write(&newest, &whole).unwrap();
    let found = checkpoints.load_latest(&Context::solo(), &job()).unwrap().unwrap();
    assert!(same_bits(&found.state, &state(2)));
}

#[test]
fn a_damaged_checkpoint_is_replaced_by_the_next_one() {
    let (folder, mut checkpoints, newest) = two();
    let later = folder.path().join("iteration-0000009.checkpoint");
    fs::write(&later, "torn").unwrap();
    let found = checkpoints.load_latest(&Context::solo(), &job()).unwrap().unwrap();
    assert_eq!((found.path, found.rejected.len()), (newest, 1));
    assert!(later.exists(), "reading removes nothing");
    checkpoints.save(&state(3), &job()).unwrap();
    let expected = ["iteration-0000002.checkpoint", "iteration-0000003.checkpoint"];
    assert_eq!(names(folder.path()), expected);
}

#[test]
fn if_none_is_whole_it_is_an_error_with_every_reason() {
    let (folder, mut checkpoints, _) = two();
    for name in names(folder.path()) {
        fs::write(folder.path().join(name), "HALOCKPT and then something else, long enough")
            .unwrap();
    }
    let error = checkpoints.load_latest(&Context::solo(), &job()).unwrap_err().to_string();
    for part in
        ["no checkpoint here can be used", "iteration-0000001", "iteration-0000002", "45 bytes"]
    {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_checkpoint_of_another_job_is_refused_with_both_names_on_all_ranks() {
    let (folder, _, _) = two();
    let path = folder.path().to_owned();
    let errors = Context::threads(3, move |ctx| {
        let other = JobId::new("another job", b"6 frames");
        let error = Checkpoints::new(&path, EACH)?.load_latest(ctx, &other).expect_err("refused");
        Ok::<_, Error>((error.to_string(), other.to_string()))
    });
    for (error, other) in errors.expect("all ranks are told") {
        assert!(error.contains(&job().to_string()) && error.contains(&other), "{error}");
        assert!(error.contains("belongs to another job"), "{error}");
    }
}

#[test]
fn other_versions_are_taken_with_a_note() {
    let (_folder, mut checkpoints, _) = two();
    let newer = JobId { versions: "haloscope 9.0.0".into(), ..job() };
    let found = checkpoints.load_latest(&Context::solo(), &newer).unwrap().unwrap();
    let notes = found.notes();
    assert!(notes[0].contains("written by haloscope 0.1.0; the bits may differ"), "{notes:?}");
}

#[test]
fn another_format_and_hostile_sizes_are_refused() {
    let (_folder, mut checkpoints, newest) = two();
    let whole = fs::read(&newest).unwrap();
    let mut load = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        // With the right checksum, so that it is the content that is refused.
        let end = bytes.len() - 4;
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[..end]);
        let sum = crc.sum().to_le_bytes();
        bytes[end..].copy_from_slice(&sum);
        fs::write(&newest, bytes).unwrap();
        checkpoints.load_latest(&Context::solo(), &job())
    };
    let error = load(&|bytes| bytes[8] = 3).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("format 3"), "{error}");
    // Every number of 4 or 8 bytes in the header at its largest, and then some, must not take memory or crash.
    let header_end = 28 + u64::from_le_bytes(whole[20..28].try_into().unwrap()) as usize;
    let mut refused = 0;
    for at in 20..header_end - 8 {
        for value in [u64::MAX, u64::MAX >> 1, 1 << 40, 1 << 62] {
            match load(&|bytes| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes())) {
                Ok(found) => {
                    refused += usize::from(!found.expect("the older one").rejected.is_empty());
                }
                Err(error) => assert!(error.to_string().contains("another job"), "{error}"),
            }
        }
    }
    assert!(refused > 4 * (header_end - 28) / 2, "{refused}");
    let mut small = checkpoints.clone().with_most_bytes(100);
    let error = small.load_latest(&Context::solo(), &job()).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    let error = small.save(&state(3), &job()).unwrap_err();
    assert!(error.to_string().contains("the limit is 100"), "{error}");
}

#[test]
fn the_last_two_are_kept_and_leftovers_of_killed_processes_removed() {
    let (folder, mut checkpoints, _) = two();
    let leftover = folder.path().join(".haloscope-checkpoint-Ab3.part");
    let foreign = folder.path().join("notes.txt");
    fs::write(&foreign, "mine").unwrap();
    for iteration in [10, 11, 10_000_000] {
        fs::write(&leftover, "half").unwrap();
        checkpoints.save(&state(iteration), &job()).unwrap();
    }
    let expected = ["iteration-0000011.checkpoint", "iteration-10000000.checkpoint", "notes.txt"];
    assert_eq!(names(folder.path()), expected);
    fs::write(&leftover, "half").unwrap();
    let found = checkpoints.load_latest(&Context::solo(), &job()).unwrap().unwrap();
    assert_eq!((found.state.iteration, found.rejected.len()), (10_000_000, 0));
    assert_eq!(names(folder.path()), expected);
}

#[test]
fn a_run_that_starts_again_replaces_later_checkpoints_only_if_told() {
    let (folder, _, _) = two();
    let mut fresh = Checkpoints::new(folder.path(), EACH).unwrap();
    let error = fresh.save(&state(1), &job()).unwrap_err().to_string();
    assert!(error.contains("iteration-0000002") && error.contains("start over"), "{error}");
    assert_eq!(names(folder.path()).len(), 2);
    fresh.start_over().unwrap();
    assert_eq!(names(folder.path()).len(), 2, "until the first new one is there");
    fresh.save(&state(1), &job()).unwrap();
    assert_eq!(names(folder.path()), ["iteration-0000001.checkpoint"]);
}

#[test]
fn a_run_that_is_over_marks_its_checkpoints_or_removes_them() {
    let (folder, mut checkpoints, newest) = two();
    checkpoints.finish();
    assert!(checkpoints.is_finished());
    assert_eq!(names(folder.path()).len(), 3);
    // A run that goes on is not over, from the moment that it has the checkpoint.
    let mut resumed = Checkpoints::new(folder.path(), EACH).unwrap();
    let found = resumed.load_latest(&Context::solo(), &job()).unwrap().unwrap();
    assert!(found.path == newest && !resumed.is_finished());
    resumed.finish();
    resumed.start_over().unwrap();
    assert!(resumed.is_finished(), "until the first new one is there");
    resumed.save(&state(1), &job()).unwrap();
    assert!(!resumed.is_finished());

    let mut rare = Checkpoints::new(folder.path(), Every::default()).unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    rare.finish();
    assert_eq!(names(folder.path()), ["notes.txt"]);
    fs::remove_file(folder.path().join("notes.txt")).unwrap();
    rare.finish();
    assert!(!folder.path().exists());
    rare.finish();
}

#[test]
fn after_a_failure_the_next_attempt_is_when_the_next_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("blocked");
    fs::write(&blocked, "a file in the way").unwrap();
    let every = Every { iterations: Some(3), time: None };
    let mut checkpoints = Checkpoints::new(&blocked, every).unwrap();
    let ctx = Context::solo();
    let mut outcome = |iteration| match checkpoints.save_if_due(&ctx, &state(iteration), &job()) {
        Ok(false) => ' ',
        Ok(true) => 's',
        Err(_) => 'f',
    };
    assert_eq!((1..=7).map(&mut outcome).collect::<String>(), "  f  f ");
    fs::remove_file(&blocked).unwrap();
    assert_eq!((8..=9).map(&mut outcome).collect::<String>(), " s");
}

#[test]
fn checkpoints_are_due_by_iterations_and_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = Context::solo();
    let due = |every: Every| {
        let mut checkpoints = Checkpoints::new(folder.path(), every).unwrap();
        checkpoints.start_over().unwrap();
        let due = |iteration| checkpoints.save_if_due(&ctx, &state(iteration), &job()).unwrap();
        (1..=7).map(due).collect::<Vec<_>>()
    };
    let iterations = due(Every { iterations: Some(3), time: None });
    assert_eq!(iterations, [false, false, true, false, false, true, false]);
    assert_eq!(due(Every { iterations: None, time: Some(Duration::ZERO) }), [true; 7]);
    let never = Every { iterations: None, time: Some(Duration::from_hours(1)) };
    assert_eq!(due(never), [false; 7]);
    assert_eq!(due(Every::default()), [false; 7]);
    assert!(Checkpoints::new(folder.path(), Every { iterations: Some(0), time: None }).is_err());
}

#[test]
fn a_run_goes_on_to_the_same_bits_on_another_number_of_ranks() {
    let on = |folder: &Path, ranks, iterations| {
        let folder = folder.to_owned();
        let states = Context::threads(ranks, move |ctx| {
            let mut checkpoints = Checkpoints::new(&folder, EACH)?;
            resumed::run(ctx, &mut checkpoints, iterations, Place::Replicated)
        });
        let states = states.expect("no rank fails");
        assert!(states.iter().all(|state| digest(state) == digest(&states[0])));
        states.into_iter().next().expect("a rank")
    };
    let folder = || tempfile::tempdir().expect("a folder");
    let uninterrupted = on(folder().path(), 1, 9);
    assert!(!uninterrupted.arrays.is_empty() && !uninterrupted.numbers.is_empty());
    for (first, second) in [(1, 1), (2, 3), (3, 1), (1, 2)] {
        let folder = folder();
        on(folder.path(), first, 4);
        let resumed = on(folder.path(), second, 9);
        assert!(same_bits(&resumed, &uninterrupted), "from {first} to {second} ranks");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    fs::write(&blocked, "no folder").unwrap();
    let errors = Context::threads(2, move |ctx| {
        let mut checkpoints = Checkpoints::new(blocked.join("inside"), EACH)?;
        let error = checkpoints.save_if_due(ctx, &state(1), &job()).expect_err("no folder");
        Ok::<_, Error>(error.to_string())
    });
    for error in errors.expect("all ranks are told") {
        assert!(error.contains("inside"), "{error}");
    }
}

/// A small disk of its own; `None`, and why, where it cannot be had.
#[cfg(target_os = "linux")]
fn small_disk(at: &Path, bytes: usize) -> Option<Mounted> {
    let status = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
        .arg(at)
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok_and(|status| status.success()).then(|| Mounted(at.to_owned()))
}

#[cfg(target_os = "linux")]
struct Mounted(PathBuf);

#[cfg(target_os = "linux")]
impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_leaves_the_older_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = small_disk(folder.path(), 1 << 20) else {
        println!("skipped: mounting a small disk needs root");
        return;
    };
    let mut checkpoints = Checkpoints::new(folder.path(), EACH).unwrap();
    let sized = |iteration, count| {
        let image = Array::from_elem(vec![1, 1, 1, count], iteration as f32);
        State { iteration, ..State::new(image) }
    };
    checkpoints.save(&sized(1, 50_000), &job()).unwrap();
    checkpoints.save(&sized(2, 50_000), &job()).unwrap();
    let before = names(folder.path());
    for _ in 0..2 {
        let error = checkpoints.save(&sized(3, 250_000), &job()).unwrap_err().to_string();
        assert!(error.contains("iteration-0000003.checkpoint: cannot write it"), "{error}");
        assert!(error.to_lowercase().contains("no space"), "{error}");
        assert_eq!(names(folder.path()), before);
    }
    let found = checkpoints.load_latest(&Context::solo(), &job()).unwrap().unwrap();
    assert_eq!(found.state, sized(2, 50_000));
    checkpoints.save(&sized(3, 50_000), &job()).expect("it fits again");
    drop(disk);
}

/// The file is a pipe that nobody writes to for longer than the calls between ranks may take.
#[cfg(unix)]
#[test]
fn a_checkpoint_that_takes_long_to_read_is_waited_for_by_all_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("iteration-0000003.checkpoint");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let deadline = Duration::from_secs(2);
    let writer = std::thread::spawn(move || {
        std::thread::sleep(2 * deadline);
        // It is opened, and holds nothing.
        drop(fs::OpenOptions::new().write(true).open(pipe).expect("somebody reads it"));
    });
    let path = folder.path().to_owned();
    let options = haloscope_comm::ContextOptions { deadline, ..Default::default() };
    let errors = options.threads(3, move |ctx| {
        let error = Checkpoints::new(&path, EACH)?.load_latest(ctx, &job());
        Ok::<_, Error>(error.expect_err("an empty file").to_string())
    });
    writer.join().expect("the writer ends");
    for error in errors.expect("no rank fails") {
        assert!(error.contains("no checkpoint here can be used"), "{error}");
    }
}

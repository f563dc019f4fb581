//! Arrays in files have the values of arrays in memory, whatever is dropped of them.
#![cfg(target_os = "linux")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use haloscope_scratch::{Allocator, Folder, Options, Scratch, Visited, done, in_pieces, is_active};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// What is open is of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(folder: &tempfile::TempDir) -> Scratch {
    let options =
        Options { threshold: 1 << 20, piece: 1 << 18, ..Options::new(folder.path(), 1 << 32) };
    Scratch::open(&options).expect("a scratch")
}

/// Whether pages of files in a folder can leave memory: not if it is memory itself.
fn has_disk(folder: &tempfile::TempDir) -> bool {
    let is_memory = Folder::look(folder.path()).expect("a folder").is_memory;
    if is_memory {
        println!("skipped: pages that leave memory, because the folder for tests is no disk");
    }
    !is_memory
}

/// How many pages of an array are in memory.
fn resident(values: &[f32]) -> usize {
    let bytes = size_of_val(values);
    let mut seen = vec![0_u8; bytes.div_ceil(4096)];
    // SAFETY: the array begins at a page, and there is a byte for each of its pages.
    let status = unsafe { libc::mincore(values.as_ptr() as *mut _, bytes, seen.as_mut_ptr()) };
    assert_eq!(status, 0);
    seen.iter().filter(|page| **page & 1 == 1).count()
}

/// Whether the system was asked for huge pages for the mapping that has this value in it.
fn asks_for_huge_pages(value: &f32) -> bool {
    let place = std::ptr::from_ref(value) as usize;
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings of this process");
    let mut is_here = false;
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((from, to)) = range {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            is_here = (number(from)..number(to)).contains(&place);
        } else if is_here && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split_whitespace().any(|flag| flag == "hg");
        }
    }
    false
}

#[test]
fn large_arrays_in_memory_ask_for_huge_pages() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        println!("skipped: huge pages, which this system does not have");
        return;
    }
    let _turn = alone();
    let (zeros, ones) = (vec![0.0_f32; 16 << 20], vec![1.0_f32; 16 << 20]);
    let small = vec![1.0_f32; 1 << 10];
    assert!(asks_for_huge_pages(&zeros[8 << 20]) && asks_for_huge_pages(&ones[8 << 20]));
    assert!(!asks_for_huge_pages(&small[512]));
    assert_eq!((zeros.iter().sum::<f32>(), small.iter().sum::<f32>()), (0.0, 1024.0));
    assert!(ones.iter().all(|one| *one == 1.0));
    // From below the size and from above it.
    for start in [1 << 20, 16 << 20] {
        let mut growing = vec![1.0_f32; start];
        growing.reserve_exact(16 << 20);
        growing.resize(start + (16 << 20), 2.0);
        assert!(asks_for_huge_pages(&growing[start + (8 << 20)]), "from {start}");
        assert_eq!((growing[start - 1], growing[start]), (1.0, 2.0));
    }
}

#[test]
fn large_arrays_are_files_while_a_scratch_is_open() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let before = vec![0.5_f32; 1 << 19];
    let scratch = open(&folder);
    assert_eq!(scratch.usage().bytes, 0);
    let small = vec![1.0_f32; 1 << 10];
    assert_eq!(scratch.usage().bytes, 0);
    let zeros = vec![0.0_f32; 1 << 19];
    assert_eq!(scratch.usage().bytes, 2 << 20);
    let mut copy = zeros.clone();
    copy[77] = 3.0;
    drop(before);
    assert_eq!(scratch.usage().bytes, 4 << 20);
    // Nobody can see them.
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    drop(zeros);
    assert_eq!((scratch.usage().bytes, scratch.usage().peak), (2 << 20, 4 << 20));
    drop(scratch);
    // They stay where they are, and new ones are in memory.
    assert!(is_active());
    let after = copy.clone();
    drop(small);
    assert!(copy == after && after[77] == 3.0);
    drop(copy);
    assert!(!is_active());
}

#[test]
fn what_was_dropped_comes_back() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let _scratch = open(&folder);
    let mut values: Vec<f32> = (0..3_000_001).map(|i| (i as f32 * 0.1).sin()).collect();
    assert!(resident(&values) > 0);
    done(&values);
    assert!(!has_disk(&folder) || resident(&values) == 0);
    assert!(values.iter().enumerate().all(|(i, value)| *value == (i as f32 * 0.1).sin()));
    // A part, from the middle of a page to that of another.
    let part = 1_000_000..2_000_000;
    values[part.clone()].iter_mut().for_each(|value| *value += 1.0);
    done(&values[part.clone()]);
    for (i, value) in values.iter().enumerate() {
        let added = if part.contains(&i) { 1.0 } else { 0.0 };
        assert_eq!(*value, (i as f32 * 0.1).sin() + added, "{i}");
    }
}

#[test]
fn every_step_is_visited_once_and_nothing_stays() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (_scratch, has_disk) = (open(&folder), has_disk(&folder));
    for (steps, width) in [(700, 1000), (3, 400_000), (1_000_003, 1), (1, 1 << 20)] {
        let from: Vec<f32> = (0..steps * width).map(|i| i as f32).collect();
        let mut to = vec![0.0_f32; steps * width];
        let (visited, mut next, mut pieces) = ([Visited::of(&from), Visited::of(&to)], 0, 0);
        in_pieces(steps, &visited, |range| {
            assert_eq!(range.start, next);
            next = range.end;
            pieces += 1;
            let range = range.start * width..range.end * width;
            for (to, from) in to[range.clone()].iter_mut().zip(&from[range]) {
                *to += from * 2.0;
            }
        });
        assert_eq!(next, steps);
        assert!(steps == 1 || pieces > 1, "{pieces} pieces of {steps} steps");
        if steps > 1 && has_disk {
            assert_eq!((resident(&from), resident(&to)), (0, 0), "{steps} × {width}");
        }
        assert!(to.iter().zip(&from).all(|(to, from)| *to == from * 2.0));
    }
}

#[test]
fn arrays_grow_and_shrink_between_memory_and_files() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let scratch = open(&folder);
    let mut values = Vec::new();
    for i in 0..2_000_000_u32 {
        values.push(i);
    }
    assert!(scratch.usage().bytes >= 8_000_000);
    values.truncate(1_000_000);
    values.shrink_to_fit();
    assert_eq!(scratch.usage().bytes, 4_000_000_u64.next_multiple_of(4096));
    values.truncate(10_000);
    values.shrink_to_fit();
    assert_eq!(scratch.usage().bytes, 0);
    assert!(values.iter().enumerate().all(|(i, value)| i == *value as usize));
    // Buffers of engines ask for more than arrays do.
    let layout = std::alloc::Layout::from_size_align(4 << 20, 64).expect("a layout");
    // SAFETY: the layout is not empty, and the memory is freed with it.
    unsafe {
        let data = std::alloc::alloc(layout);
        assert_eq!(scratch.usage().bytes, 0);
        std::alloc::dealloc(data, layout);
    }
}

#[test]
fn threads_share_one_folder_and_no_other() {
    let _turn = alone();
    let (folder, other) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let first = open(&folder);
    let second = open(&folder);
    let error = Scratch::open(&Options::new(other.path(), 1 << 30)).expect_err("in use");
    assert!(error.to_string().contains("in use by another job"), "{error}");
    drop(first);
    let values = vec![1.0_f32; 1 << 20];
    assert_eq!(second.usage().bytes, 4 << 20);
    drop((values, second));
    drop(Scratch::open(&Options::new(other.path(), 1 << 30)).expect("nobody uses it"));
}

#[test]
fn a_limit_holds_for_those_who_say_nothing() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    if !has_disk(&folder) {
        return;
    }
    let options = Options { threshold: 1 << 20, ..Options::new(folder.path(), 96 << 20) };
    let _scratch = Scratch::open(&options).expect("a scratch");
    let mut values = vec![0.0_f32; 64 << 20];
    for (i, value) in values.iter_mut().enumerate() {
        *value = i as f32;
    }
    // The thread that watches needs a moment, however slow the machine is.
    while resident(&values) * 4096 > 96 << 20 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(values.iter().enumerate().all(|(i, value)| *value == i as f32));
}

#[test]
fn folders_that_cannot_be_used_are_refused() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    assert!(Folder::look(folder.path()).expect("a folder").free > 0);
    let missing = folder.path().join("missing");
    assert!(Folder::look(&missing).is_err() && Scratch::open(&Options::new(&missing, 1)).is_err());
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("written");
    assert!(Folder::look(&file).is_err());
    if std::path::Path::new("/dev/shm").is_dir() {
        assert!(Folder::look("/dev/shm".as_ref()).is_ok_and(|folder| folder.is_memory));
    }
}

//! Pickles written by hand, instruction by instruction; whole files are in `tests/corpus`.

use super::*;

fn interpret(bytes: &[u8]) -> Outcome<Pickle> {
    Pickle::interpret(Code::whole(bytes), &Limits::default())
}

/// Why the pickle is refused.
fn reason(bytes: &[u8], limits: &Limits) -> String {
    match Pickle::interpret(Code::whole(bytes), limits) {
        Err(Fault::Content(reason) | Fault::Limit(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// A storage of six floats named `0`, on the stack.
const STORAGE: &[u8] = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x06tQ";

/// The tensor of shape 2×3 in [`STORAGE`], and what else the function is given.
fn tensor(rest: &[u8]) -> Vec<u8> {
    let function = b"ctorch._utils\n_rebuild_tensor_v2\n(".as_slice();
    [function, STORAGE, b"K\x00K\x02K\x03\x86K\x03K\x01\x86", rest, b"tR"].concat()
}

#[test]
fn numbers_of_every_length_are_read_with_their_sign() {
    let number = |bytes: &[u8]| interpret(bytes).expect("a pickle").number();
    assert_eq!(number(b"K\xff."), Some(255));
    assert_eq!(number(b"M\x01\x02."), Some(0x201));
    assert_eq!(number(b"J\xfe\xff\xff\xff."), Some(-2));
    assert_eq!(number(b"\x8a\x00."), Some(0));
    assert_eq!(number(b"\x8a\x02\x00\x80."), Some(-0x8000));
    assert_eq!(number(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."), None, "too long");
}

#[test]
fn a_pickle_ends_at_its_stop_and_another_may_follow() {
    let bytes = b"K\x01.K\x02.";
    let first = interpret(bytes).expect("a pickle");
    assert_eq!((first.number(), first.end()), (Some(1), 3));
    let code = Code { bytes, start: first.end(), more: false };
    let second = Pickle::interpret(code, &Limits::default()).expect("another");
    assert_eq!((second.number(), second.end()), (Some(2), 6));
}

#[test]
fn a_tensor_is_found_under_the_path_of_its_keys() {
    let code = [b"}U\x01a](".as_slice(), &tensor(b"\x89}"), b"es."].concat();
    let pickle = interpret(&code).expect("a pickle");
    let tensors = pickle.tensors(&Limits::default()).expect("few");
    let [(name, layout)] = &tensors[..] else { panic!("{tensors:?}") };
    assert_eq!(name, "a.0");
    assert_eq!((&layout.sizes[..], &layout.strides[..]), (&[2, 3][..], &[3, 1][..]));
    assert_eq!((layout.storage.count, layout.offset), (6, 0));
    let claim = pickle.claim("0").expect("the storage was named");
    assert_eq!((&claim.class[..], claim.count), ("torch.FloatStorage", 6));
}

#[test]
fn tensors_that_metadata_may_change_are_passed_over() {
    let found = |rest: &[u8]| {
        let pickle = interpret(&[&tensor(rest)[..], b"."].concat()).expect("a pickle");
        pickle.tensors(&Limits::default()).expect("few").len()
    };
    assert_eq!(found(b""), 1);
    assert_eq!(found(b"\x89}N"), 1);
    assert_eq!(found(b"\x89}}"), 1);
    assert_eq!(found(b"\x89}}U\x04conj\x88s"), 0);
}

#[test]
fn calls_of_other_functions_give_nothing_and_run_nothing() {
    let pickle = interpret(b"cos\nsystem\nU\x04true\x85R.").expect("a pickle");
    assert!(pickle.tensors(&Limits::default()).expect("few").is_empty());
    assert_eq!((pickle.number(), pickle.names()), (None, None));
}

#[test]
fn nothing_is_taken_from_below_a_mark() {
    let limits = Limits::default();
    assert_eq!(
        reason(b"K\x01(0.", &limits),
        "its pickle, at byte 3: nothing is above its last mark"
    );
    assert_eq!(reason(b"t.", &limits), "its pickle, at byte 0: no mark is on its stack");
    assert_eq!(reason(b"h\x07.", &limits), "its pickle, at byte 0: nothing was remembered as 7");
}

#[test]
fn a_list_that_holds_itself_is_as_deep_as_is_allowed() {
    let pickle = interpret(b"]q\x00h\x00a.").expect("a pickle");
    let Err(Fault::Limit(reason)) = pickle.tensors(&Limits::default()) else { panic!("endless") };
    assert!(reason.contains("64 containers within containers"), "{reason}");
}

#[test]
fn instructions_are_counted_and_lengths_are_checked() {
    let limits = Limits { objects: 3, ..Limits::default() };
    assert!(reason(b"NNNN.", &limits).contains("more than 3 instructions"));
    assert!(reason(b"X\xff\xff\xff\xffabc", &limits).contains("cut short"));
    let code = Code { bytes: b"]]", start: 0, more: true };
    let Err(Fault::Limit(reason)) = Pickle::interpret(code, &limits) else { panic!("went on") };
    assert!(reason.contains("more than 2 bytes"), "{reason}");
}

#[test]
fn long_keys_that_are_shared_do_not_make_names_without_end() {
    // Twenty dictionaries in each other under one key of 200 bytes, around a list that holds one
    // tensor a hundred times: 400 kB of names in a pickle of less than 1 kB.
    let key = [b"U\xc8".as_slice(), &[b'k'; 200], b"q\x010"].concat();
    let tensor = [&tensor(b"")[..], b"q\x000"].concat();
    let code = [&key, &tensor, &b"}h\x01".repeat(20)[..], b"](", &b"h\x00".repeat(100), b"e"];
    let code = [&code.concat()[..], &b"s".repeat(20), b"."].concat();
    assert!(code.len() < 1000, "{}", code.len());
    let pickle = interpret(&code).expect("a pickle");
    assert_eq!(pickle.tensors(&Limits::default()).expect("few").len(), 100);
    let limits = Limits { header_bytes: 100_000, ..Limits::default() };
    let Err(Fault::Limit(reason)) = pickle.tensors(&limits) else { panic!("without end") };
    assert!(reason.contains("more than 100000 bytes in the names"), "{reason}");
}

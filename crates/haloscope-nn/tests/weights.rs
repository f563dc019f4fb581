//! What the readers of weights make of the files in `tests/corpus/`.

use std::path::{Path, PathBuf};

use haloscope_nn::weights::{Limits, StateDict};
use haloscope_nn::{Error, Result};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name)
}

fn open(name: &str) -> Result<StateDict> {
    StateDict::open(corpus(name), &Limits::default())
}

fn names(state: &StateDict) -> Vec<&str> {
    state.names().collect()
}

fn values<'a>(state: &'a StateDict, name: &str) -> &'a [f32] {
    state.get(name).unwrap_or_else(|| panic!("{name} among {:?}", names(state))).values()
}

#[test]
fn state_dict_is_read_by_name() {
    for file in ["plain.pth", "protocol4.pth"] {
        let state = open(file).expect("a good file");
        assert_eq!(names(&state), ["bias", "weight"], "{file}");
        assert_eq!(state.get("weight").expect("it is there").shape().sizes(), [3, 4]);
        assert_eq!(values(&state, "bias"), [0.5, -1.0, 2.0]);
        let counted: Vec<f32> = (0u8..12).map(f32::from).collect();
        assert_eq!(values(&state, "weight"), counted);
    }
}

#[test]
fn views_and_types_become_row_major_single_precision() {
    let state = open("views.pth").expect("a good file");
    assert_eq!(
        values(&state, "transposed"),
        [0.0, 4.0, 8.0, 1.0, 5.0, 9.0, 2.0, 6.0, 10.0, 3.0, 7.0, 11.0]
    );
    assert_eq!(values(&state, "part"), [4.0, 5.0, 6.0, 7.0]);
    assert_eq!(values(&state, "columns"), [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
    assert_eq!(values(&state, "expanded"), [3.0; 6]);
    assert_eq!(values(&state, "double"), [1.5, -2.5]);
    assert_eq!(values(&state, "half"), [0.099_975_586, 65504.0, 5.960_464_5e-8]);
    assert_eq!(values(&state, "bfloat"), [1.0, -3.0]);
    assert_eq!(values(&state, "long"), [-7.0]);
    assert_eq!(values(&state, "bytes"), [0.0, 255.0]);
    assert_eq!(values(&state, "flags"), [1.0, 0.0]);
    assert_eq!(values(&state, "parameter"), [4.0]);
    let empty = state.get("empty").expect("it is there");
    assert_eq!(empty.shape().sizes(), [0, 3]);
}

#[test]
fn training_checkpoint_gives_its_tensors_and_nothing_else() {
    let state = open("checkpoint.pth").expect("the rest is passed over");
    assert_eq!(names(&state), ["model.0.bias", "model.0.weight", "optimizer.state.7.mean"]);
    assert_eq!(names(&state.section("model.0")), ["bias", "weight"]);
}

#[test]
fn safetensors_file_is_read_by_name() {
    let state = open("plain.safetensors").expect("a good file");
    assert_eq!(names(&state), ["count", "double", "half", "weight"]);
    assert_eq!(values(&state, "half"), [0.5, -2.0]);
    assert_eq!(values(&state, "double"), [1e-3]);
    assert_eq!(values(&state, "count"), [5.0]);
}

#[test]
fn call_of_a_function_is_passed_over_and_not_made() {
    let state = open("calls_system.pth").expect("the tensor is good");
    assert_eq!(names(&state), ["weight"]);
    assert!(!Path::new("haloscope-was-here").exists());
}

#[test]
fn tensor_without_values_is_read_whatever_its_other_sizes() {
    let state = open("empty_far.pth").expect("it needs no memory");
    assert!(values(&state, "weight").is_empty());
}

#[test]
fn other_formats_are_named_with_a_way_out() {
    for (file, message) in [
        ("old.pth", "from before version 1.6, which is not read; rewrite it"),
        ("tar.pth", "a tar archive"),
        ("torchscript.pt", "save the model's state_dict()"),
        ("big_endian.pth", "byte order `big`; `little` is read"),
    ] {
        let error = open(file).expect_err("not read");
        assert!(matches!(error, Error::Unsupported { .. }), "{file}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(file) && text.contains(message), "{text}");
    }
}

#[test]
fn hostile_files_are_refused_with_a_reason() {
    for (file, message) in [
        ("huge_storage.pth", "bytes in a file of"),
        ("short_storage.pth", "bytes in a file of"),
        (
            "outside.pth",
            "shape 2×2 with strides [2, 1] from 0 does not fit its storage of 2 values",
        ),
        ("far_offset.pth", "does not fit its storage"),
        ("overflow.pth", "has more elements than memory can address"),
        ("no_storage.pth", "has no entry `archive/data/0`"),
        ("no_stop.pth", "its pickle is cut short"),
        ("empty_pickle.pth", "its pickle is cut short"),
        ("huge.safetensors", "not a valid safetensors file"),
        ("long_header.safetensors", "it is cut short: the header should have 4611686018427387904"),
        ("nested.safetensors", "not a valid safetensors file"),
    ] {
        let error = open(file).expect_err("hostile");
        assert!(matches!(error, Error::Content { .. }), "{file}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(file) && text.contains(message), "{text}");
    }
}

#[test]
fn files_that_ask_for_too_much_hit_a_limit() {
    for (file, message) in [
        ("expanded.pth", "bytes more"),
        ("many_axes.pth", "more than 8 axes"),
        ("cycle.pth", "64 containers within containers"),
        ("deep.pth", "64 containers within containers"),
        ("laughs.pth", "objects"),
    ] {
        let error = open(file).expect_err("too much");
        assert!(matches!(error, Error::Limit { .. }), "{file}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(file) && text.contains(message), "{text}");
    }
}

#[test]
fn each_limit_is_honoured() {
    let none = Limits::default();
    let cases = [
        (Limits { file_bytes: 100, ..none.clone() }, "at most 100 are allowed"),
        (Limits { header_bytes: 10, ..none.clone() }, "10"),
        (Limits { tensor_bytes: 20, ..none.clone() }, "at most 20 in all"),
        (Limits { tensors: 1, ..none.clone() }, "more than 1 tensors"),
        (Limits { axes: 1, ..none.clone() }, "more than 1 axes"),
    ];
    for file in ["plain.pth", "plain.safetensors"] {
        for (limits, message) in &cases {
            let error = StateDict::open(corpus(file), limits).expect_err("over the limit");
            assert!(matches!(error, Error::Limit { .. }), "{file}: {error:?}");
            assert!(error.to_string().contains(message), "{file}: {error}");
        }
    }
    for limits in [Limits { objects: 5, ..none.clone() }, Limits { depth: 1, ..none }] {
        let error = StateDict::open(corpus("checkpoint.pth"), &limits).expect_err("over it");
        assert!(matches!(error, Error::Limit { .. }), "{error:?}");
    }
}

#[test]
fn nonsense_and_missing_files_say_so() {
    let read = |bytes: &[u8]| {
        let source = std::io::Cursor::new(bytes.to_vec());
        StateDict::read(source, "nonsense.pth", &Limits::default()).expect_err("nonsense")
    };
    assert_eq!(
        read(b"").to_string(),
        "nonsense.pth: it is empty; safetensors files and what torch.save writes are read"
    );
    assert!(read(b"<html>not found</html>").to_string().contains("not a file of weights"));
    assert!(read(b"PK\x03\x04").to_string().contains("cut short or damaged"));
    let error = StateDict::open("no/such/file.pth", &Limits::default()).expect_err("no file");
    assert!(matches!(error, Error::Read { .. }), "{error:?}");
}

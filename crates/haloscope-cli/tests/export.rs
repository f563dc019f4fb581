//! `haloscope export`: the file that the library writes, and one line for what is wrong.

use std::fs;
use std::process::{Command, Output};

use haloscope_nn::models::Builtin;
use haloscope_onnx::{Size, encode};

fn haloscope(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    command.args(arguments).output().expect("the command starts")
}

#[test]
fn a_network_is_written_for_one_size_or_for_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gray.onnx").display().to_string();
    let model = Builtin::Gray.model().expect("built in");
    let fixed = Size::Fixed { batch: 2, sides: vec![33, 47] };
    let options: [(&[&str], Size); 2] =
        [(&["--size", "33x47", "--batch", "2"], fixed), (&["--dynamic"], Size::Dynamic)];
    for (options, size) in options {
        let done = haloscope(&[&["export", "builtin:gray", "--out", &path], options].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(text.contains("inputs: image and sigma"), "{text}");
        let expected = encode(&model, &size).expect("it can be exported");
        assert!(fs::read(&path).expect("the file") == expected);
    }
}

#[test]
fn mistakes_are_one_line_and_write_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx").display().to_string();
    for (arguments, words) in [
        (&["builtin:gray", "--size", "8x8x8"][..], "drunet takes height and width"),
        (&["builtin:grey", "--dynamic"], "builtin:gray and builtin:volume"),
        (&["builtin:gray"], "--size"),
        (&["builtin:gray", "--size", "8x8", "--batch", "0"], "at least 1 of each"),
    ] {
        let done = haloscope(&[&["export", "--out", &path], arguments].concat());
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{text}");
        assert!(!fs::exists(&path).expect("the folder"));
    }
}

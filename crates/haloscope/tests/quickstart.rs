//! The example of the README prints the same numbers on any number of thread ranks; `tests/mpi.rs` runs it under
//! mpirun.

use std::process::Command;

fn quickstart(arguments: &[&str]) -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.parent().and_then(|deps| deps.parent()).expect("the target folder");
    let output = Command::new(target.join("examples/quickstart"))
        .args(arguments)
        .output()
        .expect("the example starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_quick_start_prints_the_same_numbers_on_any_number_of_ranks() {
    let alone = quickstart(&[]);
    assert_eq!(alone.lines().count(), 6, "{alone}");
    for ranks in ["1", "2", "3", "5", "8"] {
        assert_eq!(quickstart(&["--ranks", ranks]), alone, "{ranks} ranks");
    }
}

#[test]
fn the_readme_shows_what_it_prints() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let printed = quickstart(&["--ranks", "3"]);
    assert!(readme.contains(&printed), "the README has other numbers than\n{printed}");
}

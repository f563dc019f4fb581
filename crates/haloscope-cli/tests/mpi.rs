//! The command under mpirun, from the launcher in `MPIRUN` (default `mpirun`).

use std::process::{Command, Output};

fn mpirun(ranks: usize, arguments: &[&str]) -> Output {
    let launcher = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    Command::new(launcher)
        .args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_haloscope")])
        .args(arguments)
        // Open MPI refuses to run as root, and to run more ranks than cores, unless told to.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .output()
        .expect("the launcher starts")
}

fn json(ranks: usize, arguments: &[&str]) -> serde_json::Value {
    let output = mpirun(ranks, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One document: only rank 0 speaks.
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

#[test]
fn info_names_the_ranks_and_the_library() {
    let info = json(2, &["info", "--json"]);
    assert_eq!(info["ranks"], 2);
    assert_eq!(info["problem"], serde_json::Value::Null);
    let library = info["mpi"].as_str().expect("a library");
    assert!(library.starts_with("Open MPI") || library.starts_with("MPICH"), "{library}");
}

#[test]
fn demo_gives_the_bits_of_one_rank_on_1_to_4_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    for problem in ["deblur", "tomography-2d", "tomography-3d", "super-resolution"] {
        let bits = |ranks| {
            let arguments = [
                "demo",
                "--problem",
                problem,
                "--size",
                "24",
                "--iterations",
                "8",
                "--json",
                "--out",
                &out,
            ];
            let demo = json(ranks, &arguments);
            assert_eq!(demo["ranks"], ranks);
            demo["bits"].clone()
        };
        let one = bits(1);
        assert!((2..=4).all(|ranks| bits(ranks) == one), "{problem}");
    }
}

#[test]
fn misuse_ends_all_processes_with_a_code_other_than_0() {
    let output = mpirun(2, &["demo", "--ranks", "2"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("one of the two"));
}

#[test]
fn a_study_on_processes_finds_the_images_of_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let launcher = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let arguments = "bench scaling --problem highres-color --sizes 32 --model drunet:2-2-2-2:1 --patch 16 --overlap 4 \
                     --operators 4 --iterations 2 --repetitions 1 --ranks 1,2,3 --backend threads,mpi";
    let output = Command::new(env!("CARGO_BIN_EXE_haloscope"))
        .args(arguments.split_whitespace())
        .args(["--out", &out, "--launcher", &format!("{launcher} -n")])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .output()
        .expect("the study starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Both kinds of ranks, two iterations, on one, two and three ranks; other images would have been an error.
    let rows = haloscope_study::results::read_rows(folder.path()).expect("rows");
    assert_eq!(rows.len(), 2 * 2 * 6);
    let text = std::fs::read(folder.path().join("provenance.json")).expect("provenance");
    let facts: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(facts["images"].as_object().map(serde_json::Map::len), Some(1), "{facts}");
    assert!(facts["links"]["mpi"]["latency_seconds"].as_f64() > Some(0.0), "{facts}");
}

//! Operators and denoisers over MPI processes give the bits of one rank.
//!
//! Runs `distributed_rank` under the launcher in `MPIRUN` (default `mpirun`), which must belong to the MPI
//! library of the build.

mod suite;

use std::process::Command;

use haloscope_comm::Context;

#[test]
fn every_operation_has_the_same_bits_on_1_to_4_processes() {
    let alone: Vec<String> = suite::facts(&Context::solo())
        .expect("one rank")
        .into_iter()
        .map(|(name, bits)| format!("{bits:016x} {name}"))
        .collect();
    let launcher = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("the target folder");
    for ranks in 1..=4 {
        let output = Command::new(&launcher)
            .args(["-n", &ranks.to_string()])
            .arg(folder.join("examples/distributed_rank"))
            // Open MPI refuses to run as root, and to run more ranks than cores, unless told to.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .output()
            .expect("the launcher starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let facts: Vec<&str> = text.lines().collect();
        assert_eq!(facts, alone, "{ranks} processes");
    }
}

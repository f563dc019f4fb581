//! `haloscope plan` and `check` of jobs whose image is in shards: what both layouts take, in words and as JSON, and that a run sends
//! what the plan says.

mod jobs;

use jobs::{Folder, haloscope, json, npy, text};
use serde_json::Value;

const RANKS: usize = 4;

/// A job with its frames, and whether parts of the image exchange halos between layers.
fn jobs(folder: &Folder) -> [(&'static str, String, bool); 3] {
    folder.write("frame.npy", npy(&[96, 112], |index| (index % 112 / 16 % 2) as f32));
    folder.write("scan.npy", npy(&[24, 64], |index| ((index % 64) as f32 / 9.0).sin().abs()));
    let frames = "image = 'sharded'\n[measurements]\nfiles = ['frame.npy', 'frame.npy']\n\
         [[operators]]\nkind = 'blur'\nkernel = 'gaussian'\nsigma = 1.2\n\
         [[operators]]\nkind = 'identity'\n[stop]\niterations = 3\n[output]\nfile = 'image.npy'\n";
    let network =
        "[prior]\nkind = 'network'\nmodel = 'random:dncnn:8:4'\n[solver]\nmethod = 'pgd'\n";
    let variation = "[prior]\nkind = 'total-variation'\nweight = 0.01\niterations = 10\ntolerance = 0.0\n\
         [solver]\nmethod = 'pgd'\n";
    let scan = "image = 'sharded'\n[measurements]\nfiles = 'scan.npy'\n[[operators]]\nkind = 'parallel-beam'\nangles = 24\n\
         groups = 2\n[stop]\niterations = 3\n[output]\nfile = 'image.npy'\n";
    [
        ("network", format!("{frames}{network}"), true),
        ("variation", format!("{frames}{variation}"), false),
        ("scan", format!("{scan}{network}"), true),
    ]
}

/// Runs the command on a job, on all ranks.
fn with_ranks(command: &str, job: &str, more: &[&str]) -> std::process::Output {
    let ranks = RANKS.to_string();
    haloscope(&[&[command, job, "--ranks", &ranks], more].concat())
}

/// The numbers of a layout.
fn costs(layout: &Value, name: &str) -> [u64; 3] {
    ["halo_rounds", "bytes_sent", "memory_bytes"]
        .map(|key| layout[name][key].as_u64().unwrap_or_else(|| panic!("{name}, {key}: {layout}")))
}

#[test]
fn the_plan_of_an_image_in_shards_compares_both_layouts() {
    let folder = Folder::new();
    for (name, content, has_halos) in jobs(&folder) {
        let job = folder.write(&format!("{name}.toml"), content);
        let report = json(&with_ranks("plan", &job, &["--json"]));
        let plan = &report["plan"];
        let layout = &plan["layout"];
        assert_eq!(
            (&layout["is_sharded"], &layout["reason"]),
            (&true.into(), &"the job says so".into())
        );
        // The grid has a part for each rank, of which none is less than a fair share.
        let grid = layout["sharded"]["grid"].as_array().expect("a list");
        let parts: u64 = grid.iter().map(|side| side.as_u64().expect("a number")).product();
        assert!((2..=RANKS as u64).contains(&parts), "{name}: {layout}");
        let load = layout["sharded"]["largest_load"].as_f64().expect("a number");
        assert!((1.0..=RANKS as f64).contains(&load), "{name}: {layout}");
        let [whole, shards] = ["replicated", "sharded"].map(|name| costs(layout, name));
        for [rounds, sent, memory] in [whole, shards] {
            assert_eq!(rounds > 0, has_halos, "{name}: {layout}");
            assert!(sent > 0 && memory > 0, "{name}: {layout}");
        }
        // Of each rank, too.
        let ranks = plan["ranks"].as_array().expect("a list");
        assert_eq!(ranks.len(), RANKS, "{name}");
        let of_ranks = |key: &str| -> Vec<u64> {
            ranks.iter().map(|rank| rank[key].as_u64().expect("a number")).collect()
        };
        assert_eq!(of_ranks("bytes_sent_per_iteration").iter().max(), Some(&shards[1]), "{name}");
        assert!(of_ranks("memory_bytes").iter().all(|bytes| *bytes > 0), "{name}");
        assert_eq!(plan["largest_memory_bytes"], shards[2], "{name}");
        assert_eq!(plan["halo_rounds"], shards[0], "{name}");

        // A run sends what the plan says, and a byte to each other rank that says whether a checkpoint is due.
        let summary = json(&with_ranks("reconstruct", &job, &["--json"]));
        let iterations = summary["iterations"].as_u64().expect("a number");
        let sent = of_ranks("bytes_sent_per_iteration").iter().sum::<u64>();
        let moved = summary["megabytes_moved"].as_f64().expect("a number") * 1e6;
        let (moved, foretold) = (moved.round() as u64, iterations * (sent + RANKS as u64 - 1));
        // Of total variation the plan says what it sends at most.
        let least = if has_halos { foretold } else { foretold * 95 / 100 };
        assert!((least..=foretold).contains(&moved), "{name}: {moved} of {foretold}");

        let grid: Vec<String> = grid.iter().map(ToString::to_string).collect();
        for command in ["plan", "check"] {
            let output = with_ranks(command, &job, &[]);
            assert!(output.status.success(), "{name}: {}", text(&output.stderr));
            let words = text(&output.stdout);
            let said = words.lines().any(|line| {
                line.starts_with("layout") && line.ends_with("sharded, because the job says so")
            });
            assert!(said, "{name}: {words}");
            let row = |start: &str| {
                let rows = words.lines().map(str::trim_start);
                let row =
                    rows.clone().find(|row| row.starts_with(start) && !row.contains("because"));
                row.unwrap_or_else(|| panic!("{name}, {command}, {start}: {words}")).to_owned()
            };
            let header = row("parts  largest load");
            for column in
                ["parts", "largest load", "halo rounds", "sent by a rank", "memory of a rank"]
            {
                assert!(header.contains(column), "{name}: {header}");
            }
            for (layout, [rounds, ..]) in [("replicated  ", whole), ("sharded  ", shards)] {
                let row = row(layout);
                let cells: Vec<&str> =
                    row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
                assert_eq!(cells.len(), 6, "{name}: {row}");
                assert_eq!(cells[3], rounds.to_string(), "{name}: {row}");
                let has_unit =
                    |cell: &str| ["kB", "MB", "GB"].iter().any(|unit| cell.ends_with(unit));
                assert!(has_unit(cells[4]) && has_unit(cells[5]), "{name}: {row}");
                if layout.starts_with("sharded") {
                    assert_eq!(cells[1], grid.join("x"), "{name}: {row}");
                    assert_eq!(cells[2], format!("{load:.2}"), "{name}: {row}");
                }
            }
        }
        let words = text(&with_ranks("plan", &job, &[]).stdout);
        // A network on parts is exact: no tiles are announced.
        assert_eq!(
            words.contains("\nparts  ") && words.contains("\nhalos  "),
            has_halos,
            "{words}"
        );
        assert!(!words.contains("\ntiles  "), "{words}");
    }
}

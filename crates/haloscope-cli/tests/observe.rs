//! What the command tells while it runs and before: timelines, events for programs, and plans.

use std::process::{Command, Output};

use serde_json::Value;

fn haloscope(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haloscope"));
    for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"] {
        command.env_remove(name);
    }
    command.args(arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(arguments: &[&str]) -> Value {
    let output = haloscope(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

/// A small demo on two ranks, in a folder of its own, and what it wrote to standard error.
fn demo(folder: &std::path::Path, options: &[&str]) -> (Value, String) {
    let out = folder.join("pictures").display().to_string();
    let small =
        ["demo", "--size", "24", "--iterations", "4", "--ranks", "2", "--json", "--out", &out];
    let output = haloscope(&[&small[..], options].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).expect("JSON"), text(&output.stderr))
}

#[test]
fn a_trace_has_a_file_for_each_rank_that_shows_its_work_and_its_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let traces = folder.path().join("traces");
    let (report, _) =
        demo(folder.path(), &["--model", "tv", "--trace", &traces.display().to_string()]);
    for rank in 0..2_usize {
        let file = std::fs::read(traces.join(format!("rank-{rank}.json"))).expect("a file");
        let file: Value = serde_json::from_slice(&file).expect("JSON");
        let events = file["traceEvents"].as_array().expect("a list");
        let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        let named = |name: &str| spans.iter().filter(|span| span["name"] == name).count();
        assert_eq!(named("iteration"), 4);
        for name in ["forward", "adjoint", "prior", "reduction", "ordered_sum", "all_gather"] {
            assert!(named(name) >= 4, "{name} on rank {rank}");
        }
        let call = spans.iter().find(|span| span["name"] == "ordered_sum").expect("a call");
        assert_eq!(call["cat"], "communication");
        assert!(call["args"]["bytes sent"].as_f64() > Some(0.0));
        assert!(call["args"]["waiting in µs"].is_number());
        assert!(spans.iter().all(|span| span["pid"] == rank));

        // The records and the spans of the iterations are of the same work, by two clocks.
        let total: f64 = spans
            .iter()
            .filter(|span| span["name"] == "iteration")
            .filter_map(|span| span["dur"].as_f64())
            .sum();
        let summary = &report["per_rank"][rank];
        let parts = ["data_seconds", "prior_seconds", "rest_seconds"];
        let seconds: f64 = parts.iter().filter_map(|part| summary[part].as_f64()).sum();
        assert!(seconds > 0.0 && total / 1e6 >= 0.5 * seconds, "{total} and {seconds}");
    }
}

#[test]
fn a_trace_of_an_image_in_shards_shows_each_exchange_with_its_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = "image = \"sharded\"\n[measurements]\nphantom = \"landscape\"\nsize = [96, 80]\n\
               [[operators]]\nkind = \"blur\"\nkernel = \"gaussian\"\nsigma = 1.2\n\
               [prior]\nkind = \"network\"\nmodel = \"random:dncnn:8:4\"\n[solver]\nmethod = \"pgd\"\n\
               [start]\nkind = \"zeros\"\n[stop]\niterations = 3\n[output]\nfile = \"image.npy\"\n";
    let path = folder.path().join("job.toml");
    std::fs::write(&path, job).expect("a file");
    let traces = folder.path().join("traces").display().to_string();
    let path = path.display().to_string();
    let output = haloscope(&["reconstruct", &path, "--ranks", "2", "--trace", &traces]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [mut halos, mut windows] = [0; 2];
    for rank in 0..2 {
        let file = std::fs::read(format!("{traces}/rank-{rank}.json")).expect("a file");
        let file: Value = serde_json::from_slice(&file).expect("JSON");
        let events = file["traceEvents"].as_array().expect("a list");
        // What an exchange says that it sends is what the call in it counts.
        let within = |span: &Value, call: &Value| {
            let end = |one: &Value| one["ts"].as_f64().zip(one["dur"].as_f64()).map(|(a, b)| a + b);
            call["tid"] == span["tid"]
                && call["ts"].as_f64() >= span["ts"].as_f64()
                && end(call) <= end(span)
        };
        for (name, count) in [("halo", &mut halos), ("window", &mut windows)] {
            for span in events.iter().filter(|event| event["name"] == name) {
                let call =
                    events.iter().find(|event| event["name"] == "exchange" && within(span, event));
                let call = call.expect("a call");
                assert_eq!(span["args"]["bytes"], call["args"]["bytes sent"], "{span} and {call}");
                assert!(span["args"]["bytes"].as_f64() > Some(0.0), "{span}");
                *count += 1;
            }
        }
    }
    // Four layers of each of three passes on both ranks; a forward and an adjoint of each iteration, and those of the norm.
    assert_eq!(halos, 4 * 3 * 2);
    assert!(windows >= 2 * 3 * 2, "{windows}");
}

#[test]
fn events_for_programs_are_a_json_object_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, lines) = demo(folder.path(), &["--log", "json"]);
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let named = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((named("started"), named("iteration"), named("finished")), (1, 4, 1), "{lines}");
    let last = events.iter().rfind(|event| event["event"] == "iteration").expect("four");
    assert_eq!(last["iteration"], 4);
    assert!(last["seconds"]["data"].as_f64() > Some(0.0));
    assert!(last["psnr_db"].is_f64() && last["ssim"].is_f64(), "{last}");
    let plan = events.iter().find(|event| event["event"] == "plan").expect("a plan");
    let ranks = plan["ranks"].as_array().expect("two ranks");
    let most = ranks.iter().filter_map(|rank| rank["memory_bytes"].as_u64()).max();
    // The truth and the picture of the measurements are held beside the iterations.
    assert!(ranks.len() == 2 && plan["rank_bytes"].as_u64() > most, "{plan}");
    assert_eq!(last["rank"], 0, "the events of iterations are those of the first rank");

    let refused = haloscope(&["demo", "--log", "json", "--model", "none"]);
    assert_eq!(refused.status.code(), Some(2));
    let failed = haloscope(&["plan", "--size", "64x64", "--model", "nowhere.pth", "--log", "json"]);
    let event: Value = serde_json::from_slice(&failed.stderr).expect("one object");
    assert_eq!((event["event"].as_str(), event["exit_code"].as_i64()), (Some("error"), Some(2)));
    assert!(event["message"].as_str().is_some_and(|message| message.contains("nowhere.pth")));
}

#[test]
fn every_iteration_of_every_rank_is_in_the_result_and_in_the_last_event() {
    let folder = tempfile::tempdir().expect("a folder");
    let (report, lines) = demo(folder.path(), &["--model", "tv", "--log", "json"]);
    let ranks = report["per_rank"].as_array().expect("a list");
    assert_eq!(ranks.len(), 2);
    for (rank, summary) in ranks.iter().enumerate() {
        let records = summary["records"].as_array().expect("a list");
        let numbers: Vec<u64> =
            records.iter().filter_map(|record| record["iteration"].as_u64()).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        for record in records {
            assert_eq!(record["rank"], rank);
            assert!(record["data_term"].is_f64() && record["relative_change"].is_f64(), "{record}");
            assert!(record["psnr_db"].is_f64() && record["ssim"].is_f64(), "{record}");
            assert!(record["peak_bytes"].as_u64() > Some(0), "{record}");
            for part in ["total", "data", "prior", "communication", "waiting"] {
                assert!(record["seconds"][part].as_f64() >= Some(0.0), "{part}: {record}");
            }
        }
        // The totals are those of the records.
        let data: f64 = records.iter().filter_map(|one| one["seconds"]["data"].as_f64()).sum();
        let total = summary["data_seconds"].as_f64().expect("a number");
        assert!((data - total).abs() <= 1e-9 * total, "{data} and {total}");
    }
    let last = lines.lines().last().expect("events");
    let finished: Value = serde_json::from_str(last).expect("an object");
    assert_eq!(finished["event"], "finished");
    assert_eq!(finished["per_rank"], report["per_rank"]);
}

#[test]
fn a_plan_tells_tiles_memory_messages_and_what_would_be_better() {
    let arguments = [
        "plan",
        "--size",
        "512x384",
        "--operators",
        "3",
        "--model",
        "dncnn",
        "--patch",
        "64",
        "--overlap",
        "20",
        "--ranks",
        "2",
        "--threads",
        "1",
    ];
    let report = json(&[&arguments[..], &["--json"]].concat());
    let plan = &report["plan"];
    assert_eq!((plan["tiles"].as_u64(), &plan["grid"]), (Some(48), &serde_json::json!([8, 6])));
    assert_eq!(plan["window"], serde_json::json!([99, 98]));
    let work = 48.0 * 99.0 * 98.0 / (512.0 * 384.0);
    assert!((plan["work_multiplier"].as_f64().expect("a number") - work).abs() < 1e-9);
    assert_eq!(report["network"]["receptive_radius"], 20);
    let rank = &plan["ranks"][0];
    assert_eq!((rank["operators"].as_u64(), rank["tiles"].as_u64()), (Some(2), Some(24)));
    let parts = rank["memory"].as_object().expect("parts");
    let sum: u64 = parts.values().filter_map(Value::as_u64).sum();
    assert_eq!(Some(sum), rank["memory_bytes"].as_u64());

    // The best alternative gives the slowest rank the least.
    let loads: Vec<f64> = report["alternatives"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|plan| plan["largest_load"].as_f64())
        .collect();
    assert!(loads.windows(2).all(|pair| pair[0] <= pair[1]), "{loads:?}");
    assert!(loads[0] < plan["largest_load"].as_f64().expect("a number"));
    let advice = report["recommendation"].as_str().expect("words");
    assert!(advice.contains("use --strategy exact"), "{advice}");

    let ranks = report["other_ranks"].as_array().expect("a list").iter();
    let ranks: Vec<usize> =
        ranks.filter_map(|plan| plan["ranks"].as_array().map(Vec::len)).collect();
    assert_eq!(ranks, [1, 4, 8]);

    let words = text(&haloscope(&arguments).stdout);
    for word in ["48 (8x6), windows of 99x98", "advice", "messages", "weights"] {
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn a_plan_has_the_tiles_of_a_job_that_asks_for_none() {
    let plan = |options: &[&str]| {
        let arguments = ["plan", "--model", "drunet:8-8-8-8:1", "--threads", "1", "--json"];
        let mut report = json(&[&arguments[..], options].concat());
        report["plan"].take()
    };
    let tiles = |plan: &Value| [&plan["patch"], &plan["grid"], &plan["overlap"]].map(Value::clone);
    // None, as far as it can be exact.
    let exact = plan(&["--size", "600x512", "--ranks", "1"]);
    assert_eq!((&exact["strategy"], &exact["work_multiplier"]), (&"exact".into(), &1.0.into()));
    let plan = |options: &[&str]| plan(&[options, &["--strategy", "overlap"]].concat());
    let alone = plan(&["--size", "600x512", "--ranks", "1"]);
    let standard = [Value::from("standard"), serde_json::json!([3, 2]), Value::from(32)];
    assert_eq!(tiles(&alone), standard);
    let five = plan(&["--size", "600x512", "--ranks", "5"]);
    assert_eq!(tiles(&five), standard);
    assert_eq!(alone["window"], five["window"]);
    // Only on demand do they depend on the ranks.
    let auto = |ranks| plan(&["--size", "600x512", "--patch", "auto", "--ranks", ranks]);
    assert_ne!(auto("1")["grid"], auto("5")["grid"]);
    let volume = plan(&["--size", "96x64x64", "--channels", "1", "--ranks", "2"]);
    assert_eq!((&volume["grid"], &volume["overlap"]), (&serde_json::json!([2, 1, 1]), &16.into()));
}

#[test]
fn a_plan_promises_no_speed_where_nothing_can_be_shared() {
    let arguments = ["plan", "--size", "64x64", "--ranks", "4"];
    let report = json(&[&arguments[..], &["--json"]].concat());
    let plans = report["other_ranks"].as_array().expect("a list");
    // One operator stays one on one rank, and no network has pixels to share.
    for plan in plans {
        assert_eq!((&plan["most_operators"], &plan["most_tiles"]), (&1.into(), &0.into()));
        assert_eq!(plan["largest_load"], 0.0);
    }
    let words = text(&haloscope(&arguments).stdout);
    assert!(!words.contains("fast as") && !words.contains("times"), "{words}");
    assert_eq!(words.matches("1 of 1 ").count(), plans.len(), "{words}");
    assert!(words.contains("total variation is computed whole on every rank"), "{words}");
    assert!(words.contains("advice     use fewer ranks: 3 of 4 have no operator\n"), "{words}");

    let shared = ["plan", "--size", "64x64", "--ranks", "4", "--operators", "6"];
    let words = text(&haloscope(&[&shared[..], &["--model", "dncnn"]].concat()).stdout);
    // On 1, 2, 8 and 16 ranks.
    for share in ["6 of 6 ", "3 of 6 ", "1 of 6 "] {
        assert!(words.contains(share), "{share} is not in {words}");
    }
    assert!(words.contains("pixels are those that its network computes"), "{words}");
}

#[test]
fn a_plan_that_is_too_large_for_this_machine_says_so() {
    // 4 TB for each array.
    let huge = ["plan", "--size", "1000000x1000000", "--channels", "1"];
    let output = haloscope(&huge);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let message = text(&output.stderr);
    assert!(message.starts_with("haloscope: nothing fits in the "), "{message}");
    assert!(message.ends_with(" that are available on this machine\n"), "{message}");
    let words = text(&output.stdout);
    assert!(words.contains("advice     nothing fits") && words.contains("  too much"), "{words}");
    // Ranks of other machines may have more.
    let elsewhere = haloscope(&[&huge[..], &["--memory-budget", "900000GB"]].concat());
    assert!(elsewhere.status.success(), "{}", text(&elsewhere.stderr));
    assert!(text(&elsewhere.stdout).contains("advice     it is fine as it is"));
}

#[test]
fn a_plan_for_a_budget_that_is_too_small_says_what_would_fit() {
    let small =
        ["plan", "--size", "256x256", "--model", "dncnn", "--memory-budget", "1MB", "--json"];
    let output = haloscope(&small);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "haloscope: nothing fits in 1.0 MB on each rank\n");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the plan all the same");
    let advice = report["recommendation"].as_str().expect("words");
    assert!(advice.contains("nothing fits in 1.0 MB"), "{advice}");
    assert_eq!(report["plan"]["fits"], false);

    let volume = ["plan", "--size", "64x64x32", "--channels", "1", "--json"];
    let report = json(&volume);
    assert_eq!(
        (&report["network"], report["solver"].as_str()),
        (&Value::Null, Some("primal-dual"))
    );
    for (arguments, words) in [
        (&["plan", "--size", "64"][..], "1024x1024"),
        (&["plan", "--size", "64x64", "--solver", "newton"], "primal-dual"),
        (&["plan", "--size", "64x64", "--solver", "cg", "--model", "dncnn"], "leave --model out"),
        (&["plan", "--size", "64x64", "--strategy", "quilt"], "blend"),
        (&["plan", "--size", "64x64", "--ranks", "0"], "from 1 to"),
    ] {
        let output = haloscope(arguments);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
}

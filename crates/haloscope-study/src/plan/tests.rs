//! What studies are made of, on small sizes.

use super::*;
use crate::row::{Layout, Mode};
use haloscope_job::{DeviceChoice, Distribution};

fn scaling() -> ScalingStudy {
    ScalingStudy {
        problems: vec![Problem::Deblur, Problem::Tomography3d],
        sizes: vec![16.into()],
        ranks: vec![1, 2],
        modes: vec![Mode::Strong, Mode::Weak],
        backends: vec![Backend::Threads],
        distribute: vec![Distribution::Both],
        layouts: vec![Layout::Replicated],
        untiled: false,
        model: None,
        patch: None,
        overlap: None,
        batch: Some(1),
        operators: 4,
        device: DeviceChoice::Cpu,
        threads: 1,
        repetitions: 3,
        full: false,
        counts_only: false,
        settings: Settings::default(),
    }
}

#[test]
fn weak_studies_grow_with_the_ranks_and_strong_ones_do_not() {
    let trials = scaling().trials().expect("trials");
    let sides: Vec<Vec<usize>> = trials.iter().map(|trial| trial.configuration.sides()).collect();
    assert_eq!(sides[..4], [[16, 16], [16, 16], [16, 16], [16, 32]]);
    assert_eq!(sides[4..], [[16, 16, 16], [16, 16, 16], [16, 16, 16], [32, 16, 16]]);
    assert_eq!(trials[0].repetitions, [0, 1, 2]);
}

#[test]
fn tiles_are_those_of_jobs_that_have_some() {
    // Lengths that nobody gives are the usual ones.
    let study = ScalingStudy { sizes: vec![], ..scaling() };
    let tiles = |of: &Configuration| (of.patch, of.overlap, of.batch);
    let trials = study.trials().expect("trials");
    for Trial { configuration, .. } in &trials {
        let expected = match configuration.problem {
            Some(Problem::Deblur) => (Some(192), Some(32), Some(1)),
            _ => (Some(40), Some(16), Some(1)),
        };
        assert_eq!(tiles(configuration), expected, "{configuration}");
        // As many for each rank, in a longer image.
        let all = if configuration.depth.is_some() { 8 } else { 4 };
        let ranks = if configuration.mode == Some(Mode::Weak) { configuration.ranks } else { 1 };
        assert_eq!(tiles::plan(configuration).expect("tiles").len(), all * ranks);
    }
    let given = ScalingStudy { patch: Some(96), overlap: Some(8), batch: None, ..study };
    let given = given.trials().expect("trials").remove(0).configuration;
    assert_eq!(tiles(&given), (Some(96), Some(8), None));
}

#[test]
fn images_have_no_tiles_if_their_jobs_have_none() {
    let model = Some("drunet:2-2-2-2:1".parse().expect("a network"));
    let study = ScalingStudy { batch: None, untiled: true, model, ..scaling() };
    let trials = study.trials().expect("trials");
    // The image in one piece is the one on one rank.
    assert_eq!(trials.len(), 8);
    assert!(trials.iter().all(|trial| trial.configuration.patch.is_none()));
    let huge =
        ScalingStudy { sizes: vec![32_768.into()], problems: vec![Problem::Deblur], ..study };
    // Nor has one that is denoised in waves.
    let huge = huge.trials().expect("trials").remove(1).configuration;
    assert_eq!((huge.patch, huge.overlap), (None, None));
}

#[test]
fn the_image_in_one_piece_is_measured_once_and_each_way_to_share_on_all_ranks() {
    let study = ScalingStudy {
        problems: vec![Problem::Deblur],
        modes: vec![Mode::Strong],
        backends: vec![Backend::Threads, Backend::Mpi],
        distribute: vec![Distribution::Both, Distribution::Denoiser],
        untiled: true,
        ..scaling()
    };
    let trials = study.trials().expect("trials");
    let whole = &trials[0].configuration;
    assert_eq!((whole.patch, whole.ranks, whole.backend), (None, 1, Backend::Solo));
    assert_eq!(trials.len(), 1 + 2 * 2 * 2);
    let shared: Vec<_> = trials[1..5].iter().map(|trial| trial.configuration.distribute).collect();
    let (both, denoiser) = (Some(Distribution::Both), Some(Distribution::Denoiser));
    assert_eq!(shared, [both, both, denoiser, denoiser]);
    let tiled = trials[1..].iter().all(|trial| trial.configuration.patch.is_some());
    assert!(tiled);
}

#[test]
fn shards_are_measured_beside_whole_images_and_have_no_tiles() {
    let layouts = vec![Layout::Replicated, Layout::Sharded];
    let model = Some("dncnn:4:3".parse().expect("a network"));
    let study = ScalingStudy { layouts, model, batch: None, ..scaling() };
    let deblur = ScalingStudy { problems: vec![Problem::Deblur], ..study.clone() };
    let trials = deblur.trials().expect("trials");
    let of_strong = |trial: &&Trial| trial.configuration.mode == Some(Mode::Strong);
    let found: Vec<_> = trials
        .iter()
        .filter(of_strong)
        .map(|trial| (trial.configuration.layout, trial.configuration.ranks))
        .collect();
    let [whole, parts] = [Layout::Replicated, Layout::Sharded].map(Some);
    assert_eq!(found, [(whole, 1), (whole, 2), (parts, 1), (parts, 2)]);
    let job = trials[2].job_text().expect("a job");
    assert!(job.contains("layout = \"sharded\""), "{job}");
    for (study, words) in [
        (ScalingStudy { batch: Some(1), ..deblur.clone() }, "no tiles"),
        (ScalingStudy { distribute: vec![Distribution::Physics], ..deblur }, "distribute both"),
    ] {
        let error = study.trials().expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn gray_problems_get_the_network_for_their_images() {
    let color = ModelName::Builtin(Builtin::Color);
    assert_eq!(suiting(&color, Problem::Deblur), color);
    let [gray, volume] = [Builtin::Gray, Builtin::Volume].map(ModelName::Builtin);
    assert_eq!(suiting(&color, Problem::Tomography2d), gray);
    assert_eq!(suiting(&color, Problem::Tomography3d), volume);
    // That takes the channels of a picture one by one.
    assert_eq!(suiting(&gray, Problem::SuperResolution), gray);
}

#[test]
fn empty_and_impossible_studies_are_refused_before_they_begin() {
    let with_volume = Settings { volume: Some("digest".into()), ..Settings::default() };
    for (study, words) in [
        (ScalingStudy { ranks: vec![0], ..scaling() }, "at least 1"),
        (ScalingStudy { untiled: true, device: DeviceChoice::Auto, ..scaling() }, "CPU engine"),
        (ScalingStudy { problems: vec![], ..scaling() }, "no configuration"),
        (ScalingStudy { patch: Some(0), ..scaling() }, "patch size 0"),
        (ScalingStudy { operators: 49, ..scaling() }, "1 to 48"),
        (ScalingStudy { repetitions: 0, ..scaling() }, "0 repetitions"),
        (ScalingStudy { settings: with_volume, ..scaling() }, "deblur is asked for"),
        (ScalingStudy { distribute: vec![Distribution::Physics], ..scaling() }.counting(), "both"),
        (ScalingStudy { modes: vec![Mode::Contention], ..scaling() }.counting(), "side by side"),
    ] {
        let error = study.trials().expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_deepinv_cannot_do_is_refused() {
    let cut = |cut, system: &str, problem, size: &str| {
        let study = CompareStudy {
            systems: vec![system.into()],
            problems: vec![problem],
            sizes: vec![size.parse().expect("a size")],
            ranks: vec![1],
            cuts: vec![cut],
            model: Some("dncnn:4:3".parse().expect("a network")),
            operators: 2,
            threads: 1,
            repetitions: 1,
            full: false,
            settings: Settings::default(),
        };
        study.trials().map(|trials| trials.len()).map_err(|error| error.to_string())
    };
    let study = |system: &str, problem, size: &str| cut(Cutting::Whole, system, problem, size);
    for (problem, size) in [(Problem::Tomography2d, "16x24"), (Problem::Tomography3d, "16x16x24")] {
        let error = study("deepinv", problem, size).expect_err("refused");
        assert!(error.contains(size) && error.contains("24x24"), "{error}");
        assert_eq!(study("haloscope", problem, size), Ok(1));
    }
    assert_eq!(study("deepinv", Problem::Tomography3d, "8x16x16"), Ok(1));
    assert_eq!(study("deepinv", Problem::Deblur, "16x24"), Ok(1));

    let tiles = |system: &str, size: &str| cut(Cutting::Tiles, system, Problem::Deblur, size);
    let error = tiles("deepinv", "600x32").expect_err("refused");
    assert!(error.contains("600x32") && error.contains("larger than a tile"), "{error}");
    assert_eq!((tiles("haloscope", "600x32"), tiles("deepinv", "600")), (Ok(1), Ok(1)));
}

#[test]
fn levels_are_numbers_that_a_network_can_be_given() {
    let study = |levels: &[f64]| {
        let study = OverlapStudy {
            models: vec!["dncnn:4:3".parse().expect("a network")],
            size: 32,
            patches: vec![16],
            overlaps: vec![0, 4],
            levels: levels.to_vec(),
            threads: 1,
            repetitions: 2,
            settings: Settings::default(),
        };
        study.trials().map_err(|error| error.to_string())
    };
    let trials = study(&[0.1]).expect("trials");
    assert!(trials.len() == 2 && trials[0].repetitions == [0, 1]);
    for level in [0.0, -0.1, f64::NAN, 1e-60, 1e60] {
        let error = study(&[0.1, level]).expect_err("refused");
        assert!(error.contains("above 0"), "{error}");
    }
    assert!(study(&[]).expect_err("refused").contains("levels"));
}

#[test]
fn widths_are_those_of_both_steps() {
    assert_eq!(MemoryStudy::widths(512), [256, 320, 324, 384, 392, 448, 460, 512]);
    assert_eq!(MemoryStudy::widths(2048).len(), 17 + 16 - 1);
}

#[test]
fn batches_are_not_larger_than_the_image() {
    let study = BatchStudy {
        models: vec!["dncnn:4:2".parse().expect("a network")],
        size: 64,
        patches: vec![16, 32],
        batches: vec![1, 4, 16],
        overlap: 0,
        device: DeviceChoice::Cpu,
        threads: 1,
        repetitions: 1,
        settings: Settings::default(),
    };
    let trials = study.trials().expect("trials");
    let batches = |trials: &[Trial]| -> Vec<Option<usize>> {
        trials.iter().map(|trial| trial.configuration.batch).collect()
    };
    assert_eq!(batches(&trials), [1, 4, 16, 1, 4].map(Some));
    // With an overlap of 8 on either side, 9 patches of 16 are enough.
    let trials = BatchStudy { overlap: 8, ..study }.trials().expect("trials");
    assert_eq!(batches(&trials), [1, 4, 1, 4].map(Some));
}

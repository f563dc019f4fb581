//! Messages that are counted, those that the plan of a job foretells, and those of the model: the same to the byte, on more ranks than
//! cores. Scans in shards are studied like everything else.

mod ask;

use ask::{measure, study};
use haloscope_job::Distribution;
use haloscope_study::counts::Counts;
use haloscope_study::model::{Cluster, Contention, predicted_rows};
use haloscope_study::plan::ScalingStudy;
use haloscope_study::problem::{PROBLEMS, Problem};
use haloscope_study::row::{Configuration, Layout, Mode, Row, Study};
use haloscope_study::trial::{LinkSpeed, Trial};

/// A study of images that are cut into parts, of a network that can be exact, in both layouts.
fn in_parts(problem: Problem, ranks: Vec<usize>) -> ScalingStudy {
    let size = if problem == Problem::Tomography3d { 24 } else { 96 };
    ScalingStudy {
        sizes: vec![size.into()],
        model: Some("dncnn:4:3".parse().expect("a network")),
        patch: None,
        overlap: None,
        batch: None,
        layouts: vec![Layout::Replicated, Layout::Sharded],
        ..study(problem, ranks, Mode::Strong)
    }
}

#[test]
fn every_rank_sends_what_the_plan_foretells() {
    for problem in PROBLEMS {
        let study = in_parts(problem, vec![1, 2, 3, 5, 16]).counting();
        for trial in study.trials().expect("trials") {
            let rows = measure(&trial).rows;
            let counts = Counts::of(&rows);
            let [one] = &counts[..] else { panic!("one configuration: {counts:?}") };
            assert_eq!(one.bytes, one.foretold_bytes, "{}", trial.configuration);
            assert!(one.bytes.iter().sum::<u64>() > 0 || trial.configuration.ranks == 1);
            // Rounds of operators come on top of the network's.
            let pairs = one.rounds.iter().zip(&one.foretold_rounds);
            assert!(pairs.clone().all(|(counted, foretold)| counted >= foretold), "{one:?}");
            assert!(rows.iter().all(|row| row.total_seconds == 0.0 && row.data_seconds.is_none()));
            assert!(one.balance().is_some_and(|balance| balance > 0.0 && balance <= 1.0));
        }
    }
}

#[test]
fn tiles_send_what_the_plan_foretells() {
    let study = study(Problem::Deblur, vec![2, 3, 5], Mode::Strong).counting();
    for trial in study.trials().expect("trials") {
        let counts = Counts::of(&measure(&trial).rows);
        assert!(counts[0].is_exact(), "{}: {counts:?}", trial.configuration);
        let none = vec![0; trial.configuration.ranks];
        assert_eq!(counts[0].foretold_rounds, none, "the networks of tiles exchange nothing");
    }
}

/// A measured row from which predictions can be made.
fn of_one_rank(trial: &Trial) -> Row {
    let configuration = Configuration {
        study: Study::Scaling,
        ranks: 1,
        layout: Some(Layout::Replicated),
        distribute: Some(Distribution::Both),
        ..trial.configuration.clone()
    };
    Row {
        iteration: Some(1),
        data_seconds: Some(1.0),
        prior_seconds: Some(2.0),
        ..configuration.row(0, 0, 3.5)
    }
}

#[test]
fn the_bytes_of_the_model_are_those_that_are_counted() {
    let link = LinkSpeed { latency_seconds: 1e-6, bytes_per_second: 1e9 };
    let cluster = Cluster::one_node("many", 64, link);
    for problem in PROBLEMS {
        let trials = in_parts(problem, vec![2, 3, 5]).counting().trials().expect("trials");
        let row = of_one_rank(&trials[0]);
        let predicted = predicted_rows(&[row], &Contention::default(), &cluster, &[2, 3, 5], &[])
            .expect("predictions");
        for trial in trials {
            let of = &trial.configuration;
            let counted = Counts::of(&measure(&trial).rows).remove(0).bytes.into_iter().max();
            let found = predicted.iter().find(|row| {
                (row.configuration.layout, row.configuration.ranks) == (of.layout, of.ranks)
            });
            assert_eq!(found.expect("a prediction").bytes_sent, counted, "{of}");
        }
    }
}

#[test]
fn scans_in_shards_are_measured_and_find_one_image_on_any_number_of_ranks() {
    for problem in [Problem::Tomography2d, Problem::Tomography3d] {
        let study =
            ScalingStudy { layouts: vec![Layout::Sharded], ..in_parts(problem, vec![1, 2, 3, 5]) };
        let mut images = Vec::new();
        for trial in study.trials().expect("trials") {
            let answers = measure(&trial);
            assert!(answers.rows.iter().any(|row| row.psnr_db.is_some()), "{problem}");
            images.push((answers.data, answers.images[0].clone()));
            assert_eq!(images.last(), images.first(), "{}", trial.configuration);
        }
    }
}

/// No volume is made for it, and none has to fit here.
#[test]
fn scans_of_volumes_that_fit_nowhere_here_are_predicted_in_shards() {
    let link = LinkSpeed { latency_seconds: 1e-6, bytes_per_second: 1e9 };
    let cluster = Cluster { nodes: 16, ..Cluster::one_node("sixteen nodes", 4, link) };
    let trial = in_parts(Problem::Tomography3d, vec![1]).trials().expect("trials").remove(0);
    let sizes = [512.into(), 1024.into()];
    let rows =
        predicted_rows(&[of_one_rank(&trial)], &Contention::default(), &cluster, &[16, 64], &sizes);
    let rows = rows.expect("predictions");
    assert_eq!(rows.len(), 2 * 2 * 2);
    for side in [512, 1024] {
        let of = |layout: Layout, ranks: usize| {
            let is_it = |row: &&Row| {
                let of = &row.configuration;
                (of.height, of.layout, of.ranks) == (side, Some(layout), ranks)
            };
            rows.iter().find(is_it).expect("a prediction")
        };
        let memory = |layout, ranks| of(layout, ranks).predicted_bytes.expect("a forecast");
        assert!(memory(Layout::Sharded, 64) < memory(Layout::Replicated, 64));
        assert!(memory(Layout::Sharded, 64) < memory(Layout::Sharded, 16));
        let row = of(Layout::Sharded, 64);
        assert!(row.low_seconds <= Some(row.total_seconds), "{row:?}");
        assert!(row.high_seconds >= Some(row.total_seconds), "{row:?}");
    }
}

#[test]
fn problems_side_by_side_are_each_the_whole_problem() {
    let strong = study(Problem::Deblur, vec![1], Mode::Strong).trials().expect("trials").remove(0);
    let beside = study(Problem::Deblur, vec![1, 2], Mode::Contention).trials().expect("trials");
    assert_eq!(beside.len(), 1, "one rank has nobody beside it");
    let (alone, beside) = (measure(&strong), measure(&beside[0]));
    assert_eq!(alone.images[0], beside.images[0]);
    assert_eq!(alone.data, beside.data);
    // Repetitions, iterations, ranks.
    assert_eq!(beside.rows.len(), 2 * 2 * 2);
    let pixels = alone.rows[0].pixels_computed;
    assert!(beside.rows.iter().all(|row| row.pixels_computed == pixels));
    assert!(beside.rows.iter().all(|row| row.bytes_sent == Some(0)));
    let ranks: Vec<usize> = beside.rows.iter().map(|row| row.rank).collect();
    assert!(ranks.contains(&0) && ranks.contains(&1));
}

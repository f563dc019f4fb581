//! The model on numbers that can be checked by hand.

use super::*;
use crate::row::tests::configuration;
use crate::trial::LinkSpeed;

fn fast() -> LinkSpeed {
    LinkSpeed { latency_seconds: 1e-12, bytes_per_second: 1e18 }
}

/// One rank takes 1 s for each of 8 operators, 2 s for each of 4 tiles, and 1 s besides.
fn one_rank() -> Row {
    Row {
        iteration: Some(1),
        data_seconds: Some(8.0),
        prior_seconds: Some(8.0),
        transfer_seconds: Some(0.0),
        waiting_seconds: Some(0.0),
        ..configuration(1).row(0, 0, 17.0)
    }
}

/// The same for an image and a network of which a shard of 64 ranks has some.
fn large(row: Row) -> Row {
    let configuration = Configuration {
        model: "drunet:2-2-2-2:1".into(),
        patch: row.configuration.patch.map(|_| 384),
        ..row.configuration.with_sides(&[768, 768])
    };
    Row { configuration, ..row }
}

fn predicted(ranks: usize, layout: Layout, link: LinkSpeed) -> Prediction {
    prediction(&one_rank(), ranks, layout, link)
}

fn prediction(row: &Row, ranks: usize, layout: Layout, link: LinkSpeed) -> Prediction {
    let summary = &summarise(std::slice::from_ref(row))[0];
    let (costs, workload) = (
        Costs::from_summary(summary, &Contention::default()).expect("costs"),
        Workload::of(&summary.configuration).expect("a workload"),
    );
    let cluster = Cluster::one_node("many", 1024, link);
    predict(&workload, &costs, &Contention::default(), &cluster, ranks, layout)
        .expect("a prediction")
}

#[test]
fn without_messages_the_rank_with_the_most_decides() {
    for (ranks, data, prior) in
        [(1, 8.0, 8.0), (2, 4.0, 4.0), (3, 3.0, 4.0), (8, 1.0, 2.0), (64, 1.0, 2.0)]
    {
        let found = predicted(ranks, Layout::Replicated, fast());
        assert!((found.data - data).abs() < 1e-6, "{ranks} ranks: {found:?}");
        assert!((found.prior - prior).abs() < 1e-6, "{ranks} ranks: {found:?}");
        assert!((found.total - data - prior - 1.0).abs() < 1e-6, "{ranks} ranks: {found:?}");
    }
}

#[test]
fn messages_of_whole_images_do_not_get_shorter_and_borders_do() {
    let slow = LinkSpeed { latency_seconds: 1e-9, bytes_per_second: 1e4 };
    let row = large(one_rank());
    let transfer = |ranks, layout| prediction(&row, ranks, layout, slow).transfer;
    assert_eq!(transfer(1, Layout::Replicated), 0.0);
    assert!(transfer(64, Layout::Replicated) > 0.9 * transfer(8, Layout::Replicated));
    // The sums of all ranks stay as long as they are.
    let [few, many] = [4, 64].map(|ranks| transfer(ranks, Layout::Sharded));
    assert!(many < few, "{many} and {few}");
    assert!(transfer(64, Layout::Sharded) < transfer(64, Layout::Replicated));
}

#[test]
fn a_measurement_that_is_as_predicted_has_no_error() {
    let two = |rank| Row {
        configuration: configuration(2),
        rank,
        total_seconds: 9.0,
        data_seconds: Some(4.0),
        prior_seconds: Some(4.0),
        ..one_rank()
    };
    let slower = |rank| Row { configuration: configuration(4), total_seconds: 8.0, ..two(rank) };
    let rows = vec![one_rank(), two(0), two(1), slower(0), slower(1), slower(2), slower(3)];
    let found = validate(&rows, 4, |_| Some(fast())).expect("a validation");
    let errors: Vec<f64> = found.iter().map(Validation::error).collect();
    assert_eq!(found.len(), 2, "the costs are not validated against themselves");
    assert!(errors[0] < 1e-6, "{errors:?}");
    // On four ranks the model says 2 + 2 + 1 s where 8 s were measured.
    assert!((errors[1] - 3.0 / 8.0).abs() < 1e-6, "{errors:?}");
    let on_two_cores = validate(&rows, 2, |_| Some(fast())).expect("a validation");
    assert_eq!(on_two_cores, found[..1], "ranks that share cores are left out");
}

#[test]
fn predicted_rows_say_so_and_can_be_of_other_sizes() {
    let cluster = Cluster::one_node("many", 64, fast());
    let rows =
        predicted_rows(&[one_rank()], &Contention::default(), &cluster, &[1, 64], &[128.into()])
            .expect("rows");
    assert_eq!(rows.len(), 4);
    assert!(
        rows.iter()
            .all(|row| row.predicted && row.configuration.width == 128 && row.iteration.is_none())
    );
    // Four times the pixels, on one rank: operators and the rest take four times as long. There are 16 tiles in the
    // place of 4, and their windows are 48² in the place of 40², because most of them have neighbours on both sides.
    let expected = 4.0 * (8.0 + 1.0) + 16.0 * 2.0 * (48.0_f64 / 40.0).powi(2);
    assert!((rows[0].total_seconds - expected).abs() < 1e-6, "{}", rows[0].total_seconds);
    assert_eq!(rows[2].configuration.layout, Some(Layout::Sharded));
    let error = predicted_rows(&[one_rank()], &Contention::default(), &cluster, &[65], &[])
        .expect_err("too many")
        .to_string();
    assert!(error.contains("1 to 64"), "{error}");
}

#[test]
fn each_layout_has_costs_of_its_own_where_they_were_measured() {
    let row = large(one_rank());
    // In shards a network is exact.
    let exact =
        Configuration { patch: None, overlap: None, batch: None, ..row.configuration.clone() };
    let row = Row { configuration: exact.clone(), ..row };
    let in_shards = Row {
        configuration: Configuration { layout: Some(Layout::Sharded), ..exact },
        data_seconds: Some(24.0),
        total_seconds: 33.0,
        ..row.clone()
    };
    let cluster = Cluster::one_node("one", 1, fast());
    let data = |rows: &[Row]| -> Vec<f64> {
        let found = predicted_rows(rows, &Contention::default(), &cluster, &[1], &[]);
        found.expect("rows").iter().map(|row| row.data_seconds.expect("seconds").round()).collect()
    };
    assert_eq!(
        data(std::slice::from_ref(&row)),
        [8.0, 8.0],
        "without a measurement, those of the other"
    );
    assert_eq!(data(&[row, in_shards.clone()]), [8.0, 24.0]);
    assert_eq!(data(&[in_shards]), [24.0, 24.0]);
}

#[test]
fn costs_are_those_of_the_nearest_smaller_size_and_each_size_is_predicted_once() {
    let small = Row { configuration: exact(one_rank()).configuration, ..one_rank() };
    let wide = Configuration { width: 256, height: 256, ..small.configuration.clone() };
    // Sixteen times the pixels, and operators that take twice as long for each.
    let wide = Row {
        configuration: wide,
        data_seconds: Some(16.0 * 16.0),
        total_seconds: 16.0 * (16.0 + 8.0 + 1.0),
        prior_seconds: Some(16.0 * 8.0),
        ..small.clone()
    };
    let cluster = Cluster::one_node("one", 1, fast());
    let sizes: Vec<Size> = [32, 64, 128, 256, 512].map(Size::from).into();
    let found = predicted_rows(&[wide, small], &Contention::default(), &cluster, &[1], &sizes);
    let data: Vec<f64> = found
        .expect("rows")
        .iter()
        .filter(|row| row.configuration.layout == Some(Layout::Replicated))
        .map(|row| row.data_seconds.expect("seconds").round())
        .collect();
    assert_eq!(data, [2.0, 8.0, 32.0, 256.0, 1024.0]);
}

#[test]
fn what_ranks_do_not_share_takes_as_long_on_any_number_of_them() {
    let slow = LinkSpeed { latency_seconds: 1e-9, bytes_per_second: 1e5 };
    let of = |distribute, ranks, link| {
        let row = one_rank();
        let distribute = Some(distribute);
        let configuration = Configuration { distribute, ..row.configuration };
        let summary = &summarise(&[Row { configuration, ..row }])[0];
        let costs = Costs::from_summary(summary, &Contention::default()).expect("costs");
        let workload = Workload::of(&summary.configuration).expect("a workload");
        let cluster = Cluster::one_node("many", 1024, link);
        let none = Contention::default();
        predict(&workload, &costs, &none, &cluster, ranks, Layout::Replicated)
            .expect("a prediction")
    };
    for (distribute, data, prior) in [
        (Distribution::Both, 1.0, 2.0),
        (Distribution::Physics, 1.0, 8.0),
        (Distribution::Denoiser, 8.0, 2.0),
    ] {
        let found = of(distribute, 8, fast());
        assert!((found.data - data).abs() < 1e-6, "{distribute:?}: {found:?}");
        assert!((found.prior - prior).abs() < 1e-6, "{distribute:?}: {found:?}");
        assert_eq!(of(distribute, 1, slow).transfer, 0.0);
    }
    let [both, physics, denoiser] =
        [Distribution::Both, Distribution::Physics, Distribution::Denoiser]
            .map(|distribute| of(distribute, 8, slow).transfer);
    assert!(physics > 0.0 && denoiser > 0.0);
    assert!((both - physics - denoiser).abs() < 1e-9, "{both}, {physics}, {denoiser}");
}

/// The row of an image that is not in tiles.
fn exact(row: Row) -> Row {
    let configuration =
        Configuration { patch: None, overlap: None, batch: None, ..row.configuration };
    Row { configuration, ..row }
}

#[test]
fn an_exact_network_is_predicted_from_an_image_in_one_piece() {
    let cluster = Cluster::one_node("many", 64, fast());
    let whole = large(exact(one_rank()));
    let rows = predicted_rows(
        std::slice::from_ref(&whole),
        &Contention::default(),
        &cluster,
        &[1, 4, 64],
        &[],
    );
    let rows = rows.expect("rows");
    assert!(rows.len() == 6 && rows.iter().all(|row| row.configuration.patch.is_none()));
    let prior: Vec<f64> = rows.iter().filter_map(|row| row.prior_seconds).collect();
    // 768 are 16 grains of 48, which 2 and 8 parts share evenly: no pixel is computed twice.
    for (found, ranks) in prior.iter().zip([1.0, 4.0, 64.0, 1.0, 4.0, 64.0]) {
        assert!((found - 8.0 / ranks).abs() < 1e-6, "{prior:?}");
    }
    // Both layouts exchange the same halos; the replicated one puts the image together besides.
    let bytes: Vec<u64> = rows.iter().filter_map(|row| row.bytes_sent).collect();
    assert!(bytes[0] == 0 && bytes[3] == 0 && bytes[1] > bytes[4], "{bytes:?}");
}

#[test]
fn the_halos_of_a_shard_are_those_of_the_networks_layers() {
    let of = |sides: [usize; 2]| {
        let row = exact(one_rank());
        let configuration = row.configuration.with_sides(&sides);
        let workload = Workload::of(&configuration).expect("a workload");
        workload.shard(Layout::Sharded, 4).expect("shards").exchanges()
    };
    // Two neighbours, at a distance of half the side: for each pixel of the cut 4 bytes of 4 + 17 × 64 channels at full
    // resolution, and half, a quarter and an eighth as many of 16 × 128, 16 × 256 and 8 × 512 below. The corners come twice.
    let per_pixel = 4 * (4 + 17 * 64) + 4 * 16 * 128 / 2 + 4 * 16 * 256 / 4 + 4 * 8 * 512 / 8;
    assert_eq!(per_pixel, 14_608);
    let corners = 4 * (4 + 17 * 64 + 16 * 128 + 16 * 256 + 8 * 512);
    let found = of([2304, 2304]);
    assert_eq!((found.bytes_sent, found.rounds), (2 * 1152 * per_pixel + corners, 2 * 58));
}

/// One rank's row on so many ranks, in another mode, with all seconds so many times longer.
fn slower(mode: Mode, ranks: usize, rank: usize, factor: f64) -> Row {
    let row = one_rank();
    let configuration = Configuration { mode: Some(mode), ranks, ..row.configuration };
    Row {
        configuration,
        rank,
        total_seconds: row.total_seconds * factor,
        data_seconds: row.data_seconds.map(|seconds| seconds * factor),
        prior_seconds: row.prior_seconds.map(|seconds| seconds * factor),
        ..row
    }
}

#[test]
fn what_was_measured_side_by_side_explains_two_slow_ranks() {
    let alone = [slower(Mode::Strong, 1, 0, 1.0)];
    let beside = [0, 1].map(|rank| slower(Mode::Contention, 2, rank, 1.25));
    // Half of the operators and tiles, and all of the rest, on ranks that are as slow as side by side.
    let shared = [0, 1].map(|rank| Row {
        total_seconds: 1.25 * (4.0 + 4.0 + 1.0),
        data_seconds: Some(1.25 * 4.0),
        prior_seconds: Some(1.25 * 4.0),
        ..slower(Mode::Strong, 2, rank, 1.0)
    });
    let without = [&alone[..], &shared].concat();
    let with = [&alone[..], &shared, &beside].concat();
    let validated = |rows: &[Row]| validate(rows, 2, |_| Some(fast())).expect("a validation");
    let [blind] = &validated(&without)[..] else { panic!("one row") };
    assert!((blind.error() - 0.2).abs() < 1e-6 && !blind.is_inside(), "{blind:?}");
    assert_eq!(blind.unseen, [Unseen::Ranks, Unseen::Contention]);
    let [seeing] = &validated(&with)[..] else { panic!("one row") };
    assert!(seeing.error() < 1e-6 && seeing.is_inside(), "{seeing:?}");
    assert_eq!(seeing.unseen, [Unseen::Ranks]);
    // From none to the worst.
    assert!(seeing.interval.0 < 9.0 + 1e-6 && seeing.interval.1 >= 1.25 * 9.0, "{seeing:?}");
}

#[test]
fn a_slowdown_that_is_given_replaces_what_was_measured() {
    let rows = [
        slower(Mode::Strong, 1, 0, 1.0),
        slower(Mode::Contention, 2, 0, 1.25),
        slower(Mode::Contention, 2, 1, 1.25),
    ];
    let contention = Contention::of(&summarise(&rows), 2);
    let seconds = |slowdown: Option<f64>, ranks: usize| {
        let cluster = Cluster { slowdown, ..Cluster::one_node("two", 2, fast()) };
        predicted_rows(&rows, &contention, &cluster, &[ranks], &[]).expect("rows")[0].total_seconds
    };
    assert!((seconds(None, 2) - 1.25 * 9.0).abs() < 1e-6);
    assert!((seconds(Some(2.0), 2) - 2.0 * 9.0).abs() < 1e-6);
    assert!((seconds(None, 1) - 17.0).abs() < 1e-6, "one rank is slowed down by nobody");
    // Nor are two that have a node each.
    let cluster = Cluster {
        nodes: 2,
        ranks_per_node: 1,
        slowdown: Some(2.0),
        ..Cluster::one_node("two", 2, fast())
    };
    let apart = predicted_rows(&rows, &contention, &cluster, &[2], &[]).expect("rows");
    assert!((apart[0].total_seconds - 9.0).abs() < 1e-6, "{}", apart[0].total_seconds);
}

#[test]
fn costs_of_two_ranks_are_those_of_one_without_what_they_slow_each_other_down() {
    // Half of the operators and tiles, and all of the rest, on ranks that are as slow as side by side.
    let shared = [0, 1].map(|rank| Row {
        total_seconds: 1.25 * (4.0 + 4.0 + 1.0),
        data_seconds: Some(1.25 * 4.0),
        prior_seconds: Some(1.25 * 4.0),
        ..slower(Mode::Strong, 2, rank, 1.0)
    });
    let known = [
        slower(Mode::Strong, 1, 0, 1.0),
        slower(Mode::Contention, 2, 0, 1.25),
        slower(Mode::Contention, 2, 1, 1.25),
    ];
    let contention = Contention::of(&summarise(&known), 2);
    let cluster = Cluster::one_node("two", 2, fast());
    let rows = predicted_rows(&shared, &contention, &cluster, &[1, 2], &[]).expect("rows");
    assert!((rows[0].total_seconds - 17.0).abs() < 1e-6, "{}", rows[0].total_seconds);
    assert!((rows[1].total_seconds - 1.25 * 9.0).abs() < 1e-6, "{}", rows[1].total_seconds);
}

#[test]
fn other_sizes_and_wider_images_are_validated_too() {
    let of = |mode: Mode, sides: [usize; 2], ranks: usize, seconds: f64| {
        let row = slower(mode, ranks, 0, seconds / 17.0);
        Row { configuration: row.configuration.clone().with_sides(&sides), ..row }
    };
    let rows = [
        of(Mode::Strong, [64, 64], 1, 17.0),
        of(Mode::Strong, [128, 128], 1, 80.0),
        of(Mode::Weak, [64, 64], 1, 17.0),
        of(Mode::Weak, [64, 128], 2, 18.0),
    ];
    let found = validate(&rows, 2, |_| Some(fast())).expect("a validation");
    let unseen: Vec<String> = found.iter().map(Validation::unseen_words).collect();
    assert_eq!(unseen, ["size", "ranks mode contention"], "{found:?}");
    let folder = tempfile::tempdir().expect("a folder");
    write_validation(folder.path(), &found).expect("written");
    let text = std::fs::read_to_string(folder.path().join(VALIDATION)).expect("text");
    assert_eq!(text.lines().count(), 3);
    for _ in 0..2 {
        write_validation(folder.path(), &[]).expect("removed");
        assert!(!folder.path().join(VALIDATION).exists());
    }
    assert!(text.contains("deblur,drunet,128x128,strong,threads,replicated,32,1,1,80,"), "{text}");
}

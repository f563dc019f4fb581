//! Every template of `haloscope init` is worth its network: it ends nearer to the truth than total variation with a weight
//! that suits it, on any number of ranks with the same bits; and no job is left with what its operators do not see.

#![cfg(feature = "builtin")]

mod jobs;

use jobs::{Folder, haloscope, json, text};
use serde_json::Value;

/// Runs a template at a size, with changes to its text.
fn run(
    problem: &str,
    size: &str,
    model: &[&str],
    change: impl Fn(String) -> String,
    ranks: &str,
) -> Value {
    let folder = Folder::new();
    let job = folder.name("job.toml");
    let made = haloscope(&[&["init", problem, &job, "--size", size], model].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let text = std::fs::read_to_string(&job).expect("the job");
    json(&folder.run(&change(text), &["--ranks", ranks]))
}

fn decibels(summary: &Value) -> f64 {
    summary["after"]["psnr_db"].as_f64().expect("a number")
}

/// The template's network against total variation with the template's weight and with others around it.
fn compare(problem: &str, size: &str) {
    let same = |text: String| text;
    let network = run(problem, size, &[], same, "1");
    let on_three = run(problem, size, &[], same, "3");
    assert_eq!(network["bits"], on_three["bits"], "{problem}");
    for factor in [0.5, 1.0, 2.0] {
        let weighted = |text: String| {
            let weight = text.lines().find_map(|line| line.strip_prefix("weight = "));
            let weight: f64 = weight.expect("a weight").parse().expect("a number");
            text.replace(
                &format!("\nweight = {weight}"),
                &format!("\nweight = {}", factor * weight),
            )
        };
        let variation = run(problem, size, &["--model", "tv"], weighted, "1");
        let (one, other) = (decibels(&network), decibels(&variation));
        assert!(
            one > other,
            "{problem}: {one:.2} dB, and total variation × {factor} has {other:.2}"
        );
    }
}

#[test]
fn mri_beats_total_variation() {
    compare("mri", "96");
}

#[test]
fn radio_beats_total_variation() {
    compare("radio", "48");
}

#[test]
fn deblurring_beats_total_variation() {
    compare("deblur", "64");
}

#[test]
fn super_resolution_beats_total_variation() {
    compare("super-resolution", "64");
}

#[test]
fn inpainting_beats_total_variation() {
    compare("inpainting", "64");
}

#[test]
fn denoising_beats_total_variation() {
    compare("denoise", "64");
}

#[test]
fn tomography_of_a_slice_beats_total_variation() {
    compare("tomography-2d", "64");
}

#[test]
fn tomography_of_a_volume_beats_total_variation() {
    compare("tomography-3d", "24");
}

#[test]
fn the_border_that_a_valid_blur_hardly_sees_is_filled() {
    let valid = |text: String| text.replace("padding = \"circular\"", "padding = \"valid\"");
    let filled = run("deblur", "64", &[], valid, "1");
    assert_eq!(filled["bits"], run("deblur", "64", &[], valid, "3")["bits"]);
    let dark = |text: String| valid(text) + "\n[start]\nkind = \"adjoint\"\n";
    let (filled, dark) = (decibels(&filled), decibels(&run("deblur", "64", &[], dark, "1")));
    let variation = decibels(&run("deblur", "64", &["--model", "tv"], valid, "1"));
    assert!(filled > dark + 4.0, "{filled:.2} dB, and {dark:.2} dB from the adjoint");
    assert!(filled > variation, "{filled:.2} dB, and total variation has {variation:.2}");
}

#[test]
fn missing_pixels_are_filled_whatever_the_method() {
    for method in ["method = \"hqs\"", "method = \"pgd\""] {
        let change = |text: String| {
            let (head, rest) = text.split_once("[solver]").expect("a solver");
            let (_, tail) = rest.split_once("[stop]").expect("a rule");
            let levels =
                if method.contains("hqs") { "levels = [0.2, 0.02]\nnoise = 0.02\n" } else { "" };
            format!("{head}[solver]\n{method}\n{levels}\n[stop]{tail}")
        };
        let found = decibels(&run("inpainting", "64", &[], change, "1"));
        assert!(found > 24.0, "{method}: {found:.2} dB");
    }
}

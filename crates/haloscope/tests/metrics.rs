//! Metrics agree with torchmetrics and scikit-image on crops of photographs, and on whole ones where
//! the data is there. `fixtures/make_metrics.py` makes the crops and the values.

use std::path::{Path, PathBuf};

use haloscope::io::{self, Axes, ReadOptions};
use haloscope::metrics::{Border, Ssim, mae, mse, nmse, psnr, ssim};
use haloscope::{Array, Result};
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/metrics")
}

fn expected() -> Value {
    let text = std::fs::read_to_string(fixtures().join("expected.json")).expect("committed");
    serde_json::from_str(&text).expect("JSON")
}

/// An array of the archive, scaled from 8 bits to 0…1.
fn crop(name: &str) -> Array {
    let options = ReadOptions {
        entry: Some(name.into()),
        axes: Axes::ChannelFirst,
        ..ReadOptions::default()
    };
    let image = io::read(fixtures().join("pairs.npz"), &options).expect(name);
    image.array / 255.0
}

fn assert_agree(name: &str, image: &Array, reference: &Array, expected: &Value) -> Result<()> {
    let inside = Ssim::new(1.0)?.with_border(Border::Inside);
    for (metric, found, tolerance) in [
        ("mse", mse(image, reference)?, 1e-7),
        ("mae", mae(image, reference)?, 1e-6),
        ("nmse", nmse(image, reference)?, 1e-6),
        ("psnr", psnr(image, reference, 1.0)?, 1e-4),
        ("ssim", ssim(image, reference, 1.0)?, 1e-5),
        ("ssim_skimage", inside.per_image(image, reference)?, 1e-5),
    ] {
        let expected = expected[metric].as_f64().expect(metric);
        assert!(
            (found[0] - expected).abs() < tolerance,
            "{name} {metric}: {} {expected}",
            found[0]
        );
    }
    Ok(())
}

#[test]
fn crops_of_photographs_agree_with_torchmetrics_and_scikit_image() -> Result<()> {
    let all = expected();
    let all = all["crops"].as_object().expect("names");
    assert_eq!(all.len(), 9);
    for (name, expected) in all {
        let reference = crop(name.split('_').next().expect("a first word"));
        assert_agree(name, &crop(name), &reference, expected)?;
    }
    Ok(())
}

#[test]
fn whole_photographs_agree() -> Result<()> {
    let Some(data) = std::env::var_os("HALOSCOPE_DATA").map(PathBuf::from) else {
        println!("skipped: whole photographs need HALOSCOPE_DATA");
        return Ok(());
    };
    let all = expected();
    for (name, expected) in all["whole"].as_object().expect("names") {
        let reference = io::read(data.join(name), &ReadOptions::default())?.array;
        let width = reference.shape()[3];
        let moved = Array::from_shape_fn(reference.raw_dim(), |at| {
            reference[[at[0], at[1], at[2], (at[3] + width - 1) % width]]
        });
        assert_agree(name, &moved, &reference, expected)?;
    }
    Ok(())
}

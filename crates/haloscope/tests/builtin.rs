//! The denoisers that ship with the build denoise, and refuse what they were not made for.

#![cfg(feature = "builtin")]

use haloscope::Array;
use haloscope::denoise::{Denoiser, NetworkDenoiser, NoiseLevel};
use haloscope::metrics::psnr;
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::landscape;
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::Builtin;
use ndarray::Axis;

fn builtin(which: Builtin) -> NetworkDenoiser {
    let model = which.model().expect("its weights are whole");
    NetworkDenoiser::new(model, EngineOptions::default()).expect("a denoiser")
}

fn noisy(clean: &Array, level: f32) -> Array {
    let mut noisy = clean.clone();
    let noise = Noise::gaussian(level.into()).expect("a level");
    noise.add(&mut noisy, NoiseSource { seed: 4, operator: 0 }).expect("noise");
    noisy
}

fn gain(which: Builtin, clean: &Array, level: f32) -> f64 {
    let noisy = noisy(clean, level);
    let result = builtin(which).denoise(&noisy, &level.into()).expect("denoised");
    let quality = |image: &Array| psnr(image, clean, 1.0).expect("one shape")[0];
    quality(&result) - quality(&noisy)
}

#[test]
fn they_remove_most_of_the_noise_at_every_level() {
    let colour = landscape(96, 120).expect("an image");
    let gray = colour.mean_axis(Axis(1)).expect("channels").insert_axis(Axis(1));
    // A denoiser that removes nine tenths of the noise's power gains 10 dB; details take their share.
    for (level, least) in [(15.0, 4.0), (25.0, 6.0), (50.0, 8.5)] {
        for (which, clean) in [(Builtin::Color, &colour), (Builtin::Gray, &gray)] {
            let gain = gain(which, clean, level / 255.0);
            assert!(gain > least, "{which:?} at {level}: {gain:.2} dB");
        }
    }
}

#[test]
fn they_leave_an_image_without_noise_nearly_as_it_is() {
    let clean = landscape(64, 64).expect("an image");
    let result = builtin(Builtin::Color).denoise(&clean, &0.0.into()).expect("denoised");
    let quality = psnr(&result, &clean, 1.0).expect("one shape")[0];
    assert!(quality > 35.0, "{quality:.2} dB");
}

#[test]
fn the_gray_one_denoises_the_channels_of_a_colour_image_one_by_one() {
    let clean = landscape(64, 64).expect("an image");
    assert!(gain(Builtin::Gray, &clean, 25.0 / 255.0) > 4.0);
}

#[test]
fn the_volume_one_refuses_pictures() {
    let error = builtin(Builtin::Volume).denoise(&Array::zeros(vec![1, 1, 16, 16]), &0.1.into());
    let error = error.expect_err("a picture").to_string();
    assert!(error.contains("(batch, 1, depth, height, width)"), "{error}");
}

#[test]
fn the_volume_one_takes_any_number_of_slices() {
    let denoiser = builtin(Builtin::Volume);
    for depth in [1, 2, 3, 7] {
        let volume = Array::from_elem(vec![1, 1, depth, 13, 21], 0.5);
        let result = denoiser.denoise(&volume, &0.05.into()).expect("denoised");
        let quality = psnr(&result, &volume, 1.0).expect("one shape")[0];
        assert!(quality > 25.0, "{depth} slices: {quality:.2} dB");
    }
}

#[test]
fn levels_beyond_those_of_the_training_are_refused() {
    let denoiser = builtin(Builtin::Color);
    let image = Array::zeros(vec![2, 3, 16, 16]);
    for level in
        [NoiseLevel::Uniform(0.3), NoiseLevel::PerImage(vec![0.1, 0.4]), NoiseLevel::Uniform(-0.1)]
    {
        let error = denoiser.denoise(&image, &level).expect_err("out of range").to_string();
        assert!(error.contains("noise level"), "{error}");
    }
    assert!(denoiser.denoise(&image, &(75.0 / 255.0).into()).is_ok());
}

#[test]
fn images_that_do_not_fit_are_refused() {
    let mut image = Array::zeros(vec![1, 3, 16, 16]);
    image[[0, 1, 2, 3]] = f32::NAN;
    let error = builtin(Builtin::Color).denoise(&image, &0.1.into()).expect_err("not a number");
    assert!(error.to_string().contains("element 291"), "{error}");
    let error = builtin(Builtin::Color)
        .denoise(&Array::zeros(vec![1, 4, 16, 16]), &0.1.into())
        .expect_err("4 channels");
    assert!(error.to_string().contains("(batch, 3, height, width)"), "{error}");
}

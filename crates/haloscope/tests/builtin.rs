//! The denoisers that ship with the build denoise, and refuse what they were not made for.

#![cfg(feature = "builtin")]

use haloscope::denoise::{Denoiser, MOST_PASS_BYTES, NetworkDenoiser, NoiseLevel};
use haloscope::distribute::{distribute, distribute_with};
use haloscope::metrics::psnr;
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::landscape;
use haloscope::tiling::{Extent, Patch, Strategy, Tiling};
use haloscope::{Array, Context};
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

#[test]
fn large_volumes_are_in_slabs_that_compute_less_than_blocks() {
    let network = builtin(Builtin::Volume);
    let choose = |[depth, side]: [usize; 2]| {
        Tiling::default().choose(&[1, 1, depth, side, side], &network).expect("any size")
    };
    assert!(choose([128, 128]).is_exact());
    let choice = choose([512, 512]);
    assert!(choice.reason.contains("no seams show"), "{}", choice.reason);
    let Tiling { strategy, patch, overlap, axes, .. } = choice.tiling;
    assert_eq!((strategy, overlap, axes), (Strategy::Overlap, 8.into(), Some(vec![0])));
    let Patch::Given(Extent::Same(planes)) = patch else { panic!("{patch:?}") };
    assert!(planes >= 48 && planes.is_multiple_of(8), "{planes}");
    let held = network.pass_bytes(&[1, 1, planes + 16, 512, 512]).expect("any size");
    assert!(held <= MOST_PASS_BYTES, "{held}");
    // A run takes them, too, and not only a forecast.
    let shared = distribute(builtin(Builtin::Volume), &Context::solo()).expect("distributed");
    let tiles = shared.tiles(&[1, 1, 512, 512, 512]).expect("tiles");
    // The first and the last see nothing beyond the volume, and have more planes of their own.
    assert_eq!(tiles.count(), (512_usize - 2 * 8).div_ceil(planes));
    // Planes too large for slabs that are thicker than what is seen beside them.
    let blocks = choose([4096, 4096]).tiling;
    assert_eq!((blocks.axes, blocks.patch), (None, Patch::Standard));
}

/// Large volumes are cut like this by default: each slab sees all that the network does, so nothing but the last digits differs.
#[test]
fn slabs_of_a_volume_have_no_seams() {
    let seen = haloscope_nn::Footprint::of(builtin(Builtin::Volume).model().network())
        .expect("a footprint")
        .radius[0];
    let volume = Array::from_shape_fn(vec![1, 1, 8 * seen, 24, 32], |at| {
        ((at[2] * 7 + at[3] * at[4]) % 13) as f32 / 13.0
    });
    let whole = builtin(Builtin::Volume).denoise(&volume, &0.1.into()).expect("denoised");
    let worst = |overlap: usize| {
        let tiling = Tiling {
            axes: Some(vec![0]),
            patch: (2 * seen).into(),
            overlap: overlap.into(),
            ..Tiling::new(Strategy::Overlap)
        };
        let tiles = distribute_with(builtin(Builtin::Volume), &Context::solo(), tiling);
        let found = tiles.expect("tiles").denoise(&volume, &0.1.into()).expect("denoised");
        found.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0_f32, f32::max)
    };
    // Slabs and the whole may have other methods for some layers, and so other last digits.
    let (all, some) = (worst(seen), worst(seen / 4));
    assert!(all < 1e-4 && 5.0 * all < some, "{all}, and {some} where not all is seen");
}

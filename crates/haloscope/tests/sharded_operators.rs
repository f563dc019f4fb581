//! Operators on images in shards: volumes, compositions, and blurs by Fourier transforms have the same bits on any number of ranks,
//! which are those of the whole operator wherever its windows say so.

use std::sync::Arc;

use haloscope::array::{distance, norm};
use haloscope::distribute::ShardedStack;
use haloscope::image::{Image, Space};
use haloscope::physics::{
    Blur, BlurMethod, Compose, Decolorize, Downsampling, DownsamplingFilter, Identity, Inpainting,
    Padding, Physics, Scaled, Stack, WindowPhysics,
};
use haloscope::tiling::ShardPlan;
use haloscope::{Array, Measurements, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::Grain;

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_simple_fn(shape, || random.f32() - 0.3)
}

fn blur(
    shape: &[usize],
    size: &[usize],
    padding: Padding,
    method: BlurMethod,
) -> Result<Arc<dyn Physics>> {
    let kernel = random(&[&[1, 1], size].concat(), 1).mapv(f32::abs);
    let kernel = &kernel / kernel.sum();
    Ok(Arc::new(Blur::with_method(shape, &kernel, padding, method)?))
}

type Case = (&'static str, Vec<usize>, Vec<Arc<dyn Physics>>);

fn cases() -> Result<Vec<Case>> {
    let volume = vec![1, 9, 14, 26];
    let direct = BlurMethod::Direct;
    let mask = Inpainting::random_mask(&volume, 0.4, 7)?;
    let identity: Arc<dyn Physics> = Arc::new(Identity::new(&volume));
    let volumes = vec![
        blur(&volume, &[3, 5, 3], Padding::Circular, direct)?,
        Arc::new(Inpainting::new(&volume, &mask)?),
        blur(&volume, &[3, 3, 5], Padding::Reflect, direct)?,
        blur(&volume, &[3, 3, 3], Padding::Valid, direct)?,
        identity,
    ];
    let colour = vec![3, 24, 44];
    let gray = Arc::new(Decolorize::new(&colour)?);
    let halved = Downsampling::new(&[1, 24, 44], 2, &DownsamplingFilter::Box, Padding::Circular)?;
    let camera = Compose::new(Arc::new(halved), gray.clone())?;
    let blurred = Compose::new(gray, blur(&colour, &[5, 3], Padding::Replicate, direct)?)?;
    let compositions: Vec<Arc<dyn Physics>> =
        vec![Arc::new(Scaled::new(-0.5, Arc::new(camera))?), Arc::new(blurred)];
    let flat = vec![2, 300, 44];
    let fourier = vec![
        blur(&flat, &[9, 7], Padding::Circular, BlurMethod::Fourier)?,
        blur(&flat, &[7, 9], Padding::Reflect, BlurMethod::Fourier)?,
    ];
    let solid = vec![blur(&volume, &[3, 5, 5], Padding::Circular, BlurMethod::Fourier)?];
    Ok(vec![
        ("volumes", volume.clone(), volumes),
        ("compositions", colour, compositions),
        ("fourier", flat, fourier),
        ("fourier in space", volume, solid),
    ])
}

/// `A x` and `Aᵀ A x` as a whole, on every rank.
fn work(ctx: &Context, operators: Vec<Arc<dyn Physics>>, image: &Array) -> Result<Vec<Array>> {
    let mut grains = vec![Grain { step: 2, last: 1 }; image.ndim() - 2];
    grains[image.ndim() - 3].step = 8;
    let space = Space::new(ctx, &ShardPlan::new(image.shape(), &grains, ctx.size())?)?;
    let physics = ShardedStack::new(Stack::new(operators)?, &space)?;
    let x = Image::cut(&space, image)?;
    let measured = physics.forward(&x)?;
    let back = physics.adjoint(&measured)?;
    let (mut all, mut square) = (Vec::new(), 0.0);
    for (index, part) in measured.iter() {
        let part = Image::sharded(&physics.measured()[index], part.clone())?;
        square += part.squared_norm()?;
        all.push(part.gather()?);
    }
    // ⟨A x, A x⟩ = ⟨x, Aᵀ A x⟩.
    assert!((x.dot(&back)? / square - 1.0).abs() < 1e-6);
    all.push(back.gather()?);
    Ok(all)
}

fn values(array: &Array) -> &[f32] {
    array.as_slice().expect("standard layout")
}

#[test]
fn volumes_compositions_and_fourier_blurs_have_one_result() {
    for (name, shape, operators) in cases().expect("operators") {
        let image = random(&[&[2], &shape[..]].concat(), 3);
        let is_same = operators
            .iter()
            .all(|one| one.as_window().is_some_and(WindowPhysics::window_bits_agree));
        assert_eq!(is_same, !name.starts_with("fourier"));
        let stack = Stack::new(operators.clone()).expect("a stack");
        let measured: Measurements = stack.forward(&image).expect("forward");
        let back = stack.adjoint(&measured).expect("adjoint");
        let expected: Vec<Array> =
            measured.iter().map(|(_, part)| part.clone()).chain([back]).collect();
        let mut first: Option<Vec<Array>> = None;
        for ranks in RANKS {
            let (image, operators) = (image.clone(), operators.clone());
            let found = Context::threads(ranks, move |ctx| work(ctx, operators.clone(), &image));
            for found in found.expect("no rank fails") {
                let first = first.get_or_insert_with(|| found.clone());
                assert!(*first == found, "{name} on {ranks} ranks");
            }
        }
        for (found, expected) in first.iter().flatten().zip(&expected) {
            assert!(!is_same || found == expected, "{name} has other bits");
            let apart = distance(values(found), values(expected));
            assert!(apart <= 1e-6 * norm(values(expected)), "{name}: {apart}");
        }
    }
}

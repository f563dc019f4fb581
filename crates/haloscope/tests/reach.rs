//! An operator's reach is how far its measurements really depend on the image: no pixel beyond it matters, and one at that
//! distance does.

use std::sync::Arc;

use haloscope::Array;
use haloscope::physics::tomography::{
    ConeBeam, ParallelBeam, Tomography2d, Tomography3d, evenly_spaced,
};
use haloscope::physics::{
    Blur, BlurMethod, Clipping, Compose, Decolorize, Downsampling, DownsamplingFilter, Identity,
    Inpainting, Matrix, Padding, Physics, Reach, Saturation, Scaled, kernels,
};

const SIDE: usize = 24;

/// Where measurement `index` along a side is in the image.
type Place = fn(usize) -> usize;

/// The greatest distance, along a side of an image that may begin again at its end, between a pixel and the place of a
/// measurement that it changes.
fn farthest(operator: &dyn Physics, place: Place) -> usize {
    let mut farthest = 0;
    // Each in the middle, at an edge and between, whose neighbourhoods are all that there are.
    for (row, column) in [(0, 0), (SIDE / 2, SIDE / 2), (SIDE - 1, 5), (7, SIDE - 1)] {
        let mut shape = vec![1];
        shape.extend(operator.image_shape());
        let mut image = Array::zeros(shape);
        image[[0, 0, row, column]] = 1.0;
        let measured = operator.forward(&image).expect("a measurement");
        // Fourier transforms leave rounding everywhere.
        let touched = measured.indexed_iter().filter(|(_, value)| value.abs() > 1e-6);
        for (at, _) in touched {
            for (axis, pixel) in [(2, row), (3, column)] {
                let apart = place(at[axis]).abs_diff(pixel);
                farthest = farthest.max(apart.min(SIDE - apart));
            }
        }
    }
    farthest
}

fn blur(sides: [usize; 2], padding: Padding, method: BlurMethod) -> Arc<dyn Physics> {
    let kernel = kernels::uniform(&sides).expect("a kernel");
    Arc::new(Blur::with_method(&[1, SIDE, SIDE], &kernel, padding, method).expect("a blur"))
}

#[test]
fn no_pixel_beyond_the_reach_matters_and_one_at_it_does() {
    let shape = [1, SIDE, SIDE];
    let filter = DownsamplingFilter::Gaussian;
    let half = |phase: &[usize]| {
        let half = Downsampling::new(&shape, 2, &filter, Padding::Circular).expect("frames");
        Arc::new(half.with_phase(phase).expect("a phase"))
    };
    let identity: Place = |index| index;
    let inner = blur([3, 3], Padding::Circular, BlurMethod::Direct);
    let composed = Compose::new(blur([1, 5], Padding::Circular, BlurMethod::Direct), inner.clone());
    let clipped = Saturation::new(&shape, 1.0, Clipping::Hard).expect("a sensor");
    let operators: [(Arc<dyn Physics>, Place, usize); 15] = [
        (Arc::new(Identity::new(&shape)), identity, 0),
        (Arc::new(clipped.clone()), identity, 0),
        (
            Arc::new(Inpainting::new(&shape, &Array::ones(vec![1, SIDE, SIDE])).expect("a mask")),
            identity,
            0,
        ),
        (Arc::new(Decolorize::new(&[3, SIDE, SIDE]).expect("grey")), identity, 0),
        (blur([3, 7], Padding::Circular, BlurMethod::Direct), identity, 3),
        (blur([3, 7], Padding::Circular, BlurMethod::Fourier), identity, 3),
        (blur([4, 2], Padding::Reflect, BlurMethod::Direct), identity, 2),
        (blur([5, 5], Padding::Constant, BlurMethod::Direct), identity, 2),
        // The first output is where the kernel begins to fit.
        (blur([5, 5], Padding::Valid, BlurMethod::Direct), |index| index + 2, 2),
        // σ = 2 makes a kernel of 15 pixels.
        (half(&[0, 0]), |index| 2 * index, 7),
        (half(&[1, 1]), |index| 2 * index + 1, 7),
        (
            Arc::new(
                Downsampling::new(&shape, 3, &DownsamplingFilter::None, Padding::Circular)
                    .expect("thinned"),
            ),
            // Only pixels that are kept change anything, and those are where they are.
            |index| 3 * index,
            0,
        ),
        (
            Arc::new(
                Downsampling::new(&shape, 3, &DownsamplingFilter::Box, Padding::Circular)
                    .expect("a sensor"),
            ),
            |index| 3 * index,
            2,
        ),
        (Arc::new(composed.expect("both")), identity, 3),
        (
            Arc::new(
                Compose::new(
                    Arc::new(clipped),
                    Arc::new(Scaled::new(2.0, inner.clone()).expect("twice")),
                )
                .expect("both"),
            ),
            identity,
            1,
        ),
    ];
    for (operator, place, expected) in operators {
        assert_eq!(operator.reach(), Reach::Local(expected), "{operator:?}");
        assert_eq!(farthest(&*operator, place), expected, "{operator:?}");
    }
}

#[test]
fn scans_and_matrices_see_everything() {
    let shape = [1, SIDE, SIDE];
    let flat = Tomography2d::new(&shape, ParallelBeam::new(evenly_spaced(4, 3.0), SIDE));
    let flat = Arc::new(flat.expect("a scan"));
    let beam = ConeBeam::new(evenly_spaced(3, 6.0), [8, 8], 40.0, 10.0);
    let volume = Tomography3d::new(&[1, 8, 8, 8], beam).expect("a scan");
    let matrix = Matrix::new(&[1, 4, 4], &Array::ones(vec![2, 16])).expect("a matrix");
    for operator in [&*flat as &dyn Physics, &volume, &matrix] {
        assert_eq!(operator.reach(), Reach::Everywhere, "{operator:?}");
    }
    // Whatever comes before or after them.
    let blurred = Compose::new(flat, blur([3, 3], Padding::Circular, BlurMethod::Direct));
    assert_eq!(blurred.expect("both").reach(), Reach::Everywhere);
}

/// Pixels of what is left after thinning are farther apart in the image, so nothing nearer is claimed.
#[test]
fn what_follows_an_operator_of_another_size_is_not_claimed_to_be_near() {
    let half = Downsampling::new(&[1, SIDE, SIDE], 2, &DownsamplingFilter::None, Padding::Circular);
    let kernel = kernels::uniform(&[3, 3]).expect("a kernel");
    let blur = Blur::new(&[1, SIDE / 2, SIDE / 2], &kernel, Padding::Circular).expect("a blur");
    let both = Compose::new(Arc::new(blur), Arc::new(half.expect("thinned"))).expect("both");
    assert_eq!(both.reach(), Reach::Everywhere);
}

//! The metrics of images in any layout, with the same bits in each: ranks that have parts of an image add up their shares.

use std::ops::Range;

use super::ssim::{Part, Ssim};
use super::{check_range, mean};
use crate::array::{row_of, slice};
use crate::error::{Error, Result};
use crate::image::{Image, Layout, Needed, Sum, WindowPlan, sum_of};
use crate::region::{Region, is_empty};

/// The mean squared error, per image. All ranks that share the images call it.
///
/// ```
/// use haloscope::image::Image;
/// use haloscope::metrics::of_images;
/// use ndarray::ArrayD;
///
/// let ones = Image::from(ArrayD::ones(vec![2, 1, 8, 8]));
/// assert_eq!(of_images::mse(&ones, &ones.zeros_like())?, [1.0, 1.0]);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn mse(image: &Image, reference: &Image) -> Result<Vec<f64>> {
    check(image, reference)?;
    let (x, y) = (slice(image.local()), slice(reference.local()));
    let batch = image.shape()[0];
    let len = x.len() / batch;
    let square = |[a, b]: [f32; 2]| {
        let (a, b) = (f64::from(a), f64::from(b));
        (a - b) * (a - b)
    };
    let sums = (0..batch).map(|index| {
        let part = index * len..(index + 1) * len;
        sum_of([&x[part.clone()], &y[part]], row_of(image.local()), square)
    });
    let totals = image.layout().totals_of(sums.collect())?;
    let pixels = image.shape()[1..].iter().product::<usize>() as f64;
    Ok(totals.into_iter().map(|total| total / pixels).collect())
}

/// The peak signal-to-noise ratio in decibels, per image: see [`psnr`](super::psnr).
pub fn psnr(image: &Image, reference: &Image, data_range: f64) -> Result<Vec<f64>> {
    check_range("psnr", data_range)?;
    let errors = mse(image, reference)?;
    Ok(errors.iter().map(|error| 10.0 * (data_range * data_range / error).log10()).collect())
}

/// The structural similarity, per image. A part of an image needs half a window of its neighbours.
pub fn ssim(ssim: &Ssim, image: &Image, reference: &Image) -> Result<Vec<f64>> {
    check(image, reference)?;
    let Layout::Sharded(space) = image.layout() else {
        return ssim.per_image(image.local(), reference.local());
    };
    let whole = space.whole();
    ssim.check(whole)?;
    let of_part = |part: &Region| -> Vec<Range<usize>> {
        let reads: Vec<Range<usize>> =
            (2..whole.len()).map(|axis| ssim.reads(whole[axis], &part[axis])).collect();
        if is_empty(part) || is_empty(&reads) { vec![0..0; whole.len() - 2] } else { reads }
    };
    let window = |part: &Region| {
        let spatial = of_part(part);
        let all = [0..whole[0], 0..whole[1]].into_iter().chain(spatial);
        all.map(|range| range.start as isize..range.end as isize).collect()
    };
    let windows: Vec<_> = space.regions().iter().map(window).collect();
    let needed = Needed { space: space.clone(), windows };
    let plan = WindowPlan::new(space.context(), &[needed.clone(), needed]);
    let windows = plan.gather(&[image.local(), reference.local()])?;
    let (own, read) = (&space.own()[2..], of_part(space.own()));
    let part = Part { sides: &whole[2..], own, window: &read };
    let len: usize = read.iter().map(Range::len).product();
    let (x, y) = (slice(&windows[0]), slice(&windows[1]));
    let channels = whole[0] * whole[1];
    let sums = (0..channels).map(|channel| {
        let at = channel * len..(channel + 1) * len;
        if len == 0 { Sum::default() } else { ssim.of_channel(&x[at.clone()], &y[at], &part) }
    });
    let pixels = ssim.pixels(&whole[2..]) as f64;
    let totals = image.layout().totals_of(sums.collect())?;
    let means: Vec<f64> = totals.into_iter().map(|total| total / pixels).collect();
    Ok(means.chunks(whole[1]).map(mean).collect())
}

fn check(image: &Image, reference: &Image) -> Result<()> {
    let is_possible = image.layout() == reference.layout()
        && image.shape() == reference.shape()
        && image.shape().len() >= 3
        && !image.shape().contains(&0);
    if is_possible {
        return Ok(());
    }
    Err(Error::Shape {
        what: "the image of a metric".into(),
        expected: format!(
            "the reference has {:?}, {:?} of it here; both must be the same (batch, channel, spatial…) in one layout",
            reference.shape(),
            reference.region()
        ),
        found: image.shape().to_vec(),
    })
}

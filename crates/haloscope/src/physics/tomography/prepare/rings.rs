//! Rings: columns of a sinogram in which a pixel of the detector counts too much or too little.
//!
//! Vo, Atwood and Drakopoulos, "Superior techniques for eliminating ring artifacts in X-ray micro-tomography", Optics Express 26,
//! 2018, algorithm 3. The values of each bin are sorted, which makes neighbouring bins comparable whatever lies in their way;
//! then a median over neighbouring bins removes what one of them has alone, and each value gets what has come to its place.

use rayon::prelude::*;

/// Removes stripes that are narrower than about half of `width` bins from a sinogram of so many views, (view, bin).
///
/// ```
/// use haloscope::physics::tomography::remove_rings;
///
/// let smooth = |view: usize, bin: usize| (view * 3 + bin) as f32;
/// let mut sinogram: Vec<f32> = (0..20 * 30)
///     .map(|at| smooth(at / 30, at % 30) + if at % 30 == 12 { 50.0 } else { 0.0 })
///     .collect();
/// remove_rings(&mut sinogram, 20, 5);
/// assert!((0..20).all(|view| (sinogram[view * 30 + 12] - smooth(view, 12)).abs() <= 1.0));
/// ```
pub fn remove_rings(sinogram: &mut [f32], views: usize, width: usize) {
    let bins = sinogram.len().checked_div(views).unwrap_or(0);
    if bins == 0 {
        return;
    }
    // The values of each bin from the least to the greatest, and the views that they are of.
    let sorted: Vec<Vec<(f32, usize)>> = (0..bins)
        .into_par_iter()
        .map(|bin| {
            let values = (0..views).map(|view| (sinogram[view * bins + bin], view));
            let mut values: Vec<_> = values.collect();
            values.sort_by(|a, b| a.0.total_cmp(&b.0));
            values
        })
        .collect();
    let reach = width / 2;
    let smooth: Vec<Vec<f32>> = (0..bins)
        .into_par_iter()
        .map(|bin| {
            let mut window = Vec::with_capacity(2 * reach + 1);
            (0..views)
                .map(|place| {
                    window.clear();
                    let around = (0..=2 * reach).map(|at| mirrored(bin + at, reach, bins));
                    window.extend(around.map(|bin| sorted[bin][place].0));
                    let (_, median, _) = window.select_nth_unstable_by(reach, f32::total_cmp);
                    *median
                })
                .collect()
        })
        .collect();
    for (bin, (sorted, smooth)) in sorted.iter().zip(&smooth).enumerate() {
        for ((_, view), value) in sorted.iter().zip(smooth) {
            sinogram[view * bins + bin] = *value;
        }
    }
}

/// The bin at `shifted − reach`, where what lies beyond an end is that end's mirror image.
fn mirrored(shifted: usize, reach: usize, bins: usize) -> usize {
    let period = 2 * bins;
    let at = (shifted + period * reach.div_ceil(period) - reach) % period;
    if at < bins { at } else { period - 1 - at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_mirrored() {
        let at = |shifted| mirrored(shifted, 3, 4);
        assert_eq!([0, 1, 2, 3, 6, 7, 8, 9].map(at), [2, 1, 0, 0, 3, 3, 2, 1]);
        assert_eq!(mirrored(0, 9, 4), 0, "0, 0 1 2 3 3 2 1 0, then the first");
    }

    #[test]
    fn what_all_bins_have_stays() {
        let mut sinogram: Vec<f32> = (0..15 * 8).map(|at| ((at / 8) * 7 % 15) as f32).collect();
        let before = sinogram.clone();
        remove_rings(&mut sinogram, 15, 5);
        assert_eq!(sinogram, before);
        remove_rings(&mut [], 0, 5);
    }
}

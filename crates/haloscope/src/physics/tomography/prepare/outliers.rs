//! Bright and dark specks: pixels of the detector that were hit by a stray ray, or do not work.

use rayon::prelude::*;

/// Replaces values that are further than `difference` from the median of the nine pixels around them by that median. Views have so
/// many rows and columns; a single row has five pixels beside each other instead. Returns how many were replaced.
///
/// ```
/// use haloscope::physics::tomography::remove_outliers;
///
/// let mut view = [1.0, 1.1, 9.0, 1.0, 0.9, 1.0];
/// assert_eq!(remove_outliers(&mut view, [1, 6], 0.5), 1);
/// assert_eq!(view, [1.0, 1.1, 1.0, 1.0, 0.9, 1.0]);
/// ```
pub fn remove_outliers(views: &mut [f32], [rows, columns]: [usize; 2], difference: f32) -> usize {
    let pixels = rows * columns;
    if pixels == 0 {
        return 0;
    }
    views.par_chunks_mut(pixels).map(|view| of_view(view, [rows, columns], difference)).sum()
}

fn of_view(view: &mut [f32], [rows, columns]: [usize; 2], difference: f32) -> usize {
    let reach: [usize; 2] = if rows == 1 { [0, 2] } else { [1, 1] };
    let original = view.to_vec();
    let around = |at: usize, reach: usize, length: usize| {
        at.saturating_sub(reach)..(at + reach + 1).min(length)
    };
    let mut replaced = 0;
    let mut window = Vec::with_capacity(9);
    for row in 0..rows {
        for column in 0..columns {
            window.clear();
            for y in around(row, reach[0], rows) {
                window.extend(&original[y * columns..][around(column, reach[1], columns)]);
            }
            window.sort_unstable_by(f32::total_cmp);
            let (median, value) = (window[window.len() / 2], &mut view[row * columns + column]);
            if (*value - median).abs() > difference {
                *value = median;
                replaced += 1;
            }
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speck_goes_and_an_edge_stays() {
        let [rows, columns] = [7, 9];
        let edge = |at: usize| if at % columns < 4 { 0.0 } else { 3.0 };
        let mut views: Vec<f32> = (0..2 * rows * columns).map(|at| edge(at % 63)).collect();
        let clean = views.clone();
        views[10] = 50.0;
        views[63 + 62] = -20.0;
        assert_eq!(remove_outliers(&mut views, [rows, columns], 1.0), 2);
        assert_eq!(views, clean);
    }
}

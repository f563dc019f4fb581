//! Two real rows as one complex row, and their spectra out of its spectrum.
//!
//! With Z the transform of `a + i b`, `2 A[k] = Z[k] + conj Z[−k]` and `2 B[k] = (Z[k] − conj Z[−k]) / i`; back,
//! `Z[k] = A[k] + i B[k]` and `Z[−k] = conj A[k] + i conj B[k]`. Spectra are in tiles of 8 frequencies.

use super::fourier::{SIDE, TILE, Value};

/// Writes twice the halves of the spectra of two rows to rows `row` and `row + 1` of a group of tiles.
pub(super) fn untangle(z: &[Value], row: usize, group: &mut [Value]) {
    let half = z.len() / 2 + 1;
    let tiles = group.as_chunks_mut::<TILE>().0.iter_mut();
    for (tile, first) in tiles.zip((0..half).step_by(SIDE)) {
        let (a, b) = tile[row * SIDE..][..2 * SIDE].split_at_mut(SIDE);
        let columns = (half - first).min(SIDE);
        let mut mirrored = [Value::default(); SIDE];
        if first > 0 && columns == SIDE {
            let opposite = &z[z.len() - first + 1 - SIDE..][..SIDE];
            for (k, value) in mirrored.iter_mut().enumerate() {
                *value = opposite[SIDE - 1 - k];
            }
        } else {
            for (k, value) in mirrored[..columns].iter_mut().enumerate() {
                *value = z[if first + k == 0 { 0 } else { z.len() - first - k }];
            }
        }
        let pairs = z[first..first + columns].iter().zip(&mirrored);
        for ((a, b), (z, m)) in a.iter_mut().zip(b).zip(pairs) {
            *a = Value::new(z.re + m.re, z.im - m.im);
            *b = Value::new(z.im + m.im, m.re - z.re);
        }
    }
}

/// Writes the transform of `a + i b` from tiles' rows with the halves of the spectra of a and b.
pub(super) fn tangle<'a>(
    a: impl Iterator<Item = &'a [Value]>,
    b: impl Iterator<Item = &'a [Value]>,
    z: &mut [Value],
) {
    let half = z.len() / 2 + 1;
    for ((a, b), first) in a.zip(b).zip((0..half).step_by(SIDE)) {
        let columns = (half - first).min(SIDE);
        // The opposite frequencies first: where both are the same one, the other one counts.
        if first > 0 && columns == SIDE {
            let end = z.len() - first + 1;
            let opposite = &mut z[end - SIDE..end];
            for ((z, a), b) in opposite.iter_mut().rev().zip(a).zip(b) {
                *z = Value::new(a.re + b.im, b.re - a.im);
            }
        } else {
            for k in usize::from(first == 0)..columns {
                let (a, b) = (a[k], b[k]);
                z[z.len() - first - k] = Value::new(a.re + b.im, b.re - a.im);
            }
        }
        for ((z, a), b) in z[first..first + columns].iter_mut().zip(a).zip(b) {
            *z = Value::new(a.re - b.im, a.im + b.re);
        }
    }
}

//! A digest of arrays and bytes: for telling data apart, not for security.

use std::fmt;

use haloscope_scratch::{Visited, in_pieces};
use xxhash_rust::xxh3::Xxh3Default;

use crate::array::View;

/// XXH3 (64 bits) over the bits of numbers and bytes, written as 16 digits.
///
/// The order of all that is added counts; how it is divided into calls does not.
///
/// ```
/// use haloscope::{Array, Digest};
///
/// let image = Array::zeros(vec![1, 1, 4, 4]);
/// assert_eq!(Digest::of(&image).to_string().len(), 16);
/// assert_ne!(Digest::of(&image).value(), Digest::of(&(image + 1.0)).value());
/// ```
#[derive(Clone)]
pub struct Digest(Xxh3Default);

impl Default for Digest {
    fn default() -> Self {
        Self(Xxh3Default::new())
    }
}

impl Digest {
    /// Of an array's values, in the order of its axes.
    #[must_use]
    pub fn of(array: &View) -> Self {
        let mut digest = Self::default();
        match array.as_slice() {
            Some(values) => in_pieces(values.len(), &[Visited::of(values)], |piece| {
                digest.add(&values[piece]);
            }),
            None => digest.add(array),
        }
        digest
    }

    /// Adds bytes.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds numbers: their bits, with the lowest byte first.
    pub fn add<'a>(&mut self, values: impl IntoIterator<Item = &'a f32>) {
        let mut piece = Vec::with_capacity(1 << 14);
        for value in values {
            piece.extend_from_slice(&value.to_le_bytes());
            if piece.len() == piece.capacity() {
                self.0.update(&piece);
                piece.clear();
            }
        }
        self.0.update(&piece);
    }

    /// The digest as a number.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.value())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_xxh3() {
        // The value of the reference implementation for no input.
        assert_eq!(Digest::default().to_string(), "2d06800538d394c2");
    }

    #[test]
    fn numbers_are_their_bytes_however_many_there_are() {
        for count in [0, 1, 4095, 4096, 4097, 10_000] {
            let values: Vec<f32> = (0..count).map(|index| index as f32 * 0.1).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let (mut numbers, mut plain) = (Digest::default(), Digest::default());
            numbers.add(&values);
            plain.add_bytes(&bytes);
            assert_eq!(numbers.value(), plain.value(), "{count}");
        }
    }
}

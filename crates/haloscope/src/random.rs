//! Random numbers that are the same everywhere and for good: they are part of what a seed means in job files, so they
//! come from published generators, written down here, and not from a crate that may improve its own.
//!
//! [`Draws`] counts: Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011). It has no state. Each number is a function of a seed and of where it is used: which
//! operator, which element, which draw. So noise does not depend on how elements are divided over
//! ranks and threads, and any part of it can be made again on its own. [`Sequence`] is for what is drawn one after the
//! other, such as the shape of a kernel: `SplitMix64` of Steele, Lea and Flood (2014). Neither is for cryptography.

use std::f64::consts::TAU;

/// The random numbers of one element of one operator's output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    key: [u32; 2],
    counter: [u32; 4],
}

impl Draws {
    /// The numbers for an element; operators and elements never share any.
    pub(crate) fn new(seed: u64, operator: u32, element: u64) -> Self {
        Self { key: halves(seed), counter: [element as u32, (element >> 32) as u32, operator, 0] }
    }

    /// Two independent numbers, uniform on the open interval (0, 1).
    pub(crate) fn uniforms(&mut self) -> (f64, f64) {
        let [a, b, c, d] = philox(self.counter, self.key);
        self.counter[3] = self.counter[3].wrapping_add(1);
        (uniform(a, b), uniform(c, d))
    }

    /// A number of the standard normal distribution, by Box and Muller's cosine.
    pub(crate) fn normal(&mut self) -> f64 {
        let (radius, angle) = self.uniforms();
        (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
    }
}

/// Random numbers one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// What is added from one number to the next.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence of a seed after so many numbers.
    pub(crate) fn after(seed: u64, numbers: u64) -> Self {
        Self(seed.wrapping_add(numbers.wrapping_mul(Self::STEP)))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 to below 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of the standard normal distribution, by Box and Muller's cosine.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// 52 bits and a half: never 0, whose logarithm is infinite, and never 1.
fn uniform(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 12;
    (bits as f64 + 0.5) / (1_u64 << 52) as f64
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = u64::from(counter[0]) * 0xD251_1F53;
        let second = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_test_vectors() {
        let ones = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([ones; 4], [ones; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let expected = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(counter, [0xa409_3822, 0x299f_31d0]), expected);
    }

    #[test]
    fn splitmix_gives_the_numbers_of_its_authors() {
        let mut sequence = Sequence::new(1_234_567);
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(published.map(|_| sequence.bits()), published);
    }

    #[test]
    fn uniform_numbers_stay_inside_the_open_interval() {
        assert!(uniform(0, 0) > 0.0);
        assert!(uniform(u32::MAX, u32::MAX) < 1.0);
    }

    #[test]
    fn seeds_operators_elements_and_draws_have_their_own_numbers() {
        let first = |seed, operator, element| Draws::new(seed, operator, element).uniforms();
        let mut again = Draws::new(1, 2, 3);
        assert_eq!(again.uniforms(), first(1, 2, 3));
        let others =
            [first(0, 2, 3), first(1 | 1 << 32, 2, 3), first(1, 0, 3), first(1, 2, 3 | 1 << 32)];
        for other in others.into_iter().chain([again.uniforms()]) {
            assert_ne!(other, first(1, 2, 3));
        }
    }
}

//! The kinds of numbers that checkpoints hold, and how they become `f32`.

/// A kind of number, stored little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

impl Element {
    /// Bytes of one number.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// The numbers in `bytes`, each rounded to the nearest `f32`.
    #[allow(clippy::cast_possible_truncation)] // the rounding is the purpose
    pub(super) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F64 => each(bytes, |raw| f64::from_le_bytes(raw) as f32),
            Self::F32 => each(bytes, f32::from_le_bytes),
            Self::F16 => each(bytes, |raw| half_to_single(u16::from_le_bytes(raw))),
            Self::Bf16 => {
                each(bytes, |raw| f32::from_bits(u32::from(u16::from_le_bytes(raw)) << 16))
            }
            Self::I64 => each(bytes, |raw| i64::from_le_bytes(raw) as f32),
            Self::I32 => each(bytes, |raw| i32::from_le_bytes(raw) as f32),
            Self::I16 => each(bytes, |raw| f32::from(i16::from_le_bytes(raw))),
            Self::I8 => each(bytes, |raw| f32::from(i8::from_le_bytes(raw))),
            Self::U8 => each(bytes, |raw: [u8; 1]| f32::from(raw[0])),
            Self::Bool => each(bytes, |raw: [u8; 1]| f32::from(u8::from(raw[0] != 0))),
        }
    }
}

fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|raw| number(*raw)).collect()
}

/// IEEE 754 half precision: 1 sign, 5 exponent and 10 mantissa bits.
fn half_to_single(half: u16) -> f32 {
    let half = u32::from(half);
    let (exponent, mantissa) = (half >> 10 & 0x1f, half & 0x3ff);
    let magnitude = match exponent {
        // Subnormal: a multiple of 2⁻²⁴, which both types hold exactly.
        0 => mantissa as f32 / 16_777_216.0,
        0x1f => f32::from_bits(0x7f80_0000 | mantissa << 13),
        // Bias 15 becomes bias 127.
        _ => f32::from_bits((exponent + 112) << 23 | mantissa << 13),
    };
    if half >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_its_formula() {
        for half in 0..=u16::MAX {
            let (exponent, mantissa) = (i32::from(half >> 10 & 0x1f), f64::from(half & 0x3ff));
            let magnitude = match exponent {
                0 => mantissa * 2f64.powi(-24),
                31 if mantissa == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
            };
            let expected = if half >> 15 == 1 { -magnitude } else { magnitude };
            let value = f64::from(half_to_single(half));
            // `total_cmp` is exact; NaNs differ only in their payload.
            let same = value.total_cmp(&expected).is_eq() || value.is_nan() && expected.is_nan();
            assert!(same, "{half:#x}: {value}");
        }
    }

    #[test]
    fn numbers_are_read_little_endian() {
        assert_eq!(Element::Bf16.decode(&[0x80, 0x3f, 0x00, 0xc0]), [1.0, -2.0]);
        assert_eq!(Element::F64.decode(&2.5f64.to_le_bytes()), [2.5]);
        assert_eq!(Element::I64.decode(&(-7i64).to_le_bytes()), [-7.0]);
        assert_eq!(Element::Bool.decode(&[0, 1, 2]), [0.0, 1.0, 1.0]);
    }
}

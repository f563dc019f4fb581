//! Stored values to f32 and back, in pieces, whatever their type and byte order.
//!
//! The one idea: nothing is allocated because a header says so. Where the length of what is left is
//! known it is compared first; where it is not (compressed data), the array grows with what arrives.

use std::io::{ErrorKind, Read, Write};

use super::{Sample, Scaling};
use crate::error::{Error, Result};

/// Values that are converted at once.
const PIECE: usize = 1 << 14;

/// Which byte of a value comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// What a file's values are.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    pub sample: Sample,
    pub order: Order,
    pub scaling: Scaling,
    /// The stored integer that stands for no value.
    pub blank: Option<f64>,
    /// The bytes that are left, if known.
    pub available: Option<u64>,
}

/// A number that stored values become, by rounding once.
pub(super) trait Rounded {
    fn rounded(value: f64) -> Self;
}

impl Rounded for f32 {
    fn rounded(value: f64) -> Self {
        value as Self
    }
}

impl Rounded for f64 {
    fn rounded(value: f64) -> Self {
        value
    }
}

impl Encoded {
    /// Reads `count` values.
    pub(super) fn read<T: Rounded>(
        &self,
        name: &str,
        reader: &mut dyn Read,
        count: usize,
    ) -> Result<Vec<T>> {
        let mut values = Vec::new();
        if self.available.is_some() {
            self.check_available(name, count)?;
            reserve(name, &mut values, count)?;
        }
        self.append(name, reader, count, &mut values)?;
        Ok(values)
    }

    /// Refuses to read more values than are known to be there.
    pub(super) fn check_available(&self, name: &str, count: usize) -> Result<()> {
        let needed = count as u64 * self.sample.bytes() as u64;
        match self.available {
            Some(available) if available < needed => Err(Error::Content {
                file: name.into(),
                reason: format!(
                    "it is cut short: {needed} bytes of values are announced, {available} are there"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Reads `count` more values.
    pub(super) fn append<T: Rounded>(
        &self,
        name: &str,
        reader: &mut dyn Read,
        count: usize,
        values: &mut Vec<T>,
    ) -> Result<()> {
        let size = self.sample.bytes();
        let mut bytes = vec![0; size * PIECE.min(count)];
        let mut left = count;
        while left > 0 {
            let piece = PIECE.min(left);
            let bytes = &mut bytes[..piece * size];
            reader.read_exact(bytes).map_err(|error| failed_read(name, &error))?;
            if values.capacity() - values.len() < piece {
                // Doubles, and never asks for more than the whole.
                let more = values.len().clamp(piece, left);
                reserve(name, values, more)?;
            }
            self.convert(bytes, values);
            left -= piece;
        }
        Ok(())
    }

    fn convert<T: Rounded>(&self, bytes: &[u8], values: &mut Vec<T>) {
        macro_rules! convert {
            ($type:ty) => {
                convert!($type, |stored| stored as f64)
            };
            ($type:ty, $widen:expr) => {{
                const SIZE: usize = size_of::<$type>();
                let widen: fn($type) -> f64 = $widen;
                let stored = bytes.as_chunks::<SIZE>().0.iter();
                match self.order {
                    Order::Little => {
                        values.extend(stored.map(|v| self.value(widen(<$type>::from_le_bytes(*v)))))
                    }
                    Order::Big => {
                        values.extend(stored.map(|v| self.value(widen(<$type>::from_be_bytes(*v)))))
                    }
                }
            }};
        }
        match self.sample {
            Sample::U8 => convert!(u8, f64::from),
            Sample::I8 => convert!(i8, f64::from),
            Sample::U16 => convert!(u16, f64::from),
            Sample::I16 => convert!(i16, f64::from),
            Sample::U32 => convert!(u32, f64::from),
            Sample::I32 => convert!(i32, f64::from),
            Sample::U64 => convert!(u64),
            Sample::I64 => convert!(i64),
            Sample::F16 => convert!(half::f16, f64::from),
            Sample::F32 => convert!(f32, f64::from),
            Sample::F64 => convert!(f64, f64::from),
        }
    }

    /// Arithmetic in f64, so that scaled integers are rounded once.
    fn value<T: Rounded>(&self, stored: f64) -> T {
        if self.blank == Some(stored) {
            return T::rounded(f64::NAN);
        }
        T::rounded(stored * self.scaling.slope + self.scaling.offset)
    }
}

/// Writes values as `sample`; integers are `value · scale`, rounded and clamped, and 0 for NaN.
pub(super) fn write(
    writer: &mut dyn Write,
    values: impl Iterator<Item = f32>,
    sample: Sample,
    order: Order,
    scale: f64,
) -> std::io::Result<()> {
    let most = values.size_hint().1.map_or(PIECE, |most| most.min(PIECE));
    let mut bytes = Vec::with_capacity(most * 8);
    macro_rules! put {
        ($value:expr) => {{
            let value = $value;
            match order {
                Order::Little => bytes.extend_from_slice(&value.to_le_bytes()),
                Order::Big => bytes.extend_from_slice(&value.to_be_bytes()),
            }
        }};
    }
    for value in values {
        let scaled = f64::from(value) * scale;
        let rounded = scaled.round();
        // `as` clamps to the type's range.
        match sample {
            Sample::U8 => put!(rounded as u8),
            Sample::I8 => put!(rounded as i8),
            Sample::U16 => put!(rounded as u16),
            Sample::I16 => put!(rounded as i16),
            Sample::U32 => put!(rounded as u32),
            Sample::I32 => put!(rounded as i32),
            Sample::U64 => put!(rounded as u64),
            Sample::I64 => put!(rounded as i64),
            Sample::F16 => put!(half::f16::from_f32(value)),
            Sample::F32 => put!(value),
            Sample::F64 => put!(f64::from(value)),
        }
        if bytes.len() >= PIECE * 8 {
            writer.write_all(&bytes)?;
            bytes.clear();
        }
    }
    writer.write_all(&bytes)
}

/// Room for `more` values, or an error where `Vec` would abort.
pub(super) fn reserve<T>(name: &str, values: &mut Vec<T>, more: usize) -> Result<()> {
    values.try_reserve_exact(more).map_err(|_| Error::Limit {
        file: name.into(),
        reason: format!("there is no memory for {more} more values"),
    })
}

/// Reads what little may follow the values, at whose end compressed data has its checksum.
pub(super) fn finish(name: &str, reader: &mut dyn Read) -> Result<()> {
    let mut rest = reader.take(1 << 20);
    std::io::copy(&mut rest, &mut std::io::sink()).map_err(|error| failed_read(name, &error))?;
    Ok(())
}

/// A failed read as an error: the end of the file means damage, anything else the system.
pub(super) fn failed_read(name: &str, error: &std::io::Error) -> Error {
    let (file, reason) = (name.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            Error::Content { file, reason: "it is cut short: it ends before its values do".into() }
        }
        ErrorKind::InvalidData | ErrorKind::InvalidInput => Error::Content { file, reason },
        _ => Error::File { file, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Sample; 11] = [
        Sample::U8,
        Sample::I8,
        Sample::U16,
        Sample::I16,
        Sample::U32,
        Sample::I32,
        Sample::U64,
        Sample::I64,
        Sample::F16,
        Sample::F32,
        Sample::F64,
    ];

    #[test]
    fn values_of_all_types_come_back_in_both_byte_orders() {
        let values: Vec<f32> = (0..40_000).map(|i| (i % 120) as f32).collect();
        for sample in ALL {
            for order in [Order::Little, Order::Big] {
                let mut bytes = Vec::new();
                write(&mut bytes, values.iter().copied(), sample, order, 1.0).expect("memory");
                assert_eq!(bytes.len(), values.len() * sample.bytes());
                for available in [None, Some(bytes.len() as u64)] {
                    let encoded =
                        Encoded { sample, order, scaling: Scaling::NONE, blank: None, available };
                    let back = encoded.read::<f32>("memory", &mut &bytes[..], values.len());
                    assert_eq!(back.expect("whole"), values, "{sample:?} {order:?}");
                    let cut = encoded.read::<f32>("memory", &mut &bytes[1..], values.len());
                    assert!(cut.expect_err("cut").to_string().contains("cut short"));
                }
            }
        }
    }

    #[test]
    fn integers_are_rounded_and_clamped() {
        let mut bytes = Vec::new();
        let values = [-1.0, 0.4 / 255.0, 0.6 / 255.0, 1.0, 7.0, f32::NAN];
        write(&mut bytes, values.into_iter(), Sample::U8, Order::Little, 255.0).expect("memory");
        assert_eq!(bytes, [0, 0, 1, 255, 255, 0]);
    }

    #[test]
    fn announced_length_alone_allocates_nothing() {
        let encoded = Encoded {
            sample: Sample::F32,
            order: Order::Little,
            scaling: Scaling::NONE,
            blank: None,
            available: None,
        };
        // Would be 4 TiB.
        let error =
            encoded.read::<f32>("memory", &mut &[0; 64][..], 1 << 40).expect_err("64 bytes");
        assert!(error.to_string().contains("cut short"), "{error}");
    }
}

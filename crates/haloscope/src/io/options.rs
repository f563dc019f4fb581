//! What is read and how: types of stored values, order of axes, limits.

use std::fmt;

use super::metadata::Metadata;
#[cfg(any(feature = "hdf5", feature = "zarr"))]
use crate::array::Array;
use crate::error::{Error, Result};

/// How values are stored in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sample {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Floating point, 16 bits.
    F16,
    /// Floating point, 32 bits.
    F32,
    /// Floating point, 64 bits.
    F64,
}

impl Sample {
    /// The bytes of one value.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The largest value of an unsigned integer: white, in a picture.
    #[must_use]
    pub fn white(self) -> Option<f64> {
        match self {
            Self::U8 => Some(f64::from(u8::MAX)),
            Self::U16 => Some(f64::from(u16::MAX)),
            Self::U32 => Some(f64::from(u32::MAX)),
            Self::U64 => Some(u64::MAX as f64),
            _ => None,
        }
    }

    /// Whether values are floating-point numbers.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }
}

/// As in `16-bit unsigned`.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => "unsigned",
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => "signed",
            Self::F16 | Self::F32 | Self::F64 => "float",
        };
        write!(f, "{}-bit {kind}", 8 * self.bytes())
    }
}

/// `value = slope · stored + offset`: what was done to the stored values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// What stored values were multiplied with.
    pub slope: f64,
    /// What was added then.
    pub offset: f64,
}

/// As in `4095 is 1`.
impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |number: f64| (number * 1e6).round() / 1e6;
        match *self {
            Self::NONE => f.write_str("as stored"),
            Self { slope, offset: 0.0 } => write!(f, "{} is 1", short(1.0 / slope)),
            Self { slope: 1.0, offset } => write!(f, "{} added", short(offset)),
            Self { slope, offset } => write!(f, "times {slope} plus {}", short(offset)),
        }
    }
}

impl Scaling {
    /// Values as they are stored.
    pub const NONE: Self = Self { slope: 1.0, offset: 0.0 };

    /// The scaling of a file that has one of its own, and then of the options.
    pub(super) fn and(self, options: &ReadOptions) -> Self {
        let own = if options.raw { Self::NONE } else { self };
        match options.white {
            None => own,
            Some(white) => Self { slope: own.slope / white, offset: own.offset / white },
        }
    }

    /// That of a picture, whose white is 1 unless the options say otherwise.
    pub(super) fn of_picture(sample: Sample, options: &ReadOptions) -> Self {
        let white = options.white.or(if options.raw { None } else { sample.white() });
        Self { slope: 1.0 / white.unwrap_or(1.0), offset: 0.0 }
    }

    /// An array of stored values, scaled.
    #[cfg(feature = "hdf5")]
    pub(super) fn apply(self, array: Array) -> Array {
        if self == Self::NONE {
            return array;
        }
        array.mapv_into(|stored| (f64::from(stored) * self.slope + self.offset) as f32)
    }
}

/// What the axes of an array in a file mean, where the format does not say: NPY, NPZ, FITS, HDF5, Zarr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axes {
    /// Two or three axes are spatial, of one channel; four are (batch, channel, height, width) and
    /// five (batch, channel, depth, height, width).
    #[default]
    Automatic,
    /// All axes are spatial, of one channel.
    Spatial,
    /// (channel, spatial…).
    ChannelFirst,
    /// (spatial…, channel), as most programs have colour pictures in memory.
    ChannelLast,
    /// The axes of the file and no others: for kernels, angles and other tables.
    AsStored,
}

impl Axes {
    /// What they would be, under the names that they have in job files.
    fn expected(self) -> &'static str {
        match self {
            Self::Automatic => {
                "automatic are 2 or 3 sides of one channel, or batch, channel and 2 or 3 sides"
            }
            Self::Spatial => "spatial are (height, width) or (depth, height, width)",
            Self::ChannelFirst => {
                "channel-first are (channel, height, width) or (channel, depth, height, width)"
            }
            Self::ChannelLast => {
                "channel-last are (height, width, channel) or (depth, height, width, channel)"
            }
            Self::AsStored => "of the file are taken as they are",
        }
    }

    /// The axis of the array (batch, channel, spatial…) that each axis of a stored array is, and the shape of the array.
    pub(super) fn place(self, name: &str, stored: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
        let count = stored.len();
        let fits = match self {
            Self::Automatic => (2..=5).contains(&count),
            Self::Spatial => (2..=3).contains(&count),
            Self::ChannelFirst | Self::ChannelLast => (3..=4).contains(&count),
            Self::AsStored => true,
        };
        if !fits {
            return Err(Error::Unsupported {
                file: name.into(),
                reason: format!("the array has shape {stored:?}; the axes {}", self.expected()),
            });
        }
        let missing = match self {
            Self::AsStored => 0,
            Self::Automatic if count > 3 => 0,
            Self::Automatic | Self::Spatial => 2,
            Self::ChannelFirst | Self::ChannelLast => 1,
        };
        let axes: Vec<usize> = match self {
            Self::ChannelLast => (2..=count).chain([1]).collect(),
            _ => (missing..count + missing).collect(),
        };
        let mut shape = vec![1; count + missing];
        for (&axis, &side) in axes.iter().zip(stored) {
            shape[axis] = side;
        }
        Ok((axes, shape))
    }

    /// The array with the axes (batch, channel, spatial…).
    #[cfg(any(feature = "hdf5", feature = "zarr"))]
    pub(super) fn arrange(self, name: &str, array: Array) -> Result<Array> {
        let (_, shape) = self.place(name, array.shape())?;
        let array = match self {
            Self::ChannelLast => {
                let last = array.ndim() - 1;
                array.permuted_axes([last].into_iter().chain(0..last).collect::<Vec<_>>())
            }
            _ => array,
        };
        let array = if array.is_standard_layout() {
            array
        } else {
            array.as_standard_layout().into_owned()
        };
        array
            .into_shape_with_order(shape)
            .map_err(|error| Error::Content { file: name.into(), reason: error.to_string() })
    }
}

/// What a file may ask for before it is refused, so that a damaged or hostile one cannot take the
/// machine's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file itself.
    pub file_bytes: u64,
    /// Elements of the array, which takes four bytes for each.
    pub elements: u64,
    /// The longest side.
    pub side: u64,
}

impl Default for Limits {
    /// 2³¹ elements (8 GiB of array: a volume of 1290³, more than most workstations would want to
    /// read by accident), sides of up to 2²⁰, and files of up to 32 GiB.
    fn default() -> Self {
        Self { file_bytes: 32 << 30, elements: 1 << 31, side: 1 << 20 }
    }
}

impl Limits {
    /// No limits but those of the address space: for files that are known to be good.
    pub const NONE: Self = Self { file_bytes: u64::MAX, elements: u64::MAX, side: u64::MAX };

    /// The number of elements of a shape, if it is within the limits.
    pub(super) fn check(&self, name: &str, shape: &[u64]) -> Result<usize> {
        let too_much = |reason: String| Error::Limit { file: name.into(), reason };
        self.check_sides(name, shape)?;
        let count = shape.iter().try_fold(1_u64, |count, &side| count.checked_mul(side));
        match count.filter(|&count| count <= self.elements).map(usize::try_from) {
            // Eight bytes each must not overflow an address, either.
            Some(Ok(count)) if count <= isize::MAX as usize / 8 => Ok(count),
            _ => Err(too_much(format!(
                "an array of shape {shape:?}; the limit is {} elements",
                self.elements
            ))),
        }
    }
}

impl Limits {
    /// Refuses sides that are too long, and those of 0.
    pub(super) fn check_sides(&self, name: &str, shape: &[u64]) -> Result<()> {
        if let Some(side) = shape.iter().find(|&&side| side > self.side) {
            let reason = format!("a side of {side}; the limit for sides is {}", self.side);
            return Err(Error::Limit { file: name.into(), reason });
        }
        if shape.contains(&0) {
            let reason = format!("it holds no values: its shape is {shape:?}");
            return Err(Error::Content { file: name.into(), reason });
        }
        Ok(())
    }
}

/// How a file is read.
///
/// ```
/// use haloscope::io::{Axes, ReadOptions};
///
/// let options = ReadOptions { axes: Axes::ChannelLast, ..ReadOptions::default() };
/// assert!(!options.raw);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// What may be asked for.
    pub limits: Limits,
    /// Leave values as they are stored: no scaling of pictures to 0…1, no slope and offset.
    pub raw: bool,
    /// The value of the file that becomes 1, after the slope and offset that the file gives: 4095 for
    /// 12 bits of a camera. By default white, the largest value of the type, in PNG and JPEG, and 1
    /// in all other formats.
    pub white: Option<f64>,
    /// What the axes mean, where the format does not say.
    pub axes: Axes,
    /// Which array of an NPZ, HDF5 or Zarr file; by default the only one, or the one that the format
    /// puts first.
    pub entry: Option<String>,
}

impl ReadOptions {
    pub(super) fn check(&self) -> Result<()> {
        match self.white {
            Some(white) if !(white.is_finite() && white > 0.0) => Err(Error::argument(
                "white",
                format!("{white} is given; a finite number above 0 is accepted"),
            )),
            _ => Ok(()),
        }
    }
}

/// How a file is written.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteOptions {
    /// How values are stored; by default 8 bits in PNG and JPEG and 32-bit floats elsewhere.
    pub sample: Option<Sample>,
    /// Store values as they are, rounded and clamped to what the type holds, where PNG and JPEG would
    /// map 0…1 to the whole range of the type.
    pub raw: bool,
    /// The distance of neighbouring values along each spatial axis, in the array's order.
    pub spacing: Option<Vec<f64>>,
    /// Where the voxels are: see [`Image::affine`](super::Image::affine).
    pub affine: Option<[[f64; 4]; 3]>,
    /// Quality of a JPEG picture, from 1 to 100.
    pub quality: u8,
    /// The name of the array in an NPZ, HDF5 or Zarr file.
    pub entry: Option<String>,
    /// What else a file is to say.
    pub metadata: Metadata,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            sample: None,
            raw: false,
            spacing: None,
            affine: None,
            quality: 95,
            entry: None,
            metadata: Metadata::default(),
        }
    }
}

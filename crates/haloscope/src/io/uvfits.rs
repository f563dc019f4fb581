//! UVFITS: visibilities of a radio interferometer as the random groups of a FITS file.
//!
//! A group is a baseline at one time, with its place (`UU`, `VV`, `WW` in seconds) as parameters and a value for each channel and
//! polarisation: a real part, an imaginary part and a weight, which is not above 0 if the value is flagged. One IF of one source is
//! read.

use std::path::Path;

use super::fits::Header;
use super::reader::with_source;
use super::samples::failed_read;
use super::{Format, Image, Limits, ReadOptions, Sample, Scaling, Source};
use crate::array::Array;
use crate::error::{Error, Result};

/// Visibilities with their places and weights, channel by channel of one group after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct UvFits {
    /// (u, v, w) in wavelengths, with the signs of [`Visibilities`](crate::physics::fourier::Visibilities): −u, −v and w of the file.
    pub uvw: Vec<[f64; 3]>,
    /// Real and imaginary part; 0 where flagged.
    pub values: Vec<[f32; 2]>,
    /// One over the variance of each part, as the file has it; 0 where flagged, and for an antenna with itself.
    pub weights: Vec<f64>,
    /// The channels in Hz.
    pub frequencies: Vec<f64>,
    /// Right ascension and declination of the phase centre in degrees, if the file has them.
    pub centre: Option<[f64; 2]>,
}

/// Polarisations by the numbers that FITS gives them.
const STOKES: [(i64, &str); 12] = [
    (1, "I"),
    (2, "Q"),
    (3, "U"),
    (4, "V"),
    (-1, "RR"),
    (-2, "LL"),
    (-3, "RL"),
    (-4, "LR"),
    (-5, "XX"),
    (-6, "YY"),
    (-7, "XY"),
    (-8, "YX"),
];

/// More parameters than any program writes.
const MOST_PARAMETERS: u64 = 64;

/// Parameters that have to be the same in all groups, and what they count.
const SAME: [(&str, &str); 2] = [("SOURCE", "sources"), ("FREQSEL", "sets of frequencies")];

/// Whether a file begins as UVFITS does.
#[must_use]
pub fn is_uvfits(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let name = path.display().to_string();
    let options = ReadOptions::default();
    with_source(path, &name, &options, |source, format| match format {
        Format::Fits => Ok(Header::read(source, true)?.is_some_and(|header| header.has_groups())),
        _ => Ok(false),
    })
    .unwrap_or(false)
}

/// Right ascension and declination of the phase centre of a file in degrees, if it is UVFITS and has them.
#[must_use]
pub fn uvfits_centre(path: impl AsRef<Path>) -> Option<[f64; 2]> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let read = with_source(path, &name, &ReadOptions::default(), |source, format| {
        let header = match format {
            Format::Fits => Header::read(source, true)?.filter(Header::has_groups),
            _ => None,
        };
        Ok(header.and_then(|header| Groups::of(source, &header).ok()?.centre))
    });
    read.ok().flatten()
}

/// Reads a file: Stokes I, or a polarisation by its name, which is one of `I`, `Q`, `U`, `V`, `RR`, `LL`, `RL`, `LR`, `XX`, `YY`,
/// `XY` and `YX`.
///
/// The phase of a source at (l, m), to the east and the north, is `+2π (u l + v m + w (n − 1))` in these files, and that of
/// [`Visibilities`](crate::physics::fourier::Visibilities) is `−2π (u l + v m − w (n − 1))`. So u and v change their signs, and w and the
/// values do not.
///
/// Where a file has no I, it is the mean of `RR` and `LL` or of `XX` and `YY`, flagged if one of them is, with the weight that
/// follows from theirs.
pub fn read_uvfits(
    path: impl AsRef<Path>,
    polarisation: Option<&str>,
    limits: &Limits,
) -> Result<UvFits> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let entry = polarisation.map(str::to_owned);
    let options = ReadOptions { limits: limits.clone(), entry, ..ReadOptions::default() };
    with_source(path, &name, &options, |source, format| {
        let header = match format {
            Format::Fits => Header::read(source, true)?.filter(Header::has_groups),
            _ => None,
        };
        match header {
            Some(header) => read(source, &header),
            None => Err(source.unsupported(
                "it has no random groups; UVFITS is expected, a FITS file with GROUPS = T and NAXIS1 = 0",
            )),
        }
    })
}

/// The visibilities alone, (1, 2, visibility), with real and imaginary parts as channels.
pub(super) fn read_image(source: &mut Source, header: &Header) -> Result<Image> {
    let found = read(source, header)?;
    let part = |part: usize| found.values.iter().map(move |value| value[part]);
    let values = part(0).chain(part(1)).collect();
    let array = Array::from_shape_vec(vec![1, 2, found.values.len()], values)
        .expect("two values for each visibility");
    let about = Image::about(Format::Fits, Sample::F32, Scaling { slope: 1.0, offset: 0.0 });
    Ok(Image { array, ..about })
}

/// Where the values of a group are.
struct Groups {
    sample: Sample,
    scaling: Scaling,
    parameters: Vec<Parameter>,
    count: u64,
    /// The values of a group, without its parameters.
    values: usize,
    /// 3, or 2 without weights.
    parts: usize,
    /// The values from one channel to the next, and from one polarisation to the next.
    channel_step: usize,
    stokes_step: usize,
    frequencies: Vec<f64>,
    /// The frequency of places that are in wavelengths.
    reference: f64,
    polarisations: Vec<String>,
    centre: Option<[f64; 2]>,
}

struct Parameter {
    name: String,
    scale: f64,
    zero: f64,
}

/// What is made of the polarisations of a file.
enum Selection {
    One(usize),
    MeanOf(usize, usize),
}

fn read(source: &mut Source, header: &Header) -> Result<UvFits> {
    let groups = Groups::of(source, header)?;
    let selection = groups.select(source)?;
    let channels = groups.frequencies.len();
    let visibilities = groups.count.saturating_mul(channels as u64);
    source.options.limits.check(source.name, &[2, visibilities])?;
    let width = groups.sample.bytes();
    let bytes = (groups.parameters.len() + groups.values) * width;
    let at = source.reader.stream_position().map_err(|error| failed_read(source.name, &error))?;
    let needed = (bytes as u64).checked_mul(groups.count);
    if needed.is_none_or(|needed| needed > source.length.saturating_sub(at)) {
        return Err(source.damaged(format!(
            "it is cut short: {} groups of {bytes} bytes are announced, and {} bytes follow the header",
            groups.count,
            source.length.saturating_sub(at)
        )));
    }
    let visibilities = visibilities as usize;
    let mut found = UvFits {
        uvw: Vec::with_capacity(visibilities),
        values: Vec::with_capacity(visibilities),
        weights: Vec::with_capacity(visibilities),
        frequencies: groups.frequencies.clone(),
        centre: groups.centre,
    };
    let mut buffer = vec![0; bytes];
    let mut known = [None; SAME.len()];
    for group in 0..groups.count {
        source.reader.read_exact(&mut buffer).map_err(|error| failed_read(source.name, &error))?;
        let value = |index: usize| big_endian(groups.sample, &buffer[index * width..][..width]);
        let first = groups.parameters.len();
        let [u, v, w] = ["UU", "VV", "WW"].map(|name| groups.place(name, &value));
        for ((name, what), known) in SAME.iter().zip(&mut known) {
            let Some(own) = groups.parameter(name, &value) else { continue };
            if *known.get_or_insert(own) != own {
                return Err(source.unsupported(format!(
                    "it has several {what}: {name} is {} in group 1 and {own} in group {}; write each to a file of its own",
                    known.unwrap_or(own),
                    group + 1
                )));
            }
        }
        let is_alone = groups.is_autocorrelation(&value);
        for channel in 0..channels {
            let at = |stokes: usize| {
                let begin = first + channel * groups.channel_step + stokes * groups.stokes_step;
                let part = |part: usize| {
                    groups.scaling.slope * value(begin + part) + groups.scaling.offset
                };
                let weight = if groups.parts > 2 { part(2) } else { 1.0 };
                [part(0), part(1), weight]
            };
            let [re, im, weight] = match selection {
                Selection::One(stokes) => at(stokes),
                Selection::MeanOf(one, other) => mean(at(one), at(other)),
            };
            let weight = if is_alone || weight.is_nan() { 0.0 } else { weight.max(0.0) };
            let at = |place: Place| place.at(groups.frequencies[channel], groups.reference);
            let uvw = [-at(u), -at(v), at(w)];
            let is_placed = uvw.iter().all(|place| place.is_finite());
            let is_good = is_placed && [re, im, weight].iter().all(|value| value.is_finite());
            if weight > 0.0 && !is_good {
                return Err(source.damaged(format!(
                    "group {} has a value that is not finite in channel {}, and a weight above 0; flagged ones have a weight \
                     of 0 or below",
                    group + 1,
                    channel + 1
                )));
            }
            let is_used = weight > 0.0;
            found.uvw.push(if is_placed { uvw } else { [0.0; 3] });
            found.values.push(if is_used { [re as f32, im as f32] } else { [0.0; 2] });
            found.weights.push(weight);
        }
    }
    Ok(found)
}

/// The mean of two hands, flagged if one of them is.
fn mean(one: [f64; 3], other: [f64; 3]) -> [f64; 3] {
    if !(one[2] > 0.0 && other[2] > 0.0) {
        return [0.0; 3];
    }
    // The variance of the mean is a quarter of the sum of both.
    let weight = 4.0 / (1.0 / one[2] + 1.0 / other[2]);
    [0.5 * (one[0] + other[0]), 0.5 * (one[1] + other[1]), weight]
}

/// A coordinate of a baseline.
#[derive(Clone, Copy)]
enum Place {
    Seconds(f64),
    /// At the reference frequency.
    Wavelengths(f64),
}

impl Place {
    /// In wavelengths at a frequency.
    fn at(self, frequency: f64, reference: f64) -> f64 {
        match self {
            Self::Seconds(seconds) => seconds * frequency,
            Self::Wavelengths(place) => place * frequency / reference,
        }
    }
}

impl Groups {
    fn of(source: &Source, header: &Header) -> Result<Self> {
        let sides = header.sides(source)?;
        let sample = header.sample(source)?;
        let count = |key: &str| header.integer(key).and_then(|count| u64::try_from(count).ok());
        let (Some(parameters), Some(groups)) = (count("PCOUNT"), count("GCOUNT")) else {
            return Err(source.damaged("random groups need a PCOUNT and a GCOUNT of 0 or more"));
        };
        if parameters > MOST_PARAMETERS {
            let reason =
                format!("PCOUNT is {parameters}; at most {MOST_PARAMETERS} parameters are read");
            return Err(Error::Limit { file: source.name.into(), reason });
        }
        // The first of the sides is the 0 of random groups.
        let values = sides[1..].iter().try_fold(1_u64, |all, side| all.checked_mul(*side));
        let values = values.filter(|values| (1..=1 << 28).contains(values)).ok_or_else(|| {
            source.damaged(format!("groups of sides {:?}; 1 to 2²⁸ values are read", &sides[1..]))
        })? as usize;
        let bytes = (parameters + values as u64) * sample.bytes() as u64;
        if bytes > source.length {
            return Err(source.damaged(format!(
                "it is cut short: groups of {bytes} bytes are announced, and the file has {}",
                source.length
            )));
        }
        let mut found = Self {
            sample,
            scaling: Scaling {
                slope: header.float("BSCALE").unwrap_or(1.0),
                offset: header.float("BZERO").unwrap_or(0.0),
            },
            parameters: (1..=parameters).map(|index| Parameter::of(header, index)).collect(),
            count: groups,
            values,
            parts: 0,
            channel_step: 0,
            stokes_step: 0,
            frequencies: Vec::new(),
            reference: 1.0,
            polarisations: vec!["I".into()],
            centre: None,
        };
        let mut centre = [header.float("OBSRA"), header.float("OBSDEC")];
        let mut step = 1;
        for (axis, side) in (2..).zip(&sides[1..]) {
            let name = header.text(&format!("CTYPE{axis}")).unwrap_or("");
            let number =
                |key: &str| header.float(&format!("{key}{axis}")).filter(|n| n.is_finite());
            let (start, by) = (number("CRVAL"), number("CDELT").unwrap_or(1.0));
            let place = |index: u64| {
                Some(start? + (index as f64 + 1.0 - number("CRPIX").unwrap_or(1.0)) * by)
            };
            match name {
                "COMPLEX" if axis == 2 && matches!(side, 2 | 3) => found.parts = *side as usize,
                "STOKES" if *side <= STOKES.len() as u64 => {
                    found.stokes_step = step;
                    found.polarisations =
                        (0..*side).map(|index| stokes_name(place(index))).collect();
                }
                "FREQ" => {
                    found.channel_step = step;
                    found.frequencies = (0..*side).filter_map(place).collect();
                    found.reference = start.unwrap_or(1.0);
                }
                "RA" if *side == 1 => centre[0] = start,
                "DEC" if *side == 1 => centre[1] = start,
                _ if *side == 1 => (),
                _ => {
                    return Err(source.unsupported(format!(
                        "axis {axis}, {name:?}, has {side} values; COMPLEX (2 or 3, as axis 2), STOKES (up to {}), FREQ and others of one \
                         value are read: of several IFs, write each to a file of its own",
                        STOKES.len()
                    )));
                }
            }
            step *= *side as usize;
        }
        if found.parts == 0 || found.frequencies.is_empty() {
            return Err(source.unsupported("it needs the axes COMPLEX, as axis 2, and FREQ"));
        }
        if !found.frequencies.iter().all(|frequency| *frequency > 0.0) {
            return Err(source.damaged("its frequencies are not all above 0"));
        }
        for name in ["UU", "VV"] {
            if !found.parameters.iter().any(|parameter| parameter.is(name)) {
                let names: Vec<&str> =
                    found.parameters.iter().map(|parameter| &parameter.name[..]).collect();
                let reason = format!("its groups have no {name}; their parameters are {names:?}");
                return Err(source.damaged(reason));
            }
        }
        found.centre = centre[0].zip(centre[1]).map(|(ra, dec)| [ra, dec]);
        Ok(found)
    }

    /// The polarisations that were asked for.
    fn select(&self, source: &Source) -> Result<Selection> {
        let find = |name: &str| self.polarisations.iter().position(|known| known == name);
        // An archive of arrays has its visibilities under this name, and a job may be for both.
        let asked = source.options.entry.as_deref().filter(|name| *name != "visibilities");
        let asked = asked.unwrap_or("I");
        if let Some(index) = find(asked) {
            return Ok(Selection::One(index));
        }
        let pairs = [("RR", "LL"), ("XX", "YY")];
        let pair = pairs.into_iter().find_map(|(one, other)| find(one).zip(find(other)));
        match pair {
            Some((one, other)) if asked == "I" => Ok(Selection::MeanOf(one, other)),
            _ => Err(source.unsupported(format!(
                "the polarisation {asked} is asked for, and it has {}",
                self.polarisations.join(", ")
            ))),
        }
    }

    /// A coordinate: the sum of all parameters of this name.
    fn place(&self, name: &str, value: &dyn Fn(usize) -> f64) -> Place {
        let mut in_wavelengths = false;
        let mut sum = 0.0;
        for (index, parameter) in self.parameters.iter().enumerate() {
            if parameter.is(name) {
                sum += parameter.scale * value(index) + parameter.zero;
                in_wavelengths |= parameter.name[2..].starts_with("-L");
            }
        }
        if in_wavelengths { Place::Wavelengths(sum) } else { Place::Seconds(sum) }
    }

    /// A parameter of a group by its whole name.
    fn parameter(&self, name: &str, value: &dyn Fn(usize) -> f64) -> Option<f64> {
        let index = self.parameters.iter().position(|parameter| parameter.name == name)?;
        let parameter = &self.parameters[index];
        Some(parameter.scale * value(index) + parameter.zero)
    }

    /// Whether a group is that of an antenna with itself: `BASELINE` is 256 or 2048 times the first, plus the second. Files of many
    /// antennas have `ANTENNA1` and `ANTENNA2` instead.
    fn is_autocorrelation(&self, value: &dyn Fn(usize) -> f64) -> bool {
        let Some(baseline) = self.parameter("BASELINE", value) else {
            let [one, other] =
                ["ANTENNA1", "ANTENNA2"].map(|name| self.parameter(name, value).map(f64::round));
            return one.is_some() && one == other;
        };
        let baseline = baseline.floor();
        let (rest, base) =
            if baseline > 65536.0 { (baseline - 65536.0, 2048.0) } else { (baseline, 256.0) };
        rest > 0.0 && (rest / base).floor() == rest % base
    }
}

impl Parameter {
    fn of(header: &Header, index: u64) -> Self {
        let number = |key: &str, standard: f64| {
            header.float(&format!("{key}{index}")).filter(|n| n.is_finite()).unwrap_or(standard)
        };
        let name = header.text(&format!("PTYPE{index}")).unwrap_or("").trim().to_owned();
        Self { name, scale: number("PSCAL", 1.0), zero: number("PZERO", 0.0) }
    }

    /// `UU`, also as `UU---SIN`.
    fn is(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// A number as FITS stores it.
fn big_endian(sample: Sample, bytes: &[u8]) -> f64 {
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        std::array::from_fn(|index| bytes.get(index).copied().unwrap_or(0))
    }
    match sample {
        Sample::I16 => i16::from_be_bytes(array(bytes)).into(),
        Sample::I32 => i32::from_be_bytes(array(bytes)).into(),
        Sample::I64 => i64::from_be_bytes(array(bytes)) as f64,
        Sample::F32 => f32::from_be_bytes(array(bytes)).into(),
        Sample::F64 => f64::from_be_bytes(array(bytes)),
        _ => bytes.first().copied().unwrap_or(0).into(),
    }
}

fn stokes_name(number: Option<f64>) -> String {
    let known = STOKES.iter().find(|(known, _)| number == Some(*known as f64));
    known.map_or_else(|| format!("{}", number.unwrap_or(f64::NAN)), |(_, name)| (*name).to_owned())
}

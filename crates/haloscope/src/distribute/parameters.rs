//! What the operators of a factory share: arrays, numbers and words by name, the same on all ranks.

use std::collections::BTreeMap;

use haloscope_comm::{Collectives, Context};
use ndarray::{ArrayD, IxDyn};

use crate::array::{Array, View};
use crate::error::{Error, Result};

/// Named values that all operators of a [`Factory`](super::Factory) may need: a common kernel, the angles, how to pad.
///
/// ```
/// use haloscope::distribute::Parameters;
///
/// let shared = Parameters::new()
///     .with("kernel", ndarray::ArrayD::ones(vec![3, 3]))
///     .with("sigma", 0.5)
///     .with("padding", "circular");
/// assert_eq!(shared.number("sigma")?, 0.5);
/// assert_eq!(shared.text("padding")?, "circular");
/// let error = shared.flag("padding").expect_err("a word").to_string();
/// assert_eq!(error, "parameter: `padding` is a text; a flag is needed");
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(BTreeMap<String, Parameter>);

/// A value that operators share.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// An array.
    Array(Array),
    /// A number: a noise level, a distance.
    Number(f64),
    /// A count or an index.
    Integer(i64),
    /// Yes or no.
    Flag(bool),
    /// A name or a path.
    Text(String),
    /// Anything else, in a form of the caller's.
    Bytes(Vec<u8>),
}

impl Parameter {
    fn kind(&self) -> &'static str {
        match self {
            Self::Array(_) => "an array",
            Self::Number(_) => "a number",
            Self::Integer(_) => "an integer",
            Self::Flag(_) => "a flag",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "a list of bytes",
        }
    }
}

macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident, $variant:ident, $from:ty, $to:ty, $what:literal, |$value:ident| $get:expr;)*) => {
        $(impl From<$from> for Parameter {
            fn from(value: $from) -> Self {
                Self::$variant(value)
            }
        })*

        impl Parameters {
            $($(#[$doc])*
            ///
            /// # Errors
            /// If there is no parameter of this name, or it is something else.
            pub fn $name(&self, name: &str) -> Result<$to> {
                match self.find(name)? {
                    Parameter::$variant($value) => Ok($get),
                    other => Err(mistaken(name, other, $what)),
                }
            })*
        }
    };
}

parameters! {
    /// An array.
    array, Array, Array, &View, "an array", |value| value;
    /// A number.
    number, Number, f64, f64, "a number", |value| *value;
    /// An integer.
    integer, Integer, i64, i64, "an integer", |value| *value;
    /// Yes or no.
    flag, Flag, bool, bool, "a flag", |value| *value;
    /// A text.
    text, Text, String, &str, "a text", |value| value.as_str();
    /// Bytes.
    bytes, Bytes, Vec<u8>, &[u8], "a list of bytes", |value| value.as_slice();
}

impl From<&str> for Parameter {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl Parameters {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more, which replaces one of the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Parameter>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// The parameter of this name, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.0.get(name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn find(&self, name: &str) -> Result<&Parameter> {
        self.get(name).ok_or_else(|| {
            let names: Vec<String> = self.0.keys().map(|name| format!("`{name}`")).collect();
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            Error::argument("parameter", format!("`{name}` is not there; there are {there}"))
        })
    }

    /// Those of rank 0, on all ranks, bit for bit.
    pub(crate) fn broadcast(self, ctx: &Context) -> Result<Self> {
        if ctx.size() == 1 {
            return Ok(self);
        }
        let mut message = if ctx.is_root() { Message::of(&self) } else { Message::default() };
        ctx.comm().broadcast_list(0, &mut message.words)?;
        ctx.comm().broadcast_list(0, &mut message.bytes)?;
        ctx.comm().broadcast_list(0, &mut message.values)?;
        message.read().ok_or_else(|| {
            Error::argument("shared parameters", "what rank 0 sent cannot be read as parameters")
        })
    }
}

fn mistaken(name: &str, found: &Parameter, needed: &str) -> Error {
    Error::argument("parameter", format!("`{name}` is {}; {needed} is needed", found.kind()))
}

/// Parameters as lists that ranks can send: kinds, lengths and numbers; names, texts and bytes; the values of arrays.
#[derive(Default)]
struct Message {
    words: Vec<u64>,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Message {
    fn of(parameters: &Parameters) -> Self {
        let mut message = Self::default();
        for (name, value) in parameters.iter() {
            message.push_bytes(name.as_bytes());
            match value {
                Parameter::Array(array) => {
                    message.words.extend([0, array.ndim() as u64]);
                    message.words.extend(array.shape().iter().map(|size| *size as u64));
                    message.values.extend(array.iter());
                }
                Parameter::Number(number) => message.words.extend([1, number.to_bits()]),
                Parameter::Integer(integer) => message.words.extend([2, integer.cast_unsigned()]),
                Parameter::Flag(flag) => message.words.extend([3, u64::from(*flag)]),
                Parameter::Text(text) => {
                    message.words.push(4);
                    message.push_bytes(text.as_bytes());
                }
                Parameter::Bytes(bytes) => {
                    message.words.push(5);
                    message.push_bytes(bytes);
                }
            }
        }
        message
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        self.words.push(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    /// The parameters, if the lists are those of some.
    fn read(&self) -> Option<Parameters> {
        let (mut words, mut bytes, mut values) =
            (&self.words[..], &self.bytes[..], &self.values[..]);
        let mut parameters = Parameters::new();
        while !words.is_empty() {
            let name = take_bytes(&mut words, &mut bytes)?;
            let value = match take(&mut words, 1)?[0] {
                0 => {
                    let axes = take(&mut words, 1)?[0];
                    let shape = take(&mut words, usize::try_from(axes).ok()?)?;
                    let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
                    let part = take(&mut values, shape.iter().product())?;
                    ArrayD::from_shape_vec(IxDyn(&shape), part.to_vec()).ok()?.into()
                }
                1 => f64::from_bits(take(&mut words, 1)?[0]).into(),
                2 => take(&mut words, 1)?[0].cast_signed().into(),
                3 => (take(&mut words, 1)?[0] == 1).into(),
                4 => String::from_utf8(take_bytes(&mut words, &mut bytes)?).ok()?.into(),
                5 => take_bytes(&mut words, &mut bytes)?.into(),
                _ => return None,
            };
            parameters.0.insert(String::from_utf8(name).ok()?, value);
        }
        Some(parameters)
    }
}

fn take<'a, T>(from: &mut &'a [T], count: usize) -> Option<&'a [T]> {
    let (part, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(part)
}

/// As many bytes as the next word says.
fn take_bytes(words: &mut &[u64], bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let count = usize::try_from(take(words, 1)?[0]).ok()?;
    take(bytes, count).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Parameters {
        Parameters::new()
            .with("array", ArrayD::from_shape_fn(vec![2, 3], |i| (i[0] * 3 + i[1]) as f32))
            .with("empty", ArrayD::zeros(vec![0, 4]))
            .with("number", -0.0)
            .with("not a number", f64::from_bits(0x7ff8_0000_0000_0001))
            .with("integer", -7_i64)
            .with("flag", true)
            .with("text", "replicate ü")
            .with("nothing", "")
            .with("bytes", vec![0_u8, 255, 7])
    }

    #[test]
    fn parameters_of_rank_0_arrive_everywhere_bit_for_bit() {
        for ranks in [1, 2, 3, 5, 8] {
            let arrived = Context::threads(ranks, |ctx| {
                // What other ranks give does not matter.
                let mine = Parameters::new().with("array", 1.0).with("stray", true);
                if ctx.is_root() { all() } else { mine }.broadcast(ctx)
            });
            for shared in arrived.expect("no rank fails") {
                let names = |shared: &Parameters| -> Vec<String> {
                    shared.iter().map(|(name, _)| name.to_owned()).collect()
                };
                assert_eq!(names(&shared), names(&all()));
                for (name, value) in all().iter() {
                    match value {
                        Parameter::Number(number) => {
                            let found = shared.number(name).expect("a number");
                            assert_eq!(found.to_bits(), number.to_bits(), "{name}");
                        }
                        other => assert_eq!(shared.get(name), Some(other)),
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_absent_or_something_else_is_said_with_what_is_there() {
        let error = all().text("words").expect_err("absent").to_string();
        assert!(error.contains("`words` is not there; there are `array`, `bytes`"), "{error}");
        let error = Parameters::new().flag("on").expect_err("absent").to_string();
        assert!(error.contains("there are none"), "{error}");
        let error = all().number("integer").expect_err("another kind").to_string();
        assert!(error.contains("`integer` is an integer; a number is needed"), "{error}");
    }

    #[test]
    fn lists_that_are_no_parameters_are_refused() {
        let message = Message::of(&all());
        for length in 0..message.words.len() {
            let words = message.words[..length].to_vec();
            let (bytes, values) = (message.bytes.clone(), message.values.clone());
            // Those of fewer parameters may be read; none panics.
            let _ = Message { words, bytes, values }.read();
        }
        let short = Message { values: vec![], ..Message::of(&all()) };
        assert_eq!(short.read(), None);
        let unknown = Message { words: vec![0, 9], ..Message::default() };
        assert_eq!(unknown.read(), None);
    }
}

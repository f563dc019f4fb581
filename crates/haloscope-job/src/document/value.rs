//! The types that keys of a job file can have.

use toml::de::DeValue;

/// A type that a key can have.
pub(crate) trait Value<'a>: Sized {
    /// What would be accepted: `a number`.
    fn expected() -> String;

    /// The value, if it is of this type.
    fn of(value: &'a DeValue<'a>) -> Option<Self>;
}

impl Value<'_> for f64 {
    fn expected() -> String {
        "a number".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        let number: Self = match value {
            DeValue::Float(float) => float.as_str().parse().ok()?,
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok()? as Self
            }
            _ => return None,
        };
        number.is_finite().then_some(number)
    }
}

/// A number that may be infinite.
pub(super) struct Bound(pub(super) f64);

impl Value<'_> for Bound {
    fn expected() -> String {
        "a number, inf or -inf".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        let infinite = match value {
            DeValue::Float(float) => match float.as_str() {
                "inf" | "+inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        infinite.or_else(|| f64::of(value)).map(Self)
    }
}

impl Value<'_> for usize {
    fn expected() -> String {
        "a whole number that is not negative".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        let integer = value.as_integer()?;
        Self::from_str_radix(integer.as_str(), integer.radix()).ok()
    }
}

impl Value<'_> for bool {
    fn expected() -> String {
        "true or false".into()
    }

    fn of(value: &DeValue) -> Option<Self> {
        value.as_bool()
    }
}

impl<'a> Value<'a> for &'a str {
    fn expected() -> String {
        "text in quotes".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        value.as_str()
    }
}

/// A list; a single value is a list of one.
impl<'a, T: Value<'a>> Value<'a> for Vec<T> {
    fn expected() -> String {
        format!("{}, or a list of such", T::expected())
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value {
            DeValue::Array(items) => items.iter().map(|item| T::of(item.get_ref())).collect(),
            single => Some(vec![T::of(single)?]),
        }
    }
}

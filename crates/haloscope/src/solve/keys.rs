//! The numbers of a method: the keys that a job file may have in `[solver]`, and what is written there.
//!
//! A method lists its [`Key`]s in its [`Traits`](super::Traits); whoever reads them, from a file or from a program, makes
//! [`Keys`] of them, which the method is built from.

use std::collections::BTreeMap;
use std::fmt;

use super::method::Method;
use crate::error::{Error, Result};
use crate::physics::tomography::Window;

/// A key of a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What is written there.
    pub kind: KeyKind,
    /// Whether it must be given.
    pub is_required: bool,
    /// What is meant if it is absent, if that is something.
    pub default: Option<KeyValue>,
    /// What documentation says about it, besides its name and its default.
    pub note: &'static str,
}

/// What may be written at a [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// A number above 0.
    Positive,
    /// A number of at least 0.
    NotNegative,
    /// A number above 0, or `auto`.
    PositiveOrAuto,
    /// A whole number above 0.
    Count,
    /// Two numbers, the first and the last.
    Pair,
    /// One of the windows of filtered back-projection.
    Window,
}

/// What is written at a [`Key`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyValue {
    /// A number.
    Number(f64),
    /// Whatever suits the problem.
    Auto,
    /// A whole number.
    Count(usize),
    /// Two numbers.
    Pair(f64, f64),
    /// A window.
    Window(Window),
}

/// The step size.
pub(super) const STEP: Key =
    Key::optional("step", KeyKind::PositiveOrAuto, Some(KeyValue::Auto), "");
/// How many iterations a prox of the data term takes at most.
pub(super) const INNER_ITERATIONS: Key =
    Key::optional("inner-iterations", KeyKind::Count, Some(KeyValue::Count(50)), "");
/// The residual at which they stop.
pub(super) const INNER_TOLERANCE: Key =
    Key::optional("inner-tolerance", KeyKind::NotNegative, Some(KeyValue::Number(1e-6)), "");
/// By how much of what a step of SIRT corrects.
pub(super) const CORRECTION: Key =
    Key::optional("relaxation", KeyKind::Positive, Some(KeyValue::Number(1.0)), "");
/// How many ordered subsets there are of the operators.
pub(super) const SUBSETS: Key =
    Key::optional("subsets", KeyKind::Count, None, "as many as operators");
/// The weight of what a denoiser removes.
pub(super) const WEIGHT: Key = Key::required("weight", KeyKind::Positive, "");

impl Key {
    /// A key that may be absent.
    #[must_use]
    pub const fn optional(
        name: &'static str,
        kind: KeyKind,
        default: Option<KeyValue>,
        note: &'static str,
    ) -> Self {
        Self { name, kind, is_required: false, default, note }
    }

    /// A key that must be there.
    #[must_use]
    pub const fn required(name: &'static str, kind: KeyKind, note: &'static str) -> Self {
        Self { name, kind, is_required: true, default: None, note }
    }

    /// Whether a value is one that may be written there.
    fn takes(&self, value: KeyValue) -> bool {
        let positive = |number: f64| number > 0.0 && number.is_finite();
        match (self.kind, value) {
            (KeyKind::Positive | KeyKind::PositiveOrAuto, KeyValue::Number(number)) => {
                positive(number)
            }
            (KeyKind::NotNegative, KeyValue::Number(number)) => number >= 0.0 && number.is_finite(),
            (KeyKind::Count, KeyValue::Count(count)) => count > 0,
            (KeyKind::Pair, KeyValue::Pair(first, last)) => first.is_finite() && last.is_finite(),
            (KeyKind::PositiveOrAuto, KeyValue::Auto) | (KeyKind::Window, KeyValue::Window(_)) => {
                true
            }
            _ => false,
        }
    }
}

impl KeyKind {
    /// In words: `a number above 0`.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Positive => "a number above 0",
            Self::NotNegative => "a number that is not negative",
            Self::PositiveOrAuto => "a number above 0, or \"auto\"",
            Self::Count => "a whole number above 0",
            Self::Pair => "two numbers, the first and the last",
            Self::Window => "a window",
        }
    }
}

impl fmt::Display for KeyValue {
    /// As in a job file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) if *number != 0.0 && number.abs() < 1e-3 => {
                write!(f, "{number:e}")
            }
            Self::Number(number) => write!(f, "{number}"),
            Self::Auto => f.write_str("\"auto\""),
            Self::Count(count) => write!(f, "{count}"),
            Self::Pair(first, last) => write!(f, "[{first}, {last}]"),
            Self::Window(window) => write!(f, "{window:?}"),
        }
    }
}

/// The keys of a method with what is written there.
///
/// ```
/// use haloscope::solve::{KeyValue, Keys, Method};
///
/// let hqs: Method = "hqs".parse()?;
/// let keys = Keys::new(hqs).with("levels", KeyValue::Pair(0.2, 0.01))?;
/// assert_eq!(keys.pair("levels"), Some((0.2, 0.01)));
/// // What is not written has its default.
/// assert_eq!((keys.number("weight"), keys.count("inner-iterations")), (Some(0.23), Some(50)));
/// assert!(keys.with("momentum", KeyValue::Number(1.0)).is_err());
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    method: Method,
    values: BTreeMap<&'static str, KeyValue>,
}

impl Keys {
    /// None of the method's keys.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self { method, values: BTreeMap::new() }
    }

    /// With a value.
    pub fn with(mut self, name: &str, value: KeyValue) -> Result<Self> {
        let method = self.method;
        let Some(key) = method.key(name) else {
            let names: Vec<&str> = method.keys.iter().map(|key| key.name).collect();
            let names = if names.is_empty() { "none".into() } else { names.join(", ") };
            let reason = format!("{method} has no key `{name}`; it has {names}");
            return Err(Error::argument("solver", reason));
        };
        if !key.takes(value) {
            let expected = key.kind.expected();
            let reason = format!("`{name}` is {value}; {expected} is expected");
            return Err(Error::argument("solver", reason));
        }
        self.values.insert(key.name, value);
        Ok(self)
    }

    /// Refuses keys of which one is missing, or which do not go together; the name is that of the key.
    pub fn check(&self) -> std::result::Result<(), (&'static str, String)> {
        let is_missing = |key: &&Key| key.is_required && !self.is_given(key.name);
        if let Some(key) = self.method.keys.iter().find(is_missing) {
            return Err((key.name, format!("it is missing; {} is expected", key.kind.expected())));
        }
        (self.method.check)(self)
    }

    /// Whether a key is written.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Whether a key is to be found out: written as `auto`, or by default.
    #[must_use]
    pub fn is_auto(&self, name: &str) -> bool {
        self.value(name) == Some(KeyValue::Auto)
    }

    /// A number, or its default; `None` if there is neither, or if it is to be found out.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(KeyValue::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// A whole number, or its default.
    #[must_use]
    pub fn count(&self, name: &str) -> Option<usize> {
        match self.value(name) {
            Some(KeyValue::Count(count)) => Some(count),
            _ => None,
        }
    }

    /// Two numbers.
    #[must_use]
    pub fn pair(&self, name: &str) -> Option<(f64, f64)> {
        match self.value(name) {
            Some(KeyValue::Pair(first, last)) => Some((first, last)),
            _ => None,
        }
    }

    /// A window, or its default.
    #[must_use]
    pub fn window(&self, name: &str) -> Option<Window> {
        match self.value(name) {
            Some(KeyValue::Window(window)) => Some(window),
            _ => None,
        }
    }

    fn value(&self, name: &str) -> Option<KeyValue> {
        let default = || self.method.key(name).and_then(|key| key.default);
        self.values.get(name).copied().or_else(default)
    }
}

//! The instructions that there are kernels for, and whether this CPU has them.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The instructions that kernels are compiled for.
///
/// ```
/// use haloscope_nn::engine::InstructionSet;
///
/// let set: InstructionSet = "avx2".parse()?;
/// assert_eq!((set, set.to_string()), (InstructionSet::Avx2, "avx2".into()));
/// assert!(InstructionSet::Portable.is_available());
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// Plain Rust.
    Portable,
    /// AVX2 and FMA of x86-64.
    Avx2,
    /// AVX-512F and AVX-512VL of x86-64. Its results have the bits of AVX2.
    Avx512,
    /// NEON of 64-bit ARM.
    Neon,
    /// Plain Rust with an error on purpose.
    #[cfg(test)]
    Wrong,
}

impl InstructionSet {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Neon];

    /// Whether this CPU has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(test)]
            Self::Wrong => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
            #[cfg(not(target_arch = "aarch64"))]
            Self::Neon => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            #[cfg(test)]
            Self::Wrong => "wrong",
        }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for InstructionSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|set| set.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let reason = format!("`{text}`; one of {names} is needed");
            Error::Argument { what: "instructions", reason }
        })
    }
}

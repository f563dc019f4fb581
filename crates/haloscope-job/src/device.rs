//! Which device runs the network: a choice of the user, and what becomes of it on a rank.

use std::fmt;
use std::str::FromStr;

/// What `--device` and `device` of `[prior]` ask for.
///
/// ```
/// use haloscope_job::DeviceChoice;
///
/// assert_eq!("gpu:1".parse(), Ok(DeviceChoice::Gpu(Some(1))));
/// assert!("tpu".parse::<DeviceChoice>().unwrap_err().contains("gpu:N"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The processor; the default.
    #[default]
    Cpu,
    /// A GPU if there is one, else the processor.
    Auto,
    /// A GPU and nothing else: this one, or the one that is the rank's.
    Gpu(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = || text.strip_prefix("gpu:").and_then(|number| number.parse().ok());
        match text {
            "cpu" => Ok(Self::Cpu),
            "auto" => Ok(Self::Auto),
            "gpu" => Ok(Self::Gpu(None)),
            _ => number().map(|number| Self::Gpu(Some(number))).ok_or_else(|| {
                format!("`{text}` is no device; auto, cpu, gpu or gpu:N is expected, as in gpu:0")
            }),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Auto => f.write_str("auto"),
            Self::Gpu(None) => f.write_str("gpu"),
            Self::Gpu(Some(index)) => write!(f, "gpu:{index}"),
        }
    }
}

#[cfg(feature = "onnx")]
impl DeviceChoice {
    /// The GPU that it means on a rank, which is the `local_rank`-th of its machine, or the processor; and in words why, where
    /// that was open.
    ///
    /// # Errors
    /// If it asks for a GPU and the library, its provider, the driver or the GPU is missing: one line that says which.
    pub fn resolve(
        self,
        local_rank: usize,
    ) -> haloscope::Result<(Option<haloscope_onnx::Device>, Option<String>)> {
        let index = match self {
            Self::Cpu => return Ok((None, None)),
            Self::Auto => None,
            Self::Gpu(index) => index,
        };
        let gpus = match haloscope_onnx::gpus() {
            Ok(gpus) => gpus,
            Err(error) if self == Self::Auto => {
                return Ok((
                    None,
                    Some(format!("the network runs on the CPU, because of {error}")),
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let count = gpus.len();
        let Some(device) = gpus.get(index.unwrap_or(local_rank % count)).copied() else {
            let reason = format!("{self}; there are {count} here, the first is gpu:0");
            return Err(haloscope::Error::argument("device", reason));
        };
        let note = format!("the network runs on {device}, one of {count}");
        Ok((Some(device), (self == Self::Auto).then_some(note)))
    }
}

#[cfg(not(feature = "onnx"))]
impl DeviceChoice {
    /// Refuses GPUs, which this build cannot use.
    pub(crate) fn check(self) -> haloscope::Result<()> {
        match self {
            Self::Cpu | Self::Auto => Ok(()),
            Self::Gpu(_) => Err(haloscope::Error::argument(
                "device",
                format!(
                    "{self}; this build has no ONNX Runtime, which runs networks on GPUs: build with --features onnx"
                ),
            )),
        }
    }
}

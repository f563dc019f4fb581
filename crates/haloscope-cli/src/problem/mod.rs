//! Problems to try things out with, each as the text of a job file: what `haloscope init` writes and `haloscope demo`
//! runs.

/// Which problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Problem {
    /// A colour photograph from three blurred, noisy frames
    Deblur,
    /// A slice from few noisy projections
    #[value(name = "tomography-2d")]
    Tomography2d,
    /// A volume from few noisy cone-beam views
    #[value(name = "tomography-3d")]
    Tomography3d,
    /// A colour photograph from four small frames
    SuperResolution,
    /// A noisy colour photograph
    Denoise,
    /// A colour photograph of which half the pixels are missing
    Inpainting,
}

/// What a template leaves open.
#[derive(Clone, Debug)]
pub struct Choices {
    /// What it is called, and so is what it writes.
    pub name: String,
    /// Pixels along each side.
    pub size: usize,
    /// Weights of a denoiser; total variation if there are none.
    pub model: Option<String>,
    pub iterations: Option<usize>,
}

impl Problem {
    /// Its name on the command line.
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// A size that takes seconds.
    pub fn default_size(self) -> usize {
        match self {
            Self::Tomography3d => 64,
            Self::SuperResolution => 384,
            _ => 256,
        }
    }

    /// The network of the prior: the one that is named, or the one of this build that suits the problem; `None` for total
    /// variation.
    pub fn model(self, name: Option<&str>) -> Option<String> {
        let model = match (name, self) {
            (Some("tv"), _) => return None,
            (None, _) if cfg!(not(feature = "builtin")) => return None,
            (Some(name), _) => name,
            (None, Self::Tomography2d | Self::Tomography3d) => "builtin:gray",
            (None, _) => "builtin:color",
        };
        Some(model.to_owned())
    }

    /// The text of the job file.
    pub fn job(self, choices: &Choices) -> String {
        let size = choices.size;
        let prior = match &choices.model {
            None => self.total_variation(),
            Some(model) => self.network(model),
        };
        let iterations = choices.iterations.unwrap_or(match choices.model {
            None => 150,
            Some(_) => 8,
        });
        let views = if self == Self::Tomography3d { 48 } else { 60 };
        self.template()
            .replace("{prior}", prior.trim_end())
            .replace("{name}", &choices.name)
            .replace("{size}", &size.to_string())
            .replace("{detector}", &(size * 3 / 2).to_string())
            .replace("{source}", &(size * 3).to_string())
            .replace("{views}", &views.to_string())
            .replace("{iterations}", &iterations.to_string())
    }

    fn template(self) -> &'static str {
        match self {
            Self::Deblur => include_str!("templates/deblur.toml"),
            Self::Tomography2d => include_str!("templates/tomography-2d.toml"),
            Self::Tomography3d => include_str!("templates/tomography-3d.toml"),
            Self::SuperResolution => include_str!("templates/super-resolution.toml"),
            Self::Denoise => include_str!("templates/denoise.toml"),
            Self::Inpainting => include_str!("templates/inpainting.toml"),
        }
    }

    fn total_variation(self) -> String {
        let weight = match self {
            Self::Deblur => "0.012",
            Self::SuperResolution => "0.004",
            Self::Tomography2d => "0.0005",
            Self::Tomography3d => "0.0002",
            Self::Denoise => "0.09",
            Self::Inpainting => "0.02",
        };
        include_str!("templates/total-variation.toml").replace("{weight}", weight)
    }

    fn network(self, model: &str) -> String {
        let level = match self {
            Self::Deblur => "0.03",
            Self::SuperResolution | Self::Inpainting => "0.02",
            Self::Tomography2d | Self::Tomography3d => "0.005",
            Self::Denoise => "0.1",
        };
        // Measured scans are in any unit: their noise is found, and attenuations have no upper end.
        let is_scan = matches!(self, Self::Tomography2d | Self::Tomography3d);
        let (noise, most) = if is_scan { ("\"auto\"", "inf") } else { (level, "1") };
        // A literal string, so that backslashes of paths stay what they are.
        let model = if model.contains('\'') { format!("{model:?}") } else { format!("'{model}'") };
        include_str!("templates/network.toml")
            .replace("{model}", &model)
            .replace("{level}", level)
            .replace("{noise}", noise)
            .replace("{most}", most)
    }
}

//! What a job begins with and leaves behind: start, output and checkpoints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haloscope::io::Format;
use haloscope::physics::tomography::Window;
use haloscope::solve::{Checkpoints, Every};
use haloscope::{Error, Result};

use super::measurements::ImageFile;
use super::prior::PriorKind;
use crate::document::{Place, Section};

/// `[start]`.
#[derive(Clone, Debug)]
pub(crate) enum StartPlan {
    Zeros,
    Adjoint,
    /// The adjoint over what the operators see of each pixel, with the rest interpolated.
    Filled,
    /// After so many iterations at the most.
    PseudoInverse(usize),
    /// Filtered back-projection, of cone beams by the method of Feldkamp, Davis and Kress.
    BackProjection(Place, Window),
    File(ImageFile),
}

const WINDOWS: [(&str, Window); 5] = [
    ("ramp", Window::Ramp),
    ("shepp-logan", Window::SheppLogan),
    ("cosine", Window::Cosine),
    ("hamming", Window::Hamming),
    ("hann", Window::Hann),
];

/// The window of filtered back-projection.
pub(crate) fn window(section: &Section) -> Result<Window> {
    Ok(section.choose("window", &WINDOWS)?.unwrap_or_default())
}

impl StartPlan {
    /// The start of a job that does not name one: priors continue the image where nothing is measured; without one,
    /// nothing but the data counts.
    pub(crate) fn standard(prior: &PriorKind) -> Self {
        match prior {
            PriorKind::None => Self::Adjoint,
            PriorKind::TotalVariation { .. }
            | PriorKind::Wavelets { .. }
            | PriorKind::Network(_) => Self::Filled,
        }
    }

    pub(crate) fn read(section: &Section) -> Result<Self> {
        type Read = fn(&Section) -> Result<StartPlan>;
        let back_projection: Read =
            |section| Ok(Self::BackProjection(section.place(), window(section)?));
        let kinds: [(&str, Read); 7] = [
            ("zeros", |_| Ok(Self::Zeros)),
            ("adjoint", |_| Ok(Self::Adjoint)),
            ("filled", |_| Ok(Self::Filled)),
            ("pseudo-inverse", |section| {
                Ok(Self::PseudoInverse(section.count("iterations")?.unwrap_or(30)))
            }),
            ("fbp", back_projection),
            ("fdk", back_projection),
            ("file", |section| ImageFile::read(section, "file").map(Self::File)),
        ];
        section.require_choice("kind", &kinds)?(section)
    }
}

/// `[output]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputPlan {
    place: Option<Place>,
    /// Files for the image, in the formats of their names.
    pub files: Vec<PathBuf>,
    /// A folder for pictures and the report.
    pub folder: Option<PathBuf>,
    /// The values that are black and white in pictures; by default what suits the image.
    pub contrast: Option<(f32, f32)>,
    /// The range that the image is brought to before it is written.
    pub clamp: Option<(f32, f32)>,
    /// A file for the adjoint of the data.
    pub dirty: Option<PathBuf>,
    /// A file for the response to a point.
    pub point_spread: Option<PathBuf>,
}

impl OutputPlan {
    /// The files that are as large as the image.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().chain(&self.dirty).chain(&self.point_spread).map(PathBuf::as_path)
    }

    /// Pictures and a report, and no image.
    pub(crate) fn pictures(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..Self::default() }
    }

    pub(crate) fn read(section: &Section) -> Result<Self> {
        let single = |range: Option<(f64, f64)>| range.map(|(low, high)| (low as f32, high as f32));
        let files = section.paths("file")?.unwrap_or_default();
        for file in &files {
            check_name(file).map_err(|reason| section.place_of("file").refuse(reason))?;
        }
        let [dirty, point_spread] = ["dirty", "psf"].map(|key| {
            let file = section.path(key)?;
            let refused = file.as_deref().map(check_name).transpose();
            refused.map_err(|reason| section.place_of(key).refuse(reason)).map(|_| file)
        });
        let [dirty, point_spread] = [dirty?, point_spread?];
        let all: Vec<&PathBuf> = files.iter().chain(&dirty).chain(&point_spread).collect();
        if let Some(twice) = all.iter().enumerate().find(|(at, path)| all[..*at].contains(path)) {
            let reason =
                format!("{} is given twice; a name for each is expected", twice.1.display());
            return Err(section.place().refuse(reason));
        }
        let folder = section.path("folder")?;
        if let Some(folder) = folder.as_ref().filter(|folder| folder.exists() && !folder.is_dir()) {
            let reason = format!("{} is a file; a folder is expected", folder.display());
            return Err(section.place_of("folder").refuse(reason));
        }
        if files.is_empty() && folder.is_none() {
            return Err(section.place().refuse(
                "neither `file`, for the image, nor `folder`, for pictures and a report, is given",
            ));
        }
        Ok(Self {
            place: Some(section.place()),
            files,
            folder,
            contrast: single(section.range("contrast")?),
            clamp: single(section.range("clamp")?),
            dirty,
            point_spread,
        })
    }

    /// Refuses to write over what the job reads.
    pub(crate) fn check_inputs(&self, inputs: &[PathBuf]) -> Result<()> {
        // Files that are not there yet are no inputs.
        let same = |one: &PathBuf, other: &PathBuf| match (one.canonicalize(), other.canonicalize())
        {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        };
        let pictures = self.folder.iter().flat_map(|folder| RESULTS.map(|name| folder.join(name)));
        let all = self.files.iter().chain(&self.dirty).chain(&self.point_spread);
        for output in all.cloned().chain(pictures) {
            if let Some(input) = inputs.iter().find(|input| same(input, &output)) {
                return self.refuse(format!(
                    "{} would be written over {}, which the job reads; another name is expected",
                    output.display(),
                    input.display()
                ));
            }
        }
        Ok(())
    }

    /// Refuses folders in which nothing can be written, which is better known before the work than after it.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let here = |folder: &Path| {
            if folder.as_os_str().is_empty() {
                Path::new(".").to_owned()
            } else {
                folder.to_owned()
            }
        };
        let all = self.files.iter().chain(&self.dirty).chain(&self.point_spread);
        let folders = all.filter_map(|file| file.parent());
        // A folder that is not there yet will be made in the next that is.
        let pictures = self
            .folder
            .iter()
            .filter_map(|folder| folder.ancestors().find(|folder| here(folder).is_dir()));
        for folder in folders.chain(pictures).map(here) {
            let trial = folder.join(format!(".haloscope-{}", std::process::id()));
            let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&trial);
            match made {
                Ok(_) => drop(std::fs::remove_file(&trial)),
                // Another run of this process is trying it.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => (),
                Err(error) => {
                    return self.refuse(format!(
                        "nothing can be written in {}: {error}; another folder is expected",
                        folder.display()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Refuses files that cannot hold an image of this shape (batch, channel, spatial…).
    pub(crate) fn check_image(&self, image: &[usize]) -> Result<()> {
        for file in &self.files {
            if is_picture(file) && !matches!(image, [1, 1 | 3, _, _]) {
                return self.refuse(format!(
                    "{} is for one image of 1 or 3 channels, and this one has the shape {image:?}; .npy, .nii.gz \
                     and others take any",
                    file.display()
                ));
            }
            haloscope::io::check_shape(file, image)
                .or_else(|error| self.refuse(error.to_string()))?;
        }
        Ok(())
    }

    fn refuse(&self, reason: String) -> Result<()> {
        Err(match &self.place {
            Some(place) => place.refuse(reason),
            None => Error::argument("output", reason),
        })
    }
}

/// What is written to the folder of pictures.
const RESULTS: [&str; 5] =
    ["truth.png", "before.png", "after.png", "difference.png", "report.html"];

/// Whether a file shows values from 0 to 1 and no others.
pub(crate) fn is_picture(file: &Path) -> bool {
    matches!(Format::of_name(&file.display().to_string()), Some(Format::Png | Format::Jpeg))
}

/// Why nothing can be written under a name, in this build and on this disk: what cannot be written is better known before
/// the work than after it.
pub(crate) fn check_name(file: &Path) -> std::result::Result<(), String> {
    let name = file.display().to_string();
    let format = Format::of_name(&name).ok_or_else(|| {
        format!(
            "the ending of {name} does not say what to write; the endings are .png, .jpg, .tif, .npy, .npz, .nii, \
             .nii.gz, .fits, .h5 and .zarr"
        )
    })?;
    let feature = match format {
        Format::Hdf5 if cfg!(not(feature = "hdf5")) => "hdf5",
        Format::Zarr if cfg!(not(feature = "zarr")) => "zarr",
        _ => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            return match folder {
                Some(folder) if !folder.is_dir() => {
                    Err(format!("there is no folder {}", folder.display()))
                }
                _ => Ok(()),
            };
        }
    };
    Err(format!("{name}: {} needs a build with the feature `{feature}`", format.name()))
}

/// `[checkpoint]`.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointPlan {
    pub folder: PathBuf,
    every: Every,
    keep: usize,
}

impl CheckpointPlan {
    /// Checkpoints of a job that does not speak of them: only when it is interrupted, beside the job file.
    pub(crate) fn beside(job: &Path) -> Self {
        let stem = job.file_stem().unwrap_or_default().display();
        let folder = job.with_file_name(format!("{stem}-checkpoints"));
        Self { folder, every: Every::default(), keep: 2 }
    }

    pub(crate) fn read(section: &Section, standard: &Self) -> Result<Self> {
        let minutes = section.positive("minutes")?;
        let time = minutes
            .map(|minutes| Duration::try_from_secs_f64(60.0 * minutes))
            .transpose()
            .map_err(|error| section.place_of("minutes").refuse(error))?;
        Ok(Self {
            folder: section.path("folder")?.unwrap_or_else(|| standard.folder.clone()),
            every: Every { iterations: section.count("iterations")?, time },
            keep: section.count("keep")?.unwrap_or(standard.keep),
        })
    }

    pub(crate) fn open(&self) -> Result<Checkpoints> {
        Checkpoints::new(&self.folder, self.every)?.with_keep(self.keep)
    }

    /// Where regular ones are, and how many there are while another is written.
    pub(crate) fn kept(&self) -> Option<(&Path, u64)> {
        self.is_periodic().then(|| (self.folder.as_path(), self.keep as u64 + 1))
    }

    /// The bytes of those that earlier runs left, which this one replaces.
    pub(crate) fn left_bytes(&self) -> u64 {
        let files = self.folder.read_dir().into_iter().flatten().flatten();
        let is_own = |name: &std::ffi::OsStr| {
            name.to_str().is_some_and(|name| name.starts_with("iteration-"))
        };
        let own = files.filter(|file| is_own(&file.file_name()));
        own.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// Whether they are written every so often, and not only when a run is cut short.
    pub(crate) fn is_periodic(&self) -> bool {
        self.every != Every::default()
    }

    /// When they are written, in words.
    pub(crate) fn describe(&self) -> String {
        let mut when = Vec::new();
        when.extend(self.every.iterations.map(|count| match count {
            1 => "every iteration".to_owned(),
            count => format!("every {count} iterations"),
        }));
        when.extend(
            self.every.time.map(|time| format!("every {:.1} min", time.as_secs_f64() / 60.0)),
        );
        if when.is_empty() {
            when.push("when interrupted".into());
        }
        format!("{}, in {}", when.join(" or "), self.folder.display())
    }
}

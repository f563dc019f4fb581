//! Files, phantoms, kernels and metrics.

use std::path::{Path, PathBuf};

use haloscope::io::{self, Axes, ReadOptions, Sample, WriteOptions};
use haloscope::metrics::{self, Ssim};
use haloscope::phantom::{SheppLogan, Table, landscape as draw_landscape};
use haloscope::physics::kernels;
use haloscope::{Array, Error, Result};
use numpy::PyArrayDyn;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Input, output};
use crate::error::Raised;
use crate::run::compute;

type Output<'py> = PyResult<Bound<'py, PyArrayDyn<f32>>>;

/// The array in a file, (batch, channel, spatial…), or a region of it: first and last, exclusively, along each of its last axes.
#[pyfunction]
pub(crate) fn read<'py>(
    py: Python<'py>,
    path: PathBuf,
    axes: &str,
    raw: bool,
    entry: Option<String>,
    region: Option<Vec<(usize, usize)>>,
) -> Output<'py> {
    let options = read_options(axes, raw, entry).raised(py)?;
    let array = compute(py, || match region {
        None => Ok(io::read(&path, &options)?.array),
        Some(region) => {
            let ranges: Vec<_> = region.into_iter().map(|(first, last)| first..last).collect();
            let reader = part_reader(&path, &options)?;
            let whole = &reader.shape()[..reader.shape().len().saturating_sub(ranges.len())];
            let sides = whole.iter().copied().chain(ranges.iter().map(ExactSizeIterator::len));
            let elements = sides.fold(1_u64, |all, side| all.saturating_mul(side as u64));
            if elements > options.limits.elements {
                let reason = format!(
                    "the region has {elements} elements; up to {} are read",
                    options.limits.elements
                );
                return Err(Error::Limit { file: path.display().to_string(), reason });
            }
            reader.read_region(&ranges)
        }
    })?;
    Ok(output(py, array.as_standard_layout().into_owned()))
}

/// The shape of the array in a file, none of whose values are read.
#[pyfunction]
pub(crate) fn read_shape(
    py: Python<'_>,
    path: PathBuf,
    axes: &str,
    raw: bool,
    entry: Option<String>,
) -> PyResult<Vec<usize>> {
    let options = read_options(axes, raw, entry).raised(py)?;
    compute(py, || Ok(part_reader(&path, &options)?.shape().to_vec()))
}

/// A file that is read in part, however large it is.
fn part_reader(path: &Path, options: &ReadOptions) -> Result<io::Reader> {
    io::Reader::open(path, &ReadOptions { limits: io::Limits::NONE, ..options.clone() })
}

fn read_options(axes: &str, raw: bool, entry: Option<String>) -> Result<ReadOptions> {
    let axes = match axes {
        "automatic" => Axes::Automatic,
        "spatial" => Axes::Spatial,
        "channel-first" => Axes::ChannelFirst,
        "channel-last" => Axes::ChannelLast,
        "as-stored" => Axes::AsStored,
        other => {
            let reason = format!(
                "{other:?}; automatic, spatial, channel-first, channel-last or as-stored is accepted"
            );
            return Err(Error::argument("axes", reason));
        }
    };
    Ok(ReadOptions { axes, raw, entry, ..ReadOptions::default() })
}

/// Writes an array; the file is whole or not there.
#[pyfunction]
pub(crate) fn write(
    py: Python<'_>,
    path: PathBuf,
    array: Input,
    sample: Option<&str>,
    raw: bool,
) -> PyResult<()> {
    let samples = [
        ("uint8", Sample::U8),
        ("int8", Sample::I8),
        ("uint16", Sample::U16),
        ("int16", Sample::I16),
        ("uint32", Sample::U32),
        ("int32", Sample::I32),
        ("uint64", Sample::U64),
        ("int64", Sample::I64),
        ("float16", Sample::F16),
        ("float32", Sample::F32),
        ("float64", Sample::F64),
    ];
    let known = |name: &str| {
        let found = samples.iter().find(|(known, _)| *known == name).map(|(_, sample)| *sample);
        found.ok_or_else(|| {
            let names = samples.map(|(known, _)| known).join(", ");
            Error::argument("dtype", format!("{name:?}; one of {names} is accepted"))
        })
    };
    let sample = sample.map(known).transpose().raised(py)?;
    let options = WriteOptions { sample, raw, ..WriteOptions::default() };
    compute(py, || io::write(&path, &array.view(), &options))
}

/// A scan in a Data Exchange file: projections, white and dark frames, angles in radians.
#[pyfunction]
pub(crate) fn read_scan(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let scan = compute(py, || read_exchange(&path))?;
    let described = PyDict::new(py);
    let [projections, white, dark, integrals] =
        scan.arrays.map(|array| array.map(|array| output(py, array)));
    described.set_item("projections", projections)?;
    described.set_item("white", white)?;
    described.set_item("dark", dark)?;
    described.set_item("line_integrals", integrals)?;
    described.set_item("angles", scan.angles)?;
    Ok(described)
}

/// What a scan file has: projections, white, dark, and the line integrals that follow from them.
struct Exchange {
    arrays: [Option<Array>; 4],
    angles: Vec<f64>,
}

#[cfg(feature = "hdf5")]
fn read_exchange(path: &Path) -> Result<Exchange> {
    let scan = io::exchange::Scan::read(path, &io::Limits::default())?;
    let integrals = scan.line_integrals()?;
    let arrays = [Some(scan.projections), scan.white, scan.dark, Some(integrals)];
    let standard = arrays.map(|array| array.map(|array| array.as_standard_layout().into_owned()));
    Ok(Exchange { arrays: standard, angles: scan.angles })
}

#[cfg(not(feature = "hdf5"))]
fn read_exchange(path: &Path) -> Result<Exchange> {
    let reason = "this build of haloscope reads no HDF5".to_owned();
    Err(Error::Unsupported { file: path.display().to_string(), reason })
}

/// A landscape, drawn.
#[pyfunction]
pub(crate) fn landscape(py: Python<'_>, height: usize, width: usize) -> Output<'_> {
    Ok(output(py, compute(py, || draw_landscape(height, width))?))
}

/// The head phantom of Shepp and Logan.
#[pyfunction]
pub(crate) fn shepp_logan(py: Python<'_>, sides: Vec<usize>) -> Output<'_> {
    Ok(output(py, compute(py, || SheppLogan::new(Table::Modified).draw(&sides))?))
}

/// A kernel by name, with its numbers.
#[pyfunction]
pub(crate) fn kernel<'py>(
    py: Python<'py>,
    name: &str,
    lengths: Vec<f64>,
    angle: f64,
    size: Option<Vec<usize>>,
    seed: u64,
) -> Output<'py> {
    let first = lengths.first().copied().unwrap_or(1.0);
    let sizes = || lengths.iter().map(|length| *length as usize).collect::<Vec<_>>();
    let made = match (name, size) {
        ("gaussian", None) => kernels::gaussian(&lengths, angle),
        ("gaussian", Some(size)) => kernels::gaussian_of_size(&size, &lengths, [angle, 0.0, 0.0]),
        ("uniform", _) => kernels::uniform(&sizes()),
        ("motion", _) => kernels::straight_motion(first, angle),
        ("random_motion", _) => kernels::random_motion(first as usize, seed),
        ("bilinear", _) => kernels::bilinear(first as usize),
        ("bicubic", _) => kernels::bicubic(first as usize),
        (other, _) => Err(Error::argument("kernel", format!("there is no {other:?}"))),
    };
    Ok(output(py, made.raised(py)?))
}

/// A metric by name, for each image of the batch.
#[pyfunction]
pub(crate) fn metric(
    py: Python<'_>,
    name: &str,
    image: Input,
    reference: Input,
    range: f64,
    sigma: f64,
) -> PyResult<Vec<f64>> {
    compute(py, || {
        let (image, reference) = (image.view(), reference.view());
        match name {
            "mse" => metrics::mse(&image, &reference),
            "mae" => metrics::mae(&image, &reference),
            "nmse" => metrics::nmse(&image, &reference),
            "psnr" => metrics::psnr(&image, &reference, range),
            "ssim" => Ssim::with_window(range, sigma)?.per_image(&image, &reference),
            other => Err(Error::argument("metric", format!("there is no {other:?}"))),
        }
    })
}

/// The level of Gaussian noise in images.
#[pyfunction]
pub(crate) fn estimate_noise(py: Python<'_>, image: Input) -> PyResult<f64> {
    compute(py, || haloscope::noise::level(&image.view()))
}

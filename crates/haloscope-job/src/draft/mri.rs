//! Jobs for measured MRI scans in files of ISMRMRD: frequencies of each coil, the mask or the points, sensitivities and noise.

use std::path::PathBuf;

use haloscope::io::ismrmrd::{Samples, Scan, Selection};
use haloscope::io::{self, Limits, WriteOptions};
use haloscope::physics::fourier::{Calibration, Cartesian, Trajectory};
use haloscope::physics::{LinearPhysics, Physics};
use haloscope::{Array, Result};
use haloscope_nn::models::Builtin;
use ndarray::{Axis, Dimension, IxDyn};

use super::{Data, quantile, unsuitable};
use crate::template::{DPIR, Draft, Range, Tuning, literal, short};
use crate::words::count;

/// The part of all pixels that are darker than white.
const WHITE: f64 = 0.999;

/// The part of all samples whose frequencies are the highest, in which there is little but noise.
const HIGHEST: f64 = 0.05;

/// The weight of total variation in parts of the noise.
const WEIGHT: f64 = 0.2;

/// Points that reach less of the highest frequency may have another unit than the one that was taken.
const LEAST_REACH: f64 = 0.25;

/// What a scan was found to be.
struct Found {
    /// The sides of the image.
    sides: Vec<usize>,
    /// Frequencies on a grid of all coils, to estimate sensitivities from.
    grid: Vec<Array>,
    /// Whether these are the measurements themselves.
    is_measured: bool,
    /// The root of the sum of squares of all coils' images.
    picture: Vec<f32>,
    /// The noise of the job's measurements, from the highest frequencies.
    noise: f64,
    /// The noise of the job's measurements in parts of that of a single line.
    of_single: f64,
}

/// What a file beside the job has.
enum Content<'a> {
    Complex(&'a Array),
    Image(Array),
    Numbers(&'a [f64], usize),
}

/// Files to write beside the job, once nothing is wrong with any of them.
#[derive(Default)]
struct Files<'a>(Vec<(PathBuf, Content<'a>)>);

impl<'a> Files<'a> {
    /// Plans a file, and says how the job file calls it.
    fn plan(&mut self, data: &Data, what: &str, content: Content<'a>) -> Result<String> {
        let path = super::beside(data.job, what, data.force)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.0.push((path, content));
        Ok(literal(&name))
    }

    /// Plans a complex array for each coil.
    fn plan_each(&mut self, data: &Data, what: &str, coils: &'a [Array]) -> Result<Vec<String>> {
        let digits = (coils.len().max(2) - 1).to_string().len();
        let mut names = Vec::new();
        for (index, coil) in coils.iter().enumerate() {
            let name = format!("{what}-{index:0digits$}.npy");
            names.push(self.plan(data, &name, Content::Complex(coil))?);
        }
        Ok(names)
    }

    fn write(self) -> Result<()> {
        for (path, content) in self.0 {
            match content {
                Content::Complex(array) => io::write_complex(&path, array)?,
                Content::Image(array) => io::write(&path, &array, &WriteOptions::default())?,
                Content::Numbers(numbers, axes) => {
                    io::write_numbers(&path, &[numbers.len() / axes, axes], numbers)?;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn scan(data: &mut Data, slice: Option<usize>) -> Result<Draft> {
    let path = data.single()?.to_owned();
    let group = data.entry.clone().unwrap_or_else(|| Selection::default().group);
    let selection = Selection { group, slice: slice.unwrap_or(0), ..Selection::default() };
    let scan = Scan::read(&path, &selection, &Limits::default())?;
    tell(data, &scan, slice);
    let found = match &scan.samples {
        Samples::Grid { coils, mask } => on_grid(coils, mask, &scan)?,
        Samples::Anywhere { coils, points, sides, are_cycles } => {
            tell_points(data, points, *are_cycles);
            anywhere(coils, points, sides)?
        }
    };
    let white = quantile(found.picture.iter().copied(), WHITE);
    if white <= 0.0 {
        return Err(unsuitable(&path, "its image is 0 everywhere"));
    }
    let (noise, whence) = match scan.noise {
        Some(noise) => (noise * found.of_single / white, "from its scans of noise"),
        None => (found.noise / white, "estimated from the highest frequencies"),
    };
    data.note("noise", format!("{} of white, {whence}", short(noise)));
    let mut planned = Files::default();
    let files = planned.plan_each(data, "coil", scan.coils())?;
    let frequencies = frequency_lines(data, &mut planned, &scan.samples)?;
    let coils = coils_lines(data, &mut planned, &found, &files, &scan)?;
    planned.write()?;
    let measurements = format!(
        "# One complex array for each coil, taken from {}.\n[measurements]\nfiles = [{}]\nwhite = {}                 # the brightest \
         {:.1} % of the pixels without a prior are brighter\n{}",
        path.display(),
        files.join(", "),
        short(white),
        100.0 * (1.0 - WHITE),
        match &scan.samples {
            Samples::Grid { .. } => String::new(),
            Samples::Anywhere { .. } => format!(
                "\n[image]\nsize = {:?}\nchannels = 2                  # the real and the imaginary part\n",
                found.sides
            ),
        }
    );
    let operators = format!(
        "# Every coil is an operator, which ranks share: the Fourier transform of the image times the coil's sensitivity.\n\
         [[operators]]\n{frequencies}{coils}complex = true                # the image has a phase: two channels, the real and the \
         imaginary part\n"
    );
    let tuning = Tuning {
        levels: (0.2, noise.clamp(0.005, 0.1)),
        noise: Some(noise.max(1e-4)),
        balance: DPIR,
        weight: WEIGHT * noise.max(1e-4),
        range: Range::Any,
    };
    let title = format!("An image from an MRI scan by {}.", count(files.len(), "coil"));
    Ok(Draft { title, measurements, operators, tuning, network: Builtin::Gray, ending: ".npy" })
}

/// Says what was found, and what was left out.
fn tell(data: &mut Data, scan: &Scan, slice: Option<usize>) {
    let [x, y, z] = scan.header.encoded.matrix;
    let [lines, others] = scan.lines;
    data.note(
        "scan",
        format!(
            "{} by {} on a grid of {x} × {y} × {z}, {}; {} of noise or corrections",
            count(lines, "line"),
            count(scan.coils().len(), "coil"),
            scan.header.trajectory,
            count(others, "line")
        ),
    );
    for (what, count) in scan.counts {
        if count > 1 {
            let which = match (what, slice) {
                ("slices", Some(slice)) => format!("slice {slice} is taken"),
                ("slices", None) => "the first is taken; --slice takes another".into(),
                _ => "the first is taken".into(),
            };
            data.note("note", format!("it has {count} {what}, of which {which}"));
        }
    }
}

/// Says how the points of a trajectory were taken, because ISMRMRD does not say their unit.
fn tell_points(data: &mut Data, points: &[f64], are_cycles: bool) {
    let farthest = points.iter().fold(0.0_f64, |farthest, point| farthest.max(point.abs()));
    let part = farthest / std::f64::consts::PI;
    let unit = if are_cycles { "cycles for each pixel" } else { "steps of the encoded grid" };
    data.note(
        "points",
        format!("taken as {unit}; they reach {:.0} % of the highest frequency", 100.0 * part),
    );
    if part < LEAST_REACH {
        data.note(
            "warning",
            "the points reach less than a quarter of the highest frequency; they may have another unit than that",
        );
    }
}

/// The lines of `[[operators]]` on frequencies.
fn frequency_lines<'a>(
    data: &Data,
    planned: &mut Files<'a>,
    samples: &'a Samples,
) -> Result<String> {
    match samples {
        Samples::Grid { mask, .. } => {
            let measured = mask.sum() as usize;
            if measured == mask.len() {
                return Ok("kind = \"mri\"\n".into());
            }
            let image = Content::Image(mask.clone().insert_axis(Axis(0)));
            Ok(format!(
                "kind = \"mri\"\nmask = {}  # {:.0} % of the frequencies were measured\n",
                planned.plan(data, "mask.npy", image)?,
                100.0 * measured as f64 / mask.len() as f64
            ))
        }
        Samples::Anywhere { points, sides, .. } => Ok(format!(
            "kind = \"mri-trajectory\"\npoints = {}\ndensity = true                # samples are weighted against their density\n",
            planned.plan(data, "points.npy", Content::Numbers(points, sides.len()))?
        )),
    }
}

fn on_grid(coils: &[Array], mask: &Array, scan: &Scan) -> Result<Found> {
    let sides = mask.shape()[1..].to_vec();
    let shape = [&[2], &sides[..]].concat();
    let transform = Cartesian::new(&shape, None, None)?;
    let picture = picture(&transform, coils)?;
    let grid = scan.calibration.as_deref().unwrap_or(coils).to_vec();
    // Distances from frequency 0 in parts of each side.
    let distance = |at: &[usize]| -> f64 {
        let place = at.iter().zip(&sides);
        place.map(|(at, side)| (*at as f64 / *side as f64 - 0.5).powi(2)).sum()
    };
    let places: Vec<(f64, usize)> = mask
        .index_axis(Axis(0), 0)
        .indexed_iter()
        .enumerate()
        .filter(|(_, (_, value))| **value > 0.0)
        .map(|(index, (at, _))| (distance(at.slice()), index))
        .collect();
    let noise = level(places, coils);
    let is_measured = scan.calibration.is_none();
    let of_single = 1.0 / scan.averages.sqrt();
    Ok(Found { sides, grid, is_measured, picture, noise, of_single })
}

fn anywhere(coils: &[Array], points: &[f64], sides: &[usize]) -> Result<Found> {
    let axes = sides.len();
    let shape = [&[2], sides].concat();
    let density = Trajectory::density(sides, points)?;
    let transform = Trajectory::new(&shape, None, points, Some(&density), 1e-4)?;
    let roots: Vec<f32> = density.iter().map(|weight| weight.sqrt() as f32).collect();
    let roots = Array::from_shape_vec(IxDyn(&[1, roots.len()]), roots).expect("a row");
    let weighted: Vec<Array> = coils.iter().map(|coil| coil * &roots).collect();
    let picture = picture(&transform, &weighted)?;
    // Frequencies on a grid, from the images of the coils.
    let on_grid = Cartesian::new(&shape, None, None)?;
    let mut grid = Vec::new();
    if coils.len() > 1 {
        for coil in &weighted {
            let image = transform.adjoint(&coil.clone().insert_axis(Axis(0)))?;
            grid.push(on_grid.forward(&image)?.index_axis_move(Axis(0), 0));
        }
    }
    let radius = |point: &[f64]| point.iter().map(|place| place * place).sum();
    let places = points.chunks(axes).map(radius).enumerate().map(|(index, far)| (far, index));
    // The job's samples are multiplied by the roots of the weights, whose mean is that of the pixels for each sample.
    let of_single = (density.iter().sum::<f64>() / density.len().max(1) as f64).sqrt();
    let noise = of_single * level(places.collect(), coils);
    Ok(Found { sides: sides.to_vec(), grid, is_measured: false, picture, noise, of_single })
}

/// The root of the sum of squares of all coils' images.
fn picture(transform: &dyn LinearPhysics, coils: &[Array]) -> Result<Vec<f32>> {
    let mut squares = Vec::new();
    for coil in coils {
        let image = transform.adjoint(&coil.clone().insert_axis(Axis(0)))?;
        let (image, half) = (image.into_raw_vec_and_offset().0, squares.len());
        let pixels = image.len() / 2;
        squares.resize(half.max(pixels), 0.0);
        for (index, square) in squares.iter_mut().enumerate() {
            *square += image[index].powi(2) + image[pixels + index].powi(2);
        }
    }
    Ok(squares.into_iter().map(f32::sqrt).collect())
}

/// The standard deviation of real and imaginary parts at the highest frequencies, from the median of their sizes.
fn level(mut places: Vec<(f64, usize)>, coils: &[Array]) -> f64 {
    places.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    places.truncate(((places.len() as f64 * HIGHEST) as usize).max(1));
    let sizes = coils.iter().flat_map(|coil| {
        let values = coil.as_slice().unwrap_or_default();
        let half = values.len() / 2;
        places.iter().map(move |(_, at)| values[*at].hypot(values[half + at]))
    });
    // The median of a Rayleigh distribution is √(2 ln 2) standard deviations.
    quantile(sizes, 0.5) / (2.0 * std::f64::consts::LN_2).sqrt()
}

/// The lines on sensitivities.
fn coils_lines<'a>(
    data: &mut Data,
    planned: &mut Files<'a>,
    found: &'a Found,
    files: &[String],
    scan: &Scan,
) -> Result<String> {
    if scan.coils().len() == 1 {
        return Ok(String::new());
    }
    let usual = Calibration::of_axes(found.sides.len());
    let width = (usual.kernel + 2..=usual.width).rev().find(|width| is_whole(&found.grid, *width));
    let Some(width) = width else {
        let least = usual.kernel + 2;
        return Err(unsuitable(
            data.single()?,
            format!(
                "the sensitivities of its coils cannot be estimated: less than {least} frequencies along each side in the middle of \
                 {:?} were all measured",
                found.sides
            ),
        ));
    };
    let from = if found.is_measured {
        files.to_vec()
    } else {
        planned.plan_each(data, "calibration", &found.grid)?
    };
    data.note("coils", format!("sensitivities are estimated from the middle {width} of each side"));
    let mut lines = format!("coils-from = [{}]\n", from.join(", "));
    if width != usual.width {
        lines.extend([format!(
            "calibration-width = {width}        # all frequencies of the middle were measured\n"
        )]);
    }
    Ok(lines)
}

/// Whether all frequencies of a square or cube in the middle are there.
fn is_whole(grid: &[Array], width: usize) -> bool {
    let Some(first) = grid.first() else { return false };
    let sides = &first.shape()[1..];
    if sides.iter().any(|side| *side < width) {
        return false;
    }
    let middle = |coil: &Array, part: usize| {
        let mut view = coil.index_axis(Axis(0), part).to_owned();
        for (axis, side) in sides.iter().enumerate() {
            let begin = side / 2 - width / 2;
            view.slice_axis_inplace(Axis(axis), (begin..begin + width).into());
        }
        view
    };
    let mut sizes = Array::zeros(vec![width; sides.len()]);
    for coil in grid {
        for part in 0..2 {
            sizes += &middle(coil, part).mapv(f32::abs);
        }
    }
    sizes.iter().all(|size| *size > 0.0)
}

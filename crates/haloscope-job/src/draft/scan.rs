//! Jobs for measured scans: angles, rotation centre, units and noise.

use haloscope::array::extremes;
use haloscope::physics::tomography::{ParallelBeam, Tomography2d, Window, rotation_centre};
use haloscope::{Array, Error, Result, io, noise};
use haloscope_nn::models::Builtin;
use ndarray::{Axis, Ix2};

use super::sinogram::{Arc, Sinogram};
use super::{Data, quantile, unsuitable};
use crate::document::numbers;
use crate::sections::beam::{covers_radians, extent};
use crate::template::{DPIR, Draft, Problem, Range, Tuning, short};

/// A scan of which a row was looked at.
struct Found {
    /// Line integrals of the row: (1, 1, view, bin).
    row: Array,
    /// Radians.
    angles: Vec<f64>,
    /// `[measurements]`.
    measurements: String,
    /// The lines on angles in `[[operators]]`.
    angle_lines: String,
    /// How much of a turn there is, where the file does not say it.
    arc: Option<Arc>,
}

pub(super) fn slice(data: &mut Data) -> Result<Draft> {
    let found = match exchange(data)? {
        Some((rows, angles)) => {
            let row = rows.shape()[0] / 2;
            let lines = format!(
                "[measurements]\nscan = {}\n{}",
                data.named(data.single()?)?,
                row_line(row, rows.shape()[0])
            );
            let row = rows.index_axis(Axis(0), row).insert_axis(Axis(0)).to_owned();
            of_exchange(data, row, angles, &lines)
        }
        None => of_files(data, Problem::Tomography2d)?,
    };
    let found = found.at_given_angles(data)?;
    let (operators, tuning) = found.operators(data)?;
    let title = "A slice from measured projections.".into();
    let Found { measurements, .. } = found;
    Ok(Draft { title, measurements, operators, tuning, network: Builtin::Gray, ending: ".tif" })
}

pub(super) fn volume(data: &mut Data) -> Result<Draft> {
    let found = match exchange(data)? {
        Some((rows, angles)) => {
            let lines = format!("[measurements]\nscan = {}\n", data.named(data.single()?)?);
            let row = rows.index_axis(Axis(0), rows.shape()[0] / 2).insert_axis(Axis(0)).to_owned();
            of_exchange(data, row, angles, &lines)
        }
        None => of_files(data, Problem::Tomography3d)?,
    };
    let found = found.at_given_angles(data)?;
    let (operators, tuning) = found.operators(data)?;
    let title = "A volume from measured projections.".into();
    let Found { measurements, .. } = found;
    Ok(Draft {
        title,
        measurements,
        operators,
        tuning,
        network: Builtin::Volume,
        ending: ".nii.gz",
    })
}

fn row_line(row: usize, rows: usize) -> String {
    format!("row = {row:<24}# of {rows}, counted from 0: the middle one\n")
}

/// The line integrals of a Data Exchange file, (row, 1, view, bin), and its angles; `None` if it is none.
#[cfg(feature = "hdf5")]
fn exchange(data: &Data) -> Result<Option<(Array, Vec<f64>)>> {
    let [path] = &data.paths[..] else { return Ok(None) };
    // Another array was asked for, or is the only one.
    if data.entry.is_some() || !super::is_hdf5(path) {
        return Ok(None);
    }
    let scan = io::exchange::Scan::read(path, &io::Limits::default())?;
    Ok(Some((scan.line_integrals()?, scan.angles)))
}

#[cfg(not(feature = "hdf5"))]
fn exchange(_: &Data) -> Result<Option<(Array, Vec<f64>)>> {
    Ok(None)
}

fn of_exchange(data: &mut Data, row: Array, angles: Vec<f64>, lines: &str) -> Found {
    let degrees = |angle: Option<&f64>| angle.copied().unwrap_or(0.0).to_degrees();
    let span = format!("{:.2}° to {:.2}°", degrees(angles.first()), degrees(angles.last()));
    data.note("views", format!("{} from {span}, as the file says", angles.len()));
    let angle_lines =
        format!("# The angles are those of the file: {} from {span}.\n", angles.len());
    let measurements = format!(
        "# The scan's flat and dark frames are applied and the logarithm is taken.\n{lines}"
    );
    Found { row, angles, measurements, angle_lines, arc: None }
}

/// A scan in any format: a sinogram (view, bin), projections (view, row, column), or a file for each view. One row of it is
/// looked at; a volume has them all.
fn of_files(data: &mut Data, problem: Problem) -> Result<Found> {
    let path = data.paths[0].clone();
    let first = io::read(&path, &data.options())?;
    let rows = match (first.array.shape(), data.paths.len()) {
        // A sinogram, or a line of it in each file.
        ([1, 1, _, _], 1) | ([1, 1, 1, _], _) => None,
        ([1, 1, rows, _] | [1, 1, _, rows, _], _) => Some(*rows),
        (shape, _) => {
            return Err(unsuitable(
                &path,
                format!(
                    "it has the shape {shape:?}; one channel is expected, of a sinogram (view, bin), of projections \
                     (view, row, column), or of one projection in each file"
                ),
            ));
        }
    };
    if rows.is_none() && problem == Problem::Tomography3d {
        return Err(unsuitable(
            &path,
            format!(
                "it has the shape {:?}; projections (view, row, column), or one in each file, are expected; \
                 tomography-2d takes a sinogram",
                &first.array.shape()[2..]
            ),
        ));
    }
    let is_picture = first.format.is_picture();
    drop(first);
    let plain = format!("[measurements]\n{}", data.views()?);
    let row = rows.map_or_else(String::new, |rows| row_line(rows / 2, rows));
    let mut sinogram = look_at(data, &format!("{plain}{row}"))?;
    if is_picture && sinogram.beam.is_some() {
        // `white` is in the numbers that a picture stores.
        sinogram = look_at(data, &format!("{plain}{row}white = 1\n"))?;
    }
    let line_integrals = sinogram.array();
    if sinogram.turned {
        if let Some(rows) = rows {
            return Err(unsuitable(
                &path,
                format!(
                    "row {} of {rows} does not look like a sinogram, because its views differ more than its bins do; \
                     (view, row, column) is expected, with the rotation axis across the rows; for sinograms, one \
                     for each row, write the job without --from and give `order`",
                    rows / 2
                ),
            ));
        }
        let measurements = turned(data, &sinogram, &line_integrals)?;
        return Ok(of_views(data, &sinogram, line_integrals, measurements));
    }
    let mut measurements = plain;
    if problem == Problem::Tomography2d {
        measurements += &row;
    }
    if let Some(beam) = sinogram.beam {
        data.note(
            "data",
            format!(
                "they look like intensities, of {} without an object; the logarithm is taken",
                short(beam)
            ),
        );
        measurements.extend([format!(
            "white = {:<22}# the intensity of the beam, estimated beside the object\n\
             logarithm = true              # the data look like intensities; leave both out for line integrals\n",
            exact(beam)
        )]);
    }
    Ok(of_views(data, &sinogram, line_integrals, measurements))
}

/// The sinogram that a job with these measurements reads.
fn look_at(data: &Data, measurements: &str) -> Result<Sinogram> {
    let stacked = data.stacked(measurements)?;
    let plane = stacked
        .index_axis(Axis(0), 0)
        .index_axis_move(Axis(0), 0)
        .into_dimensionality::<Ix2>()
        .map_err(|_| {
            unsuitable(&data.paths[0], format!("a scan of shape {:?}", stacked.shape()))
        })?;
    Ok(Sinogram::of(&plane))
}

/// `[measurements]` with a file in which the axes of a sinogram are exchanged.
fn turned(data: &mut Data, sinogram: &Sinogram, line_integrals: &Array) -> Result<String> {
    let file = data.write_beside("sinogram.npy", line_integrals)?;
    let mut done = vec![
        "its axes are exchanged: the sums over the other axis are the same for all, as those of views are".to_owned(),
    ];
    if let Some(beam) = sinogram.beam {
        done.push(format!(
            "the logarithm is taken: it looks like intensities, of {} without an object",
            short(beam)
        ));
    }
    for what in &done {
        data.note("data", format!("{what} ({file})"));
    }
    Ok(format!(
        "# Made from {}: {}.\n[measurements]\nfiles = '{file}'\n",
        data.paths[0].display(),
        done.join("; ")
    ))
}

/// A number with six digits that count.
fn exact(number: f64) -> String {
    let digits = (5 - number.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Views whose angles nobody wrote down.
fn of_views(data: &mut Data, sinogram: &Sinogram, row: Array, measurements: String) -> Found {
    let arc = sinogram.arc();
    let (views, bins) = sinogram.values.dim();
    let turn = if arc.is_full_turn { "a full turn" } else { "half a turn" };
    let ends =
        if arc.has_both_ends { ", the last view opposite or equal to the first" } else { "" };
    data.note(
        "views",
        format!("{views} of {bins} bins over {turn}{ends}: a guess from the first and last view"),
    );
    let angle_lines = format!(
        "angles = {views:<21}# equally spaced: a guess; or a list of degrees, or a file of them\n\
         arc = {:<24}# {turn}{ends}: a guess\n",
        format!("{:.6}", arc.degrees).trim_end_matches('0').trim_end_matches('.')
    );
    Found { row, angles: arc.angles(views), measurements, angle_lines, arc: Some(arc) }
}

impl Found {
    /// With the angles of the file that is given, if there is one.
    fn at_given_angles(self, data: &mut Data) -> Result<Self> {
        let Some(path) = data.angles else { return Ok(self) };
        let stored = numbers::read(path)?;
        let views = self.row.shape()[2];
        if stored.len() != views {
            return Err(unsuitable(
                path,
                format!(
                    "it has {} angles for {views} views; one for each is expected",
                    stored.len()
                ),
            ));
        }
        let in_radians = covers_radians(&stored);
        let degrees: Vec<f64> = stored
            .iter()
            .map(|angle| if in_radians { angle.to_degrees() } else { *angle })
            .collect();
        let (low, high) = extent(&degrees);
        let unit = if in_radians {
            "angle-unit = \"radians\"        # a guess: they go around in radians\n"
        } else {
            ""
        };
        let angle_lines = format!("angles = {}\n{unit}", data.named(path)?);
        let finding = format!(
            "{views} from {low:.2}° to {high:.2}°, as {} says{}",
            path.display(),
            if in_radians { ", in radians" } else { "" }
        );
        data.findings.retain(|(word, _)| *word != "views");
        data.note("views", finding);
        let is_full_turn = high - low > FULL_TURN;
        let arc = Some(Arc { degrees: high - low, has_both_ends: false, is_full_turn });
        let angles = degrees.into_iter().map(f64::to_radians).collect();
        Ok(Self { angles, angle_lines, arc, ..self })
    }

    /// `[[operators]]` and `[start]`, and what suits the values and their noise.
    fn operators(&self, data: &mut Data) -> Result<(String, Tuning)> {
        let (views, bins) = (self.angles.len(), self.row.shape()[3]);
        let centre = rotation_centre(&self.row, &self.angles)?;
        let sureness = match (centre.mirrored, centre.streaks) {
            (Some(_), Some(streaks)) if (streaks - centre.bin).abs() > SURE => {
                format!("estimated from opposite views; the slice's sharpness says {streaks:.1}")
            }
            (Some(_), _) => "estimated from opposite views".to_owned(),
            (None, _) => "estimated without opposite views: uncertain".to_owned(),
        };
        let (image, noise) = self.look(centre.bin)?;
        let inside = || inner_values(&image);
        let (low, high) = (quantile(inside(), 0.01), quantile(inside(), 0.995));
        if high <= low {
            return Err(Error::argument("scan", "its slice is flat; is the object in these rows?"));
        }
        data.note("centre", format!("bin {:.1} of {bins}, {sureness}", centre.bin));
        data.note(
            "values",
            format!(
                "about {} to {} in the slice, in units of 1 over a bin",
                short(low),
                short(high)
            ),
        );
        data.note(
            "noise",
            format!("a standard deviation of {} of the line integrals, estimated", short(noise)),
        );
        // Laboratories with a cone go all around; a synchrotron's parallel rays go half around.
        let goes_around = self.arc.is_some_and(|arc| arc.is_full_turn);
        let distances = if data.problem == Problem::Tomography3d && goes_around {
            "# Parallel rays are assumed, which the data cannot tell. Views all around are rather those of a cone beam: for\n\
             # one, replace the kind by these lines, and use kind = \"fdk\" in [start]. Give lengths in one unit.\n\
             #   kind = \"cone-beam\"\n\
             #   source-distance = 500       # from the source to the rotation axis\n\
             #   detector-distance = 500     # from the rotation axis to the detector\n\
             #   spacing = 0.2               # the distance between rows, and between columns, of the detector\n"
        } else if data.problem == Problem::Tomography3d {
            "# Parallel rays are assumed. For a cone beam, use kind = \"cone-beam\" with `source-distance` and\n\
             # `detector-distance`, the distances from the rotation axis, and kind = \"fdk\" in [start].\n"
        } else {
            "# Parallel rays are assumed. For a fan beam, use kind = \"fan-beam\" with `source-distance` and\n\
             # `detector-distance`, the distances from the rotation axis.\n"
        };
        let operators = format!(
            "[[operators]]\nkind = \"parallel-beam\"\n{distances}{}centre = {:<21.2}# the bin that sees the rotation axis, {sureness}\n\
             groups = {:<21}# operators, which ranks share\n\n[start]\nkind = \"fbp\"\nwindow = \"hann\"\n",
            self.angle_lines,
            centre.bin,
            4.min(views),
        );
        // The noise of a back-projection, in parts of the image's range.
        let deviation = noise * std::f64::consts::PI / (12.0 * views as f64).sqrt();
        let last = (LAST * deviation / (high - low)).clamp(0.005, 0.1);
        let tuning = Tuning {
            levels: ((4.0 * last).clamp(0.1, 0.2), last),
            noise: Some(noise.max(1e-6 * (high - low))),
            balance: DPIR,
            weight: WEIGHT * noise.max(1e-6 * (high - low)) * (views as f64).sqrt(),
            range: Range::Positive,
        };
        Ok((operators, tuning))
    }

    /// The slice by filtered back-projection about an axis, and the noise of the line integrals.
    fn look(&self, centre: f64) -> Result<(Array, f64)> {
        let bins = self.row.shape()[3];
        let mut scan = ParallelBeam::new(self.angles.clone(), bins);
        scan.offset = (bins as f64 - 1.0) / 2.0 - centre;
        let operator = Tomography2d::new(&[1, bins, bins], scan)?;
        let image = operator.filtered_back_projection(&self.row, Window::Hann)?;
        let (low, high) = extremes(&self.row);
        let noise = noise::level(&self.row)?.max(1e-5 * f64::from(high - low));
        Ok((image, noise))
    }
}

/// Views over more degrees than this go all around.
const FULL_TURN: f64 = 300.0;

/// Estimates of the rotation axis that are nearer to each other than this, in bins, are of one mind.
const SURE: f64 = 1.0;

/// The last level of a network, in parts of the noise of a back-projection.
const LAST: f64 = 0.3;

/// The weight of total variation: times the noise, times the root of the number of views.
const WEIGHT: f64 = 0.5;

/// The values within the circle that all views see.
fn inner_values(image: &Array) -> impl Iterator<Item = f32> {
    let side = image.shape()[3];
    let middle = (side as f64 - 1.0) / 2.0;
    image.indexed_iter().filter_map(move |(at, value)| {
        let away = (at[2] as f64 - middle).hypot(at[3] as f64 - middle);
        (away < 0.48 * side as f64).then_some(*value)
    })
}

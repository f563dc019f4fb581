//! Scans as detectors write them: a file for each view or for each row, axes in another order, flat and dark frames.
//!
//! A [`Stack`] takes files one by one and gives what scans have everywhere else: (1, 1, view, bin), or
//! (1, 1, view, row, column).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use haloscope::io::{self, ReadOptions, frames};
use haloscope::{Array, Result};
use ndarray::{Axis, IxDyn};

use crate::document::{Place, Section};
use crate::words::count;

/// Which axes of a scan come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Projections.
    #[default]
    ViewRowColumn,
    /// Sinograms.
    RowViewColumn,
}

const ORDERS: [(&str, Order); 2] =
    [("view-row-column", Order::ViewRowColumn), ("row-view-column", Order::RowViewColumn)];

/// How files become a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stacking {
    pub order: Option<Order>,
    /// The row of the detector that is the slice, if the image is one.
    pub row: Option<usize>,
    /// Whether scans are of slices and never of volumes, so that two sides are (view, bin).
    pub is_fan: bool,
}

impl Stacking {
    pub(super) fn read(section: &Section) -> Result<Self> {
        let order = section.choose("order", &ORDERS)?;
        Ok(Self { order, row: section.get("row")?, is_fan: false })
    }

    /// Whether a job asks for something.
    pub(super) fn is_given(&self) -> bool {
        self.order.is_some() || self.row.is_some()
    }

    /// The sides behind the view of a scan whose files have one view each, if a first file of this shape says that they do.
    pub(super) fn sides_of_views(
        &self,
        first: &[usize],
    ) -> std::result::Result<Option<Vec<usize>>, String> {
        let (Order::ViewRowColumn, &[1, 1, rows, columns]) =
            (self.order.unwrap_or_default(), first)
        else {
            return Ok(None);
        };
        match self.row {
            Some(row) if row >= rows => Err(out_of(row, rows)),
            Some(_) => Ok(Some(vec![columns])),
            // A line is a part of a sinogram.
            None => Ok((!self.is_fan && rows > 1).then(|| vec![rows, columns])),
        }
    }

    /// A scan of so many files.
    pub(super) fn stack(self, files: usize) -> Stack {
        Stack { how: self, files, sides: Vec::new(), rows: 0, values: Vec::new() }
    }
}

/// A scan whose files are being read.
pub(super) struct Stack {
    how: Stacking,
    files: usize,
    /// (view, row, column), (row, view, column) or (view, bin), of what has been read.
    sides: Vec<usize>,
    /// The rows of the detector, if `row` picks one of them.
    rows: usize,
    values: Vec<f32>,
}

impl Stack {
    /// A scan whose views have these sides, whichever file comes first.
    pub(super) fn expecting(mut self, sides: &[usize]) -> Self {
        self.sides = [&[0], sides].concat();
        let values: usize = sides.iter().product();
        let _ = self.values.try_reserve_exact(values.saturating_mul(self.files));
        self
    }

    /// Takes the next file: (1, 1, …) of two or three sides.
    pub(super) fn push(&mut self, part: &Array) -> std::result::Result<(), String> {
        let &[1, 1, ref sides @ ..] = part.shape() else {
            return Err(format!(
                "it has the shape {:?}; one image of one channel is expected in each file of a scan",
                part.shape()
            ));
        };
        let order = self.how.order.unwrap_or_default();
        let is_view = match (order, sides, self.how.row) {
            (_, [_, _, _], _) => false,
            // Parts of a sinogram, which make no volume.
            (Order::ViewRowColumn, [views, _], None) => !self.how.is_fan && *views > 1,
            (..) => true,
        };
        let (sides, picked) = match (order, self.how.row) {
            (Order::ViewRowColumn, Some(row)) => {
                let rows = sides[sides.len() - 2];
                if row >= rows {
                    return Err(out_of(row, rows));
                }
                self.rows = rows;
                let picked = part.index_axis(Axis(part.ndim() - 2), row);
                let views = if is_view { 1 } else { sides[0] };
                (vec![views, sides[sides.len() - 1]], Some(picked.to_owned()))
            }
            _ if is_view => ([&[1], sides].concat(), None),
            _ => (sides.to_vec(), None),
        };
        let part = picked.as_ref().unwrap_or(part);
        match &mut self.sides[..] {
            [] => {
                // All are of one size, as a rule.
                let _ = self.values.try_reserve_exact(part.len().saturating_mul(self.files));
                self.sides = sides;
            }
            [count, rest @ ..] if *rest == sides[1..] => *count += sides[0],
            [_, rest @ ..] => {
                return Err(format!(
                    "it has the sides {:?} where the files before it have {rest:?}; files of one size make a scan",
                    &sides[1..]
                ));
            }
        }
        self.values.extend(part.iter());
        Ok(())
    }

    /// The sides of a frame of the detector.
    pub(super) fn frame(&self) -> Vec<usize> {
        match (self.how.order.unwrap_or_default(), self.how.row, &self.sides[..]) {
            (Order::ViewRowColumn, Some(_), [_, columns]) => vec![self.rows, *columns],
            (Order::RowViewColumn, _, [rows, _, columns]) => vec![*rows, *columns],
            (_, _, [_, rest @ ..]) => rest.to_vec(),
            (_, _, []) => Vec::new(),
        }
    }

    /// The scan.
    pub(super) fn finish(self) -> std::result::Result<Array, String> {
        let array = Array::from_shape_vec(IxDyn(&self.sides), self.values)
            .map_err(|error| error.to_string())?;
        let array = match (self.how.order.unwrap_or_default(), self.how.row) {
            (Order::RowViewColumn, Some(row)) => {
                let rows = array.shape()[0];
                if row >= rows {
                    return Err(out_of(row, rows));
                }
                array.index_axis_move(Axis(0), row)
            }
            (Order::RowViewColumn, None) => array.permuted_axes(vec![1, 0, 2]),
            (Order::ViewRowColumn, _) => array,
        };
        let array = array.insert_axis(Axis(0)).insert_axis(Axis(0));
        Ok(if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() })
    }
}

fn out_of(row: usize, rows: usize) -> String {
    format!("`row` is {row}, and the detector has {}, counted from 0", count(rows, "row"))
}

/// Flat and dark frames, and whether the logarithm is taken.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    place: Place,
    flat: Option<FrameFiles>,
    dark: Option<FrameFiles>,
    logarithm: Option<bool>,
    /// The means of both, once one of the ranks of this process has read them.
    means: Arc<Mutex<Option<Means>>>,
}

/// The mean of flat frames, and that of dark ones.
type Means = Arc<(Option<Array>, Option<Array>)>;

#[derive(Clone, Debug)]
struct FrameFiles {
    place: Place,
    paths: Vec<PathBuf>,
    entry: Option<String>,
}

impl Frames {
    /// What a section says of them, if it does.
    pub(super) fn read(section: &Section) -> Result<Option<Self>> {
        let flat = FrameFiles::read(section, "flat", section.get("flat-entry")?)?;
        let dark = FrameFiles::read(section, "dark", section.get("dark-entry")?)?;
        let logarithm = section.get("logarithm")?;
        if flat.is_none() && dark.is_none() && logarithm.is_none() {
            return Ok(None);
        }
        let means = Arc::default();
        Ok(Some(Self { place: section.place(), flat, dark, logarithm, means }))
    }

    /// The files that are read.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.flat.iter().chain(&self.dark).flat_map(|files| &files.paths)
    }

    /// Whether there are frames of some kind.
    pub(super) fn has_frames(&self) -> bool {
        self.flat.is_some() || self.dark.is_some()
    }

    /// Whether there are flat frames, which say what is 1.
    pub(super) fn has_flat(&self) -> bool {
        self.flat.is_some()
    }

    /// What is done, in a few words.
    pub(super) fn describe(&self, is_scan: bool) -> String {
        let mut words = Vec::new();
        words.extend(self.dark.as_ref().map(|_| "dark frames subtracted"));
        words.extend(self.flat.as_ref().map(|_| "divided by flat frames"));
        words.extend(self.takes_logarithm(is_scan).then_some("line integrals by the logarithm"));
        words.join(", ")
    }

    /// Measurements as they would be of an even beam and a perfect detector. `frame` are the sides of one frame: those
    /// of the detector, if `stacking` says that it is a scan, else channels and sides of an image. `options` say how
    /// frames are read.
    pub(super) fn apply(
        &self,
        counts: Array,
        frame: &[usize],
        stacking: Option<Stacking>,
        options: &ReadOptions,
    ) -> Result<Array> {
        let means = self.means(frame, stacking, options)?;
        let counts = match &*means {
            (Some(flat), dark) => frames::transmission(counts, flat, dark.as_deref()),
            (None, Some(dark)) => frames::subtract_dark(counts, dark),
            (None, None) => Ok(counts),
        };
        let counts = counts.map_err(|error| self.place.refuse(error))?;
        let logarithm = self.takes_logarithm(stacking.is_some());
        Ok(if logarithm { frames::line_integrals(counts) } else { counts })
    }

    fn means(
        &self,
        frame: &[usize],
        stacking: Option<Stacking>,
        options: &ReadOptions,
    ) -> Result<Means> {
        // Others wait until the frames are read, and read nothing.
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(means) = &*means {
            return Ok(means.clone());
        }
        let mean = |files: &FrameFiles| files.mean(frame, stacking, options);
        let flat = self.flat.as_ref().map(mean).transpose()?;
        let dark = self.dark.as_ref().map(mean).transpose()?;
        let is_dark = |flat: &Array| match &dark {
            Some(dark) => flat.iter().zip(dark).all(|(flat, dark)| flat <= dark),
            None => flat.iter().all(|flat| *flat <= 0.0),
        };
        if flat.as_ref().is_some_and(is_dark) {
            return Err(self.place.refuse(
                "the flat frames are nowhere brighter than the dark ones, or than 0; frames with the beam and without the \
                 object are expected in `flat`",
            ));
        }
        Ok(means.insert(Arc::new((flat, dark))).clone())
    }

    /// Scans with flat frames are of attenuation, unless the job says otherwise.
    fn takes_logarithm(&self, is_scan: bool) -> bool {
        self.logarithm.unwrap_or(is_scan && self.flat.is_some())
    }
}

impl FrameFiles {
    fn read(section: &Section, key: &'static str, entry: Option<&str>) -> Result<Option<Self>> {
        let Some(paths) = section.inputs(key)? else { return Ok(None) };
        let (place, paths) = (section.place_of(key), paths.concat());
        if paths.is_empty() {
            return Err(place.refuse("an empty list; one file or more is expected"));
        }
        Ok(Some(Self { place, paths, entry: entry.map(str::to_owned) }))
    }

    /// The mean of all frames, each of these sides, of which a scan may have one row alone.
    fn mean(
        &self,
        sides: &[usize],
        stacking: Option<Stacking>,
        options: &ReadOptions,
    ) -> Result<Array> {
        let options = ReadOptions {
            entry: self.entry.clone().or_else(|| options.entry.clone()),
            ..options.clone()
        };
        let mut sum = ndarray::ArrayD::<f64>::zeros(IxDyn(sides));
        let mut count = 0;
        for path in &self.paths {
            let read = io::read(path, &options).map_err(|error| self.place.refuse(error))?;
            super::data_files::check_finite(&self.place, path, &read.array)?;
            let found = read.array.shape()[2..].to_vec();
            let frames = frames_of(read.array, sides, stacking.is_some());
            let Some((frames, axis)) = frames else {
                return Err(self.place.refuse(format!(
                    "{}: an array of {found:?}; the measurements have frames of {sides:?}, of which it may have \
                     several",
                    path.display()
                )));
            };
            count += frames.len_of(axis);
            for frame in frames.axis_iter(axis) {
                sum.zip_mut_with(&frame, |sum, value| *sum += f64::from(*value));
            }
        }
        let mean = sum.mapv(|sum| (sum / f64::from(count.max(1) as u32)) as f32);
        match stacking.and_then(|stacking| stacking.row) {
            None => Ok(mean),
            Some(row) if row < mean.shape()[0] => Ok(mean.index_axis_move(Axis(0), row)),
            Some(row) => Err(self.place.refuse(out_of(row, mean.shape()[0]))),
        }
    }
}

/// The frames of an array (1, channel, …), and the axis along which they are. Those of a detector are before its rows,
/// or in sinograms behind them; those of images are behind the channels.
fn frames_of(array: Array, sides: &[usize], is_scan: bool) -> Option<(Array, Axis)> {
    if array.shape()[0] != 1 || is_scan && array.shape()[1] != 1 {
        return None;
    }
    let mut array = array.index_axis_move(Axis(0), 0);
    if is_scan {
        array = array.index_axis_move(Axis(0), 0);
    }
    if array.shape() == sides {
        return Some((array.insert_axis(Axis(0)), Axis(0)));
    }
    let is_axis = |axis: &usize| {
        let mut others = array.shape().to_vec();
        *axis < others.len() && {
            others.remove(*axis);
            others == sides
        }
    };
    let axis = if is_scan { 0..2 } else { 1..2 }.find(is_axis)?;
    Some((array, Axis(axis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a view, row and column.
    fn value(view: usize, row: usize, column: usize) -> f32 {
        (100 * view + 10 * row + column) as f32
    }

    fn stacked(how: Stacking, parts: &[Array]) -> std::result::Result<Array, String> {
        let mut stack = how.stack(parts.len());
        parts.iter().try_for_each(|part| stack.push(part))?;
        stack.finish()
    }

    fn expected() -> Array {
        Array::from_shape_fn(vec![1, 1, 4, 2, 3], |at| value(at[2], at[3], at[4]))
    }

    #[test]
    fn a_scan_is_the_same_however_its_files_are_cut() {
        let view = |view| Array::from_shape_fn(vec![1, 1, 2, 3], |at| value(view, at[2], at[3]));
        let views: Vec<Array> = (0..4).map(view).collect();
        let how = Stacking::default();
        assert_eq!(stacked(how, &views).expect("views"), expected());
        let halves: Vec<Array> = expected()
            .axis_chunks_iter(Axis(2), 2)
            .map(|part| part.as_standard_layout().into_owned())
            .collect();
        assert_eq!(stacked(how, &halves).expect("halves"), expected());
        let row = |row| Array::from_shape_fn(vec![1, 1, 4, 3], |at| value(at[2], row, at[3]));
        let rows: Vec<Array> = (0..2).map(row).collect();
        let sinograms = Stacking { order: Some(Order::RowViewColumn), ..how };
        assert_eq!(stacked(sinograms, &rows).expect("rows"), expected());
        let whole = expected().permuted_axes(vec![0, 1, 3, 2, 4]).as_standard_layout().into_owned();
        assert_eq!(stacked(sinograms, &[whole]).expect("one file"), expected());
        // One row of it, of all of these.
        let picked = row(1);
        for (how, parts) in [(how, &views), (how, &halves), (sinograms, &rows)] {
            let how = Stacking { row: Some(1), ..how };
            assert_eq!(stacked(how, parts).expect("a row"), picked);
            let error = stacked(Stacking { row: Some(2), ..how }, parts).expect_err("two rows");
            assert!(error.contains("`row` is 2, and the detector has 2 rows"), "{error}");
        }
    }

    #[test]
    fn parts_of_a_sinogram_are_one() {
        let line = |view| Array::from_shape_fn(vec![1, 1, 1, 5], |at| value(view, 0, at[3]));
        let lines: Vec<Array> = (0..3).map(line).collect();
        let whole = Array::from_shape_fn(vec![1, 1, 3, 5], |at| value(at[2], 0, at[3]));
        assert_eq!(stacked(Stacking::default(), &lines).expect("lines"), whole);
        let fan = Stacking { is_fan: true, ..Stacking::default() };
        let parts = [whole.clone(), whole.clone()];
        assert_eq!(stacked(fan, &parts).expect("two").shape(), [1, 1, 6, 5]);
    }

    #[test]
    fn files_of_another_size_are_refused() {
        let parts = [Array::zeros(vec![1, 1, 2, 3]), Array::zeros(vec![1, 1, 2, 4])];
        let error = stacked(Stacking::default(), &parts).expect_err("3 and 4");
        assert!(error.contains("[2, 4]") && error.contains("[2, 3]"), "{error}");
        let colour = [Array::zeros(vec![1, 3, 2, 3])];
        assert!(stacked(Stacking::default(), &colour).expect_err("3").contains("one channel"));
    }
}

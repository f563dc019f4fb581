//! Measurements in files of any format: `files` of `[measurements]`.
//!
//! A measurement is a file; that of a scan may be several, which [`super::stack`] puts together. Those that have one view
//! each are read by the ranks that need them. Of other scans the first rank reads all, because nothing less tells their
//! shape, and deals the views to the ranks.

use std::ops::Range;
use std::path::{Path, PathBuf};

use haloscope::distribute::agree;
use haloscope::image::Space;
use haloscope::io::{self, Image, ReadOptions, Reader, Scaling};
use haloscope::{Array, Error, Result};
use haloscope_comm::Context;
use ndarray::{ArrayViewD, Axis, Slice};

use super::measurements::reading;
use super::operators::Entry;
use super::placement::Placement;
use super::stack::{Frames, Stack, Stacking};
use crate::document::{Place, Section};
use crate::shards::spatial_regions;
use crate::words::count;

/// Measurements in files of any format.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    place: Place,
    /// What the job lists: the files of each path, folder or pattern, and later those of each measurement.
    groups: Vec<Vec<PathBuf>>,
    options: ReadOptions,
    stacking: Stacking,
    frames: Option<Box<Frames>>,
    /// Whether they are of scans.
    is_scan: bool,
}

/// What is known of a measurement before it is used.
pub(crate) struct Surveyed {
    /// (batch, channel, …); of a scan (batch, channel, view, …).
    pub shape: Vec<usize>,
    pub origin: Origin,
    pub kept: Kept,
}

/// Views that are read together where one row of each is wanted.
const VIEWS_TOGETHER: usize = 16;

/// The row in the middle of the detector of the first channel, where the object is: (1, 1, view, bin).
pub(crate) fn middle_row(scan: ArrayViewD<f32>) -> Array {
    let mut row = scan;
    row.slice_axis_inplace(Axis(0), Slice::from(0..1));
    row.slice_axis_inplace(Axis(1), Slice::from(0..1));
    if row.ndim() == 5 {
        let middle = row.len_of(Axis(3)) / 2;
        row = row.index_axis_move(Axis(3), middle);
    }
    row.as_standard_layout().into_owned()
}

/// What was read to know the shape of a measurement, so that nobody reads it again.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The measurement.
    Whole(Array),
    /// The first file of a scan that has one for each view, as it was read.
    View(Array),
}

impl Files {
    pub(super) fn read(section: &Section) -> Result<Self> {
        let groups = section.inputs("files")?.unwrap_or_default();
        let place = section.place_of("files");
        if groups.is_empty() {
            return Err(place.refuse("an empty list; one or more are expected"));
        }
        let mut options = reading(section)?;
        let frames = Frames::read(section)?.map(Box::new);
        if let Some(frames) = frames.as_ref().filter(|frames| frames.has_frames()) {
            if options.white.is_some() && frames.has_flat() {
                return Err(section.place_of("white").refuse(
                    "`white` and `flat` are given; flat frames say what is 1, so leave `white` out",
                ));
            }
            // Counts and frames alike, whatever their types: as they are stored, unless the job says otherwise of both.
            options.white = options.white.or(Some(1.0));
        }
        let stacking = Stacking::read(section)?;
        Ok(Self { place, groups, options, stacking, frames, is_scan: false })
    }

    /// Deals files to operators: all of them are the views of an only scan; of several scans each has what the job
    /// lists in one place; each other operator has one file.
    pub(super) fn suit(&mut self, operators: &[Entry]) -> Result<()> {
        self.is_scan = operators.iter().all(Entry::is_scan);
        self.stacking.is_fan = operators.iter().any(Entry::is_fan);
        match operators {
            _ if !self.is_scan && self.stacking.is_given() => {
                return Err(self
                    .place
                    .refuse("`order` and `row` are for scans alone; leave them out"));
            }
            [_] if self.is_scan => self.groups = vec![self.groups.concat()],
            _ if self.is_scan => (),
            _ => self.groups = self.groups.concat().into_iter().map(|path| vec![path]).collect(),
        }
        if self.groups.first().and_then(|group| group.first()).is_some_and(io::is_uvfits) {
            let entry = self.options.entry.as_deref();
            operators.iter().try_for_each(|operator| operator.check_entry(entry))?;
        }
        Ok(())
    }

    pub(super) fn describe(&self) -> String {
        let files: usize = self.groups.iter().map(Vec::len).sum();
        let frames = self.frames.iter().map(|frames| frames.describe(self.is_scan));
        let files = count(files, "file");
        std::iter::once(files).chain(frames).collect::<Vec<_>>().join(", ")
    }

    /// What is wrong with them.
    pub(crate) fn refuse(&self, reason: &str) -> Error {
        self.place.refuse(reason)
    }

    /// What may be wrong with them, in words.
    pub(crate) fn doubt(&self, doubt: &str) -> String {
        format!("{}: {doubt}", self.place)
    }

    /// The files that are read.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let frames = self.frames.iter().flat_map(|frames| frames.files());
        self.groups.iter().flatten().chain(frames)
    }

    /// One measurement, with the axes (batch, channel, …).
    pub(crate) fn load(&self, index: usize) -> Result<Array> {
        self.load_whole(index, None).map(|(array, _)| array)
    }

    /// The shape of a measurement, and as much of it as must be read to know it: the first file of a scan that has one for
    /// each view, and all of anything else.
    pub(crate) fn survey(&self, index: usize) -> Result<Surveyed> {
        let paths = self.paths_of(index)?;
        let first = match paths {
            [first, _, ..] if self.is_scan => self.read_file(first)?,
            _ => {
                let (whole, origin) = self.load_whole(index, None)?;
                let shape = whole.shape().to_vec();
                return Ok(Surveyed { shape, origin, kept: Kept::Whole(whole) });
            }
        };
        let origin = Origin::of(&first);
        let sides = self.stacking.sides_of_views(first.array.shape());
        if let Some(sides) = sides.map_err(|reason| self.refuse_file(&paths[0], &reason))? {
            let shape = [&[1, 1, paths.len()], &sides[..]].concat();
            return Ok(Surveyed { shape, origin, kept: Kept::View(first.array) });
        }
        let (whole, origin) = self.load_whole(index, Some(first))?;
        Ok(Surveyed { shape: whole.shape().to_vec(), origin, kept: Kept::Whole(whole) })
    }

    /// The shape of a measurement that is one file, and what that says of itself, without its values.
    pub(crate) fn outline(&self, index: usize) -> Result<(Vec<usize>, Origin)> {
        let path = &self.paths_of(index)?[0];
        let reader = Reader::open(path, &self.options).map_err(|error| self.place.refuse(error))?;
        let nothing = reader.image(Array::zeros(vec![0; reader.shape().len()]));
        Ok((reader.shape().to_vec(), Origin::of(&nothing)))
    }

    /// This rank's part of a measurement that is one file; all ranks call it. `check` refuses the shape of the whole.
    pub(crate) fn load_part(
        &self,
        ctx: &Context,
        index: usize,
        space: &Space,
        check: impl FnOnce(&[usize]) -> Result<()>,
    ) -> Result<Array> {
        let path = &agree(ctx, self.paths_of(index))?[0];
        let reader = Reader::open(path, &self.options).map_err(|error| self.place.refuse(error));
        let reader = agree(ctx, reader.and_then(|reader| check(reader.shape()).map(|()| reader)))?;
        let part = reader.read_sharded(ctx, &spatial_regions(space))?;
        let part = part.unwrap_or_else(|| Array::zeros(space.own_shape()));
        agree(ctx, check_finite(&self.place, path, &part))?;
        Ok(part)
    }

    /// A region of a measurement that is one file.
    pub(crate) fn load_region(&self, index: usize, region: &[Range<usize>]) -> Result<Array> {
        let path = &self.paths_of(index)?[0];
        let reader = Reader::open(path, &self.options).map_err(|error| self.place.refuse(error))?;
        reader.read_region(region).map_err(|error| self.place.refuse(error))
    }

    /// Gives `look` a measurement that is one file, band by band.
    pub(crate) fn look_through(
        &self,
        index: usize,
        mut look: impl FnMut(&Array) -> Result<()>,
    ) -> Result<()> {
        let path = &self.paths_of(index)?[0];
        let reader = Reader::open(path, &self.options).map_err(|error| self.place.refuse(error))?;
        look_through(&reader, &self.place, path, &mut look)
    }

    /// Whether flat or dark frames, or a logarithm, are applied.
    pub(crate) fn has_frames(&self) -> bool {
        self.frames.is_some()
    }

    /// Some views of a scan that has a file for each, of which all views are of `shape` and the first may have been read.
    pub(crate) fn load_views(
        &self,
        index: usize,
        views: &[usize],
        shape: &[usize],
        first: Option<&Array>,
    ) -> Result<Array> {
        let paths = self.paths_of(index)?;
        let mut stack = self.stacking.stack(views.len()).expecting(&shape[3..]);
        for view in views {
            let path = paths.get(*view).ok_or_else(|| {
                self.place.refuse(format!("view {view} of {}", count(paths.len(), "file")))
            })?;
            let pushed = match first.filter(|_| *view == 0) {
                Some(first) => stack.push(first),
                None => stack.push(&self.read_file(path)?.array),
            };
            pushed.map_err(|reason| self.refuse_file(path, &reason))?;
        }
        self.finish(stack)
    }

    /// The row in the middle of the detector in all views of a scan that has a file for each: (1, 1, view, bin). No more than a few
    /// views are held.
    pub(crate) fn load_row(&self, index: usize, shape: &[usize], first: &Array) -> Result<Array> {
        let all: Vec<usize> = (0..shape[2]).collect();
        let mut rows = Vec::new();
        for views in all.chunks(VIEWS_TOGETHER) {
            rows.push(middle_row(self.load_views(index, views, shape, Some(first))?.view()));
        }
        let rows: Vec<_> = rows.iter().map(|row| row.view()).collect();
        ndarray::concatenate(Axis(2), &rows).map_err(|error| self.refuse(&error.to_string()))
    }

    /// What the file holds, in words, given the least and the greatest of its values.
    pub(crate) fn describe_values(&self, origin: &Origin, (low, high): (f32, f32)) -> String {
        let becomes = if self.frames.is_some() { "; as measurements" } else { ":" };
        let hint = if origin.is_count && high > 1.5 && self.frames.is_none() && !self.is_scan {
            "; `white` is the value that becomes 1"
        } else {
            ""
        };
        format!("{}{becomes} {low} to {high}{hint}", origin.what)
    }

    fn paths_of(&self, index: usize) -> Result<&[PathBuf]> {
        match self.groups.get(index) {
            Some(paths) if paths.is_empty() => Err(self.place.refuse("there are no files")),
            Some(paths) => Ok(paths),
            None => Err(self.place.refuse(format!(
                "{} for more operators; one for each operator, or for each scan, is expected",
                self.count()
            ))),
        }
    }

    fn read_file(&self, path: &Path) -> Result<Image> {
        let read = io::read(path, &self.options).map_err(|error| self.place.refuse(error))?;
        check_finite(&self.place, path, &read.array)?;
        Ok(read)
    }

    fn refuse_file(&self, path: &Path, reason: &str) -> Error {
        self.place.refuse(format!("{}: {reason}", path.display()))
    }

    /// A measurement, and what the first of its files says, which may have been read.
    fn load_whole(&self, index: usize, first: Option<Image>) -> Result<(Array, Origin)> {
        let paths = self.paths_of(index)?;
        let mut read = match first {
            Some(first) => first,
            None => self.read_file(&paths[0])?,
        };
        let origin = Origin::of(&read);
        if let ([_], false) = (paths, self.stacking.is_given()) {
            // Behind the batch, and of scans behind the views.
            let frame = read.array.shape()[if self.is_scan { 3 } else { 1 }..].to_vec();
            return Ok((self.apply_frames(read.array, &frame)?, origin));
        }
        if let (Some(_), [path], &[_, _, views, bins]) =
            (self.stacking.row, paths, read.array.shape())
        {
            return Err(self.refuse_file(
                path,
                &format!(
                    "`row` picks one of (view, row, column), and the file has the sides [{views}, {bins}]"
                ),
            ));
        }
        let mut stack = self.stacking.stack(paths.len());
        for (file, path) in paths.iter().enumerate() {
            if file > 0 {
                read = self.read_file(path)?;
            }
            stack.push(&read.array).map_err(|reason| self.refuse_file(path, &reason))?;
        }
        drop(read);
        Ok((self.finish(stack)?, origin))
    }

    fn finish(&self, stack: Stack) -> Result<Array> {
        let frame = stack.frame();
        let array = stack.finish().map_err(|reason| self.place.refuse(reason))?;
        self.apply_frames(array, &frame)
    }

    fn apply_frames(&self, array: Array, frame: &[usize]) -> Result<Array> {
        let stacking = self.is_scan.then_some(self.stacking);
        match &self.frames {
            None => Ok(array),
            Some(frames) => frames.apply(array, frame, stacking, &self.options),
        }
    }

    /// Refuses files that no operator has.
    pub(crate) fn check_count(&self, needed: usize) -> Result<()> {
        if needed == self.groups.len() {
            return Ok(());
        }
        Err(self.place.refuse(format!(
            "{} for {}; one for each operator, or for each scan, is expected",
            self.count(),
            count(needed, "operator")
        )))
    }

    fn count(&self) -> String {
        count(self.groups.len(), "file")
    }
}

/// What a file of measurements says, apart from its values.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The file in words.
    what: String,
    pub placement: Placement,
    /// Whether values are integers as they are stored, so that they are counts.
    is_count: bool,
}

impl Origin {
    fn of(image: &Image) -> Self {
        Self {
            what: image.describe(),
            placement: Placement::of(image),
            is_count: image.scaling == Scaling::NONE && !image.sample.is_float(),
        }
    }
}

/// Refuses values that are no numbers.
pub(crate) fn check_finite(place: &Place, path: &Path, array: &Array) -> Result<()> {
    match array.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(index) => Err(place.refuse(format!(
            "{}: element {index} of {:?} is not a finite number",
            path.display(),
            array.shape()
        ))),
    }
}

/// Gives `look` all values of a file, band by band, and refuses those that are no numbers.
pub(crate) fn look_through(
    reader: &Reader,
    place: &Place,
    path: &Path,
    look: &mut dyn FnMut(&Array) -> Result<()>,
) -> Result<()> {
    // An error of the file has no place yet; those of `look` have theirs.
    let mut found = Ok(());
    let outcome = reader.for_each_band(&mut |band| {
        found = check_finite(place, path, band).and_then(|()| look(band));
        found.clone()
    });
    found?;
    outcome.map_err(|error| place.refuse(error))
}

//! A scan in HDF5, in the layout of Data Exchange: `scan` of `[measurements]`.
//!
//! Its shape and angles are known without its values; each rank reads the projections of its own views.

use std::path::PathBuf;

use haloscope::Array;
use haloscope::Result;
#[cfg(feature = "hdf5")]
use haloscope::io::{Limits, exchange::ScanReader};

use super::beam::Measured;
use crate::document::{Place, Section};

/// A scan in HDF5, with the frames that are needed to make line integrals of it.
#[derive(Clone, Debug)]
pub(crate) struct ScanFile {
    place: Place,
    path: PathBuf,
    /// The row of the detector that is the slice, if the image is one.
    row: Option<usize>,
}

impl ScanFile {
    pub(super) fn read(section: &Section) -> Result<Self> {
        Ok(Self {
            place: section.place_of("scan"),
            path: section.path("scan")?.unwrap_or_default(),
            row: section.get("row")?,
        })
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The sides of all views, and the angles.
    #[cfg(feature = "hdf5")]
    pub(crate) fn survey(&self) -> Result<Measured> {
        let scan = self.open()?;
        let [views, rows, columns] = scan.shape();
        let shape = match self.row {
            Some(row) if row < rows => vec![views, columns],
            Some(row) => {
                let reason = format!("row {row} of a detector of {rows} rows, counted from 0");
                return Err(self.place.refuse(reason));
            }
            None => vec![views, rows, columns],
        };
        Ok(Measured { shape, angles: Some(scan.angles().to_vec()), centre: None })
    }

    /// The line integrals of a row, (1, 1, view, bin), or of all rows, (1, 1, view, row, column), for each list of views.
    #[cfg(feature = "hdf5")]
    pub(crate) fn load(&self, views: &[&[usize]]) -> Result<Vec<Array>> {
        use ndarray::Axis;

        let scan = self.open()?;
        let rows = self.row.map_or(0..scan.shape()[1], |row| row..row + 1);
        let parts = scan.line_integrals(views, rows).map_err(|error| self.place.refuse(error))?;
        let finish = |part: Array| {
            super::data_files::check_finite(&self.place, &self.path, &part)?;
            let part = if self.row.is_some() { part.index_axis_move(Axis(1), 0) } else { part };
            Ok(part.insert_axis(Axis(0)).insert_axis(Axis(0)))
        };
        parts.into_iter().map(finish).collect()
    }

    /// The line integrals of the row in the middle of the detector, or of the one that is the slice: (1, 1, view, bin).
    #[cfg(feature = "hdf5")]
    pub(crate) fn load_row(&self) -> Result<Array> {
        let [views, rows, _] = self.open()?.shape();
        let one = Self { row: Some(self.row.unwrap_or(rows / 2)), ..self.clone() };
        let all: Vec<usize> = (0..views).collect();
        one.load(&[&all])?.pop().ok_or_else(|| self.place.refuse("it has no views"))
    }

    #[cfg(feature = "hdf5")]
    fn open(&self) -> Result<ScanReader> {
        ScanReader::open(&self.path, &Limits::default()).map_err(|error| self.place.refuse(error))
    }

    #[cfg(not(feature = "hdf5"))]
    pub(crate) fn survey(&self) -> Result<Measured> {
        let _ = self.row;
        Err(self.place.refuse(format!(
            "{}: scans in HDF5 need a build with the feature `hdf5`",
            self.path.display()
        )))
    }

    #[cfg(not(feature = "hdf5"))]
    pub(crate) fn load_row(&self) -> Result<Array> {
        self.survey().map(|_| Array::zeros(vec![0]))
    }

    #[cfg(not(feature = "hdf5"))]
    pub(crate) fn load(&self, _: &[&[usize]]) -> Result<Vec<Array>> {
        self.survey().map(|_| Vec::new())
    }
}

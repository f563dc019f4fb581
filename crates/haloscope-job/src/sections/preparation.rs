//! `[preparation]`: what is done to the projections of a real scan before they are reconstructed.
//!
//! Each rank prepares the views that it has. Rings are a matter of single rows of all views, so ranks exchange rows for them; what
//! becomes of a row does not depend on the rank that has it.

use std::ops::Range;

use haloscope::distribute::{DistributedStack, agree};
use haloscope::physics::tomography::{
    PhaseFilter, correct_hardening, remove_outliers, remove_rings,
};
use haloscope::{Array, Measurements, Result};
use haloscope_comm::{Collectives, partition};

use super::operators::{Entry, Recipe};
use crate::document::{Place, Section};

/// `[preparation]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreparationPlan {
    place: Option<Place>,
    /// How far from its neighbours a value may be.
    outliers: Option<f64>,
    phase: Option<Phase>,
    /// The coefficients of a polynomial.
    hardening: Vec<f64>,
    /// How many bins are compared to find a ring.
    rings: Option<usize>,
}

/// `phase`.
#[derive(Clone, Debug)]
struct Phase {
    place: Place,
    pixel: f64,
    distance: f64,
    energy: f64,
    ratio: f64,
}

/// Bins that are compared to find a ring, if a job does not say.
const RING_WIDTH: usize = 21;

impl PreparationPlan {
    pub(crate) fn read(section: &Section) -> Result<Self> {
        let phase = section.section("phase", |section| {
            Ok(Phase {
                place: section.place(),
                pixel: section.require::<f64>("pixel")?,
                distance: section.require::<f64>("distance")?,
                energy: section.require::<f64>("energy")?,
                ratio: section.require::<f64>("ratio")?,
            })
        })?;
        let hardening = section.get::<Vec<f64>>("hardening")?.unwrap_or_default();
        if let Some(bad) = hardening.iter().find(|value| !value.is_finite()) {
            let reason = format!("{bad} is given; finite coefficients of p, p², … are expected");
            return Err(section.place_of("hardening").refuse(reason));
        }
        let rings = match section.get::<bool>("rings") {
            Ok(given) => given.filter(|wanted| *wanted).map(|_| RING_WIDTH),
            Err(_) => section.count("rings")?,
        };
        if let Some(width) = rings.filter(|width| *width < 3) {
            let reason = format!("{width} bins; true, or at least 3 bins, is expected");
            return Err(section.place_of("rings").refuse(reason));
        }
        let outliers = section.positive("outliers")?;
        Ok(Self { place: Some(section.place()), outliers, phase, hardening, rings })
    }

    /// Refuses it for operators that are not scans, and for phases that make no sense.
    pub(crate) fn check(&self, operators: &[Entry]) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        if !operators.iter().all(Entry::is_scan) {
            return Err(place.refuse("it is for scans alone; leave [preparation] out"));
        }
        self.filter([1, 1]).map(drop)
    }

    /// Whether there is anything to do.
    pub(crate) fn is_given(&self) -> bool {
        self.place.is_some()
    }

    /// Whether ranks exchange rows.
    pub(crate) fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// A few words on it.
    pub(crate) fn describe(&self) -> Option<String> {
        let words: Vec<String> = [
            self.outliers.map(|difference| format!("outliers beyond {difference}")),
            self.phase.as_ref().map(|phase| format!("phase with δ/β = {}", phase.ratio)),
            (!self.hardening.is_empty()).then(|| "beam hardening".into()),
            self.rings.map(|width| format!("rings over {width} bins")),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Prepares what this rank has of the scans; all ranks call it. `recipes` are those of all operators.
    pub(crate) fn apply(
        &self,
        physics: &DistributedStack,
        recipes: &[Recipe],
        data: &mut Measurements,
    ) -> Result<()> {
        if !self.is_given() {
            return Ok(());
        }
        let ctx = physics.context();
        let prepared = data.iter_mut().try_for_each(|(_, part)| self.prepare_views(part));
        agree(ctx, prepared)?;
        let Some(width) = self.rings else { return Ok(()) };
        let mut files: Vec<usize> = recipes.iter().map(|recipe| recipe.file).collect();
        files.sort_unstable();
        files.dedup();
        for file in files {
            let operators =
                (0..recipes.len()).filter(|index| recipes[*index].file == file).collect();
            let rows = Rows::new(physics, recipes, operators);
            rows.visit(physics, data, |sinogram, views| remove_rings(sinogram, views, width))?;
        }
        Ok(())
    }

    /// What concerns single views.
    fn prepare_views(&self, part: &mut Array) -> Result<()> {
        let sides = sides(&part.shape()[1..]);
        let filter = self.filter(sides)?;
        let Some(values) = part.as_slice_mut() else { return Ok(()) };
        if let Some(difference) = self.outliers {
            remove_outliers(values, sides, difference as f32);
        }
        if let Some(filter) = filter {
            filter.apply(values);
        }
        if !self.hardening.is_empty() {
            correct_hardening(values, &self.hardening);
        }
        Ok(())
    }

    fn filter(&self, sides: [usize; 2]) -> Result<Option<PhaseFilter>> {
        let make = |phase: &Phase| {
            let Phase { place, pixel, distance, energy, ratio } = phase;
            PhaseFilter::new(sides, *pixel, *distance, *energy, *ratio)
                .map_err(|error| place.refuse(error))
        };
        self.phase.as_ref().map(make).transpose()
    }
}

/// Rows and columns of the views of a measurement, (channel, view, bin) or (channel, view, row, column).
fn sides(shape: &[usize]) -> [usize; 2] {
    match *shape {
        [_, _, rows, columns] => [rows, columns],
        [_, _, bins] => [1, bins],
        _ => [1, 1],
    }
}

/// The rows of a scan, dealt to the ranks.
struct Rows {
    /// For each rank, its operators of the scan with the views of each.
    of_rank: Vec<Vec<(usize, Vec<usize>)>>,
    views: usize,
    columns: usize,
    /// The rows that each rank works on.
    dealt: Vec<Range<usize>>,
    all: usize,
}

impl Rows {
    fn new(physics: &DistributedStack, recipes: &[Recipe], operators: Vec<usize>) -> Self {
        let ranks = physics.context().size();
        let shapes = physics.measurement_shapes();
        let [all, columns] = sides(&shapes[operators[0]]);
        let mut of_rank = vec![Vec::new(); ranks];
        let mut views = 0;
        for index in operators {
            let own = recipes[index].views().unwrap_or_else(|| (0..shapes[index][1]).collect());
            views += own.len();
            of_rank[physics.owners()[index]].push((index, own));
        }
        Self { of_rank, views, columns, dealt: partition::even(all, ranks), all }
    }

    /// The values that a rank has of some rows.
    fn len(&self, rank: usize, rows: &Range<usize>) -> usize {
        let views: usize = self.of_rank[rank].iter().map(|(_, views)| views.len()).sum();
        views * rows.len() * self.columns
    }

    /// Lets `f` change every row of the scan, (view, column), wherever its views are.
    fn visit(
        &self,
        physics: &DistributedStack,
        data: &mut Measurements,
        f: impl Fn(&mut [f32], usize),
    ) -> Result<()> {
        let (ctx, rank) = (physics.context(), physics.context().rank());
        let ranks = 0..ctx.size();
        let mut sent: Vec<Vec<f32>> =
            ranks.clone().map(|to| self.pack(rank, &self.dealt[to], data)).collect();
        let mine = &self.dealt[rank];
        let mut arrived: Vec<Vec<f32>> =
            ranks.map(|from| vec![0.0; self.len(from, mine)]).collect();
        arrived[rank] = std::mem::take(&mut sent[rank]);
        exchange(ctx, &sent, &mut arrived)?;
        let mut sinogram = vec![0.0; self.views * self.columns];
        for row in 0..mine.len() {
            self.transfer(mine, row, &mut arrived, |value, place| sinogram[place] = *value);
            f(&mut sinogram, self.views);
            self.transfer(mine, row, &mut arrived, |value, place| *value = sinogram[place]);
        }
        sent[rank] = std::mem::take(&mut arrived[rank]);
        exchange(ctx, &arrived, &mut sent)?;
        for (to, values) in sent.iter().enumerate() {
            self.unpack(rank, &self.dealt[to], values, data);
        }
        Ok(())
    }

    /// Visits the values of one of my rows, with their places in the sinogram.
    fn transfer(
        &self,
        mine: &Range<usize>,
        row: usize,
        arrived: &mut [Vec<f32>],
        mut visit: impl FnMut(&mut f32, usize),
    ) {
        for (values, operators) in arrived.iter_mut().zip(&self.of_rank) {
            let views = operators.iter().flat_map(|(_, views)| views);
            for (at, view) in views.enumerate() {
                let start = (at * mine.len() + row) * self.columns;
                let line = &mut values[start..start + self.columns];
                for (column, value) in line.iter_mut().enumerate() {
                    visit(value, view * self.columns + column);
                }
            }
        }
    }

    fn pack(&self, rank: usize, rows: &Range<usize>, data: &mut Measurements) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.len(rank, rows));
        self.lines(rank, rows, data, |line| values.extend_from_slice(line));
        values
    }

    fn unpack(&self, rank: usize, rows: &Range<usize>, values: &[f32], data: &mut Measurements) {
        let mut lines = values.chunks(self.columns.max(1));
        self.lines(rank, rows, data, |line| {
            if let Some(from) = lines.next() {
                line.copy_from_slice(from);
            }
        });
    }

    /// The lines of some rows, in the order of a rank's operators and views.
    fn lines(
        &self,
        rank: usize,
        rows: &Range<usize>,
        data: &mut Measurements,
        mut visit: impl FnMut(&mut [f32]),
    ) {
        for (index, views) in &self.of_rank[rank] {
            let Some(values) = data.get_mut(*index).and_then(|part| part.as_slice_mut()) else {
                continue;
            };
            for view in 0..views.len() {
                for row in rows.clone() {
                    let start = (view * self.all + row) * self.columns;
                    visit(&mut values[start..start + self.columns]);
                }
            }
        }
    }
}

/// Sends to every other rank what is for it, and takes what the others have.
fn exchange(
    ctx: &haloscope_comm::Context,
    sent: &[Vec<f32>],
    received: &mut [Vec<f32>],
) -> Result<()> {
    let rank = ctx.rank();
    let is_other = |at: usize, len: usize| at != rank && len > 0;
    let sends: Vec<(usize, &[f32])> = (sent.iter().enumerate())
        .filter(|(to, values)| is_other(*to, values.len()))
        .map(|(to, values)| (to, &values[..]))
        .collect();
    let mut receives: Vec<(usize, &mut [f32])> = (received.iter_mut().enumerate())
        .filter(|(from, values)| is_other(*from, values.len()))
        .map(|(from, values)| (from, &mut values[..]))
        .collect();
    Ok(ctx.comm().exchange(&sends, &mut receives)?)
}

//! What the values of the first measurement say of a job and of a mask, from all of it or from parts of it.

use haloscope::array::extremes;
use haloscope::{Array, Result};
use haloscope_comm::{Collectives, Context, Reduction};

use crate::Job;

/// The values of a measurement, beside the range that `clamp` of `[prior]` keeps the image in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The least and the greatest.
    pub range: (f32, f32),
    values: u64,
    /// Those of them that are far from what the image may be.
    far: u64,
}

/// The range of no values.
const NOTHING: (f32, f32) = (f32::INFINITY, f32::NEG_INFINITY);

/// The range of the values of two ranges.
fn both(one: (f32, f32), other: (f32, f32)) -> (f32, f32) {
    (one.0.min(other.0), one.1.max(other.1))
}

impl Default for Seen {
    fn default() -> Self {
        Self { range: NOTHING, values: 0, far: 0 }
    }
}

impl Seen {
    /// Of these values.
    pub(crate) fn of(job: &Job, measured: &Array) -> Self {
        let far = job.prior.clamp.map_or(0, |(low, high)| {
            let width = high - low;
            let is_far = |value: &&f32| !(low - width..=high + width).contains(*value);
            measured.iter().filter(is_far).count() as u64
        });
        let seen = Self { values: measured.len() as u64, far, ..Self::default() };
        if measured.is_empty() { seen } else { Self { range: extremes(measured), ..seen } }
    }

    /// Of these values and others.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            range: both(self.range, other.range),
            values: self.values + other.values,
            far: self.far + other.far,
        }
    }

    /// Of the values of all ranks, which all call it.
    pub(crate) fn on_all(self, ctx: &Context) -> Result<Self> {
        let mut counts = [self.values, self.far];
        ctx.comm().all_reduce(Reduction::Sum, &mut counts)?;
        let mut ends = [-self.range.0, self.range.1];
        ctx.comm().all_reduce(Reduction::Max, &mut ends)?;
        Ok(Self { range: (-ends[0], ends[1]), values: counts[0], far: counts[1] })
    }

    /// Refuses a prior that keeps the image where the measurements of it are not: those of blurs and cameras have its scale.
    pub(crate) fn check(self, job: &Job) -> std::result::Result<(), String> {
        let Some((low, high)) = job.prior.clamp.filter(|_| 2 * self.far > self.values) else {
            return Ok(());
        };
        let (least, most) = self.range;
        Err(format!(
            "values from {least} to {most}, most of them far from the [{low}, {high}] that `clamp` of [prior] keeps the \
             image in; `white`, the value that becomes 1, brings them there, or another `clamp` takes them as they are"
        ))
    }
}

/// The ranges of the values of a measurement, and of those of them that a mask says are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    pub all: (f32, f32),
    pub there: (f32, f32),
}

impl Default for Presence {
    fn default() -> Self {
        Self { all: NOTHING, there: NOTHING }
    }
}

impl Presence {
    /// Of values (batch, channel, spatial…) and their mask, which may have one channel for all.
    pub(crate) fn of(measured: &Array, mask: &Array) -> Self {
        let mut found = Self::default();
        // What is wrong with the mask itself is said elsewhere.
        let Some(mask) = mask.broadcast(measured.raw_dim()) else { return found };
        for (value, present) in measured.iter().zip(&mask) {
            found.all = both(found.all, (*value, *value));
            if *present != 0.0 {
                found.there = both(found.there, (*value, *value));
            }
        }
        found
    }

    /// Of these values and others.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { all: both(self.all, other.all), there: both(self.there, other.there) }
    }

    /// Of the values of all ranks, which all call it.
    pub(crate) fn on_all(self, ctx: &Context) -> Result<Self> {
        let mut ends = [-self.all.0, self.all.1, -self.there.0, self.there.1];
        ctx.comm().all_reduce(Reduction::Max, &mut ends)?;
        Ok(Self { all: (-ends[0], ends[1]), there: (-ends[2], ends[3]) })
    }
}

//! The measurements of a job, on the ranks whose operators they are of.
//!
//! Each rank reads what is its own: the files of its operators, the views of its groups. What the first rank had to read to
//! know the shape of a scan it deals to the others, so that no file is read twice.

use std::ops::Range;

use haloscope::array::extremes;
use haloscope::distribute::{DistributedStack, ShardedStack, agree};
use haloscope::image::Space;
use haloscope::{Array, Digest, Error, Image, Measurements, Result};
use haloscope_comm::{Collectives, Context};
use ndarray::{Axis, Slice};

use crate::Job;
use crate::layout::{Layout, Scanned};
use crate::sections::data_files::{Files, Kept};
use crate::sections::measurements::{Simulation, Source};
use crate::seen::{Presence, Seen};

/// The values of a measurement that are compared with a mask together: 64 MB.
const BLOCK: usize = 1 << 24;

/// The measurements of the rank's own operators; all ranks call it.
pub(crate) fn acquire(
    ctx: &Context,
    job: &Job,
    layout: &mut Layout,
    physics: &DistributedStack,
) -> Result<Measurements> {
    if let Source::Simulation(simulation) = &job.measurements {
        return simulate(ctx, layout, physics, simulation);
    }
    let is_dealt = |layout: &Layout, index: &usize| {
        let file = layout.recipes[*index].file;
        layout.scans.get(&file).is_some_and(|scanned| scanned.is_dealt)
    };
    let shapes = physics.measurement_shapes();
    let own: Vec<usize> =
        physics.local_indices().filter(|index| !is_dealt(layout, index)).collect();
    let mut parts = agree(ctx, layout.read(job, shapes, &own))?;
    let dealt: Vec<usize> = (0..physics.len()).filter(|index| is_dealt(layout, index)).collect();
    if !dealt.is_empty() {
        parts.extend(deal(ctx, job, layout, physics, &dealt)?);
    }
    layout.kept.clear();
    Measurements::partial(physics.len(), parts)
}

/// What the operators measure of the truth, which only the first rank keeps.
fn simulate(
    ctx: &Context,
    layout: &mut Layout,
    physics: &DistributedStack,
    simulation: &Simulation,
) -> Result<Measurements> {
    let mut received = None;
    let image = match &mut layout.truth {
        Some(truth) => &mut truth.image,
        None => received.insert(Array::zeros(layout.image.clone())),
    };
    broadcast(ctx, image)?;
    let measured = physics.measure_terms(image, &simulation.noise, simulation.seed)?;
    agree(ctx, measured.into_local())
}

/// Copies the image of the first rank to all; they have one of the same shape.
pub(crate) fn broadcast(ctx: &Context, image: &mut Array) -> Result<()> {
    if ctx.size() == 1 {
        return Ok(());
    }
    if !image.is_standard_layout() {
        *image = image.as_standard_layout().into_owned();
    }
    let values = image.as_slice_mut().expect("the layout is standard");
    Ok(ctx.comm().broadcast(0, values)?)
}

/// Gives the parts of scans that the first rank has to the ranks that own them; all ranks call it.
fn deal(
    ctx: &Context,
    job: &Job,
    layout: &mut Layout,
    physics: &DistributedStack,
    dealt: &[usize],
) -> Result<Vec<(usize, Array)>> {
    // Where every rank has all operators, the owners of one stack say nothing of the others.
    let are_shared = physics.context().size() == ctx.size();
    let shapes = physics.measurement_shapes();
    let mut parts = Vec::new();
    // A part that is wrong is not sent: all have seen its shape before anyone waits for it.
    agree(ctx, dealt.iter().try_for_each(|index| layout.check_dealt(shapes, *index)))?;
    for index in dealt.iter().copied() {
        let owner = if are_shared { Some(physics.owners()[index]) } else { None };
        let is_mine = owner.is_none_or(|owner| owner == ctx.rank());
        let mut part = None;
        if ctx.is_root() {
            part = layout.kept_part(index);
        } else if is_mine {
            part = Some(Array::zeros(layout.expected(shapes, index)));
        }
        let values = part.as_mut().and_then(|part| part.as_slice_mut()).unwrap_or(&mut []);
        match owner {
            None => ctx.comm().broadcast(0, values)?,
            Some(0) => (),
            Some(owner) if ctx.is_root() => {
                ctx.comm().exchange(&[(owner, &*values)], &mut [])?;
            }
            Some(_) if is_mine => ctx.comm().exchange(&[], &mut [(0, values)])?,
            Some(_) => ctx.comm().exchange::<f32>(&[], &mut [])?,
        }
        parts.extend(part.filter(|_| is_mine).map(|part| (index, part)));
    }
    let checked = parts.iter().try_for_each(|(index, part)| layout.check_values(job, *index, part));
    agree(ctx, checked)?;
    Ok(parts)
}

impl Layout {
    /// The measurements of some operators, from the files of the job and from what was kept of them.
    pub(crate) fn read(
        &mut self,
        job: &Job,
        shapes: &[Vec<usize>],
        operators: &[usize],
    ) -> Result<Vec<(usize, Array)>> {
        let parts = match &job.measurements {
            Source::Scan(file) => {
                let all = || (0..self.scans.get(&0).map_or(0, |scan| scan.shape[2])).collect();
                let views = operators.iter().map(|index| self.recipes[*index].views());
                let views: Vec<Vec<usize>> = views.map(|views| views.unwrap_or_else(all)).collect();
                let views: Vec<&[usize]> = views.iter().map(|views| &**views).collect();
                if views.is_empty() { Vec::new() } else { file.load(&views)? }
            }
            _ => operators.iter().map(|index| self.part(job, *index)).collect::<Result<_>>()?,
        };
        let parts: Vec<(usize, Array)> = operators.iter().copied().zip(parts).collect();
        for (index, part) in &parts {
            self.check_shape(shapes, *index, part.shape())?;
            self.check_values(job, *index, part)?;
        }
        let weighed = |(index, part): (usize, Array)| Ok((index, self.recipes[index].weigh(part)?));
        parts.into_iter().map(weighed).collect()
    }

    /// This rank's parts of measurements in files; all ranks call it.
    pub(crate) fn read_shards(
        &self,
        ctx: &Context,
        job: &Job,
        physics: &ShardedStack,
    ) -> Result<Measurements> {
        let shapes: Vec<Vec<usize>> =
            physics.measured().iter().map(|space| space.whole()[1..].to_vec()).collect();
        let mut parts = Vec::new();
        for (index, space) in physics.measured().iter().enumerate() {
            let recipe = &self.recipes[index];
            let scanned = self.scans.get(&recipe.file);
            agree(ctx, self.check_dealt(&shapes, index))?;
            let part = match (&job.measurements, scanned, recipe.views()) {
                (Source::Files(_), Some(Scanned { is_dealt: true, .. }), _) => {
                    let whole = self.kept_part(index);
                    Image::scatter(space, whole.as_deref())?.into_local()
                }
                (source, Some(scanned), Some(views)) => {
                    let own = &views[space.own()[2].clone()];
                    agree(ctx, self.load_rows(source, recipe.file, own, (&scanned.shape, space)))?
                        .unwrap_or_else(|| Array::zeros(space.own_shape()))
                }
                (Source::Files(files), ..) => {
                    let check = |shape: &[usize]| self.check_shape(&shapes, index, shape);
                    files.load_part(ctx, recipe.file, space, check)?
                }
                _ => return Err(Error::argument("measurements", "there are no files")),
            };
            let checked =
                if part.is_empty() { Ok(()) } else { self.check_values(job, index, &part) };
            agree(ctx, checked)?;
            if let (Source::Files(files), 0, false) = (&job.measurements, index, job.has_scan()) {
                let seen = Seen::of(job, &part).on_all(ctx)?;
                seen.check(job).map_err(|error| files.refuse(&error))?;
            }
            parts.push((index, part));
        }
        Measurements::partial(physics.len(), parts)
    }

    /// What a rank has of some views of a scan of this shape, if there is anything: all of them, or some rows, of which no more than a
    /// block is read together.
    fn load_rows(
        &self,
        source: &Source,
        file: usize,
        views: &[usize],
        (shape, space): (&[usize], &Space),
    ) -> Result<Option<Array>> {
        let (own, whole) = (space.own(), space.whole());
        let is_cut = |axis: &usize| own[*axis].len() < whole[*axis];
        if own.iter().any(Range::is_empty) {
            return Ok(None);
        }
        let Some(axis) = (3..own.len()).find(is_cut) else {
            return self.load_views(source, file, views, shape);
        };
        let together = (BLOCK / whole[3..].iter().product::<usize>().max(1)).max(1);
        let mut parts = Vec::new();
        for views in views.chunks(together) {
            if let Some(mut part) = self.load_views(source, file, views, shape)? {
                part.slice_axis_inplace(Axis(axis), Slice::from(own[axis].clone()));
                parts.push(part.as_standard_layout().into_owned());
            }
        }
        let parts: Vec<_> = parts.iter().map(|part| part.view()).collect();
        let joined = ndarray::concatenate(Axis(2), &parts);
        joined.map(Some).map_err(|error| Error::argument("measurements", error.to_string()))
    }

    /// Some views of a scan of this shape, if there are any.
    fn load_views(
        &self,
        source: &Source,
        file: usize,
        views: &[usize],
        shape: &[usize],
    ) -> Result<Option<Array>> {
        match source {
            _ if views.is_empty() => Ok(None),
            Source::Scan(scan) => Ok(scan.load(&[views])?.pop()),
            Source::Files(files) => {
                let first = match self.kept.get(&file) {
                    Some(Kept::View(first)) => Some(first),
                    _ => None,
                };
                files.load_views(file, views, shape, first).map(Some)
            }
            Source::Simulation(_) => Ok(None),
        }
    }

    /// The measurement of an operator, in files.
    fn part(&mut self, job: &Job, index: usize) -> Result<Array> {
        let Source::Files(files) = &job.measurements else {
            return Err(Error::argument("measurements", "there are no files"));
        };
        let recipe = self.recipes[index].clone();
        match (recipe.views(), self.kept.get(&recipe.file), self.scans.get(&recipe.file)) {
            (Some(_), Some(Kept::Whole(all)), _) => Ok(recipe.own(all)),
            (Some(views), first, Some(scanned)) => {
                let first = match first {
                    Some(Kept::View(first)) => Some(first),
                    _ => None,
                };
                files.load_views(recipe.file, &views, &scanned.shape, first)
            }
            _ => match self.kept.remove(&recipe.file) {
                Some(Kept::Whole(all)) => Ok(recipe.suited(all)),
                _ => Ok(recipe.suited(files.load(recipe.file)?)),
            },
        }
    }

    /// The part of an operator in what was read of its scan.
    fn kept_part(&self, index: usize) -> Option<Array> {
        let recipe = &self.recipes[index];
        match self.kept.get(&recipe.file)? {
            Kept::Whole(all) => Some(recipe.own(all)),
            Kept::View(_) => None,
        }
    }

    /// The shape of the measurement of an operator, with the batch.
    fn expected(&self, shapes: &[Vec<usize>], index: usize) -> Vec<usize> {
        [&self.image[..1], &shapes[index]].concat()
    }

    /// Refuses a scan of which an operator would have a part of another shape.
    fn check_dealt(&self, shapes: &[Vec<usize>], index: usize) -> Result<()> {
        let recipe = &self.recipes[index];
        let Some(scanned) = self.scans.get(&recipe.file) else { return Ok(()) };
        let mut shape = scanned.shape.clone();
        if let (Some(side), Some(views)) = (shape.get_mut(2), recipe.views()) {
            *side = views.len();
        }
        self.check_shape(shapes, index, &shape)
    }

    pub(crate) fn check_shape(
        &self,
        shapes: &[Vec<usize>],
        index: usize,
        found: &[usize],
    ) -> Result<()> {
        let (recipe, expected) = (&self.recipes[index], self.expected(shapes, index));
        if found == expected {
            return Ok(());
        }
        Err(recipe.place().refuse(Error::Shape {
            what: format!("the measurement of operator {index} ({})", recipe.name()),
            expected: format!("{expected:?} is expected for images of {:?}", self.image),
            found: found.to_vec(),
        }))
    }

    /// Refuses data that the fidelity cannot evaluate.
    pub(crate) fn check_values(&self, job: &Job, index: usize, part: &Array) -> Result<()> {
        match job.fidelity.fidelities.get(index) {
            Some(fidelity) => fidelity
                .value(part, part)
                .map(drop)
                .map_err(|error| self.recipes[index].place().refuse(error)),
            None => Ok(()),
        }
    }

    /// Looks through all measurements in files in bands, for an image in shards, and says what the values of the first are and
    /// what may be wrong with it.
    pub(crate) fn inspect_bands(
        &self,
        job: &Job,
        files: &Files,
        shapes: &[Vec<usize>],
    ) -> Result<(Option<String>, Option<String>)> {
        let mut seen = Seen::default();
        for (index, recipe) in self.recipes.iter().enumerate() {
            self.check_shape(shapes, index, &files.outline(recipe.file)?.0)?;
            files.look_through(recipe.file, |band| {
                if index == 0 {
                    seen = seen.and(Seen::of(job, band));
                }
                self.check_values(job, index, band)
            })?;
        }
        seen.check(job).map_err(|error| files.refuse(&error))?;
        let values = self.origin.as_ref().map(|origin| files.describe_values(origin, seen.range));
        let presence = self.presence_in_blocks(files, &shapes[0])?;
        let doubt = presence.and_then(|presence| self.recipes[0].doubt(&presence));
        Ok((values, doubt.map(|doubt| files.doubt(&doubt))))
    }

    /// What a mask of the first operator makes of its measurement of a shape, in large blocks of rows: each of them unpacks
    /// a compressed file from its beginning.
    fn presence_in_blocks(&self, files: &Files, shape: &[usize]) -> Result<Option<Presence>> {
        let mut region: Vec<_> = shape[1..].iter().map(|side| 0..*side).collect();
        let values = self.image[0] * shape.iter().product::<usize>();
        let (rows, step) = (shape[1], (BLOCK * shape[1] / values.max(1)).max(1));
        let mut all: Option<Presence> = None;
        for start in (0..rows).step_by(step) {
            region[0] = start..rows.min(start + step);
            let mask = self.recipes[0].mask_in_file(&region).transpose()?;
            let Some(mask) = mask else { return Ok(None) };
            let more = Presence::of(&files.load_region(0, &region)?, &mask);
            all = Some(more.and(all.unwrap_or_default()));
        }
        Ok(all)
    }

    /// Reads all measurements, one at a time because all of them need not fit, and says what the values of the first file are
    /// and what may be wrong with it.
    pub(crate) fn inspect(
        &mut self,
        job: &Job,
        shapes: &[Vec<usize>],
    ) -> Result<(Option<String>, Option<String>)> {
        let mut range = (f32::INFINITY, f32::NEG_INFINITY);
        let mut doubt = None;
        for index in 0..self.recipes.len() {
            for (_, part) in self.read(job, shapes, &[index])? {
                if index == 0 {
                    doubt = self.doubt(job, &part);
                }
                if self.recipes[index].file == 0 {
                    let (low, high) = extremes(&part);
                    range = (range.0.min(low), range.1.max(high));
                }
            }
        }
        let values = match (&job.measurements, &self.origin) {
            (Source::Files(files), Some(origin)) => Some(files.describe_values(origin, range)),
            _ => None,
        };
        Ok((values, doubt))
    }
}

/// Digests of all operators' measurements, in their order; all ranks call it and get the same.
pub(crate) fn digests(ctx: &Context, data: &Measurements) -> Result<Vec<u8>> {
    let mine: Vec<u64> =
        data.iter().flat_map(|(index, part)| [index as u64, Digest::of(part).value()]).collect();
    let mut digests = vec![0_u64; data.len()];
    for words in ctx.comm().all_gather(&mine)? {
        for pair in words.chunks_exact(2) {
            if let Some(digest) = digests.get_mut(pair[0] as usize) {
                *digest = pair[1];
            }
        }
    }
    Ok(digests.iter().flat_map(|digest| digest.to_le_bytes()).collect())
}

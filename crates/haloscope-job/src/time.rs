//! What a job will take of time, by a short trial of its parts on this machine.
//!
//! It times a few views, an operator on a small image, and the network on a small tile, all with the cores that the ranks would share. Of
//! a large image it takes some rows or planes in the middle. The rest is proportion. So it says "about": inner iterations count at their
//! most, and reading, writing and messages do not count.

use std::num::NonZero;
use std::ops::Range;
use std::time::Instant;

use haloscope::denoise::{Denoiser, NetworkDenoiser, TotalVariation, Wavelets};
use haloscope::forecast::Forecast;
use haloscope::physics::Physics;
use haloscope::tiling::ShardPlan;
use haloscope::{Array, Error, Result};

use crate::Job;
use crate::layout::Layout;
use crate::sections::files::StartPlan;
use crate::sections::operators::Recipe;
use crate::sections::prior::PriorKind;

/// Pixels along each side of what is tried, of images and of volumes.
const TRIAL: [usize; 2] = [256, 48];

/// Pixels times views of a projector that is tried, at least: some milliseconds.
const RAYS: usize = 1 << 25;

/// The same at most: less than a second for each thread.
const MOST_RAYS: usize = 1 << 27;

/// Views of a trial for each thread, at least. What is done once for all views would count too much with fewer, or threads have nothing to do.
const VIEWS_OF_THREAD: usize = 4;

/// Views of a trial, at most.
const MOST_VIEWS: usize = 64;

/// No larger image is tried.
const MOST_PIXELS: usize = 1 << 26;

/// The arrays of a trial in memory, in images.
const TRIED: u64 = 4;

/// How often the norm for a step size applies the operators forward and back: so often for blurs, and less for scans.
const NORM: f64 = 23.0;

/// In words, for as many ranks as the forecast has, all of them on this machine.
pub(crate) fn describe(
    job: &Job,
    layout: &Layout,
    forecast: &Forecast,
    network: Option<&NetworkDenoiser>,
    scratch_limit: Option<u64>,
) -> String {
    let limit = scratch_limit.map_or(usize::MAX, |bytes| (bytes / (4 * TRIED)) as usize);
    match estimate(job, layout, forecast, network, MOST_PIXELS.min(limit)) {
        Err(error) => format!("not estimated: {error}"),
        Ok(seconds) => {
            let inner = job.solver.method.has_prox();
            let most = if inner { "at most " } else { "" };
            format!("{most}about {}, by a short trial on this machine", duration(seconds))
        }
    }
}

/// The seconds of a job.
fn estimate(
    job: &Job,
    layout: &Layout,
    forecast: &Forecast,
    network: Option<&NetworkDenoiser>,
    most_pixels: usize,
) -> Result<f64> {
    let shards = forecast.shards.as_ref().filter(|_| job.is_sharded());
    let part = Part::of(layout, shards, most_pixels.min(MOST_RAYS / least_views()));
    let ranks = forecast.ranks.len() as f64;
    let operators = layout.recipes.len() as f64;
    let most = forecast.ranks.iter().map(|share| share.operators).max().unwrap_or(1) as f64;
    // All ranks wait for the one with the most to do, which has its part of the cores.
    let load = forecast.largest_load().max(1.0);
    let uneven = if job.is_sharded() { load } else { (most * ranks / operators).max(1.0) };
    // How often all ranks together compute what is done to each pixel.
    let copies = if job.is_sharded() { load } else { ranks };
    let data = applications(layout, &part, most_pixels)? * uneven;
    let image: usize = layout.image.iter().product();
    let prior = match (&job.prior.kind, network) {
        (PriorKind::Network(_), Some(denoiser)) => {
            let tiles: usize = forecast.ranks.iter().map(|share| share.tiles).sum();
            let most = forecast.ranks.iter().map(|share| share.tiles).max().unwrap_or(1);
            let uneven = match forecast.shards {
                Some(_) => forecast.largest_load(),
                None => most as f64 * ranks / tiles.max(1) as f64,
            };
            network_rate(denoiser)? * forecast.flops * uneven
        }
        // On every rank as one step of a method with its own dual variable, or shared by them as many as its prox takes.
        (PriorKind::TotalVariation { denoiser, .. }, _) => {
            let steps = match job.solver.method.priors {
                haloscope::solve::Priors::Analysis => copies,
                _ => denoiser.iterations as f64,
            };
            variation_rate(layout)? * image as f64 * steps
        }
        // Every rank computes all of it.
        (PriorKind::Wavelets { denoiser, .. }, _) => {
            let is_closed = denoiser.bases.len() == 1 && job.prior.clamp.is_none();
            let steps = match job.solver.method.priors {
                haloscope::solve::Priors::Analysis => 1.0,
                _ if is_closed => 1.0,
                _ => denoiser.iterations as f64,
            };
            wavelet_rate(layout, denoiser)? * image as f64 * steps * copies
        }
        _ => 0.0,
    };
    // What every method does with images besides: about as much as a step of total variation.
    let rest = variation_rate(layout)? * image as f64 * copies;
    let iteration = data * job.solver.applications() + prior + rest;
    let mut seconds = iteration * job.stop.iterations as f64;
    // A norm that a scan is scaled to is not estimated once more.
    let is_normalised = layout.recipes[0].scan().is_some_and(|scan| scan.is_normalised());
    if job.solver.needs_norm() || is_normalised {
        seconds += NORM * data;
    }
    if let (StartPlan::BackProjection(_, window), Some(scan)) =
        (&job.start, layout.recipes[0].scan())
    {
        let (projector, views) = scan.trial(part.views())?;
        let plan = projector.back_projection(*window)?.of_part(&part.ranges);
        let length = plan.view_len();
        let views = views.min(most_pixels / length.max(1)).max(1);
        let mut values = vec![0.0; views * length];
        let mut lines = vec![0.0; plan.lines() * plan.line_len()];
        // All of a view is filtered, whatever it is smeared over.
        let filter = timed(|| plan.filter(&mut values, |view| view))?;
        let filtered: Vec<(usize, &[f32])> = values.chunks(length).enumerate().collect();
        let smear = timed(|| {
            plan.smear(&filtered, 0, &mut lines);
            Ok(())
        })?;
        let channels = layout.image[..2].iter().product::<usize>();
        let per_view = (filter + smear / part.share) * channels as f64 / views as f64;
        seconds += per_view * scan.views() as f64;
    }
    Ok(seconds)
}

/// Seconds to apply all operators forward and back once, on all cores.
fn applications(layout: &Layout, part: &Part, most_pixels: usize) -> Result<f64> {
    let mut seconds = 0.0;
    let mut known: Option<(&Recipe, f64)> = None;
    for recipe in &*layout.recipes {
        let alike = known.filter(|(last, _)| last.name() == recipe.name());
        let each = match alike {
            Some((_, each)) => each,
            None => match recipe.scan() {
                Some(scan) => {
                    let (projector, views) = scan.trial(part.views())?;
                    let time = part.round_trip(layout, &*projector.into_physics())?;
                    time / views as f64 * scan.views() as f64 / scan.groups() as f64
                }
                None => small_round_trip(layout, recipe, most_pixels)?,
            },
        };
        known = Some((recipe, each));
        seconds += each;
    }
    Ok(seconds)
}

/// Seconds of an operator that has the size of its image, from a smaller one.
fn small_round_trip(layout: &Layout, recipe: &Recipe, most_pixels: usize) -> Result<f64> {
    let sides = recipe.image().len() - 1;
    let small = recipe.smaller(TRIAL[usize::from(sides > 2)]);
    let small = small.as_ref().unwrap_or(recipe);
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    if count(small.image()) > most_pixels {
        let reason = format!(
            "`{}` can be timed on an image of its own size only, which is large",
            recipe.name()
        );
        return Err(Error::argument("time", reason));
    }
    let time = round_trip(layout, &*small.draft()?)?;
    Ok(time * count(recipe.image()) as f64 / count(small.image()) as f64)
}

fn round_trip(layout: &Layout, operator: &dyn Physics) -> Result<f64> {
    let image = Array::zeros([&layout.image[..1], operator.image_shape()].concat());
    timed(|| {
        let measured = operator.forward(&image)?;
        operator.vjp(&image, &measured)
    })
}

/// Seconds of a network for each floating-point operation.
fn network_rate(denoiser: &NetworkDenoiser) -> Result<f64> {
    let (channels, rank) = (denoiser.model().image_channels(), denoiser.model().network().rank());
    // A network for slices of a volume gets one slice at a time.
    let side = if rank > 2 { 32 } else { 96 };
    let shape = [vec![1, channels], vec![side; rank]].concat();
    let plan = denoiser.plan(&shape)?;
    let image = Array::zeros(shape);
    let level = 0.05_f32.into();
    Ok(timed(|| denoiser.denoise(&image, &level))? / plan.flops().max(1.0))
}

/// Seconds of a step of total variation for each pixel.
fn variation_rate(layout: &Layout) -> Result<f64> {
    let sides = layout.image.len() - 2;
    let side = |side: &usize| (*side).min(TRIAL[usize::from(sides > 2)]);
    let shape: Vec<usize> =
        layout.image[..2].iter().copied().chain(layout.image[2..].iter().map(side)).collect();
    let steps = 4;
    let denoiser = TotalVariation { iterations: steps, tolerance: 0.0 };
    let mut next = 0_u32;
    let image = Array::from_shape_simple_fn(shape, || {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next as f32 / u32::MAX as f32
    });
    let level = 0.1_f32.into();
    let time = timed(|| denoiser.denoise(&image, &level))?;
    Ok(time / (steps * image.len().max(1)) as f64)
}

/// Seconds for each value of the image and step of wavelets: of coefficients in all bases and back.
fn wavelet_rate(layout: &Layout, wavelets: &Wavelets) -> Result<f64> {
    let sides = layout.image.len() - 2;
    let side = |side: &usize| (*side).min(TRIAL[usize::from(sides > 2)]);
    let shape: Vec<usize> =
        layout.image[..2].iter().copied().chain(layout.image[2..].iter().map(side)).collect();
    // A range makes it take steps with one basis, too.
    let range = Some((0.0, 1.0));
    let steps = 2;
    let denoiser = Wavelets { range, iterations: steps, tolerance: 0.0, ..*wavelets };
    let last = shape.len() - 1;
    let image = Array::from_shape_fn(shape, |at| (at[last] % 7) as f32 / 7.0);
    let time = timed(|| denoiser.denoise(&image, &0.1_f32.into()))?;
    Ok(time / (steps * image.len().max(1)) as f64)
}

/// The fewest views of a trial.
fn least_views() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    (VIEWS_OF_THREAD * threads).min(MOST_VIEWS)
}

/// What of an image a scan is tried on.
struct Part {
    /// Along the spatial axes.
    ranges: Vec<Range<usize>>,
    /// Its share of the image.
    share: f64,
    /// Its pixels, of all channels.
    pixels: usize,
}

impl Part {
    /// All of an image, or as many rows or planes in its middle as have so many pixels. In shards, a scan computes grain by grain.
    fn of(layout: &Layout, shards: Option<&ShardPlan>, most_pixels: usize) -> Self {
        let grains = shards.map(ShardPlan::grains).unwrap_or_default();
        let mut ranges = match grains.get(grains.len() / 2).filter(|_| grains.len() > 1) {
            Some(grain) => grain.clone(),
            None => layout.image[2..].iter().map(|side| 0..*side).collect(),
        };
        let images: usize = layout.image[..2].iter().product();
        let pixels_of =
            |ranges: &[Range<usize>]| images * ranges.iter().map(Range::len).product::<usize>();
        let pixels = pixels_of(&ranges);
        if let Some(first) = ranges.first_mut().filter(|_| pixels > most_pixels) {
            let side = first.len();
            let kept = (most_pixels / (pixels / side)).clamp(1, side);
            let start = first.start + (side - kept) / 2;
            *first = start..start + kept;
        }
        let pixels = pixels_of(&ranges);
        let all = layout.image.iter().product::<usize>().max(1);
        Self { ranges, share: pixels as f64 / all as f64, pixels }
    }

    /// The number of views for a trial of some milliseconds.
    fn views(&self) -> usize {
        (RAYS / self.pixels.max(1)).clamp(least_views(), MOST_VIEWS)
    }

    /// Seconds of an operator on the whole image, from those on the part.
    fn round_trip(&self, layout: &Layout, operator: &dyn Physics) -> Result<f64> {
        let restricted = || operator.as_linear()?.restricted_to_shadow(&self.ranges);
        match if self.share < 1.0 { restricted() } else { None } {
            Some(part) => Ok(round_trip(layout, &*part?)? / self.share),
            None => round_trip(layout, operator),
        }
    }
}

/// The seconds of something that was done once before, so that tables and memory are there.
fn timed<T>(mut work: impl FnMut() -> Result<T>) -> Result<f64> {
    work()?;
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// A time in two digits.
fn duration(seconds: f64) -> String {
    match seconds {
        ..1.0 => "a second".into(),
        ..60.0 => format!("{seconds:.0} s"),
        ..600.0 => format!("{:.1} min", seconds / 60.0),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let times = [0.2, 12.3, 90.0, 1800.0, 7200.0, 864_000.0].map(duration);
        assert_eq!(times, ["a second", "12 s", "1.5 min", "30 min", "2.0 h", "10.0 days"]);
    }
}

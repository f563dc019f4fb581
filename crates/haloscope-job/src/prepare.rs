//! From a job to a problem on all ranks: operators, measurements, prior, method and the image to begin with.
//!
//! All ranks prepare together and share the work, and an error on one of them becomes one on all.

use std::sync::Arc;

use haloscope::denoise::{NetworkDenoiser, Work};
use haloscope::distribute::{
    DistributedStack, Factory, ShardedStack, agree, agree_on_root, back_project,
    back_project_shards, distribute,
};
use haloscope::image::Space;
use haloscope::physics::tomography::Window;
use haloscope::solve::{Algorithm, Problem, Start, State, Stopping};
use haloscope::{Array, Error, Image, Measurements, Result};
use haloscope_comm::{Context, ContextOptions};
use serde::{Deserialize, Serialize};

use crate::Job;
use crate::acquire::{acquire, broadcast, digests};
use crate::devices;
use crate::job::LayoutPlan;
use crate::layout::{Layout, Truth};
use crate::sections::beam::Scan;
use crate::sections::files::StartPlan;
use crate::sections::operators::Recipe;
use crate::sections::placement::Placement;
use crate::sections::prior::{PriorKind, robust_extremes};
use crate::shards::AcquiredShards;

/// A job on the ranks: all that iterations need.
#[derive(Debug)]
pub struct Prepared {
    /// Operators, measurements and fidelity.
    pub problem: Problem,
    /// The method, with its prior.
    pub algorithm: Box<dyn Algorithm>,
    /// When it stops.
    pub stopping: Stopping,
    /// What images are compared with, on rank 0.
    pub truth: Option<Truth>,
    /// The same for an image in shards: this rank's part, and the difference between black and white.
    pub truth_part: Option<(Image, f64)>,
    /// Whether there is a truth, on every rank.
    pub has_truth: bool,
    /// Where the image is.
    pub placement: Placement,
    /// The measurements as one would look at them without a reconstruction; on rank 0, if pictures are wanted.
    pub before: Option<Before>,
    /// Where it begins, unless it goes on from a checkpoint.
    pub start: Option<State>,
    /// What the job's author should know of what was found in the data.
    pub notes: Vec<String>,
    /// What this rank computes of each denoised image, if the prior is a network.
    pub work: Option<Work>,
    /// The device that runs the network of each rank; none without a network, and in a run, which has them itself.
    pub devices: Vec<String>,
}

/// What the ranks share; the rest is whole on every rank, for measurements of what each part gains.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Operators and tiles.
    #[default]
    Both,
    /// The operators; every rank denoises all tiles.
    Physics,
    /// The tiles of the denoiser; every rank has all operators.
    Denoiser,
}

impl Distribution {
    /// The ranks that share the operators, and those that share the tiles, as one of `ctx` sees them.
    fn contexts(self, ctx: &Context) -> Result<(Context, Context)> {
        let alone = || {
            let threads = Some(ctx.threads_per_rank());
            ContextOptions { threads, ..ContextOptions::default() }.solo()
        };
        Ok(match self {
            Self::Both => (ctx.clone(), ctx.clone()),
            Self::Physics => (ctx.clone(), alone()?),
            Self::Denoiser => (alone()?, ctx.clone()),
        })
    }
}

/// An image that needs no reconstruction.
#[derive(Clone, Debug)]
pub struct Before {
    /// (batch, channel, spatial…).
    pub image: Array,
    /// In a few words.
    pub shows: String,
}

impl Before {
    fn new(image: Array, recipes: &[Recipe]) -> Self {
        let first = &recipes[0];
        let shows = match (first.scan(), recipes.len(), first.thinning()) {
            _ if first.adjoint_shows().is_some() => {
                first.adjoint_shows().unwrap_or_default().to_owned()
            }
            (Some(_), ..) => "filtered back-projection".to_owned(),
            (None, 1, 1) => "measurement".to_owned(),
            (None, frames, 1) => format!("first of {frames} measurements"),
            (None, 1, factor) => format!("measurement, enlarged {factor} times"),
            (None, frames, factor) => {
                format!("first of {frames} measurements, enlarged {factor} times")
            }
        };
        Self { image, shows }
    }
}

/// The numbers of a state that are the values which a network takes for 0 and 1: a run that goes on must not find others.
const SCALE: [&str; 2] = ["black", "white"];

impl Job {
    /// Prepares the job without running it, for who iterates in another way; all ranks call it. There are no checkpoints,
    /// and `start` is where it begins.
    pub fn prepare(&self, ctx: &Context) -> Result<Prepared> {
        self.prepare_distributed(ctx, Distribution::Both)
    }

    /// [`prepare`](Self::prepare), where the ranks share only a part of the work. The result has the same bits, unless the
    /// job asks for tiles that suit the number of ranks.
    pub fn prepare_distributed(
        &self,
        ctx: &Context,
        distribution: Distribution,
    ) -> Result<Prepared> {
        // What is not shared is whole on every rank, and so is the image, if the choice is open.
        if distribution != Distribution::Both && matches!(self.image.layout, LayoutPlan::Auto) {
            return self.in_layout(false).prepare_distributed(ctx, distribution);
        }
        let mut layout = Layout::of(ctx, self)?;
        let network = agree(ctx, self.share_network(ctx, &layout.image))?;
        let devices = devices::of_ranks(ctx, network.as_deref())?;
        let (job, _) = self.settle(ctx, &mut layout, network.as_deref())?;
        let acquired = Acquired::new(ctx, &job, layout, network.as_deref(), distribution)?;
        let prepared = Prepared::new(ctx, &job, acquired, network, None)?;
        Ok(Prepared { devices, ..prepared })
    }
}

/// Operators and their measurements, on the ranks that own them.
pub(crate) struct Acquired {
    physics: Operators,
    of_prior: Context,
    layout: Layout,
    /// What may be wrong with the data, on rank 0.
    pub doubt: Option<String>,
    /// Whether the result may differ from that of the other layout.
    pub has_own_bits: bool,
}

/// The operators and their measurements, as the ranks share them.
enum Operators {
    /// Each rank has some of the operators, with what they measured.
    Dealt(Box<DistributedStack>, Measurements),
    /// Each rank has all operators, with its parts of what they measured.
    Sharded(Box<AcquiredShards>),
}

impl Acquired {
    /// Makes the operators and reads or simulates their measurements; all ranks call it.
    pub(crate) fn new(
        ctx: &Context,
        job: &Job,
        mut layout: Layout,
        network: Option<&NetworkDenoiser>,
        distribution: Distribution,
    ) -> Result<Self> {
        let (of_physics, of_prior) = distribution.contexts(ctx)?;
        let shards = job.shard_plan(&layout.image, network, ctx.size()).and_then(|shards| {
            if shards.is_some() && distribution != Distribution::Both {
                let reason = "an image in shards has operators and denoiser on all ranks";
                return Err(Error::argument("distribution", reason));
            }
            let difference = job.difference_in_method(&layout, network)?;
            Ok((shards, job.is_sharded() && difference.is_some()))
        });
        let (shards, has_own_bits) = agree(ctx, shards)?;
        if let Some(shards) = shards {
            let physics = AcquiredShards::new(ctx, job, &mut layout, &shards)?;
            let doubt = layout.doubt_in_shards(ctx, job, &physics)?;
            let physics = Operators::Sharded(Box::new(physics));
            return Ok(Self { physics, of_prior, layout, doubt, has_own_bits });
        }
        let made = layout.recipes.clone();
        for scan in made.iter().filter_map(Recipe::scan) {
            scan.normalise(&of_physics)?;
        }
        for recipe in &*made {
            recipe.share(&of_physics)?;
        }
        let factory = Factory::new(made.len(), move |index, _, _| made[index].make());
        let physics = distribute(factory, &of_physics)?;
        let mut data = acquire(ctx, job, &mut layout, &physics)?;
        job.preparation.apply(&physics, &layout.recipes, &mut data)?;
        let first = data.get(0).filter(|_| ctx.is_root());
        let doubt = first.and_then(|first| layout.doubt(job, first));
        let physics = Operators::Dealt(Box::new(physics), data);
        Ok(Self { physics, of_prior, layout, doubt, has_own_bits })
    }

    /// Digests of all measurements; all ranks call it and get the same.
    pub(crate) fn digests(&self, ctx: &Context) -> Result<Vec<u8>> {
        match &self.physics {
            Operators::Dealt(_, data) => digests(ctx, data),
            Operators::Sharded(acquired) => acquired.digests(),
        }
    }

    /// The operators on an image in shards, if it is.
    pub(crate) fn sharded(&self) -> Option<&ShardedStack> {
        match &self.physics {
            Operators::Dealt(..) => None,
            Operators::Sharded(acquired) => Some(&acquired.physics),
        }
    }
}

impl Prepared {
    /// Prepares a job, with its network if it has one; all ranks call it. It has a state to begin with unless it goes on
    /// from one that was `found`.
    pub(crate) fn new(
        ctx: &Context,
        job: &Job,
        acquired: Acquired,
        network: Option<Arc<NetworkDenoiser>>,
        found: Option<&State>,
    ) -> Result<Self> {
        let Acquired { physics, of_prior, layout, .. } = acquired;
        let begins = found.is_none();
        let term = match physics {
            Operators::Dealt(physics, data) => {
                Term::dealt(ctx, job, &layout, *physics, data, begins)?
            }
            Operators::Sharded(acquired) => Term::sharded(ctx, job, &layout, *acquired, begins)?,
        };
        let Term { problem, space, image, before, stopping, truth_part } = term;
        let mut notes = Vec::new();
        let mut start = None;
        let mut scale = found.and_then(scale_of);
        if begins {
            let mut image = match start_of(ctx, job, &layout, image, space.as_ref())? {
                Start::Image(image) => image,
                start => problem.start(&start)?,
            };
            notes.extend(job.prior.clamp_note(|| robust_extremes(&image))?);
            // Zeros say nothing of the image's values.
            let seen = || match &job.start {
                StartPlan::Zeros => robust_extremes(&problem.start(&Start::Adjoint)?),
                _ => robust_extremes(&image),
            };
            scale = job.prior.scale(seen)?;
            let is_scan = layout.recipes[0].scan().is_some();
            if let Some(scale) = scale {
                let note = job.prior.scale_note(scale, || robust_extremes(&image), is_scan)?;
                notes.extend(note);
            }
            if job.solver.method.is_direct() {
                image.clamp(job.prior.clamp);
            }
            let mut state = State::new(image);
            if let Some((black, white)) = scale {
                for (name, value) in SCALE.into_iter().zip([black, white]) {
                    state.numbers.insert(name.into(), value.into());
                }
            }
            start = Some(state);
        }
        let prior = job.prior.build(&of_prior, network, scale, space.as_ref())?;
        let work = match (&job.prior.kind, &prior.denoiser) {
            (PriorKind::Network(_), Some(plug)) => Some(plug.work(&layout.image)?),
            _ => None,
        };
        let (algorithm, noise) = job.solver.build(&problem, prior, job.stop.iterations)?;
        if let Some(noise) = noise {
            notes.push(format!(
                "the noise of the measurements is about {noise:.2e}; `noise` in [solver] sets another"
            ));
        }
        let Layout { truth, placement, range, .. } = layout;
        let has_truth = range.is_some();
        Ok(Self {
            problem,
            algorithm,
            stopping,
            truth,
            truth_part,
            has_truth,
            placement,
            before,
            start,
            notes,
            work,
            devices: Vec::new(),
        })
    }
}

/// The data term of a job, with what else its layout decides.
struct Term {
    problem: Problem,
    /// Where the parts of an image in shards are.
    space: Option<Arc<Space>>,
    /// A filtered back-projection to begin with.
    image: Option<Image>,
    before: Option<Before>,
    stopping: Stopping,
    truth_part: Option<(Image, f64)>,
}

impl Term {
    /// That of an image in shards.
    fn sharded(
        ctx: &Context,
        job: &Job,
        layout: &Layout,
        acquired: AcquiredShards,
        begins: bool,
    ) -> Result<Self> {
        let AcquiredShards { physics, data, truth } = acquired;
        let scan = only_scan(&layout.recipes);
        let image = match (&job.start, scan) {
            (StartPlan::BackProjection(_, window), Some(scan)) if begins => {
                let plan = scan.whole().and_then(|scan| scan.back_projection(*window));
                Some(back_project_shards(&physics, &agree(ctx, plan)?, &data)?)
            }
            _ => None,
        };
        let space = physics.space().clone();
        let measured = physics.measured().iter();
        let values: usize =
            measured.map(|space| space.whole()[1..].iter().product::<usize>()).sum();
        let stopping = job.stop.stopping(values * layout.image[0], &job.fidelity);
        let fidelity = distribute(job.fidelity.fidelities.clone(), ctx)?;
        let mut problem = job.solver.adapt(Problem::sharded(physics, &data, fidelity)?);
        if scan.is_some_and(|scan| scan.is_normalised()) {
            problem = problem.with_squared_norm(1.0);
        }
        let space = Some(space);
        Ok(Self { problem, space, image, before: None, stopping, truth_part: truth })
    }

    /// That of an image that all ranks have.
    fn dealt(
        ctx: &Context,
        job: &Job,
        layout: &Layout,
        physics: DistributedStack,
        data: Measurements,
        begins: bool,
    ) -> Result<Self> {
        let recipes = layout.recipes.clone();
        let looks = job.output.folder.is_some() && !job.solver.method.is_direct();
        let scan = only_scan(&recipes);
        let project = |window: Window| match scan {
            Some(scan) => scan.whole()?.back_projection(window).map(Some),
            None => Ok(None),
        };
        let image = match &job.start {
            StartPlan::BackProjection(_, window) if begins => {
                let plan = agree(ctx, project(*window))?;
                plan.map(|plan| back_project(&physics, &plan, &data)).transpose()?
            }
            _ => None,
        };
        let before = match (&image, scan) {
            _ if !looks => None,
            (Some(image), _) => ctx.is_root().then(|| image.clone()),
            // Scans that do not go around have no such image, which is no reason to stop.
            (None, Some(_)) => match project(Window::Ramp) {
                Ok(Some(plan)) => Some(back_project(&physics, &plan, &data)?),
                _ => None,
            },
            (None, None) if recipes.iter().all(|one| one.adjoint_shows().is_some()) => {
                Some(physics.adjoint(&data)?)
            }
            (None, None) if ctx.is_root() => look(&recipes[0], &layout.image, &data),
            (None, None) => None,
        };
        let before = before.filter(|_| ctx.is_root()).map(|image| Before::new(image, &recipes));

        let values = physics.measurement_shapes().iter();
        let values: usize = values.map(|shape| shape.iter().product::<usize>()).sum();
        let stopping = job.stop.stopping(values * layout.image[0], &job.fidelity);
        let fidelity = distribute(job.fidelity.fidelities.clone(), physics.context())?;
        let mut problem = job.solver.adapt(Problem::new(physics, data, fidelity)?);
        if scan.is_some_and(|scan| scan.is_normalised()) {
            problem = problem.with_squared_norm(1.0);
        }
        let image = image.map(Image::from);
        Ok(Self { problem, space: None, image, before, stopping, truth_part: None })
    }
}

/// The values that a network takes for 0 and 1 in a run that goes on.
fn scale_of(state: &State) -> Option<(f32, f32)> {
    let [black, white] = SCALE.map(|name| state.numbers.get(name).map(|value| *value as f32));
    black.zip(white)
}

/// The scan of which the operators are the groups, if they are all of one.
fn only_scan(recipes: &[Recipe]) -> Option<&Arc<Scan>> {
    recipes[0].scan().filter(|scan| scan.groups() == recipes.len())
}

/// The measurement as an image of this shape: the first frame as it is, or enlarged.
fn look(first: &Recipe, image: &[usize], data: &Measurements) -> Option<Array> {
    let frame = data.get(0).filter(|_| first.scan().is_none() && first.looks_like_image())?;
    let factor = first.thinning();
    let fits = frame.shape()[..2] == image[..2]
        && frame.shape()[2..].iter().zip(&image[2..]).all(|(small, side)| small * factor >= *side);
    fits.then(|| {
        Array::from_shape_fn(image, |at| {
            let mut place = [0; 5];
            for (axis, place) in place[..image.len()].iter_mut().enumerate() {
                *place = if axis < 2 { at[axis] } else { at[axis] / factor };
            }
            frame[&place[..image.len()]]
        })
    })
}

fn start_of(
    ctx: &Context,
    job: &Job,
    layout: &Layout,
    back_projection: Option<Image>,
    space: Option<&Arc<Space>>,
) -> Result<Start> {
    Ok(match (&job.start, back_projection) {
        (_, Some(image)) => Start::Image(image),
        (StartPlan::Zeros, _) if space.is_some() => Start::Zeros,
        (StartPlan::Zeros, _) => Start::Image(Array::zeros(layout.image.clone()).into()),
        (StartPlan::PseudoInverse(iterations), _) => Start::PseudoInverse(*iterations),
        (StartPlan::File(file), _) if space.is_some() && file.has_parts() => {
            let outline = file.outline();
            agree(ctx, outline.and_then(|(shape, _)| layout.check_start(file, &shape)))?;
            let space = space.expect("it is there");
            Start::Image(Image::sharded(space, file.load_part(ctx, space)?)?)
        }
        (StartPlan::File(file), _) => {
            let read = agree_on_root(ctx, || layout.load_start(file))?;
            if let Some(space) = space {
                return Ok(Start::Image(Image::scatter(space, read.as_deref())?));
            }
            let mut image = read.unwrap_or_else(|| Array::zeros(layout.image.clone()));
            broadcast(ctx, &mut image)?;
            Start::Image(image.into())
        }
        (StartPlan::Filled, None) => Start::Filled,
        (StartPlan::Adjoint | StartPlan::BackProjection(..), None) => Start::Adjoint,
    })
}

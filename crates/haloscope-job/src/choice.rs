//! Where the values of the image are: what `image = "auto"` comes down to, and why.
//!
//! Both layouts of such a job give the same bits, so the choice may depend on the number of ranks. It follows from shapes alone;
//! the first rank makes it and tells the others.

use haloscope::Result;
use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::agree_on_root;
use haloscope_comm::{Collectives, Context};
use serde::{Deserialize, Serialize};

use crate::Job;
use crate::job::LayoutPlan;
use crate::layout::Layout;
use crate::memory::{Expected, sent, size};
use crate::sections::operators::Recipe;
use crate::sections::prior::PriorKind;
use crate::shards::{Grid, ShardedPlan};
use crate::words::sides;

const SCANS_ROUND_DIFFERENTLY: &str =
    "the views of a scan see the whole image, and parts would round differently";

/// Where the values of the image are, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutChoice {
    /// Whether each rank has a part of the image, and not all of it.
    pub is_sharded: bool,
    /// In words that follow "because".
    pub reason: String,
    /// What every rank with the whole image takes, if that is possible.
    pub replicated: Option<Costs>,
    /// The same of parts.
    pub sharded: Option<Costs>,
}

/// What one layout takes, of the rank that has the most of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The parts of the image, or of an exact network, along each side; empty if there are none.
    pub grid: Vec<usize>,
    /// The pixels of the largest part, or those that the network computes on one rank, in fair shares; 0 without either.
    pub largest_load: f64,
    /// Rounds of exchanges in an iteration between the layers of the network.
    pub halo_rounds: usize,
    /// Bytes sent in an iteration.
    pub bytes_sent: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

impl Costs {
    pub(crate) fn of(expected: &Expected) -> Self {
        let forecast = &expected.forecast;
        Self {
            grid: forecast
                .shards
                .as_ref()
                .map_or_else(Vec::new, haloscope::tiling::ShardPlan::grid),
            largest_load: forecast.largest_load(),
            halo_rounds: forecast.largest_exchanges().rounds,
            bytes_sent: forecast.ranks.iter().map(|share| share.bytes_sent).max().unwrap_or(0),
            memory_bytes: expected.rank_bytes,
        }
    }

    /// That this takes instead of another, in words.
    fn instead_of(&self, other: &Self) -> String {
        format!(
            "hold at most {} on a rank instead of {}, and send at most {} in an iteration instead of {}",
            size(self.memory_bytes),
            size(other.memory_bytes),
            sent(self.bytes_sent),
            sent(other.bytes_sent)
        )
    }
}

impl LayoutChoice {
    /// Its name in job files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.is_sharded { "sharded" } else { "replicated" }
    }

    /// Both layouts as a table, if there are ranks to choose for and both are possible.
    #[must_use]
    pub fn table(&self) -> Vec<String> {
        let (Some(replicated), Some(sharded)) = (&self.replicated, &self.sharded) else {
            return Vec::new();
        };
        let mut rows = vec![
            ["", "parts", "largest load", "halo rounds", "sent by a rank", "memory of a rank"]
                .map(String::from),
        ];
        for (name, costs) in [("replicated", replicated), ("sharded", sharded)] {
            let load = format!("{:.2}", costs.largest_load);
            rows.push([
                name.to_owned(),
                if costs.grid.is_empty() { "none".into() } else { sides(&costs.grid) },
                if costs.largest_load > 0.0 { load } else { "-".into() },
                costs.halo_rounds.to_string(),
                sent(costs.bytes_sent),
                size(costs.memory_bytes),
            ]);
        }
        let widths: Vec<usize> = (0..rows[0].len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        let row = |row: &[String; 6]| {
            let first = format!("{:<width$}", row[0], width = widths[0]);
            let cells = row[1..].iter().zip(&widths[1..]);
            let cells = cells.map(|(cell, width)| format!("  {cell:>width$}"));
            std::iter::once(first).chain(cells).collect::<String>()
        };
        rows.iter().map(row).collect()
    }

    /// The words that begin a run.
    #[must_use]
    pub fn announce(&self) -> String {
        let what = if self.is_sharded { "a part of the image" } else { "the whole image" };
        format!("each rank holds {what}, because {}", self.reason)
    }
}

impl Job {
    /// The same job for a caller who takes the image from every rank: it is in shards only if the job says so.
    #[must_use]
    pub fn with_whole_image(&self) -> Self {
        self.in_layout(self.is_sharded())
    }

    /// Whether its image may turn out to be in shards, so that nobody reads a measurement as a whole before that is known.
    pub(crate) fn may_be_sharded(&self, ranks: usize) -> bool {
        match self.image.layout {
            LayoutPlan::Sharded(_) => true,
            LayoutPlan::Replicated => false,
            LayoutPlan::Auto => ranks > 1 && self.obstacle_to_choice().is_none(),
        }
    }

    /// This job with its layout settled for the ranks of `ctx`, which all call it, and why it is that one.
    pub(crate) fn settle(
        &self,
        ctx: &Context,
        layout: &mut Layout,
        network: Option<&NetworkDenoiser>,
    ) -> Result<(Self, LayoutChoice)> {
        let choice = agree_on_root(ctx, || self.choose_layout(layout, network, ctx.size()))?;
        let broken =
            |error: serde_json::Error| haloscope::Error::argument("layout", error.to_string());
        let mut words = match &choice {
            Some(choice) if ctx.size() > 1 => serde_json::to_vec(choice).map_err(broken)?,
            _ => Vec::new(),
        };
        ctx.comm().broadcast_list(0, &mut words)?;
        let choice = match choice {
            Some(choice) => choice,
            None => serde_json::from_slice(&words).map_err(broken)?,
        };
        let job = self.in_layout(choice.is_sharded);
        agree_on_root(ctx, || layout.read_first(&job))?;
        Ok((job, choice))
    }

    /// The layout of the image on so many ranks.
    pub(crate) fn choose_layout(
        &self,
        layout: &Layout,
        network: Option<&NetworkDenoiser>,
        ranks: usize,
    ) -> Result<LayoutChoice> {
        let costs = |is_sharded: bool| {
            let job = self.in_layout(is_sharded);
            Expected::of(&job, layout, ranks, network).map(|expected| Costs::of(&expected))
        };
        let given = match self.image.layout {
            LayoutPlan::Sharded(_) => Some(true),
            LayoutPlan::Replicated => Some(false),
            LayoutPlan::Auto => None,
        };
        let choose = |is_sharded: bool, reason: &str, replicated, sharded| LayoutChoice {
            is_sharded,
            reason: reason.to_owned(),
            replicated,
            sharded,
        };
        if let Some(is_sharded) = given {
            let costs = costs(is_sharded)?;
            let (replicated, sharded) =
                if is_sharded { (None, Some(costs)) } else { (Some(costs), None) };
            return Ok(choose(is_sharded, "the job says so", replicated, sharded));
        }
        let whole = costs(false)?;
        if ranks == 1 {
            return Ok(choose(false, "there is one rank", Some(whole), None));
        }
        let obstacle = match self.obstacle_to_choice() {
            Some(obstacle) => Some(obstacle),
            None => self.difference_in_shards(layout, network)?,
        };
        if let Some(obstacle) = obstacle {
            return Ok(choose(false, &obstacle, Some(whole), None));
        }
        let parts = match costs(true) {
            Ok(parts) => parts,
            // A grid that does not fit is a mistake in every layout.
            Err(error) if self.image.grid.as_ref().is_some_and(Grid::is_given) => {
                return Err(error);
            }
            Err(error) => return Ok(choose(false, &error.to_string(), Some(whole), None)),
        };
        let [held, moved] =
            [parts.memory_bytes.cmp(&whole.memory_bytes), parts.bytes_sent.cmp(&whole.bytes_sent)];
        let is_sharded = held.is_le() && moved.is_le() && (held.is_lt() || moved.is_lt());
        let reason = parts.instead_of(&whole);
        let reason =
            if is_sharded { format!("parts {reason}") } else { format!("parts would {reason}") };
        Ok(choose(is_sharded, &reason, Some(whole), Some(parts)))
    }

    /// [`choose_layout`](Self::choose_layout), with what the other layout would take wherever it is possible.
    pub(crate) fn compare_layouts(
        &self,
        layout: &Layout,
        network: Option<&NetworkDenoiser>,
        ranks: usize,
    ) -> Result<LayoutChoice> {
        let mut choice = self.choose_layout(layout, network, ranks)?;
        let costs = |is_sharded: bool| {
            let job = self.in_layout(is_sharded);
            Expected::of(&job, layout, ranks, network).ok().map(|expected| Costs::of(&expected))
        };
        if choice.replicated.is_none() {
            choice.replicated = costs(false);
        }
        if choice.sharded.is_none() && self.obstacle_to_shards().is_none() {
            choice.sharded = costs(true);
        }
        Ok(choice)
    }

    /// The same job in one of the layouts.
    pub(crate) fn in_layout(&self, is_sharded: bool) -> Self {
        let mut job = self.clone();
        job.image.layout = match (&self.image.layout, is_sharded) {
            (LayoutPlan::Sharded(plan), true) => LayoutPlan::Sharded(plan.clone()),
            (_, true) => LayoutPlan::Sharded(ShardedPlan::default()),
            (_, false) => LayoutPlan::Replicated,
        };
        job
    }

    /// Leaves the grid to the number of ranks. What it implies stays: a network that has one is exact.
    pub(crate) fn leave_grid_open(&mut self) {
        self.image.grid = None;
        self.prior.leave_grid_open();
    }

    /// Why `image = "auto"` keeps the image whole whatever it would take, as far as the job itself says it.
    fn obstacle_to_choice(&self) -> Option<String> {
        if self.output.folder.is_some() {
            return Some("pictures and a report are made of the whole image".into());
        }
        if let Some(obstacle) = self.obstacle_to_shards() {
            return Some(obstacle);
        }
        if self.has_scan() {
            return Some(SCANS_ROUND_DIFFERENTLY.into());
        }
        self.output.files.is_empty().then(|| "its caller takes the image, and no file does".into())
    }

    /// Why the method or the network does something else to an image in shards than to a replicated one, if it does. A run of one
    /// is then not continued in the other.
    pub(crate) fn difference_in_method(
        &self,
        layout: &Layout,
        network: Option<&NetworkDenoiser>,
    ) -> Result<Option<String>> {
        if self.has_scan() {
            return Ok(Some(SCANS_ROUND_DIFFERENTLY.into()));
        }
        let is_pixelwise = |name: &str| matches!(name, "identity" | "inpainting" | "decolorize");
        if let ([only], true) = (&*layout.recipes, self.solver.method.has_prox())
            && !is_pixelwise(only.name())
        {
            return Ok(Some(format!(
                "{} may have a closed form for one {} operator, which needs the whole image",
                self.solver.name,
                only.name()
            )));
        }
        if let (PriorKind::Network(plan), Some(network)) = (&self.prior.kind, network) {
            let choice = plan.tiling().choose(&layout.image, network)?;
            let tiles = || format!("the network has tiles, because {}", choice.reason);
            return Ok((!choice.is_exact()).then(tiles));
        }
        Ok(None)
    }

    /// Why operators round differently on parts, if they do.
    fn difference_in_rounding(layout: &Layout) -> Result<Option<String>> {
        for recipe in &*layout.recipes {
            let reason = match recipe.outline()?.as_window() {
                Some(window) if window.window_bits_agree() => continue,
                Some(_) => "is computed by Fourier transforms of the whole image",
                None => "sees the whole image",
            };
            return Ok(Some(format!(
                "{} {reason}, and parts would round differently",
                recipe.name()
            )));
        }
        Ok(None)
    }

    /// Why nothing but the whole image gives this result, if that is so.
    fn difference_in_shards(
        &self,
        layout: &Layout,
        network: Option<&NetworkDenoiser>,
    ) -> Result<Option<String>> {
        if let Some(difference) = self.difference_in_method(layout, network)? {
            return Ok(Some(difference));
        }
        let values = |recipe: &Recipe| layout.image[0] * recipe.measured_values();
        if self.solver.needs_whole_measurements(layout.recipes.iter().map(values).max()) {
            return Ok(Some(
                "their noise is estimated from whole measurements; give `noise`".into(),
            ));
        }
        Self::difference_in_rounding(layout)
    }
}

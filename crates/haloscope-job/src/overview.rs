//! What a job's operators see and how much they measure, before anything is measured.

use haloscope::Result;
use haloscope::physics::Reach;

use crate::Job;
use crate::layout::Layout;
use crate::sections::measurements::Source;
use crate::sections::operators::Recipe;

/// The operators of a job, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operators {
    /// How many there are.
    pub count: usize,
    /// How far they see in the image: the farthest of them.
    pub reach: Reach,
    /// How many values they measure of one image.
    pub values: usize,
}

/// The side of an image on which operators are asked how far they see, which does not depend on it.
const SIDE: usize = 64;

impl Job {
    /// What the operators see and how much they measure. Of a phantom no data are made for it.
    ///
    /// ```
    /// use haloscope::physics::Reach;
    /// use haloscope_job::Job;
    ///
    /// let job = Job::builder()
    ///     .measurements(|it| it.set("phantom", "landscape").set("size", vec![8192, 8192]))
    ///     .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.5).set("angle", vec![0, 90]))
    ///     .solver("landweber", |it| it)
    ///     .build()?;
    /// let operators = job.operators()?;
    /// assert_eq!((operators.count, operators.reach), (2, Reach::Local(6)));
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn operators(&self) -> Result<Operators> {
        let shape = match &self.measurements {
            Source::Simulation(simulation) => simulation.announced_shape(),
            _ => None,
        };
        let recipes: Vec<Recipe> = match shape {
            None => Layout::survey(self, 1, self.is_sharded())?.recipes.to_vec(),
            Some(shape) => {
                let mut recipes = Vec::new();
                for entry in &self.operators {
                    recipes.extend(entry.recipes(&shape[1..], None, recipes.len())?);
                }
                recipes
            }
        };
        let mut reach = Reach::Local(0);
        for (index, recipe) in recipes.iter().enumerate() {
            // All groups of a scan see alike.
            let is_seen =
                index > 0 && recipe.scan().is_some() && recipes[index - 1].scan().is_some();
            if !is_seen {
                reach = reach.max(reach_of(recipe)?);
            }
        }
        let values = recipes.iter().map(Recipe::measured_values).sum();
        Ok(Operators { count: recipes.len(), reach, values })
    }
}

fn reach_of(recipe: &Recipe) -> Result<Reach> {
    let small = recipe.smaller(SIDE).and_then(|small| small.draft().ok());
    // Some kernels fit into large images only.
    Ok(small.map_or_else(|| recipe.draft(), Ok)?.reach())
}

//! What the report of a run says of its job: what was measured and how, with which prior and method.

use crate::Job;
use crate::sections::files::StartPlan;
use crate::sections::prior::PriorKind;
use crate::words::count;

use crate::layout::Layout;

/// Names and values, and the unit of the image.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the job comes down to, defaults included.
    pub parameters: Vec<(String, String)>,
    /// What its file says.
    pub settings: Vec<(String, String)>,
    /// Of the image's values.
    pub unit: String,
}

impl Facts {
    pub(crate) fn of(job: &Job, layout: &Layout) -> Self {
        let mut parameters: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, value: String| parameters.push((name.to_owned(), value));
        add("measurements", job.measurements.describe());
        add("operators", describe_operators(layout));
        let scan = layout.recipes[0].scan();
        for (name, value) in scan.map(|scan| scan.describe()).unwrap_or_default() {
            add(name, value);
        }
        add("fidelity", job.fidelity.name.to_owned());
        add("prior", job.prior.describe());
        match &job.prior.kind {
            PriorKind::None => (),
            PriorKind::TotalVariation { weight, .. } | PriorKind::Wavelets { weight, .. } => {
                add("weight", weight.to_string());
            }
            PriorKind::Network(network) => {
                add("noise levels", describe_levels(job, network.sigma()));
            }
        }
        add("method", job.solver.name.to_owned());
        add("start", describe_start(&job.start));
        Self { parameters, settings: job.settings.clone(), unit: unit_of(layout) }
    }
}

/// How many there are of each kind, in their order.
fn describe_operators(layout: &Layout) -> String {
    let mut kinds: Vec<(usize, &str)> = Vec::new();
    for recipe in &*layout.recipes {
        match kinds.last_mut() {
            Some((number, name)) if *name == recipe.name() => *number += 1,
            _ => kinds.push((1, recipe.name())),
        }
    }
    let kinds: Vec<String> =
        kinds.iter().map(|(number, name)| format!("{number} {name}")).collect();
    kinds.join(", ")
}

/// Those that the method tells the network, or the one that the prior has.
fn describe_levels(job: &Job, sigma: f32) -> String {
    match &job.solver.levels()[..] {
        [first, .., last] => {
            let iterations = count(job.stop.iterations, "iteration");
            format!("{} falling to {}, at most {iterations}", first.sigma, last.sigma)
        }
        _ => sigma.to_string(),
    }
}

fn describe_start(start: &StartPlan) -> String {
    match start {
        StartPlan::File(file) => file.path.display().to_string(),
        StartPlan::PseudoInverse(iterations) => {
            format!("pseudo-inverse, at most {}", count(*iterations, "iteration"))
        }
        StartPlan::BackProjection(_, window) => {
            format!("filtered back-projection, {window:?} window")
        }
        other => format!("{other:?}").to_lowercase(),
    }
}

/// What the values of the image are in, as far as the job tells.
fn unit_of(layout: &Layout) -> String {
    let scan = layout.recipes.iter().find_map(|recipe| recipe.scan());
    match (layout.range, scan) {
        (Some(1.0), _) => "where white is 1".into(),
        (Some(_), _) => "in the unit of the truth".into(),
        (None, Some(scan)) if scan.is_normalised() => {
            "in arbitrary units, because the operators are scaled".into()
        }
        (None, Some(_)) => "attenuation per unit of length, the unit of the pixel size".into(),
        (None, None) => "in the unit of the measurements".into(),
    }
}

//! A network on one image: its predicted memory, its measured memory, and its time.

use std::borrow::Cow;
use std::time::Instant;

use haloscope::memory::{peak_resident_bytes, resident_bytes};
use haloscope_job::{ModelOptions, OpenedModel};
use haloscope_nn::engine::{EngineOptions, Shard};
use haloscope_nn::models::Sigma;
use haloscope_nn::{Shape, Tensor};

use super::Tell;
use crate::error::Result;
use crate::plan::Budget;
use crate::row::Row;
use crate::trial::{Answer, Trial};
use haloscope_nn::models::ModelName;

/// The channels of the image: colour.
const CHANNELS: usize = 3;

/// Plans the network and runs it, once for nothing and once for each repetition.
pub(super) fn measure(trial: &Trial, tell: &Tell<'_>) -> Result<()> {
    let configuration = &trial.configuration;
    let name = configuration.model.parse::<ModelName>()?;
    let options = ModelOptions { device: configuration.device()?, ..ModelOptions::default() };
    let opened = OpenedModel::open(&name, CHANNELS, configuration.sides().len(), &options)?;
    let OpenedModel { model, engine, .. } = opened;
    let mut sizes = vec![1, CHANNELS + usize::from(model.sigma() == Sigma::Map)];
    sizes.extend(configuration.sides());
    let shape = Shape::new(sizes)?;
    // The plan holds the weights in a form of its own, in whose place these were.
    let weights = (model.network().parameters() * size_of::<f32>()) as u64;
    let before = resident_bytes().map(|bytes| bytes.saturating_sub(weights));
    let input = Tensor::new(shape.clone(), vec![0.5; shape.count()])?;
    let options = EngineOptions { threads: configuration.threads, ..EngineOptions::default() };
    let network = model.into_network();
    let within = |budget: usize| EngineOptions { memory_budget: Some(budget), ..options.clone() };
    let plan = match Budget::of_column(configuration.budget.as_deref())? {
        Budget::Whole => engine.plan_consuming(network, &shape, &options)?,
        Budget::Bytes(bytes) => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            engine.plan_within(Cow::Owned(network), &shape, &within(bytes))?
        }
        Budget::Waves => {
            let region = shape.spatial().iter().map(|side| 0..*side).collect();
            let whole = Shard::new(shape.clone(), region)?;
            let waves = engine.outline_waves(&network, &whole, None, &options)?.bytes;
            if waves < engine.bytes(&network, &shape, &options)? {
                // In waves, because the whole does not fit; and without the weights as they were.
                engine.plan_within(Cow::Owned(network), &shape, &within(waves))?
            } else {
                engine.plan_waves(&network, &shape, &options)?
            }
        }
    };
    let mut output = vec![0.0; plan.output_shape().count()];
    let arrays = size_of::<f32>() * (shape.count() + output.len());
    let predicted = (plan.memory().total() + arrays) as u64;
    let mut scratch = plan.scratch();
    plan.run(input.values(), &mut output, &mut scratch)?;
    for &repetition in &trial.repetitions {
        let begin = Instant::now();
        plan.run(input.values(), &mut output, &mut scratch)?;
        let seconds = begin.elapsed().as_secs_f64();
        let peak =
            peak_resident_bytes().zip(before).map(|(peak, before)| peak.saturating_sub(before));
        let row = Row {
            peak_bytes: peak,
            predicted_bytes: Some(predicted),
            device_name: Some(engine.device()),
            predicted_device_bytes: Some(plan.memory().device as u64),
            ..configuration.row(repetition, 0, seconds)
        };
        tell(Answer::Repetition { rows: vec![row], image: None })?;
    }
    Ok(())
}

//! Detects the architecture and its options from the names and shapes of weights.
//!
//! Each architecture has an anchor, a parameter that all its models have and no other architecture
//! has. Shapes then give the options; [`recognize`] lists those that neither names nor shapes reveal.
//! The result is a guess until the weights have been loaded, which checks everything strictly.

use super::{
    Architecture, BatchNorm, Depth, Dncnn, DncnnNames, Downsampling, Drunet, Fdncnn, Model,
    Parameters, Unet, Upsampling,
};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::weights::StateDict;

/// One of the architectures that can be recognized, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Recognized {
    /// With `m_head`.
    Drunet(Drunet),
    /// With `in_conv`, or with `model.0` and as many channels before as after.
    Dncnn(Dncnn),
    /// With `model.0` and one channel more before than after.
    Fdncnn(Fdncnn),
    /// With `Conv1.0`.
    Unet(Unet),
}

impl Architecture for Recognized {
    fn build(&self, parameters: &mut Parameters<'_>) -> Result<Model> {
        match self {
            Self::Drunet(options) => options.build(parameters),
            Self::Dncnn(options) => options.build(parameters),
            Self::Fdncnn(options) => options.build(parameters),
            Self::Unet(options) => options.build(parameters),
        }
    }
}

impl Model {
    /// The model that `state` has the weights of, if it is one of those that [`recognize`] knows;
    /// its names and shapes must then be exactly those of the model.
    ///
    /// ```
    /// use haloscope_nn::models::{Architecture, Dncnn, Model};
    /// use haloscope_nn::{StateDict, Tensor};
    ///
    /// let options = Dncnn { depth: 5, channels: 8, ..Dncnn::default() };
    /// let parameters = options.parameters()?.into_iter();
    /// let state: StateDict =
    ///     parameters.map(|(name, shape)| (name, Tensor::filled(shape, 0.1))).collect();
    /// let model = Model::recognize(&state)?;
    /// assert_eq!((model.network().name(), model.image_channels()), ("dncnn", 3));
    /// # Ok::<(), haloscope_nn::Error>(())
    /// ```
    pub fn recognize(state: &StateDict) -> Result<Self> {
        let (architecture, weights) = recognize(state)?;
        architecture.load(&weights)
    }
}

/// The architecture that `state` has the weights of, and these without what stands before their
/// names: `state_dict`, `model`, `params` and other usual words. Tensors elsewhere, such as an
/// optimizer's, are left out.
///
/// Not everything can be told from weights. Where it matters, change the result before loading it:
/// - DRUNet: the activation (taken to be ReLU), and whether pools give means (taken) or maxima. As in
///   deepinv, the last channel that comes in is the noise map.
/// - UNet: whether the image is added to the result (taken), whether the padding is zero (taken) or
///   circular, and whether there are skips (taken). Normalizations are taken to be bias-free if
///   convolutions have no biases and the normalizations' means and biases are all zero, as a
///   bias-free training leaves them.
pub fn recognize(state: &StateDict) -> Result<(Recognized, StateDict)> {
    let mut found: Vec<(&Known, String)> = Vec::new();
    for known in &KNOWN {
        let prefixes = state.names().filter_map(|name| prefix(name, known.anchor));
        found.extend(prefixes.map(|prefix| (known, prefix.to_owned())));
    }
    match &found[..] {
        [] => Err(unknown(state, "")),
        [(known, prefix)] => {
            let weights = if prefix.is_empty() { state.clone() } else { state.section(prefix) };
            match (known.options)(&Weights(&weights)) {
                Ok(options) => Ok((options, weights)),
                Err(reason) => Err(unknown(state, &reason)),
            }
        }
        several => {
            let list: Vec<String> = (several.iter())
                .map(|(known, prefix)| format!("{} under `{prefix}`", known.name))
                .collect();
            Err(unknown(
                state,
                &format!(
                    "several models, of which StateDict::section gives one: {}",
                    list.join(", ")
                ),
            ))
        }
    }
}

/// Options, or why there are none.
type Guess<T> = std::result::Result<T, String>;

/// An architecture, the parameter that shows it, and what finds out its options.
struct Known {
    name: &'static str,
    anchor: &'static str,
    options: fn(&Weights<'_>) -> Guess<Recognized>,
}

const KNOWN: [Known; 4] = [
    Known { name: "drunet", anchor: "m_head.weight", options: drunet },
    Known { name: "dncnn", anchor: "in_conv.weight", options: dncnn },
    Known { name: "dncnn or fdncnn as KAIR names it", anchor: "model.0.weight", options: stack },
    Known { name: "unet", anchor: "Conv1.0.weight", options: unet },
];

/// What checkpoints keep a model under. Other words may mean that the model is a part of one that
/// computes something else.
const WRAPPERS: [&str; 13] = [
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "params",
    "params_ema",
    "net",
    "network",
    "netG",
    "denoiser",
    "weights",
    "ema",
    "_orig_mod",
];

/// What stands before `anchor` in a name, if that is nothing or usual words.
fn prefix<'a>(name: &'a str, anchor: &str) -> Option<&'a str> {
    let rest = name.strip_suffix(anchor)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let prefix = rest.strip_suffix('.')?;
    prefix.split('.').all(|word| WRAPPERS.contains(&word)).then_some(prefix)
}

/// The error that says why, what there is, and what would be recognized.
fn unknown(state: &StateDict, why: &str) -> Error {
    const SHOWN: usize = 5;
    let shown = |(name, tensor): (&str, &Tensor)| format!("{name} ({})", tensor.shape());
    let names: Vec<String> = state.iter().take(SHOWN).map(shown).collect();
    let names = match state.len() {
        0 => "no tensors; of a whole model, save the state_dict()".into(),
        count if count > SHOWN => format!("{} and {} more", names.join(", "), count - SHOWN),
        _ => names.join(", "),
    };
    let known: Vec<String> =
        KNOWN.iter().map(|known| format!("{} (by `{}`)", known.name, known.anchor)).collect();
    let why = if why.is_empty() { String::new() } else { format!("{why}; ") };
    Error::Unrecognized {
        reason: format!("{why}there are {names}; known are {}", known.join(", ")),
    }
}

/// The tensors that options are found from.
struct Weights<'a>(&'a StateDict);

impl Weights<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    fn sizes(&self, name: &str) -> Option<&[usize]> {
        Some(self.0.get(name)?.shape().sizes())
    }

    /// Spatial axes, inputs and outputs of a convolution's weight.
    fn conv(&self, name: &str) -> Guess<(usize, usize, usize)> {
        match self.sizes(name) {
            Some([outputs, inputs, kernel @ ..]) if (2..=3).contains(&kernel.len()) => {
                Ok((kernel.len(), *inputs, *outputs))
            }
            Some(_) => Err(format!("`{name}` is not the weight of a convolution in 2 or 3 axes")),
            None => Err(format!("there is no `{name}`")),
        }
    }

    fn outputs(&self, name: &str) -> Guess<usize> {
        self.conv(name).map(|(_, _, outputs)| outputs)
    }

    /// How many of the names for 0, 1, 2 … there are until one is missing.
    fn count(&self, name: impl Fn(usize) -> String) -> usize {
        (0..self.0.len()).take_while(|&number| self.has(&name(number))).count()
    }
}

fn drunet(weights: &Weights<'_>) -> Guess<Recognized> {
    let (rank, with_map, full) = weights.conv("m_head.weight")?;
    let blocks = weights.count(|number| format!("m_down1.{number}.res.0.weight"));
    let pooled = weights.has(&format!("m_down1.{}.weight", blocks + 1));
    let step = |stage: &str| match (pooled, blocks) {
        (true, _) => format!("{stage}.{}.weight", blocks + 1),
        (false, 0) => format!("{stage}.weight"),
        (false, _) => format!("{stage}.{blocks}.weight"),
    };
    // Only shuffling has a kernel of size 3 there.
    let shuffled = matches!(weights.sizes("m_up1.0.weight"), Some([_, _, 3, ..]));
    Ok(Recognized::Drunet(Drunet {
        rank,
        image_channels: with_map.saturating_sub(1),
        output_channels: weights.outputs("m_tail.weight")?,
        channels: [
            full,
            weights.outputs(&step("m_down1"))?,
            weights.outputs(&step("m_down2"))?,
            weights.outputs(&step("m_down3"))?,
        ],
        blocks,
        downsampling: if pooled { Downsampling::AveragePool } else { Downsampling::StridedConv },
        upsampling: if weights.has("m_up1.1.weight") {
            Upsampling::Upconv
        } else if shuffled {
            Upsampling::PixelShuffle
        } else {
            Upsampling::ConvTranspose
        },
        depth: match weights.sizes("m_head.weight") {
            Some([_, _, 1, ..]) => Depth::Kept,
            _ => Depth::Halved,
        },
        ..Drunet::default()
    }))
}

fn dncnn(weights: &Weights<'_>) -> Guess<Recognized> {
    let (rank, image_channels, channels) = weights.conv("in_conv.weight")?;
    Ok(Recognized::Dncnn(Dncnn {
        rank,
        image_channels,
        depth: 2 + weights.count(|number| format!("conv_list.{number}.weight")),
        channels,
        bias: weights.has("in_conv.bias"),
        names: DncnnNames::Deepinv,
    }))
}

/// KAIR's stacks of convolutions, whose channels tell what they compute.
fn stack(weights: &Weights<'_>) -> Guess<Recognized> {
    // KAIR's IRCNN has the names and shapes of a DnCNN of this depth, but dilated kernels.
    const IRCNN_DEPTH: usize = 7;
    let (rank, inputs, channels) = weights.conv("model.0.weight")?;
    let depth = weights.count(|layer| format!("model.{}.weight", 2 * layer));
    let outputs = weights.outputs(&format!("model.{}.weight", 2 * depth - 2))?;
    let bias = weights.has("model.0.bias");
    if inputs == outputs && depth == IRCNN_DEPTH {
        return Err(format!(
            "{depth} convolutions with KAIR's names are an IRCNN, which is not known, or a DnCNN; \
             load the latter by its options"
        ));
    }
    if inputs == outputs {
        let names = DncnnNames::Kair;
        let image_channels = inputs;
        return Ok(Recognized::Dncnn(Dncnn { rank, image_channels, depth, channels, bias, names }));
    }
    // KAIR's FFDNet has the names of an FDnCNN and works on shuffled pixels: 4 per image channel.
    if outputs.checked_add(1) == Some(inputs) && outputs % 4 == 0 {
        return Err(format!(
            "convolutions from {inputs} to {outputs} channels with KAIR's names are an FFDNet, \
             which is not known, or an FDnCNN; load the latter by its options"
        ));
    }
    if outputs.checked_add(1) == Some(inputs) {
        let image_channels = outputs;
        return Ok(Recognized::Fdncnn(Fdncnn { rank, image_channels, depth, channels, bias }));
    }
    Err(format!(
        "convolutions from {inputs} to {outputs} channels with KAIR's names are neither a DnCNN, \
         which has as many on both sides, nor an FDnCNN, which takes one more"
    ))
}

fn unet(weights: &Weights<'_>) -> Guess<Recognized> {
    let (rank, image_channels, _) = weights.conv("Conv1.0.weight")?;
    let weight = |scale: usize| format!("Conv{}.0.weight", scale + 1);
    let scales = weights.count(weight);
    let channels = (0..scales).map(|scale| weights.outputs(&weight(scale)));
    let bias = weights.has("Conv1.0.bias");
    let batch_norm = if !weights.has("Conv1.1.running_var") {
        BatchNorm::None
    } else if !bias && shifts_are_zero(weights.0) {
        BatchNorm::BiasFree
    } else {
        BatchNorm::Standard
    };
    Ok(Recognized::Unet(Unet {
        rank,
        image_channels,
        output_channels: weights.outputs("Conv_1x1.weight")?,
        channels: channels.collect::<Guess<_>>()?,
        bias,
        batch_norm,
        ..Unet::default()
    }))
}

fn shifts_are_zero(state: &StateDict) -> bool {
    (state.iter())
        .filter(|(name, _)| matches!(name.rsplit('.').next(), Some("bias" | "running_mean")))
        .all(|(_, tensor)| tensor.values().iter().all(|&value| value == 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// A checkpoint of a model, without values.
    fn checkpoint(model: &dyn Architecture, prefix: &str) -> StateDict {
        let parameters = model.parameters().expect("good options").into_iter();
        parameters.map(|(name, shape)| (format!("{prefix}{name}"), Tensor::hollow(shape))).collect()
    }

    fn found(model: &dyn Architecture) -> Recognized {
        recognize(&checkpoint(model, "")).unwrap_or_else(|error| panic!("{error}")).0
    }

    #[test]
    fn drunet_is_recognized_with_all_that_names_tell() {
        let default = Drunet::default();
        assert_eq!(found(&default), Recognized::Drunet(default));
        for rank in [2, 3] {
            for blocks in [0, 1, 2, 11] {
                for downsampling in [Downsampling::StridedConv, Downsampling::AveragePool] {
                    for upsampling in
                        [Upsampling::ConvTranspose, Upsampling::PixelShuffle, Upsampling::Upconv]
                    {
                        if rank == 3 && upsampling == Upsampling::PixelShuffle {
                            continue;
                        }
                        let options = Drunet {
                            rank,
                            image_channels: 5,
                            output_channels: 6,
                            channels: [2, 3, 4, 7],
                            blocks,
                            downsampling,
                            upsampling,
                            ..Drunet::default()
                        };
                        assert_eq!(found(&options), Recognized::Drunet(options));
                    }
                }
                let kept = Drunet { rank: 3, blocks, depth: Depth::Kept, ..Drunet::default() };
                assert_eq!(found(&kept), Recognized::Drunet(kept));
            }
        }
    }

    #[test]
    fn stacks_of_convolutions_are_told_apart() {
        for (rank, bias, depth) in [(2, true, 20), (3, false, 2), (2, false, 3)] {
            for names in [DncnnNames::Deepinv, DncnnNames::Kair] {
                let options = Dncnn { rank, bias, depth, channels: 5, names, ..Dncnn::default() };
                assert_eq!(found(&options), Recognized::Dncnn(options));
            }
            let options = Fdncnn { rank, bias, depth, channels: 5, ..Fdncnn::default() };
            assert_eq!(found(&options), Recognized::Fdncnn(options));
        }
    }

    #[test]
    fn unet_is_recognized_with_its_scales_and_normalization() {
        for batch_norm in [BatchNorm::None, BatchNorm::Standard] {
            for channels in [vec![3, 5], vec![3, 4, 5, 6, 7]] {
                for rank in [2, 3] {
                    let options = Unet {
                        rank,
                        image_channels: 2,
                        output_channels: 4,
                        channels: channels.clone(),
                        batch_norm,
                        ..Unet::default()
                    };
                    assert_eq!(found(&options), Recognized::Unet(options));
                }
            }
        }
        let options = Unet { bias: false, batch_norm: BatchNorm::BiasFree, ..Unet::default() };
        assert_eq!(found(&options), Recognized::Unet(options));
    }

    #[test]
    fn model_is_found_under_the_usual_words() {
        let options = Dncnn::default();
        for prefix in ["state_dict.", "params.", "model.", "state_dict.module.", "weights."] {
            let mut state = checkpoint(&options, prefix);
            state.insert("optimizer.state.0.exp_avg", Tensor::vector(vec![1.0]));
            let (architecture, weights) = recognize(&state).expect("it is there");
            assert_eq!(architecture, Recognized::Dncnn(options.clone()));
            assert_eq!(weights, checkpoint(&options, ""));
        }
        let kair = Dncnn { names: DncnnNames::Kair, ..options };
        let (architecture, _) = recognize(&checkpoint(&kair, "model.")).expect("it is there");
        assert_eq!(architecture, Recognized::Dncnn(kair));
    }

    #[test]
    fn what_could_be_another_model_is_refused_with_a_reason() {
        let small = Dncnn { depth: 3, ..Dncnn::default() };
        let kair = Dncnn { names: DncnnNames::Kair, ..small.clone() };
        let both: StateDict = ["params.", "params_ema."]
            .iter()
            .flat_map(|prefix| {
                let state = checkpoint(&small, prefix);
                state.iter().map(|(n, t)| (n.to_owned(), t.clone())).collect::<Vec<_>>()
            })
            .collect();
        let shape = |sizes: &[usize]| Tensor::hollow(Shape::new(sizes).expect("small"));
        let linear = StateDict::from_iter([("model.0.weight".to_owned(), shape(&[3, 4]))]);
        let mut uneven = checkpoint(&kair, "");
        uneven.insert("model.4.weight", shape(&[12, 64, 3, 3]));
        for (state, message) in [
            (both, "dncnn under `params`, dncnn under `params_ema`"),
            (checkpoint(&Fdncnn { image_channels: 12, ..Fdncnn::default() }, ""), "FFDNet"),
            (checkpoint(&Dncnn { depth: 7, ..kair }, ""), "IRCNN"),
            (checkpoint(&Drunet::default(), "student_grad.model."), "there are student_grad.model"),
            (linear, "`model.0.weight` is not the weight of a convolution"),
            (uneven, "from 3 to 12 channels"),
            (StateDict::default(), "no tensors"),
        ] {
            let text = Model::recognize(&state).expect_err("it could be another").to_string();
            assert!(text.starts_with("no known architecture has these weights"), "{text}");
            assert!(text.contains(message) && text.contains("unet (by `Conv1.0"), "{text}");
        }
    }

    #[test]
    fn weights_that_nearly_fit_are_compared_strictly() {
        let mut state = checkpoint(&Dncnn { depth: 3, ..Dncnn::default() }, "");
        state.insert("conv_list.7.weight", Tensor::vector(vec![1.0]));
        let error = Model::recognize(&state).expect_err("one too many");
        assert!(matches!(error, Error::Weights { .. }), "{error}");
    }

    #[test]
    fn no_shape_of_any_tensor_is_too_strange_for_an_answer() {
        const MOST: usize = usize::MAX;
        let gray = Dncnn { image_channels: 1, depth: 3, channels: 2, ..Dncnn::default() };
        let models = [
            Recognized::Drunet(Drunet { channels: [2; 4], blocks: 1, ..Drunet::default() }),
            Recognized::Dncnn(Dncnn { names: DncnnNames::Kair, ..gray.clone() }),
            Recognized::Dncnn(gray),
            Recognized::Fdncnn(Fdncnn { depth: 3, channels: 2, ..Fdncnn::default() }),
            Recognized::Unet(Unet { channels: vec![2, 3], ..Unet::default() }),
        ];
        let strange: [&[usize]; 6] = [
            &[],
            &[0],
            &[MOST, 0, 3, 3],
            &[0, MOST, 3, 3],
            &[MOST, MOST, 0, 3],
            &[0, 0, 0, 0, 0, 0],
        ];
        for model in &models {
            let parameters = model.parameters().expect("good options");
            let whole: StateDict = (parameters.iter())
                .map(|(name, shape)| (name.clone(), Tensor::filled(shape.clone(), 0.5)))
                .collect();
            Model::recognize(&whole).expect("it is whole");
            for (name, shape) in &parameters {
                let others = whole.iter().filter(|(other, _)| other != name);
                let mut state: StateDict =
                    others.map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
                let result = Model::recognize(&state);
                assert!(result.is_err(), "without {name}: {result:?}");
                for sizes in strange.iter().filter(|sizes| **sizes != shape.sizes()) {
                    let shape = Shape::new(*sizes).expect("it is empty or small");
                    state.insert(name.clone(), Tensor::filled(shape, 0.5));
                    let result = Model::recognize(&state);
                    assert!(result.is_err(), "{name} of shape {sizes:?}: {result:?}");
                }
            }
        }
    }
}

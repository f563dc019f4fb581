//! What the command line says of a network besides its name: `--onnx white=255`, `--device gpu`.

use haloscope_job::{DeviceChoice, ModelOptions};
use haloscope_onnx::FileOptions;

/// The option of commands that take a network.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OnnxArguments {
    /// What an ONNX file does not say itself, once for each: image=NAME, level=NAME, output=NAME, layout=nchw|nhwc,
    /// noise=none|channel|map|scalar, alignment=N, channels=N, white=VALUE
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse)]
    onnx: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) device: DeviceArguments,
}

/// The option of commands that run a network.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct DeviceArguments {
    /// Device for the network: cpu (the default), gpu, gpu:N, or auto for a GPU if there is one. GPUs need a build with
    /// --features onnx
    #[arg(long, value_name = "DEVICE", value_parser = str::parse::<DeviceChoice>)]
    pub(crate) device: Option<DeviceChoice>,
}

impl OnnxArguments {
    /// All of them together.
    pub(crate) fn options(&self) -> anyhow::Result<ModelOptions> {
        let mut file = FileOptions::default();
        for (key, value) in &self.onnx {
            file.set(key, value).map_err(|reason| anyhow::anyhow!("--onnx: {reason}"))?;
        }
        let device = self.device.device.unwrap_or_default();
        Ok(ModelOptions { file, device, local_rank: 0 })
    }
}

fn parse(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is needed, as in white=255")?;
    FileOptions::default().set(key, value)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Says which device was taken and why, where that was left open.
pub(crate) fn tell_device(note: Option<&str>) {
    if let Some(note) = note {
        crate::log::message(log::Level::Info, note);
    }
}

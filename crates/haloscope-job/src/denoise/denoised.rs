//! What is known of a denoised file when the run is over.

use serde::Serialize;

/// What was denoised and how.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DenoisedFile {
    /// The file that was read.
    pub input: String,
    /// The file that was written.
    pub output: String,
    /// The name of the network.
    pub network: String,
    /// (batch, channel, spatial…).
    pub shape: Vec<usize>,
    /// The last side.
    pub width: usize,
    /// The last side but one.
    pub height: usize,
    /// Of the image, not of the network.
    pub channels: usize,
    /// How often the network was run: slices of a volume, images of a batch.
    pub slices: usize,
    /// What the file holds.
    pub values: String,
    /// The value that was 0 for the network.
    pub black: f64,
    /// The value that was 1 for the network.
    pub white: f64,
    /// Where black and white are from, in a few words.
    pub scale: String,
    /// The standard deviation of the noise where white is 1.
    pub sigma: f32,
    /// The same in the units of the file.
    pub sigma_in_units: f64,
    /// Whether the network takes it.
    pub sigma_used: bool,
    /// Whether it was estimated from the image, because none was given.
    pub sigma_estimated: bool,
    /// The number of threads.
    pub threads: usize,
    /// The time to plan the network.
    pub planning_seconds: f64,
    /// The time to run it.
    pub seconds: f64,
    /// Of the image, without its channels.
    pub megapixels_per_second: f64,
    /// How many waves the network ran in, 0 if on the whole image at once.
    pub waves: usize,
    /// The rows of a wave.
    pub band_rows: Option<usize>,
    /// Whether the files were read and written by bands of as many rows.
    pub by_bands: bool,
    /// What the network would take for the whole image at once.
    pub memory_whole_bytes: usize,
    /// What the plan takes.
    pub memory_predicted_bytes: usize,
    /// What the process took at most beyond what it had before.
    pub memory_measured_bytes: Option<u64>,
    /// The most bytes that were in files of the scratch folder, if there is one.
    pub scratch_bytes: Option<u64>,
    /// How values were written.
    pub written_as: String,
}

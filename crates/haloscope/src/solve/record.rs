//! What is noted of each iteration.

/// One iteration on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The number of iterations that are done.
    pub iteration: usize,
    /// The data term at the point where the step evaluated it, if it did.
    pub data_term: Option<f64>,
    /// How far the image moved, relative to its norm.
    pub relative_change: f64,
    /// Where the time went.
    pub seconds: Seconds,
}

/// The seconds of one iteration on one rank. Data and prior include the communication in them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// The whole step.
    pub total: f64,
    /// The gradient or prox of the data term.
    pub data: f64,
    /// The denoiser or other prior.
    pub prior: f64,
    /// Moving data between ranks.
    pub communication: f64,
    /// Waiting for other ranks.
    pub waiting: f64,
}

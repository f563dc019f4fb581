//! The problems of the demo: what is measured, and how one would look at it without a reconstruction.

use std::sync::Arc;

use haloscope::noise::Noise;
use haloscope::phantom::{SheppLogan, Table, landscape};
use haloscope::physics::tomography::{
    ConeBeam, Grouping, ParallelBeam, Tomography2d, Tomography3d, Window, evenly_spaced,
};
use haloscope::physics::{Blur, Downsampling, DownsamplingFilter, Padding, Physics, kernels};
use haloscope::{Array, Measurements, Result};
use ndarray::Axis;

/// Which problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Problem {
    /// A colour photograph from three blurred, noisy frames
    Deblur,
    /// A slice from few noisy projections
    #[value(name = "tomography-2d")]
    Tomography2d,
    /// A volume from few noisy cone-beam views
    #[value(name = "tomography-3d")]
    Tomography3d,
    /// A colour photograph from four small frames
    SuperResolution,
}

/// A problem with everything that the demo needs of it.
pub struct Setup {
    /// The image that is to be found.
    pub truth: Array,
    /// What measures it.
    pub operators: Vec<Arc<dyn Physics>>,
    /// The noise of the measurements.
    pub noise: Noise,
    /// The weight of total variation that suits it.
    pub weight: f64,
    /// How the measurements are looked at without a reconstruction.
    look: Look,
}

/// How measurements are looked at.
enum Look {
    /// The first frame.
    Frame,
    /// The first frame, every pixel as often as it stands for.
    Enlarged(usize),
    /// Filtered back-projection of all views.
    Slice(Box<Tomography2d>),
    Volume(Box<Tomography3d>),
}

/// Groups of views, and with them operators to share between ranks.
const GROUPS: usize = 4;

impl Problem {
    pub fn default_size(self) -> usize {
        match self {
            Self::Deblur | Self::SuperResolution => 384,
            Self::Tomography2d => 256,
            Self::Tomography3d => 64,
        }
    }

    /// The problem for an image of this side.
    pub fn set_up(self, size: usize) -> Result<Setup> {
        match self {
            Self::Deblur => {
                let blur = |angle| -> Result<Arc<dyn Physics>> {
                    let kernel = kernels::gaussian(&[3.0, 1.0], angle)?;
                    Ok(Arc::new(Blur::new(&[3, size, size], &kernel, Padding::Circular)?))
                };
                Ok(Setup {
                    truth: landscape(size, size)?,
                    operators: vec![blur(0.0)?, blur(60.0)?, blur(120.0)?],
                    noise: Noise::gaussian(0.03)?,
                    weight: 0.012,
                    look: Look::Frame,
                })
            }
            Self::SuperResolution => {
                let frame = |y, x| -> Result<Arc<dyn Physics>> {
                    let filter = DownsamplingFilter::Gaussian;
                    let small = Downsampling::new(&[3, size, size], 2, &filter, Padding::Circular)?;
                    Ok(Arc::new(small.with_phase(&[y, x])?))
                };
                Ok(Setup {
                    truth: landscape(size, size)?,
                    operators: vec![frame(0, 0)?, frame(0, 1)?, frame(1, 0)?, frame(1, 1)?],
                    noise: Noise::gaussian(0.02)?,
                    weight: 0.004,
                    look: Look::Enlarged(2),
                })
            }
            Self::Tomography2d => {
                let beam = ParallelBeam::new(evenly_spaced(60, std::f64::consts::PI), size * 3 / 2);
                let whole = Tomography2d::new(&[1, size, size], beam)?.normalised()?;
                let parts = whole.split(GROUPS, Grouping::Interleaved)?;
                Ok(Setup {
                    truth: SheppLogan::new(Table::Modified).with_points(3).draw(&[size, size])?,
                    operators: parts
                        .into_iter()
                        .map(|part| Arc::new(part) as Arc<dyn Physics>)
                        .collect(),
                    noise: Noise::gaussian(0.005)?,
                    weight: 0.001,
                    look: Look::Slice(Box::new(whole)),
                })
            }
            Self::Tomography3d => {
                let length = size as f64;
                let beam = ConeBeam::new(
                    evenly_spaced(48, std::f64::consts::TAU),
                    [size * 3 / 2, size * 3 / 2],
                    3.0 * length,
                    length,
                );
                let whole = Tomography3d::new(&[1, size, size, size], beam)?.normalised()?;
                let parts = whole.split(GROUPS, Grouping::Interleaved)?;
                Ok(Setup {
                    truth: SheppLogan::new(Table::Modified)
                        .with_points(2)
                        .draw(&[size, size, size])?,
                    operators: parts
                        .into_iter()
                        .map(|part| Arc::new(part) as Arc<dyn Physics>)
                        .collect(),
                    noise: Noise::gaussian(0.005)?,
                    weight: 0.001,
                    look: Look::Volume(Box::new(whole)),
                })
            }
        }
    }
}

impl Setup {
    /// Whether what one would look at is also a good place to begin.
    pub fn begins_at_look(&self) -> bool {
        matches!(self.look, Look::Slice(_) | Look::Volume(_))
    }

    /// The measurements as an image, all of which must be here.
    pub fn look(&self, data: &Measurements) -> Result<Array> {
        let first = || data.get(0).cloned().unwrap_or_default();
        match &self.look {
            Look::Frame => Ok(first()),
            Look::Enlarged(factor) => {
                let small = first();
                Ok(Array::from_shape_fn(self.truth.raw_dim(), |at| {
                    small[[at[0], at[1], at[2] / factor, at[3] / factor]]
                }))
            }
            Look::Slice(whole) => whole.filtered_back_projection(&interleave(data), Window::Ramp),
            Look::Volume(whole) => whole.filtered_back_projection(&interleave(data), Window::Ramp),
        }
    }
}

/// The views of all groups in their order.
fn interleave(data: &Measurements) -> Array {
    let parts: Vec<&Array> = data.iter().map(|(_, part)| part).collect();
    let views: usize = parts.iter().map(|part| part.shape()[2]).sum();
    let mut shape = parts[0].shape().to_vec();
    shape[2] = views;
    let mut all = Array::zeros(shape);
    for view in 0..views {
        let part = parts[view % parts.len()].index_axis(Axis(2), view / parts.len());
        all.index_axis_mut(Axis(2), view).assign(&part);
    }
    all
}

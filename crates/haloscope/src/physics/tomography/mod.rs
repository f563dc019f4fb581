//! Tomography: integrals along rays through an image or volume, and reconstructions from them.
#![doc = include_str!("README.md")]

mod back_projection;
mod centre;
mod coverage;
mod filter;
mod geometry;
mod norm;
mod oblique;
mod planar;
mod prepare;
mod reconstruct;
mod resample;
mod shadow;
mod slabs;
mod space;
mod spatial;
mod strip;
mod turn;
mod upright;

pub use back_projection::BackProjection;
pub use centre::{RotationCentre, rotation_centre};
pub use filter::Window;
pub use geometry::{
    ConeBeam, FanBeam, Grouping, ParallelBeam, ParallelBeam3d, Rays, Scan2d, Scan3d, View2d,
    View3d, evenly_spaced,
};
pub use norm::unit_factor;
pub use planar::Tomography2d;
pub use prepare::{PhaseFilter, correct_hardening, remove_outliers, remove_rings};
pub use reconstruct::MissingArc;
pub use spatial::Tomography3d;

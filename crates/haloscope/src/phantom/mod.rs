//! Generated images, so that examples and tests need no download.
//!
//! [`SheppLogan`] is the head phantom of tomography in two and three dimensions, [`disks`] are the
//! simplest objects with a known integral, and [`landscape`] is a colour picture with the statistics of
//! a photograph: edges, textures whose power falls with frequency, and smooth parts. [`sky`] is a galaxy
//! among point sources. All of them are the same on every machine and on any number of threads.

mod ellipse;
mod landscape;
mod noise;
mod shepp_logan;
mod sky;

pub use ellipse::{Disk, Placement, disks};
pub use landscape::landscape;
pub use shepp_logan::{SheppLogan, Table};
pub use sky::sky;

#![doc = include_str!("../README.md")]

pub mod columns;
pub mod counts;
pub mod dashboard;
#[cfg(feature = "onnx")]
pub mod device;
mod error;
pub mod evaluate;
pub mod figures;
mod jobs;
pub mod measure;
pub mod model;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod plan;
pub mod problem;
pub mod provenance;
pub mod results;
pub mod row;
pub mod runner;
pub mod slurm;
pub mod statistics;
pub mod tables;
mod tiles;
mod torn;
pub mod trial;
pub mod truth;
pub mod volume;

pub use error::{Error, Result};

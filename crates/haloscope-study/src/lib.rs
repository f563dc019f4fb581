//! Studies of how haloscope scales: dashboards of their tables, and jobs on clusters.

pub mod dashboard;
pub mod slurm;

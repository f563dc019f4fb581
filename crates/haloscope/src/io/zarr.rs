//! Zarr.

//! HDF5.

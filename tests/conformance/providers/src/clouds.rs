//! The clouds.

pub mod simcloud;

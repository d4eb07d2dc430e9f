//! The clouds.

pub mod hetzner;
pub mod simcloud;
pub mod vsphere;

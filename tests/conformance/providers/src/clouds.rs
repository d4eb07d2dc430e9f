//! The clouds.

pub mod aws;
pub mod hetzner;
pub mod openstack;
pub mod simcloud;
pub mod vsphere;

//! Test support of several packages: servers that are started for a test and stopped after it.

pub mod apiserver;
mod cache;
pub mod ports;
pub mod simcloud;

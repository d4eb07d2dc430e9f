//! What several test packages share: the outside world, started for a test and gone after it.

pub mod apiserver;
mod cache;
pub mod ports;
pub mod simcloud;

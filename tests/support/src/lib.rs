//! What several test packages share: the outside world, started for a test and gone after it.

pub mod apiserver;
pub mod simcloud;

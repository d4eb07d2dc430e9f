//! Test support of several packages: servers that are started for a test and stopped after it, and
//! the log of a test, and a process that is killed.

pub mod apiserver;
mod cache;
pub mod killed;
pub mod log;
pub mod ports;
pub mod simcloud;

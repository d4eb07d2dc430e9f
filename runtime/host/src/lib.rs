//! Under construction.

pub mod http_client;

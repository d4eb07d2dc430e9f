//! HTTP for untrusted code: which requests may leave the process, to which addresses, with which
//! credentials, and which answers may come back.
//!
//! The host sends the requests of providers through this crate. The crate knows neither WebAssembly
//! nor Kubernetes.
//!
//! Read [`http_client`] first: its documentation lists the steps of one request.

mod blocking;
pub mod credentials;
mod file;
pub mod header_names;
pub mod http_client;
pub mod policy;
mod resolver;
pub mod transport;

pub use file::{
    READ, ReadError, WRITE, check_permissions, read_file, read_open_file, read_own_file, write_file, write_own_file,
};
pub use resolver::{Resolver, SystemResolver};

//! The way out for what is not trusted: which requests may leave, to which addresses, with which
//! credentials, and what may come back.
//!
//! The host sends the requests of providers through it. It knows neither WebAssembly nor
//! Kubernetes.
//!
//! Read [`http_client`] first: it is the walk of one request.

mod blocking;
pub mod credentials;
mod file;
pub mod header_names;
pub mod http_client;
pub mod policy;
mod resolver;
pub mod transport;

pub use file::{READ, WRITE, check_permissions, open_file, read_file, read_own_file};
pub use resolver::{Resolver, SystemResolver};

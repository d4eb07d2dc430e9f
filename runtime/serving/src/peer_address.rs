//! The address of a client: `server` adds it to each request, and `webhook` reads it.

use std::net::IpAddr;

/// The address as the connection has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

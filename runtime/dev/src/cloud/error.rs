//! Errors of the simulated cloud: one case for each status and code of its API.

use std::{io, net::SocketAddr};

/// A refused request.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// 404: no record with this ID.
    #[error("there is no {kind} {id:?}")]
    NotFound {
        /// The kind of the object, for example `instance`.
        kind: &'static str,
        /// As asked for.
        id: String,
    },
    /// 409: the record conflicts with another one.
    #[error("{0}")]
    Conflict(String),
    /// 409: another program listens on the address.
    #[error("cannot listen on {address}: the port is in use by another program of this machine")]
    PortInUse {
        /// Elastic IP and port, or machine and port.
        address: SocketAddr,
    },
    /// 422: the process may not listen on the address.
    #[error(
        "cannot listen on {address}: not permitted; run the simulated cloud with the capability CAP_NET_BIND_SERVICE, \
         or use a port above 1023"
    )]
    PortNotPermitted {
        /// Elastic IP and port, or machine and port.
        address: SocketAddr,
    },
    /// 500: the operating system refused the listener for another reason.
    #[error("cannot listen on {address}")]
    Listen {
        /// Elastic IP and port, or machine and port.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// 422: only TCP is carried.
    #[error("protocol {0} is not supported: virtual servers of the simulated cloud carry TCP only")]
    UnsupportedProtocol(&'static str),
    /// 422: the request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// 507: a pool or a quota is used up.
    #[error("{0}")]
    Exhausted(String),
}

impl CloudError {
    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::NotFound { .. } => 404,
            Self::Conflict(_) | Self::PortInUse { .. } => 409,
            Self::PortNotPermitted { .. } | Self::UnsupportedProtocol(_) | Self::Invalid(_) => 422,
            Self::Listen { .. } => 500,
            Self::Exhausted(_) => 507,
        }
    }

    /// The stable name in the member `code` of the answer.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not-found",
            Self::Conflict(_) => "conflict",
            Self::PortInUse { .. } => "port-in-use",
            Self::PortNotPermitted { .. } => "port-not-permitted",
            Self::Listen { .. } => "listen-failed",
            Self::UnsupportedProtocol(_) => "unsupported-protocol",
            Self::Invalid(_) => "invalid",
            Self::Exhausted(_) => "exhausted",
        }
    }

    pub(super) fn listen(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::PortInUse { address },
            io::ErrorKind::PermissionDenied => Self::PortNotPermitted { address },
            _ => Self::Listen { address, source },
        }
    }
}

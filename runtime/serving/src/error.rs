//! Why a server cannot be made or goes on no longer.

use std::{net::SocketAddr, path::PathBuf};

/// Why a server cannot be made or goes on no longer.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The address is taken or not ours.
    #[error(
        "cannot listen on {address}: is another manager running here? Choose another {flag}, or 0 to serve nothing"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The flag that says the port.
        flag: &'static str,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot use the file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else than it should.
    #[error("the file {}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// TLS cannot be spoken as it is asked for.
    #[error("{0}")]
    Tls(String),
    /// A pattern of `--webhooks` names nothing.
    #[error("--webhooks {name:?}: there is no such webhook; known: {known}")]
    UnknownWebhook {
        /// The pattern.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The ConfigMap with the cluster's authorities cannot be read.
    #[error(
        "cannot read the ConfigMap kube-system/extension-apiserver-authentication: bind the Role extension-apiserver-authentication-reader \
         in kube-system to this account, or say --authentication-tolerate-lookup-failure or --authentication-skip-lookup"
    )]
    Lookup(#[source] Box<kube::Error>),
}

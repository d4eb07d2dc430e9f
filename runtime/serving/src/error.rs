//! Errors of a server at its start and while it runs.

use std::{net::SocketAddr, path::PathBuf};

/// Why a server cannot start or has to end.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The address is in use, or is not an address of this machine.
    #[error(
        "cannot listen on {address}; stop the process that uses the port, choose another {flag}, or disable it by 0"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The flag of the port.
        flag: &'static str,
        /// The error of the system.
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
    /// A file has invalid content.
    #[error("the file {}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The TLS settings cannot be used.
    #[error("{0}")]
    Tls(String),
    /// A pattern of `--webhooks` matches no webhook.
    #[error("--webhooks {name:?}: there is no such webhook; known: {known}")]
    UnknownWebhook {
        /// The pattern.
        name: String,
        /// The names of all webhooks.
        known: String,
    },
    /// The ConfigMap with the cluster's certificate authorities cannot be read.
    #[error(
        "cannot read the ConfigMap kube-system/extension-apiserver-authentication; bind the Role extension-apiserver-authentication-reader \
         in kube-system to this account, or set --authentication-tolerate-lookup-failure or --authentication-skip-lookup"
    )]
    Lookup(#[source] Box<kube::Error>),
}

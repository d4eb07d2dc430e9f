//! The certificate of the proxies before a cloud that is reached by HTTPS only.

use std::sync::Arc;

use anyhow::Result;
use rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate of 127.0.0.1 that signs itself, with its key.
pub(super) struct Identity {
    /// As PEM.
    pub(super) certificate: String,
    pub(super) acceptor: TlsAcceptor,
}

impl Identity {
    pub(super) fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())?;
        Ok(Self { certificate: made.cert.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

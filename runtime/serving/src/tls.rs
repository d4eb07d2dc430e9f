//! Builds the TLS configuration from the flags; refuses settings that rustls does not support.

mod certificates;
mod files;
mod suites;

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

pub(crate) use certificates::Certificates;
pub(crate) use files::read;

use crate::{error::ServingError, options::SecureServingOptions};

/// Whether the server requests a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    /// Requested and optional; each request checks the CA, because the certificate authorities can
    /// change.
    Requested,
    /// Not requested.
    Ignored,
}

/// The TLS configuration of a port.
///
/// # Errors
/// A version, suite, key exchange or certificate that is not available.
pub(crate) fn server_config(
    options: &SecureServingOptions,
    clients: ClientCertificates,
) -> Result<(Arc<ServerConfig>, Arc<Certificates>), ServingError> {
    let (provider, versions) = suites::provider(&options.tls)?;
    let provider = Arc::new(provider);
    let certificates = Arc::new(Certificates::load(&options.tls, Arc::clone(&provider))?);
    let unusable = |error: Error| ServingError::Tls(format!("TLS cannot be set up: {error}"));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(&versions).map_err(unusable)?;
    let builder = match clients {
        ClientCertificates::Requested => builder.with_client_cert_verifier(Arc::new(Possession(provider))),
        ClientCertificates::Ignored => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::clone(&certificates) as Arc<_>);
    config.alpn_protocols = match options.disable_http2_serving {
        true => vec![b"http/1.1".to_vec()],
        false => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok((Arc::new(config), certificates))
}

/// Verifies only that a client has the key of its certificate.
#[derive(Debug)]
struct Possession(Arc<CryptoProvider>);

impl ClientCertVerifier for Possession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

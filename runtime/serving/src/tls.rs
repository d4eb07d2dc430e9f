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

/// Most certificates that a client may send beside its own. The search for a path to a certificate
/// authority tries each order of certificates with one name: without a limit, a client without
/// rights could keep the thread that also renews the Lease busy for a minute.
const INTERMEDIATES_MAX: usize = 4;

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
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let count = intermediates.len();
        if count > INTERMEDIATES_MAX {
            let text =
                format!("the client sends {count} intermediate certificates, at most {INTERMEDIATES_MAX} are allowed");
            return Err(Error::General(text));
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{
        crypto::ring::default_provider,
        pki_types::{CertificateDer, UnixTime},
        server::danger::ClientCertVerifier as _,
    };

    use super::{INTERMEDIATES_MAX, Possession};

    #[test]
    fn a_client_with_a_long_chain_of_certificates_is_refused_in_the_handshake() {
        let verifier = Possession(Arc::new(default_provider()));
        let one = CertificateDer::from(vec![0x30, 0]);
        let verified = |count: usize| verifier.verify_client_cert(&one, &vec![one.clone(); count], UnixTime::now());
        assert!(verified(INTERMEDIATES_MAX).is_ok());
        let refused = verified(INTERMEDIATES_MAX + 1).unwrap_err().to_string();
        assert!(refused.contains("5 intermediate certificates, at most 4"), "{refused}");
    }
}

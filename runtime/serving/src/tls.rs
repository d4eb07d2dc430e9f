//! Builds the TLS configuration from the flags; refuses settings that rustls does not support.

mod certificates;
mod files;
mod suites;

use std::{io, sync::Arc};

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, InvalidMessage, OtherError, ServerConfig, SignatureScheme,
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

/// The error of a handshake whose client sends more than [`INTERMEDIATES_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("the client sends {0} intermediate certificates, at most {max} are allowed", max = INTERMEDIATES_MAX)]
struct TooManyIntermediates(usize);

/// Why a handshake failed, if the client sends too many certificates, and the remedy. `None` for
/// other errors.
pub(crate) fn refused_certificates(error: &io::Error) -> Option<String> {
    let reason = match error.get_ref()?.downcast_ref::<Error>()? {
        Error::Other(OtherError(cause)) => cause.downcast_ref::<TooManyIntermediates>()?.to_string(),
        // The limit of rustls, before it counts certificates.
        Error::InvalidMessage(
            InvalidMessage::CertificatePayloadTooLarge | InvalidMessage::HandshakePayloadTooLarge,
        ) => {
            format!(
                "the client sends a TLS message of more than 64 KiB, such as too many certificates (at most {} are allowed)",
                INTERMEDIATES_MAX + 1
            )
        }
        _ => return None,
    };
    let remedy = "let the client send its certificate and only the intermediate certificates between it and the CA";
    Some(format!("{reason}; {remedy}"))
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
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let count = intermediates.len();
        if count > INTERMEDIATES_MAX {
            return Err(OtherError(Arc::new(TooManyIntermediates(count))).into());
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
    use std::{io, sync::Arc};

    use rustls::pki_types::ServerName;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::{ClientCertificates, INTERMEDIATES_MAX, refused_certificates, server_config};
    use crate::{
        options::SecureServingOptions,
        testing::{Authority, client_config},
    };

    /// The server's result of a handshake with a client that sends this many certificates beside
    /// its own.
    async fn handshake(intermediates: usize) -> io::Result<()> {
        let mut client = Authority::new("ca").client("jane", &[]);
        client.intermediates = vec![client.certificate.clone(); intermediates];
        let connector = TlsConnector::from(Arc::new(client_config(Some(&client), &[])));
        let (server, _) = server_config(&SecureServingOptions::endpoints(), ClientCertificates::Requested).unwrap();
        let (near, far) = tokio::io::duplex(1 << 20);
        let name = ServerName::try_from("localhost").unwrap();
        let (accepted, _) = tokio::join!(TlsAcceptor::from(server).accept(near), connector.connect(name, far));
        accepted.map(drop)
    }

    #[tokio::test]
    async fn a_client_that_sends_too_many_certificates_is_refused_with_a_remedy() {
        handshake(INTERMEDIATES_MAX).await.unwrap();
        for (intermediates, reason) in [
            (INTERMEDIATES_MAX + 1, "the client sends 5 intermediate certificates, at most 4 are allowed"),
            // A bundle of public roots.
            (
                400,
                "the client sends a TLS message of more than 64 KiB, such as too many certificates (at most 5 are allowed)",
            ),
        ] {
            let refused = refused_certificates(&handshake(intermediates).await.unwrap_err()).unwrap();
            assert!(refused.starts_with(reason), "{refused}");
            assert!(refused.contains("; let the client send"), "{refused}");
        }
    }

    #[test]
    fn another_failed_handshake_is_not_blamed_on_certificates() {
        let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        assert_eq!(refused_certificates(&error), None);
    }
}

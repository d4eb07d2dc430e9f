//! Test helpers: certificate authorities, a served port, and a client that can misbehave.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{
    SecureServer,
    authentication::{Peer, authorities::Ca},
    options::SecureServingOptions,
};

/// The timeout of every wait, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A CA that signs client certificates.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A client's certificate with its key.
pub(crate) struct ClientCertificate {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) intermediates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap(), issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn bundle(&self) -> Ca {
        Ca::from_pem(self.pem().as_bytes()).unwrap()
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, self.pem()).unwrap();
    }

    pub(crate) fn client(&self, name: &str, organizations: &[&str]) -> ClientCertificate {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, name);
        // rcgen keeps one value for each type; this is the same type under another name.
        let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        for (r#type, organization) in types.into_iter().zip(organizations) {
            subject.push(r#type, *organization);
        }
        self.client_of(subject)
    }

    pub(crate) fn client_of(&self, subject: DistinguishedName) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        params.distinguished_name = subject;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ClientCertificate { certificate, intermediates: Vec::new(), key }
    }
}

impl ClientCertificate {
    pub(crate) fn peer(&self) -> Peer {
        Peer { certificates: [self.certificate.clone()].into() }
    }
}

/// The TLS configuration of a client.
pub(crate) fn client_config(client: Option<&ClientCertificate>, alpn: &[&str]) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
    let mut config = match client {
        Some(client) => {
            let chain = [vec![client.certificate.clone()], client.intermediates.clone()].concat();
            builder.with_client_auth_cert(chain, client.key.clone_key()).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// Options for a free port on loopback.
pub(crate) fn loopback(mut options: SecureServingOptions) -> SecureServingOptions {
    options.bind_address = [127, 0, 0, 1].into();
    options.secure_port = skysail_test_support::ports::free().unwrap();
    options
}

/// A port that is served until the value is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
}

impl Served {
    pub(crate) fn new(server: SecureServer) -> Self {
        let (address, stop, mut tasks) = (server.local_addr(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(server.serve(stop.clone()));
        Self { address, stop, tasks }
    }

    /// A connection after its handshake.
    pub(crate) async fn connect(&self, client: Option<&ClientCertificate>, alpn: &[&str]) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(client_config(client, alpn))).connect(name, stream).await.unwrap()
    }

    /// One request by HTTP/1.1: its head without the first line's version, more headers by `\r\n`,
    /// and a body.
    pub(crate) async fn ask(&self, client: Option<&ClientCertificate>, request: &Ask<'_>) -> (u16, String) {
        let mut stream = self.connect(client, &["http/1.1"]).await;
        let headers: String = request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            request.method,
            request.path,
            request.body.len()
        );
        // A server that refuses a request early closes before it has read the whole request.
        let all = format!("{head}{}", request.body);
        let written = stream.write_all(all.as_bytes()).await;
        // After a full socket the TLS layer may still hold the last bytes.
        drop(written.and(stream.flush().await));
        let answer = timeout(PATIENCE, read_to_end(&mut stream)).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, body.to_owned())
    }

    /// A GET.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        self.ask(None, &Ask { path, ..Ask::default() }).await
    }
}

/// A request of a test.
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a str,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Self { method: "GET", path: "/", headers: &[], body: "" }
    }
}

/// Reads until the peer closes the connection, cleanly or not.
pub(crate) async fn read_to_end(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Accepts every server certificate, which these tests do not check.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

//! TLS: trusted certificates, and the client certificate that the guest never sees.

use std::{fs, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{Answers, Server, client, credentials, get, ok, send, with_credential};
use crate::http_client::{Failure, FailureKind, HttpClient};

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

struct Leaf {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    /// The names have to differ, because a root certificate is found by its name.
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub(super) fn pem(&self) -> String {
        self.certificate.pem()
    }

    fn leaf(&self, name: &str) -> Leaf {
        self.leaf_until(name, 4096)
    }

    /// A leaf that expires at the beginning of this year.
    fn leaf_until(&self, name: &str, year: i32) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        Leaf { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        Arc::new(roots)
    }
}

impl Leaf {
    fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (vec![self.certificate.der().clone()], PrivatePkcs8KeyDer::from(self.key.serialize_der()).into())
    }

    fn write(&self, folder: &Path) {
        fs::write(folder.join("tls.crt"), self.certificate.pem()).unwrap();
        fs::write(folder.join("tls.key"), self.key.serialize_pem()).unwrap();
    }
}

/// The TLS configuration of a server with this name; with `clients`, the server requires a client
/// certificate of that authority.
pub(super) fn server_config(authority: &Authority, name: &str, clients: Option<&Authority>) -> ServerConfig {
    config_of(&authority.leaf(name), clients)
}

fn config_of(leaf: &Leaf, clients: Option<&Authority>) -> ServerConfig {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&crypto)).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(clients.roots(), crypto).build().unwrap(),
        ),
    };
    let (chain, key) = leaf.der();
    builder.with_single_cert(chain, key).unwrap()
}

async fn server(authority: &Authority, name: &str, clients: Option<&Authority>) -> Server {
    Server::start_tls(server_config(authority, name, clients), ok).await
}

/// Allows requests to `api.example.com` at this port.
pub(super) fn egress(port: u16, ca: Option<&Authority>) -> String {
    let mut spec = serde_json::json!({
        "rules": [{"origins": [format!("https://api.example.com:{port}")]}],
        "allowCidrs": ["127.0.0.1/32"],
    });
    if let Some(ca) = ca {
        spec["caBundle"] = serde_json::json!({ "pem": ca.certificate.pem() });
    }
    spec.to_string()
}

fn plain_client(server: &Server, ca: Option<&Authority>) -> HttpClient {
    client(&egress(server.address.port(), ca), credentials("{}"), Answers::new(&[&["127.0.0.1"]]))
}

fn url(server: &Server) -> String {
    format!("https://api.example.com:{}/", server.address.port())
}

#[tokio::test]
async fn a_server_is_trusted_by_the_ca_bundle_and_by_nothing_else() {
    let authority = Authority::new("servers");
    let server = server(&authority, "api.example.com", None).await;
    assert_eq!(send(&plain_client(&server, Some(&authority)), get(url(&server))).await.unwrap().status, 200);
    for ca in [None, Some(&Authority::new("unknown"))] {
        let failure = send(&plain_client(&server, ca), get(url(&server))).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
        assert!(failure.message.contains("UnknownIssuer"), "{failure}");
        assert!(failure.message.ends_with("; write the authority of the server into egress.caBundle"), "{failure}");
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new("servers");
    let server = server(&authority, "other.example.com", None).await;
    let failure = send(&plain_client(&server, Some(&authority)), get(url(&server))).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    assert!(failure.message.contains("not valid for name \"api.example.com\""), "{failure}");
    assert!(failure.message.ends_with("; correct the host name in the URL, or replace the certificate of the server"));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn an_expired_certificate_of_a_server_names_the_server_and_what_to_do() {
    let authority = Authority::new("servers");
    let server = Server::start_tls(config_of(&authority.leaf_until("api.example.com", 2020), None), ok).await;
    let failure = send(&plain_client(&server, Some(&authority)), get(url(&server))).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    let origin = format!("api.example.com:{}: ", server.address.port());
    assert!(failure.message.starts_with(&origin), "{failure}");
    assert!(failure.message.contains("invalid peer certificate: certificate expired"), "{failure}");
    assert!(failure.message.ends_with("; renew the certificate of the server"), "{failure}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn an_expired_client_certificate_names_the_server_and_what_to_do() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = server(&authority, "api.example.com", Some(&clients)).await;
    let failure = failure_with(&server, &authority, &clients.leaf_until("one", 2020)).await;
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    let origin = format!("api.example.com:{}: ", server.address.port());
    assert!(failure.message.starts_with(&origin), "{failure}");
    assert!(failure.message.contains("CertificateExpired"), "{failure}");
    assert!(failure.message.ends_with("; renew the client certificate of the credential"), "{failure}");
    assert!(server.requests().is_empty());
}

/// The failure of a request that shows this client certificate.
async fn failure_with(server: &Server, authority: &Authority, leaf: &Leaf) -> Failure {
    let folder = tempfile::tempdir().unwrap();
    leaf.write(folder.path());
    let file = |name: &str| serde_json::json!({ "file": folder.path().join(name) });
    let spec = serde_json::json!({ "tls": {
        "origins": [format!("https://api.example.com:{}", server.address.port())],
        "clientCertificate": { "certificate": file("tls.crt"), "key": file("tls.key") },
    }});
    let credentials = credentials(&spec.to_string());
    let client = client(&egress(server.address.port(), Some(authority)), credentials, Answers::new(&[&["127.0.0.1"]]));
    send(&client, with_credential(get(url(server)), "tls")).await.unwrap_err()
}

#[tokio::test]
async fn a_peer_that_does_not_speak_tls_is_a_failure_of_tls() {
    let server = Server::start(|_| ok("")).await;
    let client = plain_client(&server, None);
    let failure = send(&client, get(url(&server))).await.unwrap_err();
    assert!(matches!(failure.kind, FailureKind::Tls | FailureKind::Unreachable), "{failure:?}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_the_server_and_nothing_of_it_to_the_guest() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = server(&authority, "api.example.com", Some(&clients)).await;
    let folder = tempfile::tempdir().unwrap();
    let one = clients.leaf("one");
    one.write(folder.path());
    let file = |name: &str| serde_json::json!({ "file": folder.path().join(name) });
    let spec = serde_json::json!({ "tls": {
        "origins": [format!("https://api.example.com:{}", server.address.port())],
        "clientCertificate": { "certificate": file("tls.crt"), "key": file("tls.key") },
    }});
    let read = || credentials(&spec.to_string());
    let credentials = read();
    let client = client(
        &egress(server.address.port(), Some(&authority)),
        Arc::clone(&credentials),
        Answers::new(&[&["127.0.0.1"]]),
    );

    // Without the credential a connection presents no certificate, even after requests with it.
    let bare = send(&client, get(url(&server))).await.unwrap_err();
    assert_eq!(bare.kind, FailureKind::Tls, "{bare}");

    let response = send(&client, with_credential(get(url(&server)), "tls")).await.unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(server.peer_certificates(), [one.certificate.der().to_vec()]);
    let seen = format!("{:?} {}", response.headers, String::from_utf8_lossy(&response.body));
    assert!(!seen.contains("CERTIFICATE") && !seen.contains("PRIVATE"), "{seen}");

    let bare = send(&client, get(url(&server))).await.unwrap_err();
    assert_eq!(bare.kind, FailureKind::Tls, "{bare}");

    // After a rotation, the next request presents the new certificate on a new connection.
    let two = clients.leaf("two");
    two.write(folder.path());
    assert_eq!(credentials.exchange(credentials.rotation_to(&read()).unwrap()), ["tls"]);
    send(&client, with_credential(get(url(&server)), "tls")).await.unwrap();
    assert_eq!(server.peer_certificates(), [one.certificate.der().to_vec(), two.certificate.der().to_vec()]);
}

#[tokio::test]
async fn a_client_certificate_that_the_server_does_not_trust_is_a_failure_of_tls() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = server(&authority, "api.example.com", Some(&clients)).await;
    let failure = failure_with(&server, &authority, &Authority::new("unknown").leaf("unknown")).await;
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    assert!(server.requests().is_empty());
}

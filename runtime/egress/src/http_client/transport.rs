//! Connections: TLS, the judged look-up of names, one pooled client for each client certificate. Must not read requests or answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{
    Client,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use rustls::{ClientConfig, RootCertStore, crypto::CryptoProvider};

use crate::{
    credentials::ClientCertificate,
    http_client::{HttpLimits, Resolver},
    policy::{EgressPolicy, Refusal},
};

/// Look-up, TCP and TLS together: a peer that takes longer is taken for unreachable while the call still has time to say so.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Shorter than what common servers grant (5 s behind some load balancers are the exception, and the transport notices a close).
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle connections kept for each origin: the default concurrency of two calls.
const POOL_IDLE_MAX: usize = 8;

/// Addresses of one name that are taken; a longer answer is cut after all of it was judged.
const ADDRESSES_MAX: usize = 16;

/// What a peer may send as one header list of HTTP/2, which counts 32 bytes beside each header: the most that `httpHeaderBytes` and
/// `httpHeaders` may be. A provider's own, smaller limits are judged when the headers are here.
const HEADER_LIST_BYTES_MAX: u32 = 256 * 1024 + 32 * 1000;

/// The transport of a provider cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// A certificate of the CA bundle.
    #[error("take certificate {index} of caBundle as a root; it must be an X.509 certificate")]
    CaBundle {
        /// In the bundle, from 0.
        index: usize,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// TLS settings, or a client certificate that does not fit its key.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    /// The client itself.
    #[error("set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// What a look-up can end with, found again in the chain of the transport's error.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookUpError {
    #[error("look up {name}: {refusal}")]
    Refused { name: String, refusal: Refusal },
    #[error("look up {0}")]
    Failed(String, #[source] io::Error),
}

/// All connections of one provider.
pub(super) struct Transport {
    settings: Settings,
    plain: Client,
    /// At most one client for each credential, so bounded by the count of credentials.
    by_certificate: Mutex<BTreeMap<String, (Arc<ClientCertificate>, Client)>>,
}

struct Settings {
    crypto: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    headers_max: usize,
    resolver: Arc<JudgingResolver>,
}

struct JudgingResolver {
    policy: Arc<EgressPolicy>,
    resolver: Arc<dyn Resolver>,
}

// === impl Transport ===

impl Transport {
    pub(super) fn new(
        policy: &Arc<EgressPolicy>,
        limits: &HttpLimits,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, HttpClientError> {
        let settings = Settings {
            crypto: Arc::new(rustls::crypto::ring::default_provider()),
            roots: Arc::new(roots(policy)?),
            headers_max: usize::try_from(limits.headers_max).unwrap_or(usize::MAX),
            resolver: Arc::new(JudgingResolver { policy: Arc::clone(policy), resolver }),
        };
        let plain = settings.client(None)?;
        Ok(Self { settings, plain, by_certificate: Mutex::default() })
    }

    pub(super) fn plain(&self) -> Client {
        self.plain.clone()
    }

    /// The client whose connections show `certificate`; made anew when the certificate was exchanged.
    pub(super) fn with_certificate(
        &self,
        name: &str,
        certificate: &Arc<ClientCertificate>,
    ) -> Result<Client, HttpClientError> {
        let mut clients = self.by_certificate.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = clients.get(name)
            && (Arc::ptr_eq(known, certificate) || known == certificate)
        {
            return Ok(client.clone());
        }
        let client = self.settings.client(Some(certificate))?;
        clients.insert(name.to_owned(), (Arc::clone(certificate), client.clone()));
        Ok(client)
    }
}

impl Settings {
    fn client(&self, certificate: Option<&ClientCertificate>) -> Result<Client, HttpClientError> {
        let tls = ClientConfig::builder_with_provider(Arc::clone(&self.crypto))
            .with_safe_default_protocol_versions()
            .map_err(HttpClientError::Tls)?
            .with_root_certificates(Arc::clone(&self.roots));
        let mut tls = match certificate {
            None => tls.with_no_client_auth(),
            Some(ClientCertificate { chain, key }) => {
                tls.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(HttpClientError::Tls)?
            }
        };
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::clone(&self.resolver))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .gzip(true)
            .user_agent(concat!("skysail/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(POOL_IDLE_MAX)
            .http1_max_headers(self.headers_max)
            .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
            .build()
            .map_err(HttpClientError::Client)
    }
}

/// The system's roots and the operator's. A system without any is no error: a provider may speak plain HTTP or bring its own.
fn roots(policy: &EgressPolicy) -> Result<RootCertStore, HttpClientError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (taken, ignored) = roots.add_parsable_certificates(system.certs);
    if taken == 0 {
        tracing::warn!(ignored, "the system has no trusted certificates; only those of caBundle are trusted");
    }
    for (index, certificate) in policy.ca().iter().enumerate() {
        roots.add(certificate.clone()).map_err(|source| HttpClientError::CaBundle { index, source })?;
    }
    Ok(roots)
}

// === look-up ===

impl JudgingResolver {
    async fn look_up(&self, name: &str) -> Result<Vec<SocketAddr>, LookUpError> {
        let failed = |error| LookUpError::Failed(name.to_owned(), error);
        let addresses = self.resolver.resolve(name).await.map_err(failed)?;
        if addresses.is_empty() {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "no address")));
        }
        let mut judged = Vec::new();
        let mut seen = BTreeSet::new();
        for address in addresses {
            let address = self.policy.judge_address(address);
            let address = address.map_err(|refusal| LookUpError::Refused { name: name.to_owned(), refusal })?;
            if seen.insert(address) {
                // Port 0 is replaced by the port of the URL.
                judged.push(SocketAddr::new(address, 0));
            }
        }
        judged.truncate(ADDRESSES_MAX);
        Ok(judged)
    }
}

impl Resolve for JudgingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let this = Self { policy: Arc::clone(&self.policy), resolver: Arc::clone(&self.resolver) };
        Box::pin(async move {
            match this.look_up(name.as_str()).await {
                Ok(addresses) => Ok(Box::new(addresses.into_iter()) as Addrs),
                Err(error) => Err(Box::new(error) as Box<dyn StdError + Send + Sync>),
            }
        })
    }
}

//! The clients of one provider: one for each client certificate, and one without.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Semaphore;

use super::{HttpLimits, Resolver};
use crate::{
    credentials::ClientCertificate,
    policy::EgressPolicy,
    transport::{Client, TransportOptions, roots},
};

/// Idle connections kept for each origin: the default concurrency of two calls.
const POOL_IDLE_MAX: usize = 8;

/// Open connections of one provider, idle ones included: a wildcard origin allows any number of
/// origins, and the file descriptors of the process are those of all providers. 64 calls with the
/// default concurrency of four requests need no more.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// Connections for each request that a call may have in flight, where these are more than
/// [`CONNECTIONS_MAX`]: one for each of the default number of concurrent calls.
const CONNECTIONS_FOR_A_REQUEST: usize = 16;

/// The transport of a provider cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// A certificate of the CA bundle.
    #[error(
        "certificate {index} of caBundle, counted from 0, cannot be used as a root; it must be an X.509 certificate"
    )]
    CaBundle {
        /// The index in the bundle, from 0.
        index: usize,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// TLS settings, or a client certificate that does not fit its key.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
}

/// The clients of one provider, which hold all its connections.
pub(super) struct Clients {
    options: TransportOptions,
    plain: Client,
    /// The client that does not use the operator's proxy.
    direct: Client,
    /// At most one client for each credential.
    by_certificate: Mutex<BTreeMap<String, (Arc<ClientCertificate>, Client)>>,
}

impl Clients {
    pub(super) fn new(
        policy: &Arc<EgressPolicy>,
        limits: &HttpLimits,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, HttpClientError> {
        let in_flight = usize::try_from(limits.concurrency_per_call).unwrap_or(usize::MAX);
        let connections = CONNECTIONS_MAX.max(in_flight.saturating_mul(CONNECTIONS_FOR_A_REQUEST));
        let roots = roots(policy.ca()).map_err(|(index, source)| HttpClientError::CaBundle { index, source })?;
        let judging = Arc::clone(policy);
        let options = TransportOptions {
            roots: Arc::new(roots),
            resolver,
            judge: Arc::new(move |_: &str, address: IpAddr| judging.judge_address(address)),
            proxy: policy.proxy().cloned(),
            headers_max: limits.headers_max,
            idle_max: POOL_IDLE_MAX,
            connections: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
        };
        let plain = Client::new(&options, None).map_err(HttpClientError::Tls)?;
        let direct = match &options.proxy {
            None => plain.clone(),
            Some(_) => {
                let options = TransportOptions { proxy: None, ..options.clone() };
                Client::new(&options, None).map_err(HttpClientError::Tls)?
            }
        };
        Ok(Self { options, plain, direct, by_certificate: Mutex::default() })
    }

    pub(super) fn plain(&self) -> Client {
        self.plain.clone()
    }

    pub(super) fn direct(&self) -> Client {
        self.direct.clone()
    }

    /// The client whose connections present `certificate`; a new client if the credential's
    /// certificate has changed.
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
        let ClientCertificate { chain, key } = &**certificate;
        let identity = (chain.clone(), key.clone_key());
        let client = Client::new(&self.options, Some(identity)).map_err(HttpClientError::Tls)?;
        clients.insert(name.to_owned(), (Arc::clone(certificate), client.clone()));
        Ok(client)
    }
}

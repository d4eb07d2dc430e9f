//! The operator's settings of a registry, and the client for it: names, addresses, certificates.
//!
//! `oci-client` is not used, because it reads answers of any length, follows redirects to any
//! address, and continues without authentication after a failed login. A registry is not trusted,
//! nor is a host that it names in a redirect or as its token service.

use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc};

use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use skysail_egress::{
    SystemResolver,
    policy::{EgressRefusal, Proxy},
    transport::{self, Client, TransportOptions},
};
use tokio::sync::Semaphore;
use url::Url;

use super::credentials::RegistryCredentials;
use crate::error::TargetRefusal;

/// The most headers of one answer: registries send a few dozen.
const HEADERS_MAX: u32 = 100;

/// Open connections of one registry. A pull sends one request after the other, to the registry and
/// the hosts that it names.
const CONNECTIONS_MAX: usize = 16;

/// Checks an address of a host that a *registry* named; the error is the reason of the refusal.
pub type AddressJudge = Arc<dyn Fn(IpAddr) -> Result<(), String> + Send + Sync>;

/// Settings of a registry. Hosts have the form of a reference: `ghcr.io`, `registry.local:5000`.
#[derive(Clone)]
pub struct RegistryOptions {
    /// The host that the reference names.
    pub host: String,
    /// Mirrors, which are tried in this order before the registry itself.
    pub mirrors: Vec<String>,
    /// Hosts that are reached by plain HTTP.
    pub plain_http: BTreeSet<String>,
    /// Hosts that the registry may refer to, at any address, and that may receive its credentials:
    /// token services and blob stores in a private network.
    pub trusted_hosts: BTreeSet<String>,
    /// PEM certificates that are trusted in addition to the system's.
    pub ca_bundle: Option<String>,
    /// The credentials for the registry; without them requests are anonymous.
    pub credentials: Option<RegistryCredentials>,
    /// The proxy of all requests, which resolves the names: [`Self::judge`] is asked about the
    /// proxy's own addresses alone, unless the proxy is one of [`Self::trusted_hosts`].
    pub proxy: Option<Proxy>,
    /// The check for hosts that are not named here.
    pub judge: AddressJudge,
}

impl fmt::Debug for RegistryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, mirrors, plain_http, trusted_hosts, ca_bundle, credentials, proxy, judge: _ } = self;
        f.debug_struct("RegistryOptions")
            .field("host", host)
            .field("mirrors", mirrors)
            .field("plain_http", plain_http)
            .field("trusted_hosts", trusted_hosts)
            .field("ca_bundle", &ca_bundle.is_some())
            .field("credentials", credentials)
            .field("proxy", proxy)
            .finish_non_exhaustive()
    }
}

/// The options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryOptionsError {
    /// A text is not a host.
    #[error(
        "{0:?} is not the host of a registry; write ghcr.io or registry.local:5000, without https:// and without a path"
    )]
    Host(String),
    /// The CA bundle is not PEM, or has no certificates.
    #[error(
        "the CA bundle is not a list of PEM certificates; write them one after the other, each with its BEGIN and END line"
    )]
    CaBundle,
    /// A certificate of the CA bundle.
    #[error(
        "certificate {index} of the CA bundle, counted from 0, cannot be used as a root; it must be an X.509 certificate"
    )]
    Certificate {
        /// The index in the bundle, from 0.
        index: usize,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The address of the proxy.
    #[error("proxy {proxy} is not allowed: {reason}; add its host to trustedHosts, or name another one")]
    Proxy {
        /// The proxy.
        proxy: Box<Proxy>,
        /// Why.
        reason: String,
    },
    /// TLS settings.
    #[error("set up TLS for {0}")]
    Tls(String, #[source] rustls::Error),
}

impl RegistryOptionsError {
    /// Whether the error is about the CA bundle, whose origin the caller knows.
    #[must_use]
    pub const fn is_of_the_ca_bundle(&self) -> bool {
        matches!(self, Self::CaBundle | Self::Certificate { .. })
    }
}

/// A registry with its mirrors.
#[derive(Clone, Debug)]
pub struct Registry {
    pub(super) options: Arc<RegistryOptions>,
    pub(super) client: Client,
}

impl Registry {
    /// The hosts that are tried before the registry.
    #[must_use]
    pub fn mirrors(&self) -> &[String] {
        &self.options.mirrors
    }

    /// Nothing is sent yet.
    ///
    /// # Errors
    /// The CA bundle cannot be read.
    pub fn new(options: RegistryOptions) -> Result<Self, RegistryOptionsError> {
        if let Some(wrong) = options.named().find(|host| !is_host(host)) {
            return Err(RegistryOptionsError::Host(wrong.clone()));
        }
        let named: BTreeSet<_> = options.named().map(|host| name_of(host).to_ascii_lowercase()).collect();
        let judge = Arc::clone(&options.judge);
        if let Some(proxy) = &options.proxy
            && let Some(address) = proxy.address()
            && !options.trusted_hosts.contains(proxy.host())
        {
            judge(address).map_err(|reason| RegistryOptionsError::Proxy { proxy: Box::new(proxy.clone()), reason })?;
        }
        let settings = TransportOptions {
            roots: Arc::new(roots(options.ca_bundle.as_deref())?),
            resolver: Arc::new(SystemResolver::default()),
            // The address of a host that the registry named is checked at the look-up.
            judge: Arc::new(move |name: &str, address: IpAddr| match named.contains(name) {
                true => Ok(address),
                false => judge(address).map(|()| address).map_err(EgressRefusal),
            }),
            proxy: options.proxy.clone(),
            headers_max: HEADERS_MAX,
            idle_max: 1,
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        };
        let client =
            Client::new(&settings, None).map_err(|error| RegistryOptionsError::Tls(options.host.clone(), error))?;
        Ok(Self { options: Arc::new(options), client })
    }

    /// The mirrors and the registry, in the order of requests.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.options.mirrors.iter().map(String::as_str).chain([self.options.host.as_str()])
    }
}

/// The system's root certificates and the operator's.
fn roots(ca_bundle: Option<&str>) -> Result<RootCertStore, RegistryOptionsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(ca_bundle.unwrap_or_default().as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| RegistryOptionsError::CaBundle)?;
    if ca_bundle.is_some() && certificates.is_empty() {
        return Err(RegistryOptionsError::CaBundle);
    }
    transport::roots(&certificates).map_err(|(index, source)| RegistryOptionsError::Certificate { index, source })
}

impl RegistryOptions {
    /// Hosts that the operator named, which may have any address.
    fn named(&self) -> impl Iterator<Item = &String> {
        self.mirrors.iter().chain(&self.plain_http).chain(&self.trusted_hosts).chain([&self.host])
    }

    /// The base URL of a host.
    pub(super) fn base(&self, host: &str) -> String {
        let scheme = if self.is_plain(host) { "http" } else { "https" };
        format!("{scheme}://{host}/v2/")
    }

    fn is_plain(&self, host: &str) -> bool {
        self.plain_http.iter().any(|plain| plain.eq_ignore_ascii_case(host))
    }

    /// Whether a URL belongs to this host: `ghcr.io` and `GHCR.io:443` are the same. A plain-HTTP
    /// host may also redirect to itself over HTTPS.
    pub(super) fn is_of(&self, url: &Url, host: &str) -> bool {
        let Some(name) = url.host_str() else { return false };
        if name_of(host) == host {
            let speaks = url.scheme() == "https" || self.is_plain(host);
            return speaks && url.port().is_none() && name.eq_ignore_ascii_case(host);
        }
        let port = url.port_or_known_default();
        port.is_some_and(|port| format!("{name}:{port}").eq_ignore_ascii_case(host))
    }

    /// Checks whether `from`, a host that answered, may refer to this URL.
    pub(super) fn judge_url(&self, from: &str, to: &Url) -> Result<(), TargetRefusal> {
        if to.host().is_none() {
            return Err(TargetRefusal::NoHost);
        }
        let is_plain = || self.plain_http.iter().any(|plain| self.is_of(to, plain));
        if to.scheme() != "https" && !(to.scheme() == "http" && is_plain()) {
            return Err(TargetRefusal::NotHttps);
        }
        if self.is_of(to, from) || self.named().any(|named| self.is_of(to, named)) {
            return Ok(());
        }
        let address = match to.host() {
            Some(url::Host::Ipv4(address)) => IpAddr::V4(address),
            Some(url::Host::Ipv6(address)) => IpAddr::V6(address),
            // Checked at the look-up.
            Some(url::Host::Domain(_)) | None => return Ok(()),
        };
        (self.judge)(address).map_err(TargetRefusal::Address)
    }

    /// Whether the token service at `realm` may receive the credentials of `host`.
    ///
    /// A token service of the parent domain may: that of `registry.gitlab.com` is `gitlab.com`. A
    /// single label does not count as a parent domain.
    pub(super) fn may_learn_credentials(&self, host: &str, realm: &Url) -> bool {
        /// Docker Hub's token service beside its registry.
        const DOCKER_HUB: (&str, &str) = ("index.docker.io", "auth.docker.io");
        let Some(name) = host_of(realm) else { return false };
        let parent = name.contains('.') && name_of(host).to_ascii_lowercase().ends_with(&format!(".{name}"));
        let trusted = || self.trusted_hosts.iter().any(|trusted| self.is_of(realm, trusted));
        self.is_of(realm, host) || parent || (host, name.as_str()) == DOCKER_HUB || trusted()
    }
}

/// `host`, or `host:port` where the port is not the scheme's default.
pub(super) fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// A name or an address, with or without a port.
fn is_host(text: &str) -> bool {
    // A text after `:` that is not a port makes the host invalid.
    let is_whole = |host: &http::uri::Authority| host.host() == text || host.port_u16().is_some();
    text.parse().is_ok_and(|host| is_whole(&host) && !host.host().is_empty() && !text.contains('@'))
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

//! A registry as the operator names it, and how it is reached: names, addresses, certificates.
//!
//! `oci-client` is not used: it reads answers of any length, follows a registry to any address, and
//! takes a failed log-in for an anonymous one. A registry is somebody else's server, and so is
//! whatever it names in a redirect or as its token service.

use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc};

use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use skysail_egress::{
    SystemResolver,
    policy::Refusal,
    transport::{self, Client, TransportOptions},
};
use url::Url;

use super::{credentials::Credentials, failure::Astray};

/// Headers of one answer: registries send tens.
const HEADERS_MAX: u32 = 100;

/// Says whether a host that a *registry* named may be reached at this address; else why not.
pub type AddressJudge = Arc<dyn Fn(IpAddr) -> Result<(), String> + Send + Sync>;

/// How a registry is reached. Hosts are written as in a reference: `ghcr.io`,
/// `registry.local:5000`.
#[derive(Clone)]
pub struct RegistryOptions {
    /// The host that the reference names.
    pub host: String,
    /// Asked first, in this order; the registry itself comes last.
    pub mirrors: Vec<String>,
    /// Hosts that are spoken to without TLS.
    pub plain_http: BTreeSet<String>,
    /// Hosts to which the registry may lead at any address, and which may be told its credentials:
    /// token services and blob stores in a private network.
    pub trusted_hosts: BTreeSet<String>,
    /// PEM certificates that are trusted beside the system's.
    pub ca_bundle: Option<String>,
    /// Who asks.
    pub credentials: Option<Credentials>,
    /// For every host that nobody named here.
    pub judge: AddressJudge,
}

impl fmt::Debug for RegistryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, mirrors, plain_http, trusted_hosts, ca_bundle, credentials, judge: _ } = self;
        f.debug_struct("RegistryOptions")
            .field("host", host)
            .field("mirrors", mirrors)
            .field("plain_http", plain_http)
            .field("trusted_hosts", trusted_hosts)
            .field("ca_bundle", &ca_bundle.is_some())
            .field("credentials", credentials)
            .finish_non_exhaustive()
    }
}

/// The options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryOptionsError {
    /// A host is not one.
    #[error(
        "{0:?} is no host of a registry; write ghcr.io or registry.local:5000, without https:// and without a path"
    )]
    Host(String),
    /// The CA bundle holds something else, or nothing.
    #[error("this is no list of PEM certificates: write them one after the other, each with its BEGIN and END line")]
    CaBundle,
    /// A certificate of the CA bundle.
    #[error("take certificate {index} as a root; it must be an X.509 certificate")]
    Certificate {
        /// In the bundle, from 0.
        index: usize,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// TLS settings.
    #[error("set up TLS for {0}")]
    Tls(String, #[source] rustls::Error),
}

impl RegistryOptionsError {
    /// Whether the CA bundle is what cannot be used: the caller knows where it is from.
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
        let settings = TransportOptions {
            roots: Arc::new(roots(options.ca_bundle.as_deref())?),
            resolver: Arc::new(SystemResolver::default()),
            // What a registry names is judged when it is looked up.
            judge: Arc::new(move |name: &str, address: IpAddr| match named.contains(name) {
                true => Ok(address),
                false => judge(address).map(|()| address).map_err(Refusal),
            }),
            headers_max: HEADERS_MAX,
            idle_max: 1,
        };
        let client =
            Client::new(&settings, None).map_err(|error| RegistryOptionsError::Tls(options.host.clone(), error))?;
        Ok(Self { options: Arc::new(options), client })
    }

    /// Who is asked, in this order.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.options.mirrors.iter().map(String::as_str).chain([self.options.host.as_str()])
    }
}

/// The system's roots and the operator's.
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
    /// Hosts that the operator named: they may have any address.
    fn named(&self) -> impl Iterator<Item = &String> {
        self.mirrors.iter().chain(&self.plain_http).chain(&self.trusted_hosts).chain([&self.host])
    }

    /// The base of a host's URLs.
    pub(super) fn base(&self, host: &str) -> String {
        let scheme = if self.is_plain(host) { "http" } else { "https" };
        format!("{scheme}://{host}/v2/")
    }

    fn is_plain(&self, host: &str) -> bool {
        self.plain_http.iter().any(|plain| plain.eq_ignore_ascii_case(host))
    }

    /// Whether a URL is one of this host: `ghcr.io` and `GHCR.io:443` are one. A host that is
    /// spoken to without TLS may lead to itself with it.
    pub(super) fn is_of(&self, url: &Url, host: &str) -> bool {
        let Some(name) = url.host_str() else { return false };
        if name_of(host) == host {
            let speaks = url.scheme() == "https" || self.is_plain(host);
            return speaks && url.port().is_none() && name.eq_ignore_ascii_case(host);
        }
        let port = url.port_or_known_default();
        port.is_some_and(|port| format!("{name}:{port}").eq_ignore_ascii_case(host))
    }

    /// Whether `from`, a host that was asked, may lead here.
    pub(super) fn judge_url(&self, from: &str, to: &Url) -> Result<(), Astray> {
        if to.host().is_none() {
            return Err(Astray::NoHost);
        }
        let is_plain = || self.plain_http.iter().any(|plain| self.is_of(to, plain));
        if to.scheme() != "https" && !(to.scheme() == "http" && is_plain()) {
            return Err(Astray::NotHttps);
        }
        if self.is_of(to, from) || self.named().any(|named| self.is_of(to, named)) {
            return Ok(());
        }
        let address = match to.host() {
            Some(url::Host::Ipv4(address)) => IpAddr::V4(address),
            Some(url::Host::Ipv6(address)) => IpAddr::V6(address),
            // Judged when it is looked up.
            Some(url::Host::Domain(_)) | None => return Ok(()),
        };
        (self.judge)(address).map_err(Astray::Address)
    }

    /// Whether the token service at `realm` may be told the credentials of `host`.
    ///
    /// That of a parent domain may: `registry.gitlab.com` has its at `gitlab.com`. A single label
    /// is no parent.
    pub(super) fn may_learn_credentials(&self, host: &str, realm: &Url) -> bool {
        /// Docker Hub's token service beside its registry.
        const DOCKER_HUB: (&str, &str) = ("index.docker.io", "auth.docker.io");
        let Some(name) = host_of(realm) else { return false };
        let parent = name.contains('.') && name_of(host).to_ascii_lowercase().ends_with(&format!(".{name}"));
        let trusted = || self.trusted_hosts.iter().any(|trusted| self.is_of(realm, trusted));
        self.is_of(realm, host) || parent || (host, name.as_str()) == DOCKER_HUB || trusted()
    }
}

/// `host`, or `host:port` where the port is not the scheme's.
pub(super) fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// A name or an address, with or without a port.
fn is_host(text: &str) -> bool {
    // A port that is none is not one of it either.
    let is_whole = |host: &http::uri::Authority| host.host() == text || host.port_u16().is_some();
    text.parse().is_ok_and(|host| is_whole(&host) && !host.host().is_empty() && !text.contains('@'))
}

/// Without the port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

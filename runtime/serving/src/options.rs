//! The operator's settings for serving: plain values, named like upstream's flags.
//!
//! Nothing is checked here; an invalid value is an error when the server is created.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

/// Upstream's port of the secure endpoints.
pub const SECURE_PORT: u16 = 10258;
/// Upstream's port of the webhooks.
pub const WEBHOOK_SECURE_PORT: u16 = 10260;
/// Upstream's base name of the secure endpoints' files in `--cert-dir`.
pub const PAIR_NAME: &str = "cloud-controller-manager";
/// Upstream's base name of the webhooks' files in `--webhook-cert-dir`.
pub const WEBHOOK_PAIR_NAME: &str = "cloud-controller-manager-webhook";

/// One HTTPS port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureServingOptions {
    /// `--bind-address`. Default 0.0.0.0.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 disables the port.
    pub secure_port: u16,
    /// `--permit-port-sharing`: others may bind the same port (`SO_REUSEPORT`). Default false.
    pub permit_port_sharing: bool,
    /// `--http2-max-streams-per-connection`; 0 is 100, as upstream.
    pub http2_max_streams_per_connection: u32,
    /// `--disable-http2-serving`. Default false.
    pub disable_http2_serving: bool,
    /// Certificates and TLS settings.
    pub tls: TlsOptions,
}

/// Certificates and TLS settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// `--cert-dir`: folder with PAIR.crt and PAIR.key, which are created if they do not exist.
    /// `None`: a certificate in memory.
    pub cert_dir: Option<PathBuf>,
    /// The base name of the two files in `cert_dir`.
    pub pair_name: &'static str,
    /// `--tls-cert-file` and `--tls-private-key-file`, which take precedence over `cert_dir`.
    pub key_pair: Option<KeyPairFiles>,
    /// `--tls-sni-cert-key`.
    pub sni: Vec<SniKeyPair>,
    /// `--tls-cipher-suites`, by IANA's names. Empty: all suites of rustls. The suites of TLS 1.3
    /// are always enabled, as in Go.
    pub cipher_suites: Vec<String>,
    /// `--tls-min-version`: `VersionTLS12` or `VersionTLS13`. `None`: TLS 1.2.
    pub min_version: Option<String>,
    /// `--tls-curve-preferences`: numbers of key exchanges, as Go's `CurveID`. Empty: all of
    /// rustls.
    pub curve_preferences: Vec<u16>,
}

/// Files of a certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

/// A certificate for certain server names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniKeyPair {
    /// The files.
    pub files: KeyPairFiles,
    /// The server names, `*.` at the beginning for one label. Empty: the names in the certificate.
    pub names: Vec<String>,
}

/// Settings of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationOptions {
    /// `--authentication-skip-lookup`: do not read the ConfigMap
    /// kube-system/extension-apiserver-authentication. Default false.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: start even if the ConfigMap cannot be read.
    /// Default false.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`. Default 10 s; zero disables the cache.
    pub token_cache_ttl: Duration,
    /// `--client-ca-file`. `None`: the CA in the ConfigMap.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-…`; used if `ca_file` is set, otherwise the ConfigMap is used.
    pub request_header: RequestHeaderOptions,
}

/// The front proxy (aggregating API server) that sends the user in request headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`.
    pub ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`: common names of the proxy's certificate. Empty: any
    /// certificate of the CA.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`. Default x-remote-user.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`. Default none.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`. Default x-remote-group.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`. Default x-remote-extra-.
    pub extra_headers_prefixes: Vec<String>,
}

/// Settings of authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationOptions {
    /// `--authorization-always-allow-paths`: exact paths, `*` at the end for a prefix. Default
    /// /healthz, /readyz, /livez.
    pub always_allow_paths: Vec<String>,
    /// Groups that may do everything. Default system:masters; upstream has no flag for it.
    pub always_allow_groups: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`. Default 10 s; zero disables the cache.
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`. Default 10 s; zero disables the cache.
    pub unauthorized_ttl: Duration,
}

/// Time-to-live of every cache of answers.
const CACHE_TTL: Duration = Duration::from_secs(10);

impl SecureServingOptions {
    /// The defaults of the port for the process's own endpoints.
    #[must_use]
    pub fn endpoints() -> Self {
        Self::with(SECURE_PORT, PAIR_NAME)
    }

    /// The defaults of the port for webhooks.
    #[must_use]
    pub fn webhooks() -> Self {
        Self::with(WEBHOOK_SECURE_PORT, WEBHOOK_PAIR_NAME)
    }

    fn with(secure_port: u16, pair_name: &'static str) -> Self {
        Self {
            bind_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            secure_port,
            permit_port_sharing: false,
            http2_max_streams_per_connection: 0,
            disable_http2_serving: false,
            tls: TlsOptions {
                cert_dir: None,
                pair_name,
                key_pair: None,
                sni: Vec::new(),
                cipher_suites: Vec::new(),
                min_version: None,
                curve_preferences: Vec::new(),
            },
        }
    }
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        Self {
            skip_lookup: false,
            tolerate_lookup_failure: false,
            token_cache_ttl: CACHE_TTL,
            client_ca_file: None,
            request_header: RequestHeaderOptions::default(),
        }
    }
}

impl Default for RequestHeaderOptions {
    fn default() -> Self {
        Self {
            ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned()],
            uid_headers: Vec::new(),
            group_headers: vec!["x-remote-group".to_owned()],
            extra_headers_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        Self {
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).to_vec(),
            always_allow_groups: vec!["system:masters".to_owned()],
            authorized_ttl: CACHE_TTL,
            unauthorized_ttl: CACHE_TTL,
        }
    }
}

//! The flags of `skysail push` and `skysail pull`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use skysail_host::Limits;

use super::OutputFormat;

/// Flags for the connection to a registry.
#[derive(Debug, Args)]
#[command(next_help_heading = "Registry")]
pub(crate) struct RegistryArgs {
    /// Docker configuration with the credentials for the registry; credential helpers work.
    /// Default: the configuration that `docker login` wrote, if it exists.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) registry_config: Option<PathBuf>,
    /// Registry to connect to without TLS: `localhost:5000`. May be repeated.
    #[arg(long, value_name = "HOST")]
    pub(crate) plain_http: Vec<String>,
    /// PEM file with CA certificates to trust in addition to those of the system.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) registry_ca: Option<PathBuf>,
    /// Host to which the registry may redirect although its address is private, and to whose token
    /// service the registry's credentials may be sent. May be repeated.
    #[arg(long, value_name = "HOST")]
    pub(crate) trusted_host: Vec<String>,
    /// Proxy for all requests: `http://proxy.example.com:3128`. The environment variables of
    /// proxies are not used.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) registry_proxy: Option<String>,
    /// Largest size of a component, in bytes, up to 268435456. A manager accepts components up to
    /// the limit `componentBytes` of the provider, which has the same default.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().component_bytes, value_parser = clap::value_parser!(u64).range(1..=256 << 20))]
    pub(crate) component_bytes: u64,
}

/// `skysail push`.
#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// File of the component.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Reference to push to: `ghcr.io/org/provider:v1`.
    pub(crate) reference: String,
    /// Annotation of the manifest, `KEY=VALUE`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    pub(crate) annotation: Vec<(String, String)>,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// `skysail pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Reference to pull, with a tag or a digest: `ghcr.io/org/provider:v1`.
    pub(crate) reference: String,
    /// File to write; an existing file is replaced atomically. Default: the last part of the
    /// repository's name with `.wasm`, in the current folder.
    #[arg(long, short = 'f', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    /// Public key that must have signed the component, as cosign writes it to `cosign.pub`; without
    /// a valid signature nothing is pulled. May be repeated: then each key must have signed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) certificate: CertificateArgs,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// The identity of a keyless signature; the flags have the names that `cosign verify` gives them.
#[derive(Debug, Args)]
pub(crate) struct CertificateArgs {
    /// Identity in the certificate that must have signed the component: an e-mail address, or the
    /// URI of a workflow. Without a valid signature nothing is pulled.
    #[arg(long, value_name = "SUBJECT", requires_all = ["certificate_oidc_issuer", "trusted_root"])]
    pub(crate) certificate_identity: Option<String>,
    /// OIDC issuer of that identity, exactly as the certificate names it.
    #[arg(long, value_name = "URL", requires = "certificate_identity")]
    pub(crate) certificate_oidc_issuer: Option<String>,
    /// File `trusted_root.json` of the Sigstore instance that issued the certificate. Skysail does
    /// not download one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate_identity")]
    pub(crate) trusted_root: Option<PathBuf>,
}

fn annotation(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} has no =; write KEY=VALUE"))?;
    if key.is_empty() {
        return Err(format!("{text:?} has no key; write KEY=VALUE"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

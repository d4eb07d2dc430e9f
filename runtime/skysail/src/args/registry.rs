//! The flags of `skysail push` and `skysail pull`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use skysail_host::Limits;

use super::OutputFormat;

/// How a registry is reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Registry")]
pub(crate) struct RegistryArgs {
    /// Docker configuration with the log-in, credential helpers included. Without it: that of
    /// `docker login`, if there is one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) registry_config: Option<PathBuf>,
    /// Host that is spoken to without TLS: `localhost:5000`. May be repeated.
    #[arg(long, value_name = "HOST")]
    pub(crate) plain_http: Vec<String>,
    /// PEM certificates to trust beside the system's.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) registry_ca: Option<PathBuf>,
    /// Host that the registry may lead to although it is private, and whose token service may learn
    /// the log-in. May be repeated.
    #[arg(long, value_name = "HOST")]
    pub(crate) trusted_host: Vec<String>,
    /// Largest component, in bytes, up to 268435456. What a manager takes is its provider's limit
    /// `componentBytes`, with the same default.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().component_bytes, value_parser = clap::value_parser!(u64).range(1..=256 << 20))]
    pub(crate) component_bytes: u64,
}

/// `skysail push`.
#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The component.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Where to: `ghcr.io/org/provider:v1`.
    pub(crate) reference: String,
    /// Annotation of the manifest, `KEY=VALUE`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    pub(crate) annotation: Vec<(String, String)>,
    /// How the result is printed.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// `skysail pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// What: `ghcr.io/org/provider:v1`, or with a digest.
    pub(crate) reference: String,
    /// The file to write; replaced as a whole. Without it: the repository's last name with `.wasm`,
    /// here.
    #[arg(long, short = 'f', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// How the result is printed.
    #[arg(long, short, default_value = "text", value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    /// A public key, as cosign writes it to `cosign.pub`: it has to have signed, else nothing is
    /// pulled. May be given several times; then all of them have to.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) certificate: CertificateArgs,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// Who has to have signed without a key; the flags have the names that `cosign verify` gives them.
#[derive(Debug, Args)]
pub(crate) struct CertificateArgs {
    /// Who has to have signed with a certificate, else nothing is pulled: an address, or the URI of
    /// a workflow.
    #[arg(long, value_name = "SUBJECT", requires_all = ["certificate_oidc_issuer", "trusted_root"])]
    pub(crate) certificate_identity: Option<String>,
    /// The issuer that knows them by this name, exactly as the certificate has it.
    #[arg(long, value_name = "URL", requires = "certificate_identity")]
    pub(crate) certificate_oidc_issuer: Option<String>,
    /// The `trusted_root.json` of the Sigstore instance that they sign with. Nothing is fetched.
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

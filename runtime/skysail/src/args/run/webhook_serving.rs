//! Upstream's flag sets "webhook" and "webhook serving": admission webhooks on a separate port.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use clap::{ArgAction, Args, ValueHint};
use skysail_serving::options::{SecureServingOptions, SniKeyPair, TlsOptions, WEBHOOK_PAIR_NAME, WEBHOOK_SECURE_PORT};

use super::secure_serving::{filled, key_pair, sni_key_pair};
use crate::args::values::boolean;

/// The webhooks and their HTTPS port.
#[derive(Debug, Args)]
#[command(next_help_heading = "Webhook flags")]
pub(crate) struct WebhookServingArgs {
    /// Webhooks to serve, separated by commas: NAME enables a webhook, -NAME disables it, * enables
    /// all others. If none is enabled, the port is not bound.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) webhooks: Vec<String>,
    /// Address on which --webhook-secure-port is served.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub(crate) webhook_bind_address: IpAddr,
    /// HTTPS port of the webhooks, without authentication; 0 disables the webhooks. It has to
    /// differ from --secure-port.
    #[arg(long, value_name = "PORT", default_value_t = WEBHOOK_SECURE_PORT)]
    pub(crate) webhook_secure_port: u16,
    /// Folder with cloud-controller-manager-webhook.crt and .key; both files are created if they
    /// are missing.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) webhook_cert_dir: Option<PathBuf>,
    /// PEM file with the server certificate and its intermediate certificates. It is read again
    /// when it changes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "webhook_tls_private_key_file")]
    pub(crate) webhook_tls_cert_file: Option<PathBuf>,
    /// Private key of --webhook-tls-cert-file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "webhook_tls_cert_file")]
    pub(crate) webhook_tls_private_key_file: Option<PathBuf>,
    /// Same as --tls-sni-cert-key, for the webhooks.
    #[arg(long, value_name = "PAIR", value_parser = sni_key_pair)]
    pub(crate) webhook_tls_sni_cert_key: Vec<SniKeyPair>,
    /// Same as --tls-cipher-suites, for the webhooks.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) webhook_tls_cipher_suites: Vec<String>,
    /// Same as --tls-min-version, for the webhooks.
    #[arg(long, value_name = "VERSION")]
    pub(crate) webhook_tls_min_version: Option<String>,
    /// Same as --tls-curve-preferences, for the webhooks.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) webhook_tls_curve_preferences: Vec<u16>,
    /// Serve HTTP/1.1 only.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) webhook_disable_http2_serving: bool,
}

impl WebhookServingArgs {
    /// The names that `--webhooks` gives.
    pub(crate) fn selected(&self) -> Vec<String> {
        filled(&self.webhooks)
    }

    /// The same as a value of `skysail-serving`.
    pub(crate) fn options(&self) -> SecureServingOptions {
        SecureServingOptions {
            bind_address: self.webhook_bind_address,
            secure_port: self.webhook_secure_port,
            disable_http2_serving: self.webhook_disable_http2_serving,
            tls: TlsOptions {
                cert_dir: self.webhook_cert_dir.clone(),
                pair_name: WEBHOOK_PAIR_NAME,
                key_pair: key_pair(self.webhook_tls_cert_file.as_ref(), self.webhook_tls_private_key_file.as_ref()),
                sni: self.webhook_tls_sni_cert_key.clone(),
                cipher_suites: filled(&self.webhook_tls_cipher_suites),
                min_version: self.webhook_tls_min_version.clone().filter(|version| !version.is_empty()),
                curve_preferences: self.webhook_tls_curve_preferences.clone(),
            },
            ..SecureServingOptions::webhooks()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use skysail_serving::options::SecureServingOptions;

    use super::WebhookServingArgs;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        webhooks: WebhookServingArgs,
    }

    #[test]
    fn o1_without_flags_the_defaults_are_upstreams() {
        let command = Command::try_parse_from(["skysail"]).unwrap();
        assert_eq!(command.webhooks.options(), SecureServingOptions::webhooks());
        assert!(command.webhooks.selected().is_empty());
    }

    #[test]
    fn o2_a_name_may_begin_with_a_minus_sign() {
        for arguments in [&["skysail", "--webhooks=foo,bar,-baz"][..], &["skysail", "--webhooks", "foo,bar,-baz"]] {
            let command = Command::try_parse_from(arguments).unwrap();
            assert_eq!(command.webhooks.selected(), ["foo", "bar", "-baz"]);
        }
    }
}

//! Upstream's flag sets "secure serving" and "debugging": the HTTPS port of this process.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use clap::{ArgAction, Args, ValueHint};
use skysail_serving::options::{KeyPairFiles, PAIR_NAME, SECURE_PORT, SecureServingOptions, SniKeyPair, TlsOptions};

use crate::args::values::boolean;

/// The HTTPS port of this process.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving flags")]
pub(crate) struct SecureServingArgs {
    /// Address on which --secure-port is served.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub(crate) bind_address: IpAddr,
    /// HTTPS port of /healthz, /livez, /readyz, /metrics, /metrics/slis, /configz, /providers,
    /// /services and /debug; 0 disables the port.
    #[arg(long, value_name = "PORT", default_value_t = SECURE_PORT)]
    pub(crate) secure_port: u16,
    /// Folder with cloud-controller-manager.crt and .key; both files are created if they are
    /// missing. Without this flag a self-signed certificate is created in memory.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cert_dir: Option<PathBuf>,
    /// PEM file with the server certificate and its intermediate certificates. It is read again
    /// when it changes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Certificate for some host names (SNI): CERT,KEY or CERT,KEY:NAME,*.NAME. May be repeated.
    #[arg(long, value_name = "PAIR", value_parser = sni_key_pair)]
    pub(crate) tls_sni_cert_key: Vec<SniKeyPair>,
    /// Cipher suites of TLS 1.2 by their IANA names, separated by commas. Default: all that rustls
    /// supports. The cipher suites of TLS 1.3 are always enabled.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tls_cipher_suites: Vec<String>,
    /// Lowest TLS version: `VersionTLS12` or `VersionTLS13`. Default: `VersionTLS12`.
    #[arg(long, value_name = "VERSION")]
    pub(crate) tls_min_version: Option<String>,
    /// Key exchange groups by their IANA numbers, separated by commas: 23, 24, 29. Default: all
    /// that rustls supports.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub(crate) tls_curve_preferences: Vec<u16>,
    /// Largest number of streams in one HTTP/2 connection; 0 means 100.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) http2_max_streams_per_connection: u32,
    /// Serve HTTP/1.1 only.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) disable_http2_serving: bool,
    /// Let other processes bind the same port (`SO_REUSEPORT`).
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) permit_port_sharing: bool,
    /// Serve /debug/flags/v, which changes the log level while the process runs. There is no
    /// /debug/pprof, because Skysail is not written in Go.
    #[arg(long, value_name = "BOOL", default_value = "true", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) profiling: bool,
}

impl SecureServingArgs {
    /// The same as a value of `skysail-serving`.
    pub(crate) fn options(&self) -> SecureServingOptions {
        SecureServingOptions {
            bind_address: self.bind_address,
            secure_port: self.secure_port,
            permit_port_sharing: self.permit_port_sharing,
            http2_max_streams_per_connection: self.http2_max_streams_per_connection,
            disable_http2_serving: self.disable_http2_serving,
            tls: TlsOptions {
                cert_dir: self.cert_dir.clone(),
                pair_name: PAIR_NAME,
                key_pair: key_pair(self.tls_cert_file.as_ref(), self.tls_private_key_file.as_ref()),
                sni: self.tls_sni_cert_key.clone(),
                cipher_suites: filled(&self.tls_cipher_suites),
                min_version: self.tls_min_version.clone().filter(|version| !version.is_empty()),
                curve_preferences: self.tls_curve_preferences.clone(),
            },
        }
    }
}

/// The two files of a pair; clap requires both or neither.
pub(super) fn key_pair(certificate: Option<&PathBuf>, key: Option<&PathBuf>) -> Option<KeyPairFiles> {
    certificate.zip(key).map(|(certificate, key)| KeyPairFiles { certificate: certificate.clone(), key: key.clone() })
}

/// The list without empty entries: `--flag=` is an empty list, as in Go.
pub(super) fn filled(list: &[String]) -> Vec<String> {
    list.iter().filter(|word| !word.is_empty()).cloned().collect()
}

/// Parses `CERT,KEY` and `CERT,KEY:NAME,NAME`, as upstream.
pub(super) fn sni_key_pair(text: &str) -> Result<SniKeyPair, String> {
    let (files, names) = text.rsplit_once(':').unwrap_or((text, ""));
    let (certificate, key) = files
        .split_once(',')
        .filter(|(certificate, key)| !certificate.is_empty() && !key.is_empty())
        .ok_or_else(|| {
            format!(
                "{text:?} does not name two files; write CERT,KEY or CERT,KEY:NAME,NAME with the files of a certificate and its key"
            )
        })?;
    let names = names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    Ok(SniKeyPair { files: KeyPairFiles { certificate: certificate.into(), key: key.into() }, names })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use skysail_serving::options::SecureServingOptions;

    use super::{SecureServingArgs, sni_key_pair};

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Command {
        #[command(flatten)]
        serving: SecureServingArgs,
    }

    fn parse(arguments: &[&str]) -> Result<SecureServingArgs, clap::Error> {
        Command::try_parse_from([&["skysail"], arguments].concat()).map(|command| command.serving)
    }

    #[test]
    fn o1_without_flags_the_defaults_are_upstreams() {
        let serving = parse(&[]).unwrap();
        assert_eq!(serving.options(), SecureServingOptions::endpoints());
        assert!(serving.profiling);
    }

    #[test]
    fn o2_the_options_are_those_of_the_command_line() {
        let options = parse(&[
            "--bind-address=192.0.2.1",
            "--secure-port=10001",
            "--cert-dir=/a/b/c",
            "--tls-cipher-suites=A,B",
            "--tls-curve-preferences=29,23",
            "--disable-http2-serving",
            "--http2-max-streams-per-connection=47",
            "--permit-port-sharing=true",
            "--tls-sni-cert-key=a,b",
            "--tls-sni-cert-key=c,d:x.example",
        ]);
        let options = options.unwrap().options();
        assert_eq!((options.bind_address.to_string().as_str(), options.secure_port), ("192.0.2.1", 10001));
        assert_eq!(options.tls.cert_dir.unwrap().to_str(), Some("/a/b/c"));
        assert_eq!(
            (options.tls.cipher_suites, options.tls.curve_preferences),
            (vec!["A".into(), "B".into()], vec![29, 23])
        );
        assert!(options.disable_http2_serving && options.permit_port_sharing);
        assert_eq!((options.http2_max_streams_per_connection, options.tls.sni.len()), (47, 2));
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        assert!(parse(&["--tls-cert-file=a"]).is_err() && parse(&["--tls-private-key-file=a"]).is_err());
        assert!(parse(&["--tls-cert-file=a", "--tls-private-key-file=b"]).unwrap().options().tls.key_pair.is_some());
    }

    #[test]
    fn a_pair_may_come_with_names() {
        let pair = sni_key_pair("a.crt,a.key:*.a.example,b.example").unwrap();
        assert_eq!(pair.files.key.to_str(), Some("a.key"));
        assert_eq!(pair.names, ["*.a.example", "b.example"]);
        assert!(sni_key_pair("a.crt,a.key").unwrap().names.is_empty());
        assert!(sni_key_pair("a.crt").is_err() && sni_key_pair(",a.key").is_err());
    }
}

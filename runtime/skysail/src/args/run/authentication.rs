//! Upstream's flag sets "authentication" and "authorization" for the endpoints of this process.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueHint};
use skysail_serving::options::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions};

use super::secure_serving::filled;
use crate::args::values::{boolean, parse_duration_or_zero};

/// How callers of the endpoints are authenticated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication flags")]
pub(crate) struct AuthenticationArgs {
    /// Kubeconfig of the API server that reviews bearer tokens. Default: the service account of the
    /// pod; outside of a pod every caller is anonymous.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,
    /// Do not read the cluster's CA certificates from the ConfigMap
    /// kube-system/extension-apiserver-authentication.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) authentication_skip_lookup: bool,
    /// Start even if the ConfigMap kube-system/extension-apiserver-authentication cannot be read.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) authentication_tolerate_lookup_failure: bool,
    /// How long the result of a token review is cached.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_or_zero)]
    pub(crate) authentication_token_webhook_cache_ttl: Duration,
    /// PEM file with the CA certificates of client certificates. Default: from the ConfigMap
    /// kube-system/extension-apiserver-authentication.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// PEM file with the CA certificates of an authenticating front proxy, which names the user in
    /// request headers. Default: from the ConfigMap kube-system/extension-apiserver-authentication.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// Allowed common names of the front proxy's certificate, separated by commas. Default: any
    /// certificate that the CA signed.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name, set by the front proxy.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "x-remote-user")]
    pub(crate) requestheader_username_headers: Vec<String>,
    /// Headers with the user's UID, set by the front proxy.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups, set by the front proxy.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "x-remote-group")]
    pub(crate) requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with extra attributes of the user, set by the front proxy.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', default_value = "x-remote-extra-")]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,
}

impl AuthenticationArgs {
    /// The same as a value of `skysail-serving`.
    pub(crate) fn options(&self) -> AuthenticationOptions {
        AuthenticationOptions {
            skip_lookup: self.authentication_skip_lookup,
            tolerate_lookup_failure: self.authentication_tolerate_lookup_failure,
            token_cache_ttl: self.authentication_token_webhook_cache_ttl,
            client_ca_file: self.client_ca_file.clone(),
            request_header: RequestHeaderOptions {
                ca_file: self.requestheader_client_ca_file.clone(),
                allowed_names: filled(&self.requestheader_allowed_names),
                username_headers: filled(&self.requestheader_username_headers),
                uid_headers: filled(&self.requestheader_uid_headers),
                group_headers: filled(&self.requestheader_group_headers),
                extra_headers_prefixes: filled(&self.requestheader_extra_headers_prefix),
            },
        }
    }
}

/// How callers of the endpoints are authorized.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authorization flags")]
pub(crate) struct AuthorizationArgs {
    /// Kubeconfig of the API server that reviews access. Default: the service account of the pod;
    /// outside of a pod only the paths of --authorization-always-allow-paths are served.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorization_kubeconfig: Option<PathBuf>,
    /// Paths that need no authorization, separated by commas; a `*` at the end matches any suffix.
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub(crate) authorization_always_allow_paths: Vec<String>,
    /// How long an access review with the result "allowed" is cached.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_or_zero)]
    pub(crate) authorization_webhook_cache_authorized_ttl: Duration,
    /// How long an access review with the result "denied" is cached.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_or_zero)]
    pub(crate) authorization_webhook_cache_unauthorized_ttl: Duration,
}

impl AuthorizationArgs {
    /// The same as a value of `skysail-serving`.
    pub(crate) fn options(&self) -> AuthorizationOptions {
        AuthorizationOptions {
            always_allow_paths: filled(&self.authorization_always_allow_paths),
            authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
            ..AuthorizationOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use skysail_serving::options::{AuthenticationOptions, AuthorizationOptions};

    use super::{AuthenticationArgs, AuthorizationArgs};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        authentication: AuthenticationArgs,
        #[command(flatten)]
        authorization: AuthorizationArgs,
    }

    #[test]
    fn o1_without_flags_the_defaults_are_upstreams() {
        let command = Command::try_parse_from(["skysail"]).unwrap();
        assert_eq!(command.authentication.options(), AuthenticationOptions::default());
        assert_eq!(command.authorization.options(), AuthorizationOptions::default());
    }

    #[test]
    fn o2_an_empty_list_of_public_paths_clears_the_default() {
        let command = Command::try_parse_from(["skysail", "--authorization-always-allow-paths="]).unwrap();
        assert!(command.authorization.options().always_allow_paths.is_empty());
    }
}

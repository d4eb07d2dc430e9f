//! Upstream's sets "authentication" and "authorization": who may ask for the process's own
//! endpoints.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueHint};
use skysail_serving::options::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions};

use super::secure_serving::filled;
use crate::args::values::{boolean, parse_duration_or_zero};

/// Who may be believed to be whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication flags")]
pub(crate) struct AuthenticationArgs {
    /// Kubeconfig of the API server that reviews tokens. Without it: the pod's own account; outside
    /// of a pod everybody is anonymous.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,
    /// Do not read the cluster's authorities from the ConfigMap
    /// kube-system/extension-apiserver-authentication.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) authentication_skip_lookup: bool,
    /// Start although that ConfigMap cannot be read.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = boolean())]
    pub(crate) authentication_tolerate_lookup_failure: bool,
    /// How long an answer about a token is kept.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_or_zero)]
    pub(crate) authentication_token_webhook_cache_ttl: Duration,
    /// Authorities of client certificates. Without it: what the ConfigMap says.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Authorities of a front proxy, which says in headers whom it speaks for. Without it: what the
    /// ConfigMap says.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of the front proxy's certificate, with commas. Without it: any that the
    /// authority signed.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) requestheader_allowed_names: Vec<String>,
    /// Headers in which the front proxy names the user.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "x-remote-user")]
    pub(crate) requestheader_username_headers: Vec<String>,
    /// Headers in which the front proxy tells the user's UID.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) requestheader_uid_headers: Vec<String>,
    /// Headers in which the front proxy names the user's groups.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "x-remote-group")]
    pub(crate) requestheader_group_headers: Vec<String>,
    /// Prefixes of headers in which the front proxy tells more of the user.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', default_value = "x-remote-extra-")]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,
}

impl AuthenticationArgs {
    /// As `skysail-serving` takes it.
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

/// Who may ask what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Authorization flags")]
pub(crate) struct AuthorizationArgs {
    /// Kubeconfig of the API server that reviews rights. Without it: the pod's own account; outside
    /// of a pod only public paths are served.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorization_kubeconfig: Option<PathBuf>,
    /// Paths that everybody may ask, with commas; a `*` at the end stands for anything.
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub(crate) authorization_always_allow_paths: Vec<String>,
    /// How long a yes is kept.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_or_zero)]
    pub(crate) authorization_webhook_cache_authorized_ttl: Duration,
    /// How long a no is kept.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_or_zero)]
    pub(crate) authorization_webhook_cache_unauthorized_ttl: Duration,
}

impl AuthorizationArgs {
    /// As `skysail-serving` takes it.
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
    fn o1_nothing_said_is_upstreams_defaults() {
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

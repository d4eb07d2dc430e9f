//! Registry credentials from a Docker configuration (`~/.docker/config.json`, or the key
//! `.dockerconfigjson` of a Secret), with the credential helpers that it names.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde::Deserialize;
use serde_json::{Value, json};
use skysail_egress::read_file;

use crate::error::RegistryFailure;

mod helper;

/// Docker Hub's host, and its name in a Docker configuration.
const DOCKER_HUB: (&str, &str) = ("index.docker.io", "https://index.docker.io/v1/");

/// Where the configuration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryCredentials {
    /// A file. It is read for each login, so that rotated credentials are used.
    File(PathBuf),
    /// The configuration itself.
    Text(DockerConfig),
}

/// A Docker configuration; its `Debug` output shows no content.
#[derive(Clone, PartialEq, Eq)]
pub struct DockerConfig {
    text: Arc<str>,
    /// The origin, for messages: `Secret cloud/registry`.
    origin: Arc<str>,
}

impl DockerConfig {
    /// Largest configuration that is read, in bytes: the largest size of a Secret.
    pub const BYTES_MAX: u64 = 1 << 20;

    /// Wraps a configuration and its origin.
    #[must_use]
    pub fn new(text: &str, origin: &str) -> Self {
        Self { text: text.into(), origin: origin.into() }
    }

    /// Checks that the text is a Docker configuration, before it is used.
    ///
    /// # Errors
    /// The origin, and what to write there.
    pub fn check(&self) -> Result<(), String> {
        Config::parse(self.text.as_bytes(), &self.origin).map(drop)
    }
}

impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DockerConfig").field(&self.origin).finish()
    }
}

/// The credentials that are sent to a registry or its token service.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Basic { username: String, password: String },
    IdentityToken(String),
}

impl RegistryCredentials {
    /// The login for this host; `None` if the configuration has none.
    pub(super) async fn of(&self, host: &str) -> Result<Option<Login>, RegistryFailure> {
        let unusable = |reason: String| RegistryFailure::Credentials { host: host.to_owned(), reason };
        let server = if host == DOCKER_HUB.0 { DOCKER_HUB.1 } else { host };
        self.look_up(server).await.map_err(unusable)
    }

    async fn look_up(&self, server: &str) -> Result<Option<Login>, String> {
        match self {
            Self::File(path) => {
                let origin = path.display().to_string();
                let config = Config::parse(&read(path.clone()).await?, &origin)?;
                if let Some(name) = config.helpers.of(server) {
                    return helper::ask(name, &origin, server).await;
                }
                match (config.log_in(&origin, server)?, &config.helpers.creds_store) {
                    (None, Some(name)) if !name.is_empty() => helper::ask(name, &origin, server).await,
                    (found, _) => Ok(found),
                }
            }
            Self::Text(DockerConfig { text, origin }) => {
                let config = Config::parse(text.as_bytes(), origin)?;
                if config.names_helpers {
                    return Err(format!(
                        "{origin}: a credential helper is a program, and is allowed only in a provider file; write the log-in under auths"
                    ));
                }
                config.log_in(origin, server)
            }
        }
    }
}

/// Reads the file of a configuration, up to its size limit.
async fn read(path: PathBuf) -> Result<Vec<u8>, String> {
    let read = move || {
        let read = read_file(&path, DockerConfig::BYTES_MAX);
        read.map_err(|error| format!("{} cannot be read: {error}", path.display()))
    };
    tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?
}

/// A configuration in two parts: its own credentials, and the credential helpers that it names.
/// `auths` is serialised again without the helpers, because write access to a Secret must not
/// choose which programs the manager runs, even if two parsers read the text differently.
struct Config {
    auths: String,
    names_helpers: bool,
    helpers: Helpers,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Helpers {
    cred_helpers: Option<BTreeMap<String, String>>,
    creds_store: Option<String>,
}

impl Helpers {
    /// The helper that is configured for this server.
    fn of(&self, server: &str) -> Option<&String> {
        self.cred_helpers.as_ref()?.get(server).filter(|name| !name.is_empty())
    }
}

impl Config {
    fn parse(bytes: &[u8], origin: &str) -> Result<Self, String> {
        let no_config = || format!("{origin} is not a Docker configuration; write {{\"auths\": …}} into it");
        let Ok(Value::Object(config)) = serde_json::from_slice(bytes) else { return Err(no_config()) };
        let names_helpers = config.contains_key("credsStore") || config.contains_key("credHelpers");
        let auths = json!({ "auths": config.get("auths").cloned().unwrap_or_else(|| json!({})) }).to_string();
        let helpers = serde_json::from_value(Value::Object(config)).map_err(|_| no_config())?;
        Ok(Self { auths, names_helpers, helpers })
    }

    /// The configuration's own credentials for this server.
    fn log_in(&self, origin: &str, server: &str) -> Result<Option<Login>, String> {
        match docker_credential::get_credential_from_reader(self.auths.as_bytes(), server) {
            Ok(DockerCredential::UsernamePassword(username, password)) => Ok(Some(Login::Basic { username, password })),
            Ok(DockerCredential::IdentityToken(token)) => Ok(Some(Login::IdentityToken(token))),
            Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
            Err(error) => Err(format!("{origin} is not a Docker configuration: {error}")),
        }
    }
}

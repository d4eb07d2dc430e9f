//! Who asks: a Docker configuration (`~/.docker/config.json`, or the key `.dockerconfigjson` of a Secret), with the credential helpers it names.

use std::{
    fmt,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde_json::{Value, json};

use super::failure::RegistryFailure;

/// Largest configuration that is read, in bytes: a Secret ends at 1 MiB.
const BYTES_MAX: u64 = 1 << 20;

/// What a credential helper may take.
const HELPER_TIMEOUT: Duration = Duration::from_secs(20);

/// Docker Hub's name in such a file.
const DOCKER_HUB: (&str, &str) = ("index.docker.io", "https://index.docker.io/v1/");

/// Where the configuration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A file. It is read for each log-in, so that what was rotated is used.
    File(PathBuf),
    /// The configuration itself.
    Text(DockerConfig),
}

/// A Docker configuration; it prints as nothing of what is in it.
#[derive(Clone, PartialEq, Eq)]
pub struct DockerConfig {
    text: Arc<str>,
    /// Where it is from, for people: `Secret cloud/registry`.
    origin: Arc<str>,
}

impl DockerConfig {
    /// Takes a configuration, and where it is from.
    #[must_use]
    pub fn new(text: &str, origin: &str) -> Self {
        Self { text: text.into(), origin: origin.into() }
    }
}

impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DockerConfig").field(&self.origin).finish()
    }
}

/// What a registry or its token service is shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Basic { username: String, password: String },
    IdentityToken(String),
}

impl Credentials {
    /// The log-in for this host; none where the configuration knows none.
    pub(super) async fn of(&self, host: &str) -> Result<Option<Login>, RegistryFailure> {
        let unusable = |reason: String| RegistryFailure::Credentials { host: host.to_owned(), reason };
        let credentials = self.clone();
        let server = if host == DOCKER_HUB.0 { DOCKER_HUB.1 } else { host }.to_owned();
        // A helper is a program that blocks; one that never ends keeps its thread, and the wait ends.
        let found = tokio::task::spawn_blocking(move || credentials.look_up(&server));
        match tokio::time::timeout(HELPER_TIMEOUT, found).await {
            Ok(Ok(found)) => found.map_err(unusable),
            Ok(Err(error)) => Err(unusable(error.to_string())),
            Err(_) => Err(unusable(format!("the credential helper was not done after {} s", HELPER_TIMEOUT.as_secs()))),
        }
    }

    fn look_up(&self, server: &str) -> Result<Option<Login>, String> {
        match self {
            Self::File(path) => look_up_in_file(path, server),
            Self::Text(DockerConfig { text, origin }) => look_up(auths_of(text, origin)?.as_bytes(), origin, server),
        }
    }
}

/// The part of a configuration that names no program: whoever may write it must not choose what the manager runs. It is written anew, so that no two
/// readers understand it differently.
fn auths_of(config: &str, origin: &str) -> Result<String, String> {
    let Ok(Value::Object(config)) = serde_json::from_str(config) else {
        return Err(format!("{origin} is no Docker configuration: write {{\"auths\": …}} into it"));
    };
    if config.contains_key("credsStore") || config.contains_key("credHelpers") {
        return Err(format!("{origin} names a credential helper, which only a file can: write auths into it"));
    }
    Ok(json!({ "auths": config.get("auths").cloned().unwrap_or_else(|| json!({})) }).to_string())
}

fn look_up_in_file(path: &Path, server: &str) -> Result<Option<Login>, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    look_up(file.take(BYTES_MAX), &path.display().to_string(), server)
}

fn look_up(config: impl Read, origin: &str, server: &str) -> Result<Option<Login>, String> {
    match docker_credential::get_credential_from_reader(config, server) {
        Ok(DockerCredential::UsernamePassword(username, password)) => Ok(Some(Login::Basic { username, password })),
        Ok(DockerCredential::IdentityToken(token)) => Ok(Some(Login::IdentityToken(token))),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
        // What a helper printed may hold the secret: its name is enough.
        Err(CredentialRetrievalError::HelperFailure { helper, .. }) => {
            Err(format!("{helper}, which {origin} names, failed: run it by hand with `get`"))
        }
        Err(CredentialRetrievalError::HelperCommunicationError) => {
            Err(format!("the credential helper that {origin} names cannot be run: is it on the PATH?"))
        }
        Err(error) => Err(format!("{origin} is no Docker configuration: {error}")),
    }
}

//! Who asks: a Docker configuration (`~/.docker/config.json`, or the key `.dockerconfigjson` of a Secret), with the credential helpers it names.

use std::{path::PathBuf, time::Duration};

use docker_credential::{CredentialRetrievalError, DockerCredential};

use super::failure::RegistryFailure;

/// Largest configuration that is read, in bytes: a Secret ends at 1 MiB.
const BYTES_MAX: u64 = 1 << 20;

/// What a credential helper may take.
const HELPER_TIMEOUT: Duration = Duration::from_secs(20);

/// Docker Hub's name in such a file.
const DOCKER_HUB: (&str, &str) = ("index.docker.io", "https://index.docker.io/v1/");

/// Where the configuration is. It is read for each log-in, so that what was rotated is used.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A file.
    File(PathBuf),
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
        let Self::File(path) = self.clone();
        let server = if host == DOCKER_HUB.0 { DOCKER_HUB.1 } else { host }.to_owned();
        // A helper is a program that blocks; one that never ends keeps its thread, and the wait ends.
        let found = tokio::task::spawn_blocking(move || look_up(&path, &server));
        match tokio::time::timeout(HELPER_TIMEOUT, found).await {
            Ok(Ok(found)) => found.map_err(unusable),
            Ok(Err(error)) => Err(unusable(error.to_string())),
            Err(_) => Err(unusable(format!("the credential helper was not done after {} s", HELPER_TIMEOUT.as_secs()))),
        }
    }
}

fn look_up(path: &std::path::Path, server: &str) -> Result<Option<Login>, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    match docker_credential::get_credential_from_reader(file.take(BYTES_MAX), server) {
        Ok(DockerCredential::UsernamePassword(username, password)) => Ok(Some(Login::Basic { username, password })),
        Ok(DockerCredential::IdentityToken(token)) => Ok(Some(Login::IdentityToken(token))),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
        // What a helper printed may hold the secret: its name is enough.
        Err(CredentialRetrievalError::HelperFailure { helper, .. }) => {
            Err(format!("{helper}, which {} names, failed: run it by hand with `get`", path.display()))
        }
        Err(CredentialRetrievalError::HelperCommunicationError) => {
            Err(format!("the credential helper that {} names cannot be run: is it on the PATH?", path.display()))
        }
        Err(error) => Err(format!("{} is no Docker configuration: {error}", path.display())),
    }
}

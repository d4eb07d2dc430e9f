//! A real kube-apiserver ([`skysail_test_support::apiserver`]) with clients, kubeconfigs and
//! kubectl.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;

use crate::{front::Front, wait::eventually, workspace::run};

/// The administrator's kubeconfig, in the folder of all kubeconfigs of a server.
pub(crate) const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";

/// A running API server. Dropping this value stops it and deletes its data.
#[derive(Debug)]
pub struct ApiServer {
    server: skysail_test_support::apiserver::ApiServer,
    folder: TempDir,
}

impl ApiServer {
    /// Builds the API server if needed, which may take minutes and the network.
    ///
    /// # Errors
    /// The API server cannot be built; the error names what is missing.
    pub fn prepare() -> Result<()> {
        skysail_test_support::apiserver::ApiServer::prepare().context("there is no real API server to test against")
    }

    /// Starts an API server in the network namespace of this thread and waits until it is ready.
    ///
    /// # Errors
    /// The API server cannot be built or started; the error names what is missing.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same with these flags of kube-apiserver.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(flags: &[&str]) -> Result<Self> {
        let server = skysail_test_support::apiserver::ApiServer::start_with(flags)
            .context("there is no real API server to test against")?;
        let folder = TempDir::new()?;
        fs::write(folder.path().join(ADMIN_KUBECONFIG), server.kubeconfig_yaml())?;
        Ok(Self { server, folder })
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join(ADMIN_KUBECONFIG)
    }

    /// A proxy before this server, and the administrator's kubeconfig for it.
    ///
    /// # Errors
    /// Nothing can be bound, or the file cannot be written.
    pub async fn behind_a_front(&self, name: &str) -> Result<(Front, PathBuf)> {
        let url = self.server.url();
        let front = Front::start(url.trim_start_matches("https://").parse()?).await?;
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, self.server.kubeconfig_yaml().replace(&url, &format!("https://{}", front.address)))?;
        Ok((front, path))
    }

    /// Stops its processes by SIGSTOP, or lets them go on.
    ///
    /// # Errors
    /// A process is gone.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        self.server.freeze(frozen)
    }

    /// The administrator's bearer token.
    #[must_use]
    pub fn token(&self) -> &'static str {
        self.server.token()
    }

    /// Writes a kubeconfig for a bearer token and returns where it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, user: &str, token: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(format!("{user}.kubeconfig"));
        let url = self.server.url();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: \"{url}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: {user}, user: {{token: \"{token}\"}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: {user}}}}}]\n"
        );
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// A client with the administrator's rights.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// Verb and path of each write request of this user. Access reviews and token reviews are not
    /// writes, because nothing is stored.
    ///
    /// # Errors
    /// The audit log cannot be read.
    pub fn writes_of(&self, user: &str) -> Result<Vec<String>> {
        let mut writes = Vec::new();
        for line in self.server.audit_log()?.lines() {
            // The last line may be incomplete.
            let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let text = |pointer| entry.pointer(pointer).and_then(|text| text.as_str()).unwrap_or_default();
            let (verb, uri) = (text("/verb"), text("/requestURI"));
            let is_read = matches!(verb, "get" | "list" | "watch") || uri.contains("reviews");
            if text("/user/username") == user && !is_read {
                writes.push(format!("{verb} {uri}"));
            }
        }
        Ok(writes)
    }

    /// UID of the priority level that a GET of this path with this bearer token has.
    ///
    /// # Errors
    /// The server does not answer, or says no level.
    pub async fn priority_level_of(&self, path: &str, token: &str) -> Result<String> {
        let url = format!("{}/{path}", self.server.url());
        let answer = crate::manager::client()?.get(url).bearer_auth(token).send().await?;
        let level = answer.headers().get("x-kubernetes-pf-prioritylevel-uid").context("the answer has no level")?;
        Ok(level.to_str()?.to_owned())
    }

    /// Runs kubectl with the administrator's rights.
    ///
    /// # Errors
    /// kubectl is not installed, or fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.kubeconfig().display().to_string();
        run("kubectl", &[&["--kubeconfig", &kubeconfig], arguments].concat())
    }

    /// A kubeconfig with a token of an account of `skysail-system`, and the token.
    ///
    /// # Errors
    /// There is no such account, or the file cannot be written.
    pub fn kubeconfig_of(&self, account: &str) -> Result<(PathBuf, String)> {
        let token = self.kubectl(&["-n", "skysail-system", "create", "token", account])?;
        Ok((self.write_kubeconfig(account, &token)?, token))
    }

    /// Waits up to two minutes for each step until a CRD is established and its resource is served,
    /// which is a moment later.
    ///
    /// # Errors
    /// The resource is not served in time, or kubectl is not installed.
    pub async fn wait_for_definition(&self, name: &str) -> Result<()> {
        let definition = format!("crd/{name}");
        // `kubectl wait` fails while the CRD has no conditions at all.
        for what in ["jsonpath={.status.acceptedNames.kind}", "condition=Established"] {
            self.kubectl(&["wait", &format!("--for={what}"), &definition, "--timeout=120s"])?;
        }
        let served = || std::future::ready(self.kubectl(&["get", name]));
        eventually("the resource is served", 120, served).await.map(drop)
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The last lines of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
}

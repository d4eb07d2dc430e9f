//! A real OCI registry: Debian's `docker-registry` on loopback, with TLS and a password or without
//! both.

pub mod signing;

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use skysail_test_support::ports;
use tempfile::TempDir;

use crate::{
    api_server::tail,
    leaks,
    wait::eventually,
    workspace::{run, skysail},
};

/// Seconds until it answers.
const START_SECONDS: u64 = 120;

/// User `pilot` with the password `clear skies`, hashed with bcrypt, the only hash that this
/// registry supports.
const HTPASSWD: &str = "pilot:$2b$05$V0MtRsa1pSCyqZ7Y2ClUrOh0c.xjA2YOW4lq0MGvcIfVRarI3gRIm\n";

/// A running registry. Dropping this value stops it and deletes its data.
#[derive(Debug)]
pub struct Registry {
    folder: TempDir,
    address: SocketAddr,
    process: Option<Child>,
    secured: bool,
}

impl Registry {
    /// Starts a registry without TLS and without a password.
    ///
    /// # Errors
    /// The registry is not installed, or does not answer in time.
    pub async fn open() -> Result<Self> {
        Self::start(false).await
    }

    /// Starts a registry with TLS, with a private CA, and with a password.
    ///
    /// # Errors
    /// The registry is not installed, or does not answer in time.
    pub async fn secured() -> Result<Self> {
        Self::start(true).await
    }

    async fn start(secured: bool) -> Result<Self> {
        let folder = TempDir::new()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let at = |name: &str| folder.path().join(name).display().to_string();
        let mut text = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage:\n  delete: {{enabled: true}}\n  filesystem: {{rootdirectory: {}}}\nhttp:\n  addr: {address}\n",
            at("data")
        );
        if secured {
            let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
            fs::write(at("ca.pem"), made.cert.pem())?;
            fs::write(at("key.pem"), made.signing_key.serialize_pem())?;
            fs::write(at("htpasswd"), HTPASSWD)?;
            text += &format!("  tls: {{certificate: {}, key: {}}}\n", at("ca.pem"), at("key.pem"));
            text += &format!("auth:\n  htpasswd: {{realm: skysail, path: {}}}\n", at("htpasswd"));
        }
        fs::write(at("config.yml"), text)?;
        let mut registry = Self { folder, address, process: None, secured };
        registry.start_again().await?;
        Ok(registry)
    }

    /// Starts the registry again after [`Self::stop`], with its data.
    ///
    /// # Errors
    /// The registry is not installed, or does not answer in time.
    pub async fn start_again(&mut self) -> Result<()> {
        let log = File::create(self.path("log"))?;
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(self.path("config.yml")).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let started = command.spawn();
        self.process = Some(started.context("cannot start docker-registry; install it with .ci/setup test")?);
        let address = self.address;
        eventually(
            "the registry answers",
            START_SECONDS,
            || async move { tokio::net::TcpStream::connect(address).await },
        )
        .await
        .map_err(|error| error.context(tail(&fs::read_to_string(self.path("log")).unwrap_or_default())))?;
        Ok(())
    }

    /// Stops the registry and keeps its data.
    ///
    /// # Errors
    /// The registry does not run.
    pub fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the registry does not run")?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// A file of the registry's folder: `ca.pem`, for example.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A Docker configuration with the password, as `docker login` writes it.
    #[must_use]
    pub fn docker_config(&self) -> String {
        // pilot:clear skies
        let auth = "cGlsb3Q6Y2xlYXIgc2tpZXM=";
        leaks::watch(auth);
        leaks::watch("clear skies");
        format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, self.host())
    }

    /// The `source` of a provider that polls a tag of `org/provider`; the files of
    /// [`Self::files`] have to be beside the provider file.
    #[must_use]
    pub fn source(&self, tag: &str) -> String {
        format!(
            "{{oci: {{reference: '{}/org/provider:{tag}', pollInterval: 1s, credentials: {{file: docker.json}}, caBundle: {{file: ca.pem}}}}}}",
            self.host()
        )
    }

    /// The files that [`Self::source`] names, each with a name and a text.
    ///
    /// # Errors
    /// The registry has no certificate.
    pub fn files(&self) -> Result<[(&'static str, String); 2]> {
        Ok([("docker.json", self.docker_config()), ("ca.pem", fs::read_to_string(self.path("ca.pem"))?)])
    }

    /// Runs `skysail push` or `pull` with the flags for this registry and returns its output.
    ///
    /// # Errors
    /// The command fails; the error has its output.
    pub fn skysail(&self, arguments: &[&str]) -> Result<String> {
        let program = skysail()?;
        let (ca, config) = (self.path("ca.pem").display().to_string(), self.path("docker.json").display().to_string());
        let host = self.host();
        let reach = match self.secured {
            true => vec!["--registry-ca", &ca, "--registry-config", &config],
            false => vec!["--plain-http", &host],
        };
        fs::write(&config, self.docker_config())?;
        run(program, &[arguments, &reach].concat())
    }

    /// Pushes a component to a tag of `org/provider` and returns the digest of the manifest.
    ///
    /// # Errors
    /// The registry refuses the push.
    pub fn push(&self, component: &Path, tag: &str) -> Result<String> {
        let reference = format!("{}/org/provider:{tag}", self.host());
        let printed = self.skysail(&["push", &component.display().to_string(), &reference])?;
        let first = printed.lines().next().unwrap_or_default();
        match first.split_once('@') {
            Some((pushed, digest)) if pushed == reference => Ok(digest.to_owned()),
            Some(_) | None => bail!("skysail push printed {printed:?}"),
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // An error means that the process has ended already.
            drop(process.kill());
            drop(process.wait());
        }
    }
}

//! A real Incus, by `incus/incus.sh`: containers, an OVN network, load balancers that carry
//! traffic. All in namespaces of its own.

use std::{
    fs::{self, File},
    os::fd::AsFd as _,
    path::PathBuf,
};

use anyhow::{Context as _, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{
    leaks,
    workspace::{root, run},
};

/// Where the API answers, inside the network namespace.
pub const ENDPOINT: &str = "https://127.0.0.1:8443";

/// A running Incus. Dropping this value stops it and deletes its data.
#[derive(Debug)]
pub struct Incus {
    folder: PathBuf,
}

impl Incus {
    /// Installs missing packages and starts Incus.
    ///
    /// # Errors
    /// The process is not root, a package cannot be installed, or a daemon does not start; the
    /// error has the output of the script.
    pub fn start() -> Result<Self> {
        script(&["install"]).context("there is no real Incus to test against")?;
        // The path is short, because Unix sockets are created in it, and has the process ID, so
        // that two runs have two folders.
        let incus = Self { folder: PathBuf::from(format!("/tmp/skysail-incus-{}", std::process::id())) };
        incus.script("up", &[]).context("there is no real Incus to test against")?;
        Ok(incus)
    }

    /// Starts a container that answers HTTP with its name on ports 80 and 30080.
    ///
    /// # Errors
    /// It does not start.
    pub fn launch(&self, name: &str) -> Result<()> {
        self.script("launch", &[name]).map(drop)
    }

    /// Runs the client: `incus ARGUMENTS`.
    ///
    /// # Errors
    /// It fails.
    pub fn incus(&self, arguments: &[&str]) -> Result<String> {
        self.script("run", &[&["incus"], arguments].concat())
    }

    /// `GET` of the API, as the administrator; the answer's `metadata`.
    ///
    /// # Errors
    /// The server refuses, or does not answer with JSON.
    pub fn query(&self, path: &str) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.incus(&["query", path])?)?)
    }

    /// A client certificate that the server trusts: certificate, key and the server's own
    /// certificate, as files in this folder.
    ///
    /// # Errors
    /// A file cannot be written, or the server refuses the certificate.
    pub fn credentials(&self) -> Result<PathBuf> {
        let folder = self.folder.join("credentials");
        fs::create_dir_all(&folder)?;
        let made = rcgen::generate_simple_self_signed(vec!["skysail".to_owned()])?;
        fs::write(folder.join("tls.crt"), made.cert.pem())?;
        let key = made.signing_key.serialize_pem();
        fs::write(folder.join("tls.key"), &key)?;
        // Without the lines BEGIN and END; a log may break lines in other places.
        key.lines().filter(|line| !line.starts_with('-')).for_each(leaks::watch);
        fs::copy(self.folder.join("incus/server.crt"), folder.join("ca.crt"))?;
        let certificate = folder.join("tls.crt").display().to_string();
        self.incus(&["config", "trust", "add-certificate", &certificate, "--name", "skysail"])?;
        Ok(folder)
    }

    /// Runs a test on a thread of its own inside the network namespace: its sockets, and the
    /// processes that it starts, are in there.
    ///
    /// # Errors
    /// The namespace cannot be entered, or those of the test.
    pub fn inside<F: Future<Output = Result<()>>>(&self, test: impl FnOnce() -> F + Send) -> Result<()> {
        let pid = self.script("pid", &[])?;
        let namespace =
            File::open(format!("/proc/{}/ns/net", pid.trim())).context("cannot open Incus's network namespace")?;
        let body = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .context("cannot enter Incus's network namespace")?;
            // Of one thread: a further one would be in the namespace too, but nothing here needs
            // it.
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test())
        };
        std::thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Err(anyhow!("the test panicked: {}", text.unwrap_or("(without a text)")))
        })
    }

    fn script(&self, verb: &str, arguments: &[&str]) -> Result<String> {
        let folder = self.folder.display().to_string();
        script(&[&[verb, folder.as_str()], arguments].concat())
    }
}

impl Drop for Incus {
    fn drop(&mut self) {
        // A test must fail if Incus cannot be removed completely.
        if let Err(error) = self.script("down", &[]) {
            assert!(std::thread::panicking(), "{error:#}");
        }
    }
}

fn script(arguments: &[&str]) -> Result<String> {
    run(root().join("tests/e2e/incus/incus.sh"), arguments)
}

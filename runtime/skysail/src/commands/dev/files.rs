//! The files of `skysail dev`: the kubeconfig, the token of the simulated cloud, and its provider
//! as a provider file and as an object.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use skysail_dev::{
    api::{ApiServer, Serving},
    cloud::SimServer,
};
use skysail_host::{Limits, read_file, write_file};
use tempfile::TempDir;

use crate::{
    exit::{MarkExt as _, Reason},
    provider_file,
};

/// Name of the one provider.
pub(crate) const PROVIDER: &str = "dev";

/// Name of the Secret and of the ConfigMap that the object names.
pub(crate) const OBJECT: &str = "skysail-dev";

/// The folder with the files; dropping this value removes it.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    /// An empty folder.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("skysail-dev-").context("cannot make a folder for the kubeconfig")?;
        Ok(Self { folder })
    }

    /// A file of the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    pub(crate) fn provider_file(&self) -> PathBuf {
        self.path("providers.yaml")
    }

    pub(crate) fn object(&self) -> PathBuf {
        self.path("provider.yaml")
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.path("token")
    }

    /// A copy of the component that may be overwritten.
    ///
    /// # Errors
    /// The component cannot be copied.
    pub(crate) fn copy(&self, component: &Path) -> anyhow::Result<PathBuf> {
        let copy = self.path("provider.wasm");
        // A copy of a pipe would wait for its writer.
        let bytes = read_file(component, Limits::default().component_bytes);
        let copied = bytes.and_then(|bytes| fs::write(&copy, bytes));
        copied.with_context(|| format!("cannot copy {}", component.display())).or_exit(Reason::Usage)?;
        Ok(copy)
    }

    /// Writes the kubeconfig.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_kubeconfig(&self, serving: &Serving) -> anyhow::Result<()> {
        write(&self.kubeconfig(), &ApiServer::kubeconfig_yaml(&serving.url()))
    }

    /// Writes the token, the provider file and the object. The provider file names the component
    /// and the token, the object a ConfigMap and a Secret.
    ///
    /// # Errors
    /// A file cannot be written, or the cloud-config cannot be read.
    pub(crate) fn write_provider(
        &self,
        cloud: &SimServer,
        component: &Path,
        config: Option<&Path>,
    ) -> anyhow::Result<()> {
        let config = config_of(cloud, config)?;
        let in_the_file = provider(cloud, &config, &json!({ "file": component }), &json!({ "file": "token" }))?;
        let source = json!({ "configMap": { "namespace": "default", "name": OBJECT } });
        let token = json!({ "secretKeyRef": { "namespace": "default", "name": OBJECT, "key": "token" } });
        let object = provider(cloud, &config, &source, &token)?;
        write(&self.token(), &cloud.token)?;
        write(&self.provider_file(), &in_the_file)?;
        write(&self.object(), &object)
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    // The manager may read the file at the same time.
    write_file(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// The cloud-config in the file that --cloud-config names, else the endpoint of the cloud.
fn config_of(cloud: &SimServer, config: Option<&Path>) -> anyhow::Result<String> {
    let Some(path) = config else { return Ok(format!("[Global]\nendpoint = {}\n", cloud.url)) };
    provider_file::read_config(path)
        .map_err(|reason| anyhow!("--cloud-config {} {reason}", path.display()))
        .or_exit(Reason::Usage)
}

/// A Provider for the simulated cloud, as YAML.
fn provider(cloud: &SimServer, config: &str, source: &Value, token: &Value) -> anyhow::Result<String> {
    let url = &cloud.url;
    let address: SocketAddr =
        url.trim_start_matches("http://").parse().context("the simulated cloud has no address")?;
    let provider = json!({
        "apiVersion": "skysail.dev/v1alpha1",
        "kind": "Provider",
        "metadata": {"name": PROVIDER},
        "spec": {
            "default": true,
            "source": source,
            // The simulated cloud assigns loopback addresses; a provider under development may
            // assign any address.
            "loadBalancerCidrs": ["127.0.0.0/8", "0.0.0.0/0", "::/0"],
            "nodeCidrs": ["127.0.0.0/8", "0.0.0.0/0", "::/0"],
            "config": config,
            "egress": {"rules": [{"origins": [url]}], "allowCidrs": [format!("{}/32", address.ip())]},
            "credentials": {"api": {"origins": [url], "bearer": token}},
            // An author may rename a provider and remove interfaces without editing this file.
            "allowInterfaceLoss": true,
            "allowIdentityChange": true,
            // The load of the demo sends two hundred requests a second.
            "limits": {"httpRequestsPerSecond": 2000},
        },
    });
    serde_saphyr::to_string(&provider).context("cannot write the provider file")
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::Files;

    #[test]
    fn a_pipe_in_place_of_a_component_is_refused_at_once() {
        let (from, files) = (tempfile::tempdir().unwrap(), Files::new().unwrap());
        let path = |name| from.path().join(name);
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let error = format!("{:#}", files.copy(&path("pipe")).unwrap_err());
        assert!(error.starts_with("cannot copy ") && error.contains("not a regular file"), "{error}");
        fs::write(path("file"), "component").unwrap();
        assert_eq!(fs::read(files.copy(&path("file")).unwrap()).unwrap(), b"component");
    }
}

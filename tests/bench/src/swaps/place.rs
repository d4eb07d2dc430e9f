//! The places that offers come from, each with the manager's own source, and the moment from which
//! that source can notice an offer.

use std::{collections::HashMap, fmt, fs, net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Deserialize, Serialize};
use skysail_host::slot::{Offer, Slot};
use skysail_sources::{
    Artifact, ConfigMapReference, ConfigMapSource, FileSource, FileSourceSettings, OciSource, OciSourceSettings,
    Offers, Reference, Registry, RegistryOptions,
};
use skysail_test_support::apiserver::ApiServer;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{relay::Relay, releases::Release};

/// Largest component.
const BYTES_MAX: u64 = 32 << 20;
const NAMESPACE: &str = "default";
const NAME: &str = "provider";
const KEY: &str = "provider.wasm";

/// The source that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A file that is replaced by a rename.
    File,
    /// A `ConfigMap` of a real API server.
    ConfigMap,
    /// A tag in a real registry on loopback.
    Oci,
    /// A component whose machine code is in memory.
    Memory,
    /// A component whose machine code is on disk.
    Disk,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::File, Self::ConfigMap, Self::Oci, Self::Memory, Self::Disk];

    /// The bound in milliseconds for a component of 300 KiB.
    #[must_use]
    pub const fn bound_ms(self) -> f64 {
        match self {
            Self::File | Self::ConfigMap | Self::Oci => 1000.0,
            Self::Memory | Self::Disk => 20.0,
        }
    }

    /// Whether releases repeat, so that they are not compiled again.
    pub(super) const fn is_known(self) -> bool {
        matches!(self, Self::Memory | Self::Disk)
    }

    /// The start of the measured time.
    #[must_use]
    pub const fn measured(self) -> &'static str {
        match self {
            Self::File => "the rename has returned",
            Self::ConfigMap => "the API server has answered the write",
            Self::Oci => "the source's poll asks for the tag that has moved",
            Self::Memory | Self::Disk => "the component is handed to the slot",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::ConfigMap => "ConfigMap",
            Self::Oci => "OCI tag",
            Self::Memory => "cache in memory",
            Self::Disk => "cache on disk",
        })
    }
}

/// See the module.
pub(super) enum Place {
    File { folder: TempDir },
    ConfigMap { api: Box<Api<ConfigMap>>, client: Box<Client>, _server: ApiServer },
    Oci { registry: Box<Registry>, relay: Relay, server: skysail_test_e2e::registry::Registry },
    Slot,
}

/// A completed offer.
#[derive(Clone, Copy)]
pub(super) struct Put {
    /// The moment before the write.
    pub(super) begun: Instant,
    /// The moment after the write.
    pub(super) done: Instant,
}

impl Place {
    pub(super) async fn of(source: Source) -> Result<Self> {
        Ok(match source {
            Source::File => Self::File { folder: TempDir::new().context("a folder for the component")? },
            Source::ConfigMap => config_map().await?,
            Source::Oci => oci().await?,
            Source::Memory | Source::Disk => Self::Slot,
        })
    }

    /// The manager's source for this place; none if the benchmark offers directly to the slot.
    pub(super) fn watch(&self) -> Result<Option<Offers>> {
        Ok(Some(match self {
            Self::File { folder } => FileSource::new(file(folder), FileSourceSettings::default()).watch(),
            Self::ConfigMap { client, .. } => {
                let reference = ConfigMapReference {
                    namespace: NAMESPACE.to_owned(),
                    names: vec![NAME.to_owned()],
                    key: Some(KEY.to_owned()),
                };
                ConfigMapSource::new(Client::clone(client), reference, BYTES_MAX).watch()
            }
            Self::Oci { relay, .. } => {
                let reference: Reference = format!("{}/org/provider:stable", relay.address).parse()?;
                let settings = OciSourceSettings { poll: OciSourceSettings::POLL_MIN, ..OciSourceSettings::default() };
                OciSource::new(reach(relay.address)?, reference, settings).watch()
            }
            Self::Slot => return Ok(None),
        }))
    }

    /// Offers a release. Only the last step (rename, moving the tag) is measured, not the
    /// preparation (writing the file, pushing the blob).
    pub(super) async fn put(&self, release: &Release, slot: &Arc<Slot>) -> Result<Put> {
        let bytes = release.bytes.clone();
        let begun = match self {
            Self::File { folder } => {
                let (partial, path) = (folder.path().join("partial"), file(folder));
                fs::write(&partial, &bytes).context("writing the component")?;
                let begun = Instant::now();
                fs::rename(&partial, &path).context("renaming the component")?;
                begun
            }
            Self::ConfigMap { api, .. } => {
                let object = object(&bytes);
                let begun = Instant::now();
                match api.replace(NAME, &PostParams::default(), &object).await {
                    Err(kube::Error::Api(answer)) if answer.code == 404 => {
                        api.create(&PostParams::default(), &object).await
                    }
                    answer => answer,
                }
                .context("writing the ConfigMap")?;
                begun
            }
            Self::Oci { registry, server, .. } => {
                let artifact = Artifact {
                    component: bytes,
                    title: "provider.wasm".to_owned(),
                    config: Bytes::from_static(b"{}"),
                    annotations: HashMap::new(),
                };
                let tagged =
                    |tag: &str| -> Result<Reference> { Ok(format!("{}/org/provider:{tag}", server.host()).parse()?) };
                registry.push(&tagged("next")?, artifact.clone()).await.context("pushing the component")?;
                let begun = Instant::now();
                registry.push(&tagged("stable")?, artifact).await.context("moving the tag")?;
                begun
            }
            Self::Slot => {
                let begun = Instant::now();
                let offered = slot.offer(Offer { bytes, origin: "known".to_owned() }).await;
                offered.with_context(|| format!("release {} is refused", release.digest))?;
                begun
            }
        };
        let done = if matches!(self, Self::Slot) { begun } else { Instant::now() };
        Ok(Put { begun, done })
    }

    /// The moment from which the source could notice this offer, which serves by now.
    pub(super) fn seen(&self, put: Put) -> Result<Instant> {
        match self {
            Self::Oci { relay, .. } => {
                relay.look().context("the release serves, but the relay saw no request for the tag")
            }
            Self::File { .. } | Self::ConfigMap { .. } | Self::Slot => Ok(put.done),
        }
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join(KEY)
}

async fn config_map() -> Result<Place> {
    let server = tokio::task::spawn_blocking(ApiServer::start).await.context("starting the API server")??;
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig_yaml())?;
    let client = async || -> Result<Client> {
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    };
    // The writer must be another process than the source.
    let (writer, client) = (client().await?, client().await?);
    let (api, client) = (Box::new(Api::namespaced(writer, NAMESPACE)), Box::new(client));
    Ok(Place::ConfigMap { api, client, _server: server })
}

fn object(bytes: &Bytes) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        binary_data: Some([(KEY.to_owned(), ByteString(bytes.to_vec()))].into()),
        ..ConfigMap::default()
    }
}

async fn oci() -> Result<Place> {
    let server = skysail_test_e2e::registry::Registry::open().await?;
    let address: SocketAddr = server.host().parse().context("the registry's address")?;
    let relay = Relay::to(address).await.context("a relay before the registry")?;
    Ok(Place::Oci { registry: Box::new(reach(address)?), relay, server })
}

/// A registry without TLS.
pub(super) fn reach(address: SocketAddr) -> Result<Registry> {
    Ok(Registry::new(RegistryOptions {
        host: address.to_string(),
        mirrors: Vec::new(),
        plain_http: [address.to_string()].into(),
        trusted_hosts: [].into(),
        ca_bundle: None,
        credentials: None,
        proxy: None,
        judge: Arc::new(skysail_host::egress::judge_public_address),
    })?)
}

//! The certificate authorities of clients and of the front proxy: from files or from the cluster's
//! ConfigMap, both followed for changes.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, watcher::watch_object},
};
use skysail_provider::text::with_causes;
use tokio_util::sync::CancellationToken;

pub(crate) use super::certificate::Ca;
use super::request_header::FrontProxy;
use crate::{
    error::ServingError,
    limits::FILES_PERIOD,
    options::{AuthenticationOptions, RequestHeaderOptions},
    tls::read,
};

/// The ConfigMap in which an API server publishes its trusted certificate authorities.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The current certificate authorities.
#[derive(Debug)]
pub(crate) struct Authorities {
    client_ca: ArcSwapOption<Ca>,
    front_proxy: ArcSwapOption<FrontProxy>,
    files: Files,
    /// `None`: the ConfigMap is not read.
    config_map: Option<Api<ConfigMap>>,
}

/// Flags, and the content of their files when they were last loaded.
#[derive(Debug)]
struct Files {
    client_ca: Option<PathBuf>,
    request_header: RequestHeaderOptions,
    seen: ArcSwap<BTreeMap<PathBuf, Vec<u8>>>,
}

impl Authorities {
    /// Reads the files, and the ConfigMap for settings without a flag.
    ///
    /// # Errors
    /// A file is not a CA bundle, or the ConfigMap cannot be read and this is not tolerated.
    pub(crate) async fn load(options: &AuthenticationOptions, client: Option<Client>) -> Result<Self, ServingError> {
        let files = Files {
            client_ca: options.client_ca_file.clone(),
            request_header: options.request_header.clone(),
            seen: ArcSwap::default(),
        };
        let complete = files.client_ca.is_some() && files.request_header.ca_file.is_some();
        let config_map = client.filter(|_| !options.skip_lookup && !complete);
        let authorities = Self {
            client_ca: ArcSwapOption::empty(),
            front_proxy: ArcSwapOption::empty(),
            files,
            config_map: config_map.map(|client| Api::namespaced(client, NAMESPACE)),
        };
        authorities.reload()?;
        if let Some(api) = &authorities.config_map {
            match api.get_opt(NAME).await {
                Ok(found) => authorities.take_up(found.as_ref()),
                Err(error) if options.tolerate_lookup_failure => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "the ConfigMap {NAMESPACE}/{NAME} cannot be read: client certificates are refused until it can be read"
                    );
                }
                Err(error) => return Err(ServingError::Lookup(Box::new(error))),
            }
        }
        Ok(authorities)
    }

    pub(crate) fn client_ca(&self) -> Option<Arc<Ca>> {
        self.client_ca.load_full()
    }

    pub(crate) fn front_proxy(&self) -> Option<Arc<FrontProxy>> {
        self.front_proxy.load_full()
    }

    /// Follows the files and the ConfigMap.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let both = futures::future::join(self.follow_files(), self.follow_config_map());
        stop.run_until_cancelled(both).await;
    }

    async fn follow_files(self: &Arc<Self>) {
        if self.files.paths().next().is_none() {
            return;
        }
        let mut said = String::new();
        let mut period = tokio::time::interval(FILES_PERIOD);
        loop {
            period.tick().await;
            let authorities = Arc::clone(self);
            // Reading can block on a slow disk or a network file system.
            let Ok(looked) = tokio::task::spawn_blocking(move || authorities.reload()).await else { continue };
            let problem = looked.as_ref().err().map(|error| with_causes(error)).unwrap_or_default();
            if looked.is_err() && problem != said {
                tracing::error!("the new client CA files are refused, the previous ones stay in use: {problem}");
            }
            said = problem;
        }
    }

    async fn follow_config_map(&self) {
        let Some(api) = &self.config_map else { return };
        let mut changes = watch_object(api.clone(), NAME).default_backoff().boxed();
        let mut said = false;
        loop {
            match changes.try_next().await {
                Ok(Some(found)) => {
                    said = false;
                    self.take_up(found.as_ref());
                }
                // A watch never ends.
                Ok(None) => return,
                Err(error) if !said => {
                    said = true;
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the ConfigMap {NAMESPACE}/{NAME} cannot be watched"
                    );
                }
                Err(_) => {}
            }
        }
    }

    /// Reads the files of the flags.
    fn reload(&self) -> Result<(), ServingError> {
        let read = self.files.paths().map(|path| Ok((path.clone(), read(path)?)));
        let bytes = read.collect::<Result<BTreeMap<_, _>, ServingError>>()?;
        if **self.files.seen.load() == bytes {
            return Ok(());
        }
        let bundle = |path: &Option<PathBuf>| {
            let Some((path, bytes)) = path.as_ref().and_then(|path| Some((path, bytes.get(path)?))) else {
                return Ok(None);
            };
            Ca::from_pem(bytes).map(Some).map_err(|problem| ServingError::Content { path: path.clone(), problem })
        };
        let client_ca = bundle(&self.files.client_ca)?;
        let front_proxy = bundle(&self.files.request_header.ca_file)?;
        if let Some(ca) = client_ca {
            self.client_ca.store(Some(Arc::new(ca)));
        }
        if let Some(ca) = front_proxy {
            self.front_proxy.store(Some(Arc::new(self.files.front_proxy(ca))));
        }
        self.files.seen.store(Arc::new(bytes));
        Ok(())
    }

    /// Uses the ConfigMap for settings without a flag. A missing key removes its CA; an invalid one
    /// leaves the previous CA in use.
    fn take_up(&self, found: Option<&ConfigMap>) {
        let empty = BTreeMap::new();
        let data = found.and_then(|map| map.data.as_ref()).unwrap_or(&empty);
        let bundle = |key: &str| {
            let text = data.get(key).filter(|text| !text.trim().is_empty());
            let wrong = |problem| tracing::error!("{key} of the ConfigMap {NAMESPACE}/{NAME} is refused: {problem}");
            text.map(|text| Ca::from_pem(text.as_bytes())).transpose().map_err(wrong)
        };
        if self.files.client_ca.is_none()
            && let Ok(ca) = bundle("client-ca-file")
        {
            self.client_ca.store(ca.map(Arc::new));
        }
        if self.files.request_header.ca_file.is_none()
            && let Ok(ca) = bundle("requestheader-client-ca-file")
        {
            self.front_proxy.store(ca.and_then(|ca| front_proxy(ca, data)).map(Arc::new));
        }
    }
}

impl Files {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.client_ca.iter().chain(&self.request_header.ca_file)
    }

    fn front_proxy(&self, ca: Ca) -> FrontProxy {
        let RequestHeaderOptions { ca_file: _, allowed_names, username_headers, uid_headers, .. } =
            &self.request_header;
        FrontProxy {
            ca,
            allowed_names: allowed_names.clone(),
            username_headers: username_headers.clone(),
            uid_headers: uid_headers.clone(),
            group_headers: self.request_header.group_headers.clone(),
            extra_headers_prefixes: self.request_header.extra_headers_prefixes.clone(),
        }
    }
}

/// Reads the front proxy from the ConfigMap, whose lists are JSON. An unreadable list must not
/// become an empty one, which allows any name: then there is no front proxy.
fn front_proxy(ca: Ca, data: &BTreeMap<String, String>) -> Option<FrontProxy> {
    let list = |key: &str| {
        let Some(text) = data.get(key).filter(|text| !text.is_empty()) else { return Some(Vec::new()) };
        let wrong = |_| {
            tracing::error!(
                "{key} of the ConfigMap {NAMESPACE}/{NAME} is not a JSON list: headers of a front proxy are refused"
            )
        };
        serde_json::from_str(text).map_err(wrong).ok()
    };
    Some(FrontProxy {
        ca,
        allowed_names: list("requestheader-allowed-names")?,
        username_headers: list("requestheader-username-headers")?,
        uid_headers: list("requestheader-uid-headers")?,
        group_headers: list("requestheader-group-headers")?,
        extra_headers_prefixes: list("requestheader-extra-headers-prefix")?,
    })
}

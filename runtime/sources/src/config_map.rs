//! A component in a ConfigMap, or in several, read and watched through the Kubernetes API.
//!
//! # Flow
//! 1. Each ConfigMap is watched by its name.
//! 2. When all exist, their parts are joined in order; gzip data is decompressed on a thread of the
//!    blocking pool.
//! 3. A digest that differs from the last one offered becomes a [`SourceFile`].
//!
//! # Several parts
//! A ConfigMap has at most 1 MiB, and Kubernetes cannot change two ConfigMaps atomically: between
//! the writes of the first and the last part, a reader sees parts of two components. Therefore each
//! of several parts carries the digest of the whole component in its annotation
//! [`DIGEST_ANNOTATION`]. Parts with different digests are not joined, and a component with another
//! digest is refused. On a single ConfigMap the annotation is an optional pin.
//!
//! # Compared with a mounted ConfigMap
//! The kubelet updates a mounted ConfigMap within about a minute, and the manager needs no
//! permission. This source needs `get`, `list` and `watch` for these names, and sees a change at
//! once.

use std::{fmt, io::Read as _, sync::Arc, time::Duration};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use futures::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{watcher, watcher::watch_object},
};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::{
    Digest, Offers, SourceError, SourceFile,
    error::{ConfigMapFailure, DIGEST_ANNOTATION},
    offer::Last,
};

#[cfg(test)]
mod tests;

/// The magic number of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// The most bytes that gzip may add to a component: a header with a file name, and five bytes for
/// each stored block of 64 KiB.
const GZIP_OVERHEAD_MAX: u64 = 64 << 10;

/// The most keys that a message lists.
const KEYS_SHOWN_MAX: usize = 8;

/// Which ConfigMaps hold a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapReference {
    /// The namespace of all of them.
    pub namespace: String,
    /// In the order of the parts; at least one.
    pub names: Vec<String>,
    /// The key of `binaryData`; without it, `binaryData` has to have exactly one key.
    pub key: Option<String>,
}

impl ConfigMapReference {
    /// The most parts: far more than the largest allowed component needs.
    pub const PARTS_MAX: usize = 64;
}

impl fmt::Display for ConfigMapReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configmap {}/{}", self.namespace, self.names.join("+"))?;
        self.key.iter().try_for_each(|key| write!(f, " key {key}"))
    }
}

/// Watches the ConfigMaps of one component.
#[derive(Clone)]
pub struct ConfigMapSource {
    client: Client,
    reference: ConfigMapReference,
    bytes_max: u64,
}

impl fmt::Debug for ConfigMapSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigMapSource").field("reference", &self.reference).finish_non_exhaustive()
    }
}

impl ConfigMapSource {
    /// A source for these ConfigMaps; `bytes_max` limits the decompressed component. Nothing is
    /// read yet.
    #[must_use]
    pub const fn new(client: Client, reference: ConfigMapReference, bytes_max: u64) -> Self {
        Self { client, reference, bytes_max }
    }

    /// Reads the ConfigMaps and watches them until the returned stream is dropped.
    ///
    /// The first item comes as soon as the API has answered. Must be called on a tokio runtime with
    /// I/O and time enabled.
    #[must_use]
    pub fn watch(self) -> Offers {
        let (reports, receiver) = mpsc::channel(Offers::QUEUE);
        let mut watcher = JoinSet::new();
        watcher.spawn(self.run(reports));
        Offers::new(receiver, watcher)
    }

    async fn run(self, reports: mpsc::Sender<Result<SourceFile, SourceError>>) {
        let Self { client, reference, bytes_max } = self;
        let api: Api<ConfigMap> = Api::namespaced(client, &reference.namespace);
        let watches = reference.names.iter().enumerate().map(|(place, name)| {
            watch_from_the_start(api.clone(), name.clone()).map(move |seen| (place, seen)).boxed()
        });
        let mut watches = stream::select_all(watches);
        let mut parts: Vec<Part> = reference.names.iter().map(|_| Part::Unknown).collect();
        let mut last = Last::default();
        loop {
            let seen = tokio::select! {
                seen = watches.next() => seen,
                () = reports.closed() => return,
            };
            let Some((place, seen)) = seen else { return };
            let looked = match seen {
                Ok(object) => {
                    if let Some(part) = parts.get_mut(place) {
                        *part = object.map_or(Part::Missing, |object| Part::There(Arc::new(object)));
                    }
                    put_together(&reference, &parts, bytes_max).await
                }
                Err(error) => Some(Err(ConfigMapFailure::Api { reason: cause(&error) })),
            };
            let Some(looked) = looked else { continue };
            let offer = |bytes: Bytes| SourceFile { digest: Digest::of(&bytes), bytes, origin: reference.to_string() };
            let failed =
                |failure| SourceError::ConfigMap { reference: reference.to_string(), failure: Arc::new(failure) };
            let Some(report) = last.if_changed(looked.map(offer).map_err(failed)) else { continue };
            if reports.send(report).await.is_err() {
                return;
            }
        }
    }
}

/// Watches one ConfigMap, and reads it again after each error. kube would go on where a watch
/// ended, and report an object that did not change no more: the error would stay the last report.
fn watch_from_the_start(
    api: Api<ConfigMap>,
    name: String,
) -> impl Stream<Item = Result<Option<ConfigMap>, watcher::Error>> + Send {
    // The watch that runs, or the pause before the next one.
    stream::unfold(Err(Duration::ZERO), move |watch: Result<BoxStream<'static, _>, Duration>| {
        let (api, name) = (api.clone(), name.clone());
        async move {
            let mut watch = match watch {
                Ok(watch) => watch,
                Err(pause) => {
                    sleep(pause).await;
                    watch_object(api, &name).boxed()
                }
            };
            let seen = watch.next().await?;
            let next = if seen.is_ok() { Ok(watch) } else { Err(RESTART_PAUSE) };
            Some((seen, next))
        }
    })
}

/// The pause between an error of a watch and the next watch.
const RESTART_PAUSE: Duration = Duration::from_secs(10);

/// The state of one ConfigMap as the watch reports it.
enum Part {
    /// The watch has not reported it yet.
    Unknown,
    Missing,
    There(Arc<ConfigMap>),
}

/// The component or an error; `None` until the watch has reported every ConfigMap.
async fn put_together(
    reference: &ConfigMapReference,
    parts: &[Part],
    bytes_max: u64,
) -> Option<Result<Bytes, ConfigMapFailure>> {
    let mut objects = Vec::new();
    for (part, name) in parts.iter().zip(&reference.names) {
        match part {
            Part::Unknown => return None,
            Part::Missing => return Some(Err(ConfigMapFailure::Missing { name: name.clone() })),
            Part::There(object) => objects.push((name.clone(), Arc::clone(object))),
        }
    }
    // A gzip stream can have much input and no output, which takes seconds at this size.
    let reference = reference.clone();
    let read = tokio::task::spawn_blocking(move || component(&reference, &objects, bytes_max)).await;
    Some(read.unwrap_or_else(|error| Err(ConfigMapFailure::Gzip { reason: error.to_string() })))
}

fn component(
    reference: &ConfigMapReference,
    parts: &[(String, Arc<ConfigMap>)],
    bytes_max: u64,
) -> Result<Bytes, ConfigMapFailure> {
    let expected = digest_of_all(parts)?;
    let mut whole = Vec::new();
    for (name, part) in parts {
        whole.extend_from_slice(value(name, part, reference.key.as_deref())?);
    }
    if whole.starts_with(GZIP) {
        whole = unpack(&whole, bytes_max)?;
    }
    if whole.len() as u64 > bytes_max {
        return Err(ConfigMapFailure::TooLarge { max: bytes_max });
    }
    let actual = Digest::of(&whole);
    match expected {
        Some(expected) if expected != actual => Err(ConfigMapFailure::WrongDigest { expected, actual }),
        Some(_) | None => Ok(whole.into()),
    }
}

/// The digest in the annotations of all parts; a single part may have no annotation.
fn digest_of_all(parts: &[(String, Arc<ConfigMap>)]) -> Result<Option<Digest>, ConfigMapFailure> {
    let mut first: Option<(&str, Digest)> = None;
    for (name, part) in parts {
        let annotations = part.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|annotations| annotations.get(DIGEST_ANNOTATION)) else {
            if parts.len() > 1 {
                return Err(ConfigMapFailure::NoDigest { name: name.clone() });
            }
            return Ok(None);
        };
        let digest: Digest = text
            .parse()
            .map_err(|_| ConfigMapFailure::BadDigest { name: name.clone(), text: text.chars().take(80).collect() })?;
        match first {
            None => first = Some((name, digest)),
            Some((_, known)) if known == digest => {}
            Some((known, _)) => {
                return Err(ConfigMapFailure::PartsDiffer { first: known.to_owned(), other: name.clone() });
            }
        }
    }
    Ok(first.map(|(_, digest)| digest))
}

fn value<'a>(name: &str, part: &'a ConfigMap, key: Option<&str>) -> Result<&'a [u8], ConfigMapFailure> {
    let binary = || part.binary_data.iter().flatten();
    let there = || {
        let mut keys: Vec<String> = binary().map(|(key, _)| format!("binaryData {key}")).collect();
        keys.extend(part.data.iter().flatten().map(|(key, _)| format!("data {key}")));
        if keys.is_empty() { "no key at all".to_owned() } else { listed(keys) }
    };
    let found: Vec<_> = binary().filter(|(have, _)| key.is_none_or(|key| key == have.as_str())).collect();
    match found.as_slice() {
        [(_, value)] => Ok(&value.0),
        [] => {
            let wanted = key.map_or_else(|| "binaryData".to_owned(), |key| format!("key {key} of binaryData"));
            Err(ConfigMapFailure::NoKey { name: name.to_owned(), wanted, there: there() })
        }
        several => {
            let keys = listed(several.iter().map(|(key, _)| (*key).clone()).collect());
            Err(ConfigMapFailure::SeveralKeys { name: name.to_owned(), keys })
        }
    }
}

/// Decompresses up to one byte more than the limit. Compressed data that is longer than the limit
/// is refused before, because it can consist of endless blocks without content.
fn unpack(compressed: &[u8], bytes_max: u64) -> Result<Vec<u8>, ConfigMapFailure> {
    if compressed.len() as u64 > bytes_max.saturating_add(GZIP_OVERHEAD_MAX) {
        return Err(ConfigMapFailure::TooLarge { max: bytes_max });
    }
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(compressed).take(bytes_max.saturating_add(1)).read_to_end(&mut unpacked);
    read.map_err(|error| ConfigMapFailure::Gzip { reason: error.to_string() })?;
    Ok(unpacked)
}

fn listed(mut keys: Vec<String>) -> String {
    let more = keys.len().saturating_sub(KEYS_SHOWN_MAX);
    keys.truncate(KEYS_SHOWN_MAX);
    let shown = keys.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// The cause of a watch error, without the prefix that kube adds.
fn cause(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error.to_string(),
        other => other.to_string(),
    }
}

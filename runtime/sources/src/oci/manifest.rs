//! Finds the component among an artifact's blobs. Pure: parses manifests and sends no requests.
//!
//! | pushed by | the component's layer | config |
//! |---|---|---|
//! | `wkg`, `skysail push` (CNCF layout) | `application/wasm` | `application/vnd.wasm.config.v0+json` |
//! | `oras` | `application/wasm`, if its user gives this type | any |
//! | `kwctl`, `wasm-to-oci`, `spin` | `application/vnd.wasm.content.layer.v1+wasm` | any |
//! | Istio's tools | `application/vnd.module.wasm.content.layer.v1+wasm` | any |
//!
//! Other layers (an SBOM, a readme, static files) are ignored. An artifact with two layers that
//! could be the component is refused. Signatures, attestations and index entries for other
//! platforms are never used as a component.

use std::{collections::HashMap, str::FromStr as _};

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};
use serde::{Deserialize, de::IgnoredAny};

use crate::{Digest, error::RegistryFailure, text::shown};

/// The accepted media types of manifests and indexes.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// Media types of a manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Media types of an index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// Largest manifest or index that is read, in bytes: the size that the distribution specification
/// requires registries to accept.
pub(super) const BYTES_MAX: u64 = 4 << 20;

/// The config's media type in the CNCF layout.
pub(super) const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// The component's media type in the CNCF layout.
pub(super) const LAYER: &str = "application/wasm";

/// Artifact types of a component in an index: tools copy the type from the entry's config.
const KINDS: &[&str] =
    &[CONFIG, LAYER, "application/vnd.wasm.config.v1+json", "application/vnd.module.wasm.config.v1+json"];

/// Media types of the component's layer, in order of preference: an artifact with a layer of the
/// first type may have layers of the others too.
const LAYERS: &[&str] = &[
    LAYER,
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
    "application/vnd.wasm.component.v1+wasm",
    "application/vnd.wasm.component.layer.v0+wasm",
];

/// The content that a manifest or index refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// The component itself.
    Blob(Blob),
    /// A manifest that an index lists.
    Manifest(Digest),
}

/// Digest and size of a blob, from its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: Digest,
    /// Bytes.
    pub(super) size: u64,
}

/// An entry of an index.
pub(super) struct Entry {
    pub(super) digest: Digest,
    /// The artifact type; empty if there is none.
    pub(super) kind: String,
    pub(super) annotations: HashMap<String, String>,
}

/// A layer of a manifest.
pub(super) struct Layer {
    pub(super) kind: String,
    pub(super) digest: Digest,
    /// Bytes.
    pub(super) size: u64,
    pub(super) annotations: HashMap<String, String>,
}

/// The entries of an index, without those that have an unsupported digest.
pub(super) fn entries(bytes: &[u8]) -> Result<Vec<Entry>, RegistryFailure> {
    let index: ImageIndex = parse(bytes)?;
    let entry = |entry: &Descriptor| {
        let kind = entry.artifact_type().as_ref().map(ToString::to_string).unwrap_or_default();
        Some(Entry { digest: digest(entry).ok()?, kind, annotations: entry.annotations().clone().unwrap_or_default() })
    };
    Ok(index.manifests().iter().filter_map(entry).collect())
}

/// The layers of a manifest, without those that have an unsupported digest.
pub(super) fn layers(bytes: &[u8]) -> Result<Vec<Layer>, RegistryFailure> {
    let manifest: ImageManifest = parse(bytes)?;
    let layer = |layer: &Descriptor| {
        let annotations = layer.annotations().clone().unwrap_or_default();
        Some(Layer {
            kind: layer.media_type().to_string(),
            digest: digest(layer).ok()?,
            size: layer.size(),
            annotations,
        })
    };
    Ok(manifest.layers().iter().filter_map(layer).collect())
}

/// The fields that distinguish an index from a manifest: old tools omit the media type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
}

/// The component's blob, or the manifest to fetch next.
pub(super) fn read(bytes: &[u8]) -> Result<Leads, RegistryFailure> {
    if is_index(&parse(bytes)?)? {
        return of_index(&parse(bytes)?).map(Leads::Manifest);
    }
    of_manifest(&parse(bytes)?).map(Leads::Blob)
}

/// Refuses a document that could be read as a manifest and as an index, because a signer could
/// check one reading and the manager use the other (CVE-2021-41190).
fn is_index(Shape { media_type, manifests, layers }: &Shape) -> Result<bool, RegistryFailure> {
    let ambiguous =
        |what: &str| Err(RegistryFailure::Layout(format!("{what}; push the component as an artifact of its own")));
    if manifests.is_some() && layers.is_some() {
        return ambiguous("both manifests and layers");
    }
    match media_type.as_deref() {
        Some(MANIFEST | DOCKER_MANIFEST) if manifests.is_some() => {
            ambiguous("manifests, but its media type is not that of an index")
        }
        Some(INDEX | DOCKER_LIST) if manifests.is_none() => {
            ambiguous("no manifests, but its media type is that of an index")
        }
        _ => Ok(manifests.is_some()),
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RegistryFailure> {
    serde_json::from_slice(bytes)
        .map_err(|error| RegistryFailure::Malformed { what: "the manifest", reason: shown(&error.to_string()) })
}

fn of_manifest(manifest: &ImageManifest) -> Result<Blob, RegistryFailure> {
    for wanted in LAYERS {
        let mut layers = manifest.layers().iter().filter(|layer| layer.media_type().as_ref() == *wanted);
        match (layers.next(), layers.next()) {
            (None, _) => {}
            (Some(layer), None) => return blob(layer),
            (Some(_), Some(_)) => {
                let reason = format!("two layers of type {wanted}; push the component as an artifact of its own");
                return Err(RegistryFailure::Layout(reason));
            }
        }
    }
    let there = manifest.layers().iter().map(|layer| layer.media_type().to_string());
    Err(RegistryFailure::Layout(format!(
        "no component among its layers ({}); push the .wasm file with skysail push, wkg or oras as {LAYER}",
        listed(there)
    )))
}

/// The entry for WebAssembly, or the only entry that is not an attachment.
fn of_index(index: &ImageIndex) -> Result<Digest, RegistryFailure> {
    let is_manifest = |entry: &&Descriptor| {
        matches!(entry.media_type(), MediaType::ImageManifest) || entry.media_type().as_ref() == DOCKER_MANIFEST
    };
    let entries: Vec<&Descriptor> = index.manifests().iter().filter(is_manifest).filter(|e| !is_attached(e)).collect();
    let wasm: Vec<&&Descriptor> = entries.iter().filter(|entry| is_wasm(entry)).collect();
    let chosen = match (wasm.as_slice(), entries.as_slice()) {
        ([one], _) => one,
        ([], [one]) => one,
        (found, _) => {
            let count = found.len();
            let platforms = listed(index.manifests().iter().map(platform));
            return Err(RegistryFailure::Layout(format!(
                "an index with {count} entries for WebAssembly ({platforms}); reference the digest of the right one"
            )));
        }
    };
    digest(chosen)
}

fn is_wasm(entry: &Descriptor) -> bool {
    let artifact = entry.artifact_type().as_ref().is_some_and(|kind| KINDS.contains(&kind.as_ref()));
    let architecture = entry.platform().as_ref().map(|platform| platform.architecture().to_string());
    artifact || architecture.is_some_and(|name| name.starts_with("wasm"))
}

/// Whether the entry is attached to another one: an attestation of a build, a signature of cosign.
fn is_attached(entry: &Descriptor) -> bool {
    let annotations = entry.annotations().as_ref();
    annotations.is_some_and(|map| map.contains_key("vnd.docker.reference.type"))
        || entry.artifact_type().as_ref().is_some_and(|kind| kind.as_ref().starts_with("application/vnd.dev.sigstore."))
}

fn platform(entry: &Descriptor) -> String {
    entry.platform().as_ref().map_or_else(
        || entry.media_type().to_string(),
        |platform| format!("{}/{}", platform.os(), platform.architecture()),
    )
}

fn blob(layer: &Descriptor) -> Result<Blob, RegistryFailure> {
    Ok(Blob { digest: digest(layer)?, size: layer.size() })
}

fn digest(descriptor: &Descriptor) -> Result<Digest, RegistryFailure> {
    let text = descriptor.digest().to_string();
    Digest::from_str(&text)
        .map_err(|error| RegistryFailure::Malformed { what: "a digest", reason: shown(&error.to_string()) })
}

/// Lists at most eight names, each shortened to one line, because anyone who may push chooses these
/// names.
fn listed(names: impl Iterator<Item = String>) -> String {
    const SHOWN_MAX: usize = 8;
    let names: Vec<String> = names.collect();
    let shown = names.iter().take(SHOWN_MAX).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "there are none".to_owned(),
        count if count > SHOWN_MAX => format!("{shown} and {} more", count - SHOWN_MAX),
        _ => shown,
    }
}

//! `skysail push`: pushes a component that a manager would accept to a registry, in the OCI layout
//! that the tools for WebAssembly share.

use std::{collections::HashMap, time::UNIX_EPOCH};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use skysail_host::{Limits, admission::Inspection};
use skysail_sources::{Artifact, Digest};

use super::{inspect, registry};
use crate::{
    args::{OutputFormat, PushArgs},
    component_file::{self, Contents},
    exit::{MarkExt as _, Reason},
    output,
};

/// Pushes the component and prints its reference with the digest.
///
/// # Errors
/// The file cannot be read, or the component or the push is refused.
pub(crate) fn run(args: PushArgs) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(push(args))
}

async fn push(args: PushArgs) -> anyhow::Result<()> {
    let PushArgs { file, reference, annotation, output, registry } = args;
    let limits = Limits { component_bytes: registry.component_bytes, ..Limits::default() };
    let (reference, registry) = registry::open(&reference, registry)?;
    if reference.digest().is_some() {
        let text = "a reference to push to cannot have a digest; give a tag or no tag";
        return (|| bail!("{reference}: {text}"))().or_exit(Reason::Usage);
    }
    let component = match component_file::read(&file, limits.component_bytes).or_exit(Reason::Usage)? {
        Contents::Whole(bytes) => bytes,
        Contents::TooLarge { size, bytes_max } => {
            let text = format!(
                "{} has {size} bytes, and --component-bytes is {bytes_max}; raise it, and also the provider's limit componentBytes",
                file.display()
            );
            return (|| bail!(text))().or_exit(Reason::Refused);
        }
    };
    let mut annotations = HashMap::new();
    for (key, value) in annotation {
        if annotations.contains_key(&key) {
            return (|| bail!("--annotation {key}: the key is given twice; give it once"))().or_exit(Reason::Usage);
        }
        annotations.insert(key, value);
    }
    let (inspection, _) = inspect::judge(component.clone(), &file.to_string_lossy(), limits).await?;
    if let Some(refusal) = inspection.refusals.first() {
        return (|| bail!("{} (skysail inspect prints all reasons)", refusal.sentence))().or_exit(Reason::Refused);
    }
    let modified = std::fs::metadata(&file).and_then(|metadata| metadata.modified()).unwrap_or(UNIX_EPOCH);
    let created = Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH);
    let config = Bytes::from(config(&inspection, &component, created).to_string());
    let size = component.len();
    let title = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let artifact = Artifact { component, title, config, annotations };
    let pushed = tokio::time::timeout(registry::TIMEOUT, registry.push(&reference, artifact)).await;
    let pushed = pushed.with_context(|| format!("the push took longer than {} s", registry::TIMEOUT.as_secs()))?;
    let manifest = pushed.map_err(registry::with_remedy).with_context(|| format!("cannot push {reference}"))?;
    output::print(match output {
        OutputFormat::Text => format!("{reference}@{manifest}\ncomponent {}, {size} bytes\n", inspection.digest),
        OutputFormat::Json => {
            let value = json!({
                "reference": reference.whole(), "manifest": manifest.to_string(), "component": inspection.digest, "size": size,
            });
            output::json(&value)?
        }
    }.as_bytes())
}

/// The OCI config of the artifact, for registries' web pages and other hosts. Its creation time is
/// that of the file, so that the same file gives the same artifact.
///
/// Source: the CNCF's wasm OCI artifact layout, as `oci-wasm` reads it.
fn config(inspection: &Inspection, component: &[u8], created: Timestamp) -> serde_json::Value {
    let names = |interfaces: &[skysail_host::admission::Interface]| -> Vec<String> {
        interfaces.iter().map(|interface| interface.name.clone()).collect()
    };
    json!({
        "created": created.to_string(),
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [Digest::of(component).to_string()],
        "component": { "exports": names(&inspection.exports), "imports": names(&inspection.imports) },
    })
}

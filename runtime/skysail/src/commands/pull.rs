//! `skysail pull`: a component out of a registry, checked against its digest, into a file.

use std::{
    fs::Permissions,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde_json::json;
use skysail_host::Limits;
use skysail_sources::{PublicKey, PullOptions, Pulled, Reference, SignaturePolicy};

use super::registry;
use crate::{
    args::{OutputFormat, PullArgs},
    exit::{MarkExt as _, Reason},
    output,
};

/// Pulls, writes and prints what it is.
///
/// # Errors
/// The registry does not have it, or the file cannot be written.
pub(crate) fn run(args: PullArgs) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(pull(args))
}

async fn pull(args: PullArgs) -> anyhow::Result<()> {
    let PullArgs { reference, file, output, key, registry } = args;
    let (reference, registry) = registry::open(&reference, registry)?;
    let signatures = signatures(&key).or_exit(Reason::Usage)?;
    let bytes_max = Limits::default().component_bytes;
    let options = PullOptions { bytes_max, timeout: registry::TIMEOUT, signatures };
    let pulled = registry.pull(&reference, None, &options).await.with_context(|| format!("cannot pull {reference}"))?;
    let Pulled { bytes, digest, manifest } = pulled.context("the registry has nothing new")?;
    let file = file.unwrap_or_else(|| named(&reference));
    write(&file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
    let (size, file) = (bytes.len(), file.display().to_string());
    output::print(
        match output {
            OutputFormat::Text => format!("{file}\ncomponent {digest}, {size} bytes, manifest {manifest}\n"),
            OutputFormat::Json => {
                let value = json!({
                    "file": file, "component": digest.to_string(), "manifest": manifest.to_string(), "size": size,
                });
                format!("{value:#}\n")
            }
        }
        .as_bytes(),
    )
}

/// All of these have to have signed; nobody where none is given.
fn signatures(files: &[PathBuf]) -> anyhow::Result<Option<SignaturePolicy>> {
    if files.is_empty() {
        return Ok(None);
    }
    let mut keys = Vec::new();
    for file in files {
        let pem = std::fs::read_to_string(file).with_context(|| format!("--key: cannot read {}", file.display()))?;
        let key = PublicKey::from_pem(&pem).map_err(|error| anyhow!("--key: {} holds {error}", file.display()))?;
        keys.push(key);
    }
    Ok(Some(SignaturePolicy::new(keys, files.len()).context("--key")?))
}

fn named(reference: &Reference) -> PathBuf {
    let name = reference.repository().rsplit('/').next().unwrap_or("provider");
    PathBuf::from(format!("{name}.wasm"))
}

/// Whoever watches the file never sees a part of it.
fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // As any new file: the umask decides who may read it.
    let mut new = tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

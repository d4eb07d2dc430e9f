//! `skysail support-bundle`: an archive with what a person needs who looks for a fault from afar.
//!
//! # Flow
//! 1. read (client): objects of the cluster, logs and checks of the manager's pods, and with
//!    `--server` what a manager says. Each part is redacted as it is read.
//! 2. write: the archive, for this account alone, and the list of its files.

mod archive;
mod read;
mod redact;
mod services;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use tempfile::NamedTempFile;

use self::{archive::Bundle, redact::Redaction};
use crate::{
    args::{LoggingFormat, SupportBundleArgs},
    cluster::Cluster,
    commands::manager_port,
    exit::{MarkExt as _, Reason},
    output, output_file, telemetry,
};

/// Collects and writes the bundle.
///
/// # Errors
/// A flag is invalid, neither the API server nor a manager answers, or the file cannot be written.
/// A part that cannot be read is no error.
pub(crate) fn run(args: &SupportBundleArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(support_bundle(args))
}

async fn support_bundle(args: &SupportBundleArgs) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let folder = format!("skysail-support-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let file = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    output_file::check("--file", &file).or_exit(Reason::Usage)?;
    let new = new_beside(&file).or_exit(Reason::Usage)?;
    let client = Cluster::of(args.kubeconfig.as_deref()).await.or_exit(Reason::Usage)?;
    let client = client.client("support-bundle").await.or_exit(Reason::Usage)?;
    let manager = match &args.manager.server {
        Some(server) => {
            let client = manager_port::client(server, &args.manager, "support-bundle").await.or_exit(Reason::Usage)?;
            Some((client, manager_port::shown(server)))
        }
        None => None,
    };
    // read (client)
    let redaction = Redaction::new(args.with_config)?;
    let mut bundle = Bundle::new(&redaction);
    let (namespace, selector) = (&*args.namespace, &*args.selector);
    let cluster = read::Cluster { client: &client, namespace, selector, redaction: &redaction };
    let services = match cluster.version().await {
        Ok(version) => {
            bundle.add("version.json", Ok(version));
            cluster.read(&mut bundle).await
        }
        // The manager may say why its API server does not answer.
        Err(error) if manager.is_some() => {
            bundle.add("version.json", Err(error));
            Vec::new()
        }
        Err(error) => return Err(error).or_exit(Reason::Unreachable),
    };
    if let Some((client, server)) = &manager {
        read::of_manager(client, server, &redaction, &mut bundle).await;
        services::add((client, server), &redaction, &services, &mut bundle).await;
    }
    // write
    let program = env!("CARGO_PKG_VERSION");
    let head = format!("Support bundle of {now:.0}, by skysail {program}\nNamespace of the manager: {namespace}\n");
    let archive = bundle.archive(&folder, &head, now.as_second().unsigned_abs())?;
    write(new, &file, &archive).with_context(|| format!("cannot write {}", file.display()))?;
    let (size, file) = (archive.len(), output::plain(&file.to_string_lossy()));
    output::print(format!("{}\n{file}, {size} bytes: read it before you send it\n", bundle.contents()).as_bytes())
}

/// A new file in the folder of this one, readable for this account alone.
fn new_beside(file: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    NamedTempFile::new_in(folder)
        .map_err(|error| error.kind())
        .map_err(|kind| anyhow::anyhow!("--file: cannot create a file in {}: {kind}", folder.display()))
}

/// Gives the file its bytes and its name.
fn write(mut new: NamedTempFile, file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests;

//! A component in an OCI registry, by tag or by digest.
//!
//! # Flow
//! 1. The source resolves a tag to a digest with one HEAD request per poll; it fetches a reference
//!    by digest once.
//! 2. Where signatures are required, the source verifies the signatures of that digest before it
//!    reads the artifact.
//! 3. The source fetches a new digest: index, manifest, the component's blob. Each is checked
//!    against the digest that refers to it.
//! 4. A new component becomes a [`SourceFile`]; the same component under another manifest is not
//!    reported.
//!
//! # Trust
//! The operator names a registry, its mirrors and trusted hosts; these may be in a private network.
//! Every other address from a registry is checked: redirects and token services have to be at
//! public addresses, and credentials go only to the registry's own host or its parent domain. A
//! body that is longer than announced, or has another digest, is refused.

use std::{sync::Arc, time::Duration};

use oci_spec::distribution::Reference;
use tokio::{sync::mpsc, task::JoinSet, time};

use crate::{Digest, Offers, SourceError, SourceFile, error::RegistryFailure, offer::Last};

mod conversation;
mod credentials;
mod manifest;
mod pull;
mod push;
mod registry;
mod signature;

#[cfg(test)]
mod tests;

pub use credentials::{DockerConfig, RegistryCredentials};
pub use pull::{PullOptions, Pulled};
pub use push::Artifact;
pub use registry::{AddressJudge, Registry, RegistryOptions, RegistryOptionsError};
pub use signature::{
    Identity, PublicKey, PublicKeyError, SignaturePolicy, SignaturePolicyError, Signers, TrustRoot, TrustRootError,
};

/// How a registry is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciSourceSettings {
    /// How often a tag is resolved, with a jitter of a tenth so that many managers do not send
    /// requests together. Default 60 s, at least [`Self::POLL_MIN`]: public registries limit the
    /// rate of requests.
    pub poll: Duration,
    /// The time for one poll with its download. Default 5 min.
    pub timeout: Duration,
    /// Largest component that is fetched, in bytes. Default 32 MiB.
    pub bytes_max: u64,
    /// The signatures that the artifact has to have. Default: none.
    pub signatures: Option<SignaturePolicy>,
}

impl OciSourceSettings {
    /// Shortest period of the poll.
    pub const POLL_MIN: Duration = Duration::from_secs(1);
}

impl Default for OciSourceSettings {
    fn default() -> Self {
        Self { poll: Duration::from_mins(1), timeout: Duration::from_mins(5), bytes_max: 32 << 20, signatures: None }
    }
}

/// First wait after a failure; each next one is twice as long, up to the poll's period or
/// [`RETRY_MAX`], whichever is longer.
const RETRY_MIN: Duration = Duration::from_secs(2);

/// Longest wait after a failure of a reference by digest, which is not polled.
const RETRY_MAX: Duration = Duration::from_mins(1);

/// Watches one reference.
#[derive(Clone, Debug)]
pub struct OciSource {
    registry: Registry,
    reference: Reference,
    settings: OciSourceSettings,
}

impl OciSource {
    /// A source for this reference. Nothing is sent yet.
    #[must_use]
    pub fn new(registry: Registry, reference: Reference, settings: OciSourceSettings) -> Self {
        let poll = settings.poll.max(OciSourceSettings::POLL_MIN);
        Self { registry, reference, settings: OciSourceSettings { poll, ..settings } }
    }

    /// Fetches the component and watches its tag until the returned stream is dropped.
    ///
    /// The first item comes as soon as the registry has answered. Must be called on a tokio runtime
    /// with I/O and time enabled.
    #[must_use]
    pub fn watch(self) -> Offers {
        let (reports, receiver) = mpsc::channel(Offers::QUEUE);
        let mut watcher = JoinSet::new();
        watcher.spawn(Task { source: self, manifest: None, last: Last::default(), retry: RETRY_MIN }.run(reports));
        Offers::new(receiver, watcher)
    }
}

struct Task {
    source: OciSource,
    /// The manifest digest of the last successful poll.
    manifest: Option<Digest>,
    last: Last,
    retry: Duration,
}

impl Task {
    async fn run(mut self, reports: mpsc::Sender<Result<SourceFile, SourceError>>) {
        loop {
            let OciSource { registry, reference, settings } = &self.source;
            // After a reported failure the component is fetched and reported again.
            let known = self.manifest.filter(|_| !self.last.is_failure());
            let OciSourceSettings { bytes_max, timeout, ref signatures, .. } = *settings;
            let options = PullOptions { bytes_max, timeout, signatures: signatures.clone() };
            let pulled = tokio::select! {
                pulled = registry.pull(reference, known, &options) => pulled,
                () = reports.closed() => return,
            };
            let wait = self.wait(&pulled);
            if let Some(report) = self.report(pulled)
                && reports.send(report).await.is_err()
            {
                return;
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = reports.closed() => return,
            }
        }
    }

    /// The time until the next poll, at least the registry's Retry-After; `None` after a reference
    /// by digest was fetched.
    fn wait(&mut self, pulled: &Result<Option<Pulled>, RegistryFailure>) -> Option<Duration> {
        let OciSource { reference, settings, .. } = &self.source;
        let (wait, at_least) = match pulled {
            Ok(_) => {
                self.retry = RETRY_MIN;
                if reference.digest().is_some() {
                    return None;
                }
                (settings.poll, Duration::ZERO)
            }
            Err(failure) => {
                let (wait, rest) = (self.retry, failure.retry_after().unwrap_or_default());
                self.retry = (self.retry * 2).min(settings.poll.max(RETRY_MAX));
                // The jitter spreads clients that received the same Retry-After.
                (wait, rest.mul_f64(1.0 + 0.1 * fastrand::f64()))
            }
        };
        Some(wait.mul_f64(0.9 + 0.2 * fastrand::f64()).max(at_least))
    }

    fn report(&mut self, pulled: Result<Option<Pulled>, RegistryFailure>) -> Option<Result<SourceFile, SourceError>> {
        let reference = &self.source.reference;
        match pulled {
            Ok(None) => None,
            Ok(Some(Pulled { bytes, digest, manifest })) => {
                self.manifest = Some(manifest);
                let name = reference.whole();
                let origin = format!("oci {}@{manifest}", name.split('@').next().unwrap_or_default());
                self.last.if_changed(Ok(SourceFile { bytes, digest, origin }))
            }
            Err(failure) => {
                let (reference, failure) = (reference.whole(), Arc::new(failure));
                self.last.if_changed(Err(SourceError::Registry { reference, failure }))
            }
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

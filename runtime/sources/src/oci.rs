//! A component in an OCI registry, by tag or by digest.
//!
//! # Flow
//! 1. A tag is resolved to a digest with one HEAD, once in a period; a reference by digest is final
//!    and is fetched once.
//! 2. Where signatures are required, those of that digest are looked for, before anything of it is
//!    read.
//! 3. A digest that is new is followed, each step checked against the digest that led there: index,
//!    manifest, the component's blob.
//! 4. The component becomes an [`Offer`]; the same one again, under whatever manifest, means
//!    silence.
//!
//! # Whom it trusts
//! The operator names a registry, its mirrors and hosts it may lead to; those may lie in a private
//! network. Everything else that a registry says is judged before it is followed: redirects and
//! token services go to public addresses only, and credentials to the registry's own host or its
//! parent domain's. Nothing that it sends is taken for longer than it promised, and nothing is used
//! that has another digest.

use std::{sync::Arc, time::Duration};

use oci_spec::distribution::Reference;
use tokio::{sync::mpsc, task::JoinSet, time};

use crate::{Digest, Offer, Offers, SourceError, offer::Last};

mod conversation;
mod credentials;
mod failure;
mod manifest;
mod pull;
mod push;
mod registry;
mod signature;

#[cfg(test)]
mod tests;

pub use credentials::{Credentials, DockerConfig};
pub use failure::{Astray, RegistryFailure};
pub use pull::{PullOptions, Pulled};
pub use push::Artifact;
pub use registry::{AddressJudge, Registry, RegistryOptions, RegistryOptionsError};
pub use signature::{
    Identity, PublicKey, PublicKeyError, SignaturePolicy, SignaturePolicyError, Signers, TrustRoot, TrustRootError,
};

/// How a registry is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciSourceSettings {
    /// How often a tag is resolved, give or take a tenth so that many managers do not ask at once.
    /// Default 60 s, at least
    /// [`Self::POLL_MIN`]: public registries count requests.
    pub poll: Duration,
    /// For one look, its download included. Default 5 min.
    pub timeout: Duration,
    /// Largest component that is fetched, in bytes. Default 32 MiB.
    pub bytes_max: u64,
    /// Who has to have signed what the reference leads to. Default: nobody.
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
    /// What the reference led to last.
    manifest: Option<Digest>,
    last: Last,
    retry: Duration,
}

impl Task {
    async fn run(mut self, reports: mpsc::Sender<Result<Offer, SourceError>>) {
        loop {
            let OciSource { registry, reference, settings } = &self.source;
            // After a reported failure the recovery has to be reported: with the component, which
            // may have been lost meanwhile.
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

    /// Until the next look; none where there is nothing more to see. Never before the registry
    /// wants.
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
                // Many clients that got the same time come back one after the other.
                (wait, rest.mul_f64(1.0 + 0.1 * fastrand::f64()))
            }
        };
        Some(wait.mul_f64(0.9 + 0.2 * fastrand::f64()).max(at_least))
    }

    fn report(&mut self, pulled: Result<Option<Pulled>, RegistryFailure>) -> Option<Result<Offer, SourceError>> {
        let reference = &self.source.reference;
        match pulled {
            Ok(None) => None,
            Ok(Some(Pulled { bytes, digest, manifest })) => {
                self.manifest = Some(manifest);
                let name = reference.whole();
                let origin = format!("oci {}@{manifest}", name.split('@').next().unwrap_or_default());
                self.last.news(Ok(Offer { bytes, digest, origin }))
            }
            Err(failure) => {
                let (reference, failure) = (reference.whole(), Arc::new(failure));
                self.last.news(Err(SourceError::Registry { reference, failure }))
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

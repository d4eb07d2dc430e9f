//! The Lease: read, taken, renewed, given back. Each write is guarded by the version that was read,
//! so of two writers one succeeds.
//!
//! It is written as client-go writes it: a Go manager and this one can stand by for each other.

use std::{error::Error as StdError, sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, api::PostParams};
use tokio::time::timeout;

use crate::{clock::Clock, config::ElectionConfig};

/// Who writes, in `metadata.managedFields`.
pub(crate) const FIELD_MANAGER: &str = "skysail";

/// What is left of a lease that was given back, as client-go: others take it at once, and this is
/// for those who look at the time alone.
const RELEASED_SECONDS: i32 = 1;

/// Why the lease could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    /// The API answered with an error.
    #[error("failed to {step} the lease")]
    Api {
        step: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    /// It did not answer: whether it was done is not known.
    #[error("failed to {step} the lease: no answer within {after:?}")]
    Timeout { step: &'static str, after: Duration },
}

impl LeaseError {
    /// Whether somebody else wrote it first.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 409))
    }

    /// What was tried and why it failed, on one line: of an answer of the API its message, which
    /// kube's text has with everything else around it.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => format!("{self}: {}", status.message),
                other => format!("{self}: {}", chain(other)),
            },
            Self::Timeout { .. } => self.to_string(),
        }
    }
}

/// The error with its causes; some libraries repeat a cause in their own text.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// What is known of the lease.
pub(crate) struct Lock {
    pub(crate) config: ElectionConfig,
    pub(crate) clock: Arc<dyn Clock>,
    api: Api<Lease>,
    /// As last read or written.
    known: Option<Lease>,
    /// When we first saw it as it is, by our clock: when its holder wrote it, by which clock, is of
    /// no use.
    changed: Duration,
}

impl Lock {
    pub(crate) fn new(client: kube::Client, config: ElectionConfig, clock: Arc<dyn Clock>) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        Self { config, clock, api, known: None, changed: Duration::ZERO }
    }

    pub(crate) fn api(&self) -> &Api<Lease> {
        &self.api
    }

    pub(crate) fn known(&self) -> Option<&Lease> {
        self.known.as_ref()
    }

    /// Who holds it; empty where nobody does.
    pub(crate) fn holder(&self) -> &str {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.holder() == self.config.identity
    }

    /// Whether its holder may still act on it.
    pub(crate) fn is_valid(&self) -> bool {
        !self.left().is_zero()
    }

    /// For how long its holder may still act on it, by what was seen here. A lease that does not
    /// say for how long it holds is taken as one of ours.
    ///
    /// This is what keeps two from leading: its holder counts a shorter time from when it *sent*
    /// its last renewal, and nobody can see a renewal before it was sent. A renewal that is seen
    /// sooner, by a watch and not by the next look, makes the wait end sooner, and never too soon;
    /// one that is seen late, or out of order, makes it longer.
    pub(crate) fn left(&self) -> Duration {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds);
        let own = self.config.timing.lease_duration();
        let duration = seconds.and_then(|s| u64::try_from(s).ok()).map_or(own, Duration::from_secs);
        (self.changed + duration).saturating_sub(self.clock.elapsed())
    }

    /// Whether anybody may take it.
    pub(crate) fn is_free(&self) -> bool {
        self.holder().is_empty() || self.is_ours() || !self.is_valid()
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.known.as_ref()?.spec.as_ref()
    }

    /// Reads it again; there may be none.
    pub(crate) async fn read(&mut self) -> Result<(), LeaseError> {
        let found = self.request("read", self.api.get_opt(&self.config.lease)).await?;
        self.see(found);
        Ok(())
    }

    /// Notes how it is now; what is new is counted from now.
    pub(crate) fn see(&mut self, found: Option<Lease>) {
        if found.as_ref().and_then(|lease| lease.spec.as_ref()) != self.spec() {
            self.changed = self.clock.elapsed();
        }
        self.known = found;
    }

    /// Makes it ours, or keeps it so. When the request was sent.
    pub(crate) async fn take(&mut self) -> Result<Duration, LeaseError> {
        let now = Some(MicroTime(self.clock.now()));
        let mut spec = self.spec().cloned().unwrap_or_default();
        if !self.is_ours() {
            spec.lease_transitions =
                Some(self.spec().map_or(0, |spec| spec.lease_transitions.unwrap_or(0).saturating_add(1)));
            spec.acquire_time.clone_from(&now);
        }
        spec.holder_identity = Some(self.config.identity.clone());
        spec.lease_duration_seconds = Some(self.config.timing.lease_seconds());
        spec.renew_time = now;
        self.write("take", spec).await
    }

    /// Writes a newer time, on the assumption that nobody has written since.
    pub(crate) async fn renew(&mut self) -> Result<Duration, LeaseError> {
        let spec = LeaseSpec {
            renew_time: Some(MicroTime(self.clock.now())),
            lease_duration_seconds: Some(self.config.timing.lease_seconds()),
            ..self.spec().cloned().unwrap_or_default()
        };
        self.write("renew", spec).await
    }

    /// Leaves it to the next one.
    pub(crate) async fn give_back(&mut self) -> Result<(), LeaseError> {
        let now = Some(MicroTime(self.clock.now()));
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(RELEASED_SECONDS),
            acquire_time: now.clone(),
            renew_time: now,
            ..self.spec().cloned().unwrap_or_default()
        };
        self.write("release", spec).await.map(drop)
    }

    /// When the request was sent: what it gives is counted from then.
    async fn write(&mut self, step: &'static str, spec: LeaseSpec) -> Result<Duration, LeaseError> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let sent = self.clock.elapsed();
        let written = match &self.known {
            Some(lease) => {
                let lease = Lease { spec: Some(spec), ..lease.clone() };
                self.request(step, self.api.replace(&self.config.lease, &params, &lease)).await?
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.config.lease.clone()), ..ObjectMeta::default() };
                self.request(step, self.api.create(&params, &Lease { metadata, spec: Some(spec) })).await?
            }
        };
        self.known = Some(written);
        self.changed = self.clock.elapsed();
        Ok(sent)
    }

    async fn request<T>(
        &self,
        step: &'static str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, LeaseError> {
        let after = self.config.timing.request_timeout();
        match timeout(after, request).await {
            Ok(answer) => answer.map_err(|source| LeaseError::Api { step, source: Box::new(source) }),
            Err(_elapsed) => Err(LeaseError::Timeout { step, after }),
        }
    }
}

//! The Lease: read, acquire, renew, release. Each write has the resource version of the last read,
//! so of two concurrent writers one succeeds.
//!
//! The content is the same as client-go's: a Go manager and this one can stand by for each other.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, api::PostParams};
use skysail_provider::text::with_causes;
use tokio::time::timeout;

use crate::{clock::Clock, config::ElectionConfig};

/// The field manager in `metadata.managedFields`.
pub(crate) const FIELD_MANAGER: &str = "skysail";

/// Duration of a released lease, as client-go: other candidates take it at once; this value is for
/// clients that check only the time.
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
    /// The API did not answer: the write may have been carried out.
    #[error("failed to {step} the lease: no answer within {after:?}")]
    Timeout { step: &'static str, after: Duration },
}

impl LeaseError {
    /// Whether another client wrote the lease first.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 409))
    }

    /// The step and its error on one line: of an answer of the API only the message, because kube's
    /// text repeats all fields.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => format!("{self}: {}", status.message),
                other => format!("{self}: {}", with_causes(other)),
            },
            Self::Timeout { .. } => self.to_string(),
        }
    }
}

/// The known state of the lease.
pub(crate) struct Lock {
    pub(crate) config: ElectionConfig,
    pub(crate) clock: Arc<dyn Clock>,
    api: Api<Lease>,
    /// The lease as last read or written.
    known: Option<Lease>,
    /// When the lease expires, by our clock: its duration after its content was first seen. The
    /// times in the Lease are not used, because they are from another clock.
    expires: Duration,
}

impl Lock {
    pub(crate) fn new(client: kube::Client, config: ElectionConfig, clock: Arc<dyn Clock>) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        Self { config, clock, api, known: None, expires: Duration::ZERO }
    }

    pub(crate) fn api(&self) -> &Api<Lease> {
        &self.api
    }

    pub(crate) fn known(&self) -> Option<&Lease> {
        self.known.as_ref()
    }

    /// The holder's identity; empty without a holder.
    pub(crate) fn holder(&self) -> &str {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.holder() == self.config.identity
    }

    /// Whether the lease has not expired.
    pub(crate) fn is_valid(&self) -> bool {
        !self.left().is_zero()
    }

    /// Time until the lease expires.
    ///
    /// This rule prevents two leaders: the holder counts a shorter time from when it *sent* its
    /// last renewal, and no replica can see a renewal before it was sent. Seeing a renewal earlier,
    /// by a watch, shortens the wait, but never too much; seeing it late or out of order prolongs
    /// the wait.
    pub(crate) fn left(&self) -> Duration {
        self.expires.saturating_sub(self.clock.elapsed())
    }

    /// Whether this process may take the lease. A lease that was deleted is free when it would have
    /// expired: its holder does not know of the deletion before the next renewal.
    pub(crate) fn is_free(&self) -> bool {
        let has_no_holder = self.known.is_some() && self.holder().is_empty();
        has_no_holder || self.is_ours() || !self.is_valid()
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.known.as_ref()?.spec.as_ref()
    }

    /// Reads the lease, which may not exist.
    pub(crate) async fn read(&mut self) -> Result<(), LeaseError> {
        let found = self.request("read", self.api.get_opt(&self.config.lease)).await?;
        self.see(found);
        Ok(())
    }

    /// Stores the present state; changed content counts from now.
    pub(crate) fn see(&mut self, found: Option<Lease>) {
        match &found {
            Some(lease) if lease.spec.as_ref() != self.spec() => self.count(lease.spec.as_ref()),
            None if self.known.is_some() && (self.holder().is_empty() || self.is_ours()) => {
                self.expires = Duration::ZERO;
            }
            Some(_) | None => {}
        }
        self.known = found;
    }

    /// Counts the duration of the lease from now. Without a duration in the Lease, our own is
    /// assumed.
    fn count(&mut self, spec: Option<&LeaseSpec>) {
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let own = self.config.timing.lease_duration();
        let duration = seconds.and_then(|s| u64::try_from(s).ok()).map_or(own, Duration::from_secs);
        self.expires = self.clock.elapsed() + duration;
    }

    /// Acquires or keeps the lease. Returns when the request was sent.
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

    /// Writes a newer time, without a read before.
    pub(crate) async fn renew(&mut self) -> Result<Duration, LeaseError> {
        let spec = LeaseSpec {
            renew_time: Some(MicroTime(self.clock.now())),
            lease_duration_seconds: Some(self.config.timing.lease_seconds()),
            ..self.spec().cloned().unwrap_or_default()
        };
        self.write("renew", spec).await
    }

    /// Releases the lease.
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

    /// Returns when the request was sent, from which the lease counts.
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
        self.count(written.spec.as_ref());
        self.known = Some(written);
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

//! The explanation of a Service as a document, for JSON and for people.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a Service has, or has not, its load balancer. All durations are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExplanation {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The object as the watch shows it; none if only the record of a load balancer is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ServiceObject>,
    /// Which provider the claims give the Service to.
    pub owner: ServiceOwner,
    /// The provider whose queue has the Service: the one that made the load balancer, or else the
    /// owner. None if no provider works on the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ServiceProvider>,
    /// What the manager knows about the load balancer; none if no provider was called for it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerRecord>,
    /// What a run would begin with now.
    pub plan: PlannedStep,
    /// What pauses the Service, and how to continue; none if it is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// What becomes of the load balancer when the Service goes, and why; none if no provider works
    /// on the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<String>,
    /// When the next run is; none if no provider works on the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,
    /// How the last run ended that did something or failed; none since the start of the manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_outcome: Option<LastOutcome>,
}

/// The fields of the object that decide about its load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceObject {
    /// `metadata.uid`.
    pub uid: String,
    /// Whether `spec.type` is LoadBalancer.
    pub wants_load_balancer: bool,
    /// `spec.loadBalancerClass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Whether the object has a deletion timestamp.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// The provider that the annotation of the manager names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_provider: Option<String>,
    /// Addresses and host names in `status.loadBalancer`.
    pub ingress: Vec<String>,
}

/// The owner of a Service and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceOwner {
    /// The name of the provider; none without an owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Why this provider, or none; without an owner also what to do.
    pub reason: String,
}

/// The provider that works on a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceProvider {
    /// The name that the operator gave the provider.
    pub name: String,
    /// Name and version of the serving release; none if no release serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Whether the release exports `load-balancers`; unknown if no release serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exports_load_balancers: Option<bool>,
    /// Nodes that back its load balancers; none while it is not decided which nodes these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
}

/// What the manager knows about a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerRecord {
    /// The provider that made the load balancer, or was asked to.
    pub provider: String,
    /// Whether this provider still exists.
    pub provider_exists: bool,
    /// `Unconfirmed`, `Unsettled`, `Serving`, `Elsewhere` or `Deleted`.
    pub state: String,
    /// The state in a sentence.
    pub explanation: String,
    /// The nodes of the load balancer against those of the provider now: `Current`, `Outdated`, or
    /// `Unknown` after an update that failed. None without a load balancer that serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// The addresses and host names of the provider's answer; none unless the state is `Serving`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Vec<String>>,
    /// Whether the answer was written to the Service; none unless the state is `Serving`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_written: Option<bool>,
}

/// A step and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStep {
    /// `Ensure`, `Update`, `Repair`, `Cleanup`, `DeleteRemembered`, `RetainRemembered`, `GiveBack`,
    /// `Release`, `Refuse`, `Confirm`, `LookUp`, `NoHolder`, `Forget`, `Paused`, `Wait` or
    /// `Nothing`.
    pub step: String,
    /// Why this step is the next one.
    pub reason: String,
}

/// Where a Service is in the queue of its provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The place in the queue.
    pub place: QueuePlace,
    /// Since when the Service is ready or runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// When the next run is due; 0 if it is due and no worker is free. None unless the Service
    /// waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_in_ms: Option<u64>,
    /// What the Service waits for, or what ends the wait earlier.
    pub explanation: String,
    /// Failures in a row that make the next wait longer.
    pub failures: u32,
    /// Conflicts and outages of the Kubernetes API in a row.
    pub api_failures: u32,
    /// Whether the last failure was a denial, so that rotated credentials end the wait.
    pub denied: bool,
}

/// The place of a Service in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueuePlace {
    /// Not in the queue: the next change of the Service queues it.
    Absent,
    /// Due, and waits for a worker.
    Ready,
    /// In work.
    Running,
    /// Waits until a time.
    Waiting,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastOutcome {
    /// How long ago.
    pub ago_ms: u64,
    /// The provider whose queue had the Service.
    pub provider: String,
    /// The last step of the run, as in [`PlannedStep::step`].
    pub step: String,
    /// `Ok`, a code of the contract, or `ApiConflict` or `ApiError` for an error of the Kubernetes
    /// API.
    pub code: String,
    /// The text of the failure, at most 1 KiB; the cloud and the component wrote a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A duration in whole milliseconds.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

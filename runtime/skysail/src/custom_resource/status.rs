//! The field `status` of a `Provider`: the status of a slot (`skysail_host::slot::SlotStatus`) in
//! the format of the API. A status of an older manager may lack fields, so each field is optional.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Status of the provider, as the leader observed it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ProviderStatus {
    /// Generation of the spec to which this status belongs.
    pub(crate) observed_generation: i64,
    /// Conditions of the provider, one entry for each type.
    #[schemars(schema_with = "conditions")]
    pub(crate) conditions: Vec<Condition>,
    /// The serving release; absent while no release serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) active: Option<Active>,
    /// Schemes of the provider IDs that belong to the component that served last. Without
    /// spec.providerIdSchemes the provider keeps them while no release serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) provider_id_schemes: Vec<String>,
    /// Present while the serving release is on probation and may be rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probation: Option<Probation>,
    /// The canary: the release that serves a share of the objects; absent while one release serves
    /// all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) canary: Option<Canary>,
    /// Comparison of the newest release in the phase shadow with its predecessor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shadow: Option<Shadow>,
    /// The release that is being rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) candidate: Option<Candidate>,
    /// The last refusal: why the newest release does not serve, or why the newest settings are not
    /// in force; absent if neither was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<Refused>,
    /// Why the source could not offer a component; absent if its last answer was an offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_failure: Option<Failure>,
    /// Number of releases that became active since the manager started, including the first one.
    pub(crate) swaps: u64,
    /// Number of replaced releases that still have a call in flight.
    pub(crate) draining: u64,
    /// Calls of the serving release in the leader, one entry for each function that was called,
    /// since the release was loaded with its current settings. If nothing else changes, these
    /// numbers are updated at most once a minute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<Calls>,
}

/// The calls of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Calls {
    /// Interface and function of the contract, for example load-balancers.ensure.
    pub(crate) function: String,
    /// Number of calls that ended, including cancelled calls.
    pub(crate) calls: u64,
    /// Number of calls that ended with an error. The answers that something does not exist, or that
    /// the call has to be repeated later, are not errors.
    pub(crate) failed: u64,
    /// Number of calls by outcome: Ok, Cancelled, or the category of the error.
    pub(crate) outcomes: BTreeMap<String, u64>,
    /// Median duration of the calls in milliseconds, rounded up, including the wait that the limit
    /// concurrentCalls causes. Cancelled calls do not count.
    pub(crate) p50_ms: u64,
    /// 99th percentile of the duration of the calls in milliseconds.
    pub(crate) p99_ms: u64,
    /// 99th percentile of the fuel of a call. Like the durations, it is at most a sixteenth too
    /// high.
    pub(crate) fuel_p99: u64,
    /// Largest fuel of one call.
    pub(crate) fuel_max: u64,
    /// Fuel that a call may use: spec.limits.fuel or its default.
    pub(crate) fuel_limit: u64,
    /// Number of calls that hit a limit, by the name of the limit in spec.limits, whether the limit
    /// ended the call or only refused a part of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) limit_hits: BTreeMap<String, u64>,
    /// The last call that ended with such an error; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<FailedCall>,
}

/// A call that ended with an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FailedCall {
    /// Category of the error, as in outcomes.
    pub(crate) code: String,
    /// The error. Of a trap it holds the text and the place of the panic, if the guest reported
    /// them.
    pub(crate) message: String,
    /// When the call ended.
    #[schemars(schema_with = "date")]
    pub(crate) time: Option<Time>,
    /// Whether a call of the same function has succeeded since.
    pub(crate) succeeded_since: bool,
}

/// The serving release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Active {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Source of the component.
    pub(crate) origin: String,
    /// Name of the provider, as identity.describe returned it.
    pub(crate) name: String,
    /// Version of the component, as identity.describe returned it.
    pub(crate) version: String,
    /// Version of the contract that the component uses.
    pub(crate) contract: String,
    /// Interfaces that the component exports besides identity.
    pub(crate) interfaces: Vec<String>,
    /// Schemes of the provider IDs that belong to the component.
    pub(crate) provider_id_schemes: Vec<String>,
    /// Time since which the release serves.
    #[schemars(schema_with = "date")]
    pub(crate) since: Option<Time>,
}

/// Probation of the serving release, in which it may be rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Probation {
    /// Digest of the release that serves again after a rollback: sha256:….
    pub(crate) predecessor: String,
    /// Number of calls that the release has to complete.
    pub(crate) calls: u64,
    /// Milliseconds for which the release has to serve.
    pub(crate) time_ms: u64,
}

/// A release that serves a share of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Canary {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Source of the component.
    pub(crate) origin: String,
    /// Version of the component, as identity.describe returned it.
    pub(crate) version: String,
    /// Percentage of the objects that the release serves.
    pub(crate) percent: u8,
    /// Number of calls that the release has to complete.
    pub(crate) calls: u64,
    /// Milliseconds for which the release has to serve.
    pub(crate) time_ms: u64,
}

/// Comparison of a release's answers with those of its predecessor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shadow {
    /// Digest of the new component: sha256:….
    pub(crate) digest: String,
    /// Number of calls that were made to both releases.
    pub(crate) asked: u64,
    /// Number of these calls that could not be compared, because the predecessor had no answer.
    pub(crate) unanswered: u64,
    /// Number of these calls whose answers differed.
    pub(crate) differing: u64,
    /// The first differences.
    pub(crate) differences: Vec<String>,
}

/// A release that is being rolled out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Candidate {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Source of the component.
    pub(crate) origin: String,
    /// The last stage that was reached: offered, verified, compiled, linked, described,
    /// configChecked, shadowed, canary or active.
    pub(crate) stage: String,
}

/// A release or settings that were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Refused {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Source of the component.
    pub(crate) origin: String,
    /// The last stage that was reached: offered, verified, compiled, linked, described,
    /// configChecked, shadowed, canary or active.
    pub(crate) stage: String,
    /// Reason in one word.
    pub(crate) code: String,
    /// Reason and remedy as a sentence.
    pub(crate) reason: String,
    /// Whether the same component with the same settings will be refused again.
    pub(crate) lasting: bool,
    /// Whether the release was tried again because rollout.retry names its digest.
    pub(crate) retried: bool,
}

/// Failure of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Failure {
    /// Reason in one word.
    pub(crate) code: String,
    /// Reason and remedy as a sentence.
    pub(crate) reason: String,
}

/// The schema of `metav1.Condition`, with the patterns of Kubernetes.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One condition of the provider.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "Type of the condition, in CamelCase.",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {"type": "string", "description": "True, False or Unknown.", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "Generation of the spec to which the condition belongs.",
                },
                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Time of the last change of the status."},
                "reason": {
                    "type": "string",
                    "description": "Reason of the status, one word in CamelCase.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {"type": "string", "description": "Reason of the status as a sentence.", "maxLength": 32768},
            },
        },
    })
}

fn date(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

//! `status` of a `Provider`: what a slot tells about itself (`skysail_host::slot::SlotStatus`), in
//! the words of the API. What an older manager wrote may lack fields, so each is optional.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What the manager that holds the lease makes of the provider.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ProviderStatus {
    /// The generation of the spec that the rest of the status is about.
    pub(crate) observed_generation: i64,
    /// What is true of the provider, one entry for each type.
    #[schemars(schema_with = "conditions")]
    pub(crate) conditions: Vec<Condition>,
    /// The release that serves; absent while none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) active: Option<Active>,
    /// There while what serves may still be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probation: Option<Probation>,
    /// The release that serves a share of the objects; absent while one release serves all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) canary: Option<Canary>,
    /// How a release's answers compare with its predecessor's: of the newest that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shadow: Option<Shadow>,
    /// The release that is on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) candidate: Option<Candidate>,
    /// Why the newest release does not serve, or the newest settings are not those of what serves;
    /// absent where both are well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<Refused>,
    /// Why the source has nothing to offer; absent where its newest word was an offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_failure: Option<Failure>,
    /// Releases that became active since the manager's process began, the first one included.
    pub(crate) swaps: u64,
    /// Releases that serve no new call and still have one running.
    pub(crate) draining: u64,
    /// Calls of the release that serves, one entry for each function that was called. They count
    /// since it was loaded with the settings it has, in the process that leads. Figures alone are
    /// written once a minute at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<Calls>,
}

/// The calls of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Calls {
    /// Interface and function of the contract, as load-balancers.ensure.
    pub(crate) function: String,
    /// Calls that ended, also those that were cancelled.
    pub(crate) calls: u64,
    /// Calls that ended with an error that somebody has to do something about. That something is
    /// not there, or has to be asked again later, is an answer.
    pub(crate) failed: u64,
    /// Calls by how they ended: Ok, Cancelled, or the category of the error.
    pub(crate) outcomes: BTreeMap<String, u64>,
    /// Half of the calls took at most so many milliseconds, waiting for a place included and
    /// rounded up. What was cancelled does not count.
    pub(crate) p50_ms: u64,
    /// 99 of 100 calls took at most so many milliseconds.
    pub(crate) p99_ms: u64,
    /// 99 of 100 calls used at most so many units of fuel; a sixteenth too high at most, as the
    /// times.
    pub(crate) fuel_p99: u64,
    /// Units of fuel that the dearest call used.
    pub(crate) fuel_max: u64,
    /// Units of fuel that a call may use, spec.limits.fuel or its default.
    pub(crate) fuel_limit: u64,
    /// Calls that met a limit, by its name in spec.limits, whether it ended them or only refused
    /// something.
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
    /// The error. Of a trap it holds the text and the place of the panic, where the guest told
    /// them.
    pub(crate) message: String,
    /// When the call ended.
    #[schemars(schema_with = "date")]
    pub(crate) time: Option<Time>,
    /// Whether a call of the same function has succeeded since.
    pub(crate) succeeded_since: bool,
}

/// The release that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Active {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Where it came from.
    pub(crate) origin: String,
    /// What it calls itself.
    pub(crate) name: String,
    /// Its version, as it says.
    pub(crate) version: String,
    /// Version of the contract by which it is called.
    pub(crate) contract: String,
    /// The interfaces that it has besides identity.
    pub(crate) interfaces: Vec<String>,
    /// Schemes of the provider IDs that are its own.
    pub(crate) provider_id_schemes: Vec<String>,
    /// Since when it serves.
    #[schemars(schema_with = "date")]
    pub(crate) since: Option<Time>,
}

/// What serves may still be taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Probation {
    /// Digest of what serves again then: sha256:….
    pub(crate) predecessor: String,
    /// Calls that it has to end.
    pub(crate) calls: u64,
    /// Milliseconds that it has to serve.
    pub(crate) time_ms: u64,
}

/// A release that serves a share of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Canary {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Where it came from.
    pub(crate) origin: String,
    /// Its version, as it says.
    pub(crate) version: String,
    /// How many of a hundred objects it serves.
    pub(crate) percent: u8,
    /// Calls that it has to end.
    pub(crate) calls: u64,
    /// Milliseconds that it has to serve.
    pub(crate) time_ms: u64,
}

/// How a release's answers compare with its predecessor's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shadow {
    /// Digest of the component that was asked: sha256:….
    pub(crate) digest: String,
    /// Questions that both were asked.
    pub(crate) asked: u64,
    /// Of those: the predecessor had no answer, so that there was nothing to compare.
    pub(crate) unanswered: u64,
    /// Of those: the answers differed.
    pub(crate) differing: u64,
    /// The first of the differences.
    pub(crate) differences: Vec<String>,
}

/// A release that is on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Candidate {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Where it came from.
    pub(crate) origin: String,
    /// How far it came: offered, verified, compiled, linked, described, configChecked, shadowed,
    /// canary or active.
    pub(crate) stage: String,
}

/// A release that does not serve, or settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Refused {
    /// Digest of the component: sha256:….
    pub(crate) digest: String,
    /// Where it came from.
    pub(crate) origin: String,
    /// How far it came: offered, verified, compiled, linked, described, configChecked, shadowed,
    /// canary or active.
    pub(crate) stage: String,
    /// What is wrong, in a word.
    pub(crate) code: String,
    /// What is wrong, where, why, and the way out.
    pub(crate) reason: String,
    /// Whether the same component with the same settings will be refused again.
    pub(crate) lasting: bool,
    /// Whether it had been tried once more because rollout.retry names it.
    pub(crate) retried: bool,
}

/// A source that has nothing to offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Failure {
    /// What is wrong, in a word.
    pub(crate) code: String,
    /// What is wrong, where, why, and the way out.
    pub(crate) reason: String,
}

/// The conditions of the API (`metav1.Condition`), with its own patterns.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One thing that is true of the provider or not.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "What it is about, in CamelCase.",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {"type": "string", "description": "True, False or Unknown.", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the spec that it is about.",
                },
                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When its status changed last."},
                "reason": {
                    "type": "string",
                    "description": "Why it has this status, in a word of CamelCase.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {"type": "string", "description": "Why it has this status, for people.", "maxLength": 32768},
            },
        },
    })
}

fn date(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

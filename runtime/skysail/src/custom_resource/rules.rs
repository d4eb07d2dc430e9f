//! CEL rules for what a schema cannot express, each with a message that says what to write.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use skysail_host::{BOUNDS, credentials::CredentialSpec};
use skysail_sources::OciSourceSettings;

use super::schema::{Entry, VALIDATIONS, exactly_one};
use crate::provider_file::{DELETION_WINDOW_MAX, DELETION_WINDOW_MIN, PROBATION_TIME_MAX};

/// The rule of the whole object: its name is a label of metrics and part of file names.
pub(super) fn of_the_object() -> Value {
    json!([{
        "rule": "size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        // A `fieldPath` cannot name a field of the metadata, so the message names it.
        "message": "metadata.name is not a valid name of a provider; use at most 63 lower-case letters, digits and dashes, and begin with a letter",
    }])
}

/// The rules of `spec`.
///
/// # Errors
/// A limit that a rule names does not exist.
pub(super) fn all() -> anyhow::Result<Vec<Entry>> {
    let mut all = vec![
        (
            "matchLabels",
            rule(
                "size(self) > 0",
                "matchLabels is empty and would select every node; name a label, or set spec.default instead",
            ),
        ),
        (
            "probation.time",
            rule(
                &format!("duration(self) <= {}", duration(PROBATION_TIME_MAX)),
                &format!(
                    "write a duration of at most {}, such as 5m; 0s disables the probation",
                    shown(PROBATION_TIME_MAX)
                ),
            ),
        ),
        (
            "deletionBudget.window",
            rule(
                &format!(
                    "duration(self) >= {} && duration(self) <= {}",
                    duration(DELETION_WINDOW_MIN),
                    duration(DELETION_WINDOW_MAX)
                ),
                "a window has 1s to 24h; write 10m or 1h",
            ),
        ),
        (
            "canary.time",
            rule(
                &format!(
                    "duration(self) > {} && duration(self) <= {}",
                    duration(Duration::ZERO),
                    duration(PROBATION_TIME_MAX)
                ),
                &format!("write a duration of at most {}, such as 5m, or leave canary out", shown(PROBATION_TIME_MAX)),
            ),
        ),
        (
            "spec.vendorConfig",
            rule("has(self.secretKeyRef)", "write secretKeyRef, the key of a Secret that has the configuration"),
        ),
        ("spec.limits", limits()?),
    ];
    all.extend(credentials());
    all.extend(source());
    Ok(all)
}

fn credentials() -> Vec<Entry> {
    vec![
        (
            "spec.credentials",
            rule(
                "self.all(name, name.matches('^[-_.A-Za-z0-9]{1,63}$'))",
                "the name of a credential is not valid; use 1 to 63 letters, digits, dashes, underscores and dots",
            ),
        ),
        (
            "spec.credentials.*",
            only(exactly_one(
                &CredentialSpec::SCHEMES,
                &format!("write exactly one of {}", CredentialSpec::schemes_listed()),
            )),
        ),
        (
            "credentials.*.keystone",
            only(exactly_one(
                &["applicationCredential", "password"],
                "write exactly one of applicationCredential and password",
            )),
        ),
        ("keystone.password", only(exactly_one(&["project", "trustId"], "write exactly one of project and trustId"))),
        (
            "credentials.*.oauth2",
            only(exactly_one(
                &["clientSecret", "clientAssertion", "serviceAccountToken"],
                "write exactly one of clientSecret, clientAssertion and serviceAccountToken",
            )),
        ),
        (
            "aws.webIdentity",
            only(exactly_one(&["token", "serviceAccountToken"], "write exactly one of token and serviceAccountToken")),
        ),
        (
            "credentials.*.aws",
            only(exactly_one(
                &["accessKey", "credentialsFile", "webIdentity"],
                "write exactly one of accessKey, credentialsFile and webIdentity",
            )),
        ),
    ]
}

fn source() -> Vec<Entry> {
    let poll = OciSourceSettings::POLL_MIN;
    vec![
        ("spec.source", only(exactly_one(&["configMap", "oci"], "write exactly one of configMap and oci"))),
        (
            "source.configMap",
            only(exactly_one(
                &["name", "names"],
                "write exactly one of name (one ConfigMap) and names (the ConfigMaps of the parts, in order)",
            )),
        ),
        (
            "oci.pollInterval",
            rule(
                &format!("duration(self) >= {}", duration(poll)),
                &format!("write a duration of at least {}, such as 30s, 5m or 1h30m", shown(poll)),
            ),
        ),
        (
            "oci.timeout",
            rule(
                &format!("duration(self) > {}", duration(Duration::ZERO)),
                "write a duration that is longer than zero, such as 30s or 5m",
            ),
        ),
        ("oci.signatures", signatures()),
    ]
}

fn signatures() -> Value {
    let count = |list: &str| format!("(has(self.{list}) ? size(self.{list}) : 0)");
    let signers = format!("{} + {}", count("keys"), count("identities"));
    let rule = |rule: &str, message: &str| json!({"rule": rule, "message": message});
    json!({VALIDATIONS: [
        rule(
            "has(self.keys) || has(self.identities)",
            "no signer is named; write keys, or identities with a trustRoot",
        ),
        rule(
            "has(self.identities) == has(self.trustRoot)",
            "identities and trustRoot need each other; write both, or neither if only keys sign",
        ),
        rule(
            &format!("!has(self.require) || self.require <= {signers}"),
            "require is larger than the number of keys and identities; write 1 up to their number",
        ),
    ]})
}

/// The only relation between limits.
fn limits() -> anyhow::Result<Value> {
    let value = |name: &str| {
        let bound = BOUNDS.iter().find(|bound| bound.name == name).with_context(|| format!("no limit {name}"))?;
        anyhow::Ok(format!("(has(self.{name}) ? self.{name} : {})", bound.default))
    };
    Ok(only(json!({
        "rule": format!("{} <= {}", value("httpTimeMs")?, value("deadlineMs")?),
        "message": "httpTimeMs (or its default) is longer than deadlineMs (or its default): a request cannot take longer than its call; lower httpTimeMs or raise deadlineMs",
        "fieldPath": ".httpTimeMs",
    })))
}

fn rule(rule: &str, message: &str) -> Value {
    only(json!({"rule": rule, "message": message}))
}

fn only(rule: Value) -> Value {
    json!({VALIDATIONS: [rule]})
}

/// A duration in CEL.
fn duration(duration: Duration) -> String {
    format!("duration('{}s')", duration.as_secs())
}

/// A duration in a message.
fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds >= 3600 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds => format!("{seconds}s"),
    }
}

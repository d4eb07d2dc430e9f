//! What a schema cannot say: rules in CEL, each with a message that says what to write.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use skysail_host::BOUNDS;
use skysail_sources::OciSourceSettings;

use super::schema::{Entry, VALIDATIONS, exactly_one};
use crate::provider_file::PROBATION_TIME_MAX;

/// The rule of the whole object: its name is a label of metrics and part of file names.
pub(super) fn of_the_object() -> Value {
    json!([{
        "rule": "size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        // No `fieldPath` leads into the metadata, so the field is named here.
        "message": "metadata.name is no name of a provider; use at most 63 lower-case letters, digits and dashes, and begin with a letter",
    }])
}

/// The rules of `spec`.
///
/// # Errors
/// A limit that a rule is about is gone.
pub(super) fn all() -> anyhow::Result<Vec<Entry>> {
    let mut all = vec![
        (
            "matchLabels",
            rule("size(self) > 0", "it selects every node; name a label, or mark the provider as default instead"),
        ),
        (
            "probation.time",
            rule(
                &format!("duration(self) <= {}", duration(PROBATION_TIME_MAX)),
                &format!(
                    "write a duration of at most {}, such as 5m; 0s is no probation at all",
                    shown(PROBATION_TIME_MAX)
                ),
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
            "spec.credentials",
            rule(
                "self.all(name, name.matches('^[-_.A-Za-z0-9]{1,63}$'))",
                "a credential cannot have that name; use 1 to 63 letters, digits, dashes, underscores and dots",
            ),
        ),
        (
            "spec.credentials.*",
            only(exactly_one(
                &["bearer", "header", "basic", "clientCertificate"],
                "write exactly one of bearer, header, basic and clientCertificate",
            )),
        ),
        ("spec.limits", limits()?),
    ];
    all.extend(source());
    Ok(all)
}

fn source() -> Vec<Entry> {
    let poll = OciSourceSettings::POLL_MIN;
    vec![
        (
            "spec.source",
            only(exactly_one(
                &["configMap", "oci"],
                "name one place: write configMap: with a name, or oci: with a reference",
            )),
        ),
        (
            "source.configMap",
            only(exactly_one(
                &["name", "names"],
                "write name: with the ConfigMap, or names: with those of its parts, in order",
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
                "write a duration that is longer than nothing, such as 30s or 5m",
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
            "nobody is named; write keys: of those who may sign, or identities: with a trustRoot",
        ),
        rule(
            "has(self.identities) == has(self.trustRoot)",
            "identities and trustRoot go together; write both, or neither where keys sign",
        ),
        rule(
            &format!("!has(self.require) || self.require <= {signers}"),
            "require asks for more signatures than there are keys and identities; write 1 up to their number",
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
        "message": "httpTimeMs is longer than deadlineMs, each by its default where it is not written: an exchange cannot take longer than its call",
        "fieldPath": ".httpTimeMs",
    })))
}

fn rule(rule: &str, message: &str) -> Value {
    only(json!({"rule": rule, "message": message}))
}

fn only(rule: Value) -> Value {
    json!({VALIDATIONS: [rule]})
}

/// In CEL.
fn duration(duration: Duration) -> String {
    format!("duration('{}s')", duration.as_secs())
}

/// For people.
fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds >= 3600 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds => format!("{seconds}s"),
    }
}

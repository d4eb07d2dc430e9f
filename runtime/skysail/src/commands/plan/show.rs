//! A plan as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use skysail_controllers::{DryRunObject, ObjectWrite};
use skysail_provider::{HeldRequest, text::one_line};

use crate::{
    args::OutputFormat,
    commands::changes::{Change, change_text, changes},
    output::{self, plain},
};

/// Longest body in the text, in bytes.
const BODY_BYTES_MAX: usize = 500;
/// Longest list of changes of one request in the text.
const CHANGES_MAX: usize = 100;

/// One object of a plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    provider: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    requests: Vec<Held<'a>>,
    /// Requests that were held back and not recorded.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: usize,
    writes: Vec<Held<'a>>,
    failures: &'a [String],
}

/// One request that was held back.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Held<'a> {
    method: &'a str,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Body>,
    changes: Vec<Change>,
}

/// A body that is no JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Body {
    Text(String),
    Bytes(usize),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The plan in this format.
///
/// # Errors
/// The plan cannot be encoded.
pub(super) fn shown(objects: &[DryRunObject], format: OutputFormat) -> anyhow::Result<String> {
    let planned: Vec<_> = objects.iter().map(planned).collect();
    match format {
        OutputFormat::Json => output::json(&planned),
        OutputFormat::Text => Ok(planned.iter().map(text).collect::<Vec<_>>().join("\n")),
    }
}

fn planned(object: &DryRunObject) -> Planned<'_> {
    let DryRunObject { provider, kind, name, requests, omitted, writes, failures } = object;
    Planned {
        provider,
        kind,
        name,
        requests: requests.iter().map(request).collect(),
        omitted: *omitted,
        writes: writes.iter().map(write).collect(),
        failures,
    }
}

fn request(held: &HeldRequest) -> Held<'_> {
    let HeldRequest { method, url, body, read } = held;
    let (body, changes) = match serde_json::from_slice::<Value>(body) {
        _ if body.is_empty() => (None, Vec::new()),
        Ok(wanted) => {
            // A field that the body omits is one that the cloud fills in, or that stays.
            let before = read.as_deref().and_then(|read| serde_json::from_slice(read).ok()).unwrap_or(Value::Null);
            let mut after = before.clone();
            json_patch::merge(&mut after, &wanted);
            (None, changes(&before, &after))
        }
        Err(_) => {
            let text = std::str::from_utf8(body).map(str::to_owned);
            (Some(text.map_or(Body::Bytes(body.len()), Body::Text)), Vec::new())
        }
    };
    Held { method, url, body, changes }
}

fn write(ObjectWrite { method, path, before, after }: &ObjectWrite) -> Held<'_> {
    // A deletion is shown by its method.
    let changes = if after.is_null() { Vec::new() } else { changes(before, after) };
    Held { method, url: path, body: None, changes }
}

/// One paragraph. All values are of a provider, a cloud or a user of the cluster.
fn text(planned: &Planned<'_>) -> String {
    let Planned { provider, kind, name, requests, omitted, writes, failures } = planned;
    let mut lines = vec![match (provider.is_empty(), name.is_empty()) {
        (true, _) => format!("{kind} {name} (no provider)"),
        (false, true) => format!("{kind} (provider {provider})"),
        (false, false) => format!("{kind} {name} (provider {provider})"),
    }];
    for held in requests.iter().chain(writes) {
        lines.push(format!("  {} {}", held.method, held.url));
        match &held.body {
            Some(Body::Text(text)) => lines.push(format!("    {}", one_line(text, BODY_BYTES_MAX))),
            Some(Body::Bytes(bytes)) => lines.push(format!("    {bytes} bytes")),
            None => {}
        }
        lines.extend(held.changes.iter().take(CHANGES_MAX).map(|change| format!("    {}", change_text(change))));
        if let Some(more) = held.changes.len().checked_sub(CHANGES_MAX).filter(|more| *more > 0) {
            lines.push(format!("    and {more} more; --output json shows all"));
        }
    }
    if *omitted > 0 {
        lines.push(format!("  and {omitted} more requests, which are not recorded"));
    }
    lines.extend(failures.iter().map(|failure| format!("  failed: {failure}")));
    lines.iter().fold(String::new(), |mut all, line| {
        let indent = line.len() - line.trim_start().len();
        // Writing to a String cannot fail.
        let _infallible = writeln!(all, "{}{}", " ".repeat(indent), plain(line.trim_start()));
        all
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;
    use skysail_controllers::{DryRunObject, ObjectWrite};
    use skysail_provider::HeldRequest;

    use super::shown;
    use crate::args::OutputFormat;

    fn held(method: &str, url: &str, body: &str, read: Option<&str>) -> HeldRequest {
        let read = read.map(|read| read.as_bytes().to_vec());
        HeldRequest { method: method.to_owned(), url: url.to_owned(), body: body.as_bytes().to_vec(), read }
    }

    fn service() -> DryRunObject {
        let read = r#"{"name":"web","ports":[80],"created":"2026-01-01"}"#;
        DryRunObject {
            provider: "sim".to_owned(),
            kind: "Service".to_owned(),
            name: "shop/web".to_owned(),
            requests: vec![
                held("PUT", "https://cloud/lb/1", r#"{"name":"web","ports":[80,443]}"#, Some(read)),
                held("POST", "https://cloud/tags", "Action=Tag&Name=a\u{1b}[2J", None),
                held("DELETE", "https://cloud/lb/2", "", None),
            ],
            writes: vec![ObjectWrite {
                method: "PATCH".to_owned(),
                path: "/api/v1/namespaces/shop/services/web".to_owned(),
                before: json!({ "metadata": { "labels": { "a": "1" } } }),
                after: json!({ "metadata": { "labels": {}, "finalizers": ["cleanup"] } }),
            }],
            ..DryRunObject::default()
        }
    }

    #[test]
    fn each_request_is_shown_with_the_fields_that_it_would_change() {
        let node = DryRunObject {
            provider: "sim".to_owned(),
            kind: "Node".to_owned(),
            name: "n1".to_owned(),
            failures: vec!["failed to get instance metadata: no answer".to_owned()],
            ..DryRunObject::default()
        };
        expect![[r#"
            Service shop/web (provider sim)
              PUT https://cloud/lb/1
                + /ports/1: 443
              POST https://cloud/tags
                Action=Tag&Name=a [2J
              DELETE https://cloud/lb/2
              PATCH /api/v1/namespaces/shop/services/web
                + /metadata/finalizers: ["cleanup"]
                - /metadata/labels/a: "1"

            Node n1 (provider sim)
              failed: failed to get instance metadata: no answer
        "#]]
        .assert_eq(&shown(&[service(), node], OutputFormat::Text).unwrap());
    }

    #[test]
    fn the_json_has_values_before_and_after() {
        let json: serde_json::Value = serde_json::from_str(&shown(&[service()], OutputFormat::Json).unwrap()).unwrap();
        assert_eq!(
            json.pointer("/0/writes/0/changes/1"),
            Some(&json!({ "path": "/metadata/labels/a", "before": "1" }))
        );
        assert_eq!(json.pointer("/0/requests/0/changes/0"), Some(&json!({ "path": "/ports/1", "after": 443 })));
        assert_eq!(json.pointer("/0/requests/1/body/text"), Some(&json!("Action=Tag&Name=a\u{1b}[2J")));
    }

    #[test]
    fn an_object_that_does_not_exist_yet_is_shown_field_by_field() {
        let new = DryRunObject {
            requests: vec![held("POST", "https://cloud/lb", r#"{"name":"web","ports":[80]}"#, None)],
            ..service()
        };
        let text = shown(&[DryRunObject { writes: Vec::new(), ..new }], OutputFormat::Text).unwrap();
        assert!(text.contains("    + /name: \"web\"\n    + /ports: [80]\n"), "{text}");
    }
}

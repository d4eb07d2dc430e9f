//! A recorded call beside the same call of another component.

use std::{fmt::Write as _, path::Path};

use serde::Serialize;
use serde_json::{Value, json};
use skysail_host::recording::{Body, Cost, Exchange, Recording};
use skysail_provider::Code;

use super::file_name;
use crate::{
    args::OutputFormat,
    commands::changes::{Change, change_text, changes},
    output::{self, plain},
};

/// The most changes of one request or answer in the text.
const CHANGES_MAX: usize = 100;

/// One recorded call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct Comparison {
    /// Name of the recording.
    pub(in crate::commands) file: String,
    pub(in crate::commands) function: String,
    /// Whether the requests and the answer are equal.
    pub(in crate::commands) equal: bool,
    requests: Vec<RequestDifference>,
    answer: Vec<Change>,
    cost: Costs,
}

/// What both calls used.
#[derive(Debug, Serialize)]
struct Costs {
    recorded: Cost,
    replayed: Cost,
}

/// A request that only one call made, or that both made with a difference.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestDifference {
    made: Made,
    method: String,
    url: String,
    /// Headers, credential, timeout and body.
    changes: Vec<Change>,
}

/// Which call made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Made {
    OnlyRecorded,
    OnlyReplayed,
    Changed,
}

impl Comparison {
    pub(super) fn of(file: &Path, recorded: &Recording, replayed: &Recording) -> Self {
        let requests = requests(&recorded.requests, &replayed.requests);
        let answer = |recording: &Recording| recording.answer.clone().map_or(Value::Null, without_place);
        let answer = changes(&answer(recorded), &answer(replayed));
        Self {
            file: file_name(file),
            function: recorded.function.clone(),
            equal: requests.is_empty() && answer.is_empty(),
            requests,
            answer,
            cost: Costs { recorded: recorded.cost, replayed: replayed.cost },
        }
    }
}

/// An answer without the functions in which the host stopped a call: another build numbers its
/// functions differently, and only one of the two calls may have found their names.
fn without_place(mut answer: Value) -> Value {
    let is_of_the_host =
        |code: &Value| [Code::Trapped, Code::LimitExceeded].map(Code::category).iter().any(|one| code == one);
    if answer.pointer("/error/code").is_some_and(is_of_the_host)
        && let Some(Value::String(message)) = answer.pointer_mut("/error/message")
        && let Some((text, _functions)) = message.rsplit_once("; in ")
    {
        *message = text.to_owned();
    }
    answer
}

/// Compares the requests without their order.
fn requests(recorded: &[Exchange], replayed: &[Exchange]) -> Vec<RequestDifference> {
    let mut left: Vec<&Exchange> = recorded.iter().collect();
    let mut take = |is_it: &dyn Fn(&Exchange) -> bool| {
        let at = left.iter().position(|exchange| is_it(exchange))?;
        Some(left.remove(at))
    };
    // Equal requests first: the others are compared with what is left.
    let (mut differences, mut others) = (Vec::new(), Vec::new());
    for request in replayed {
        match take(&|before: &Exchange| before.is_for(request)) {
            Some(before) => differences.extend(changed(before, request)),
            None => others.push(request),
        }
    }
    for request in others {
        let same = |before: &Exchange| (&before.method, &before.url) == (&request.method, &request.url);
        differences.extend(match take(&same) {
            Some(before) => changed(before, request),
            None => Some(only(Made::OnlyReplayed, request)),
        });
    }
    differences.extend(left.into_iter().map(|request| only(Made::OnlyRecorded, request)));
    differences
}

fn only(made: Made, Exchange { method, url, .. }: &Exchange) -> RequestDifference {
    RequestDifference { made, method: method.clone(), url: url.clone(), changes: Vec::new() }
}

fn changed(before: &Exchange, after: &Exchange) -> Option<RequestDifference> {
    let changes = changes(&fields(before), &fields(after));
    (!changes.is_empty()).then(|| RequestDifference { changes, ..only(Made::Changed, after) })
}

/// The fields of a request besides its method and URL.
fn fields(exchange: &Exchange) -> Value {
    let Exchange { headers, credential, timeout_ms, body, .. } = exchange;
    let body = body.as_ref().map(|body| match serde_json::from_slice(&body.0) {
        Ok(value) => value,
        Err(_) => json!(Body::clone(body)),
    });
    json!({"headers": headers, "credential": credential, "timeoutMs": timeout_ms, "body": body})
}

/// The comparisons in this format.
///
/// # Errors
/// The comparisons cannot be encoded.
pub(super) fn shown(comparisons: &[Comparison], format: OutputFormat) -> anyhow::Result<String> {
    match format {
        OutputFormat::Json => output::json(&comparisons),
        OutputFormat::Text => Ok(comparisons.iter().map(text).collect()),
    }
}

/// All texts are of a provider or a cloud.
pub(in crate::commands) fn text(comparison: &Comparison) -> String {
    let Comparison { file, function, equal, requests, answer, cost } = comparison;
    let judged = if *equal { "equal" } else { "different" };
    let mut lines = vec![(0, format!("{file}: {function}: {judged}"))];
    for RequestDifference { made, method, url, changes } in requests {
        let (mark, note) = match made {
            Made::OnlyRecorded => ('-', ", which only the recording has"),
            Made::OnlyReplayed => ('+', ", which the recording lacks"),
            Made::Changed => ('~', ""),
        };
        lines.push((2, format!("{mark} {method} {url}{note}")));
        lines.extend(changed_lines(changes));
    }
    if !answer.is_empty() {
        lines.push((2, "~ answer".to_owned()));
        lines.extend(changed_lines(answer));
    }
    lines.extend(cost_text(cost).map(|text| (2, text)));
    lines.iter().fold(String::new(), |mut all, (indent, line)| {
        // Writing to a String cannot fail.
        let _infallible = writeln!(all, "{:indent$}{}", "", plain(line));
        all
    })
}

fn changed_lines(changes: &[Change]) -> Vec<(usize, String)> {
    let mut lines: Vec<_> = changes.iter().take(CHANGES_MAX).map(|change| (4, change_text(change))).collect();
    if let Some(more) = changes.len().checked_sub(CHANGES_MAX).filter(|more| *more > 0) {
        lines.push((4, format!("and {more} more; --output json shows all")));
    }
    lines
}

/// The amounts that differ.
fn cost_text(Costs { recorded, replayed }: &Costs) -> Option<String> {
    let amounts = [
        ("fuel", recorded.fuel, replayed.fuel),
        ("bytes of memory", recorded.memory_bytes, replayed.memory_bytes),
        ("requests", recorded.requests, replayed.requests),
    ];
    let changed: Vec<_> = amounts
        .iter()
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| format!("{name} {before} -> {after}"))
        .collect();
    (!changed.is_empty()).then(|| format!("cost: {}", changed.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect;
    use serde_json::json;
    use skysail_host::recording::Recording;

    use super::{Comparison, shown};
    use crate::args::OutputFormat;

    fn recording(requests: serde_json::Value, answer: serde_json::Value, fuel: u64) -> Recording {
        let text = json!({
            "format": skysail_host::recording::FORMAT,
            "contract": skysail_host::admission::CONTRACT_VERSION,
            "provider": "sim",
            "component": "sha256:0",
            "function": "routes.list",
            "arguments": {"cluster": "kubernetes"},
            "config": "",
            "limits": {},
            "logLevel": "warn",
            "redact": [],
            "clock": {"wall": [], "monotonic": []},
            "random": "",
            "cache": {},
            "redactsResponses": false,
            "requests": requests,
            "answer": answer,
            "cost": {"fuel": fuel, "memoryBytes": 1024, "requests": 1},
            "complete": true,
        });
        Recording::parse(text.to_string().as_bytes()).unwrap()
    }

    fn request(method: &str, path: &str, body: &serde_json::Value) -> serde_json::Value {
        json!({
            "method": method, "url": format!("https://cloud.example.com{path}"), "headers": ["accept: */*"],
            "body": {"json": body}, "response": {"status": 200, "headers": []},
        })
    }

    #[test]
    fn requests_are_compared_without_their_order_and_each_difference_is_named() {
        let recorded = [
            request("GET", "/a", &json!({})),
            request("PUT", "/b", &json!({"ports": [80]})),
            request("DELETE", "/c", &json!({})),
        ];
        let mut first = request("GET", "/a", &json!({}));
        first["credential"] = json!("admin");
        let replayed = [request("PUT", "/b", &json!({"ports": [80, 443]})), first, request("POST", "/d", &json!({}))];
        let before = recording(json!(recorded), json!({"ok": [{"name": "r"}]}), 100);
        let after = recording(json!(replayed), json!({"ok": [{"name": "s"}]}), 120);
        let comparison = Comparison::of(Path::new("x/000001-routes.list.json"), &before, &after);
        assert!(!comparison.equal);
        expect![[r#"
            000001-routes.list.json: routes.list: different
              ~ GET https://cloud.example.com/a
                ~ /credential: null -> "admin"
              ~ PUT https://cloud.example.com/b
                + /body/ports/1: 443
              + POST https://cloud.example.com/d, which the recording lacks
              - DELETE https://cloud.example.com/c, which only the recording has
              ~ answer
                ~ /ok/0/name: "r" -> "s"
              cost: fuel 100 -> 120
        "#]]
        .assert_eq(&shown(&[comparison], OutputFormat::Text).unwrap());
    }

    #[test]
    fn the_functions_in_which_a_call_trapped_are_not_compared() {
        let trapped =
            |code: &str, message: &str| recording(json!([]), json!({"error": {"code": code, "message": message}}), 1);
        let equal = |code, before, after| {
            Comparison::of(Path::new("a.json"), &trapped(code, before), &trapped(code, after)).equal
        };
        let [numbers, names] = ["no pool; in functions 8 ← 2 of component 0123456789ab", "no pool; in cloud::find"];
        assert!(equal("Trapped", numbers, names) && equal("Trapped", names, "no pool"));
        assert!(equal("LimitExceeded", numbers, names));
        assert!(!equal("Trapped", numbers, "no zone; in cloud::find"));
        assert!(!equal("Denied", "a; in b", "a; in c"), "these are the words of a provider");
    }

    #[test]
    fn a_call_that_differs_only_in_its_cost_is_equal() {
        let requests = json!([request("GET", "/a", &json!({}))]);
        let call = |fuel| recording(requests.clone(), json!({"ok": []}), fuel);
        let comparison = Comparison::of(Path::new("a.json"), &call(100), &call(90));
        assert!(comparison.equal);
        let text = shown(&[comparison], OutputFormat::Text).unwrap();
        assert_eq!(text, "a.json: routes.list: equal\n  cost: fuel 100 -> 90\n");
    }
}

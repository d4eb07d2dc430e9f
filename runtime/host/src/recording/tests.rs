//! Tests of the format: what is written is read, and what cannot be replayed says why.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use skysail_provider::Limit;

use super::{Body, ClockReadings, Cost, Exchange, FORMAT, LogLevel, Reading, Recording, RecordingError, Redact};
use crate::{
    Limits,
    bindings::CONTRACT_VERSION,
    http_client::{Failure, FailureKind, HttpRequest, HttpResponse},
};

fn request(url: &str, body: &'static str) -> HttpRequest {
    HttpRequest {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("x-empty".to_owned(), String::new()),
        ],
        body: Some(Bytes::from_static(body.as_bytes())),
        credential: Some("api".to_owned()),
        timeout: Some(Duration::from_millis(1_500)),
    }
}

fn response(body: &'static [u8]) -> HttpResponse {
    let headers = vec![("x-a".to_owned(), "b: c".to_owned())];
    HttpResponse { status: 201, headers, body: Bytes::from_static(body) }
}

fn exchange(request: &HttpRequest, answer: &Result<HttpResponse, Failure>) -> Exchange {
    let mut exchange = Exchange::new(request);
    exchange.answered(answer);
    exchange
}

fn recording() -> Recording {
    let ask = request("https://cloud.example.com/servers?limit=2", r#"{"name": "web", "password": "hunter2"}"#);
    let limit = skysail_provider::LimitHit { limit: Limit::HttpResponseBytes, used: 9, max: 8 };
    let failures = [
        Failure::new(FailureKind::Unreachable, "no route"),
        Failure { limit: Some(limit), ..Failure::new(FailureKind::TooLarge(9), "too large") },
    ];
    let mut requests = vec![exchange(&ask, &Ok(response(br#"{ "id":1.50,  "tags":["a"]}"#)))];
    requests.extend(failures.map(|failure| exchange(&ask, &Err(failure))));
    requests.push(Exchange::new(&ask));
    Recording {
        format: FORMAT.to_owned(),
        contract: CONTRACT_VERSION.to_owned(),
        provider: "sim".to_owned(),
        component: "sha256:0".to_owned(),
        function: "routes.list".to_owned(),
        arguments: json!({"cluster": "kubernetes"}),
        config: "[Global]\npassword = hunter2\n".to_owned(),
        limits: Limits::default(),
        log_level: LogLevel::Warn,
        redact: Vec::new(),
        clock: ClockReadings {
            wall: vec![Reading(Duration::new(1_764_432_000, 5))],
            monotonic: vec![Reading(Duration::ZERO), Reading(Duration::from_nanos(1_234_567_890))],
        },
        random: vec![0, 255, 7],
        cache: [
            ("absent".to_owned(), None),
            ("token".to_owned(), Some(Body::from("hunter2".to_owned()))),
            ("bytes".to_owned(), Some(Body(Bytes::from_static(&[0xff, 0])))),
        ]
        .into(),
        redacts_responses: true,
        requests,
        answer: Some(json!({"ok": [{"name": "r", "secrets": [{"key": 1}, {"key": 2}]}]})),
        cost: Cost { fuel: 10, memory_bytes: 20, requests: 1 },
        complete: true,
    }
}

fn text(recording: &Recording) -> String {
    serde_json::to_string_pretty(recording).unwrap()
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let written = recording();
    let read = Recording::parse(text(&written).as_bytes()).unwrap();
    assert_eq!(read, written);
    // What a replayed component receives is what the recorded one received.
    let [ok, unreachable, too_large, unanswered] = read.requests.as_slice() else { panic!("{:?}", read.requests) };
    assert_eq!(ok.answer().unwrap().unwrap(), response(br#"{ "id":1.50,  "tags":["a"]}"#));
    assert_eq!(unreachable.answer().unwrap().unwrap_err().kind, FailureKind::Unreachable);
    let failure = too_large.answer().unwrap().unwrap_err();
    assert_eq!((failure.kind, failure.limit.unwrap().limit), (FailureKind::TooLarge(9), Limit::HttpResponseBytes));
    assert!(unanswered.answer().is_none());
}

#[test]
fn a_body_keeps_its_bytes_and_is_shown_as_json_or_text_where_it_is() {
    let escape = "{\"a\":\"\u{9b}31m\"}";
    for (bytes, form) in [
        (r#"{"b":1, "a" : [1e3]}"#.as_bytes(), "json"),
        (b"[\n  1\n]", "json"),
        (b"{\"a\":1}\n", "text"),
        (b"{broken", "text"),
        (b"plain", "text"),
        // A terminal obeys this character.
        (escape.as_bytes(), "text"),
        (&[0xff, 0xfe], "base64"),
    ] {
        let body = Body(Bytes::copy_from_slice(bytes));
        let written = serde_json::to_string(&body).unwrap();
        assert!(written.starts_with(&format!("{{\"{form}\":")), "{written}");
        assert_eq!(serde_json::from_str::<Body>(&written).unwrap(), body, "{written}");
    }
}

#[test]
fn a_file_that_cannot_be_replayed_says_why_and_what_to_do() {
    let whole = text(&recording());
    let with = |key: &str, value: Value| {
        let mut document: Value = serde_json::from_str(&whole).unwrap();
        document[key] = value;
        document.to_string()
    };
    let mut failure: Value = serde_json::from_str(&whole).unwrap();
    failure["requests"][1]["failure"]["kind"] = json!("struck-by-lightning");
    for (text, reason, remedy) in [
        (whole[..whole.len() / 2].to_owned(), "ends in the middle of the recording", "copy the whole file"),
        (whole.replacen(',', "", 1), "damaged", "undo the edit"),
        ("{".to_owned(), "ends in the middle of the recording", "record the call again"),
        (String::new(), "it is not a recording", "name a file or a folder"),
        ("apiVersion: v1".to_owned(), "it is not a recording", "name a file or a folder"),
        (r#"{"kind": "List"}"#.to_owned(), "missing field `format`", "name a file or a folder"),
        (with("contract", json!("0.2.0")), "it is a call of the contract 0.2.0", "with the version that wrote it"),
        (with("format", json!("skysail.dev/recording/v2")), "recording/v2", "with the version that wrote it"),
        (with("complete", json!(false)), "received more than 16 MiB", "record a call with fewer nodes"),
        (with("answr", json!(1)), "damaged", "undo the edit"),
        (with("redact", json!(["("])), "damaged", "undo the edit"),
        (failure.to_string(), "damaged", "undo the edit"),
    ] {
        let error = Recording::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(remedy), "{reason}: {error}");
    }
    assert!(matches!(Recording::parse(b"\x00asm"), Err(RecordingError::NotARecording { .. })));
}

fn redacted(rules: &[&str]) -> Recording {
    let rules: Vec<_> = rules.iter().map(|rule| (*rule).to_owned()).collect();
    let mut recording = recording();
    Redact::parse(&rules).unwrap().apply(&mut recording);
    recording
}

#[test]
fn a_pointer_leaves_out_a_field_of_every_json_document() {
    let recording = redacted(&["/password", "/*/secrets/*/key"]);
    let body = recording.requests[0].body.as_ref().unwrap();
    assert_eq!(body.text(), Some(r#"{"name":"web","password":"redacted-1"}"#));
    let answer = recording.answer.as_ref().unwrap();
    assert_eq!(answer["ok"][0]["secrets"], json!([{"key": "redacted-2"}, {"key": "redacted-3"}]));
    // A document without the field keeps its bytes.
    let response = recording.requests[0].response.as_ref().unwrap().body.as_ref().unwrap();
    assert_eq!(response.text(), Some(r#"{ "id":1.50,  "tags":["a"]}"#));
}

#[test]
fn a_regular_expression_leaves_out_a_text_wherever_it_is() {
    let recording = redacted(&["hunter[0-9]", r"limit=\d"]);
    let text = text(&recording);
    assert!(!text.contains("hunter2") && !text.contains("limit=2"), "{text}");
    assert_eq!(recording.config, "[Global]\npassword = redacted-1\n");
    assert_eq!(recording.cache["token"].as_ref().unwrap().text(), Some("redacted-1"));
    assert_eq!(recording.requests[0].url, "https://cloud.example.com/servers?redacted-2");
}

/// Otherwise the replayed request would differ from the recorded one.
#[test]
fn what_is_left_out_of_a_recording_stays_out_of_its_replay_under_the_same_names() {
    let rules = ["web", "[a-z]+-?[0-9]", r"\bx\b|\b", "/password"].map(str::to_owned);
    let redact = Redact::parse(&rules).unwrap();
    let mut recorded = recording();
    redact.apply(&mut recorded);
    let mut request = recorded.requests[0].clone();
    redact.apply_to_request(&mut request);
    assert_eq!(request, recorded.requests[0]);
    // Each value has a name of its own.
    assert_eq!(request.body.unwrap().text(), Some(r#"{"name":"redacted-1","password":"redacted-2"}"#));
}

#[test]
fn a_rule_that_cannot_be_used_is_refused_with_its_reason() {
    let error = |rule: &str| Redact::parse(&[rule.to_owned()]).unwrap_err().to_string();
    assert_eq!(
        error("(a"),
        "the rule \"(a\" is not a regular expression: unclosed group; write one, or a JSON pointer, which begins with a slash"
    );
    assert_eq!(error("a*"), "the rule \"a*\" matches an empty text; write a rule that requires at least one character");
}

//! Tests of `crate::credentials`: reading, rotation, redaction.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use tokio::time::advance;

use super::{CredentialError, CredentialSpec, Credentials, Redactor, Secret, SecretKeyRef, SecretValues};

const TOKEN: &str = "s3cr3t/t0ken+value==\"<&>";

fn spec(json: &str) -> BTreeMap<String, CredentialSpec> {
    serde_json::from_str(json).unwrap()
}

fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some(TOKEN.to_owned()),
        "SHORT" => Some("abc".to_owned()),
        "LINES" => Some("first-line\nsecond-line".to_owned()),
        _ => None,
    }
}

fn load(json: &str) -> Result<Credentials, CredentialError> {
    Credentials::load(&spec(json), &env, &SecretValues::new())
}

/// Reads all values again; returns the names of those that changed.
fn rotate(credentials: &Credentials, json: &str) -> Result<Vec<String>, CredentialError> {
    Ok(credentials.exchange(credentials.rotation_to(&load(json)?)?))
}

#[track_caller]
fn wrong(json: &str, expected: Expect) {
    let error = load(json).unwrap_err();
    expected.assert_eq(&error.to_string());
    assert!(!format!("{error:?}").contains("s3cr3t"));
}

#[test]
fn the_error_of_a_bad_credential_names_the_place_the_reason_and_the_remedy() {
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"]}}"#,
        expect![
            "credentials.api: has 0 of bearer, header, basic, clientCertificate, keystone, oauth2, serviceAccountKey, vsphere, aws and cloudstack; write exactly one"
        ],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "bearer": {"env": "TOKEN"}, "basic": {"username": "u", "password": {"env": "TOKEN"}}}}"#,
        expect![
            "credentials.api: has 2 of bearer, header, basic, clientCertificate, keystone, oauth2, serviceAccountKey, vsphere, aws and cloudstack; write exactly one"
        ],
    );
    wrong(
        r#"{"api": {"origins": [], "bearer": {"env": "TOKEN"}}}"#,
        expect!["credentials.api.origins: has 0 entries; name 1 to 64 origins"],
    );
    wrong(
        r#"{"api": {"origins": ["https://*"], "bearer": {"env": "TOKEN"}}}"#,
        expect![[
            r#"credentials.api.origins[0]: origin "https://*" has a wildcard over a whole public suffix; name at least the domain that belongs to you, as in https://*.example.com"#
        ]],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "bearer": {"env": "ABSENT"}}}"#,
        expect![
            "credentials.api.bearer: environment variable ABSENT is not set; set it for this process, or name a file"
        ],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "bearer": {"file": "/nowhere/token"}}}"#,
        expect![
            "credentials.api.bearer: read file /nowhere/token; check that the Secret is mounted there and readable"
        ],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "bearer": {"env": "SHORT"}}}"#,
        expect![
            "credentials.api.bearer: is shorter than 6 bytes: it could be guessed and could not be redacted from answers; use a longer one"
        ],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "bearer": {"env": "LINES"}}}"#,
        expect![
            "credentials.api.bearer: has a character that a header cannot carry, such as a line break inside; give the value alone"
        ],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "header": {"name": "Host", "value": {"env": "TOKEN"}}}}"#,
        expect!["credentials.api.header.name: is a header that only the host may set; use another one"],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "basic": {"username": "a:b", "password": {"env": "TOKEN"}}}}"#,
        expect!["credentials.api.basic.username: has a ':' or a control character; use another one"],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "clientCertificate": {"certificate": {"env": "TOKEN"}, "key": {"env": "TOKEN"}}}}"#,
        expect!["credentials.api.clientCertificate.certificate: has no PEM certificate; give the chain, leaf first"],
    );
    wrong(
        r#"{"api": {"origins": ["https://a.example.com"], "bearer": {"secretKeyRef": {"namespace": "cloud", "name": "api", "key": "token"}}}}"#,
        expect![[
            r#"credentials.api.bearer: Secret cloud/api does not exist, has no text under the key "token", or may not be read by the manager's ServiceAccount; create the Secret with the key, or allow the ServiceAccount to get it"#
        ]],
    );
    wrong(
        r#"{"a b": {"origins": ["https://a.example.com"], "bearer": {"env": "TOKEN"}}}"#,
        expect![[r#"credentials: "a b" cannot be a name; use 1 to 63 letters, digits, '-', '_' and '.'"#]],
    );
}

#[test]
fn a_client_certificate_must_fit_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let pair = || rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let (one, other) = (pair(), pair());
    fs::write(folder.path().join("tls.crt"), one.cert.pem()).unwrap();
    let key = folder.path().join("tls.key");
    fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    let json = format!(
        r#"{{"c": {{"origins": ["https://a.example.com"], "clientCertificate": {{"certificate": {{"file": "{0}/tls.crt"}}, "key": {{"file": "{0}/tls.key"}}}}}}}}"#,
        folder.path().display()
    );
    let error = load(&json).unwrap_err();
    assert!(error.to_string().starts_with("credentials.c.clientCertificate.key: does not belong"), "{error}");
    fs::write(&key, one.signing_key.serialize_pem()).unwrap();
    load(&json).unwrap();
}

#[test]
fn debug_output_contains_no_value() {
    let json = r#"{
        "a": {"origins": ["https://a.example.com"], "bearer": {"env": "TOKEN"}},
        "b": {"origins": ["https://a.example.com"], "header": {"name": "X-Auth-Token", "value": {"env": "TOKEN"}}},
        "c": {"origins": ["https://a.example.com"], "basic": {"username": "u", "password": {"env": "TOKEN"}}}
    }"#;
    let credentials = load(json).unwrap();
    let generation = credentials.current();
    let shown = format!("{:?} {credentials:?}", generation.by_name);
    assert!(!shown.contains("s3cr3t") && !shown.contains("t0ken"), "{shown}");
    assert!(shown.contains("[redacted]"), "{shown}");
}

#[test]
fn a_rotation_exchanges_a_value_and_still_redacts_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "first-value\n").unwrap();
    let json = format!(
        r#"{{"api": {{"origins": ["https://a.example.com"], "bearer": {{"file": "{}"}}}},
            "other": {{"origins": ["https://a.example.com"], "bearer": {{"env": "TOKEN"}}}}}}"#,
        file.display()
    );
    let credentials = load(&json).unwrap();
    assert_eq!(rotate(&credentials, &json).unwrap(), Vec::<String>::new());
    fs::write(&file, "second-value\n").unwrap();
    assert_eq!(rotate(&credentials, &json).unwrap(), ["api"]);
    assert_eq!(rotate(&credentials, &json).unwrap(), Vec::<String>::new());
    assert_eq!(credentials.redact("first-value second-value third-value"), "[redacted] [redacted] third-value");
    // A file that was deleted leaves the previous values in use.
    fs::remove_file(&file).unwrap();
    assert!(rotate(&credentials, &json).is_err());
    assert_eq!(credentials.redact("second-value"), "[redacted]");
}

#[test]
fn a_value_from_a_secret_is_redacted_and_debug_output_does_not_contain_it() {
    let json = r#"{"api": {"origins": ["https://a.example.com"], "bearer": {"secretKeyRef": {"namespace": "cloud", "name": "api", "key": "token"}}}}"#;
    let place = SecretKeyRef { namespace: "cloud".to_owned(), name: "api".to_owned(), key: "token".to_owned() };
    let secrets = SecretValues::from([(place, Secret::new(format!("{TOKEN}\n")))]);
    let credentials = Credentials::load(&spec(json), &env, &secrets).unwrap();
    assert_eq!(credentials.redact(&format!("<{TOKEN}>")), "<[redacted]>");
    let shown = format!("{secrets:?} {:?}", credentials.current());
    assert!(!shown.contains("s3cr3t"), "{shown}");

    let secrets = secrets.into_keys().map(|place| (place, Secret::new("x".repeat(64 * 1024 + 1)))).collect();
    let error = Credentials::load(&spec(json), &env, &secrets).unwrap_err().to_string();
    assert_eq!(error, "credentials.api.bearer: is larger than 65536 bytes; name the key of the value");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_redacted_while_it_may_be_valid_whatever_is_issued_after_it() {
    let api = Arc::from("api");
    let credentials = load(r#"{"a": {"origins": ["https://a.example.com"], "bearer": {"env": "TOKEN"}}}"#).unwrap();
    let remember = |token: &str, hours| {
        let lifetime = Duration::from_hours(hours);
        credentials.remember(&api, &[Secret::new(token)], Some(lifetime)).unwrap();
    };
    remember("token-of-ten-hours", 10);
    for number in 0..6 {
        // Some issuers mean by 0 that a token does not expire.
        remember(&format!("short-token-{number}"), 0);
    }
    assert_eq!(credentials.redact("token-of-ten-hours short-token-0"), "[redacted] [redacted]");
    // Other settings mean other credentials; the cloud may still repeat the values of these.
    let after = Credentials::none();
    after.inherit(&credentials);
    assert_eq!(after.redact(&format!("token-of-ten-hours short-token-0 {TOKEN}")), "[redacted] [redacted] [redacted]");
    let later = Credentials::none();
    later.inherit(&after);
    assert_eq!(later.redact(&format!("token-of-ten-hours {TOKEN}")), "[redacted] [redacted]", "and those before");
    advance(Duration::from_hours(3)).await;
    remember("the-last-token", 1);
    assert_eq!(credentials.redact("token-of-ten-hours short-token-0"), "[redacted] short-token-0");
    for number in 0..100 {
        remember(&format!("flood-{number}-token"), 1);
        remember("the-same-token", 1);
    }
    assert_eq!(credentials.issued().len(), super::TOKENS_MAX, "a bounded number");
    for number in 0..10 {
        remember(&format!("{number}").repeat(Credentials::TOKEN_BYTES_MAX), 1);
    }
    let texts = |token: &super::IssuedSecret| token.secrets.iter().map(|text| text.expose().len()).sum::<usize>();
    let bytes: usize = credentials.issued().iter().map(texts).sum();
    assert!(bytes <= super::TOKENS_BYTES_MAX + Credentials::TOKEN_BYTES_MAX, "a bounded size");
}

#[test]
fn values_of_former_settings_are_redacted_however_large_they_are_together() {
    let large = ["a", "b", "c"].map(|letter| letter.repeat(30_000));
    let values = large.iter().enumerate().map(|(number, value)| {
        let place = SecretKeyRef { namespace: "n".to_owned(), name: "s".to_owned(), key: number.to_string() };
        (place, Secret::new(value.clone()))
    });
    let spec = spec(
        r#"{
            "a": {"origins": ["https://a.example.com"], "bearer": {"secretKeyRef": {"namespace": "n", "name": "s", "key": "0"}}},
            "b": {"origins": ["https://b.example.com"], "bearer": {"secretKeyRef": {"namespace": "n", "name": "s", "key": "1"}}},
            "c": {"origins": ["https://c.example.com"], "bearer": {"secretKeyRef": {"namespace": "n", "name": "s", "key": "2"}}}
        }"#,
    );
    let before = Credentials::load(&spec, &env, &values.collect()).unwrap();
    let after = Credentials::none();
    after.inherit(&before);
    for value in &large {
        assert_eq!(after.redact(value), "[redacted]");
    }
}

#[tokio::test]
async fn a_token_that_is_a_part_of_another_value_uncovers_nothing_of_it() {
    let credentials = load(r#"{"a": {"origins": ["https://a.example.com"], "bearer": {"env": "TOKEN"}}}"#).unwrap();
    for part in ["s3cr3t/", "t0ken+", "==\"<&>"] {
        credentials.remember(&Arc::from("b"), &[Secret::new(part)], None).unwrap();
        assert_eq!(credentials.redact(&format!("a {TOKEN} b")), "a [redacted] b", "{part}");
        let escaped = TOKEN.replace('/', "\\u002f");
        assert_eq!(credentials.redact(&format!("a {escaped} b")), "a [redacted] b", "{part}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_redacted_is_refused() {
    let credentials = Credentials::none();
    let remember = |token: String| credentials.remember(&Arc::from("a"), &[Secret::new(token)], None);
    assert!(remember("short".to_owned()).unwrap_err().to_string().contains("the token has 5 bytes"));
    remember("x".repeat(Credentials::TOKEN_BYTES_MAX)).unwrap();
    assert!(
        remember("x".repeat(Credentials::TOKEN_BYTES_MAX + 1)).unwrap_err().to_string().contains("more than 16384")
    );
}

/// The filters before the automaton read a text in blocks of 16 or 32 bytes, and there are none for
/// many values.
#[test]
fn a_value_is_found_at_every_place_of_a_text_however_many_values_there_are() {
    for count in [1, 4, 12, 40] {
        let values: Vec<String> = (0..count).map(|n| format!("value-{n}-{}", "x".repeat(n % 7))).collect();
        let redactor = Redactor::new(values.iter().map(String::as_str)).unwrap();
        for value in &values {
            for before in 0..70 {
                let around = |value: &str| format!("{}{value}{}", "a".repeat(before), "b".repeat(70 - before));
                for echo in [value.clone(), value.to_uppercase()] {
                    assert!(redactor.finds(&around(&echo)), "{count} values: {echo} after {before} bytes");
                }
            }
        }
        assert!(!redactor.finds(&"value-".repeat(100)), "{count} values: beginnings of values");
    }
}

#[test]
fn an_echo_is_redacted_in_the_spellings_of_servers() {
    let redactor = Redactor::new([TOKEN]).unwrap();
    let base64 = general_purpose::STANDARD.encode(format!("Authorization: Bearer {TOKEN}"));
    let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
    for echo in [
        format!("Bearer {TOKEN}"),
        serde_json::json!({ "authorization": format!("Bearer {TOKEN}") }).to_string(),
        r#"{"t":"s3cr3t\/t0ken+value==\"<&>"}"#.to_owned(),
        r#"{"t":"s3cr3t/t0ken+value==\"\u003c\u0026\u003e"}"#.to_owned(),
        "<p>s3cr3t/t0ken+value==&quot;&lt;&amp;&gt;</p>".to_owned(),
        "?t=s3cr3t%2Ft0ken%2Bvalue%3D%3D%22%3C%26%3E".to_owned(),
        "?t=s3cr3t%2ft0ken%2bvalue%3d%3d%22%3c%26%3e".to_owned(),
        hex.to_uppercase(),
        hex,
        base64,
    ] {
        let clean = redactor.text(&echo).into_owned();
        assert!(clean.contains("[redacted]"), "{echo} -> {clean}");
        assert!(!clean.contains("t0ken"), "{echo} -> {clean}");
        assert_eq!(redactor.bytes(echo.as_bytes()).unwrap(), clean);
    }
    assert_eq!(redactor.text("an ordinary answer"), "an ordinary answer");
    assert_eq!(redactor.text("100%, R&D\n\\u0041"), "100%, R&D\n\\u0041");
}

#[test]
fn an_echo_is_redacted_whichever_characters_are_escaped_and_wherever_lines_break() {
    let redactor = Redactor::new([TOKEN]).unwrap();
    let escaped = |escape: &dyn Fn(u32) -> String| -> String {
        TOKEN.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { escape(u32::from(c)) }).collect()
    };
    let broken = |columns: usize, end: &str| -> String {
        let base64 = general_purpose::STANDARD.encode(format!("{}{TOKEN}{}", "a".repeat(52), "b".repeat(52)));
        base64.as_bytes().chunks(columns).map(|line| format!("{}{end}", String::from_utf8_lossy(line))).collect()
    };
    for echo in [
        escaped(&|c| format!("\\u{c:04x}")),
        escaped(&|c| format!("\\u{c:04X}")),
        escaped(&|c| format!("\\x{c:02x}")),
        escaped(&|c| format!("&#{c};")),
        escaped(&|c| format!("&#x{c:X};")),
        escaped(&|c| format!("%{c:02x}")),
        // Every other character, in turn.
        TOKEN
            .chars()
            .enumerate()
            .map(|(n, c)| if n % 2 == 0 { format!("&#{};", u32::from(c)) } else { c.into() })
            .collect(),
        TOKEN.replace('/', "\\/").replace('=', "\\u003d").replace('"', "&#34;"),
        broken(76, "\r\n"),
        broken(64, "\n"),
        broken(64, "\\n"),
        broken(60, "\n    "),
        general_purpose::STANDARD.encode(TOKEN).replace('/', "\\/").replace('+', "&#43;"),
    ] {
        let clean = redactor.text(&format!("before {echo} after")).into_owned();
        assert!(clean.starts_with("before ") && clean.ends_with(" after"), "{echo} -> {clean}");
        assert_eq!(clean.matches("[redacted]").count(), 1, "{echo} -> {clean}");
        let left: String = clean.chars().filter(|c| c.is_ascii_graphic()).collect();
        assert!(!left.contains("t0ken") && left.len() < 180, "{echo} -> {clean}");
        assert_eq!(redactor.bytes(format!("before {echo} after").as_bytes()).unwrap(), clean);
    }
}

#[test]
fn an_echo_is_redacted_in_either_case_and_in_wide_characters() {
    let redactor = Redactor::new([TOKEN]).unwrap();
    assert!(redactor.finds(&TOKEN.to_uppercase()) && redactor.finds(&TOKEN.to_lowercase()));
    let text = format!("before {TOKEN} after");
    let wide: [Vec<u8>; 4] = [
        text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect(),
        text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect(),
    ];
    for echo in wide {
        let clean: Vec<u8> = redactor.bytes(&echo).unwrap().iter().copied().filter(|byte| *byte != 0).collect();
        assert_eq!(String::from_utf8(clean).unwrap(), "before [redacted] after");
    }
}

proptest! {
    #[test]
    fn base64_of_a_text_around_a_value_never_decodes_to_the_value(
        secret in "[!-~]{6,40}", before in "[ -~]{0,9}", after in "[ -~]{0,9}", url_safe in any::<bool>(),
    ) {
        let engine = if url_safe { general_purpose::URL_SAFE } else { general_purpose::STANDARD };
        let echo = engine.encode(format!("{before}{secret}{after}"));
        let clean = Redactor::new([secret.as_str()]).unwrap().text(&echo).into_owned();
        prop_assert!(clean.contains("[redacted]"), "{} -> {}", echo, clean);
    }
}

//! Tests of the signatures, with the vendors' examples.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};

use super::CloudStackKeys;
use crate::credentials::{CredentialError, CredentialSpec, Credentials, Secret, SecretValues};

/// The key of the example in AWS's documentation of Signature Version 4.
const AWS_SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SESSION_TOKEN: &str = "a-session-token";

const AWS_FILE: &str = "\
# a comment
[default]
aws_access_key_id = AKIDEXAMPLE
aws_secret_access_key=wJalr/x+Utn#FEMI;a==

[dev]
aws_access_key_id=AKIDDEV
aws_secret_access_key=the-secret-of-dev
aws_session_token=the-token-of-dev
region=eu-west-1

[half]
aws_access_key_id=AKIDHALF
";

fn env(name: &str) -> Option<String> {
    match name {
        "AWS_ID" => Some("AKIDEXAMPLE".to_owned()),
        "AWS_SECRET" => Some(AWS_SECRET.to_owned()),
        "SESSION_TOKEN" => Some(SESSION_TOKEN.to_owned()),
        "AWS_FILE" => Some(AWS_FILE.to_owned()),
        _ => None,
    }
}

fn load(scheme: &str, spec: Value) -> Result<Credentials, CredentialError> {
    let json = json!({"api": {"origins": ["https://a.example.com"], scheme: spec}});
    let specs: BTreeMap<String, CredentialSpec> = serde_json::from_value(json).unwrap();
    Credentials::load(&specs, &env, &SecretValues::new())
}

fn aws(more: Value) -> Value {
    let mut spec = json!({"region": "us-east-1"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

/// The example of AWS's documentation of Signature Version 4 ("Example signature calculations").
#[test]
fn a_request_is_signed_as_in_the_example_of_aws() {
    let spec = aws(json!({"accessKey": {"id": {"env": "AWS_ID"}, "secret": {"env": "AWS_SECRET"}}}));
    let credentials = load("aws", spec).unwrap();
    let generation = credentials.current();
    let proof = &generation.get("api").unwrap().proof;
    let mut request = Request::get("https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08")
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
        .body(Bytes::new())
        .unwrap();
    let now: jiff::Timestamp = "2015-08-30T12:36:00Z".parse().unwrap();
    proof.prove(None, &mut request, now.into()).unwrap();
    assert_eq!(request.headers()["x-amz-date"], "20150830T123600Z");
    assert_eq!(
        request.headers()["authorization"],
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    );
    assert!(request.headers()["authorization"].is_sensitive());
    assert_eq!(
        proof.headers("/").iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        ["authorization", "x-amz-date", "x-amz-security-token"]
    );
}

#[test]
fn temporary_keys_are_sent_with_their_session_token_and_the_service_of_the_operator() {
    let key =
        json!({"id": {"env": "AWS_ID"}, "secret": {"env": "AWS_SECRET"}, "sessionToken": {"env": "SESSION_TOKEN"}});
    let credentials = load("aws", aws(json!({"service": "ec2", "accessKey": key}))).unwrap();
    let generation = credentials.current();
    let proof = &generation.get("api").unwrap().proof;
    let mut request = Request::post("http://127.0.0.1:5000/").body(Bytes::from("Action=DescribeInstances")).unwrap();
    proof.prove(None, &mut request, now()).unwrap();
    assert_eq!(request.headers()["x-amz-security-token"], SESSION_TOKEN);
    let authorization = request.headers()["authorization"].to_str().unwrap();
    assert!(
        authorization.contains("/us-east-1/ec2/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token,"),
        "{authorization}"
    );
    assert_eq!(credentials.redact(&format!("{AWS_SECRET} {SESSION_TOKEN}")), "[redacted] [redacted]");
    let mut request =
        Request::get("https://ec2.us-east-1.amazonaws.com/").header("x-a", "\u{e9}").body(Bytes::new()).unwrap();
    assert!(proof.prove(None, &mut request, now()).unwrap_err().contains("cannot be signed"));
}

#[test]
fn a_profile_of_a_credentials_file_is_read() {
    let file = |profile: Value| {
        let mut spec = json!({"content": {"env": "AWS_FILE"}});
        spec.as_object_mut().unwrap().extend(profile.as_object().unwrap().clone());
        load("aws", aws(json!({"credentialsFile": spec})))
    };
    assert_eq!(file(json!({})).unwrap().redact("wJalr/x+Utn#FEMI;a=="), "[redacted]");
    assert_eq!(
        file(json!({"profile": "dev"})).unwrap().redact("the-secret-of-dev the-token-of-dev"),
        "[redacted] [redacted]"
    );
    for (profile, expected) in [
        (
            "none",
            r#"credentials.api.aws.credentialsFile.content: has no profile "none"; add the profile, or name another one"#,
        ),
        (
            "half",
            r#"credentials.api.aws.credentialsFile.content: has no aws_secret_access_key in profile "half"; add the line"#,
        ),
    ] {
        assert_eq!(file(json!({"profile": profile})).unwrap_err().to_string(), expected);
    }
}

fn cloudstack() -> CloudStackKeys {
    CloudStackKeys {
        api_key: "plgWJfZK4gyS3mOMTVmjUVg-X-jlWlnfaUJ9GAbBbf9EdM-kAYMmAiLqzzq1ElZLYq_u38zCm0bewzGUdP66mg".to_owned(),
        secret_key: Secret::new(
            "VDaACYb0LV9eNjTetIOElcVQkvJck_J_QljX_FcHRj87ZKiy0z0ty0ZsYBkoXkY9b7eq1EhwJaw7FF3akA3KBQ",
        ),
    }
}

/// The example of CloudStack's developer guide.
#[test]
fn parameters_are_signed_as_in_the_example_of_cloudstack() {
    let keys = cloudstack();
    let parameters = [("command", "listUsers"), ("response", "json"), ("apiKey", keys.api_key.as_str())];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(keys.signature(&parameters), "TTpdDq/7j/J58XCRHomKoQXEQds=");
}

#[test]
fn a_request_to_cloudstack_has_the_signature_of_its_query_and_its_form() {
    let sign = |mut request: Request<Bytes>| {
        cloudstack().sign(&mut request, now())?;
        let url = url::Url::parse(&request.uri().to_string()).unwrap();
        Ok::<_, String>(url.query_pairs().into_owned().collect::<Vec<_>>())
    };
    let get =
        |query: &str| Request::get(format!("https://a.example.com/client/api?{query}")).body(Bytes::new()).unwrap();
    let signed = sign(get("command=listZones&name=a%20b%2Fc")).unwrap();
    let names: Vec<_> = signed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["command", "name", "apiKey", "signatureVersion", "expires", "signature"]);
    assert_eq!((&*signed[3].1, &*signed[4].1), ("3", "2023-11-14T22:23:20+0000"));
    assert_eq!(signed[5].1, cloudstack().signature(&signed[..5]));

    let post = Request::post("https://a.example.com/client/api")
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
        .body(Bytes::from("command=listZones&name=a+b%2Fc"))
        .unwrap();
    assert_eq!(sign(post).unwrap().last(), signed.last(), "the place of a parameter does not matter");
    for own in ["apikey=a", "Signature=a", "EXPIRES=a", "sessionkey=a"] {
        assert!(sign(get(own)).unwrap_err().contains("is set by the credential"), "{own}");
    }
}

//! Tests of the requests of each login, and of how its answers are read.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use expect_test::{Expect, expect};
use http::{HeaderMap, Request, StatusCode};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::{IssuerResponse, Login, Progress, Step, TokenProof};
use crate::credentials::{CredentialError, CredentialSpec, Credentials, Issued, LoginError, SecretValues};

const PASSWORD: &str = "pass&word<1>";
const KEY: &str = include_str!("test-key.pem");

fn key_file() -> Value {
    json!({
        "type": "service_account",
        "client_email": "ccm@project.iam.gserviceaccount.com",
        "private_key": KEY,
        "private_key_id": "k1",
        "token_uri": "https://oauth2.googleapis.com/token",
    })
}

fn env(name: &str) -> Option<String> {
    match name {
        "PASSWORD" => Some(PASSWORD.to_owned()),
        "KEY" => Some(key_file().to_string()),
        _ => None,
    }
}

fn load(scheme: &str, spec: Value) -> Result<Credentials, CredentialError> {
    let json = json!({"api": {"origins": ["https://a.example.com"], scheme: spec}});
    let specs: BTreeMap<String, CredentialSpec> = serde_json::from_value(json).unwrap();
    Credentials::load(&specs, &env, &SecretValues::new())
}

fn login(scheme: &str, spec: Value, path: &str) -> Login {
    let credentials = load(scheme, spec).unwrap();
    let generation = credentials.current();
    generation.get("api").unwrap().proof.session(path).unwrap().login().clone()
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn request(login: &Login) -> (String, Request<Bytes>) {
    let Step::Send(request) = login.step(&Progress::default(), now()).unwrap() else {
        panic!("a login begins with a request")
    };
    assert_eq!(request.method(), "POST");
    (request.uri().to_string(), request)
}

fn answer(login: &Login, status: u16, headers: &[(&'static str, &str)], body: &str) -> Result<Issued, LoginError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    let answers = vec![IssuerResponse { status, headers: map, body: Bytes::from(body.to_owned()) }];
    match login.step(&Progress { answers, account_token: None }, now())? {
        Step::Done(issued) => Ok(issued),
        Step::Send(request) => panic!("{request:?}"),
    }
}

/// The value of the header that proves a token.
fn value_of(issued: &Issued) -> &str {
    match &issued.proof {
        TokenProof::Header(value) => {
            assert!(value.is_sensitive());
            value.to_str().unwrap()
        }
        TokenProof::AwsKeys(keys) => panic!("{keys:?}"),
    }
}

fn failed(result: Result<Issued, LoginError>) -> String {
    match result {
        Ok(_) => "issued".to_owned(),
        Err(LoginError::Refused(text)) => format!("refused: {text}"),
        Err(LoginError::Unauthenticated(text)) => format!("unauthenticated: {text}"),
        Err(LoginError::Unavailable(text)) => format!("unavailable: {text}"),
    }
}

fn value() -> Value {
    json!({"env": "PASSWORD"})
}

fn password(user: Value, scope: (&str, Value)) -> Value {
    json!({"authUrl": "https://keystone.example.com:5000/v3", "password": {"user": user, "password": value(), scope.0: scope.1}})
}

#[test]
fn keystone_is_sent_the_user_the_password_and_the_scope() {
    let user = json!({"name": "ccm", "domainName": "Default"});
    for (scope, expected) in [
        (
            ("project", json!({"name": "k8s", "domainId": "default"})),
            json!({"project": {"name": "k8s", "domain": {"id": "default"}}}),
        ),
        (("project", json!({"id": "p1"})), json!({"project": {"id": "p1"}})),
        (("trustId", json!("t1")), json!({"OS-TRUST:trust": {"id": "t1"}})),
    ] {
        let (url, request) = request(&login("keystone", password(user.clone(), scope), "/"));
        assert_eq!(url, "https://keystone.example.com:5000/v3/auth/tokens");
        assert_eq!(request.headers()["content-type"], "application/json");
        assert_eq!(
            serde_json::from_slice::<Value>(request.body()).unwrap(),
            json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user": {
                    "name": "ccm", "domain": {"name": "Default"}, "password": PASSWORD,
                }}},
                "scope": expected,
            }})
        );
    }
}

#[test]
fn keystone_is_sent_an_application_credential() {
    for (spec, expected) in [
        (json!({"id": "a1", "secret": value()}), json!({"id": "a1", "secret": PASSWORD})),
        (
            json!({"name": "ccm", "user": {"id": "u1"}, "secret": value()}),
            json!({"name": "ccm", "user": {"id": "u1"}, "secret": PASSWORD}),
        ),
    ] {
        let spec = json!({"authUrl": "http://127.0.0.1:5000/identity/", "applicationCredential": spec});
        let (url, request) = request(&login("keystone", spec, "/"));
        assert_eq!(url, "http://127.0.0.1:5000/identity/v3/auth/tokens");
        assert_eq!(
            serde_json::from_slice::<Value>(request.body()).unwrap(),
            json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": expected}}})
        );
    }
}

#[test]
fn keystone_s_refusals_differ_from_its_outages() {
    let login = login("keystone", password(json!({"id": "u1"}), ("trustId", json!("t1"))), "/");
    let body =
        r#"{"token": {"issued_at": "2026-11-25T10:00:00.000000Z", "expires_at": "2026-11-25T11:00:00.000000Z"}}"#;
    let issued = answer(&login, 201, &[("x-subject-token", "gAAAA-token")], body).unwrap();
    assert_eq!(value_of(&issued), "gAAAA-token");
    assert_eq!((issued.lifetime, login.headers()[0].as_str()), (Some(Duration::from_secs(3600)), "x-auth-token"));
    assert_eq!(issued.secrets.iter().map(|secret| secret.expose()).collect::<Vec<_>>(), ["gAAAA-token"]);
    let wrong = |status, headers: &[_], body: &str, expected: Expect| {
        expected.assert_eq(&failed(answer(&login, status, headers, body)));
    };
    wrong(
        401,
        &[],
        r#"{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}"#,
        expect![[
            r#"unauthenticated: answered 401 Unauthorized: The request you have made requires authentication; correct the URL, the names, the password or the secret"#
        ]],
    );
    wrong(
        404,
        &[],
        "<html>",
        expect![[r#"refused: answered 404 Not Found; correct the URL, the names, the password or the secret"#]],
    );
    wrong(503, &[], "<html>", expect![[r#"unavailable: answered 503 Service Unavailable"#]]);
    wrong(429, &[], "", expect![[r#"unavailable: answered 429 Too Many Requests"#]]);
    wrong(
        302,
        &[("location", "https://elsewhere")],
        "",
        expect![[r#"refused: answered 302 Found, and redirects are not followed; correct the URL"#]],
    );
    wrong(
        200,
        &[],
        "<html>",
        expect![[r#"refused: answered 200 OK without x-subject-token; write the URL of Keystone's API v3"#]],
    );
    wrong(
        201,
        &[("x-subject-token", "gAAAA-token")],
        "<html>",
        expect![[r#"unavailable: answered 201 Created without a token; check that the URL is the issuer's"#]],
    );
}

fn oauth2(more: Value) -> Value {
    let mut spec = json!({"tokenUrl": "https://issuer.example.com/oauth2/token", "clientId": "a client"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[test]
fn an_authorization_server_is_sent_the_secret_or_the_assertion() {
    let scopes = json!(["https://management.azure.com/.default", "b"]);
    for (spec, authorization, body) in [
        (
            json!({"clientSecret": value(), "scopes": scopes}),
            Some("Basic YStjbGllbnQ6cGFzcyUyNndvcmQlM0MxJTNF"),
            "grant_type=client_credentials&scope=https%3A%2F%2Fmanagement.azure.com%2F.default+b",
        ),
        (
            json!({"clientSecret": value(), "clientAuthentication": "Body", "parameters": {"audience": "x y"}}),
            None,
            "grant_type=client_credentials&client_id=a+client&client_secret=pass%26word%3C1%3E&audience=x+y",
        ),
        (
            json!({"clientAssertion": value()}),
            None,
            "grant_type=client_credentials&client_id=a+client&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=pass%26word%3C1%3E",
        ),
    ] {
        let (url, request) = request(&login("oauth2", oauth2(spec), "/"));
        assert_eq!(url, "https://issuer.example.com/oauth2/token");
        assert_eq!(request.headers()["content-type"], "application/x-www-form-urlencoded");
        assert_eq!(request.headers().get("authorization").map(|value| value.to_str().unwrap()), authorization);
        assert_eq!(request.body(), body);
    }
}

#[test]
fn an_authorization_server_s_refusals_differ_from_its_outages() {
    let login = login("oauth2", oauth2(json!({"clientSecret": value()})), "/");
    for (expires, lifetime) in [
        (r#""expires_in": 3599,"#, Some(3599)),
        (r#""expires_in": "60","#, Some(60)),
        ("", None),
        (r#""expires_in": -1,"#, None),
    ] {
        let body = format!(r#"{{{expires} "access_token": "access-token", "token_type": "bearer"}}"#);
        let issued = answer(&login, 200, &[], &body).unwrap();
        assert_eq!((value_of(&issued), login.headers()[0].as_str()), ("Bearer access-token", "authorization"));
        assert_eq!(issued.lifetime, lifetime.map(Duration::from_secs));
    }
    let wrong = |status, body: &str, expected: Expect| expected.assert_eq(&failed(answer(&login, status, &[], body)));
    wrong(
        400,
        r#"{"error": "invalid_client", "error_description": "unknown\nclient"}"#,
        expect![[
            r#"unauthenticated: answered 400 Bad Request: invalid_client: unknown client; correct the URL, the client, the secret or the scopes"#
        ]],
    );
    wrong(
        401,
        r#"{"error": "invalid_client"}"#,
        expect![[
            r#"unauthenticated: answered 401 Unauthorized: invalid_client; correct the URL, the client, the secret or the scopes"#
        ]],
    );
    wrong(
        400,
        r#"{"error": "temporarily_unavailable"}"#,
        expect![[r#"unavailable: answered 400 Bad Request: temporarily_unavailable"#]],
    );
    wrong(500, "oh", expect![[r#"unavailable: answered 500 Internal Server Error"#]]);
    wrong(
        200,
        "<html>",
        expect![[r#"unavailable: answered 200 OK without a token; check that the URL is the issuer's"#]],
    );
    wrong(
        200,
        r#"{"access_token": "access-token", "token_type": "mac"}"#,
        expect![[r#"refused: issued a token of another type than Bearer; use another issuer"#]],
    );
}

#[test]
fn google_is_sent_a_token_that_the_key_has_signed() {
    let spec = json!({"key": {"env": "KEY"}, "scopes": ["https://www.googleapis.com/auth/compute", "b"]});
    let (url, request) = request(&login("serviceAccountKey", spec, "/"));
    assert_eq!(url, "https://oauth2.googleapis.com/token");
    let form: BTreeMap<_, _> = url::form_urlencoded::parse(request.body()).into_owned().collect();
    assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let (signed, signature) = form["assertion"].rsplit_once('.').unwrap();
    let key = super::service_account_key::key_pair(&crate::credentials::Secret::new(KEY)).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref())
        .verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap())
        .unwrap();
    let parts: Vec<Value> =
        signed.split('.').map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()).collect();
    assert_eq!(
        parts,
        [
            json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}),
            json!({
                "iss": "ccm@project.iam.gserviceaccount.com",
                "scope": "https://www.googleapis.com/auth/compute b",
                "aud": "https://oauth2.googleapis.com/token",
                "iat": 1_700_000_000,
                "exp": 1_700_003_600,
            }),
        ]
    );
}

fn vsphere() -> Value {
    json!({"url": "https://vcenter.example.com", "username": r"VSPHERE\ccm", "password": value()})
}

#[test]
fn a_path_below_sdk_has_a_soap_session_and_every_other_path_a_rest_session() {
    for path in ["/sdk", "/sdk/vimService"] {
        let login = login("vsphere", vsphere(), path);
        let (url, request) = request(&login);
        assert_eq!(url, "https://vcenter.example.com/sdk");
        let body = String::from_utf8_lossy(request.body()).into_owned();
        assert!(
            body.contains(r"<userName>VSPHERE\ccm</userName><password>pass&amp;word&lt;1&gt;</password>"),
            "{body}"
        );
        assert_eq!(login.headers()[0], "cookie");
        let cookie =
            [("set-cookie", "other=1; Path=/"), ("set-cookie", "vmware_soap_session=\"5ess10n\"; Path=/; HttpOnly")];
        let issued = answer(&login, 200, &cookie, "<LoginResponse/>").unwrap();
        assert_eq!(
            (value_of(&issued), issued.lifetime),
            ("vmware_soap_session=\"5ess10n\"", Some(Duration::from_mins(20)))
        );
        assert_eq!(issued.secrets[0].expose(), "5ess10n");
    }
    for path in ["/sdkx", "/api/vcenter/vm", "/"] {
        let login = login("vsphere", vsphere(), path);
        let (url, request) = request(&login);
        assert_eq!(url, "https://vcenter.example.com/rest/com/vmware/cis/session");
        assert_eq!(request.headers()["authorization"], "Basic VlNQSEVSRVxjY206cGFzcyZ3b3JkPDE+");
        assert_eq!(login.headers()[0], "vmware-api-session-id");
        let issued = answer(&login, 201, &[], r#"{"value": "5ess10n"}"#).unwrap();
        assert_eq!((value_of(&issued), issued.lifetime), ("5ess10n", Some(Duration::from_mins(20))));
    }
}

#[test]
fn vcenter_s_refusals_differ_from_its_outages() {
    let soap = login("vsphere", vsphere(), "/sdk");
    let rest = login("vsphere", vsphere(), "/api/vcenter/vm");
    let fault = r#"<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>Cannot complete login due to an incorrect user name or password.</faultstring><detail><InvalidLoginFault xmlns="urn:vim25"/></detail></soapenv:Fault>"#;
    let wrong = |login: &Login, status, body: &str, expected: Expect| {
        expected.assert_eq(&failed(answer(login, status, &[], body)))
    };
    wrong(
        &soap,
        500,
        fault,
        expect![[
            r#"unauthenticated: answered 500 Internal Server Error: Cannot complete login due to an incorrect user name or password; correct the URL, the user name or the password"#
        ]],
    );
    wrong(
        &soap,
        500,
        "<faultstring>out of memory</faultstring>",
        expect![[r#"unavailable: answered 500 Internal Server Error: out of memory"#]],
    );
    wrong(
        &soap,
        200,
        "<html>",
        expect![[
            r#"refused: answered 200 OK without the cookie vmware_soap_session; correct the URL, the user name or the password"#
        ]],
    );
    wrong(
        &soap,
        404,
        "",
        expect![[r#"refused: answered 404 Not Found; correct the URL, the user name or the password"#]],
    );
    wrong(
        &rest,
        401,
        "{}",
        expect![[r#"unauthenticated: answered 401 Unauthorized; correct the URL, the user name or the password"#]],
    );
    wrong(&rest, 503, "{}", expect![[r#"unavailable: answered 503 Service Unavailable"#]]);
    wrong(
        &rest,
        200,
        "<html>",
        expect![[r#"unavailable: answered 200 OK without a token; check that the URL is the issuer's"#]],
    );
    let expired = b"<NotAuthenticatedFault xmlns=\"urn:vim25\"/>";
    assert!(!soap.is_rejected_by(200, b"<name>NotAuthenticated</name>"));
    assert!(soap.is_rejected_by(500, expired) && rest.is_rejected_by(401, b""));
    assert!(
        !soap.is_rejected_by(500, fault.as_bytes())
            && soap.is_rejected_by(200, br#"<missingSet><fault><fault xsi:type="NotAuthenticated"/>"#)
    );
    assert!(!rest.is_rejected_by(403, b"") && !rest.is_rejected_by(500, expired));
}

#[track_caller]
fn wrong(scheme: &str, spec: Value, expected: Expect) {
    let text = load(scheme, spec).unwrap_err().to_string();
    assert!(!text.contains(PASSWORD) && !text.contains("PRIVATE KEY"), "{text}");
    expected.assert_eq(&text);
}

#[test]
fn a_wrong_keystone_is_refused_with_its_place_the_reason_and_the_remedy() {
    let url = "https://keystone.example.com/v3";
    wrong(
        "keystone",
        json!({"authUrl": url}),
        expect![[r#"credentials.api.keystone: needs one of applicationCredential and password; write exactly one"#]],
    );
    wrong(
        "keystone",
        json!({"authUrl": "keystone", "applicationCredential": {"id": "a", "secret": value()}}),
        expect![[r#"credentials.api.keystone.authUrl: the URL does not begin with http:// or https:// and a host"#]],
    );
    wrong(
        "keystone",
        json!({"authUrl": url, "applicationCredential": {"name": "a", "secret": value()}}),
        expect![[
            r#"credentials.api.keystone.applicationCredential: needs id, or name and user; write one of the two"#
        ]],
    );
    wrong(
        "keystone",
        json!({"authUrl": url, "password": {"user": {"name": "a"}, "password": value(), "trustId": "t"}}),
        expect![[
            r#"credentials.api.keystone.password.user: needs id, or name and one of domainId and domainName; write one of the two"#
        ]],
    );
    wrong(
        "keystone",
        json!({"authUrl": url, "password": {"user": {"id": "a"}, "password": value()}}),
        expect![[r#"credentials.api.keystone.password: needs one of project and trustId; write exactly one"#]],
    );
    wrong(
        "keystone",
        json!({"authUrl": url, "applicationCredential": {"id": "a", "secret": {"env": "NONE"}}}),
        expect![[
            r#"credentials.api.keystone.applicationCredential.secret: environment variable NONE is not set; set it for this process, or name a file"#
        ]],
    );
}

#[test]
fn every_other_wrong_login_is_refused_with_its_place_the_reason_and_the_remedy() {
    wrong(
        "oauth2",
        oauth2(json!({})),
        expect![[
            r#"credentials.api.oauth2: needs one of clientSecret, clientAssertion and serviceAccountToken; write exactly one"#
        ]],
    );
    wrong(
        "oauth2",
        oauth2(json!({"clientSecret": value(), "parameters": {"scope": "a"}})),
        expect![[r#"credentials.api.oauth2.parameters: has "scope", which the grant sets itself; remove it"#]],
    );
    wrong(
        "oauth2",
        oauth2(json!({"clientSecret": value(), "tokenUrl": "https://a.example.com/?tenant=1"})),
        expect![[r#"credentials.api.oauth2.tokenUrl: the URL has a query; leave it out"#]],
    );
    wrong(
        "serviceAccountKey",
        json!({"key": value(), "scopes": []}),
        expect![[r#"credentials.api.serviceAccountKey.scopes: is empty; name at least one scope"#]],
    );
    wrong(
        "oauth2",
        oauth2(json!({"clientSecret": value(), "scopes": vec!["a"; 65]})),
        expect![[r#"credentials.api.oauth2.scopes: has 65 entries, at most 64 are allowed; remove some"#]],
    );
    wrong(
        "serviceAccountKey",
        json!({"key": value(), "scopes": ["a"]}),
        expect![[
            r#"credentials.api.serviceAccountKey.key: is not the JSON file of a service account's key; name the file that Google Cloud returned for the key"#
        ]],
    );
    wrong(
        "aws",
        aws(json!({})),
        expect![[
            r#"credentials.api.aws: needs one of accessKey, credentialsFile, webIdentity and instanceMetadata; write exactly one"#
        ]],
    );
    wrong(
        "aws",
        aws(json!({"region": "", "instanceMetadata": {}})),
        expect![[r#"credentials.api.aws.region: is not a region; write one such as eu-west-1"#]],
    );
    wrong(
        "aws",
        aws(json!({"credentialsFile": {"content": value()}})),
        expect![[
            r#"credentials.api.aws.credentialsFile.content: has no aws_access_key_id in profile "default"; add the line"#
        ]],
    );
    wrong(
        "vsphere",
        json!({"url": "https://user@vcenter.example.com", "username": "a", "password": value()}),
        expect![[r#"credentials.api.vsphere.url: the URL has user information; name a credential instead"#]],
    );
    wrong(
        "vsphere",
        json!({"url": "https://vcenter.example.com", "username": "a:b", "password": value()}),
        expect![[r#"credentials.api.vsphere.username: has a ':' or a control character; use another one"#]],
    );
}

#[test]
fn debug_output_of_a_login_contains_no_value() {
    for (scheme, spec) in [
        ("keystone", password(json!({"id": "u1"}), ("trustId", json!("t1")))),
        ("oauth2", oauth2(json!({"clientSecret": value()}))),
        ("serviceAccountKey", json!({"key": {"env": "KEY"}, "scopes": ["a"]})),
        ("vsphere", vsphere()),
    ] {
        let credentials = load(scheme, spec.clone()).unwrap();
        let shown = format!("{credentials:?} {:?}", login(scheme, spec, "/"));
        assert!(!shown.contains("word<1>") && !shown.contains("PRIVATE"), "{shown}");
    }
}

fn aws(more: Value) -> Value {
    let mut spec = json!({"region": "us-east-1"});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn keys_of(issued: &Issued) -> (&str, &str, Option<&str>) {
    match &issued.proof {
        TokenProof::AwsKeys(keys) => {
            (&keys.id, keys.secret.expose(), keys.session_token.as_ref().map(|token| token.expose()))
        }
        TokenProof::Header(value) => panic!("{value:?}"),
    }
}

#[test]
fn a_web_identity_is_exchanged_for_temporary_keys() {
    let identity = json!({"roleArn": "arn:aws:iam::1:role/ccm", "token": {"env": "PASSWORD"}});
    let role = login("aws", aws(json!({"region": "cn-north-1", "webIdentity": identity})), "/");
    assert_eq!(request(&role).0, "https://sts.cn-north-1.amazonaws.com.cn/");
    let role = login("aws", aws(json!({"webIdentity": identity})), "/");
    let (url, sent) = request(&role);
    assert_eq!(url, "https://sts.us-east-1.amazonaws.com/");
    assert_eq!(
        sent.body(),
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fccm&RoleSessionName=skysail&WebIdentityToken=pass%26word%3C1%3E"
    );
    let body = r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>a-secret</SecretAccessKey><SessionToken>a-session-token</SessionToken><Expiration>2026-11-25T11:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"#;
    let issued = answer(&role, 200, &[("date", "Wed, 25 Nov 2026 10:00:00 GMT")], body).unwrap();
    assert_eq!(keys_of(&issued), ("ASIA1", "a-secret", Some("a-session-token")));
    assert_eq!((issued.lifetime, issued.secrets.len()), (Some(Duration::from_secs(3600)), 2));
    let wrong = |status, body: &str, expected: Expect| expected.assert_eq(&failed(answer(&role, status, &[], body)));
    wrong(
        403,
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>",
        expect![[
            r#"refused: answered 403 Forbidden: AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity; correct the role, its trust policy or the token"#
        ]],
    );
    wrong(503, "<html>", expect![[r#"unavailable: answered 503 Service Unavailable"#]]);
    wrong(200, "<html/>", expect![[r#"unavailable: answered 200 OK without keys; check stsUrl"#]]);
    assert!(
        role.is_rejected_by(403, b"<Code>ExpiredToken</Code>")
            && !role.is_rejected_by(403, b"<Code>AccessDenied</Code>")
    );
}

fn text_answer(status: u16, body: &str) -> IssuerResponse {
    IssuerResponse {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::from(body.to_owned()),
    }
}

#[test]
fn the_metadata_service_is_asked_for_a_token_the_role_and_the_keys() {
    let role = login("aws", aws(json!({"instanceMetadata": {}})), "/");
    let mut progress = Progress::default();
    let mut step = |answer: Option<IssuerResponse>| {
        progress.answers.extend(answer);
        role.step(&progress, now())
    };
    let sent = |step: Result<Step, LoginError>| match step.unwrap() {
        Step::Send(request) => {
            let token =
                request.headers().get("x-aws-ec2-metadata-token").map(|token| token.to_str().unwrap().to_owned());
            (request.method().to_string(), request.uri().to_string(), token)
        }
        Step::Done(_) => panic!("the login has ended"),
    };
    let expected = |method: &str, path: &str, token: Option<&str>| {
        (method.to_owned(), format!("http://169.254.169.254/latest/{path}"), token.map(str::to_owned))
    };
    assert_eq!(sent(step(None)), expected("PUT", "api/token", None));
    let keys = "meta-data/iam/security-credentials/";
    assert_eq!(sent(step(Some(text_answer(200, "m3tadata")))), expected("GET", keys, Some("m3tadata")));
    assert_eq!(
        sent(step(Some(text_answer(200, "ccm-role\n")))),
        expected("GET", &format!("{keys}ccm-role"), Some("m3tadata"))
    );
    let body = r#"{"Code": "Success", "AccessKeyId": "ASIA1", "SecretAccessKey": "a-secret", "Token": "a-session-token", "Expiration": "2023-11-14T23:13:20Z"}"#;
    let Step::Done(issued) = step(Some(text_answer(200, body))).unwrap() else { panic!("the keys are there") };
    assert_eq!(keys_of(&issued), ("ASIA1", "a-secret", Some("a-session-token")));
    assert_eq!(issued.lifetime, Some(Duration::from_secs(3600)));

    let end = |answers: Vec<IssuerResponse>| match role.step(&Progress { answers, account_token: None }, now()) {
        Err(error) => error.to_string(),
        Ok(_) => "goes on".to_owned(),
    };
    let token = || text_answer(200, "m3tadata");
    assert_eq!(
        end(vec![token(), text_answer(404, "")]),
        "answered 404 Not Found; enable the metadata service of the EC2 instance for containers, and attach an instance profile"
    );
    assert_eq!(
        end(vec![token(), text_answer(200, "../../x")]),
        "named no role; enable the metadata service of the EC2 instance for containers, and attach an instance profile"
    );
    assert_eq!(end(vec![text_answer(500, "")]), "answered 500 Internal Server Error");
}

#[test]
fn only_the_login_of_an_instance_may_reach_the_metadata_service() {
    let instance = login("aws", aws(json!({"instanceMetadata": {}})), "/");
    assert!(instance.asks_metadata_service());
    let elsewhere = login("aws", aws(json!({"instanceMetadata": {"url": "http://10.0.0.1"}})), "/");
    assert!(!elsewhere.asks_metadata_service());
    let identity = json!({"roleArn": "arn", "token": {"env": "PASSWORD"}, "stsUrl": "http://169.254.169.254"});
    let sts = login("aws", aws(json!({"webIdentity": identity})), "/");
    assert!(!sts.asks_metadata_service());
}

#[test]
fn the_token_of_a_service_account_is_the_identity() {
    let account = json!({"namespace": "kube-system", "name": "ccm", "audience": "sts.amazonaws.com"});
    let identity = json!({"roleArn": "arn", "serviceAccountToken": account});
    for (login, expected) in [
        (login("aws", aws(json!({"webIdentity": identity})), "/"), "WebIdentityToken=a.jwt"),
        (login("oauth2", oauth2(json!({"serviceAccountToken": account})), "/"), "client_assertion=a.jwt"),
    ] {
        assert_eq!(login.account().unwrap().name, "ccm");
        let account_token = Some(crate::credentials::Secret::new("a.jwt"));
        let step = login.step(&Progress { account_token, answers: Vec::new() }, now());
        let Step::Send(request) = step.unwrap() else { panic!("a login begins with a request") };
        let body = String::from_utf8_lossy(request.body()).into_owned();
        assert!(body.ends_with(expected), "{body}");
        assert!(login.step(&Progress::default(), now()).is_err());
    }
}

//! Tests of the OCI source with a fake registry that gives any answer; `tests/e2e` has tests with
//! real registries.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use expect_test::{Expect, expect};
use futures::{FutureExt as _, StreamExt as _, stream};
use skysail_egress::policy::Proxy;

use super::{
    DockerConfig, OciSource, OciSourceSettings, PullOptions, Pulled, Registry, RegistryCredentials, RegistryFailure,
    RegistryOptions, Task,
    tests::server::{Asked, Server, manifest},
};
use crate::{Digest, Offers, Reference, SourceError, offer::Last};

mod attacks;
mod layouts;
mod server;
mod signatures;

const OPTIONS: PullOptions = PullOptions { bytes_max: 1000, timeout: Duration::from_secs(60), signatures: None };

fn options(server: &Server) -> RegistryOptions {
    RegistryOptions {
        host: server.host.clone(),
        mirrors: Vec::new(),
        plain_http: BTreeSet::from([server.host.clone()]),
        trusted_hosts: BTreeSet::new(),
        ca_bundle: None,
        credentials: None,
        proxy: None,
        judge: Arc::new(|address: IpAddr| match address.is_loopback() {
            true => Err(format!("{address} is loopback")),
            false => Ok(()),
        }),
    }
}

fn reference(server: &Server, rest: &str) -> Reference {
    format!("{}/org/provider{rest}", server.host).parse().unwrap()
}

async fn pull_with(options: RegistryOptions, reference: &Reference) -> Result<Pulled, RegistryFailure> {
    Registry::new(options).unwrap().pull(reference, None, &OPTIONS).await.map(Option::unwrap)
}

async fn pull(server: &Server, rest: &str) -> Result<Pulled, RegistryFailure> {
    pull_with(options(server), &reference(server, rest)).await
}

/// The failure's category and message, with the port replaced.
fn told(server: &Server, failure: &RegistryFailure) -> String {
    // With the address, because the digits of a port may also be in a digest.
    format!("{}: {}", failure.category(), failure.message()).replace(&server.host, "127.0.0.1:PORT")
}

async fn refused(server: &Server, rest: &str, expected: Expect) {
    let failure = pull(server, rest).await.unwrap_err();
    expected.assert_eq(&told(server, &failure));
}

fn watch(server: &Server, rest: &str) -> Offers {
    let settings = OciSourceSettings { poll: Duration::from_secs(1), ..OciSourceSettings::default() };
    OciSource::new(Registry::new(options(server)).unwrap(), reference(server, rest), settings).watch()
}

#[tokio::test]
async fn a_tag_is_resolved_to_its_component_through_digests() {
    let server = Server::start().await;
    let manifest = server.component("v1", "component one");
    let pulled = pull(&server, ":v1").await.unwrap();
    assert_eq!((&pulled.bytes[..], pulled.manifest), (&b"component one"[..], manifest));
    let blob = Digest::of(b"component one");
    assert_eq!(
        server.asked(),
        [
            "HEAD /v2/org/provider/manifests/v1".to_owned(),
            format!("GET /v2/org/provider/manifests/{manifest}"),
            format!("GET /v2/org/provider/blobs/{blob}"),
        ]
    );
    let pinned = pull(&server, &format!("@{manifest}")).await.unwrap();
    assert_eq!((pinned.bytes, pinned.digest), (pulled.bytes, blob));
    assert_eq!(server.asked().len(), 2, "a digest is not resolved");
}

#[tokio::test]
async fn a_tag_that_moves_is_an_offer_and_an_unchanged_tag_costs_one_head_request() {
    let server = Server::start().await;
    server.component("v1", "one");
    let mut offers = watch(&server, ":v1");
    assert_eq!(offers.next().await.unwrap().unwrap().digest, Digest::of(b"one"));
    drop(server.asked());
    let asked = until_asked_so_often(&server, 2).await;
    assert!(asked.iter().all(|line| line.starts_with("HEAD ")), "{asked:?}");
    assert!(offers.next().now_or_never().is_none(), "nothing is new");
    let moved = server.component("v1", "two");
    let offer = offers.next().await.unwrap().unwrap();
    assert_eq!(offer.digest, Digest::of(b"two"));
    assert_eq!(offer.origin, format!("oci {}/org/provider:v1@{moved}", server.host));
    let fetched = server.asked().iter().filter(|line| !line.starts_with("HEAD ")).count();
    assert_eq!(fetched, 2, "one manifest, one blob");
}

#[tokio::test]
async fn the_same_component_under_another_manifest_is_not_offered_again() {
    let server = Server::start().await;
    server.component("v1", "one");
    let mut offers = watch(&server, ":v1");
    assert_eq!(offers.next().await.unwrap().unwrap().digest, Digest::of(b"one"));
    let (one, readme) = (Digest::of(b"one"), server.blob("read me"));
    server.manifest("v1", manifest(&[("application/wasm", one, 3), ("text/markdown", readme, 7)]));
    until_asked(&server, "blobs").await;
    server.component("v1", "two");
    assert_eq!(offers.next().await.unwrap().unwrap().digest, Digest::of(b"two"));
}

async fn until_asked_so_often(server: &Server, count: usize) -> Vec<String> {
    let mut asked = Vec::new();
    while asked.len() < count {
        tokio::time::sleep(Duration::from_millis(20)).await;
        asked.extend(server.asked());
    }
    asked
}

async fn until_asked(server: &Server, what: &str) {
    while !server.asked().iter().any(|line| line.contains(what)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_failure_is_reported_once_and_so_is_its_end() {
    let server = Server::start().await;
    let mut offers = watch(&server, ":v1");
    let error = offers.next().await.unwrap().unwrap_err();
    assert!(matches!(&error, SourceError::Registry { .. }), "{error}");
    assert!(error.message().contains("has no manifest v1"), "{}", error.message());
    until_asked(&server, "v1").await;
    assert!(offers.next().now_or_never().is_none(), "reported already");
    server.component("v1", "one");
    assert_eq!(offers.next().await.unwrap().unwrap().digest, Digest::of(b"one"));
}

#[tokio::test]
async fn an_index_is_resolved_to_its_only_entry_for_webassembly() {
    let server = Server::start().await;
    let component = server.component("only", "one");
    let amd64 = server.component("amd64", "machine code");
    let entry = |digest: Digest, platform: &str| {
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{digest}","size":1,"platform":{{"os":"{}","architecture":"{}"}}}}"#,
            platform.split('/').next().unwrap(),
            platform.split('/').next_back().unwrap()
        )
    };
    let index = |entries: &[String]| format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","));
    server.manifest("index", index(&[entry(amd64, "linux/amd64"), entry(component, "wasip2/wasm")]));
    assert_eq!(pull(&server, ":index").await.unwrap().digest, Digest::of(b"one"));
    server.manifest("single", index(&[entry(component, "unknown/unknown")]));
    assert_eq!(pull(&server, ":single").await.unwrap().digest, Digest::of(b"one"));

    server.manifest("none", index(&[entry(amd64, "linux/amd64"), entry(amd64, "linux/arm64")]));
    refused(&server, ":none", expect!["ArtifactLayout: the artifact holds an index with 0 entries for WebAssembly (linux/amd64, linux/arm64); reference the digest of the right one"]).await;
    let inner = server.manifest("inner", index(&[entry(component, "wasip2/wasm")]));
    server.manifest("nested", index(&[entry(inner, "wasip2/wasm")]));
    refused(
        &server,
        ":nested",
        expect!["ArtifactLayout: the artifact holds an index within an index; reference the digest of the right one"],
    )
    .await;
}

#[tokio::test]
async fn an_artifact_without_exactly_one_component_is_refused_with_a_list_of_its_content() {
    let server = Server::start().await;
    let (one, two) = (server.blob("one"), server.blob("two"));
    server.manifest("image", manifest(&[("application/vnd.oci.image.layer.v1.tar+gzip", one, 3)]));
    refused(&server, ":image", expect!["ArtifactLayout: the artifact holds no component among its layers (application/vnd.oci.image.layer.v1.tar+gzip); push the .wasm file with skysail push, wkg or oras as application/wasm"]).await;
    server.manifest("two", manifest(&[("application/wasm", one, 3), ("application/wasm", two, 3)]));
    refused(&server, ":two", expect!["ArtifactLayout: the artifact holds two layers of type application/wasm; push the component as an artifact of its own"]).await;
    server.manifest("broken", "{\"schemaVersion\": 2,");
    refused(&server, ":broken", expect!["ArtifactMalformed: the manifest cannot be read (EOF while parsing a value at line 1 column 20); push the artifact again, or report it to the registry's operator"]).await;
}

#[tokio::test]
async fn a_mirror_is_tried_first_and_the_registry_last() {
    let (server, mirror, empty) = (Server::start().await, Server::start().await, Server::start().await);
    server.component("v1", "one");
    mirror.component("v1", "one");
    let with = |mirrors: &[&Server]| {
        let mut options = options(&server);
        options.mirrors = mirrors.iter().map(|mirror| mirror.host.clone()).collect();
        options.plain_http.extend(options.mirrors.clone());
        options
    };
    pull_with(with(&[&empty, &mirror]), &reference(&server, ":v1")).await.unwrap();
    assert_eq!((empty.asked().len(), mirror.asked().len(), server.asked().len()), (1, 3, 0));
    pull_with(with(&[&empty]), &reference(&server, ":v1")).await.unwrap();
    assert_eq!((empty.asked().len(), server.asked().len()), (1, 3));
}

#[tokio::test]
async fn a_host_that_is_not_listed_is_never_reached_by_plain_http() {
    let (server, mirror) = (Server::start().await, Server::start().await);
    for server in [&server, &mirror] {
        server.component("v1", "one");
    }
    let none = || RegistryOptions { plain_http: BTreeSet::new(), ..options(&server) };
    let failure = pull_with(none(), &reference(&server, ":v1")).await.unwrap_err();
    expect!["RegistryNotTls: 127.0.0.1:PORT does not speak TLS; list it in source.oci.plainHTTP to use plain HTTP"]
        .assert_eq(&told(&server, &failure));
    let mirrored = RegistryOptions { mirrors: vec![mirror.host.clone()], ..options(&server) };
    pull_with(mirrored, &reference(&server, ":v1")).await.unwrap();
    assert_eq!((mirror.asked().len(), server.asked().len()), (0, 3), "the registry alone is named");
}

/// The proxy resolves the name of the registry, which this machine does not know.
#[tokio::test]
async fn a_component_comes_through_the_operators_proxy_and_the_proxys_own_address_is_judged() {
    let server = Server::start().await;
    server.component("v1", "component one");
    let name = "registry.invalid:5000";
    let through = |trusted_hosts: &[&str]| RegistryOptions {
        host: name.to_owned(),
        plain_http: BTreeSet::from([name.to_owned()]),
        trusted_hosts: trusted_hosts.iter().map(|host| (*host).to_owned()).collect(),
        proxy: Some(Proxy::parse(&format!("http://{}", server.host)).unwrap()),
        ..options(&server)
    };
    let reference = format!("{name}/org/provider:v1").parse().unwrap();
    let pulled = pull_with(through(&["127.0.0.1"]), &reference).await.unwrap();
    assert_eq!(&pulled.bytes[..], b"component one");
    let requests = server.requests();
    assert!(requests.iter().all(|asked| asked.header("host") == Some(name)) && requests.len() == 3, "{requests:?}");

    let error = Registry::new(through(&[])).unwrap_err().to_string().replace(&server.host, "127.0.0.1:PORT");
    expect!["proxy http://127.0.0.1:PORT is not allowed: 127.0.0.1 is loopback; add its host to trustedHosts, or name another one"]
        .assert_eq(&error);
}

#[test]
fn no_request_is_sent_before_the_retry_after_of_a_registry() {
    let registry = Registry::new(RegistryOptions {
        host: "ghcr.io".to_owned(),
        mirrors: Vec::new(),
        plain_http: BTreeSet::new(),
        trusted_hosts: BTreeSet::new(),
        ca_bundle: None,
        proxy: None,
        credentials: None,
        judge: Arc::new(|_| Ok(())),
    });
    let settings = OciSourceSettings::default();
    let poll = settings.poll.as_secs_f64();
    let source = OciSource::new(registry.unwrap(), "ghcr.io/org/provider:v1".parse().unwrap(), settings);
    let mut polls = Vec::new();
    for _ in 0..100 {
        let mut task =
            Task { source: source.clone(), manifest: None, last: Last::default(), retry: Duration::from_secs(2) };
        polls.push(task.wait(&Ok(None)).unwrap().as_secs_f64());
        let rest = Some(Duration::from_secs(300));
        let tired = RegistryFailure::TooManyRequests { host: "ghcr.io".to_owned(), retry_after: rest };
        let wait = task.wait(&Err(tired));
        assert!(wait >= rest && wait <= Some(Duration::from_secs(330)), "{wait:?}");
        let gone = RegistryFailure::NotFound { host: "ghcr.io".to_owned(), what: "v1".to_owned() };
        let waits: Vec<_> = (0..6).map(|_| task.wait(&Err(gone.clone())).unwrap().as_secs_f64()).collect();
        for (wait, meant) in waits.iter().zip([4.0, 8.0, 16.0, 32.0, 60.0, 60.0]) {
            assert!(*wait >= meant * 0.9 && *wait <= meant * 1.1, "{waits:?}");
        }
    }
    // A hundred managers that start together do not send their requests together.
    let (first, last) =
        polls.iter().fold((f64::MAX, 0.0_f64), |(first, last), &poll| (first.min(poll), last.max(poll)));
    assert!(first >= poll * 0.9 && last <= poll * 1.1 && last - first > poll * 0.1, "{polls:?}");
}

// === authentication ===

/// Challenges for `Basic` or for a token of the registry's own token service.
fn guarded(asked: &Asked, scheme: &str, expected: &str) -> Option<Response> {
    let host = asked.header("host").unwrap().to_owned();
    if asked.path.starts_with("/token") {
        assert_eq!(asked.path, "/token?scope=repository%3Aorg%2Fprovider%3Apull&service=registry");
        let known = asked.header("authorization") == Some("Basic bWU6c2VjcmV0");
        return Some(match known {
            true => r#"{"token":"t0ken"}"#.into_response(),
            false => StatusCode::UNAUTHORIZED.into_response(),
        });
    }
    if asked.header("authorization") == Some(expected) {
        return None;
    }
    let challenge = match scheme {
        "Basic" => "Basic realm=\"here\"".to_owned(),
        _ => format!("Bearer realm=\"http://{host}/token\",service=\"registry\""),
    };
    Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response())
}

/// The same configuration as a file and as a text.
fn docker_config(server: &Server, folder: &tempfile::TempDir) -> [RegistryCredentials; 2] {
    let path = folder.path().join("config.json");
    let text = format!(r#"{{"auths":{{"{}":{{"auth":"bWU6c2VjcmV0"}}}}}}"#, server.host);
    std::fs::write(&path, &text).unwrap();
    let config = DockerConfig::new(&text, "Secret cloud/registry");
    assert!(!format!("{config:?}").contains("bWU6c2VjcmV0"));
    [RegistryCredentials::File(path), RegistryCredentials::Text(config)]
}

#[tokio::test]
async fn a_registry_receives_credentials_by_password_and_by_token() {
    let folder = tempfile::tempdir().unwrap();
    for (scheme, expected) in [("Basic", "Basic bWU6c2VjcmV0"), ("Bearer", "Bearer t0ken")] {
        let server = Server::start().await;
        server.component("v1", "one");
        server.say(move |asked| guarded(asked, scheme, expected));
        refused(&server, ":v1", match scheme {
            "Basic" => expect!["RegistryUnauthorized: 127.0.0.1:PORT rejects the authentication (without credentials); give credentials for 127.0.0.1:PORT in source.oci.credentials, or correct them"],
            _ => expect!["RegistryUnauthorized: 127.0.0.1:PORT rejects the authentication (without credentials); give credentials for 127.0.0.1:PORT in source.oci.credentials, or correct them"],
        }).await;
        for credentials in docker_config(&server, &folder) {
            let options = RegistryOptions { credentials: Some(credentials), ..options(&server) };
            let pulled = pull_with(options, &reference(&server, ":v1")).await.unwrap();
            assert_eq!(pulled.digest, Digest::of(b"one"));
        }
    }
}

#[tokio::test]
async fn a_host_is_the_same_in_upper_case_and_with_the_default_port() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start().await;
    server.component("v1", "one");
    server.say(|asked| guarded(asked, "Basic", "Basic bWU6c2VjcmV0"));
    server.host = server.host.replace("127.0.0.1", "LocalHost");
    let [in_file, _] = docker_config(&server, &folder);
    let options = RegistryOptions { credentials: Some(in_file), ..options(&server) };
    pull_with(options.clone(), &reference(&server, ":v1")).await.unwrap();

    let named = RegistryOptions { plain_http: BTreeSet::from(["registry.local:80".to_owned()]), ..options };
    let is_of = |url: &str, host: &str| named.is_of(&url.parse().unwrap(), host);
    assert!(is_of("https://ghcr.io/v2/", "ghcr.io:443") && is_of("https://ghcr.io/v2/", "ghcr.io"));
    assert!(is_of("http://registry.local/v2/", "registry.local:80"));
    assert!(!is_of("http://ghcr.io/v2/", "ghcr.io") && !is_of("https://ghcr.io:8443/v2/", "ghcr.io"));
    assert!(!is_of("https://registry.local/v2/", "registry.local:80"));
    let plain = RegistryOptions { plain_http: BTreeSet::from(["Registry.local".to_owned()]), ..named.clone() };
    for url in ["http://registry.local/v2/", "https://registry.local/v2/"] {
        assert!(plain.is_of(&url.parse().unwrap(), "registry.local"), "{url}");
    }
}

#[tokio::test]
async fn the_error_of_unreadable_credentials_names_their_place() {
    let server = Server::start().await;
    server.say(|asked| guarded(asked, "Basic", "nobody"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let failed = async |text: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let options =
            RegistryOptions { credentials: Some(RegistryCredentials::File(path.clone())), ..options(&server) };
        let failure = pull_with(options, &reference(&server, ":v1")).await.unwrap_err();
        told(&server, &failure).replace(&*path.to_string_lossy(), "CONFIG")
    };
    expect!["RegistryCredentials: the credentials for 127.0.0.1:PORT cannot be used: CONFIG cannot be read: No such file or directory (os error 2)"].assert_eq(&failed(None).await);
    expect!["RegistryCredentials: the credentials for 127.0.0.1:PORT cannot be used: CONFIG is not a Docker configuration; write {\"auths\": …} into it"].assert_eq(&failed(Some("not json")).await);
    expect!["RegistryCredentials: the credentials for 127.0.0.1:PORT cannot be used: docker-credential-of-nobody, which CONFIG names, cannot be run (No such file or directory (os error 2)); install it in a directory of the PATH"].assert_eq(&failed(Some(r#"{"credsStore":"of-nobody"}"#)).await);
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    expect!["RegistryCredentials: the credentials for 127.0.0.1:PORT cannot be used: CONFIG cannot be read: it is a pipe and not a regular file"].assert_eq(&failed(None).await);
}

/// Write access to a Secret must not choose which programs the manager runs, in any spelling.
#[tokio::test]
async fn a_configuration_from_a_secret_may_not_name_a_helper() {
    let server = Server::start().await;
    server.say(|asked| guarded(asked, "Basic", "nobody"));
    for (text, part) in [
        (
            r#"{"credsStore":"of-nobody"}"#,
            "Secret cloud/registry: a credential helper is a program, and is allowed only in a provider file",
        ),
        (r#"{"credHelpers":{"127.0.0.1":"of-nobody"}}"#, "Secret cloud/registry: a credential helper"),
        (r#"[null,"of-nobody",null]"#, "Secret cloud/registry is not a Docker configuration"),
        (r#"{"x":1e999,"credsStore":"of-nobody"}"#, "Secret cloud/registry is not a Docker configuration"),
        ("not json", "Secret cloud/registry is not a Docker configuration"),
    ] {
        let credentials = RegistryCredentials::Text(DockerConfig::new(text, "Secret cloud/registry"));
        let options = RegistryOptions { credentials: Some(credentials), ..options(&server) };
        let failure = told(&server, &pull_with(options, &reference(&server, ":v1")).await.unwrap_err());
        assert!(failure.starts_with("RegistryCredentials: ") && failure.contains(part), "{text}: {failure}");
    }
}

// === downloads ===

/// The first `count` bytes, then the end of the connection.
fn torn(bytes: &'static [u8], count: usize) -> Response {
    let pieces = stream::once(async move { Ok(bytes.get(..count).unwrap()) });
    // Otherwise the first piece would not be sent.
    let end = stream::once(async { wait_for_the_first_piece().await });
    let pieces = pieces.chain(end);
    Response::builder().header("content-length", bytes.len()).body(Body::from_stream(pieces)).unwrap()
}

async fn wait_for_the_first_piece() -> std::io::Result<&'static [u8]> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Err(std::io::Error::other("torn"))
}

#[tokio::test]
async fn an_interrupted_download_is_resumed() {
    let server = Server::start().await;
    server.component("v1", "component one");
    server.say(|asked| {
        (asked.path.contains("/blobs/") && asked.header("range").is_none()).then(|| torn(b"component one", 9))
    });
    assert_eq!(&pull(&server, ":v1").await.unwrap().bytes[..], b"component one");
    let ranges: Vec<_> =
        server.requests().iter().filter_map(|asked| asked.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges, ["bytes=9-"]);
}

#[tokio::test]
async fn a_download_from_a_server_without_ranges_starts_again() {
    let server = Server::start().await;
    server.component("v1", "component one");
    server.say(|asked| {
        let blob = asked.path.contains("/blobs/");
        blob.then(|| match asked.header("range") {
            None => torn(b"component one", 9),
            Some(_) => "component one".into_response(),
        })
    });
    assert_eq!(&pull(&server, ":v1").await.unwrap().bytes[..], b"component one");
}

//! Tests with malicious and broken registries.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};
use expect_test::expect;
use futures::{StreamExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    OPTIONS, docker_config, options, pull, pull_with, reference, refused,
    server::{Server, manifest},
    told, torn,
};
use crate::{Digest, PullOptions, Registry, RegistryOptions};

#[tokio::test]
async fn content_with_another_digest_is_refused() {
    let server = Server::start().await;
    let digest = server.component("v1", "component one");
    server.say(|asked| asked.path.contains("/blobs/").then(|| "component two".into_response()));
    refused(&server, ":v1", expect!["ArtifactWrongDigest: the component has the digest sha256:bfc64793601254ca0554b908ac30478b2084243b529da8cf92520f5d05a97a82, and sha256:cd09be78fe9747426189500a773832cfaadb60b9c9ad849a7051394c6a282e38 was requested; the registry or a proxy in front of it changes the content; push the artifact again, or correct the reference"]).await;
    server.say(|asked| (asked.method == "GET").then(|| manifest(&[]).into_response()));
    refused(&server, &format!("@{digest}"), expect!["ArtifactWrongDigest: the manifest has the digest sha256:f3eb2ec51a162ec62c053b2b24f178cf56be156a0d5d0822d2d351b82695f12d, and sha256:014587ce5b8ee3232a5d63a5644971f6e89c57adf68d571654434a16e23ddbb5 was requested; the registry or a proxy in front of it changes the content; push the artifact again, or correct the reference"]).await;
}

#[tokio::test]
async fn a_blob_longer_or_shorter_than_announced_is_refused() {
    let server = Server::start().await;
    let blob = server.blob("component one");
    server.manifest("short", manifest(&[("application/wasm", blob, 20)]));
    refused(
        &server,
        ":short",
        expect!["ArtifactWrongSize: the manifest says that the component has 20 bytes, and it has 13; push the artifact again"],
    )
    .await;
    server.manifest("long", manifest(&[("application/wasm", blob, 5)]));
    refused(
        &server,
        ":long",
        expect!["ArtifactWrongSize: the manifest says that the component has 5 bytes, and it has more; push the artifact again"],
    )
    .await;
}

#[tokio::test]
async fn an_endless_blob_is_stopped_one_byte_after_its_announced_size() {
    let server = Server::start().await;
    server.component("v1", "one");
    server.say(|asked| {
        let endless = || Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>("more and more")));
        asked.path.contains("/blobs/").then(|| Response::new(endless()))
    });
    refused(
        &server,
        ":v1",
        expect!["ArtifactWrongSize: the manifest says that the component has 3 bytes, and it has more; push the artifact again"],
    )
    .await;
}

#[tokio::test]
async fn an_endless_manifest_and_an_endless_token_are_stopped_at_their_limits() {
    let server = Server::start().await;
    let endless = || Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>([b' '; 65_536].as_slice())));
    server.say(move |asked| (asked.method == "GET").then(|| Response::new(endless())));
    let digest = Digest::of(b"");
    refused(&server, &format!("@{digest}"), expect!["ArtifactMalformed: the manifest cannot be read (it has more than 4194304 bytes); push the artifact again, or report it to the registry's operator"]).await;
    server.say(move |asked| {
        if asked.path.starts_with("/token") {
            return Some(Response::new(endless()));
        }
        let challenge = format!("Bearer realm=\"http://{}/token\"", asked.header("host").unwrap());
        Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response())
    });
    refused(&server, ":v1", expect!["ArtifactMalformed: the token cannot be read (it has more than 262144 bytes); push the artifact again, or report it to the registry's operator"]).await;
}

/// The status and the log show the failure.
#[tokio::test]
async fn the_error_of_a_malformed_token_does_not_repeat_the_token() {
    let server = Server::start().await;
    server.say(move |asked| {
        if asked.path.starts_with("/token") {
            return Some(r#""s3cret-token""#.into_response());
        }
        let challenge = format!("Bearer realm=\"http://{}/token\"", asked.header("host").unwrap());
        Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response())
    });
    refused(&server, ":v1", expect!["ArtifactMalformed: the token cannot be read (it is not a JSON object with a token); push the artifact again, or report it to the registry's operator"]).await;
}

/// An answer with a content coding that was not requested: these bytes for ever.
fn coded(bytes: &'static [u8]) -> Response {
    let body = Body::from_stream(stream::repeat(bytes).map(Ok::<_, Infallible>));
    ([(header::CONTENT_ENCODING, "gzip")], body).into_response()
}

/// Empty deflate blocks, and an endless file name: a decoder reads them for ever without output.
#[tokio::test]
async fn an_endless_gzip_stream_without_output_is_not_decoded() {
    let server = Server::start().await;
    let digest = server.component("v1", "one");
    for bytes in [&b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"[..], b"\x02\x08\x20\x80\x00", b"name"] {
        for path in ["/manifests/", "/blobs/"] {
            server.say(move |asked| (asked.method == "GET" && asked.path.contains(path)).then(|| coded(bytes)));
            let failure = pull(&server, &format!("@{digest}")).await.unwrap_err();
            assert_eq!(failure.category(), "ArtifactMalformed", "{path}: {failure}");
            assert!(
                failure.message().contains("a content-encoding that the request did not ask for"),
                "{}",
                failure.message()
            );
        }
    }
    assert!(server.requests().iter().all(|asked| asked.header("accept-encoding") == Some("identity")));
}

#[tokio::test]
async fn endless_interim_answers_are_stopped() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start().await;
    server.host = listener.local_addr().unwrap().to_string();
    let mut task = tokio::task::JoinSet::new();
    task.spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        peer.read_u8().await.unwrap();
        while peer.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n").await.is_ok() {}
    });
    let failure = pull(&server, ":v1").await.unwrap_err();
    assert!(failure.message().contains("more than 100 headers of interim answers"), "{}", failure.message());
    assert!(task.join_next().await.unwrap().is_ok(), "the connection is closed");
}

#[tokio::test]
async fn a_layer_with_an_invalid_size_or_digest_is_refused_and_not_fetched() {
    let server = Server::start().await;
    let blob = server.blob("one");
    let refused = async |digest: &str, size: &str| {
        let sane = manifest(&[("application/wasm", blob, 3)]);
        let text = sane.replace(&format!(r#""{blob}","size":3"#), &format!(r#""{digest}","size":{size}"#));
        assert_ne!(sane, text);
        server.manifest("v1", text);
        let failure = pull(&server, ":v1").await.unwrap_err();
        assert!(!server.asked().iter().any(|line| line.contains("/blobs/")), "{digest} {size} was fetched");
        failure.category()
    };
    let blob = blob.to_string();
    for size in ["-1", "1.5", "\"3\"", "1e400", "18446744073709551616"] {
        assert_eq!(refused(&blob, size).await, "ArtifactMalformed", "{size}");
    }
    assert_eq!(refused(&blob, "18446744073709551615").await, "SourceTooLarge");
    for digest in [
        "",
        "sha256:",
        "sha256:one",
        "md5:d41d8cd98f00b204e9800998ecf8427e",
        "sha256:../../../v2/other/blobs/one",
        &blob[1..],
    ] {
        assert_eq!(refused(digest, "3").await, "ArtifactMalformed", "{digest}");
    }
}

/// A signer and a manager must not read one document differently (CVE-2021-41190).
#[tokio::test]
async fn a_document_that_is_a_manifest_and_an_index_is_refused() {
    let server = Server::start().await;
    let component = server.component("v1", "one");
    let plain = manifest(&[("application/wasm", Digest::of(b"one"), 3)]);
    let entries = format!(
        r#""manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{component}","size":1,"platform":{{"os":"wasip2","architecture":"wasm"}}}}]"#
    );
    server.manifest("both", plain.replacen('{', &format!("{{{entries},"), 1));
    refused(
        &server,
        ":both",
        expect![
            "ArtifactLayout: the artifact holds both manifests and layers; push the component as an artifact of its own"
        ],
    )
    .await;
    let index = format!(r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",{entries}}}"#);
    server.manifest("index", index);
    refused(&server, ":index", expect!["ArtifactLayout: the artifact holds manifests, but its media type is not that of an index; push the component as an artifact of its own"]).await;
    server.manifest("manifest", plain.replace("image.manifest.v1", "image.index.v1"));
    refused(&server, ":manifest", expect!["ArtifactLayout: the artifact holds no manifests, but its media type is that of an index; push the component as an artifact of its own"]).await;
}

#[tokio::test]
async fn a_component_beyond_the_limit_is_not_fetched() {
    let server = Server::start().await;
    let blob = server.blob("one");
    server.manifest("v1", manifest(&[("application/wasm", blob, 1001)]));
    refused(&server, ":v1", expect![[r#"SourceTooLarge: the component has 1001 bytes, and 1000 are allowed; build it smaller (release profile, opt-level "s", stripped), or raise the limit componentBytes"#]]).await;
    assert!(!server.asked().iter().any(|line| line.contains("/blobs/")));
}

#[tokio::test]
async fn each_error_status_has_a_remedy() {
    let server = Server::start().await;
    server.say(|asked| {
        let status = asked.path.rsplit('/').next()?.parse::<u16>().ok()?;
        let retry_after = [(header::RETRY_AFTER, "7")];
        Some((StatusCode::from_u16(status).ok()?, retry_after).into_response())
    });
    refused(&server, ":404", expect!["RegistryNotFound: 127.0.0.1:PORT has no manifest 404; push it, or correct the reference; the manager uses it as soon as it exists"]).await;
    refused(&server, ":401", expect!["RegistryUnauthorized: 127.0.0.1:PORT rejects the authentication (without credentials); give credentials for 127.0.0.1:PORT in source.oci.credentials, or correct them"]).await;
    refused(
        &server,
        ":403",
        expect!["RegistryForbidden: 127.0.0.1:PORT answers 403 Forbidden to the request for manifest 403; allow the account of the credentials to pull it"],
    )
    .await;
    refused(&server, ":429", expect!["RegistryTooManyRequests: 127.0.0.1:PORT answers 429 Too Many Requests (retry after 7 s); the manager retries then; a longer pollInterval sends fewer requests"]).await;
    refused(
        &server,
        ":503",
        expect!["RegistryFailed: 127.0.0.1:PORT answers 503 to the request for manifest 503 (retry after 7 s); check the registry's log"],
    )
    .await;
}

#[tokio::test]
async fn retry_after_is_read_in_seconds_or_as_a_date_and_limited_to_an_hour() {
    let server = Server::start().await;
    for (text, wanted) in [
        ("7", Some(7)),
        // A minute by the registry's own clock, which may show any time.
        ("Sat, 01 Jan 2000 00:01:00 GMT", Some(60)),
        ("Sat, 01 Jan 2000 23:00:00 GMT", Some(3600)),
        ("999999999999999999999999999999", Some(3600)),
        ("Fri, 31 Dec 1999 23:59:00 GMT", None),
        ("soon", None),
        ("-1", None),
        ("", None),
    ] {
        server.say(move |_| {
            let headers = [(header::DATE, "Sat, 01 Jan 2000 00:00:00 GMT"), (header::RETRY_AFTER, text)];
            Some((StatusCode::SERVICE_UNAVAILABLE, headers).into_response())
        });
        let rest = pull(&server, ":v1").await.unwrap_err().retry_after();
        assert_eq!(rest.map(|rest| rest.as_secs()), wanted, "{text:?}");
    }
}

/// Anyone who may push chooses the types of the layers; the types must not look like a line of the
/// log.
#[tokio::test]
async fn text_of_a_manifest_is_shown_on_one_line_of_bounded_length() {
    let server = Server::start().await;
    let digest = server.blob("one");
    let forged = format!("a\\n2026-11-23T12:00:00Z  INFO release active\\u001b[2J{}", "x".repeat(1_000_000));
    server.manifest("v1", manifest(&[(&forged, digest, 3)]));
    let failure = pull(&server, ":v1").await.unwrap_err();
    let text = told(&server, &failure);
    assert!(
        text.starts_with("ArtifactLayout: ") && text.len() < 1_000,
        "{} bytes: {}",
        text.len(),
        &text[..text.len().min(1_000)]
    );
    assert!(!text.contains(char::is_control), "{text:?}");
}

async fn is_given_up(server: &Server) {
    let quick = PullOptions { timeout: Duration::from_millis(300), ..OPTIONS };
    let registry = Registry::new(options(server)).unwrap();
    let failure = registry.pull(&reference(server, ":v1"), None, &quick).await.unwrap_err();
    expect!["RegistryTooSlow: 127.0.0.1:PORT did not finish within 300ms; the manager retries"]
        .assert_eq(&told(server, &failure));
}

#[tokio::test]
async fn a_registry_that_sends_single_bytes_slowly_is_stopped_by_the_timeout() {
    let server = Server::start().await;
    server.component("v1", "component one");
    server.say(|asked| {
        let slow = stream::unfold((), |()| async {
            wait_a_little().await;
            Some((Ok::<_, std::io::Error>("c"), ()))
        });
        asked.path.contains("/blobs/").then(|| Response::new(Body::from_stream(slow)))
    });
    is_given_up(&server).await;
}

#[tokio::test]
async fn a_registry_that_accepts_the_connection_and_sends_nothing_is_stopped_by_the_timeout() {
    // Connections wait in the listener's backlog.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = Server::start().await;
    server.host = silent.local_addr().unwrap().to_string();
    is_given_up(&server).await;
}

#[tokio::test]
async fn a_download_that_is_interrupted_repeatedly_fails() {
    let server = Server::start().await;
    let digest = server.component("v1", "component one");
    server.say(|asked| asked.path.contains("/blobs/").then(|| torn(b"component one", 0)));
    let failure = pull(&server, &format!("@{digest}")).await.unwrap_err();
    assert_eq!(failure.category(), "RegistryUnreachable", "{failure}");
    let asked = server.asked().iter().filter(|line| line.contains("/blobs/")).count();
    assert_eq!(asked, 6, "the first request and five resumptions");
}

/// A resumed download that joins two different contents does not have the expected digest.
#[tokio::test]
async fn a_resumed_download_with_other_content_is_refused() {
    let server = Server::start().await;
    let digest = server.component("v1", "component one");
    server.say(|asked| {
        let rest = [(header::CONTENT_RANGE, "bytes 9-12/13")];
        asked.path.contains("/blobs/").then(|| match asked.header("range") {
            None => torn(b"component one", 9),
            Some(_) => (StatusCode::PARTIAL_CONTENT, rest, " two").into_response(),
        })
    });
    let failure = pull(&server, &format!("@{digest}")).await.unwrap_err();
    assert_eq!(failure.category(), "ArtifactWrongDigest", "{failure}");
    // The range of the response is not the requested one: the client takes the content as that of a
    // new download, and the content is too short.
    server.say(|asked| {
        let rest = [(header::CONTENT_RANGE, "bytes 0-3/13")];
        asked.path.contains("/blobs/").then(|| match asked.header("range") {
            None => torn(b"component one", 9),
            Some(_) => (StatusCode::PARTIAL_CONTENT, rest, "comp").into_response(),
        })
    });
    let failure = pull(&server, &format!("@{digest}")).await.unwrap_err();
    assert_eq!(failure.category(), "ArtifactWrongSize", "{failure}");
}

#[tokio::test]
async fn a_mirror_that_changes_content_is_skipped() {
    let (server, mirror) = (Server::start().await, Server::start().await);
    server.component("v1", "component one");
    mirror.component("v1", "component one");
    mirror.say(|asked| asked.path.contains("/blobs/").then(|| "component two".into_response()));
    let mut options = options(&server);
    options.mirrors = vec![mirror.host.clone()];
    options.plain_http.insert(mirror.host.clone());
    let pulled = pull_with(options, &reference(&server, ":v1")).await.unwrap();
    assert_eq!(&pulled.bytes[..], b"component one");
    assert!(mirror.asked().iter().any(|line| line.contains("/blobs/")), "the mirror received no request");
}

#[tokio::test]
async fn a_mirror_that_never_ends_leaves_time_for_the_registry() {
    let (server, mirror) = (Server::start().await, Server::start().await);
    server.component("v1", "component one");
    mirror.component("v1", "component one");
    mirror.say(|asked| {
        let slow = stream::unfold((), |()| async {
            wait_a_little().await;
            Some((Ok::<_, std::io::Error>("c"), ()))
        });
        asked.path.contains("/manifests/").then(|| Response::new(Body::from_stream(slow)))
    });
    let mut options = options(&server);
    options.mirrors = vec![mirror.host.clone()];
    options.plain_http.insert(mirror.host.clone());
    // Half of it is the mirror's share, and the other half has to be enough on a busy machine.
    let patient = PullOptions { timeout: Duration::from_secs(10), ..OPTIONS };
    let registry = Registry::new(options).unwrap();
    let pulled = registry.pull(&reference(&server, ":v1"), None, &patient).await.unwrap().unwrap();
    assert_eq!(&pulled.bytes[..], b"component one");
    assert!(!mirror.asked().is_empty());
}

async fn wait_a_little() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused_and_one_to_a_trusted_host_is_followed() {
    let (server, store) = (Server::start().await, Server::start().await);
    let digest = server.component("v1", "one");
    let blob = store.blob("one");
    let to = format!("http://{}/v2/org/provider/blobs/{blob}", store.host);
    server.say(move |asked| {
        let location = [(header::LOCATION, to.clone())];
        asked.path.contains("/blobs/").then(|| (StatusCode::TEMPORARY_REDIRECT, location).into_response())
    });
    let pinned = reference(&server, &format!("@{digest}"));
    // First case: the URL is not HTTPS.
    let failure = pull_with(options(&server), &pinned).await.unwrap_err();
    expect!["RegistryTargetRefused: REGISTRY refers to http://127.0.0.1:PORT, which is refused: the URL is not HTTPS; list that host in source.oci.plainHTTP to allow it"].assert_eq(&told(&store, &failure).replace(&server.host, "REGISTRY"));

    let mut trusting = options(&server);
    trusting.plain_http.insert(store.host.clone());
    pull_with(trusting, &pinned).await.unwrap();
    assert_eq!(store.requests().iter().filter(|asked| asked.header("authorization").is_some()).count(), 0);

    server.say(|asked| {
        let location = [(header::LOCATION, "https://169.254.169.254/latest/meta-data/?token=s3cret")];
        asked.path.contains("/blobs/").then(|| (StatusCode::FOUND, location).into_response())
    });
    let judge = std::sync::Arc::new(|address| Err(format!("{address} is the metadata service")));
    let failure = pull_with(RegistryOptions { judge, ..options(&server) }, &pinned).await.unwrap_err();
    expect!["RegistryTargetRefused: 127.0.0.1:PORT refers to https://169.254.169.254, which is refused: 169.254.169.254 is the metadata service; list that host in source.oci.trustedHosts to allow it"].assert_eq(&told(&server, &failure));
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_refused() {
    let server = Server::start().await;
    let digest = server.component("v1", "one");
    server.say(|asked| {
        let location = [(header::LOCATION, "https://localhost/blob")];
        asked.path.contains("/blobs/").then(|| (StatusCode::FOUND, location).into_response())
    });
    refused(&server, &format!("@{digest}"), expect!["RegistryTargetRefused: 127.0.0.1:PORT refers to localhost, which is refused: 127.0.0.1 is loopback; list that host in source.oci.trustedHosts to allow it"]).await;
}

#[tokio::test]
async fn a_redirect_loop_ends() {
    let server = Server::start().await;
    server.say(|asked| {
        let location = [(header::LOCATION, asked.path.clone())];
        Some((StatusCode::FOUND, location).into_response())
    });
    refused(&server, ":v1", expect!["RegistryTargetRefused: 127.0.0.1:PORT refers to http://127.0.0.1:PORT, which is refused: more than 5 redirects; report it to the registry's operator"]).await;
    assert_eq!(server.asked().len(), 6);
}

#[tokio::test]
async fn credentials_are_not_sent_to_a_token_service_of_another_host() {
    let (server, thief) = (Server::start().await, Server::start().await);
    let folder = tempfile::tempdir().unwrap();
    let realm = format!("Bearer realm=\"http://{}/token\"", thief.host);
    server.say(move |_| Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, realm.clone())]).into_response()));
    let mut known = options(&server);
    known.plain_http.insert(thief.host.clone());
    let [in_file, _] = docker_config(&server, &folder);
    known.credentials = Some(in_file);
    let failure = pull_with(known.clone(), &reference(&server, ":v1")).await.unwrap_err();
    expect!["RegistryTargetRefused: REGISTRY refers to http://127.0.0.1:PORT, which is refused: credentials are not sent to another host; list that host in source.oci.trustedHosts to allow it"].assert_eq(&told(&thief, &failure).replace(&server.host, "REGISTRY"));
    assert!(thief.asked().is_empty());

    known.trusted_hosts = BTreeSet::from([thief.host.clone()]);
    drop(pull_with(known, &reference(&server, ":v1")).await.unwrap_err());
    assert_eq!(thief.requests().first().unwrap().header("authorization"), Some("Basic bWU6c2VjcmV0"));
}

#[test]
fn only_a_token_service_of_the_host_or_its_parent_domain_may_receive_credentials() {
    let learns = |host: &str, realm: &str| {
        let server = RegistryOptions {
            host: host.to_owned(),
            mirrors: Vec::new(),
            plain_http: BTreeSet::new(),
            trusted_hosts: BTreeSet::new(),
            ca_bundle: None,
            proxy: None,
            credentials: None,
            judge: std::sync::Arc::new(|_| Ok(())),
        };
        server.may_learn_credentials(host, &realm.parse().unwrap())
    };
    assert!(learns("ghcr.io", "https://ghcr.io/token"));
    assert!(learns("registry.gitlab.com", "https://gitlab.com/jwt/auth"));
    assert!(learns("index.docker.io", "https://auth.docker.io/token"));
    assert!(learns("GHCR.io:443", "https://ghcr.io/token"));
    assert!(!learns("ghcr.io:8443", "https://ghcr.io/token"));
    assert!(!learns("ghcr.io", "https://evil.ghcr.io/token"));
    assert!(!learns("registry.example.com", "https://com/token"));
    assert!(!learns("registry.example.com", "https://xample.com/token"));
    assert!(!learns("registry.example.com", "https://registry.example.com:8443/token"));
}

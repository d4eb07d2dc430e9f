//! Tests of the ConfigMap source with the in-memory API; `tests/e2e` has tests with a real API
//! server.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use expect_test::{Expect, expect};
use flate2::{Compression, write::GzEncoder};
use futures::FutureExt as _;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use skysail_dev::api::{ApiOptions, ApiServer};
use tokio::time::timeout;
use tower::service_fn;

use super::{ConfigMapFailure, ConfigMapReference, ConfigMapSource, DIGEST_ANNOTATION, Part, component, put_together};
use crate::{Digest, Offers};

const MAX: u64 = 1000;

fn map(values: &[(&str, &[u8])]) -> ConfigMap {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
    ConfigMap { binary_data: Some(values.collect()), ..ConfigMap::default() }
}

fn part(value: &[u8], whole: &[u8]) -> ConfigMap {
    let annotations = BTreeMap::from([(DIGEST_ANNOTATION.to_owned(), Digest::of(whole).to_string())]);
    let metadata = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
    ConfigMap { metadata, ..map(&[("provider.wasm", value)]) }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn reference(key: Option<&str>) -> ConfigMapReference {
    let names = vec!["one".to_owned(), "two".to_owned()];
    ConfigMapReference { namespace: "default".to_owned(), names, key: key.map(str::to_owned) }
}

fn read(key: Option<&str>, parts: &[ConfigMap]) -> Result<String, String> {
    let names = ["one", "two", "three"].into_iter().map(str::to_owned);
    let parts: Vec<_> = names.zip(parts.iter().cloned().map(Arc::new)).collect();
    let component = component(&reference(key), &parts, MAX);
    component
        .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        .map_err(|failure| format!("{}: {failure}", failure.category()))
}

#[track_caller]
fn refused(key: Option<&str>, parts: &[ConfigMap], expected: Expect) {
    expected.assert_eq(&read(key, parts).unwrap_err());
}

#[test]
fn a_component_is_read_from_one_key_or_the_named_key_plain_or_compressed_whole_or_in_parts() {
    assert_eq!(read(None, &[map(&[("provider.wasm", b"whole")])]).as_deref(), Ok("whole"));
    let two = map(&[("a.wasm", b"a"), ("b.wasm", b"b")]);
    assert_eq!(read(Some("b.wasm"), &[two]).as_deref(), Ok("b"));
    assert_eq!(read(None, &[map(&[("provider.wasm.gz", &gzip(b"whole"))])]).as_deref(), Ok("whole"));
    let parts = [part(b"who", b"whole"), part(b"le", b"whole")];
    assert_eq!(read(None, &parts).as_deref(), Ok("whole"));
    // As two files that were joined: an author's tool may compress in pieces.
    let joined = [gzip(b"who"), gzip(b"le")].concat();
    assert_eq!(read(None, &[map(&[("provider.wasm.gz", &joined)])]).as_deref(), Ok("whole"));
    let packed = gzip(b"whole");
    let (first, rest) = packed.split_at(7);
    assert_eq!(read(None, &[part(first, b"whole"), part(rest, b"whole")]).as_deref(), Ok("whole"));
    assert_eq!(read(None, &[part(b"whole", b"whole")]).as_deref(), Ok("whole"), "a pin");
}

/// An object of the API server has at most 1 MiB, and with `kubectl apply`, which keeps the applied
/// object in an annotation, a fourth of that.
#[test]
fn the_parts_together_may_be_larger_than_the_limit_of_an_object() {
    let whole: Vec<u8> = (0..3_000_000_u32).flat_map(|number| number.to_le_bytes()).take(3_000_000).collect();
    let parts = whole.chunks(750_000).map(|cut| Arc::new(part(cut, &whole)));
    let names = ["one", "two", "three", "four"].into_iter().map(str::to_owned);
    let parts: Vec<_> = names.zip(parts).collect();
    assert!(component(&reference(None), &parts, 4 << 20).unwrap() == whole);
}

#[test]
fn each_error_names_the_reason_and_the_remedy() {
    refused(
        None,
        &[ConfigMap::default()],
        expect![
            "ConfigMapKeyMissing: the ConfigMap one has no binaryData (it has no key at all); create one with kubectl create configmap --from-file=provider.wasm, or correct the key"
        ],
    );
    let text = ConfigMap { data: Some([("provider.yaml".to_owned(), "x".to_owned())].into()), ..map(&[]) };
    refused(
        None,
        &[text],
        expect![
            "ConfigMapKeyMissing: the ConfigMap one has no binaryData (it has data provider.yaml); create one with kubectl create configmap --from-file=provider.wasm, or correct the key"
        ],
    );
    refused(
        Some("provider.wasm"),
        &[map(&[("other.wasm", b"x")])],
        expect![
            "ConfigMapKeyMissing: the ConfigMap one has no key provider.wasm of binaryData (it has binaryData other.wasm); create one with kubectl create configmap --from-file=provider.wasm, or correct the key"
        ],
    );
    refused(
        None,
        &[map(&[("a.wasm", b"x"), ("b.wasm", b"x")])],
        expect![
            "ConfigMapKeyAmbiguous: the ConfigMap one has several keys (a.wasm, b.wasm); set source.configMap.key to the one that has the component"
        ],
    );
}

#[test]
fn parts_of_different_components_are_not_joined() {
    refused(
        None,
        &[part(b"who", b"whole"), map(&[("provider.wasm", b"le")])],
        expect![
            "ConfigMapPartsDiffer: the ConfigMap two is one of several parts and has no annotation skysail.dev/component-digest; annotate each part with the digest (sha256:…) of the whole, uncompressed component"
        ],
    );
    refused(
        None,
        &[part(b"who", b"whole"), part(b"le", b"another")],
        expect![
            "ConfigMapPartsDiffer: the ConfigMaps one and two are parts of different components; write the others too; the manager uses them when all name the same digest"
        ],
    );
    refused(
        None,
        &[part(b"who", b"whole"), part(b"l", b"whole")],
        expect![
            "ConfigMapWrongDigest: the component has the digest sha256:e31bda35d203ab93bdf3ef1b86e2892f0e7afb2490f903d69a0d1f422d1919bd, and the annotation skysail.dev/component-digest says sha256:5d5766cf2d78701614200418ee1450690d9af12c84d52545e4802f001ad53099; write the component again, in all its parts where it has several, or correct the annotation"
        ],
    );
    let pinned = read(None, &[part(b"another", b"whole")]).unwrap_err();
    assert!(pinned.starts_with("ConfigMapWrongDigest: "), "a pin: {pinned}");
    let mut odd = part(b"x", b"x");
    odd.metadata.annotations = Some([(DIGEST_ANNOTATION.to_owned(), "v1".to_owned())].into());
    refused(
        None,
        &[odd],
        expect![[
            r#"ConfigMapPartsDiffer: the annotation skysail.dev/component-digest of the ConfigMap one is "v1"; write sha256: and 64 hex digits"#
        ]],
    );
    refused(
        None,
        &[map(&[("provider.wasm", &[b'x'; 1001])])],
        expect![[
            r#"SourceTooLarge: the component has more than 1000 bytes, the limit componentBytes; build it smaller (release profile, opt-level "s", stripped), or raise the limit"#
        ]],
    );
    let cut = gzip(&[b'x'; 900]);
    refused(
        None,
        &[map(&[("provider.wasm", cut.get(..cut.len() - 9).unwrap())])],
        expect!["ConfigMapGzip: the gzip data cannot be decompressed (incomplete deflate stream); compress it again"],
    );
}

#[test]
fn a_gzip_bomb_is_stopped_at_the_limit() {
    refused(
        None,
        &[map(&[("provider.wasm", &gzip(&vec![0; 64 << 20]))])],
        expect![[
            r#"SourceTooLarge: the component has more than 1000 bytes, the limit componentBytes; build it smaller (release profile, opt-level "s", stripped), or raise the limit"#
        ]],
    );
}

/// A gzip header, and then blocks without content: 40 bits for four of them.
fn blocks_without_content(count: usize) -> Vec<u8> {
    [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff".to_vec(), [2, 8, 0x20, 0x80, 0].repeat(count)].concat()
}

#[test]
fn a_gzip_stream_longer_than_the_limit_of_a_component_is_not_decompressed() {
    let stream = blocks_without_content(20_000);
    let failure = read(None, &[map(&[("provider.wasm", &stream)])]).unwrap_err();
    assert!(failure.starts_with("SourceTooLarge: "), "{failure}");
    // A stream below that limit is decompressed; this one is truncated.
    let failure = read(None, &[map(&[("provider.wasm", &stream[..66_000])])]).unwrap_err();
    assert!(failure.starts_with("ConfigMapGzip: "), "{failure}");
}

/// The only thread for blocking work is busy, so that work for it cannot end before the test frees
/// the thread.
#[test]
fn a_component_is_decompressed_on_a_thread_of_the_blocking_pool() {
    let reference = ConfigMapReference { names: vec!["one".to_owned()], ..reference(None) };
    let there = [Part::There(Arc::new(map(&[("provider.wasm", &blocks_without_content(1_000))])))];
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let thread = tokio::task::spawn_blocking(move || busy.recv());
        let mut read = Box::pin(put_together(&reference, &there, 4 << 20));
        assert!((&mut read).now_or_never().is_none(), "it was decompressed on the async thread");
        free.send(()).unwrap();
        thread.await.unwrap().unwrap();
        assert!(matches!(read.await, Some(Err(ConfigMapFailure::Gzip { .. }))));
    });
}

// === watched ===

async fn apply(client: &Client, name: &str, object: ConfigMap) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..object.metadata };
    let object = ConfigMap { metadata, ..object };
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
}

fn watch(client: &Client, names: &[&str]) -> Offers {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let reference = ConfigMapReference { namespace: "default".to_owned(), names, key: None };
    ConfigMapSource::new(client.clone(), reference, MAX).watch()
}

async fn next(offers: &mut Offers) -> Result<Digest, String> {
    let report = tokio::time::timeout(std::time::Duration::from_secs(60), offers.next()).await.unwrap().unwrap();
    report.map(|offer| offer.digest).map_err(|error| error.message())
}

#[tokio::test(start_paused = true)]
async fn a_config_map_is_reported_when_it_appears_changes_and_goes_and_not_when_its_content_is_unchanged() {
    let client = ApiServer::new(&ApiOptions::default()).client();
    let mut offers = watch(&client, &["provider"]);
    expect!["configmap default/provider: the ConfigMap provider does not exist; create it, or correct the name; the manager uses it as soon as it exists"].assert_eq(&next(&mut offers).await.unwrap_err());
    apply(&client, "provider", map(&[("provider.wasm", b"one")])).await;
    assert_eq!(next(&mut offers).await, Ok(Digest::of(b"one")));
    let renamed = map(&[("provider.wasm", b"one"), ("provider.wasm", b"one")]);
    apply(&client, "provider", ConfigMap { immutable: Some(false), ..renamed }).await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(offers.next().now_or_never().is_none(), "the same component");
    apply(&client, "provider", map(&[("provider.wasm", b"two")])).await;
    assert_eq!(next(&mut offers).await, Ok(Digest::of(b"two")));
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    api.delete("provider", &DeleteParams::default()).await.unwrap();
    assert!(next(&mut offers).await.unwrap_err().contains("does not exist"));
}

#[tokio::test(start_paused = true)]
async fn parts_are_offered_when_all_of_them_belong_to_one_component() {
    let client = ApiServer::new(&ApiOptions::default()).client();
    apply(&client, "one", part(b"who", b"whole")).await;
    apply(&client, "two", part(b"le", b"whole")).await;
    let mut offers = watch(&client, &["one", "two"]);
    assert_eq!(next(&mut offers).await, Ok(Digest::of(b"whole")));
    apply(&client, "one", part(b"an", b"another")).await;
    assert!(next(&mut offers).await.unwrap_err().contains("parts of different components"));
    apply(&client, "two", part(b"other", b"another")).await;
    assert_eq!(next(&mut offers).await, Ok(Digest::of(b"another")));
}

/// kube goes on with a watch where it ended, and an object that did not change causes no event.
#[tokio::test(start_paused = true)]
async fn a_failure_of_the_watch_ends_when_the_api_answers_again() {
    let watches = Arc::new(AtomicUsize::new(0));
    let api = service_fn(move |request: http::Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let number = if is_watch { watches.fetch_add(1, Ordering::Relaxed) } else { 0 };
        async move {
            let (status, body) = match (is_watch, number) {
                (false, _) => {
                    let metadata = serde_json::json!({ "name": "one", "namespace": "default", "resourceVersion": "1" });
                    let object = ConfigMap {
                        metadata: serde_json::from_value(metadata).unwrap(),
                        ..map(&[("provider.wasm", b"whole")])
                    };
                    let list = serde_json::json!({
                        "kind": "ConfigMapList", "apiVersion": "v1",
                        "metadata": { "resourceVersion": "1" }, "items": [object],
                    });
                    (200, list.to_string())
                }
                // The end of a watch, as after its time.
                (true, 0) => (200, String::new()),
                (true, 1) => (503, r#"{"kind": "Status", "status": "Failure", "code": 503}"#.to_owned()),
                (true, _) => std::future::pending().await,
            };
            let body = Body::from(body.into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
        }
    });
    let reference = ConfigMapReference { names: vec!["one".to_owned()], ..reference(None) };
    let mut offers = ConfigMapSource::new(Client::new(api, "default"), reference, MAX).watch();
    let mut next = async || timeout(Duration::from_secs(600), offers.next()).await.expect("a report").unwrap().is_ok();
    assert_eq!([next().await, next().await, next().await], [true, false, true]);
}

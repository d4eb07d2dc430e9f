//! Limits that refuse or drop something and do not end the call.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::Value;
use skysail_host::Limits;
use skysail_provider::{Call, Clusters as _, EventKind, EventSink, Limit, LimitHit, ObjectReference, ProviderEvent};
use skysail_test_support::log::Log;

use super::{Attack, Attacked};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn log_lines_beyond_the_limit_are_dropped() {
    let attacked = Attacked::new("log-lines", Limits { log_lines: 30, ..Limits::default() }).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("written".to_owned()));
            assert_eq!((record.log_lines, record.log_lines_dropped), (30, 9_970));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::LogLines, used: 10_000, max: 30 }]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn log_bytes_beyond_the_limit_are_dropped() {
    let attacked = Attacked::new("log-bytes", Limits { log_bytes: 20_000, ..Limits::default() }).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("written".to_owned()));
            // Each line has 5,000 bytes and is truncated to 4,096.
            assert_eq!((record.log_lines, record.log_lines_dropped), (4, 96));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::LogBytes, used: 500_000, max: 20_000 }]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn wasi_stdio_becomes_log_lines_under_the_budget() {
    let attacked = Attacked::new("wasi-stdio", Limits { log_lines: 100, ..Limits::default() }).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("random".to_owned()));
            // Three lines of text, the last of which continues with "line 0", and 999 more lines.
            assert_eq!((record.log_lines, record.log_lines_dropped), (100, 903));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::LogLines, used: 1_003, max: 100 }]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn println_of_the_sdk_becomes_log_lines() {
    let attacked = Attacked::new("println", Limits::default()).await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
    // The calls of this test run on its own thread.
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("a value".to_owned()));
            assert_eq!((record.log_lines, record.log_lines_dropped), (4, 0));
            let lines = guest_lines(&log.take());
            let [one, two, three, value] = lines.as_slice() else { panic!("{lines:?}") };
            assert_eq!((one.as_str(), two.as_str(), three.as_str()), ("INFO one line", "WARN two", "WARN lines"));
            let (place, text) = value.split_once("] ").unwrap();
            assert!(place.starts_with("WARN [") && place.contains("println/src/lib.rs:"), "{value}");
            assert_eq!(text, r#""a value" = "a value""#);
        })
        .await;
}

/// Level and text of each line that the probe wrote.
fn guest_lines(log: &str) -> Vec<String> {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines = lines.filter(|line| line["target"] == "skysail::guest" && line["provider.name"] == "probe");
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    lines.map(|line| format!("{} {}", text(&line, "level"), text(&line, "guest.message"))).collect()
}

#[derive(Default)]
struct Sink {
    taken: AtomicU64,
}

impl EventSink for Sink {
    fn emit(&self, event: ProviderEvent) {
        assert_eq!((event.kind, event.reason.as_str()), (EventKind::Warning, "Noise"));
        assert_eq!(event.object.unwrap().name, "web");
        self.taken.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn events_beyond_the_limit_are_dropped() {
    let attacked = Attacked::new("events", Limits { events: 5, ..Limits::default() }).await;
    let sink = Arc::new(Sink::default());
    let object = ObjectReference {
        kind: "Service",
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        uid: "1".to_owned(),
    };
    let call = Call { object: Some(object), events: Some(Arc::clone(&sink) as Arc<dyn EventSink>), ..Call::default() };
    attacked.probe.master(&call, "attack").await.unwrap();
    assert_eq!(sink.taken.load(Ordering::SeqCst), 5);
    let mut attacked = attacked;
    let record = attacked.record().await;
    assert_eq!((record.events, record.events_dropped), (5, 995));
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("published".to_owned()));
            // This call has no event sink.
            assert_eq!((record.events, record.events_dropped), (0, 1_000));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::Events, used: 1_000, max: 5 }]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn cache_bytes_is_refused_beyond_its_limit() {
    let attacked = Attacked::new("cache-bytes", Limits { cache_bytes: 1_000_000, ..Limits::default() }).await;
    attacked
        .run(Attack::Master, |result, record| {
            // JSON's quotes and the keys take a little of it.
            assert_eq!(result, Ok("9".to_owned()));
            let [hit] = record.limits_hit.as_slice() else { panic!("{record:?}") };
            assert_eq!((hit.limit, hit.max), (Limit::CacheBytes, 1_000_000));
            assert!(hit.used > 1_000_000 && hit.used < 1_000_100, "{hit}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn cache_entries_are_refused_beyond_their_limit() {
    let attacked = Attacked::new("cache-entries", Limits { cache_entries: 100, ..Limits::default() }).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result, Ok("100".to_owned()));
            assert_eq!(record.limits_hit, [LimitHit { limit: Limit::CacheEntries, used: 101, max: 100 }]);
        })
        .await;
}

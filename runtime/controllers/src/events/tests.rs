//! Which Events are written, how repeats are counted, and that one object cannot flood.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use skysail_provider::{EventKind, ObjectReference};
use tokio::time::Instant;

use super::{Correlator, Notice, SERIES_MAX, event_name};

fn notice(name: &str, reason: &str, message: &str) -> Notice {
    let object = ObjectReference {
        kind: "Service",
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: "u".to_owned(),
    };
    Notice {
        source: Arc::from("service-controller"),
        object,
        kind: EventKind::Normal,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn equal_notices_are_one_series_that_counts() {
    let mut correlator = Correlator::default();
    let first = correlator.correlate(notice("web", "A", "x"), Instant::now()).unwrap();
    correlator.written(&first, "web.1".to_owned());
    let second = correlator.correlate(notice("web", "A", "x"), Instant::now()).unwrap();
    assert_eq!((first.count, second.count, second.event_name.as_deref()), (1, 2, Some("web.1")));
}

#[tokio::test(start_paused = true)]
async fn many_texts_of_one_reason_become_one_series() {
    let mut correlator = Correlator::default();
    let texts: Vec<_> = (0..12)
        .map(|n| correlator.correlate(notice("web", "A", &n.to_string()), Instant::now()).unwrap())
        .map(|series| (series.notice.message, series.count))
        .skip(9)
        .collect();
    let combined = |n: u32, count| (format!("(combined from similar events): {n}"), count);
    assert_eq!(texts, [("9".to_owned(), 1), combined(10, 1), combined(11, 2)]);
}

#[tokio::test(start_paused = true)]
async fn one_object_cannot_flood_and_does_not_cost_another_its_events() {
    let mut correlator = Correlator::default();
    let told = |c: &mut Correlator, name| {
        (0..30).filter(|_| c.correlate(notice(name, "A", "x"), Instant::now()).is_some()).count()
    };
    assert_eq!((told(&mut correlator, "web"), told(&mut correlator, "other")), (25, 25));
    tokio::time::advance(Duration::from_mins(10)).await;
    assert_eq!(told(&mut correlator, "web"), 2);
}

#[tokio::test(start_paused = true)]
async fn memory_ends_at_the_bound() {
    let mut correlator = Correlator::default();
    for n in 0..3 * SERIES_MAX {
        correlator.correlate(notice(&n.to_string(), "A", "x"), Instant::now());
    }
    let sizes = [correlator.known.len(), correlator.similar.len(), correlator.tokens.len()];
    assert!(sizes.iter().all(|size| *size <= SERIES_MAX), "{sizes:?}");
}

#[test]
fn the_name_of_an_event_is_one_that_the_api_takes() {
    let now = Timestamp::from_nanosecond(0x17c5_0000_0000_0000).unwrap();
    assert_eq!(event_name("web", now), "web.17c5000000000000");
    let long = format!("{}-.{}", "a".repeat(234), "b".repeat(17));
    let name = event_name(&long, now);
    assert_eq!(name, format!("{}.17c5000000000000", "a".repeat(234)));
    assert!(event_name(&"a".repeat(253), now).len() == 253);
}

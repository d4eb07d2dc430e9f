//! Series, counts and rate limits of Events.

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
async fn each_object_has_its_own_rate_limit_of_events() {
    let mut correlator = Correlator::default();
    let written = |c: &mut Correlator, name| {
        (0..30).filter(|_| c.correlate(notice(name, "A", "x"), Instant::now()).is_some()).count()
    };
    assert_eq!((written(&mut correlator, "web"), written(&mut correlator, "other")), (25, 25));
    tokio::time::advance(Duration::from_mins(10)).await;
    assert_eq!(written(&mut correlator, "web"), 2);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_remembered_series_is_bounded() {
    let mut correlator = Correlator::default();
    for n in 0..3 * SERIES_MAX {
        correlator.correlate(notice(&n.to_string(), "A", "x"), Instant::now());
    }
    let sizes = [correlator.known.len(), correlator.similar.len(), correlator.tokens.len()];
    assert!(sizes.iter().all(|size| *size <= SERIES_MAX), "{sizes:?}");
}

#[test]
fn the_name_of_an_event_is_valid_in_the_api() {
    let now = Timestamp::from_nanosecond(0x17c5_0000_0000_0000).unwrap();
    assert_eq!(event_name("web", now), "web.17c5000000000000");
    let long = format!("{}-.{}", "a".repeat(234), "b".repeat(17));
    let name = event_name(&long, now);
    assert_eq!(name, format!("{}.17c5000000000000", "a".repeat(234)));
    assert!(event_name(&"a".repeat(253), now).len() == 253);
}

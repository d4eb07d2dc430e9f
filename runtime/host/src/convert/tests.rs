//! Which results of a guest are accepted, and which are refused.

use std::time::Duration;

use skysail_provider::Code;

use super::{from_guest::error, info, results, route_to_guest, routes, short, status, volume_labels};
use crate::bindings::{
    exports::skysail::provider::{identity::Info, routes::Route},
    skysail::provider::types::{Error, Ingress, LoadBalancerStatus, Retry},
};

fn identity(name: &str) -> Info {
    Info {
        name: name.to_owned(),
        version: "1".to_owned(),
        description: "a\nb".to_owned(),
        provider_id_schemes: vec!["x".to_owned()],
        has_cluster_id: false,
        extra: Vec::new(),
    }
}

#[test]
fn an_invalid_provider_name_is_refused() {
    for name in ["", "Upper", "under_score", &"a".repeat(64)] {
        let error = info(identity(name)).unwrap_err();
        assert_eq!(error.code, Code::Internal, "{name:?}");
    }
    assert_eq!(info(identity("open-stack1")).unwrap().description, "a b");
}

#[test]
fn an_invalid_text_for_machines_is_refused_and_never_truncated() {
    assert_eq!(short("f", "a".repeat(1024)).unwrap().len(), 1024);
    assert_eq!(short("f", "a".repeat(1025)).unwrap_err().code, Code::Internal);
    let control = short("provider-id", "x://a\n".to_owned()).unwrap_err();
    assert_eq!(control.message, "the provider's answer is wrong: provider-id contains a control character: \"x://a \"");
}

#[test]
fn a_list_with_too_few_or_too_many_results_is_refused() {
    for len in [0, 2] {
        let list: Vec<Result<u8, Error>> = (0..len).map(Ok).collect();
        let error = results(1, list, Ok).unwrap_err();
        assert_eq!(error.code, Code::Internal);
    }
}

#[test]
fn a_status_with_too_many_entries_is_refused() {
    let ingress = Ingress { ip: None, hostname: None, ip_mode: None, ports: Vec::new() };
    let answer = |len| LoadBalancerStatus { ingress: vec![ingress.clone(); len], extra: Vec::new() };
    assert_eq!(status(answer(256)).unwrap().ingress.len(), 256);
    assert_eq!(status(answer(257)).unwrap_err().code, Code::Internal);
}

#[test]
fn a_retry_after_of_more_than_an_hour_becomes_an_hour() {
    let retry = |after_ms| error(Error::RetryAfter(Retry { after_ms, message: String::new() }));
    assert_eq!(retry(u64::MAX).retry_after, Some(Duration::from_secs(3600)));
    assert_eq!(retry(0).retry_after, None);
    assert_eq!(retry(1500).retry_after, Some(Duration::from_millis(1500)));
}

#[test]
fn an_unknown_code_of_the_guest_is_internal() {
    let error = error(Error::Other(("Teapot".to_owned(), "short and stout".to_owned())));
    assert_eq!((error.code, error.message.as_str()), (Code::Internal, "Teapot: short and stout"));
}

fn route(extra: &[(&str, &str)]) -> Route {
    Route {
        name: "r-1".to_owned(),
        target_node: Some("a".to_owned()),
        target_addresses: Vec::new(),
        destination_cidr: "10.244.1.0/24".to_owned(),
        blackhole: false,
        extra: extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

#[test]
fn the_key_enable_node_addresses_of_a_route_is_read_and_passed_back() {
    for (extra, enabled) in [
        (&[][..], false),
        (&[("enable-node-addresses", "true")], true),
        (&[("later-key", "x"), ("enable-node-addresses", "true")], true),
        (&[("enable-node-addresses", "false")], false),
        (&[("later-key", "true")], false),
    ] {
        let listed = routes(vec![route(extra)]).unwrap();
        assert_eq!(listed[0].enable_node_addresses, enabled, "{extra:?}");
        let back = route_to_guest(&listed[0]).extra;
        let expected = if enabled { route(&[("enable-node-addresses", "true")]).extra } else { Vec::new() };
        assert_eq!(back, expected, "{extra:?}");
    }
}

#[test]
fn a_route_with_a_control_character_or_too_many_routes_invalidate_the_list() {
    let hostile = Route { name: "r\n1".to_owned(), ..route(&[]) };
    let error = routes(vec![route(&[]), hostile]).unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert!(error.message.contains("route name contains a control character"), "{error}");
    assert_eq!(routes(vec![route(&[]); 100_000]).unwrap().len(), 100_000);
    let error = routes(vec![route(&[]); 100_001]).unwrap_err();
    assert!(error.message.contains("routes has 100001 entries"), "{error}");
}

#[test]
fn too_many_too_long_or_repeated_labels_of_a_volume_are_refused() {
    let pair = |n: usize| (format!("key-{n}"), "value".to_owned());
    assert_eq!(volume_labels((0..256).map(pair).collect()).unwrap().len(), 256);
    let refused = |labels| volume_labels(labels).unwrap_err();
    for (labels, text) in [
        ((0..10_000).map(pair).collect(), "labels has 10000 entries, and at most 256 are allowed"),
        (vec![pair(1), pair(1)], "labels contains a key twice"),
        (vec![("k".repeat(1025), String::new())], "label key has 1025 bytes, and at most 1024 are allowed"),
        (vec![("k".to_owned(), "\u{1b}[2J".to_owned())], "label value contains a control character: \" [2J\""),
    ] {
        let error = refused(labels);
        assert_eq!(
            (error.code, &*error.message),
            (Code::Internal, &*format!("the provider's answer is wrong: {text}"))
        );
    }
}

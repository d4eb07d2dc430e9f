//! Which results of a guest are accepted, and which are refused.

use std::time::Duration;

use skysail_provider::{Code, Node, SystemUuid};

use super::{
    from_guest::error, info, node_bytes, node_to_guest, results, route_to_guest, routes, short, status, volume_labels,
};
use crate::bindings::{
    exports::skysail::provider::{
        identity::Info,
        routes::{Route, Target},
    },
    skysail::provider::types::{Error, Ingress, LoadBalancerStatus, Retry},
};

fn identity(name: &str) -> Info {
    Info {
        name: name.to_owned(),
        version: "1".to_owned(),
        description: "a\nb".to_owned(),
        provider_id_schemes: vec!["x".to_owned()],
        has_cluster_id: false,
        serial_load_balancers: false,
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
fn a_page_has_1_to_500_nodes_and_500_where_the_provider_asks_for_none() {
    let page = |texts: &[&str]| {
        let extra = texts.iter().map(|text| ("page-nodes".to_owned(), (*text).to_owned())).collect();
        info(Info { extra, ..identity("p") }).map(|info| info.page_nodes)
    };
    assert_eq!((page(&[]), page(&["1"]), page(&["500"])), (Ok(500), Ok(1), Ok(500)));
    for text in ["0", "501", "-1", "", "many"] {
        let error = page(&[text]).unwrap_err();
        assert!(error.message.ends_with(&format!("page-nodes {text:?} is not a number from 1 to 500")), "{error}");
    }
}

#[test]
fn an_invalid_text_for_machines_is_refused_and_never_truncated() {
    assert_eq!(short("f", "a".repeat(1024)).unwrap().len(), 1024);
    assert_eq!(short("f", "a".repeat(1025)).unwrap_err().code, Code::Internal);
    // As JSON, such a character would reach the terminal of `skysail call`.
    for hidden in ["a\u{202e}b", "a\u{2028}b", "a\u{200b}b"] {
        assert_eq!(short("f", hidden.to_owned()).unwrap_err().code, Code::Internal, "{hidden:?}");
    }
    let control = short("provider-id", "x://a\n".to_owned()).unwrap_err();
    assert_eq!(
        control.message,
        "the provider's answer is wrong: provider-id contains a control or invisible character: \"x://a \""
    );
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
    let ingress = Ingress { ip: None, hostname: None, ip_mode: None, ports: Vec::new(), extra: Vec::new() };
    let answer = |len| LoadBalancerStatus { ingress: vec![ingress.clone(); len] };
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
        target: Target::ProviderId("p://a".to_owned()),
        target_addresses: Vec::new(),
        destination_cidr: "10.244.1.0/24".to_owned(),
        blackhole: false,
        extra: extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

/// A guest gets back what it wrote, whether the host knows the key or not.
#[test]
fn the_keys_of_a_route_come_back_in_its_deletion() {
    for (extra, enabled) in [
        (&[][..], false),
        (&[("enable-node-addresses", "true")], true),
        (&[("table", "rt-1"), ("next-hop", "10.0.0.7"), ("enable-node-addresses", "true")], true),
        (&[("enable-node-addresses", "false")], false),
        (&[("table", "true"), ("table", "again")], false),
    ] {
        let listed = routes(vec![route(extra)]).unwrap();
        assert_eq!(listed[0].enable_node_addresses, enabled, "{extra:?}");
        let back = route_to_guest(&listed[0]);
        assert_eq!(back.extra, route(extra).extra, "{extra:?}");
        assert!(matches!(back.target, Target::ProviderId(id) if id == "p://a"));
    }
}

#[test]
fn too_many_or_too_long_keys_of_a_route_invalidate_the_list() {
    let many = |count| routes(vec![route(&vec![("key", "value"); count])]);
    assert_eq!(many(32).unwrap()[0].extra.len(), 32);
    assert!(many(33).unwrap_err().message.contains("extra has 33 entries, and at most 32 are allowed"));
    let long = "v".repeat(1025);
    let error = routes(vec![route(&[("key", long.as_str())])]).unwrap_err();
    assert!(error.message.contains("extra value has 1025 bytes"), "{error}");
}

#[test]
fn a_target_without_a_text_is_unknown() {
    let empty: [fn(String) -> Target; 3] = [Target::Node, Target::ProviderId, Target::Address];
    let targets = empty.map(|target| target(String::new())).into_iter().chain([Target::None]);
    let listed = routes(targets.map(|target| Route { target, ..route(&[]) }).collect()).unwrap();
    assert_eq!(listed.len(), 4);
    assert!(listed.iter().all(|route| route.target == skysail_provider::Target::None));
}

#[test]
fn a_route_with_a_control_character_or_too_many_routes_invalidate_the_list() {
    let hostile = Route { name: "r\n1".to_owned(), ..route(&[]) };
    let error = routes(vec![route(&[]), hostile]).unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert!(error.message.contains("route name contains a control or invisible character"), "{error}");
    assert_eq!(routes(vec![route(&[]); 100_000]).unwrap().len(), 100_000);
    let error = routes(vec![route(&[]); 100_001]).unwrap_err();
    assert!(error.message.contains("routes has 100001 entries"), "{error}");
}

#[test]
fn a_guest_gets_the_system_uuid_of_a_node() {
    let uuid = "00a1b2c3-0405-4607-8899-0a0b0c0d0e0f";
    let node = |uuid: Option<&str>| Node { system_uuid: uuid.map(SystemUuid::from), ..Node::default() };
    assert_eq!(node_to_guest(&node(Some(uuid))).extra, [("system-uuid".to_owned(), uuid.to_owned())]);
    assert_eq!(node_to_guest(&node(None)).extra, []);
    let bytes = node_bytes(&node(Some(uuid))) - node_bytes(&node(None));
    assert!(bytes >= uuid.len() + "system-uuid".len(), "it counts against the limit");
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
        (
            vec![("k".to_owned(), "\u{1b}[2J".to_owned())],
            "label value contains a control or invisible character: \" [2J\"",
        ),
    ] {
        let error = refused(labels);
        assert_eq!(
            (error.code, &*error.message),
            (Code::Internal, &*format!("the provider's answer is wrong: {text}"))
        );
    }
}

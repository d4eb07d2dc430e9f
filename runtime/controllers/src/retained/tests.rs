//! What the ConfigMap says, also where a person wrote it. `tests/conformance/tests/it/retained.rs`
//! changes the records against an API.

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use skysail_provider::OwnedLoadBalancer;

use super::{DATA_BYTES_MAX, Retained, RetainedKey, RetainedLoadBalancer, RetainedRecords, has_room};
use crate::watch::ObjectKey;

fn record(service_uid: &str, in_use: bool) -> RetainedLoadBalancer {
    RetainedLoadBalancer {
        namespace: "shop".to_owned(),
        made_for: "first".to_owned(),
        service: format!("service-{service_uid}"),
        service_uid: service_uid.to_owned(),
        in_use,
        name: format!("lb-{service_uid}"),
        addresses: Vec::new(),
        since: "2026-01-01T00:00:00Z".to_owned(),
    }
}

fn object(version: &str, entries: &[(&str, String)]) -> ConfigMap {
    let data = entries.iter().map(|(key, text)| ((*key).to_owned(), text.clone())).collect();
    let mut object = ConfigMap { data: Some(data), ..ConfigMap::default() };
    object.metadata.resource_version = Some(version.to_owned());
    object
}

#[test]
fn a_record_is_found_by_the_load_balancer_and_by_its_service() {
    let retained = Retained::default();
    let entries = [("sim.u1", record("u2", true).to_text()), ("sim.u3", record("u3", false).to_text())];
    retained.follow(Some(&object("7", &entries)));
    assert_eq!(retained.changed().now_or_never().unwrap().into_iter().collect::<Vec<_>>(), ["u1", "u2", "u3"]);
    let found = |uid| retained.of_service("sim", uid).map(|(key, _)| key.uid);
    assert_eq!((found("u2"), found("u3"), found("u1")), (Some("u1".to_owned()), Some("u3".to_owned()), None));
    assert_eq!(retained.of_service("other", "u2"), None);
    assert_eq!((retained.of_provider("sim").0, retained.of_provider("other").0), (1, 0));
    let key = ObjectKey { namespace: "shop".to_owned(), name: "service-u2".to_owned() };
    assert_eq!(retained.users("sim"), [(key.clone(), "u2".to_owned())]);
    assert_eq!((retained.used_at("u2").as_deref(), retained.used_at("u3")), (Some("sim"), None));
    assert_eq!(retained.used_by_another(&key, Some("u2")), None);
    assert!(retained.used_by_another(&key, Some("u9")).is_some() && retained.used_by_another(&key, None).is_some());
    let named = |uid| retained.namesake("sim", &ObjectKey { name: "first".to_owned(), ..key.clone() }, uid).is_some();
    assert!(named("u9") && named("u1"), "another one of this name");
    assert!(retained.namesake("sim", &key, "u9").is_none() && retained.namesake("other", &key, "u9").is_none());
    assert_eq!(retained.other_provider("cloud", "u3", "shop"), Some("sim".to_owned()));
    for (uid, namespace) in [("u1", "shop"), ("u3", "elsewhere")] {
        assert_eq!(retained.other_provider("cloud", uid, namespace), None, "in use, or of another namespace");
    }
}

/// A watch may be late, or a list old.
#[test]
fn an_older_version_changes_nothing() {
    let retained = Retained::default();
    retained.follow(Some(&object("9", &[("sim.u1", record("u1", false).to_text())])));
    let changed = || retained.changed().now_or_never().unwrap_or_default().into_iter().collect::<Vec<_>>();
    assert_eq!(changed(), ["u1"]);
    retained.follow(Some(&object("8", &[])));
    assert_eq!((changed(), retained.get("sim", "u1").is_some()), (vec![], true));
    retained.follow(None);
    assert_eq!(changed(), ["u1"], "the ConfigMap is deleted");
    assert!(retained.get("sim", "u1").is_none());
}

#[test]
fn a_share_is_found_by_the_uid_that_the_cloud_stores_and_else_by_its_name() {
    let records = RetainedRecords::of(Some(&object("7", &[("sim.u1", record("u2", false).to_text())])));
    let share = |name: &str, uid: Option<&str>| OwnedLoadBalancer {
        name: name.to_owned(),
        service: uid.map(|uid| ("any".to_owned(), "any".to_owned(), uid.to_owned())),
    };
    let is_known = |provider: &str, share: &OwnedLoadBalancer| records.of_share(provider, share).is_some();
    assert!(is_known("sim", &share("any", Some("u1"))) && is_known("sim", &share("lb-u2", None)));
    for (provider, share) in [
        ("sim", share("lb-u2", Some("u2"))),
        ("sim", share("other", None)),
        ("other", share("lb-u2", None)),
        ("other", share("any", Some("u1"))),
    ] {
        assert!(!is_known(provider, &share), "{provider} {share:?}");
    }
}

#[test]
fn what_cannot_be_read_is_named_and_counts_for_its_provider_or_for_all() {
    let records = RetainedRecords::of(Some(&object("7", &[("sim.u1", "{}".to_owned())])));
    assert_eq!(records.unreadable().collect::<Vec<_>>(), ["sim.u1"]);
    assert!(records.has_unreadable("sim") && !records.has_unreadable("other"));
    let records = RetainedRecords::of(Some(&object("7", &[("no key", record("u1", false).to_text())])));
    assert!(records.has_unreadable("sim") && records.has_unreadable("other"));
    assert!(!RetainedRecords::of(None).has_unreadable("sim"));
}

#[test]
fn the_records_together_have_a_bound_and_a_record_may_be_replaced_at_the_bound() {
    let key = RetainedKey::new("sim", "u1").unwrap();
    let full = object("7", &[("sim.u1", record("u1", false).to_text()), ("sim.u2", "x".repeat(DATA_BYTES_MAX - 200))]);
    assert!(has_room(Some(&full), &key, &record("u1", true)).is_ok());
    let error = has_room(Some(&full), &RetainedKey::new("sim", "u3").unwrap(), &record("u3", false)).unwrap_err();
    let text = crate::error::chain(&error);
    assert!(text.contains("skysail-retained-load-balancers has no room") && text.contains("skysail orphans"), "{text}");
}

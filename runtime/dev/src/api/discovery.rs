//! Discovery: the groups, versions and resources, which `kubectl` and clients request first.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::reviews::{self, REVIEWS};
use super::state::State;

/// The version that this server reports: the model of its kinds and defaults.
pub(crate) const GIT_VERSION: &str = "v1.36.3";

/// `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "skysail/dev",
    })
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    all.into_iter().filter(|v| *v != "deletecollection" || &*kind.storage != "namespaces").collect()
}

/// Groups with their versions, the core group left out, in order of first appearance.
fn groups(state: &State) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let kinds = state.kinds.iter().map(|kind| (kind.group.as_str(), kind.version.as_str()));
    let reviews = REVIEWS.iter().map(|review| (review.group, reviews::VERSION));
    for (group, version) in kinds.chain(reviews).filter(|(group, _)| !group.is_empty()) {
        match groups.iter_mut().find(|(g, _)| g == group) {
            Some((_, versions)) if versions.iter().any(|v| v == version) => {}
            Some((_, versions)) => versions.push(version.to_owned()),
            None => groups.push((group.to_owned(), vec![version.to_owned()])),
        }
    }
    groups
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(crate) fn group_list(state: &State) -> Value {
    let groups: Vec<Value> = groups(state).iter().map(|(group, versions)| group_of(group, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_of(group: &str, versions: &[String]) -> Value {
    let listed: Vec<Value> =
        versions.iter().map(|v| json!({"groupVersion": format!("{group}/{v}"), "version": v})).collect();
    json!({"name": group, "versions": listed, "preferredVersion": listed.first()})
}

/// `/apis/GROUP`.
pub(crate) fn group(state: &State, group: &str) -> Option<Value> {
    let (name, versions) = groups(state).into_iter().find(|(g, _)| g == group)?;
    let mut answer = group_of(&name, &versions);
    super::object::set(&mut answer, "/kind", "APIGroup");
    super::object::set(&mut answer, "/apiVersion", "v1");
    Some(answer)
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn resources(state: &State, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in state.kinds.iter().filter(|k| k.group == group && k.version == version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            super::object::set(&mut entry, "/shortNames", kind.short_names.clone());
        }
        if !kind.categories.is_empty() {
            super::object::set(&mut entry, "/categories", kind.categories.clone());
        }
        resources.push(entry);
        if kind.status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    for review in REVIEWS.iter().filter(|review| review.group == group && version == reviews::VERSION) {
        resources.push(json!({
            "name": review.plural(), "singularName": review.singular(), "namespaced": false, "kind": review.kind,
            "verbs": ["create"],
        }));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    })
}

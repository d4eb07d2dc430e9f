//! Leader migration (KEP-2436): which controllers run under the Lease that two kinds of manager
//! share while controllers migrate from one to the other.
//!
//! A controller is matched by upstream's current name, its earlier name and its aliases. Upstream
//! matches only the current names, and two names in its own default configuration are earlier ones:
//! so there only the lifecycle controller migrates.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use skysail_controllers::EnabledControllers;
use skysail_host::read_file;

/// Name of this program in a configuration.
const COMPONENT: &str = "cloud-controller-manager";
/// Any manager.
const ANY_COMPONENT: &str = "*";
/// Largest configuration, in bytes; it names a few controllers.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Current name, earlier name, alias.
const SERVICE: &[&str] = &["service-lb-controller", "service-controller", "service"];
const CLOUD_NODE: &[&str] = &["cloud-node-controller", "cloud-node"];
const CLOUD_NODE_LIFECYCLE: &[&str] = &["cloud-node-lifecycle-controller", "cloud-node-lifecycle"];
const ROUTE: &[&str] = &["node-route-controller", "route-controller", "route"];

/// Which manager runs which controller under which Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaderMigrationConfiguration {
    /// Name of the migration's Lease, beside the main one.
    pub(crate) leader_name: String,
    controller_leaders: Vec<ControllerLeader>,
}

/// One controller and the component that may run it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ControllerLeader {
    name: String,
    component: String,
}

/// The Lease under which a controller runs in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterResult {
    /// The migration's Lease.
    Migrated,
    /// The main Lease.
    NonMigrated,
    /// None: another component runs the controller.
    Unowned,
}

/// The file. Required fields are checked afterwards, so that the errors are upstream's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    leader_name: String,
    resource_lock: Option<String>,
    #[serde(default)]
    controller_leaders: Vec<ControllerLeader>,
}

impl Default for LeaderMigrationConfiguration {
    /// As upstream's default: the holder of the migration's Lease runs the controllers that were in
    /// the kube-controller-manager.
    fn default() -> Self {
        let leader = |name: &str| ControllerLeader { name: name.to_owned(), component: ANY_COMPONENT.to_owned() };
        Self {
            leader_name: "cloud-provider-extraction-migration".to_owned(),
            controller_leaders: ["route-controller", "service-controller", "cloud-node-lifecycle-controller"]
                .map(leader)
                .into(),
        }
    }
}

impl LeaderMigrationConfiguration {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("unable to read leader migration configuration from {}", path.display());
        let bytes = read_file(path, FILE_BYTES_MAX).with_context(what)?;
        Self::parse(&String::from_utf8(bytes).with_context(what)?).with_context(what)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let document: Document = serde_saphyr::from_str(text)?;
        let version = document.api_version.strip_prefix("controllermanager.config.k8s.io/").unwrap_or_default();
        if document.kind != "LeaderMigrationConfiguration" || !matches!(version, "v1" | "v1beta1" | "v1alpha1") {
            bail!(
                "unexpected config type: {}, Kind={}; write controllermanager.config.k8s.io/v1 and LeaderMigrationConfiguration",
                document.api_version,
                document.kind
            );
        }
        let wrong = faults(&document, version);
        if !wrong.is_empty() {
            return Err(anyhow!("failed to parse leader migration configuration: [{}]", wrong.join(", ")));
        }
        let Document { leader_name, controller_leaders, api_version: _, kind: _, resource_lock: _ } = document;
        Ok(Self { leader_name, controller_leaders })
    }

    /// The controllers for the main Lease and those for the migration's Lease.
    pub(crate) fn split(&self, enabled: EnabledControllers) -> (EnabledControllers, EnabledControllers) {
        let EnabledControllers { service, cloud_node, cloud_node_lifecycle, route } = enabled;
        let under = |wanted: FilterResult| EnabledControllers {
            service: service && self.filter(SERVICE) == wanted,
            cloud_node: cloud_node && self.filter(CLOUD_NODE) == wanted,
            cloud_node_lifecycle: cloud_node_lifecycle && self.filter(CLOUD_NODE_LIFECYCLE) == wanted,
            route: route && self.filter(ROUTE) == wanted,
        };
        (under(FilterResult::NonMigrated), under(FilterResult::Migrated))
    }

    /// Of several entries for one controller the last one counts, as upstream.
    fn filter(&self, names: &[&str]) -> FilterResult {
        let entry = self.controller_leaders.iter().rfind(|leader| names.contains(&leader.name.as_str()));
        match entry.map(|leader| leader.component.as_str()) {
            None => FilterResult::NonMigrated,
            Some(COMPONENT | ANY_COMPONENT) => FilterResult::Migrated,
            Some(_) => FilterResult::Unowned,
        }
    }
}

/// The errors, in upstream's words.
fn faults(document: &Document, version: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if document.leader_name.is_empty() {
        wrong.push("leaderName: Required value: leaderName must be set for LeaderMigrationConfiguration".to_owned());
    }
    match (version, document.resource_lock.as_deref()) {
        ("v1", None) | ("v1beta1" | "v1alpha1", Some("leases")) => {}
        ("v1", Some(_)) => wrong.push("strict decoding error: unknown field \"resourceLock\"".to_owned()),
        (_, lock) => {
            let lock = lock.unwrap_or_default();
            wrong.push(format!("resourceLock: Invalid value: {lock:?}: resource Lock must be 'leases'"));
        }
    }
    for (index, leader) in document.controller_leaders.iter().enumerate() {
        for (field, value) in [("component", &leader.component), ("name", &leader.name)] {
            if value.is_empty() {
                wrong.push(format!("controllerLeaders[{index}].{field}: Required value"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests;

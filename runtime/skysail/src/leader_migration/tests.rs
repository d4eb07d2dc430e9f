//! O11: upstream's cases of leader migration.
//! IDs: tests/conformance/README.md.

use skysail_controllers::EnabledControllers;

use super::{CLOUD_NODE, CLOUD_NODE_LIFECYCLE, FilterResult, LeaderMigrationConfiguration, ROUTE, SERVICE};

const HEAD: &str = "apiVersion: controllermanager.config.k8s.io/v1alpha1\nkind: LeaderMigrationConfiguration\n";

fn refused(text: &str) -> String {
    format!("{:#}", LeaderMigrationConfiguration::parse(text).unwrap_err())
}

fn config(component: &str) -> LeaderMigrationConfiguration {
    let entries = ["route-controller", "service-controller", "cloud-node-lifecycle-controller"]
        .map(|name| format!("- {{name: {name}, component: {component:?}}}\n"));
    let text = format!("{HEAD}leaderName: m\nresourceLock: leases\ncontrollerLeaders:\n{}", entries.concat());
    LeaderMigrationConfiguration::parse(&text).unwrap()
}

#[test]
fn o11_a_file_of_each_version_is_read() {
    for (version, lock) in [("v1alpha1", "resourceLock: leases\n"), ("v1beta1", "resourceLock: leases\n"), ("v1", "")] {
        let text = format!(
            "apiVersion: controllermanager.config.k8s.io/{version}\nkind: LeaderMigrationConfiguration\nleaderName: m\n{lock}controllerLeaders: []\n"
        );
        let config = LeaderMigrationConfiguration::parse(&text).unwrap();
        assert_eq!((config.leader_name.as_str(), config.controller_leaders.len()), ("m", 0));
    }
}

#[test]
fn o11_an_invalid_configuration_is_refused() {
    assert!(LeaderMigrationConfiguration::parse("").is_err());
    let text = refused("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n");
    assert!(
        text.starts_with("unexpected config type: kubelet.config.k8s.io/v1beta1, Kind=KubeletConfiguration"),
        "{text}"
    );
    for (more, part) in [
        ("leaderName: m\nresourceLock: leases\nfoo: bar\n", "foo"),
        ("leaderName: m\nresourceLock: leases\nresourceLock: leases\n", "resource"),
        (
            "resourceLock: leases\n",
            "leaderName: Required value: leaderName must be set for LeaderMigrationConfiguration",
        ),
        ("leaderName: m\nresourceLock: invalid\n", "resourceLock: Invalid value: \"invalid\": "),
        ("leaderName: m\n", "resourceLock: Invalid value: \"\": "),
        (
            "leaderName: m\nresourceLock: leases\ncontrollerLeaders: [{name: a}]\n",
            "controllerLeaders[0].component: Required value",
        ),
        (
            "leaderName: m\nresourceLock: leases\ncontrollerLeaders: [{component: a}]\n",
            "controllerLeaders[0].name: Required value",
        ),
        // Upstream accepts the file and fails later: client-go no longer has locks on Endpoints.
        ("leaderName: m\nresourceLock: endpoints\n", "resource Lock must be 'leases'"),
    ] {
        let text = refused(&format!("{HEAD}{more}"));
        assert!(text.contains(part), "{more:?}: {text}");
    }
    let v1 = HEAD.replace("v1alpha1", "v1");
    assert!(refused(&format!("{v1}leaderName: m\nresourceLock: leases\n")).contains("unknown field \"resourceLock\""));
}

#[test]
fn o11_a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.yaml");
    let text = format!("{:#}", LeaderMigrationConfiguration::load(&path).unwrap_err());
    assert!(
        text.starts_with(&format!("unable to read leader migration configuration from {}: ", path.display())),
        "{text}"
    );
}

#[test]
fn o11_a_controller_is_migrated_or_not_or_not_ours() {
    let filters = |config: &LeaderMigrationConfiguration| {
        [SERVICE, CLOUD_NODE, CLOUD_NODE_LIFECYCLE, ROUTE].map(|names| config.filter(names))
    };
    let (migrated, stays, unowned) = (FilterResult::Migrated, FilterResult::NonMigrated, FilterResult::Unowned);
    assert_eq!(filters(&config("kube-controller-manager")), [unowned, stays, unowned, unowned]);
    assert_eq!(filters(&config("cloud-controller-manager")), [migrated, stays, migrated, migrated]);
    assert_eq!(filters(&config("*")), [migrated, stays, migrated, migrated]);
}

/// Upstream migrates only the lifecycle controller, because the other two have been renamed.
#[test]
fn o11_the_default_migrates_controllers_by_their_earlier_names_too() {
    let (main, migrated) = LeaderMigrationConfiguration::default().split(EnabledControllers::default());
    assert!(main.cloud_node && !main.service && !main.route && !main.cloud_node_lifecycle, "{main:?}");
    assert!(
        migrated.service && migrated.route && migrated.cloud_node_lifecycle && !migrated.cloud_node,
        "{migrated:?}"
    );
}

#[test]
fn o11_a_disabled_controller_runs_under_no_lease() {
    let enabled = EnabledControllers { service: false, ..EnabledControllers::default() };
    let (main, migrated) = LeaderMigrationConfiguration::default().split(enabled);
    assert!(!main.service && !migrated.service);
    let (main, migrated) = config("kube-controller-manager").split(EnabledControllers::default());
    assert!(!main.service && !migrated.service, "another component runs the controller");
}

#[test]
fn o11_aliases_count_and_of_two_entries_the_last_one() {
    let text = format!(
        "{HEAD}leaderName: m\nresourceLock: leases\ncontrollerLeaders:\n- {{name: service, component: kube-controller-manager}}\n\
         - {{name: service-lb-controller, component: cloud-controller-manager}}\n- {{name: cloud-node, component: '*'}}\n"
    );
    let config = LeaderMigrationConfiguration::parse(&text).unwrap();
    assert_eq!(config.filter(SERVICE), FilterResult::Migrated);
    assert_eq!(config.filter(CLOUD_NODE), FilterResult::Migrated);
}

//! Tests of the flags of `skysail run`.

use std::{collections::BTreeMap, time::Duration};

use clap::{Arg, Command, CommandFactory as _, Parser as _};
use expect_test::expect;
use prometheus_client::{encoding::text::encode, registry::Registry};
use rstest::rstest;
use skysail_controllers::{ControllerSettings, EnabledControllers};

use super::{RunArgs, feature_gates::Feature, refused::FLAGS};
use crate::args::{Args, Command as Chosen};

fn parse(flags: &[&str]) -> Result<RunArgs, String> {
    let words = ["skysail", "run", "--provider-file=p"].iter().chain(flags);
    match Args::try_parse_from(words).map_err(|error| error.to_string())?.command {
        Chosen::Run(args) => Ok(*args),
        other => Err(format!("{other:?}")),
    }
}

#[track_caller]
fn settings(flags: &[&str]) -> ControllerSettings {
    parse(flags).unwrap().settings()
}

fn run_command() -> Command {
    let mut command = Args::command();
    command.build();
    command.find_subcommand("run").unwrap().clone()
}

fn default_of(arg: &Arg) -> String {
    arg.get_default_values().iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(",")
}

/// The defaults of all supported flags of upstream. The rates and the concurrency differ;
/// `deploy/docs/differences.md` gives the reason.
#[test]
fn o1_the_defaults_are_upstreams_but_for_rates_and_concurrency() {
    let upstream = [
        ("controllers", "*"),
        ("controller-start-interval", "0s"),
        ("kube-api-qps", "200"),
        ("kube-api-burst", "400"),
        ("master", ""),
        ("kubeconfig", ""),
        ("feature-gates", ""),
        ("use-service-account-credentials", "false"),
        ("cluster-name", "kubernetes"),
        ("cluster-cidr", ""),
        ("configure-cloud-routes", "true"),
        ("route-reconciliation-period", "10s"),
        ("node-monitor-period", "5s"),
        ("node-status-update-frequency", "5m"),
        ("concurrent-service-syncs", "10"),
        ("concurrent-node-syncs", "10"),
        ("concurrent-node-status-updates", "0"),
        ("concurrent-node-lifecycle-syncs", "1"),
        ("logging-format", "text"),
        ("v", ""),
        ("leader-elect", "true"),
        ("leader-elect-lease-duration", "15s"),
        ("leader-elect-renew-deadline", "10s"),
        ("leader-elect-retry-period", "2s"),
        ("leader-elect-resource-lock", "leases"),
        ("leader-elect-resource-name", "cloud-controller-manager"),
        ("leader-elect-resource-namespace", "kube-system"),
        ("enable-leader-migration", "false"),
        ("leader-migration-config", ""),
        ("bind-address", "0.0.0.0"),
        ("secure-port", "10258"),
        ("webhooks", ""),
        ("webhook-bind-address", "0.0.0.0"),
        ("webhook-secure-port", "10260"),
        ("profiling", "true"),
    ];
    let command = run_command();
    for (name, default) in upstream {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name));
        assert_eq!(arg.map(default_of).as_deref(), Some(default), "--{name}");
    }
}

/// Upstream fills a versioned configuration from the flags' defaults; Skysail has none.
#[test]
fn o9_defaults_change_no_setting() {
    assert_eq!(settings(&[]), ControllerSettings::default());
}

#[test]
fn o2_each_flag_of_a_full_command_line_sets_its_setting() {
    let flags = [
        "--cluster-name=k8s",
        "--cluster-cidr=10.0.0.0/8,fd00::/48",
        "--configure-cloud-routes=false",
        "--route-reconciliation-period=30s",
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
        "--concurrent-service-syncs=4",
        "--concurrent-node-syncs=5",
        "--concurrent-node-status-updates=6",
        "--concurrent-node-lifecycle-syncs=7",
        "--controller-start-interval=2m",
        "--controllers=*,-cloud-node-lifecycle-controller",
        "--kube-api-burst=100",
        "--kube-api-qps=50.5",
        "--kubeconfig=/kubeconfig",
        "--leader-elect=false",
        "--master=https://192.0.2.20:6443",
        "--node-monitor-period=10s",
        "--node-status-update-frequency=10m",
        "--use-service-account-credentials",
        "--logging-format=json",
        "-v",
        "4",
    ];
    let args = parse(&flags).unwrap();
    let generic = &args.common.generic;
    assert_eq!((generic.kube_api_burst, generic.kube_api_qps), (100, 50.5));
    assert_eq!(generic.kubeconfig.as_deref(), Some("/kubeconfig".as_ref()));
    assert_eq!(generic.master.as_ref().map(ToString::to_string).as_deref(), Some("https://192.0.2.20:6443/"));
    assert!(generic.use_service_account_credentials && !args.leader_election.leader_elect);
    assert_eq!(args.log.filter(), "info,skysail=debug");
    let expected = ControllerSettings {
        cluster_name: "k8s".to_owned(),
        controllers: EnabledControllers { cloud_node_lifecycle: false, ..EnabledControllers::default() },
        controller_start_interval: Duration::from_mins(2),
        cluster_cidrs: skysail_controllers::parse_cluster_cidr("10.0.0.0/8,fd00::/48").unwrap(),
        configure_cloud_routes: false,
        route_reconciliation_period: Duration::from_secs(30),
        watch_based_routes: true,
        concurrent_service_syncs: 4,
        concurrent_node_syncs: 5,
        concurrent_node_status_updates: 6,
        concurrent_node_lifecycle_syncs: 7,
        node_monitor_period: Duration::from_secs(10),
        node_status_update_frequency: Duration::from_mins(10),
        ..ControllerSettings::default()
    };
    assert_eq!(args.settings(), expected);
}

/// The old names of upstream's controllers, which its test uses, are aliases too; the first entry
/// for a controller counts.
#[test]
fn o5_aliases_are_the_controllers_they_stand_for() {
    let controllers =
        settings(&["--controllers=service-controller,-service,route,-cloud-node-lifecycle-controller"]).controllers;
    let none = EnabledControllers { service: false, cloud_node: false, cloud_node_lifecycle: false, route: false };
    assert_eq!(controllers, EnabledControllers { service: true, route: true, ..none });
    for (alias, name) in [
        ("cloud-node", "cloud-node-controller"),
        ("cloud-node-lifecycle", "cloud-node-lifecycle-controller"),
        ("route", "node-route-controller"),
        ("service", "service-lb-controller"),
    ] {
        let of = |list: &str| settings(&[&format!("--controllers={list}")]).controllers;
        assert_eq!(of(alias), of(name));
        assert_eq!(of(&format!("*,-{alias}")), of(&format!("*,-{name}")));
    }
}

#[rstest]
#[case::b20_star_is_all("*", [true, true, true, true])]
#[case::b20_named_only("cloud-node", [false, true, false, false])]
#[case::b20_the_position_of_the_star_has_no_effect("-service,*", [false, true, true, true])]
#[case::b20_a_name_counts_more_than_the_star("*,-service", [false, true, true, true])]
#[case::b20_the_first_of_two_counts("-service,service,*", [false, true, true, true])]
#[case::b20_the_first_of_two_counts_either_way("service,-service", [true, false, false, false])]
#[case::b20_none_is_possible("-service", [false, false, false, false])]
fn the_list_of_controllers_says_which_run(#[case] list: &str, #[case] runs: [bool; 4]) {
    let [service, cloud_node, cloud_node_lifecycle, route] = runs;
    let enabled = settings(&[&format!("--controllers={list}")]).controllers;
    assert_eq!(enabled, EnabledControllers { service, cloud_node, cloud_node_lifecycle, route });
    assert_eq!(settings(&["--controllers", list]).controllers, enabled, "as two words");
    let repeated: Vec<_> = list.split(',').map(|entry| format!("--controllers={entry}")).collect();
    let repeated: Vec<_> = repeated.iter().map(String::as_str).collect();
    assert_eq!(settings(&repeated).controllers, enabled, "as several flags");
}

/// As upstream: zero and negative numbers of syncs are invalid; zero status workers are valid, a
/// negative number is not.
#[rstest]
#[case::o6_no_flag(&[], true)]
#[case::o6_negative_syncs(&["--concurrent-node-syncs=-5"], false)]
#[case::o6_no_syncs(&["--concurrent-node-syncs=0"], false)]
#[case::o6_no_status_workers(&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=0"], true)]
#[case::o6_both(&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=5"], true)]
#[case::o6_negative_status_workers(&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=-1"], false)]
fn node_controller_flags(#[case] flags: &[&str], #[case] valid: bool) {
    assert_eq!(parse(flags).is_ok(), valid, "{flags:?}");
}

/// As upstream, zero lifecycle syncs are invalid. The other flags are Skysail's own.
#[rstest]
#[case::no_lifecycle_syncs("--concurrent-node-lifecycle-syncs=0", "1..=1024")]
#[case::no_confirmation("--node-deletion-confirmations=0", "1..=1000")]
#[case::no_percent("--node-deletion-max-percent=0", "1..=100")]
#[case::more_than_all("--node-deletion-max-percent=101", "1..=100")]
#[case::no_window("--node-deletion-window=0s", "longer than zero")]
#[case::no_drift_repairs("--drift-repairs-per-minute=0", "1..=6000")]
#[case::unknown_policy("--orphan-policy=keep", "report, delete")]
fn an_invalid_value_is_refused_with_the_flag_and_the_valid_values(#[case] flag: &str, #[case] valid: &str) {
    let error = parse(&[flag]).unwrap_err();
    let name = flag.split_once('=').unwrap().0;
    assert!(error.contains(name) && error.contains(valid), "{error}");
}

#[test]
fn each_flag_that_upstream_does_not_have_sets_its_setting() {
    let flags = [
        "--node-deletion-confirmations=1",
        "--node-deletion-max-percent=100",
        "--node-deletion-window=1h30m",
        "--refresh-node-labels",
        "--drift-repair-period=12h",
        "--drift-repairs-per-minute=6",
        "--orphan-scan-period=0",
        "--orphan-policy=delete",
    ];
    let expected = ControllerSettings {
        node_deletion_confirmations: 1,
        node_deletion_percent_max: 100,
        node_deletion_window: Duration::from_mins(90),
        refresh_node_labels: true,
        drift_repair_period: Duration::from_hours(12),
        drift_repairs_per_minute: 6,
        orphan_scan_period: Duration::ZERO,
        delete_orphans: true,
        ..ControllerSettings::default()
    };
    assert_eq!(settings(&flags), expected);
    assert!(!settings(&["--refresh-node-labels=false"]).refresh_node_labels);
}

#[test]
fn o7_the_names_of_the_controllers_are_upstreams_four_and_the_error_about_an_unknown_name_lists_them() {
    let error = parse(&["--controllers=*,-nodes"]).unwrap_err();
    let listed = error.split_once("[possible values: ").unwrap().1.split_once(']').unwrap().0;
    let names: Vec<_> = listed.split(", ").filter(|name| !name.starts_with(['-', '*'])).collect();
    let upstream =
        ["cloud-node-controller", "cloud-node-lifecycle-controller", "node-route-controller", "service-lb-controller"];
    assert_eq!(names, upstream);
    for name in names {
        assert!(name.ends_with("-controller") && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
    }
    assert!(error.contains("'-nodes'"), "{error}");
}

#[test]
fn the_last_of_a_repeated_flag_counts_and_a_switch_takes_its_value_after_the_equals_sign() {
    assert_eq!(settings(&["--cluster-name=a", "--cluster-name", "b"]).cluster_name, "b");
    for (text, on) in [("--use-service-account-credentials", true), ("--use-service-account-credentials=F", false)] {
        assert_eq!(parse(&[text]).unwrap().common.generic.use_service_account_credentials, on);
    }
    assert!(parse(&["--use-service-account-credentials", "false"]).is_err());
    assert!(parse(&["--cluster-cidr=10.0.0.0"]).is_err());
}

#[test]
fn the_flag_v_sets_the_log_level_and_excludes_the_flag_log() {
    for (flag, filter) in [("-v=2", "info"), ("--v=5", "info,skysail=debug"), ("-v10", "info,skysail=trace")] {
        assert_eq!(parse(&[flag]).unwrap().log.filter(), filter);
    }
    assert!(parse(&["--v=4", "--log=warn"]).is_err());
}

#[test]
fn a_flag_of_upstream_that_is_not_supported_is_refused_with_the_reason() {
    for flag in FLAGS {
        let error = parse(&[&format!("--{}=7x", flag.name)]).unwrap_err();
        assert!(error.contains(flag.why) && error.contains(flag.name), "{error}");
        for taken in flag.taken {
            assert!(parse(&[&format!("--{}={taken}", flag.name)]).is_ok(), "--{}={taken}", flag.name);
        }
    }
    for on in [
        "--allocate-node-cidrs",
        "--contention-profiling=true",
        "--cloud-provider=aws",
        "--cloud-config=/etc/cloud.conf",
    ] {
        assert!(parse(&[on]).is_err(), "{on}");
    }
    let help = run_command().render_long_help().to_string();
    assert!(FLAGS.iter().all(|flag| !help.contains(&format!("--{} ", flag.name))), "the help lists one of them");
}

#[test]
fn gates_enable_features_and_the_metric_shows_the_gates() {
    let on = |flags: &[&str]| {
        let gates = parse(flags).unwrap().common.generic.feature_gates;
        let routes = Feature::CloudControllerManagerWatchBasedRoutesReconciliation;
        [gates.enabled(Feature::CloudControllerManagerWebhook), gates.enabled(routes)]
    };
    assert_eq!(on(&[]), [false, false]);
    assert_eq!(on(&["--feature-gates=CloudControllerManagerWebhook=true"]), [true, false]);
    assert_eq!(on(&["--feature-gates=CloudControllerManagerWebhook=false,AllAlpha=true"]), [false, true]);
    assert_eq!(on(&["--feature-gates=AllBeta=true"]), [false, false]);
    let mut registry = Registry::default();
    parse(&["--feature-gates=CloudControllerManagerWebhook=1"])
        .unwrap()
        .common
        .generic
        .feature_gates
        .register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.sort_unstable();
    expect![[r#"
        kubernetes_feature_enabled{name="AllAlpha",stage="ALPHA"} 0
        kubernetes_feature_enabled{name="AllBeta",stage="BETA"} 0
        kubernetes_feature_enabled{name="CloudControllerManagerWatchBasedRoutesReconciliation",stage="ALPHA"} 0
        kubernetes_feature_enabled{name="CloudControllerManagerWebhook",stage="ALPHA"} 1"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn a_wrong_gate_lists_the_gates() {
    for wrong in ["Webhook=true", "CloudControllerManagerWebhook=yes", "CloudControllerManagerWebhook"] {
        assert!(parse(&[&format!("--feature-gates={wrong}")]).is_err(), "{wrong}");
    }
    let error = parse(&["--feature-gates=X=true"]).unwrap_err();
    for name in
        ["\"X\"", "CloudControllerManagerWebhook", "CloudControllerManagerWatchBasedRoutesReconciliation", "AllAlpha"]
    {
        assert!(error.contains(name), "{error}");
    }
}

/// The rows of the tables in flags.md: name, default, description.
fn rows() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let text = include_str!("../../../../../deploy/docs/flags.md");
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| `--")?.split('|').map(|cell| cell.trim().trim_matches('`'));
        Some((cells.next()?, (cells.next()?, cells.next()?)))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn the_documentation_lists_every_flag_with_its_default() {
    let (command, rows) = (run_command(), rows());
    let flags: Vec<_> =
        command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())).collect();
    for arg in &flags {
        let name = arg.get_long().unwrap();
        let (default, what) = rows.get(name).copied().unwrap_or_else(|| panic!("deploy/docs/flags.md has no --{name}"));
        if arg.is_hide_set() {
            assert!(what.starts_with("refused"), "--{name}: {what}");
        } else {
            assert_eq!(default, default_of(arg), "deploy/docs/flags.md: --{name}");
            assert!(!what.starts_with("refused"), "--{name}: {what}");
        }
    }
    for name in rows.keys() {
        assert!(flags.iter().any(|arg| arg.get_long() == Some(name)), "deploy/docs/flags.md: there is no --{name}");
    }
}

#[test]
fn calls_are_recorded_all_or_where_they_fail_and_redacted_only_then() {
    for flags in [&["--record=all", "--redact=x"], &["--record-failures=failed", "--redact=x"]] {
        assert_eq!(parse(flags).unwrap().recordings.redact, ["x"]);
    }
    let both = parse(&["--record=all", "--record-failures=failed"]).unwrap_err();
    assert!(both.contains("'--record <DIR>' cannot be used with '--record-failures <DIR>'"), "{both}");
    let neither = parse(&["--redact=x"]).unwrap_err();
    assert!(neither.contains("<--record <DIR>|--record-failures <DIR>>"), "{neither}");
}

#[test]
fn an_empty_endpoint_of_traces_means_none_and_a_wrong_one_is_refused() {
    assert_eq!(parse(&["--otlp-traces-endpoint="]).unwrap().traces.endpoint(), None);
    let endpoint = parse(&["--otlp-traces-endpoint=https://collector:4318/v1/traces"]).unwrap();
    assert_eq!(endpoint.traces.endpoint().unwrap().as_str(), "https://collector:4318/v1/traces");
    for (wrong, reason) in [
        ("collector:4318", "is neither http nor https; give a URL such as http://collector:4318/v1/traces"),
        ("/v1/traces", "relative URL without a base; give a URL such as http://collector:4318/v1/traces"),
        ("http://me:secret@collector/", "set OTEL_EXPORTER_OTLP_HEADERS"),
    ] {
        let error = parse(&[&*format!("--otlp-traces-endpoint={wrong}")]).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

//! Upstream's test cases of the health handler, and cases of our own.

use expect_test::{Expect, expect};
use prometheus_client::{encoding::text::encode, registry::Registry};

use super::{HealthCheck, HealthChecks, HealthMetrics};

fn good(name: &str) -> HealthCheck {
    HealthCheck::ping(name)
}

fn bad(name: &str) -> HealthCheck {
    HealthCheck::new(name, || Err("the secret reason".to_owned()))
}

#[track_caller]
fn check(checks: &HealthChecks, query: &str, status: u16, expected: &Expect) {
    let (found, body) = checks.answer("healthz", query, &HealthMetrics::default());
    expected.assert_eq(&body);
    assert_eq!(found.as_u16(), status);
}

#[test]
fn o10_without_checks_the_answer_is_ok() {
    check(&HealthChecks::default(), "", 200, &expect!["ok"]);
    check(
        &HealthChecks::default(),
        "verbose",
        200,
        &expect![[r#"
        [+]ping ok
        healthz check passed
    "#]],
    );
}

#[test]
fn o10_good_checks_are_ok() {
    check(&HealthChecks::new([good("a"), good("b")]), "", 200, &expect!["ok"]);
}

#[test]
fn o10_verbose_is_a_line_for_each_check() {
    check(
        &HealthChecks::new([good("a"), good("b")]),
        "verbose=true",
        200,
        &expect![[r#"
        [+]a ok
        [+]b ok
        healthz check passed
    "#]],
    );
}

#[test]
fn o10_one_bad_check_is_500_and_the_reason_is_withheld() {
    check(
        &HealthChecks::new([good("a"), bad("b")]),
        "",
        500,
        &expect![[r#"
        [+]a ok
        [-]b failed: reason withheld
        healthz check failed
    "#]],
    );
}

#[test]
fn o10_checks_that_come_in_two_batches_behave_the_same() {
    let checks = HealthChecks::new([good("a")]);
    checks.add([bad("b")]);
    check(
        &checks,
        "",
        500,
        &expect![[r#"
        [+]a ok
        [-]b failed: reason withheld
        healthz check failed
    "#]],
    );
    checks.add([good("b")]);
    check(&checks, "", 200, &expect!["ok"]);
}

#[test]
fn o10_a_later_change_of_the_callers_list_has_no_effect() {
    let mut list = vec![good("a")];
    let checks = HealthChecks::new(list.clone());
    list.push(bad("b"));
    check(&checks, "", 200, &expect!["ok"]);
}

#[test]
fn o10_checks_can_be_added_during_concurrent_requests() {
    let checks = HealthChecks::new([good("a")]);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let checks = &checks;
            scope.spawn(move || checks.add([good(&number.to_string())]));
            scope.spawn(move || assert_eq!(checks.answer("healthz", "", &HealthMetrics::default()).0, 200));
        }
    });
    assert_eq!(checks.all().len(), 9);
}

#[test]
fn checks_can_be_excluded_by_name_and_unknown_names_are_reported() {
    let checks = HealthChecks::new([good("a"), bad("b/c")]);
    check(&checks, "exclude=b%2Fc&exclude=x", 200, &expect!["ok"]);
    check(
        &checks,
        "verbose&exclude=b/c&exclude=x",
        200,
        &expect![[r#"
        [+]a ok
        [+]b/c excluded: ok
        warn: some health checks cannot be excluded: no matches for "x"
        healthz check passed
    "#]],
    );
}

#[test]
fn a_note_stands_behind_ok_and_fails_nothing() {
    let noted = HealthCheck::with_note("a", || Ok(Some("degraded (ClaimTaken)".to_owned())));
    let checks = HealthChecks::new([noted, good("b")]);
    check(&checks, "", 200, &expect!["ok"]);
    check(
        &checks,
        "verbose",
        200,
        &expect![[r#"
        [+]a ok: degraded (ClaimTaken)
        [+]b ok
        healthz check passed
    "#]],
    );
}

#[test]
fn outcomes_are_counted_under_upstreams_names() {
    let mut registry = Registry::default();
    let metrics = HealthMetrics::register(&mut registry);
    let checks = HealthChecks::new([good("a"), bad("b")]);
    checks.answer("healthz", "", &metrics);
    checks.answer("healthz", "exclude=b", &metrics);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"kubernetes_healthcheck{name="a",type="healthz"} 1"#,
        r#"kubernetes_healthcheck{name="b",type="healthz"} 0"#,
        r#"kubernetes_healthchecks_total{name="a",type="healthz",status="success"} 2"#,
        r#"kubernetes_healthchecks_total{name="b",type="healthz",status="error"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

/// For example of a provider that is gone: an alert on its failed check would never end.
#[test]
fn a_check_that_is_gone_has_no_series() {
    let mut registry = Registry::default();
    let metrics = HealthMetrics::register(&mut registry);
    let checks = HealthChecks::new([good("a"), bad("provider/p")]);
    checks.answer("readyz", "", &metrics);
    checks.replace([good("a")]);
    checks.answer("readyz", "", &metrics);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"name="a""#) && !text.contains("provider/p"), "{text}");
}

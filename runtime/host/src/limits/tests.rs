//! The defaults, and which combinations of limits are refused.

use std::fmt::Write as _;

use expect_test::expect_file;
use skysail_provider::Limit;

use super::{BOUNDS, Bound, Limits};

#[test]
fn the_defaults_are_valid() {
    Limits::default().validate().unwrap();
}

#[test]
fn every_limit_of_the_provider_crate_is_a_field_with_a_range() {
    let fields = serde_json::to_value(Limits::default()).unwrap();
    let fields = fields.as_object().unwrap();
    for limit in Limit::ALL {
        assert_eq!(fields[limit.name()].as_u64(), Some(Limits::default().value(limit)), "{}", limit.name());
    }
    let mut names: Vec<_> = BOUNDS.iter().map(|bound| bound.name).collect();
    names.sort_unstable();
    let mut expected: Vec<_> = fields.keys().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn a_value_outside_its_range_is_named_with_the_range_and_the_reason() {
    for bound in BOUNDS {
        for wrong in [bound.min - 1, bound.max + 1] {
            let mut fields = serde_json::to_value(Limits::default()).unwrap();
            fields[bound.name] = wrong.into();
            let limits: Limits = serde_json::from_value(fields).unwrap();
            let error = limits.validate().unwrap_err();
            let problem = &error.problems[0];
            assert!(
                problem.starts_with(&format!("{} is {wrong}, and may be {} to {}", bound.name, bound.min, bound.max))
            );
            assert!(problem.ends_with(bound.reason));
        }
    }
}

#[test]
fn every_wrong_value_is_reported_at_once() {
    let limits = Limits { fuel: 0, events: 0, http_time_ms: 40_000, ..Limits::default() };
    assert_eq!(limits.validate().unwrap_err().problems.len(), 3);
}

#[test]
fn an_unknown_limit_is_refused_and_a_missing_one_has_its_default() {
    let error = serde_json::from_str::<Limits>(r#"{"fuels": 1}"#).unwrap_err().to_string();
    assert!(error.contains("unknown field `fuels`"), "{error}");
    let limits: Limits = serde_json::from_str(r#"{"logLines": 7}"#).unwrap();
    assert_eq!(limits, Limits { log_lines: 7, ..Limits::default() });
}

/// A size in the largest unit that divides it.
fn shown(value: u64, unit: &str) -> String {
    if unit.starts_with("bytes") {
        for (size, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if value >= size && value.is_multiple_of(size) {
                return format!("{} {name}", value / size);
            }
        }
    }
    let digits = value.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// `UPDATE_EXPECT=1 cargo test -p skysail-host limits` writes the file.
#[test]
fn the_table_of_limits_matches_the_bounds() {
    let mut text = "# Limits

Every provider has these limits. An operator can set each limit for a provider, under `spec.limits`
in the provider file, as a whole number in the unit of the table (1 KiB is 1024 bytes). An absent
limit has the default. When a call reaches a limit, `skysail_provider_limit_hits_total` counts it
under the limit's name, and the record of the call contains the amount used; `deadlineMs` has its
own outcome.

| limit | unit | range | default | beyond it | why |
|---|---|---|---|---|---|
"
    .to_owned();
    for Bound { name, unit, min, max, default, beyond, reason, .. } in BOUNDS {
        let [min, max, default] = [min, max, default].map(|value| shown(value, unit));
        writeln!(text, "| `{name}` | {unit} | {min} to {max} | {default} | {beyond} | {reason} |").unwrap();
    }
    text.push_str(
        "\n`httpTimeMs` may not be more than `deadlineMs`: an exchange cannot take longer than its call.\n\n\
         A provider has at most 256 open connections, idle ones included, or sixteen times `httpConcurrency`\n\
         if that is more. A request that gets no connection within 10 s fails with `unreachable`.\n",
    );
    expect_file!["../../LIMITS.md"].assert_eq(&text);
}

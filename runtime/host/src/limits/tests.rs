//! The defaults, and which combinations of limits are refused.

use skysail_provider::Limit;

use super::{BOUNDS, Limits};

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
fn all_wrong_values_are_told_at_once() {
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

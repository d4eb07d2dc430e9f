//! Parsers of flag values in the notation of Go, which the flags of Kubernetes use.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses a boolean as Go does; completion and help offer `true` and `false`.
pub(crate) fn boolean() -> impl TypedValueParser<Value = bool> {
    let yes = PossibleValue::new("true").aliases(["1", "t", "T", "TRUE", "True"]);
    let no = PossibleValue::new("false").aliases(["0", "f", "F", "FALSE", "False"]);
    PossibleValuesParser::new([yes, no]).map(|text| text.starts_with(['1', 't', 'T']))
}

/// Parses a duration that is longer than zero: `5s`, `1m30s`, `250ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration_or_zero(text)?;
    if duration.is_zero() { Err(format!("{text:?} is not longer than zero; write 5s or 1m30s")) } else { Ok(duration) }
}

/// The longest duration of Go, 292 years.
const DURATION_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// Parses a duration in Go's notation; `0` needs no unit.
pub(crate) fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    let advice = || format!("{text:?} is not a duration; write 5s, 1m30s or 250ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(advice());
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(advice)?;
        let (number, after) = rest.split_at(digits);
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let seconds = seconds_of(unit).ok_or_else(advice)?;
        let number: f64 = number.parse().map_err(|_| advice())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| advice())?;
        total = total.checked_add(part).ok_or_else(advice)?;
        rest = after;
    }
    if total > DURATION_MAX { Err(format!("{text:?} is longer than 292 years; write 5s or 1h")) } else { Ok(total) }
}

fn seconds_of(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        // Both spellings of micro, as in Go.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1e-6),
        "ms" => Some(0.001),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

/// Parses the name of a Kubernetes object: a subdomain as in RFC 1123.
pub(crate) fn object_name(text: &str) -> Result<String, String> {
    let label = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    if text.len() <= 253 && text.split('.').all(label) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is not a valid object name; use at most 253 lower-case letters, digits, dashes and dots, with a \
         letter or a digit at both ends"
    ))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, time::Duration};

    use clap::{Command, builder::TypedValueParser as _};

    use super::{boolean, object_name, parse_duration, parse_duration_or_zero};

    #[test]
    fn an_object_name_is_valid_if_the_api_server_accepts_it() {
        for good in ["cloud-controller-manager", "a.b-1"] {
            assert_eq!(object_name(good).as_deref(), Ok(good));
        }
        for wrong in ["", "Bad NS", "a..b", "-a", "a-", "a_b", &"a".repeat(254)] {
            assert!(object_name(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn durations_are_written_as_in_go() {
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("2562047h"), Ok(Duration::from_hours(2_562_047)));
        assert_eq!(parse_duration("3us7ns"), Ok(Duration::from_nanos(3007)));
        assert_eq!(parse_duration("3\u{b5}s"), Ok(Duration::from_micros(3)));
        for wrong in ["", "5", "s", "5 s", "-5s", "0s", "0", "5d", "1e9h", "2562048h", "9999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        for nothing in ["0", "0s", "0h0m"] {
            assert_eq!(parse_duration_or_zero(nothing), Ok(Duration::ZERO), "{nothing}");
        }
    }

    #[test]
    fn booleans_are_written_as_in_go() {
        let read = |text| boolean().parse_ref(&Command::new("t"), None, OsStr::new(text)).ok();
        for (text, value) in [("true", Some(true)), ("T", Some(true)), ("1", Some(true)), ("False", Some(false))] {
            assert_eq!(read(text), value, "{text}");
        }
        for wrong in ["", "yes", "on", "2", "tRUE"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

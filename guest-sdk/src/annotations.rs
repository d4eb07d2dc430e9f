//! Annotations of a Service, read as the types that they stand for.
//!
//! ```
//! use std::time::Duration;
//! use skysail_guest_sdk::{Service, annotations::Annotations};
//!
//! let mut service = Service::new("default", "web", "uid");
//! let annotations = [("lb.example.com/timeout", "15s"), ("lb.example.com/internal", "yes")];
//! service.annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
//! let annotations = Annotations::of(&service, "lb.example.com/");
//! assert_eq!(annotations.duration("timeout"), Ok(Some(Duration::from_secs(15))));
//! assert_eq!(annotations.parse::<u16>("port"), Ok(None));
//! assert_eq!(
//!     annotations.bool("internal").unwrap_err().message(),
//!     "annotation lb.example.com/internal: \"yes\" is not a Boolean; write true or false"
//! );
//! ```
//!
//! An empty value counts as absent, as in most of upstream's providers. Every error is `invalid`:
//! the user has to change the Service.

use std::{fmt::Display, str::FromStr, time::Duration};

use crate::{Error, Result, Service};

/// The annotations of one Service under one prefix.
#[derive(Clone, Copy, Debug)]
pub struct Annotations<'a> {
    service: &'a Service,
    prefix: &'a str,
}

impl<'a> Annotations<'a> {
    /// The annotations whose keys begin with `prefix`, which may be empty. The methods take the
    /// rest of the key.
    #[must_use]
    pub const fn of(service: &'a Service, prefix: &'a str) -> Self {
        Self { service, prefix }
    }

    /// The value without blanks at its ends; none if it is absent or empty.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&'a str> {
        let found = self.service.annotations.iter().find(|(name, _)| name.strip_prefix(self.prefix) == Some(key));
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// A Boolean in one of the forms of Go's `strconv.ParseBool`: `true`, `True`, `TRUE`, `t`, `T`,
    /// `1`, and the same for false.
    ///
    /// # Errors
    ///
    /// `invalid` for any other text.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, "a Boolean; write true or false", |text| match text {
            "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
            "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
            _ => None,
        })
    }

    /// A value that Rust parses: a number, an IP address.
    ///
    /// # Errors
    ///
    /// `invalid` with the reason of the parser.
    pub fn parse<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|reason| self.invalid(key, format_args!("{text:?}: {reason}")))
    }

    /// A duration in the form of Go's `time.ParseDuration`, such as `15s`, `1m30s` or `500ms`.
    ///
    /// # Errors
    ///
    /// `invalid` for any other text, negative durations included.
    pub fn duration(&self, key: &str) -> Result<Option<Duration>> {
        self.read(key, "a duration; write a number with a unit, for example 15s or 1m30s", duration)
    }

    /// The value that `words` gives for the word of the annotation.
    ///
    /// # Errors
    ///
    /// `invalid` with the list of the words.
    pub fn one_of<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.invalid(key, format_args!("{text:?} is not supported; write one of {}", words.join(", ")))
        })
    }

    /// The parts between commas, without blanks and without empty parts; no part if the annotation
    /// is absent.
    #[must_use]
    pub fn list(&self, key: &str) -> Vec<&'a str> {
        let parts = self.text(key).into_iter().flat_map(|text| text.split(','));
        parts.map(str::trim).filter(|part| !part.is_empty()).collect()
    }

    /// Keys and values of the form `a=1,b=2`; a part without `=` has an empty value.
    #[must_use]
    pub fn pairs(&self, key: &str) -> Vec<(&'a str, &'a str)> {
        let pair = |part: &'a str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (key.trim(), value.trim())
        };
        self.list(key).into_iter().map(pair).filter(|(key, _)| !key.is_empty()).collect()
    }

    /// The error for a value that the provider itself refuses; the reason names the value and the
    /// remedy.
    pub fn invalid(&self, key: &str, reason: impl Display) -> Error {
        Error::Invalid(format!("annotation {}{key}: {reason}", self.prefix))
    }

    fn read<T>(&self, key: &str, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        read(text).map(Some).ok_or_else(|| self.invalid(key, format_args!("{text:?} is not {what}")))
    }
}

/// Units of Go's durations in nanoseconds; a unit that begins like another one comes first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration in the form of Go's `time.ParseDuration`, such as `15s`, `1m30s` or `500ms`; none for
/// any other text, negative durations included.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(end)?;
        let (unit, nanoseconds) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
        sum = sum.checked_add(Duration::from_nanos(whole.checked_mul(*nanoseconds)?))?;
        let mut scale = *nanoseconds;
        for digit in fraction.chars() {
            scale /= 10;
            sum = sum.checked_add(Duration::from_nanos(u64::from(digit.to_digit(10)?) * scale))?;
        }
        rest = after.strip_prefix(unit)?;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, time::Duration};

    use super::{Annotations, duration};
    use crate::{Error, Service};

    fn service(annotations: &[(&str, &str)]) -> Service {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Service { annotations, ..Service::new("default", "web", "uid") }
    }

    #[test]
    fn an_annotation_is_found_by_prefix_and_key_and_an_empty_one_is_absent() {
        let service = service(&[("a/key", " x "), ("a/empty", " "), ("b/key", "y"), ("key", "z")]);
        let annotations = Annotations::of(&service, "a/");
        assert_eq!(
            [annotations.text("key"), annotations.text("empty"), annotations.text("b/key")],
            [Some("x"), None, None]
        );
        assert_eq!(Annotations::of(&service, "").text("key"), Some("z"));
    }

    #[test]
    fn booleans_are_those_of_go() {
        let read = |text: &str| Annotations::of(&service(&[("b", text)]), "").bool("b");
        for (text, value) in [("true", true), ("T", true), ("1", true), ("False", false), ("0", false)] {
            assert_eq!(read(text), Ok(Some(value)), "{text}");
        }
        assert_eq!(read(""), Ok(None));
        let Err(Error::Invalid(message)) = read("tRUE") else { panic!("Go refuses it") };
        assert_eq!(message, "annotation b: \"tRUE\" is not a Boolean; write true or false");
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("15s", 15_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+5s", 5_000_000_000),
            ("500ms", 500_000_000),
            ("3us", 3_000),
            ("3µs", 3_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", "15", "s", "-1s", "1 s", ".s", "1m30", "9999999999999h", "1x", "1,5s", "١s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_word_that_is_not_supported_is_refused_with_the_list() {
        let service = service(&[("lb/algorithm", "random")]);
        let error = Annotations::of(&service, "lb/").one_of("algorithm", &[("round_robin", 1), ("least", 2)]);
        let message = "annotation lb/algorithm: \"random\" is not supported; write one of round_robin, least";
        assert_eq!(error, Err(Error::Invalid(message.to_owned())));
    }

    #[test]
    fn lists_and_pairs_leave_blanks_and_empty_parts_out() {
        let service = service(&[("l", " a, b ,,c"), ("p", "Team=net, owner = me ,=x,flag")]);
        let annotations = Annotations::of(&service, "");
        assert_eq!(annotations.list("l"), ["a", "b", "c"]);
        assert_eq!(annotations.list("none"), Vec::<&str>::new());
        assert_eq!(annotations.pairs("p"), [("Team", "net"), ("owner", "me"), ("flag", "")]);
    }

    #[test]
    fn a_parser_gives_its_reason() {
        let service = service(&[("ip", "10.0.0.1"), ("port", "70000")]);
        let annotations = Annotations::of(&service, "");
        assert_eq!(annotations.parse::<IpAddr>("ip"), Ok(Some(IpAddr::from([10, 0, 0, 1]))));
        let Err(Error::Invalid(message)) = annotations.parse::<u16>("port") else { panic!("too large") };
        assert_eq!(message, "annotation port: \"70000\": number too large to fit in target type");
    }
}

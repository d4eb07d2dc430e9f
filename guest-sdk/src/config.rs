//! The cloud-config: the text that the operator gives a provider.
//!
//! ```
//! use skysail_guest_sdk::config::{Checked, Ini};
//!
//! struct Config { endpoint: String, region: String }
//!
//! fn parse(text: &str) -> Checked<Config> {
//!     let mut ini = Ini::parse(text);
//!     let region: Option<String> = ini.optional("Global", "region");
//!     if region.is_none() {
//!         ini.warn("Global", "region", "is absent: region-1 is used");
//!     }
//!     let region = region.unwrap_or_else(|| "region-1".to_owned());
//!     let endpoint = ini.required("Global", "endpoint");
//!     ini.finish(Config { endpoint, region })
//! }
//!
//! // What `check-config` answers: everything, warnings too.
//! let problems = parse("[Global]\nendpoind = http://x\n").problems();
//! assert_eq!((problems[0].line, problems[0].key.as_str()), (0, "Global.region"));
//! assert_eq!((problems[1].line, problems[1].key.as_str()), (0, "Global.endpoint"));
//! assert_eq!((problems[2].line, problems[2].key.as_str()), (2, "Global.endpoind"));
//! // What a call uses, by `config::load(parse)`: a warning does not stop a call.
//! let config = parse("[Global]\nendpoint = http://x\n").config().unwrap();
//! assert_eq!(config.region, "region-1");
//! ```

mod flag;
mod ini;
mod name;
mod url;

use serde::de::DeserializeOwned;

pub use self::{flag::Flag, ini::Ini, name::Name, url::Url};
use crate::{Error, Problem, Result, Severity, bindings::imports::skysail::provider::config, native::host_only};

/// The text that `check-config` accepted; empty where the operator set none.
#[must_use]
#[track_caller]
pub fn text() -> String {
    host_only("config::text");
    config::text()
}

/// The cloud-config of this call, read by the function that `check-config` uses too. Warnings are
/// for `check-config` only: they do not fail a call.
///
/// # Errors
///
/// `invalid` with the first fatal problem: another release accepted the text, or no release did.
#[track_caller]
pub fn load<T>(parse: impl FnOnce(&str) -> Checked<T>) -> Result<T> {
    parse(&text()).config()
}

/// A cloud-config in JSON, or one fatal problem with its line. [`Checked::and_then`] checks the
/// values.
pub fn json<T: DeserializeOwned>(text: &str) -> Checked<T> {
    match serde_json::from_str(text) {
        Ok(config) => Checked::new(config, Vec::new()),
        Err(error) => {
            let line = u32::try_from(error.line()).unwrap_or(0);
            Checked::refused(Problem::fatal(line, "", error.to_string()))
        }
    }
}

/// A cloud-config after its check: the problems, and the configuration unless one of the problems
/// is fatal.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked<T> {
    config: Option<T>,
    problems: Vec<Problem>,
}

impl<T> Checked<T> {
    /// A configuration and its problems. A fatal problem discards the configuration.
    #[must_use]
    pub fn new(config: T, problems: Vec<Problem>) -> Self {
        let fatal = problems.iter().any(|problem| problem.severity == Severity::Fatal);
        Self { config: (!fatal).then_some(config), problems }
    }

    /// No configuration because of this problem, which should be fatal.
    #[must_use]
    pub fn refused(problem: Problem) -> Self {
        Self { config: None, problems: vec![problem] }
    }

    /// Checks more: the problems of both checks are kept, in their order.
    #[must_use]
    pub fn and_then<U>(self, check: impl FnOnce(T) -> Checked<U>) -> Checked<U> {
        let Self { config, mut problems } = self;
        match config.map(check) {
            Some(checked) => {
                problems.extend(checked.problems);
                Checked { config: checked.config, problems }
            }
            None => Checked { config: None, problems },
        }
    }

    /// The answer of `check-config`: fatal problems and warnings.
    #[must_use]
    pub fn problems(self) -> Vec<Problem> {
        self.problems
    }

    /// The configuration, whatever warnings there are.
    ///
    /// # Errors
    ///
    /// `invalid` with the first fatal problem.
    pub fn config(self) -> Result<T> {
        let Self { config, problems } = self;
        config.ok_or_else(|| {
            let fatal = problems.into_iter().find(|problem| problem.severity == Severity::Fatal);
            let place = fatal.map(|Problem { line, key, message, .. }| format!(", line {line}, {key}: {message}"));
            Error::Invalid(format!("cloud-config{}", place.unwrap_or_default()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Checked, Ini};
    use crate::{Error, Problem, Severity};

    #[test]
    fn json_problems_carry_their_line() {
        let problems = super::json::<Vec<u8>>("[1,\n2,\nx]").problems();
        assert_eq!(problems[0].line, 3);
        assert_eq!(super::json::<Vec<u8>>("[1]").config(), Ok(vec![1]));
    }

    #[test]
    fn a_refused_config_is_invalid_with_the_fatal_problem() {
        let problems = || vec![Problem::warning(1, "a", "odd"), Problem::fatal(2, "b", "wrong")];
        let config = Checked::new((), problems()).config();
        assert_eq!(config, Err(Error::Invalid("cloud-config, line 2, b: wrong".to_owned())));
        assert_eq!(Checked::new((), problems()).problems(), problems());
    }

    #[test]
    fn a_warning_is_reported_and_fails_no_call() {
        let parse = |text: &str| {
            let mut ini = Ini::parse(text);
            let zone: String = ini.required("Global", "zone");
            ini.warn("Global", "zone", "is deprecated; write region");
            ini.finish(zone)
        };
        let text = "[Global]\nzone = a\n";
        assert_eq!(parse(text).config(), Ok("a".to_owned()));
        let problems = parse(text).problems();
        assert_eq!(problems, [Problem::warning(2, "Global.zone", "is deprecated; write region")]);
        assert!(parse("[Global]\nzone = a\nzome = b\n").config().is_err(), "an unknown key is fatal");
    }

    #[test]
    fn a_second_check_keeps_the_problems_of_the_first() {
        let first = |severity| {
            let problem = Problem { severity, ..Problem::warning(1, "a", "odd") };
            Checked::new(1_u8, vec![problem])
        };
        let second = |number: u8| Checked::new(number + 1, vec![Problem::warning(2, "b", "odd too")]);
        let both = first(Severity::Warning).and_then(second);
        assert_eq!((both.clone().config(), both.problems().len()), (Ok(2), 2));
        assert_eq!(first(Severity::Fatal).and_then(second).problems().len(), 1);
    }
}

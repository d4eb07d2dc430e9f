//! The cloud-config: the text that the operator gives a provider.
//!
//! ```
//! use skysail_guest_sdk::{Problem, config::Ini};
//!
//! struct Config { endpoint: String, region: String }
//!
//! fn parse(text: &str) -> Result<Config, Vec<Problem>> {
//!     let mut ini = Ini::parse(text);
//!     let config = Config {
//!         endpoint: ini.required("Global", "endpoint"),
//!         region: ini.optional("Global", "region").unwrap_or_else(|| "region-1".to_owned()),
//!     };
//!     ini.finish(config)
//! }
//!
//! let problems = parse("[Global]\nendpoind = http://x\n").err().unwrap();
//! assert_eq!((problems[0].line, problems[0].key.as_str()), (0, "Global.endpoint"));
//! assert_eq!((problems[1].line, problems[1].key.as_str()), (2, "Global.endpoind"));
//! ```

mod ini;

use serde::de::DeserializeOwned;

pub use self::ini::Ini;
use crate::{Error, Problem, Result, Severity, bindings::imports::skysail::provider::config};

/// The text that `check-config` has accepted; empty where the operator gave none.
#[must_use]
pub fn text() -> String {
    config::text()
}

/// The cloud-config of this call, read by the function that `check-config` uses too.
///
/// # Errors
///
/// `invalid` with the first problem: the text was accepted by another release, or by nobody.
pub fn load<T>(parse: impl FnOnce(&str) -> Result<T, Vec<Problem>>) -> Result<T> {
    parse(&text()).map_err(|problems| invalid(&problems))
}

/// A cloud-config in JSON, with the line of what is wrong.
///
/// # Errors
///
/// One fatal problem.
pub fn json<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Problem>> {
    serde_json::from_str(text).map_err(|error| {
        let line = u32::try_from(error.line()).unwrap_or(0);
        vec![Problem::fatal(line, "", error.to_string())]
    })
}

fn invalid(problems: &[Problem]) -> Error {
    let worst = problems.iter().find(|problem| problem.severity == Severity::Fatal).or(problems.first());
    Error::Invalid(match worst {
        Some(problem) => format!("cloud-config, line {}, {}: {}", problem.line, problem.key, problem.message),
        None => "cloud-config was refused".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::{Error, Problem};

    #[test]
    fn json_problems_carry_their_line() {
        let problems = super::json::<Vec<u8>>("[1,\n2,\nx]").unwrap_err();
        assert_eq!(problems[0].line, 3);
        assert_eq!(super::json::<Vec<u8>>("[1]"), Ok(vec![1]));
    }

    #[test]
    fn a_refused_config_is_invalid_with_the_fatal_problem() {
        let problems = [Problem::warning(1, "a", "odd"), Problem::fatal(2, "b", "wrong")];
        assert_eq!(super::invalid(&problems), Error::Invalid("cloud-config, line 2, b: wrong".to_owned()));
    }
}

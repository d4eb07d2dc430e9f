//! The limits of one provider: one field for each limit of the sandbox, with its default, its range
//! and the reason for both.
//!
//! The provider file contains a [`Limits`] for each provider; an absent field has the default.
//! [`Limits::validate`] is called once, when the file is read. `call`, `store`, `imports` and the
//! compile jail enforce the limits.

use std::{fmt, time::Duration};

use skysail_provider::Limit;

use crate::http_client::HttpLimits;

/// Declares [`Limits`], its default values, a constant for each [`Bound`], and [`BOUNDS`].
macro_rules! limits {
    ($($(#[$doc:meta])* $field:ident: $bound:ident = { $($key:ident: $value:expr,)* })*) => {
        /// The limits of one provider. Every limit is a whole number; no value means "unlimited".
        // In the provider file the names are camelCase, and are those of `Limit::name`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct Limits {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $bound.default,)* }
            }
        }

        $(const $bound: Bound = Bound { $($key: $value,)* value: |limits| limits.$field };)*

        /// Range, default and reason of every limit, in the order of the fields of [`Limits`].
        pub const BOUNDS: [Bound; [$(stringify!($bound)),*].len()] = [$($bound),*];
    };
}

mod bounds;

pub use self::bounds::{BOUNDS, Limits};
pub(crate) use self::bounds::{DEADLINE_MS_MAX, FUEL_MAX};

/// The maximum number of linear memories that a component may have. Rust, C and Go need one,
/// adapters a second; the pool reserves address space for each.
pub(crate) const MEMORIES_MAX: u32 = 4;
/// The maximum number of tables that a component may have. A core module has one, and
/// `wit-component` adds one for its shims.
pub(crate) const TABLES_MAX: u32 = 32;
/// The maximum number of calls of one provider that wait for a place. A controller has tens of
/// workers; more waiting calls are a bug.
pub(crate) const CALLS_WAITING_MAX: u32 = 1024;
/// Longest line of a guest's log, in bytes; a longer line is truncated. An error of a cloud API
/// with its body is shorter.
pub(crate) const LOG_LINE_BYTES_MAX: usize = 4096;
/// The maximum number of fields of one log line; further fields are dropped. A line for people has
/// a few.
pub(crate) const LOG_FIELDS_MAX: usize = 32;
/// Longest reason of an Event, in bytes: the API's own bound.
pub(crate) const EVENT_REASON_BYTES_MAX: usize = 128;
/// Longest message of an Event, in bytes: the API's own bound.
pub(crate) const EVENT_MESSAGE_BYTES_MAX: usize = 1024;

/// Range, default and reason of one limit, and its effect.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// As in the provider file.
    pub name: &'static str,
    /// The unit of the value.
    pub unit: &'static str,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// The value if the provider file sets none.
    pub default: u64,
    /// What happens when the limit is reached.
    pub beyond: &'static str,
    /// Why this default and this range.
    pub reason: &'static str,
    /// The value in these limits.
    pub value: fn(&Limits) -> u64,
}

impl Bound {
    /// The error message for a value outside the range.
    fn problem(&self, limits: &Limits) -> Option<String> {
        let Self { name, unit, min, max, default, beyond: _, reason, value } = self;
        let value = value(limits);
        (value < *min || value > *max)
            .then(|| format!("{name} is {value}, and may be {min} to {max} {unit} (default {default}): {reason}"))
    }
}

/// Limits that are outside their ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LimitsError {
    /// One sentence for each wrong value: the limit, its value and the allowed range.
    pub problems: Vec<String>,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

impl Limits {
    /// Checks every value against its range, and the relations between values.
    ///
    /// # Errors
    /// [`LimitsError`] with a sentence for each wrong value, not only for the first.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let mut problems: Vec<String> = BOUNDS.iter().filter_map(|bound| bound.problem(self)).collect();
        if self.http_time_ms > self.deadline_ms {
            problems.push(format!(
                "httpTimeMs is {}, but a call ends after deadlineMs, {}: an exchange cannot take longer than its call",
                self.http_time_ms, self.deadline_ms
            ));
        }
        if problems.is_empty() { Ok(()) } else { Err(LimitsError { problems }) }
    }

    /// The part that is about HTTP, for [`crate::http_client::HttpClient`] and each call's budget.
    #[must_use]
    pub fn http(&self) -> HttpLimits {
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        HttpLimits {
            requests_per_call: number(self.http_requests),
            concurrency_per_call: number(self.http_concurrency),
            requests_per_second: number(self.http_requests_per_second),
            request_bytes_max: self.http_request_bytes,
            response_bytes_max: self.http_response_bytes,
            headers_max: number(self.http_headers),
            header_bytes_max: self.http_header_bytes,
            exchange_time_max: Duration::from_millis(self.http_time_ms),
        }
    }

    /// The value of one limit.
    #[must_use]
    pub fn value(&self, limit: Limit) -> u64 {
        let bound = BOUNDS.iter().find(|bound| bound.name == limit.name());
        bound.map_or(0, |bound| (bound.value)(self))
    }
}

/// A limit as `usize`; a larger value becomes `usize::MAX`.
pub(crate) fn as_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;

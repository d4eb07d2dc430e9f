//! The answers of providers as JSON, for people and for recordings.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use skysail_provider::{Error, Info, Instance, LoadBalancerStatus, OwnedLoadBalancer, Result, Route, Zone};

use crate::egress::Origin;

/// An answer of a function of the contract.
pub trait Answer {
    /// As `skysail call` prints it.
    fn json(&self) -> Value;
}

macro_rules! answers {
    ($($answer:ty),*) => {
        $(impl Answer for $answer {
            fn json(&self) -> Value {
                // The keys of all maps are texts, so that the conversion cannot fail.
                serde_json::to_value(self).unwrap_or_default()
            }
        })*
    };
}

answers!(
    (),
    String,
    Vec<String>,
    BTreeMap<String, String>,
    Info,
    LoadBalancerStatus,
    Option<LoadBalancerStatus>,
    Vec<OwnedLoadBalancer>,
    Vec<Route>,
    Zone
);

/// One entry for each result: the answer, or the code and the message of the error.
fn each<T: Serialize>(results: &[Result<T>]) -> Value {
    let entry = |result: &Result<T>| match result {
        Ok(answer) => json!({"ok": answer}),
        Err(error) => json!({"error": self::error(error)}),
    };
    results.iter().map(entry).collect()
}

impl Answer for Vec<Result<Instance>> {
    fn json(&self) -> Value {
        each(self)
    }
}

impl Answer for Vec<Result<()>> {
    fn json(&self) -> Value {
        each(self)
    }
}

/// Nameservers and search domains.
impl Answer for (Vec<String>, Vec<String>) {
    fn json(&self) -> Value {
        let (nameservers, searches) = self;
        json!({"nameservers": nameservers, "searches": searches})
    }
}

impl Answer for Vec<Origin> {
    fn json(&self) -> Value {
        self.iter().map(ToString::to_string).collect()
    }
}

/// The code and the message of an error, and the time until the next try.
pub(crate) fn error(error: &Error) -> Value {
    let Error { code, message, retry_after, limit: _, holds_deletion: _ } = error;
    match retry_after {
        None => json!({"code": code.category(), "message": message}),
        Some(after) => {
            let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            json!({"code": code.category(), "message": message, "retryAfterMs": after})
        }
    }
}

//! Values of the cloud-config that are more than text.

use std::{str::FromStr, time::Duration};

use skysail_guest_sdk::{annotations, labels::is_label_value};

/// Whole seconds, written as a duration of Go: `60s`, `1m30s`.
pub(super) struct Seconds(pub(super) u32);

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration =
            annotations::duration(text).ok_or("is not a duration; write a number with a unit, for example 5s")?;
        let seconds =
            u32::try_from(duration.as_secs()).ok().filter(|_| duration == Duration::from_secs(duration.as_secs()));
        seconds.filter(|seconds| *seconds > 0).map(Self).ok_or("is not a number of whole seconds; write at least 1s")
    }
}

/// The ID of an object of OpenStack: a UUID, or what another back end makes.
pub(super) struct Id(pub(super) String);

impl FromStr for Id {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !is_id(text) {
            return Err("is not an ID; write the ID that `openstack … show` prints, not the name");
        }
        Ok(Self(text.to_owned()))
    }
}

/// Whether the text can be an ID: letters, digits, `-` and `_`.
pub(crate) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 255 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// How often a health check may fail or has to succeed.
pub(super) struct Retries(pub(super) u32);

impl FromStr for Retries {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count = text.parse().ok().filter(|count| (1..=10).contains(count));
        count.map(Self).ok_or("is not a number of checks; write a number from 1 to 10")
    }
}

/// A number of Services.
pub(super) struct Count(pub(super) usize);

impl FromStr for Count {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| "is not a number of Services; write for example 2")
    }
}

/// How a pool chooses a member: what Octavia accepts.
pub(super) struct Method(pub(super) String);

impl FromStr for Method {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Ok(Self("ROUND_ROBIN".to_owned())),
            "ROUND_ROBIN" | "LEAST_CONNECTIONS" | "SOURCE_IP" | "SOURCE_IP_PORT" => Ok(Self(text.to_owned())),
            _ => Err("is not a method; write ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP or SOURCE_IP_PORT"),
        }
    }
}

/// The version of the load-balancer API. An empty text counts as absent.
pub(super) struct LbVersion;

impl FromStr for LbVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if ["", "v2"].contains(&text) { Ok(Self) } else { Err("is not supported; write v2, or remove the key") }
    }
}

/// Labels of nodes, as text; an empty one selects every node.
pub(super) struct Selector(pub(super) String);

impl FromStr for Selector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_label = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            !key.is_empty() && !key.contains(' ') && is_label_value(value)
        };
        let mut parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        if !parts.all(is_label) {
            return Err("is not a list of labels; write KEY=VALUE or KEY, with commas between");
        }
        Ok(Self(text.to_owned()))
    }
}

/// The end of a host name.
pub(super) struct Domain(pub(super) String);

impl FromStr for Domain {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !text.split('.').all(is_part) {
            return Err("is not a domain; write for example nip.io");
        }
        Ok(Self(text.to_owned()))
    }
}

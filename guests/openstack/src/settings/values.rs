//! Values of the cloud-config that are more than text.

use std::{str::FromStr, time::Duration};

use skysail_guest_sdk::annotations;

/// A Boolean in the words that the vendor's manager reads.
pub(super) struct Flag(pub(super) bool);

impl FromStr for Flag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(Self(true)),
            "false" | "no" | "off" | "0" => Ok(Self(false)),
            _ => Err("is not a Boolean; write true or false"),
        }
    }
}

/// Whole seconds, written as a duration of Go: `60s`, `1m30s`.
pub(super) struct Seconds(pub(super) u32);

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration =
            annotations::duration(text).ok_or("is not a duration; write a number with a unit, for example 5s")?;
        let seconds =
            u32::try_from(duration.as_secs()).ok().filter(|_| duration == Duration::from_secs(duration.as_secs()));
        seconds.filter(|seconds| *seconds > 0).map(Self).ok_or("must be whole seconds, at least 1s")
    }
}

/// An `http` or `https` URL without query, fragment and user.
#[derive(Default)]
pub(super) struct Url(pub(super) String);

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let rest = rest.ok_or("is not a URL; write https://HOST:PORT/PATH")?;
        if rest.is_empty() || rest.starts_with('/') || rest.contains(['?', '#', '@', '\\', ' ']) {
            return Err("must be https://HOST:PORT/PATH without user, query and fragment");
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl Url {
    /// The URL without a version of Keystone at its end.
    pub(super) fn without_version(self) -> String {
        let Self(url) = self;
        let cut = url.strip_suffix("/v3").or_else(|| url.strip_suffix("/v2.0")).unwrap_or(&url);
        cut.trim_end_matches('/').to_owned()
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

/// Text that is not empty.
pub(super) struct Name(pub(super) String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() { Err("is empty; write a name, or remove the key") } else { Ok(Self(text.to_owned())) }
    }
}

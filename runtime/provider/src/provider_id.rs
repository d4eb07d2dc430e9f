//! The parsed form of `spec.providerID`.

use std::{fmt, str::FromStr};

/// `<scheme>://<rest>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderId {
    text: String,
    scheme_len: usize,
}

/// A provider ID without a scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("provider ID {0:?} does not have the form <scheme>://<rest>")]
pub struct ParseProviderIdError(String);

impl ProviderId {
    /// Before `://`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.text.get(..self.scheme_len).unwrap_or_default()
    }

    /// After `://`.
    #[must_use]
    pub fn rest(&self) -> &str {
        self.text.get(self.scheme_len + 3..).unwrap_or_default()
    }

    /// The whole ID.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for ProviderId {
    type Err = ParseProviderIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once("://") {
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => {
                Ok(Self { scheme_len: scheme.len(), text: text.to_owned() })
            }
            _ => Err(ParseProviderIdError(text.chars().take(100).collect())),
        }
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::ProviderId;

    #[test]
    fn a_provider_id_has_a_scheme_and_a_rest() {
        let id: ProviderId = "openstack:///a/b".parse().unwrap();
        assert_eq!((id.scheme(), id.rest()), ("openstack", "/a/b"));
    }

    #[test]
    fn an_id_without_scheme_or_rest_is_refused() {
        for text in ["", "abc", "://x", "x://", "x:/y"] {
            assert!(text.parse::<ProviderId>().is_err(), "{text}");
        }
    }
}

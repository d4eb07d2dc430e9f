//! `spec.providerID`: `<scheme>://<rest>`.

use crate::{Error, Result};

/// `<scheme>://<rest>`.
#[must_use]
pub fn format(scheme: &str, rest: &str) -> String {
    format!("{scheme}://{rest}")
}

/// The part after `<scheme>://`, including a leading slash as in `openstack:///<id>`.
///
/// # Errors
///
/// `invalid` for another scheme and for an empty rest.
pub fn parse<'a>(scheme: &str, provider_id: &'a str) -> Result<&'a str> {
    match provider_id.split_once("://") {
        Some((found, rest)) if found == scheme && !rest.is_empty() => Ok(rest),
        _ => Err(Error::Invalid(format!("provider ID {provider_id:?} does not have the form {scheme}://<id>"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::Error;

    #[test]
    fn a_provider_id_is_read_back() {
        assert_eq!(super::parse("simcloud", &super::format("simcloud", "zone-a/i-1")), Ok("zone-a/i-1"));
    }

    #[test]
    fn a_foreign_or_empty_id_is_invalid() {
        for text in ["aws://i-1", "simcloud:/i-1", "simcloud://", "i-1", ""] {
            assert!(matches!(super::parse("simcloud", text), Err(Error::Invalid(_))), "{text}");
        }
    }
}

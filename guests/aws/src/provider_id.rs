//! `aws:///<zone>/<instance>`, and the older forms of it.

use skysail_guest_sdk::{Error, Result};

use crate::SCHEME;

/// The provider ID of a new node.
pub(crate) fn format(zone: &str, instance: &str) -> String {
    skysail_guest_sdk::provider_id::format(SCHEME, &format!("/{zone}/{instance}"))
}

/// The machine's ID: the last part of the path, or the whole text of an ID without a scheme.
///
/// # Errors
///
/// `invalid` for another scheme and for a text that is not the ID of a machine; Fargate's nodes
/// have no machine.
pub(crate) fn instance_of(provider_id: &str) -> Result<&str> {
    let wrong = || Error::Invalid(format!("provider ID {provider_id:?} does not have the form {SCHEME}:///ZONE/i-…"));
    let rest = match provider_id.split_once("://") {
        Some((SCHEME, rest)) => rest,
        Some(_) => return Err(wrong()),
        None => provider_id,
    };
    let id = rest.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if is_instance(id) { Ok(id) } else { Err(wrong()) }
}

/// Whether the text looks like `i-0123456789abcdef0`.
pub(crate) fn is_instance(text: &str) -> bool {
    text.strip_prefix("i-").is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use skysail_guest_sdk::Error;

    use super::instance_of;

    #[test]
    fn every_form_that_kubelets_write_is_read() {
        for id in ["aws:///eu-west-1a/i-12345678", "aws:////i-12345678", "aws:///i-12345678", "i-12345678"] {
            assert_eq!(instance_of(id), Ok("i-12345678"), "{id}");
        }
        assert_eq!(super::format("eu-west-1a", "i-12345678"), "aws:///eu-west-1a/i-12345678");
    }

    #[test]
    fn an_id_that_is_no_machines_is_invalid() {
        for id in ["", "aws://", "aws:///eu-west-1a/vol-1", "gce:///z/i-1", "aws:///a/i-", "aws:///a/i-1&x=y"] {
            assert!(matches!(instance_of(id), Err(Error::Invalid(_))), "{id}");
        }
    }
}

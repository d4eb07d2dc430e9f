//! What a status means in OpenStack, where that differs from HTTP.

use std::time::Duration;

use serde_json::Value;
use skysail_guest_sdk::{Error, http::Response};

/// Wait after a conflict that ends by itself.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);

/// Errors of Neutron, Nova and Octavia for a quota or a pool of addresses that is used up. They
/// have different statuses: 400, 403, 409.
const EXHAUSTED: [&str; 8] = [
    "OverQuota",
    "Quota exceeded",
    "Quota has been met",
    "IpAddressGenerationFailure",
    "ExternalIpAddressExhausted",
    "No more IP addresses available",
    "RoutesExhausted",
    "No valid host was found",
];

/// The error of a response; none where it is no error.
///
/// The SDK's meaning holds for all statuses but these: 400, 403 and 409 for a quota are
/// `exhausted`; 409 is `retry-after` where the object is busy and `unavailable` otherwise, because
/// another object is in the way; 412 is `retry-after`, because another client changed the object;
/// 404 is `not-found` only in the form of the service itself; 501 is `unsupported`, because the
/// driver lacks an option.
pub(crate) fn meaning(response: &Response) -> Option<Error> {
    let error = response.clone().check().err()?;
    Some(meant(response.status, &response.body, error))
}

/// The error that OpenStack means, instead of the SDK's for the status.
fn meant(status: u16, body: &[u8], error: Error) -> Error {
    let text = String::from_utf8_lossy(body);
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let message = || error.message().to_owned();
    match status {
        400 | 403 | 409 if says(&EXHAUSTED) => Error::Exhausted(message()),
        409 if says(&["immutable", "SecurityGroupInUse", "RevisionNumberConstraintFailed"]) => {
            Error::retry_after(CONFLICT_WAIT, message())
        }
        409 => Error::Unavailable(message()),
        // A gateway, or a wrong URL: the answer says nothing about the object.
        404 | 410 if !names_absent_object(body) => Error::Unavailable(format!(
            "{}; the answer is not that of the service about an object, so nothing is known to be gone: correct the \
             endpoint, or the gateway before the service",
            message()
        )),
        412 => Error::retry_after(CONFLICT_WAIT, message()),
        501 => Error::Unsupported(message()),
        _ => error,
    }
}

/// Whether the service says that an object does not exist: Nova, Neutron, Octavia and Barbican each
/// have a form of their own. An unknown path has the form of the library `WebOb` in Nova and
/// Octavia, and the type `HTTPNotFound` in Neutron.
fn names_absent_object(body: &[u8]) -> bool {
    let Ok(said) = serde_json::from_slice::<Value>(body) else { return false };
    let nova = said.get("itemNotFound").is_some_and(Value::is_object);
    let neutron = said.pointer("/NeutronError/type").and_then(Value::as_str);
    let octavia = said.get("faultcode").zip(said.get("faultstring")).is_some();
    let barbican = said.get("code").is_some_and(Value::is_u64) && said.get("description").is_some();
    nova || neutron.is_some_and(|kind| kind != "HTTPNotFound") || octavia || barbican
}

#[cfg(test)]
mod tests {
    use skysail_guest_sdk::Error;

    use super::meant;

    #[test]
    fn an_object_is_gone_only_in_the_words_of_its_service() {
        let answer = |said: &str| meant(404, said.as_bytes(), Error::NotFound("GET u: status 404".to_owned()));
        for said in [
            r#"{"itemNotFound": {"code": 404, "message": "Instance u could not be found."}}"#,
            r#"{"NeutronError": {"type": "FloatingIPNotFound", "message": "Floating IP f", "detail": ""}}"#,
            r#"{"faultcode": "Client", "faultstring": "Load Balancer l not found.", "debuginfo": null}"#,
            r#"{"code": 404, "title": "Not Found", "description": "Secret not found."}"#,
        ] {
            assert!(answer(said).is_not_found(), "{said}");
        }
        for said in [
            r#"{"message": "no Route matched with those values"}"#,
            r#"{"message": "The resource could not be found.", "code": "404 Not Found", "title": "Not Found"}"#,
            r#"{"NeutronError": {"type": "HTTPNotFound", "message": "The resource could not be found."}}"#,
            r#"{"error": {"code": 404, "message": "Could not find", "title": "Not Found"}}"#,
            "{}",
            "[]",
            "404 page not found",
        ] {
            assert!(matches!(answer(said), Error::Unavailable(text) if text.contains("endpoint")), "{said}");
        }
    }
}

//! What a status means in OpenStack, where that differs from HTTP.

use std::time::Duration;

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
/// 404 is `not-found` only from OpenStack itself, whose errors are JSON; 501 is `unsupported`,
/// because the driver lacks an option.
pub(crate) fn meaning(response: &Response) -> Option<Error> {
    let error = response.clone().check().err()?;
    let body = String::from_utf8_lossy(&response.body);
    let says = |words: &[&str]| words.iter().any(|word| body.contains(word));
    let message = || error.message().to_owned();
    Some(match response.status {
        400 | 403 | 409 if says(&EXHAUSTED) => Error::Exhausted(message()),
        409 if says(&["immutable", "SecurityGroupInUse", "RevisionNumberConstraintFailed"]) => {
            Error::retry_after(CONFLICT_WAIT, message())
        }
        409 => Error::Unavailable(message()),
        // A proxy, or a wrong URL: it says nothing about the object.
        404 | 410 if !is_object(&response.body) => Error::Unavailable(message()),
        412 => Error::retry_after(CONFLICT_WAIT, message()),
        501 => Error::Unsupported(message()),
        _ => error,
    })
}

fn is_object(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body).is_ok()
}

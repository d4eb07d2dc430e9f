//! What a status means in OpenStack, where that differs from HTTP.

use std::time::Duration;

use serde_json::Value;
use skysail_guest_sdk::{Error, http::Response};

/// Wait after a conflict that ends by itself.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);

/// Longest answer with a good status that is searched for an error, in bytes: a list is longer.
const SEARCHED_BYTES_MAX: usize = 2_000;

/// Errors of Neutron, Nova and Octavia for a pool of addresses that is used up, and for a quota.
/// They have different statuses: 400, 403, 409, and 500 where Octavia repeats Neutron's.
const NO_ADDRESS: [&str; 4] = [
    "IpAddressGenerationFailure",
    "ExternalIpAddressExhausted",
    "No more IP addresses available",
    "Unable to find any IP address",
];
const OVER_QUOTA: [&str; 5] =
    ["OverQuota", "Quota exceeded", "Quota has been met", "RoutesExhausted", "No valid host was found"];

/// The error of a response; none where it is no error.
///
/// The SDK's meaning holds for all statuses but these: 400, 403, 409 and 500 for a quota or for
/// addresses are `exhausted`; 409 is `retry-after` where the object is busy and `unavailable`
/// otherwise, because another object is in the way; 412 is `retry-after`, because another client
/// changed the object; 404 is `not-found` only in the form of the service itself; 501 is
/// `unsupported`, because the driver lacks an option. An error in an answer with a good status is
/// `unavailable`.
pub(crate) fn meaning(response: &Response) -> Option<Error> {
    let Response { status, body, .. } = response;
    match response.clone().check() {
        Ok(_) if body.len() > SEARCHED_BYTES_MAX => None,
        Ok(_) => {
            let said = said(body)?;
            let said = said.trim_end_matches('.');
            Some(Error::Unavailable(response.message(&format!("an error in a successful answer: {said}{OF_GATEWAY}"))))
        }
        Err(error) => Some(meant(*status, body, error)),
    }
}

const OF_GATEWAY: &str = "; correct the endpoint, or the gateway before the service";

/// The error that OpenStack means, instead of the SDK's for the status, with the remedy.
fn meant(status: u16, body: &[u8], error: Error) -> Error {
    let text = String::from_utf8_lossy(body);
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // The SDK's message lacks Neutron's name of the error.
    let kind = neutron_type(body).filter(|kind| !error.message().contains(kind.as_str()));
    let message = error.message().trim_end_matches('.');
    let message = kind.map_or_else(|| message.to_owned(), |kind| format!("{message} ({kind})"));
    let with = |remedy: &str| format!("{message}{remedy}");
    match status {
        400 | 403 | 409 | 500 if says(&NO_ADDRESS) => Error::Exhausted(with(
            "; release addresses, or name another network or subnet in [LoadBalancer] or in the annotations",
        )),
        400 | 403 | 409 | 500 if says(&OVER_QUOTA) => {
            Error::Exhausted(with("; delete what nobody needs, or let the operator of the cloud raise the quota"))
        }
        409 if says(&["immutable", "SecurityGroupInUse", "RevisionNumberConstraintFailed"]) => {
            Error::retry_after(CONFLICT_WAIT, message)
        }
        409 => Error::Unavailable(with("; delete or change the object that is in the way")),
        // A gateway, or a wrong URL: the answer says nothing about the object.
        404 | 410 if !names_absent_object(body) => Error::Unavailable(format!(
            "{message}; the answer is not that of the service about an object, so nothing is known to be gone: correct the \
             endpoint, or the gateway before the service"
        )),
        412 => Error::retry_after(CONFLICT_WAIT, message),
        501 => Error::Unsupported(with("; remove the option, or choose another lb-provider in [LoadBalancer]")),
        401 => error.with_message(with("; correct the login in spec.credentials of the provider")),
        403 => error.with_message(with("; give the account the roles member and load-balancer_member on the project")),
        400 | 422 => error.with_message(with("; correct the annotations of the Service, or the cloud-config")),
        _ if status < 300 || body.trim_ascii_start().starts_with(b"<") => error.with_message(with(OF_GATEWAY)),
        _ => error.with_message(message),
    }
}

/// Neutron's name of an error.
fn neutron_type(body: &[u8]) -> Option<String> {
    let said: Value = serde_json::from_slice(body).ok()?;
    said.pointer("/NeutronError/type")?.as_str().map(str::to_owned)
}

/// The error that a body holds, whatever the status is; none where it holds none.
fn said(body: &[u8]) -> Option<String> {
    let content: Value = serde_json::from_slice(body).ok()?;
    let text = |member: &Value, key: &str| member.get(key)?.as_str().map(str::to_owned);
    if let Some(fault) = text(&content, "faultstring") {
        return Some(fault);
    }
    let only = content.as_object().filter(|members| members.len() == 1)?.values().next()?;
    let is_error = ["code", "type"].iter().any(|key| only.get(key).is_some());
    text(only, "message").filter(|_| is_error)
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

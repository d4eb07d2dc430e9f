//! The errors of the API: one reaction for each code.

use std::time::Duration;

use serde::{Deserialize, de::DeserializeOwned};
use skysail_guest_sdk::{Error, http::Response, text::cut};

/// Wait after `locked` and `conflict`, and between two questions about an action: most actions take
/// a second or two.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// Longest wait after `rate_limit_exceeded`.
///
/// `RateLimit-Reset` is the time at which the whole budget is there again, up to an hour away; one
/// request becomes available each second, and a minute is enough for a call.
const RATE_LIMIT_WAIT_MAX: Duration = Duration::from_secs(60);

/// Longest part of the cloud's message that is repeated, in bytes.
const MESSAGE_BYTES_MAX: usize = 300;

/// A request that failed: the code of the API, for a caller that reacts to one, and the contract's
/// error.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    /// Empty where the response was not an error of this API.
    pub(crate) code: String,
    pub(crate) error: Error,
}

impl Refusal {
    /// The reaction to an error of the API.
    pub(crate) fn new(status: u16, code: String, wait: Duration, message: String) -> Self {
        let error = meaning(&code, wait, message.clone()).unwrap_or(match status {
            401 | 403 => Error::Denied(message),
            400..500 => Error::Invalid(message),
            _ => Error::Unavailable(message),
        });
        let remedy = remedy(&code, &error);
        let message = format!("{}{remedy}", error.message());
        Self { code, error: error.with_message(message) }
    }

    /// The same about this object, where the request does not name it.
    pub(crate) fn about(self, object: &str) -> Self {
        Self { error: self.error.context(object), ..self }
    }

    /// Whether the cloud refused the content of the request: repeating it is of no use.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self.error, Error::Invalid(_) | Error::Exhausted(_) | Error::NotFound(_))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { code: String::new(), error }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

/// The body of every error.
#[derive(Debug, Deserialize)]
struct Body {
    error: Said,
}

/// What the cloud said, in a response or in a failed action.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Said {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Clone, Debug, Deserialize)]
struct Details {
    #[serde(default)]
    fields: Vec<Field>,
}

/// A field that `invalid_input` is about.
#[derive(Clone, Debug, Deserialize)]
struct Field {
    #[serde(default)]
    name: String,
    #[serde(default)]
    messages: Vec<String>,
}

impl Said {
    /// `message (code); fields`, cut to a length that fits into an Event.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} ({})", self.message, self.code);
        for Field { name, messages } in self.details.iter().flat_map(|details| &details.fields) {
            text.push_str(&format!("; {name}: {}", messages.join(", ")));
        }
        cut(&text, MESSAGE_BYTES_MAX)
    }
}

/// The content of a response.
///
/// # Errors
///
/// `not-found` only for the API's own code `not_found`: a proxy in between answers 404, too. An
/// error with a status below 300 is an error.
pub(crate) fn read<T: DeserializeOwned>(response: Response) -> Result<T, Refusal> {
    let wrong = match response.status {
        ..300 => match response.json() {
            Ok(content) => return Ok(content),
            Err(error) => Some(error),
        },
        _ => None,
    };
    if let Ok(Body { error: said }) = serde_json::from_slice::<Body>(&response.body) {
        let wait = response.retry_after().unwrap_or(AGAIN).min(RATE_LIMIT_WAIT_MAX);
        let message = response.message(&said.text());
        return Err(Refusal::new(response.status, said.code, wait, message));
    }
    Err(unknown(response, wrong).into())
}

/// A response that is not one of this API: of a proxy, or of a wrong endpoint. `wrong` is why a
/// response without an error cannot be read.
fn unknown(response: Response, wrong: Option<Error>) -> Error {
    let foreign = |error: Error| {
        let said = error.message();
        let message = format!(
            "{said}; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API"
        );
        error.with_message(message)
    };
    match response.check() {
        Err(Error::NotFound(message)) => foreign(Error::Unavailable(message)),
        Err(Error::Invalid(message)) => foreign(Error::Internal(message)),
        Err(Error::RetryAfter(mut retry)) => {
            let most = u64::try_from(RATE_LIMIT_WAIT_MAX.as_millis()).unwrap_or(u64::MAX);
            retry.after_ms = retry.after_ms.min(most);
            Error::RetryAfter(retry)
        }
        Err(error @ Error::Internal(_)) => error,
        Err(error) => foreign(error),
        Ok(response) => foreign(wrong.unwrap_or_else(|| Error::Internal(response.message("not an error")))),
    }
}

/// What the user can do about a code; empty where a later call helps.
fn remedy(code: &str, error: &Error) -> &'static str {
    match (code, error) {
        ("token_readonly" | "forbidden", _) => "; use a token with Read & Write",
        (_, Error::Denied(_)) => "; write a valid token of the project into the credential",
        ("no_subnet_available", _) => "; add a subnet to the network, or release addresses",
        ("resource_limit_exceeded", _) => "; delete what nobody needs, or ask Hetzner for a higher limit",
        (_, Error::Exhausted(_)) => "; choose another location or type, or wait",
        ("uniqueness_error", _) => "; choose another name",
        (_, Error::Invalid(_)) => {
            "; correct the annotations of the Service or the cloud-config, or change what is in the way in the cloud"
        }
        _ => "",
    }
}

/// The reaction to a code that has one whatever the status is; none for a fault of the request.
fn meaning(code: &str, wait: Duration, message: String) -> Option<Error> {
    Some(match code {
        "unauthorized" | "forbidden" | "token_readonly" => Error::Denied(message),
        "not_found" => Error::NotFound(message),
        "rate_limit_exceeded" => Error::retry_after(wait, message),
        "conflict" | "locked" => Error::retry_after(AGAIN, message),
        "resource_limit_exceeded" | "resource_unavailable" | "placement_error" | "no_subnet_available" => {
            Error::Exhausted(message)
        }
        "maintenance" | "robot_unavailable" | "server_error" | "service_error" | "timeout" | "unavailable" => {
            Error::Unavailable(message)
        }
        "deprecated_api_endpoint" | "json_error" | "method_not_allowed" => Error::Internal(message),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skysail_guest_sdk::Error;

    use super::{AGAIN, Body, meaning};

    fn reaction(code: &str) -> Option<Error> {
        meaning(code, Duration::from_secs(30), "text".to_owned())
    }

    #[test]
    fn each_code_has_its_reaction() {
        let text = || "text".to_owned();
        assert_eq!(reaction("token_readonly"), Some(Error::Denied(text())));
        assert_eq!(reaction("not_found"), Some(Error::NotFound(text())));
        assert_eq!(reaction("resource_limit_exceeded"), Some(Error::Exhausted(text())));
        assert_eq!(reaction("locked"), Some(Error::retry_after(AGAIN, text())));
        assert_eq!(reaction("rate_limit_exceeded"), Some(Error::retry_after(Duration::from_secs(30), text())));
        assert_eq!(reaction("deprecated_api_endpoint"), Some(Error::Internal(text())), "status 410 is no `not-found`");
        assert_eq!(reaction("source_port_already_used"), None);
    }

    #[test]
    fn the_text_names_each_invalid_field_and_has_a_bound() {
        let body: Body = serde_json::from_str(
            r#"{"error": {"code": "invalid_input", "message": "invalid input in field 'name'",
                "details": {"fields": [{"name": "name", "messages": ["is too long", "is used"]}]}}}"#,
        )
        .unwrap();
        assert_eq!(body.error.text(), "invalid input in field 'name' (invalid_input); name: is too long, is used");
        let long = serde_json::json!({"error": {"code": "x", "message": "ä".repeat(1_000), "details": null}});
        let text = serde_json::from_value::<Body>(long).unwrap().error.text();
        assert!(text.len() < 310 && text.ends_with('…'), "{text}");
    }
}

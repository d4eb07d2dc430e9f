//! A recording: one call of a provider as a document, with everything that the component received
//! from outside.
//!
//! The document is JSON with a stable order of its fields. [`crate::CallRecorder::recording`] makes
//! recordings, and [`crate::CallRecorder::replaying`] answers a call from one. A recording is taken
//! on the component's side of the host: it has no credential, because the host adds credentials
//! after the component released the request, and removes them from the response.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Value, error::Category};
use skysail_provider::Limit;

use crate::{Limits, bindings::CONTRACT_VERSION, http_client};

mod body;
mod redact;
#[cfg(test)]
mod tests;

pub(crate) use self::redact::each_text;
pub use self::{
    body::Body,
    redact::{Redact, RuleError},
};

/// The format that this version writes and reads.
pub const FORMAT: &str = "skysail.dev/recording/v1";

/// What the formats of all versions begin with.
const FAMILY: &str = "skysail.dev/recording/";

/// The maximum number of bytes that one call may receive to be recorded.
///
/// A larger call is recorded without the rest, as incomplete: 16 MiB are far more than a call
/// within the default limits usually reads, and a person's tools can still read a file of this
/// size.
pub const RECORDING_BYTES_MAX: u64 = 16 << 20;

/// One call of a provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recording {
    /// [`FORMAT`].
    pub format: String,
    /// The version of the contract.
    pub contract: String,
    /// Name of the provider in the provider file.
    pub provider: String,
    /// Digest of the component.
    pub component: String,
    /// Interface and function of the contract: `load-balancers.ensure`.
    pub function: String,
    /// The arguments by their names.
    pub arguments: Value,
    /// The cloud-config.
    pub config: String,
    /// The limits of the call.
    pub limits: Limits,
    /// The level from which on the host keeps the component's log lines.
    pub log_level: LogLevel,
    /// The rules of the redaction, as [`Redact::parse`] reads them.
    pub redact: Vec<String>,
    /// What the component read from the clocks.
    pub clock: ClockReadings,
    /// The random bytes that the component received, in base64.
    #[serde(with = "body::base64")]
    pub random: Vec<u8>,
    /// For each key of the cache that the call read before it wrote it: the value, or null for an
    /// absent key.
    pub cache: BTreeMap<String, Option<Body>>,
    /// Whether the host searched the responses for credentials, which costs fuel.
    pub redacts_responses: bool,
    /// The HTTP requests, in the order in which they began.
    pub requests: Vec<Exchange>,
    /// `{"ok": ANSWER}` or `{"error": {"code", "message"}}`; null if the call was cancelled.
    pub answer: Option<Value>,
    /// What the call used.
    pub cost: Cost,
    /// Whether the recording has everything that the component received: false for a call beyond
    /// [`RECORDING_BYTES_MAX`].
    pub complete: bool,
}

/// What a component read from the clocks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClockReadings {
    /// Times since 1970.
    pub wall: Vec<Reading>,
    /// Times since the start of the call.
    pub monotonic: Vec<Reading>,
}

/// One reading of a clock. In a recording it is a text: seconds, a point, nine digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading(pub Duration);

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}.{:09}", self.0.as_secs(), self.0.subsec_nanos()))
    }
}

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let read = text.split_once('.').filter(|(_, digits)| digits.len() == 9).and_then(|(seconds, digits)| {
            let nanos = digits.parse().ok()?;
            Some(Duration::new(seconds.parse().ok()?, nanos))
        });
        read.map(Self)
            .ok_or_else(|| D::Error::custom(format!("the clock's reading {text:?} is not seconds with nine decimals")))
    }
}

/// The level from which on log lines are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// No line is kept.
    Off,
    /// Errors.
    Error,
    /// And warnings.
    Warn,
    /// And information.
    Info,
    /// And lines for debugging.
    Debug,
    /// All lines.
    Trace,
}

/// One HTTP request as the component made it, and its result as the component received it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exchange {
    /// `GET`, `POST`, …
    pub method: String,
    /// As the component wrote it.
    pub url: String,
    /// `name: value`, in the component's order.
    pub headers: Vec<String>,
    /// Name of the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// None if the request has no timeout of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// None if the request has no body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// The response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Response>,
    /// Why there is no response. Neither a response nor a failure: the call ended, or the component
    /// gave the request up, before there was either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Response {
    /// 200 to 599.
    pub status: u16,
    /// `name: value`, in the order received.
    pub headers: Vec<String>,
    /// None for an empty body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// The case in the contract: `unreachable`.
    pub kind: String,
    /// For people.
    pub message: String,
    /// The size of a response that is too large, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The limit that was the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitHit>,
}

/// A limit that was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitHit {
    /// As in the provider file.
    pub name: String,
    /// The amount used.
    pub used: u64,
    /// The amount allowed.
    pub max: u64,
}

/// What a call used: the part that does not depend on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cost {
    /// CPU work.
    pub fuel: u64,
    /// Peak memory.
    pub memory_bytes: u64,
    /// Requests that left the sandbox.
    pub requests: u64,
}

/// Why a file is no recording that can be replayed. The message names the reason and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// Another document.
    #[error(
        "it is not a recording ({reason}); name a file or a folder that `skysail call --record`, `skysail dev --record` or \
         `skysail run --record-failures` wrote"
    )]
    NotARecording {
        /// Why.
        reason: String,
    },
    /// The file was not written completely.
    #[error("the file ends in the middle of the recording; record the call again, or copy the whole file")]
    Truncated,
    /// Written by a version with another format.
    #[error(
        "its format is {found}, and this version of skysail reads {}; replay it with the version that wrote it, or record the call \
         again",
        FORMAT
    )]
    Format {
        /// The format.
        found: String,
    },
    /// Of a component with another version of the contract.
    #[error(
        "it is a call of the contract {found}, and this version of skysail has the contract {}; replay it with the version that \
         wrote it, or record the call again",
        CONTRACT_VERSION
    )]
    Contract {
        /// The version of the contract.
        found: String,
    },
    /// The call was too large.
    #[error(
        "it is incomplete, because the call received more than {} MiB; record a call with fewer nodes or a smaller response",
        RECORDING_BYTES_MAX >> 20
    )]
    Incomplete,
    /// The document was edited, or is damaged.
    #[error("the recording is damaged; undo the edit, or record the call again")]
    Damaged(#[source] serde_json::Error),
}

/// What every format has.
#[derive(Deserialize)]
struct Head {
    format: String,
    contract: String,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordingError> {
        let head: Head = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            Category::Eof if bytes.trim_ascii_start().first() == Some(&b'{') => RecordingError::Truncated,
            Category::Syntax if bytes.windows(FAMILY.len()).any(|part| part == FAMILY.as_bytes()) => {
                RecordingError::Damaged(error)
            }
            _ => RecordingError::NotARecording { reason: error.to_string() },
        })?;
        if head.format != FORMAT {
            return Err(RecordingError::Format { found: head.format });
        }
        if head.contract != CONTRACT_VERSION {
            return Err(RecordingError::Contract { found: head.contract });
        }
        let recording: Self = serde_json::from_slice(bytes).map_err(RecordingError::Damaged)?;
        recording.check()?;
        if recording.complete { Ok(recording) } else { Err(RecordingError::Incomplete) }
    }

    /// Checks what the types leave open.
    fn check(&self) -> Result<(), RecordingError> {
        let damaged = |reason: String| RecordingError::Damaged(serde_json::Error::custom(reason));
        for failure in self.requests.iter().filter_map(|exchange| exchange.failure.as_ref()) {
            if failure.to_client().is_none() {
                return Err(damaged(format!("the failure {failure:?} has a kind or a limit that does not exist")));
            }
        }
        Redact::parse(&self.redact).map(drop).map_err(|error| damaged(error.to_string()))
    }
}

// === requests ===

impl Exchange {
    /// A request without its result.
    pub(crate) fn new(request: &http_client::HttpRequest) -> Self {
        let http_client::HttpRequest { method, url, headers, body, credential, timeout } = request;
        Self {
            method: method.clone(),
            url: url.clone(),
            headers: lines(headers),
            credential: credential.clone(),
            timeout_ms: timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            body: body.clone().map(Body),
            response: None,
            failure: None,
        }
    }

    pub(crate) fn answered(&mut self, answer: &Result<http_client::HttpResponse, http_client::Failure>) {
        match answer {
            Ok(response) => {
                let http_client::HttpResponse { status, headers, body } = response;
                let body = (!body.is_empty()).then(|| Body(body.clone()));
                self.response = Some(Response { status: *status, headers: lines(headers), body });
            }
            Err(failure) => self.failure = Some(Failure::of_client(failure)),
        }
    }

    /// The result; none if there was none before the call ended.
    pub(crate) fn answer(&self) -> Option<Result<http_client::HttpResponse, http_client::Failure>> {
        if let Some(Response { status, headers, body }) = &self.response {
            let body = body.as_ref().map(|Body(bytes)| bytes.clone()).unwrap_or_default();
            return Some(Ok(http_client::HttpResponse { status: *status, headers: pairs(headers), body }));
        }
        self.failure.as_ref().and_then(Failure::to_client).map(Err)
    }

    /// Whether the other request may have the result of this one: it has the same method, URL and
    /// body. A header and a credential change no resource of a cloud.
    #[must_use]
    pub fn is_for(&self, other: &Self) -> bool {
        (&self.method, &self.url, &self.body) == (&other.method, &other.url, &other.body)
    }
}

fn lines(headers: &[(String, String)]) -> Vec<String> {
    headers.iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

fn pairs(headers: &[String]) -> Vec<(String, String)> {
    let pair = |line: &String| {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        (name.to_owned(), value.to_owned())
    };
    headers.iter().map(pair).collect()
}

impl Failure {
    fn of_client(failure: &http_client::Failure) -> Self {
        let http_client::Failure { kind, message, limit } = failure;
        let bytes = match kind {
            http_client::FailureKind::TooLarge(bytes) => Some(*bytes),
            _ => None,
        };
        let limit = limit.map(|hit| LimitHit { name: hit.limit.name().to_owned(), used: hit.used, max: hit.max });
        Self { kind: kind.name().to_owned(), message: message.clone(), bytes, limit }
    }

    fn to_client(&self) -> Option<http_client::Failure> {
        let kind = http_client::FailureKind::parse(&self.kind, self.bytes.unwrap_or_default())?;
        let limit = match &self.limit {
            None => None,
            Some(LimitHit { name, used, max }) => {
                let limit = Limit::ALL.into_iter().find(|limit| limit.name() == name)?;
                Some(skysail_provider::LimitHit { limit, used: *used, max: *max })
            }
        };
        Some(http_client::Failure { limit, ..http_client::Failure::new(kind, &self.message) })
    }
}

//! Reading responses: the meaning of a status, and the content of a body.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{
    Error, Result,
    bindings::imports::skysail::provider::http::{Failure, Response as RawResponse},
    text::cut,
};

/// Longest part of an error's body that is quoted, in bytes: the host cuts messages at 900.
const DETAIL_BYTES_MAX: usize = 300;

/// The first number that is a time since 1970 and not a wait: 2001 as a time, 31 years as a wait.
const SECONDS_SINCE_1970_MIN: u64 = 1_000_000_000;
/// The same for milliseconds.
const MILLISECONDS_SINCE_1970_MIN: u64 = SECONDS_SINCE_1970_MIN * 1_000;

/// What a response means in a cloud that does not follow the usual statuses; none where it does.
/// See [`Api::judged_by`](super::Api::judged_by).
pub type Judge = fn(&Response) -> Option<Error>;

/// A response. [`Response::check`] turns statuses of 300 and above into errors.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Method and URL of the request, for messages.
    line: String,
    /// HTTP status.
    pub status: u16,
    /// Names in lower case, in the order received.
    pub headers: Vec<(String, String)>,
    /// Decompressed.
    pub body: Vec<u8>,
}

impl Response {
    /// A response as a native test of a provider makes it: what its [`Judge`] and its readers say
    /// about an answer can be tested without a host. `request` is method and URL, for messages; the
    /// names of the headers are in lower case.
    #[must_use]
    pub fn new(request: &str, status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { line: request.to_owned(), status, headers, body: body.into() }
    }

    pub(super) fn from_answer(line: String, answer: Result<RawResponse, Failure>) -> Result<Self> {
        match answer {
            Ok(RawResponse { status, headers, body, extra: _ }) => Ok(Self { line, status, headers, body }),
            Err(failure) => Err(Error::from(failure).context(&line)),
        }
    }

    /// The first header of this name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; an empty body is `null`.
    ///
    /// # Errors
    ///
    /// `internal` where the body does not have the shape of `T`, `unavailable` where it is no JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let body = if self.body.is_empty() { b"null".as_slice() } else { &self.body };
        serde_json::from_slice(body).map_err(|error| Error::from(error).context(&self.line))
    }

    /// The target of `Link: <…>; rel="next"`.
    #[must_use]
    pub fn next_link(&self) -> Option<&str> {
        let headers = self.headers.iter().filter(|(key, _)| key == "link").map(|(_, value)| value.as_str());
        headers.flat_map(|value| value.split('<').skip(1)).find_map(|link| {
            // A target may have commas, but no angle brackets.
            let (target, parameters) = link.split_once('>')?;
            parameters.split(';').any(is_next).then_some(target)
        })
    }

    /// The response, if its status is below 300.
    ///
    /// # Errors
    ///
    /// One reaction for each status: 401 and 403 `denied`, 404 and 410 `not-found`, 408, 425 and
    /// 5xx `unavailable`, 409 and 423 `retry-after` (another client changes the resource), 413, 422
    /// and 400 `invalid`, 402 and 507 `exhausted`, 429 `retry-after`; 413 and 503 with
    /// `Retry-After` `retry-after`; redirects, which are not followed, and all others `internal`.
    /// A page in HTML with a status below 300, 404 or 410 is `unavailable`: a gateway answered in
    /// place of the API, so nothing was done, and nothing is known to be gone. A cloud that uses a
    /// status differently needs [`Api::judged_by`](super::Api::judged_by).
    pub fn check(self) -> Result<Self> {
        if self.is_html() && (self.status < 300 || matches!(self.status, 404 | 410)) {
            return Err(Error::Unavailable(self.message("a page in HTML, which is not an answer of the API")));
        }
        if self.status < 300 {
            return Ok(self);
        }
        let message = self.message(&self.detail());
        Err(match self.status {
            401 | 403 => Error::Denied(message),
            404 | 410 => Error::NotFound(message),
            413 | 503 if self.retry_after().is_some() => {
                Error::retry_after(self.retry_after().unwrap_or_default(), message)
            }
            400 | 413 | 422 => Error::Invalid(message),
            402 | 507 => Error::Exhausted(message),
            409 | 423 | 429 => Error::retry_after(self.retry_after().unwrap_or_default(), message),
            408 | 425 | 500..=599 => Error::Unavailable(message),
            _ => Error::Internal(message),
        })
    }

    fn is_html(&self) -> bool {
        let media_type = self.header("content-type").and_then(|value| value.split(';').next()).unwrap_or_default();
        media_type.trim().eq_ignore_ascii_case("text/html")
    }

    /// The response, if neither the judge nor [`Response::check`] finds an error in it.
    pub(super) fn judged(self, judge: Option<Judge>) -> Result<Self> {
        match judge.and_then(|judge| judge(&self)) {
            Some(error) => Err(error),
            None => self.check(),
        }
    }

    /// The message of an error: the request, the status, and what the cloud said.
    #[must_use]
    pub fn message(&self, said: &str) -> String {
        let colon = if said.is_empty() { "" } else { ": " };
        format!("{}: status {}{colon}{said}", self.line, self.status)
    }

    /// The wait that the cloud asks for: `Retry-After`; with status 429 otherwise `RateLimit-Reset`
    /// or `X-RateLimit-Reset`, which other responses have without asking for a wait. Each is a
    /// number of seconds or an HTTP date; a reset may also be a time in seconds or milliseconds
    /// since 1970. A time is measured from the `Date` of the response.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let resets = ["ratelimit-reset", "x-ratelimit-reset"].into_iter().filter(|_| self.status == 429);
        std::iter::once("retry-after").chain(resets).find_map(|name| self.wait(self.header(name)?.trim()))
    }

    /// Parses a header's value as the time from now.
    fn wait(&self, value: &str) -> Option<Duration> {
        let then = match value.parse() {
            Ok(seconds @ ..SECONDS_SINCE_1970_MIN) => return Some(Duration::from_secs(seconds)),
            Ok(milliseconds @ MILLISECONDS_SINCE_1970_MIN..) => milliseconds.div_ceil(1_000),
            Ok(seconds) => seconds,
            Err(_) => http_date_seconds(value)?,
        };
        let now = http_date_seconds(self.header("date")?.trim())?;
        Some(Duration::from_secs(then.saturating_sub(now)))
    }

    /// The error message in the body: the usual members of JSON errors, else the text itself.
    fn detail(&self) -> String {
        let json: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        // `{"error": {…}}`, or with the name of the error as the only member.
        let only = json.as_object().filter(|members| members.len() == 1).and_then(|members| members.values().next());
        let error = only.filter(|member| member.is_object()).or(json.get("error")).unwrap_or(&json);
        let member =
            ["message", "detail", "title", "faultstring", "error"].iter().find_map(|key| error.get(key)?.as_str());
        let text = member.or(error.as_str()).map(str::to_owned);
        let text = text.unwrap_or_else(|| String::from_utf8_lossy(&self.body).trim().to_owned());
        cut(&text, DETAIL_BYTES_MAX)
    }
}

/// Seconds of `Sun, 06 Nov 1994 08:49:37 GMT` since 1970; none for any other form and for years
/// before 1970.
fn http_date_seconds(text: &str) -> Option<u64> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = u64::try_from(months.iter().position(|name| *name == month)?).ok()?;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let time: Vec<u64> = words.next()?.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour, minute, second] = time.as_slice() else { return None };
    if day == 0 || day > 31 || *hour > 23 || *minute > 59 || *second > 60 {
        return None;
    }
    // Days of the years that begin in March: the leap day comes last.
    let (march_year, march_month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days =
        march_year * 365 + march_year / 4 - march_year / 100 + march_year / 400 + (march_month * 153 + 2) / 5 + day - 1;
    const DAYS_TO_1970: u64 = 719_468;
    Some((days.checked_sub(DAYS_TO_1970)?) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Whether a parameter of a link says that the link leads to the next page: `rel="next"`.
fn is_next(parameter: &str) -> bool {
    let Some((name, value)) = parameter.trim_end_matches([',', ' ', '\t']).split_once('=') else { return false };
    let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
    name.trim().eq_ignore_ascii_case("rel") && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests;

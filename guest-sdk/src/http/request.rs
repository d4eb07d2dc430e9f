//! Building requests. Pure until [`Request::send`].

mod accept;

use std::time::Duration;

use serde::Serialize;

use super::{Judge, Response};
use crate::{
    Error, Result,
    bindings::imports::skysail::provider::http::{self, Request as RawRequest},
    native::host_only,
};

/// A cloud's API: its URL, and the credential that the host adds to each request.
#[derive(Clone, Debug)]
pub struct Api {
    endpoint: String,
    credential: Option<String>,
    timeout_ms: u32,
    judge: Option<Judge>,
}

/// A request that is not sent yet.
#[derive(Clone, Debug)]
pub struct Request {
    raw: RawRequest,
    /// The error of an empty path segment or of a body that could not be serialized; `send` returns
    /// it, so that building needs no `?`.
    broken: Option<String>,
    judge: Option<Judge>,
}

impl Api {
    /// An API under this URL, for example `https://api.example.com/v2`; a slash at the end does not
    /// matter.
    #[must_use]
    pub fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.trim_end_matches('/').to_owned(), credential: None, timeout_ms: 0, judge: None }
    }

    /// Scheme, host and port of the endpoint, for `identity.origins`: `https://api.example.com`.
    #[must_use]
    pub fn origin(&self) -> String {
        let host = self.endpoint.find("://").map_or(0, |scheme| scheme + 3);
        let end = self.endpoint.get(host..).and_then(|rest| rest.find(['/', '?', '#']));
        self.endpoint.get(..end.map_or(self.endpoint.len(), |end| host + end)).unwrap_or_default().to_owned()
    }

    /// The name of the operator's credential that the host adds to each request.
    #[must_use]
    pub fn credential(self, name: &str) -> Self {
        Self { credential: Some(name.to_owned()), ..self }
    }

    /// Asks this function about each response first: for a cloud that uses a status differently,
    /// such as 403 for a quota, or that reports errors with status 200. Where it returns none,
    /// [`Response::check`] decides.
    #[must_use]
    pub fn judged_by(self, judge: Judge) -> Self {
        Self { judge: Some(judge), ..self }
    }

    /// Time limit for each request, in whole milliseconds rounded up; without it, or with zero, a
    /// request may take the remaining time of the call.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        Self { timeout_ms: u32::try_from(ms).unwrap_or(u32::MAX), ..self }
    }

    /// A request for the path of these segments. Each is percent-encoded, so a segment cannot
    /// change the path. A request with an empty segment is not sent: with the ID of an object
    /// missing, it would be for all objects.
    #[must_use]
    pub fn request(&self, method: &str, segments: &[&str]) -> Request {
        let mut url = self.endpoint.clone();
        let broken = segments.iter().position(|segment| segment.is_empty());
        let broken = broken.map(|place| format!("segment {} of the path is empty", place + 1));
        for segment in segments {
            url.push('/');
            percent_encode_segment(&mut url, segment);
        }
        let raw = RawRequest {
            method: method.to_owned(),
            url,
            headers: vec![("accept".to_owned(), "application/json".to_owned())],
            body: None,
            credential: self.credential.clone(),
            timeout_ms: self.timeout_ms,
            extra: Vec::new(),
        };
        Request { raw, broken, judge: self.judge }
    }

    /// A request for the path `/` below the endpoint, which an empty segment does not stand for.
    #[must_use]
    pub fn root(&self, method: &str) -> Request {
        let mut request = self.request(method, &[]);
        request.raw.url.push('/');
        request
    }

    /// [`Api::request`] with `GET`.
    #[must_use]
    pub fn get(&self, segments: &[&str]) -> Request {
        self.request("GET", segments)
    }

    /// [`Api::request`] with `POST`.
    #[must_use]
    pub fn post(&self, segments: &[&str]) -> Request {
        self.request("POST", segments)
    }

    /// [`Api::request`] with `PUT`.
    #[must_use]
    pub fn put(&self, segments: &[&str]) -> Request {
        self.request("PUT", segments)
    }

    /// [`Api::request`] with `PATCH`.
    #[must_use]
    pub fn patch(&self, segments: &[&str]) -> Request {
        self.request("PATCH", segments)
    }

    /// [`Api::request`] with `DELETE`.
    #[must_use]
    pub fn delete(&self, segments: &[&str]) -> Request {
        self.request("DELETE", segments)
    }
}

impl Request {
    /// Appends `key=value` to the query, both percent-encoded.
    #[must_use]
    pub fn query(mut self, key: &str, value: &str) -> Self {
        self.raw.url.push(if self.raw.url.contains('?') { '&' } else { '?' });
        push_pair(&mut self.raw.url, key, value);
        self
    }

    /// Appends `key=value` if there is a value.
    #[must_use]
    pub fn query_opt(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.query(key, value),
            None => self,
        }
    }

    /// Adds a header. The host sets hop-by-hop headers, `host`, `content-length` and those of the
    /// credential.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.raw.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body to this value as JSON.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.body("application/json", body),
            Err(error) => {
                self.broken.get_or_insert_with(|| format!("the body is not JSON: {error}"));
                self
            }
        }
    }

    /// Sets the body to these pairs as a form, `application/x-www-form-urlencoded`. A blank is `+`.
    #[must_use]
    pub fn form<'a>(self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut body = String::new();
        for (key, value) in pairs {
            if !body.is_empty() {
                body.push('&');
            }
            push_pair(&mut body, key, value);
        }
        let body = body.replace("%20", "+").into_bytes();
        self.body("application/x-www-form-urlencoded; charset=utf-8", body)
    }

    /// Sets the body to these bytes.
    #[must_use]
    pub fn body(self, content_type: &str, body: Vec<u8>) -> Self {
        let mut request = self.header("content-type", content_type);
        request.raw.body = Some(body);
        request
    }

    /// Sends the request and [checks](Response::check) the status.
    ///
    /// # Errors
    ///
    /// As [`Response::check`]; `denied` where the egress rules forbid the request or the credential
    /// is unknown, `unavailable` without a response, `internal` for an invalid request. Each
    /// message begins with method and URL.
    #[track_caller]
    pub fn send(self) -> Result<Response> {
        let judge = self.judge;
        self.send_any()?.judged(judge)
    }

    /// Sends the request and returns the response whatever its status is.
    ///
    /// # Errors
    ///
    /// As [`Request::send`], except for those of the status.
    #[track_caller]
    pub fn send_any(self) -> Result<Response> {
        host_only("http::Request::send");
        let (line, raw) = self.into_raw()?;
        Response::from_answer(line, http::send(&raw))
    }

    /// The URL with the query.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.raw.url
    }

    /// As [`Api::judged_by`].
    pub(super) const fn judge(&self) -> Option<Judge> {
        self.judge
    }

    /// Method and URL without the query, for messages.
    pub(super) fn line(&self) -> String {
        let path = self.raw.url.split('?').next().unwrap_or_default();
        format!("{} {path}", self.raw.method)
    }

    /// The [line](Request::line) and what the host gets, or why the request cannot be sent.
    pub(super) fn into_raw(self) -> Result<(String, RawRequest)> {
        let line = self.line();
        match self.broken {
            Some(broken) => Err(Error::Internal(broken).context(&line)),
            None => Ok((line, self.raw)),
        }
    }
}

/// Appends `key=value`, both percent-encoded.
fn push_pair(out: &mut String, key: &str, value: &str) {
    percent_encode(out, key);
    out.push('=');
    percent_encode(out, value);
}

/// Appends text with every byte encoded that is not an unreserved character of RFC 3986.
pub fn percent_encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.extend(char::from_digit(digit.into(), 16).map(|c| c.to_ascii_uppercase()));
            }
        }
    }
}

/// As [`percent_encode`]; `.` and `..` are encoded too, because a URL parser would resolve them.
fn percent_encode_segment(out: &mut String, segment: &str) {
    match segment {
        "." => out.push_str("%2E"),
        ".." => out.push_str("%2E%2E"),
        _ => percent_encode(out, segment),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Api;
    use crate::Error;

    #[test]
    fn the_origin_of_an_endpoint_ends_after_host_or_port() {
        for (endpoint, origin) in [
            ("https://api.example.com/v2/", "https://api.example.com"),
            ("http://127.0.0.1:8088", "http://127.0.0.1:8088"),
            ("https://[fd00::1]:8443?a=b", "https://[fd00::1]:8443"),
        ] {
            assert_eq!(Api::new(endpoint).origin(), origin);
        }
    }

    #[test]
    fn segments_and_queries_are_encoded() {
        let api = Api::new("https://api.example.com/v2/").credential("api");
        let request = api.get(&["servers", "a/b?c#d é"]).query("tag", "x=y&z").query_opt("none", None).query("n", "1");
        assert_eq!(request.url(), "https://api.example.com/v2/servers/a%2Fb%3Fc%23d%20%C3%A9?tag=x%3Dy%26z&n=1");
        assert_eq!(request.raw.credential.as_deref(), Some("api"));
        assert_eq!(request.line(), "GET https://api.example.com/v2/servers/a%2Fb%3Fc%23d%20%C3%A9");
    }

    #[test]
    fn a_request_whose_path_has_an_empty_segment_is_not_sent() {
        let request = Api::new("https://api.example.com").delete(&["servers", ""]);
        let error = "DELETE https://api.example.com/servers/: segment 2 of the path is empty".to_owned();
        assert_eq!(request.into_raw().map(|_| ()), Err(Error::Internal(error)));
        for request in [Api::new("https://api.example.com").get(&[]), Api::new("https://api.example.com").root("POST")]
        {
            assert_eq!(request.broken, None);
        }
        assert_eq!(Api::new("https://api.example.com/v2/").root("POST").url(), "https://api.example.com/v2/");
    }

    #[test]
    fn a_time_limit_is_rounded_up_to_whole_milliseconds() {
        for (limit, ms) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (u64::MAX, u32::MAX)] {
            assert_eq!(Api::new("http://x").timeout(Duration::from_nanos(limit)).timeout_ms, ms);
        }
    }

    #[test]
    fn a_form_is_encoded() {
        let request = Api::new("http://x").post(&[]).form([("Action", "Describe Ä"), ("Filter.1", "a&b=c+d*~%20")]);
        let body = b"Action=Describe+%C3%84&Filter.1=a%26b%3Dc%2Bd%2A~%2520".as_slice();
        assert_eq!(request.raw.body.as_deref(), Some(body));
    }

    #[test]
    fn json_sets_the_content_type() {
        let request = Api::new("http://x").post(&["a"]).json(&[1, 2]);
        assert_eq!(request.raw.body.as_deref(), Some(b"[1,2]".as_slice()));
        assert!(request.raw.headers.contains(&("content-type".to_owned(), "application/json".to_owned())));
    }
}

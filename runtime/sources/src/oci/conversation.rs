//! HTTP requests to one host about one repository: login, redirects, and bounded answers.

use std::{io, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_auth::{ChallengeParser, ChallengeRef};
use http_body_util::Full;
use serde::Deserialize;
use skysail_egress::transport::{LookUpError, StreamingResponse, TransportError, causes};
use tokio::time::timeout;
use url::Url;

use super::{
    credentials::Login,
    manifest,
    registry::{Registry, RegistryOptions, host_of},
};
use crate::{
    Digest,
    error::{RegistryFailure, TargetRefusal},
    text::shown,
};

/// The most redirects that are followed for one request.
const REDIRECTS_MAX: usize = 5;

/// Largest answer of a token service that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = 256 << 10;

/// The most bytes of an unused answer that are read so that its connection can be reused.
const DRAIN_BYTES_MAX: u64 = 64 << 10;

/// The longest wait for an answer, and for each piece of its body.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Most logins of one conversation: a token may expire during a long upload, but a registry that
/// answers each request with 401 must not get the password, or make the credential helper run, each
/// time.
const LOGINS_MAX: u32 = 8;

/// The longest Retry-After that is respected.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// The access to the repository that a token is requested for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Pull,
    Push,
}

/// See the module.
pub(super) struct Conversation<'a> {
    registry: &'a Registry,
    host: &'a str,
    repository: &'a str,
    access: Access,
    /// The Authorization header of the last login.
    authorization: Option<HeaderValue>,
    logins: u32,
}

/// One request.
#[derive(Clone)]
pub(super) struct Question<'a> {
    pub(super) method: Method,
    /// A path below `/v2/<repository>/`, or a whole URL from the registry.
    pub(super) place: Place<'a>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The requested content, for messages: `manifest v1`.
    pub(super) what: String,
}

#[derive(Clone)]
pub(super) enum Place<'a> {
    Path(&'a str),
    Url(Url),
}

impl<'a> Question<'a> {
    pub(super) fn new(method: Method, path: &'a str, what: impl Into<String>) -> Self {
        Self { method, place: Place::Path(path), headers: HeaderMap::new(), body: Bytes::new(), what: what.into() }
    }
}

/// An answer and its URL.
pub(super) struct Response {
    pub(super) url: Url,
    answer: StreamingResponse,
}

impl Response {
    pub(super) const fn status(&self) -> StatusCode {
        self.answer.head.status
    }

    pub(super) const fn headers(&self) -> &HeaderMap {
        &self.answer.head.headers
    }
}

/// An error of the transport, or a timeout.
type Unreached = Box<dyn std::error::Error + Send + Sync>;

async fn in_time<T>(coming: impl Future<Output = Result<T, TransportError>>) -> Result<T, Unreached> {
    let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("no data for {} s", SILENCE_MAX.as_secs()));
    Ok(timeout(SILENCE_MAX, coming).await.map_err(|_| silent())??)
}

async fn piece(response: &mut Response) -> Result<Option<Bytes>, Unreached> {
    in_time(response.answer.piece()).await
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Conversation<'a> {
    pub(super) const fn new(registry: &'a Registry, host: &'a str, repository: &'a str, access: Access) -> Self {
        Self { registry, host, repository, access, authorization: None, logins: 0 }
    }

    fn options(&self) -> &RegistryOptions {
        &self.registry.options
    }

    /// Sends a request and returns the answer if it is a success. After a 401, logs in and sends
    /// the request once more.
    pub(super) async fn ask(&mut self, question: Question<'_>) -> Result<Response, RegistryFailure> {
        let mut response = self.send(&question).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.logins < LOGINS_MAX {
            self.logins += 1;
            let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter().cloned().collect::<Vec<_>>();
            drain(response).await;
            let shown = self.log_in(&challenges).await?;
            response = self.send(&question).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                let how = if shown { "with credentials" } else { "without credentials" };
                return Err(RegistryFailure::Unauthorized { host: self.host.to_owned(), how });
            }
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let failure = self.failure(&response, &question.what);
        drain(response).await;
        Err(failure)
    }

    fn url(&self, path: &str) -> Result<Url, RegistryFailure> {
        let text = format!("{}{}/{path}", self.options().base(self.host), self.repository);
        Url::parse(&text).map_err(|error| malformed("the reference", &error))
    }

    /// Sends a request; follows redirects of GET and HEAD.
    async fn send(&self, question: &Question<'_>) -> Result<Response, RegistryFailure> {
        let start = match &question.place {
            Place::Path(path) => self.url(path)?,
            Place::Url(url) => url.clone(),
        };
        let mut url = start;
        for _ in 0..=REDIRECTS_MAX {
            let mut headers = question.headers.clone();
            if let Some(authorization) = self.authorization.as_ref().filter(|_| self.options().is_of(&url, self.host)) {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let response = self.exchange(question.method.clone(), url.clone(), headers, question.body.clone()).await?;
            let reads = matches!(question.method, Method::GET | Method::HEAD);
            if !(reads && response.status().is_redirection()) {
                return Ok(response);
            }
            let next = self.location(&url, response.headers())?;
            drain(response).await;
            url = next;
        }
        Err(self.refused_target(&url, TargetRefusal::TooManyRedirects(REDIRECTS_MAX)))
    }

    /// One request and its answer, without following redirects.
    async fn exchange(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, RegistryFailure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = url.as_str().parse().map_err(|error| malformed("the address", &error))?;
        *request.headers_mut() = headers;
        let answer = in_time(self.registry.client.send(request, |_| {})).await;
        match answer {
            Ok(answer) => Ok(Response { url, answer }),
            Err(error) => Err(self.unreachable(&host_of(&url).unwrap_or_default(), error)),
        }
    }

    /// The URL in an answer's Location header, if the registry may refer to it.
    pub(super) fn location(&self, from: &Url, headers: &HeaderMap) -> Result<Url, RegistryFailure> {
        let text = headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let url = from.join(text).map_err(|error| malformed("a redirect", &error))?;
        self.judge(&url)?;
        Ok(url)
    }

    fn judge(&self, url: &Url) -> Result<(), RegistryFailure> {
        self.options().judge_url(self.host, url).map_err(|why| self.refused_target(url, why))
    }

    fn refused_target(&self, to: &Url, why: TargetRefusal) -> RegistryFailure {
        // Only scheme and host are shown: the query of a blob store's URL often has a signature.
        let to = host_of(to).map_or_else(|| to.scheme().to_owned(), |host| format!("{}://{host}", to.scheme()));
        RegistryFailure::RefusedTarget { host: self.host.to_owned(), to, why }
    }

    fn unreachable(&self, host: &str, error: Unreached) -> RegistryFailure {
        for cause in causes(&*error) {
            if let Some(coding @ TransportError::Coding(_)) = cause.downcast_ref() {
                return malformed("the answer", coding);
            }
            if let Some(LookUpError::Refused { refusal, .. }) = cause.downcast_ref() {
                let (host, to) = (self.host.to_owned(), host.to_owned());
                return RegistryFailure::RefusedTarget { host, to, why: TargetRefusal::Address(refusal.to_string()) };
            }
            // The peer answered the TLS handshake in another protocol, most likely HTTP.
            if let Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) =
                cause.downcast_ref()
            {
                return RegistryFailure::NotTls { host: host.to_owned() };
            }
        }
        RegistryFailure::Unreachable { host: host.to_owned(), source: error.into() }
    }

    fn failure(&self, response: &Response, what: &str) -> RegistryFailure {
        let (host, what) = (self.host.to_owned(), what.to_owned());
        match response.status() {
            StatusCode::NOT_FOUND => RegistryFailure::NotFound { host, what },
            StatusCode::UNAUTHORIZED => RegistryFailure::Unauthorized { host, how: "after several logins" },
            StatusCode::FORBIDDEN => RegistryFailure::Forbidden { host, what },
            StatusCode::TOO_MANY_REQUESTS => {
                RegistryFailure::TooManyRequests { host, retry_after: retry_after(response) }
            }
            status => {
                RegistryFailure::Status { host, status: status.as_u16(), what, retry_after: retry_after(response) }
            }
        }
    }

    // === authentication ===

    /// Answers the first supported challenge; returns whether credentials were sent.
    async fn log_in(&mut self, challenges: &[HeaderValue]) -> Result<bool, RegistryFailure> {
        let login = match &self.options().credentials {
            Some(credentials) => credentials.of(self.host).await?,
            None => None,
        };
        for text in challenges.iter().filter_map(|value| value.to_str().ok()) {
            for challenge in ChallengeParser::new(text).map_while(Result::ok) {
                if challenge.scheme.eq_ignore_ascii_case("bearer") {
                    let (token, shown) = self.token(&challenge, login.as_ref()).await?;
                    self.authorization = Some(secret(&format!("Bearer {token}"))?);
                    return Ok(shown);
                }
                if challenge.scheme.eq_ignore_ascii_case("basic")
                    && let Some(Login::Basic { username, password }) = &login
                {
                    self.authorization = Some(basic(username, password)?);
                    return Ok(true);
                }
            }
        }
        let how = if login.is_some() {
            "with credentials that fit none of its authentication schemes"
        } else {
            "without credentials"
        };
        Err(RegistryFailure::Unauthorized { host: self.host.to_owned(), how })
    }

    /// Requests a token from the token service that the challenge names; returns whether
    /// credentials were sent.
    async fn token(
        &self,
        challenge: &ChallengeRef<'_>,
        login: Option<&Login>,
    ) -> Result<(String, bool), RegistryFailure> {
        let parameter = |name: &str| {
            let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        let realm = parameter("realm").unwrap_or_default();
        let mut url = Url::parse(&realm).map_err(|error| malformed("the token service's address", &error))?;
        self.judge(&url)?;
        if login.is_some() && !self.options().may_learn_credentials(self.host, &url) {
            return Err(self.refused_target(&url, TargetRefusal::CredentialsOfAnother));
        }
        let actions = if self.access == Access::Push { "pull,push" } else { "pull" };
        let scope = format!("repository:{}:{actions}", self.repository);
        let service = parameter("service");
        let mut headers = HeaderMap::new();
        let (method, body) = if let Some(Login::IdentityToken(token)) = login {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token);
            form.append_pair("client_id", "skysail").append_pair("scope", &scope);
            form.append_pair("service", service.as_deref().unwrap_or_default());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            (Method::POST, form.finish())
        } else {
            url.query_pairs_mut().append_pair("scope", &scope);
            if let Some(service) = &service {
                url.query_pairs_mut().append_pair("service", service);
            }
            if let Some(Login::Basic { username, password }) = login {
                headers.insert(AUTHORIZATION, basic(username, password)?);
            }
            (Method::GET, String::new())
        };
        let host = host_of(&url).unwrap_or_default();
        let response = self.exchange(method, url, headers, body.into()).await?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let how = if login.is_some() { "with credentials" } else { "without credentials" };
                return Err(RegistryFailure::Unauthorized { host, how });
            }
            _ => return Err(self.failure(&response, "a token")),
        }
        let body = self.read(response, TOKEN_BYTES_MAX, "the token").await?;
        let Token { token, access_token } =
            // The parser's error may repeat the token.
            serde_json::from_slice(&body).map_err(|_| malformed("the token", &"it is not a JSON object with a token"))?;
        match token.or(access_token) {
            Some(token) => Ok((token, login.is_some())),
            None => Err(malformed("the token", &"there is none")),
        }
    }

    /// A manifest or an index, by tag or digest; `asked` is for messages. If `digest` is given, the
    /// content is checked against it.
    pub(super) async fn manifest(
        &mut self,
        path: &str,
        (asked, what): (String, &'static str),
        digest: Option<Digest>,
    ) -> Result<Bytes, RegistryFailure> {
        let mut question = Question::new(Method::GET, path, asked);
        question.headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        let response = self.ask(question).await?;
        let bytes = self.read(response, manifest::BYTES_MAX, what).await?;
        digest.map_or(Ok(()), |expected| verify(what, expected, &bytes))?;
        Ok(bytes)
    }

    /// A page of an index, and the link to the next page.
    pub(super) async fn page(
        &mut self,
        place: Place<'_>,
        what: &'static str,
    ) -> Result<(Bytes, Option<String>), RegistryFailure> {
        let mut question = Question::new(Method::GET, "", what);
        question.place = place;
        question.headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        let response = self.ask(question).await?;
        let next = next_page(response.headers());
        Ok((self.read(response, manifest::BYTES_MAX, what).await?, next))
    }

    /// The URL of the next page, which has to have the same origin and path.
    pub(super) fn next(&self, path: &str, next: &str) -> Result<Url, RegistryFailure> {
        const WHAT: &str = "the address of an index's next page";
        let first = self.url(path)?;
        let url = first.join(next).map_err(|error| malformed(WHAT, &error))?;
        if url.origin() != first.origin() || url.path() != first.path() {
            return Err(malformed(WHAT, &"it is on another host or path"));
        }
        Ok(url)
    }

    // === answers ===

    /// The whole body, of at most `bytes_max` bytes.
    pub(super) async fn read(
        &self,
        mut response: Response,
        bytes_max: u64,
        what: &'static str,
    ) -> Result<Bytes, RegistryFailure> {
        let mut body = BytesMut::new();
        while let Some(chunk) = piece(&mut response).await.map_err(|error| self.unreachable(self.host, error))? {
            if body.len() as u64 + chunk.len() as u64 > bytes_max {
                return Err(malformed(what, &format!("it has more than {bytes_max} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// Appends the answer to `body`; fails if `body` becomes longer than `size`.
    pub(super) async fn append(
        &self,
        mut response: Response,
        body: &mut BytesMut,
        size: u64,
    ) -> Result<(), RegistryFailure> {
        while let Some(chunk) = piece(&mut response).await.map_err(|error| self.unreachable(self.host, error))? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > size {
                return Err(RegistryFailure::WrongSize { expected: size, actual: size + 1 });
            }
        }
        Ok(())
    }
}

/// The header Retry-After: seconds, or a time relative to the registry's header Date.
fn retry_after(response: &Response) -> Option<Duration> {
    let header = |name| Some(response.headers().get(name)?.to_str().ok()?.trim());
    let text = header(RETRY_AFTER)?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let after = match is_number {
        // A number that overflows is cut to `RETRY_AFTER_MAX` below.
        true => Duration::from_secs(text.parse().unwrap_or(u64::MAX)),
        false => {
            let [then, now] = [Some(text), header(DATE)].map(|date| httpdate::parse_http_date(date?).ok());
            then?.duration_since(now?).ok()?
        }
    };
    Some(after.min(RETRY_AFTER_MAX))
}

/// Reads the rest of a short answer, so that its connection can be reused.
async fn drain(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = piece(&mut response).await {
        read += chunk.len() as u64;
        if read > DRAIN_BYTES_MAX {
            return;
        }
    }
}

/// The target of a link with the relation `next` (RFC 8288).
fn next_page(headers: &HeaderMap) -> Option<String> {
    for value in headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok()) {
        for link in value.split('<').skip(1) {
            let Some((target, parameters)) = link.split_once('>') else { continue };
            let mut parameters = parameters.split([';', ',']).map(str::trim);
            if parameters.any(|text| text.eq_ignore_ascii_case("rel=\"next\"") || text.eq_ignore_ascii_case("rel=next"))
            {
                return Some(target.to_owned());
            }
        }
    }
    None
}

fn basic(username: &str, password: &str) -> Result<HeaderValue, RegistryFailure> {
    secret(&format!("Basic {}", STANDARD.encode(format!("{username}:{password}"))))
}

fn secret(text: &str) -> Result<HeaderValue, RegistryFailure> {
    let mut value = HeaderValue::from_str(text).map_err(|error| malformed("the token", &error))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Checks that the content has the expected digest.
pub(super) fn verify(what: &'static str, expected: Digest, bytes: &[u8]) -> Result<(), RegistryFailure> {
    let actual = Digest::of(bytes);
    if actual == expected { Ok(()) } else { Err(RegistryFailure::WrongDigest { what, expected, actual }) }
}

pub(super) fn malformed(what: &'static str, reason: &dyn std::fmt::Display) -> RegistryFailure {
    RegistryFailure::Malformed { what, reason: shown(&reason.to_string()) }
}

//! One HTTP exchange: sends the request, reads the answer up to its bounds, and maps the
//! transport's errors to the contract's failures.
//!
//! Must not check requests; the parent module has checked them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, header};
use http_body_util::Full;
use rustls::AlertDescription;
use skysail_provider::{Limit, LimitHit};

use super::{Failure, FailureKind, HttpBudget, HttpLimits, HttpResponse, headers};
use crate::{
    blocking::Blocking,
    credentials::Generation,
    transport::{Answer, Client, LookUpError, TransportError, causes, header_bytes},
};

/// The largest body that is redacted on the async thread, in bytes: at most a millisecond. Larger
/// bodies go to the blocking pool.
const REDACTED_AT_ONCE_MAX: usize = 64 << 10;

/// What one exchange needs besides its request.
pub(super) struct Exchange<'a> {
    pub(super) client: &'a Client,
    pub(super) budget: &'a HttpBudget,
    /// The credentials whose values are redacted from the answer and from errors.
    pub(super) generation: &'a Arc<Generation>,
    /// Whether the request carries a credential, which the answer may repeat.
    pub(super) has_credential: bool,
    pub(super) redactions: &'a Blocking,
}

impl Exchange<'_> {
    /// Sends the request and reads the answer.
    pub(super) async fn run(self, request: Request<Full<Bytes>>) -> Result<HttpResponse, Failure> {
        let counted = self.budget.clone();
        let answer = self.client.send(request, move |bytes| counted.add_received(bytes)).await;
        let mut answer = answer.map_err(|error| self.classify(&error))?;
        let status = answer.head.status.as_u16();
        if status < 200 {
            return Err(interrupted(format!("the peer answered {status}, which the request did not ask for")));
        }
        let limits = self.budget.limits();
        check_headers(&answer.head.headers, limits)?;
        if self.has_credential {
            check_whole(status, &answer.head.headers)?;
            check_charset(&answer.head.headers)?;
        }
        let body = self.read_body(&mut answer).await?;
        let clean = self.redact(&body).await?;
        let headers = headers::for_guest(&answer.head.headers, self.generation.redactor(), clean.is_some());
        Ok(HttpResponse { status, headers, body: clean.unwrap_or(body) })
    }

    /// Reads the body in pieces; stops at the bound.
    async fn read_body(&self, answer: &mut Answer) -> Result<Bytes, Failure> {
        let max = self.budget.limits().response_bytes_max;
        let too_large = |size, used| {
            Failure::with_limit(FailureKind::TooLarge(size), LimitHit { limit: Limit::HttpResponseBytes, used, max })
        };
        if let Some(announced) = answer.length()
            && announced > max
        {
            return Err(too_large(announced, announced));
        }
        let mut body = BytesMut::new();
        while let Some(piece) = answer.piece().await.map_err(|error| self.classify(&error))? {
            self.budget.add_received(piece.len() as u64);
            let used = (body.len() + piece.len()) as u64;
            if used > max {
                return Err(too_large(0, used));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    }

    /// The body without values of credentials; `None` if there is no value in it.
    async fn redact(&self, body: &Bytes) -> Result<Option<Bytes>, Failure> {
        if body.len() <= REDACTED_AT_ONCE_MAX || !self.generation.redactor().seeks() {
            return Ok(self.generation.redactor().bytes(body));
        }
        let (generation, body) = (Arc::clone(self.generation), body.clone());
        let redacted = self.redactions.run(move || Ok(generation.redactor().bytes(&body))).await;
        redacted.map_err(|error| interrupted(format!("redact the answer: {error}")))
    }
}

fn check_headers(received: &HeaderMap, limits: &HttpLimits) -> Result<(), Failure> {
    let judge = |limit, used, max| {
        let hit = LimitHit { limit, used, max };
        if used <= max { Ok(()) } else { Err(Failure::with_limit(FailureKind::TooLarge(0), hit)) }
    };
    judge(Limit::HttpHeaders, received.len() as u64, u64::from(limits.headers_max))?;
    judge(Limit::HttpHeaderBytes, header_bytes(received), limits.header_bytes_max)
}

fn interrupted(why: impl AsRef<str>) -> Failure {
    Failure::new(FailureKind::Interrupted, why)
}

/// Refuses a partial answer: a request with a credential cannot ask for a range, and the redaction
/// does not find a value that is split over several answers.
fn check_whole(status: u16, received: &HeaderMap) -> Result<(), Failure> {
    if matches!(status, 206 | 226) || received.contains_key(header::CONTENT_RANGE) {
        return Err(interrupted("the answer is partial, although the request asked for no range"));
    }
    Ok(())
}

/// Refuses charsets that do not contain ASCII, such as UTF-16 and EBCDIC: the redaction searches
/// for values in ASCII.
fn check_charset(received: &HeaderMap) -> Result<(), Failure> {
    let plain = |charset: &str| {
        let charset = charset.trim().trim_matches('"').to_ascii_lowercase();
        matches!(charset.as_str(), "utf-8" | "utf8" | "us-ascii" | "ascii" | "latin1")
            || charset.starts_with("iso-8859-")
            || charset.starts_with("windows-125")
    };
    let types = received.get_all(header::CONTENT_TYPE).iter();
    for value in types {
        let text = String::from_utf8_lossy(value.as_bytes());
        let mut parameters = text.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
        if parameters.any(|(name, charset)| name.trim().eq_ignore_ascii_case("charset") && !plain(charset)) {
            return Err(interrupted(
                "the answer has a charset that is refused for a request with a credential; serve UTF-8",
            ));
        }
    }
    Ok(())
}

impl Exchange<'_> {
    /// Maps an error of the transport to a failure of the contract.
    fn classify(&self, error: &TransportError) -> Failure {
        let max = u64::from(self.budget.limits().headers_max);
        let too_many_headers = || {
            let hit = LimitHit { limit: Limit::HttpHeaders, used: max.saturating_add(1), max };
            Failure::with_limit(FailureKind::TooLarge(0), hit)
        };
        if matches!(error, TransportError::Interim(_)) {
            return too_many_headers();
        }
        let chain = causes(error);
        let look_up = chain.iter().find_map(|cause| cause.downcast_ref::<LookUpError>());
        if let Some(refused @ LookUpError::Refused { .. }) = look_up {
            return Failure::forbidden(refused.to_string());
        }
        if chain.iter().any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse_too_large))
        {
            // The parser limits the number of headers and the size of its buffer, which is larger
            // than `httpHeaderBytes` may be; the error does not say which limit was exceeded.
            return too_many_headers();
        }
        let is_connect = error.is_connect();
        let tls = chain.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>());
        let kind = match tls {
            Some(_) if is_connect => FailureKind::Tls,
            // With TLS 1.3 the server checks the client certificate after the client has finished
            // its handshake, and refuses it before the server reads the request.
            Some(rustls::Error::AlertReceived(alert)) if is_about_certificates(*alert) => FailureKind::Tls,
            _ if is_connect => FailureKind::Unreachable,
            _ => FailureKind::Interrupted,
        };
        let mut texts: Vec<String> = Vec::new();
        for text in chain.iter().map(ToString::to_string) {
            // The layers of the transport repeat each other's messages.
            if texts.last().is_none_or(|last| !last.contains(&text)) {
                texts.push(text);
            }
        }
        Failure::new(kind, self.generation.redactor().text(&texts.join(": ")))
    }
}

fn is_about_certificates(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::HandshakeFailure
            | Alert::NoCertificate
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate
    )
}

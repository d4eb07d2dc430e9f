//! One HTTP exchange: sends the request, reads the answer up to its bounds, and maps the
//! transport's errors to the contract's failures.
//!
//! Must not check requests; the parent module has checked them.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, header, response::Parts, uri::Authority};
use http_body_util::Full;
use rustls::{AlertDescription, CertificateError as Wrong};
use skysail_provider::{Limit, LimitHit, text::with_causes};

use super::{Failure, FailureKind, HttpBudget, HttpLimits, HttpResponse, headers};
use crate::{
    blocking::Blocking,
    credentials::Redaction,
    transport::{Client, LookUpError, StreamingResponse, TransportError, causes, header_bytes},
};

/// The largest answer, headers and body, that is redacted on the async thread, in bytes times
/// searches. A byte
/// takes 2.5 ns with one value and 6.6 ns with eight, so that this is half a millisecond; then
/// other tasks have their turn, because a call awaits each answer. Larger answers go to the
/// blocking pool.
const REDACTED_AT_ONCE_MAX: u64 = 64 << 10;

/// What one exchange needs besides its request.
pub(super) struct Exchange<'a> {
    pub(super) client: &'a Client,
    pub(super) budget: &'a HttpBudget,
    /// Redacts the answer and errors.
    pub(super) redaction: &'a Redaction,
    /// Whether the request carries a credential, which the answer may repeat.
    pub(super) has_credential: bool,
    pub(super) redactions: &'a Blocking,
}

impl Exchange<'_> {
    /// Sends the request and reads the answer.
    pub(super) async fn run(self, request: Request<Full<Bytes>>) -> Result<HttpResponse, Failure> {
        let counted = self.budget.clone();
        let peer = request.uri().authority().cloned();
        let answer = self.client.send(request, move |bytes| counted.add_received(bytes)).await;
        let mut answer = answer.map_err(|error| self.classify(&error, peer.as_ref()))?;
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
        let body = self.read_body(&mut answer, peer.as_ref()).await?;
        for_guest(answer.head, body, self.redaction, self.redactions).await
    }

    /// Reads the body in pieces; stops at the bound.
    async fn read_body(&self, answer: &mut StreamingResponse, peer: Option<&Authority>) -> Result<Bytes, Failure> {
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
        while let Some(piece) = answer.piece().await.map_err(|error| self.classify(&error, peer))? {
            self.budget.add_received(piece.len() as u64);
            let used = (body.len() + piece.len()) as u64;
            if used > max {
                return Err(too_large(0, used));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    }
}

/// The answer without values of credentials.
async fn for_guest(
    head: Parts,
    body: Bytes,
    redaction: &Redaction,
    redactions: &Blocking,
) -> Result<HttpResponse, Failure> {
    let redactor = redaction.now();
    let is_searched_here =
        (header_bytes(&head.headers) + body.len() as u64).saturating_mul(redactor.searches()) <= REDACTED_AT_ONCE_MAX;
    let redact = move || {
        let clean = redactor.bytes(&body);
        let headers = headers::for_guest(&head.headers, &redactor, clean.is_some());
        HttpResponse { status: head.status.as_u16(), headers, body: clean.unwrap_or(body) }
    };
    if is_searched_here {
        return Ok(redact());
    }
    let redacted = redactions.run(move || Ok(redact())).await;
    redacted.map_err(|error| interrupted(format!("redact the answer: {error}")))
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
    /// Maps an error of the transport to a failure of the contract. `peer` is host and port.
    fn classify(&self, error: &TransportError, peer: Option<&Authority>) -> Failure {
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
        let mut text = with_causes(error);
        if let (FailureKind::Tls, Some(tls)) = (kind, tls) {
            let peer = peer.map_or("", Authority::as_str);
            text = format!("{peer}: {text}{}", tls_remedy(tls));
        }
        Failure::new(kind, self.redaction.now().text(&text))
    }
}

/// What the operator can do; empty where rustls' own words suffice.
fn tls_remedy(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
            "; renew the certificate of the server"
        }
        rustls::Error::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. }) => {
            "; set the clock of the manager's machine, or replace the certificate of the server"
        }
        rustls::Error::InvalidCertificate(Wrong::UnknownIssuer) => {
            "; write the authority of the server into egress.caBundle"
        }
        rustls::Error::InvalidCertificate(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
            "; correct the host name in the URL, or replace the certificate of the server"
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "; renew the client certificate of the credential"
        }
        rustls::Error::AlertReceived(alert) if is_about_certificates(*alert) => {
            "; use a credential with a clientCertificate that the server trusts"
        }
        _ => "",
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

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        pin::pin,
        sync::{Arc, mpsc},
    };

    use bytes::Bytes;
    use futures::poll;
    use http::Response;
    use tokio::{runtime, task};

    use super::{Blocking, REDACTED_AT_ONCE_MAX, for_guest};
    use crate::credentials::{CredentialSpec, Credentials, Redaction, SecretValues};

    const SECRET: &str = "t0p-s3cr3t-t0ken";

    /// The only thread for blocking work is busy, so that work for it cannot end before the test
    /// frees the thread.
    #[test]
    fn a_large_answer_is_redacted_on_another_thread() {
        let specs: BTreeMap<String, CredentialSpec> =
            serde_json::from_str(r#"{"api": {"origins": ["https://a.example"], "bearer": {"env": "TOKEN"}}}"#).unwrap();
        let credentials = Credentials::load(&specs, &|_| Some(SECRET.to_owned()), &SecretValues::new()).unwrap();
        let redaction = Redaction::new(credentials.current(), Arc::new(credentials));
        let redactions = Blocking::new(1);
        let max = usize::try_from(REDACTED_AT_ONCE_MAX).unwrap();
        let cleaned = |header: String, body: usize| {
            let head = Response::builder().header("x-a", header).body(()).unwrap().into_parts().0;
            let body = SECRET.to_owned() + &"x".repeat(body - SECRET.len());
            for_guest(head, Bytes::from(body), &redaction, &redactions)
        };
        runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap().block_on(async {
            let small = cleaned("short".to_owned(), max / 2).await.unwrap();
            assert!(small.body.starts_with(b"[redacted]"));
            for (header, body) in [("short".to_owned(), max), (SECRET.repeat(max / SECRET.len()), max / 2)] {
                let (free, busy) = mpsc::channel::<()>();
                let thread = task::spawn_blocking(move || busy.recv());
                let mut large = pin!(cleaned(header, body));
                assert!(poll!(&mut large).is_pending(), "other tasks have their turn");
                free.send(()).unwrap();
                thread.await.unwrap().unwrap();
                let large = large.await.unwrap();
                assert!(large.body.starts_with(b"[redacted]"));
                assert!(large.headers.iter().all(|(_, value)| !value.contains(SECRET)));
            }
        });
    }
}

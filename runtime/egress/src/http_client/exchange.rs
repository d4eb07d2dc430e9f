//! One exchange on the wire: the answer is read up to its bounds, and the transport's errors become the contract's failures.
//!
//! Must not judge requests; by the time one arrives here, it may leave.

use std::{error::Error as StdError, io};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use reqwest::{Client, Request, Response};
use rustls::AlertDescription;
use skysail_provider::{Limit, LimitHit};

use super::{Failure, FailureKind, HttpBudget, HttpLimits, HttpResponse, headers, transport::LookUpError};
use crate::credentials::Redactor;

/// Sends and reads. All texts that come back are redacted.
pub(super) async fn run(
    client: &Client,
    request: Request,
    budget: &HttpBudget,
    redactor: &Redactor,
) -> Result<HttpResponse, Failure> {
    let limits = budget.limits();
    let response = client.execute(request).await.map_err(|error| classify(error, limits, redactor))?;
    let status = response.status().as_u16();
    if status < 200 {
        return Err(Failure::new(
            FailureKind::Interrupted,
            format!("the peer answered {status}, which nothing asked for"),
        ));
    }
    budget.add_received(headers::bytes(response.headers()));
    check_headers(response.headers(), limits)?;
    let received = response.headers().clone();
    let body = read_body(response, budget, redactor).await?;
    check_coding(&received, &body)?;
    let clean = redactor.bytes(body.clone());
    let headers = headers::for_guest(&received, redactor, clean != body);
    Ok(HttpResponse { status, headers, body: clean })
}

fn check_headers(received: &HeaderMap, limits: &HttpLimits) -> Result<(), Failure> {
    let judge = |limit, used, max| {
        let hit = LimitHit { limit, used, max };
        if used <= max { Ok(()) } else { Err(Failure::with_limit(FailureKind::TooLarge(0), hit)) }
    };
    judge(Limit::HttpHeaders, received.len() as u64, u64::from(limits.headers_max))?;
    judge(Limit::HttpHeaderBytes, headers::bytes(received), limits.header_bytes_max)
}

/// Reads the decompressed body piece by piece; what lies behind the bound is never decompressed.
async fn read_body(mut response: Response, budget: &HttpBudget, redactor: &Redactor) -> Result<Bytes, Failure> {
    let limits = *budget.limits();
    let max = limits.response_bytes_max;
    let too_large = |size, used| {
        Failure::with_limit(FailureKind::TooLarge(size), LimitHit { limit: Limit::HttpResponseBytes, used, max })
    };
    // None for a compressed body: its length says nothing about what it becomes.
    if let Some(announced) = response.content_length()
        && announced > max
    {
        return Err(too_large(announced, announced));
    }
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|error| classify(error, &limits, redactor))? {
        budget.add_received(piece.len() as u64);
        let used = (body.len() + piece.len()) as u64;
        if used > max {
            return Err(too_large(0, used));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// A coding that is still there is one that the host did not ask for and cannot look into.
fn check_coding(received: &HeaderMap, body: &Bytes) -> Result<(), Failure> {
    let mut codings = received.get_all(header::CONTENT_ENCODING).iter();
    if body.is_empty() || codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Interrupted, "the answer has a content-encoding that nothing asked for"))
}

/// The transport's error in the contract's words.
fn classify(error: reqwest::Error, limits: &HttpLimits, redactor: &Redactor) -> Failure {
    let error = error.without_url();
    let chain = chain(&error);
    let look_up = chain.iter().find_map(|cause| cause.downcast_ref::<LookUpError>());
    if let Some(refused @ LookUpError::Refused { .. }) = look_up {
        return Failure::forbidden(refused.to_string());
    }
    if chain.iter().any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse_too_large)) {
        // The parser counts headers and has a buffer that is larger than `httpHeaderBytes` may be; it does not say which of both it was.
        let max = u64::from(limits.headers_max);
        let hit = LimitHit { limit: Limit::HttpHeaders, used: max.saturating_add(1), max };
        return Failure::with_limit(FailureKind::TooLarge(0), hit);
    }
    let tls = chain.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>());
    let kind = match tls {
        Some(_) if error.is_connect() => FailureKind::Tls,
        // With TLS 1.3 the peer judges our certificate after our side is done: it has refused before it read the request.
        Some(rustls::Error::AlertReceived(alert)) if is_about_certificates(*alert) => FailureKind::Tls,
        _ if error.is_connect() => FailureKind::Unreachable,
        _ => FailureKind::Interrupted,
    };
    let mut texts: Vec<String> = Vec::new();
    for text in chain.iter().map(ToString::to_string) {
        // Layers of the transport repeat each other.
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
    }
    Failure::new(kind, redactor.text(&texts.join(": ")))
}

/// The error and its causes. An `io::Error` hides the error that it wraps from `source`, so it is opened.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    /// Deeper than any chain seen; a bound because sources come from other crates.
    const DEPTH_MAX: usize = 16;
    let mut out: Vec<&'a (dyn StdError + 'static)> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next.filter(|_| out.len() < DEPTH_MAX) {
        out.push(cause);
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => cause.source(),
        };
    }
    out
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

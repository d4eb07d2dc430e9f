//! Import `wasi:http/outgoing-handler`, for components whose language has its own HTTP client:
//! JavaScript, Python, Go.
//!
//! Every request goes through the provider's client, under the same rules, limits and metrics as
//! the contract's `http`. Differences to other implementations of `wasi:http`:
//! - A request names one of the provider's credentials in the header `skysail-credential`, which
//!   the host removes.
//! - The host reads, checks and redacts the whole response before the guest receives it. So
//!   `first-byte-timeout` bounds the whole exchange, and the two other timeouts have no effect.
//!   Trailers are not supported in either direction.
//! - Headers that only the host may set, and names that servers treat as another header, are
//!   refused when the guest sets them (`forbidden`); headers that HTTP clients set automatically
//!   are dropped silently.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use skysail_egress::header_names::{is_ambiguous, is_hosts_header};
use skysail_provider::{Limit, LimitHit};
use tracing::Instrument as _;
use wasmtime_wasi_http::{
    Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use super::http::{HttpCall, Sender};
use crate::{
    fuel_charge::Owed,
    http_client::{Failure, FailureKind, Held, HttpRequest, HttpResponse},
    store::CallState,
};

/// The header that names the credential. Without the prefix `x-`, so that it cannot be a header of
/// a cloud.
const CREDENTIAL: HeaderName = HeaderName::from_static("skysail-credential");

/// Headers that the host sets, and that HTTP clients set automatically.
const LEFT_OUT: [HeaderName; 3] = [header::CONTENT_LENGTH, header::ACCEPT_ENCODING, header::HOST];

/// The maximum number of bytes of one `fields` resource on the host. A guest may hold as many of
/// them as handles, by default a thousand.
const FIELDS_BYTES_MAX: usize = 32 << 10;

/// The maximum number of bytes of one chunk of an outgoing body, for the same reason.
const CHUNK_BYTES_MAX: usize = 16 << 10;

type Finished = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Result<(Response<WasiBody>, Finished), Error>;

/// The `wasi:http` side of one call.
pub(crate) struct WasiHttp {
    ctx: WasiHttpCtx,
    bridge: Bridge,
}

/// Sends the guest's requests.
#[derive(Clone)]
struct Bridge {
    sender: Sender,
    held: Arc<Held>,
    bodies: Arc<Bodies>,
    owed: Owed,
}

/// Bytes of bodies that the host holds for all requests in flight of one call, outside the guest's
/// memory.
struct Bodies {
    held: AtomicU64,
    max: u64,
}

/// A body that the guest is writing. Dropping it releases its share of the bytes.
struct Collected<'a> {
    bodies: &'a Bodies,
    /// The body's share of the bytes of all bodies, for as long as its request is in flight.
    held: u64,
    bytes: BytesMut,
}

impl WasiHttp {
    pub(crate) fn new(call: &HttpCall, owed: Owed) -> Self {
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(FIELDS_BYTES_MAX);
        let bridge = Bridge {
            sender: call.sender().clone(),
            held: Arc::new(Held::new(call.room())),
            bodies: Arc::new(Bodies { held: AtomicU64::new(0), max: call.bodies() }),
            owed,
        };
        Self { ctx, bridge }
    }
}

impl WasiHttpView for CallState {
    /// Created at the first use: most providers do not use `wasi:http`.
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let (call, owed) = (&self.http, self.fuel_charge.owed());
        let WasiHttp { ctx, bridge } = self.wasi_http.get_or_insert_with(|| WasiHttp::new(call, owed));
        WasiHttpCtxView { hooks: bridge, table: &mut self.table, ctx }
    }
}

impl WasiHttpHooks for Bridge {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(is_forbidden)
    }

    fn set_host_header(&mut self) -> bool {
        false
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Finished,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let bridge = self.clone();
        // A separate task, which ends with the guest's handle or with the call.
        let sent = async move { bridge.send(request, options).await.map_err(|failure| error_of(&failure)) };
        Box::new(sent.in_current_span())
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK_BYTES_MAX
    }
}

impl Bridge {
    async fn send(
        self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<(Response<WasiBody>, Finished), Failure> {
        let budget = self.sender.budget();
        let (parts, body) = request.into_parts();
        // Check the limit before the body is read: a guest can open as many requests as it has
        // handles.
        let admitted = budget.admit(&self.held)?;
        let noted = |failure: &Failure| budget.note(failure);
        let mut collected = Collected { bodies: &self.bodies, held: 0, bytes: BytesMut::new() };
        collected.read(body, budget.limits().request_bytes_max).await.inspect_err(noted)?;
        let body = collected.bytes.split().freeze();
        let request = HttpRequest {
            method: parts.method.as_str().to_owned(),
            url: parts.uri.to_string(),
            headers: headers_of(&parts.headers).inspect_err(noted)?,
            body: (!body.is_empty()).then_some(body),
            credential: credential_of(&parts.headers).inspect_err(noted)?,
            timeout: options.and_then(|options| options.first_byte_timeout),
        };
        let response = self.sender.send(admitted, request).await?;
        if self.sender.redacts() {
            self.owed.redacted(response.size());
        }
        Ok((response_of(response)?, Box::new(std::future::ready(Ok(())))))
    }
}

impl Collected<'_> {
    /// Reads the whole body while the guest writes it.
    async fn read(&mut self, mut body: WasiBody, max: u64) -> Result<(), Failure> {
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Failure::new(FailureKind::Malformed, format!("the request's body: {error}")))?;
            let Ok(piece) = frame.into_data() else { continue };
            let more = piece.len() as u64;
            let used = self.held.saturating_add(more);
            if used > max {
                let hit = LimitHit { limit: Limit::HttpRequestBytes, used, max };
                return Err(Failure::with_limit(FailureKind::Limited, hit));
            }
            self.held = used;
            let (max, used) =
                (self.bodies.max, self.bodies.held.fetch_add(more, Ordering::Relaxed).saturating_add(more));
            if used > max {
                let hit = LimitHit { limit: Limit::HostCallBytes, used, max };
                return Err(Failure::with_limit(FailureKind::Limited, hit));
            }
            self.bytes.extend_from_slice(&piece);
        }
        Ok(())
    }
}

impl Drop for Collected<'_> {
    fn drop(&mut self) {
        self.bodies.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

/// Whether a guest may not set this header.
fn is_forbidden(name: &HeaderName) -> bool {
    is_ambiguous(name) || (is_hosts_header(name) && !LEFT_OUT.contains(name))
}

/// The headers for the client.
fn headers_of(given: &HeaderMap) -> Result<Vec<(String, String)>, Failure> {
    let kept = given.iter().filter(|(name, _)| **name != CREDENTIAL && !LEFT_OUT.contains(name));
    kept.map(|(name, value)| Ok((name.as_str().to_owned(), text_of(name, value)?))).collect()
}

/// The credential that the header [`CREDENTIAL`] names.
fn credential_of(given: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut named = given.get_all(CREDENTIAL).iter();
    match (named.next(), named.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => text_of(&CREDENTIAL, value).map(Some),
        (Some(_), Some(_)) => Err(Failure::malformed(format!(
            "header {CREDENTIAL} is given twice, but a request can use only one credential"
        ))),
    }
}

fn text_of(name: &HeaderName, value: &HeaderValue) -> Result<String, Failure> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| Failure::malformed(format!("the value of header {name} is not UTF-8")))
}

fn response_of(response: HttpResponse) -> Result<Response<WasiBody>, Failure> {
    let HttpResponse { status, headers, body } = response;
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    builder.body(body).map_err(|error| Failure::new(FailureKind::Interrupted, format!("the answer: {error}")))
}

/// The nearest error code of `wasi:http`; only `internal-error` can carry a message. The host's log
/// contains the whole failure.
fn error_of(failure: &Failure) -> Error {
    let Failure { kind, message, limit } = failure;
    match kind {
        FailureKind::Forbidden | FailureKind::Fenced | FailureKind::CredentialRefused => Error::HttpRequestDenied,
        FailureKind::Limited => match limit {
            Some(LimitHit { limit: Limit::HttpRequestBytes, max, .. }) => Error::HttpRequestBodySize(Some(*max)),
            Some(_) | None => Error::ConnectionLimitReached,
        },
        FailureKind::Malformed => Error::InternalError(Some(message.clone())),
        FailureKind::Unreachable | FailureKind::CredentialUnavailable => Error::DestinationUnavailable,
        FailureKind::Tls => Error::TlsProtocolError,
        FailureKind::Interrupted => Error::ConnectionTerminated,
        FailureKind::Timeout => Error::HttpResponseTimeout,
        FailureKind::TooLarge(bytes) => Error::HttpResponseBodySize((*bytes > 0).then_some(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, stream};
    use http::{HeaderName, Request};
    use http_body::Frame;
    use http_body_util::{BodyExt as _, StreamBody};
    use skysail_egress::{credentials::Credentials, policy::EgressPolicy};
    use skysail_provider::Call;
    use tokio::time::Instant;

    use super::{
        Arc, AtomicU64, Bodies, Bridge, FailureKind, Held, Limit, Ordering, Owed, Sender, WasiBody, is_forbidden,
    };
    use crate::{
        Limits,
        http_client::{HttpBudget, HttpClient},
    };

    #[test]
    fn reserved_headers_are_forbidden_in_every_spelling_that_servers_accept() {
        let forbidden = |name: &str| is_forbidden(&name.parse::<HeaderName>().unwrap());
        for name in ["x-http-method-override", "x_http_method_override", "X_HTTP-Method.Override", "skysail_credential"]
        {
            assert!(forbidden(name), "{name}");
        }
        for name in ["skysail-credential", "content-length", "x-auth-token", "accept"] {
            assert!(!forbidden(name), "{name}");
        }
    }
    /// The bridge of a call with this limit of requests and this limit for the bytes of all their
    /// bodies.
    fn bridge(http_requests: u64, bodies: u64) -> Bridge {
        let limits = Limits { http_requests, ..Limits::default() }.http();
        let policy = Arc::new(EgressPolicy::new(&crate::egress::EgressSpec::default()).unwrap());
        let client = HttpClient::new(policy, Arc::new(Credentials::none()), &limits).unwrap();
        let budget = HttpBudget::new(limits, Some(Instant::now() + Duration::from_secs(60)), &Call::default());
        Bridge {
            sender: Sender::live(Arc::new(client), budget),
            held: Arc::new(Held::new(u64::MAX)),
            bodies: Arc::new(Bodies { held: AtomicU64::new(0), max: bodies }),
            owed: Owed::default(),
        }
    }

    /// A request whose guest writes these pieces and then neither writes more nor finishes the
    /// body.
    fn unfinished(pieces: &'static [&'static [u8]]) -> Request<WasiBody> {
        let pieces = stream::iter(pieces).map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece))));
        let body = StreamBody::new(pieces.chain(stream::pending()));
        Request::new(body.map_err(|never| match never {}).boxed_unsync())
    }

    #[tokio::test]
    async fn a_request_beyond_the_limit_is_refused_before_its_body_is_read() {
        let bridge = bridge(1, 1 << 20);
        let mut first = Box::pin(bridge.clone().send(unfinished(&[b"some bytes"]), None));
        assert!((&mut first).now_or_never().is_none(), "the guest is still writing the first body");
        let second = bridge.clone().send(unfinished(&[b"more bytes"]), None).now_or_never();
        let failure = second.expect("the second request must fail without waiting for its body").err().unwrap();
        assert_eq!((failure.kind, failure.limit.unwrap().limit), (FailureKind::Limited, Limit::HttpRequests));
        assert_eq!(bridge.bodies.held.load(Ordering::Relaxed), 10, "only the first body is held");
    }

    #[tokio::test]
    async fn the_bodies_of_all_requests_in_flight_of_a_call_share_one_limit() {
        let bridge = bridge(64, 100);
        let mut first = Box::pin(bridge.clone().send(unfinished(&[&[b'x'; 60]]), None));
        assert!((&mut first).now_or_never().is_none(), "the guest is still writing the first body");
        let second = || bridge.clone().send(unfinished(&[&[b'x'; 30], &[b'x'; 30]]), None).now_or_never();
        let failure = second().expect("the second request must fail while it reads its body").err().unwrap();
        let hit = failure.limit.unwrap();
        assert_eq!(
            (failure.kind, hit.limit, hit.used, hit.max),
            (FailureKind::Limited, Limit::HostCallBytes, 120, 100)
        );
        assert_eq!(bridge.sender.budget().usage().limit_hits, [hit]);
        drop(first);
        assert!(second().is_none(), "the first body must have released its bytes");
    }
}

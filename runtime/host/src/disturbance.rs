//! One request of a component that fails on purpose, for tests of providers against their cloud.
//!
//! The failure is made where the host sends requests, so that the component cannot tell it from one
//! of the cloud or of the network, and every component can be tested, whatever its cloud.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::http_client::{Admitted, Failure, FailureKind, HttpBudget, HttpRequest, HttpResponse};

/// What becomes of the disturbed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The cloud does not receive the request; the answer is 429 with `Retry-After: 1`.
    RateLimit,
    /// The cloud does not receive the request; the answer has this status and a page in HTML, as
    /// that of a gateway.
    Status(u16),
    /// The cloud does not receive the request, and the connection ends.
    CutBefore,
    /// The cloud carries out the request, and the connection ends before the answer.
    CutAfter,
}

/// The request that was disturbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisturbedRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// As the component wrote it.
    pub url: String,
}

/// Disturbs one request of the calls whose recorder has it
/// ([`crate::CallRecorder::disturbed_by`]); none by default. Clones disturb together.
#[derive(Clone, Debug, Default)]
pub struct Disturber(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// How many requests pass before the disturbed one.
    wanted: Option<(u32, Disturbance)>,
    met: Option<DisturbedRequest>,
}

impl Disturber {
    /// Disturbs one request after this number of further requests.
    pub fn disturb(&self, after: u32, disturbance: Disturbance) {
        *self.state() = State { wanted: Some((after, disturbance)), met: None };
    }

    /// The request that was disturbed since [`Self::disturb`].
    #[must_use]
    pub fn met(&self) -> Option<DisturbedRequest> {
        self.state().met.clone()
    }

    /// Disturbs no further request.
    pub fn end(&self) {
        *self.state() = State::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panicking thread leaves the values valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the request.
    fn take(&self, request: &HttpRequest) -> Option<Disturbance> {
        let mut state = self.state();
        let (after, disturbance) = state.wanted.take()?;
        if let Some(left) = after.checked_sub(1) {
            state.wanted = Some((left, disturbance));
            return None;
        }
        let HttpRequest { method, url, .. } = request;
        state.met = Some(DisturbedRequest { method: method.clone(), url: url.clone() });
        Some(disturbance)
    }

    /// Sends a request with `live`, which counts in the budget what it has come to, or disturbs it.
    pub(crate) async fn send<F: Future<Output = Result<HttpResponse, Failure>>>(
        &self,
        (budget, admitted): (&HttpBudget, Admitted),
        request: HttpRequest,
        live: impl FnOnce(Admitted, HttpRequest) -> F,
    ) -> Result<HttpResponse, Failure> {
        let instead = match self.take(&request) {
            None => return live(admitted, request).await,
            Some(Disturbance::CutAfter) => return live(admitted, request).await.and_then(|_| Err(cut())),
            Some(Disturbance::CutBefore) => Err(cut()),
            Some(Disturbance::RateLimit) => Ok(page(429, &[("retry-after", "1")])),
            Some(Disturbance::Status(status)) => Ok(page(status, &[])),
        };
        budget.settle(&admitted, &instead);
        instead
    }
}

fn cut() -> Failure {
    Failure::new(FailureKind::Interrupted, "the connection ended before the whole answer arrived")
}

fn page(status: u16, headers: &[(&str, &str)]) -> HttpResponse {
    let headers = [("content-type", "text/html")].iter().chain(headers);
    let headers = headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = format!("<html><head><title>{status}</title></head><body>a gateway</body></html>");
    HttpResponse { status, headers, body: body.into() }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use skysail_provider::Call;

    use super::{Disturbance, Disturber};
    use crate::{
        Limits,
        http_client::{Failure, FailureKind, Held, HttpBudget, HttpRequest, HttpResponse},
    };

    /// Sends so many requests, and returns what each came to and how many reached the cloud.
    async fn send(disturber: &Disturber, requests: usize) -> (Vec<Result<u16, FailureKind>>, u32) {
        let (budget, sent) = (HttpBudget::new(Limits::default().http(), None, &Call::default()), AtomicU32::new(0));
        let mut ends = Vec::new();
        for number in 0..requests {
            let admitted = budget.admit(&Arc::new(Held::new(1 << 20))).unwrap();
            let request =
                HttpRequest { method: "PUT".to_owned(), url: format!("https://a/{number}"), ..HttpRequest::default() };
            let live = |_, _| async {
                sent.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Failure>(HttpResponse { status: 200, headers: Vec::new(), body: "".into() })
            };
            let end = disturber.send((&budget, admitted), request, live).await;
            ends.push(end.map(|response| response.status).map_err(|failure| failure.kind));
        }
        (ends, sent.into_inner())
    }

    #[tokio::test]
    async fn one_request_fails_and_only_a_lost_answer_is_of_a_request_that_the_cloud_received() {
        let cut = Err(FailureKind::Interrupted);
        for (disturbance, end, sent) in [
            (Disturbance::RateLimit, Ok(429), 2),
            (Disturbance::Status(503), Ok(503), 2),
            (Disturbance::CutBefore, cut, 2),
            (Disturbance::CutAfter, cut, 3),
        ] {
            let disturber = Disturber::default();
            disturber.disturb(1, disturbance);
            assert_eq!(send(&disturber, 3).await, (vec![Ok(200), end, Ok(200)], sent), "{disturbance:?}");
            assert_eq!(disturber.met().map(|request| request.url).as_deref(), Some("https://a/1"));
        }
    }

    #[tokio::test]
    async fn without_a_disturbance_and_after_its_end_every_request_passes() {
        let disturber = Disturber::default();
        assert_eq!(send(&disturber, 2).await, (vec![Ok(200); 2], 2));
        disturber.disturb(0, Disturbance::CutBefore);
        disturber.end();
        assert_eq!((send(&disturber, 1).await, disturber.met()), ((vec![Ok(200)], 1), None));
    }
}

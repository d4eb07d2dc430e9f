//! Import `http`.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    HttpUse, Sandbox,
    bindings::skysail::provider::http::{Failure, Host, Request, Response},
    http_client::{HttpBudget, HttpLimits, HttpUsage},
    limits::Limits,
    store::CallState,
};

/// The HTTP side of one call.
pub(crate) struct HttpCall {
    allowed: bool,
    budget: HttpBudget,
}

impl HttpCall {
    pub(crate) fn new(sandbox: &Sandbox, allowed: bool, deadline: Instant) -> Self {
        Self { allowed, budget: HttpBudget::new(http_limits(sandbox.limits()), Some(deadline)) }
    }

    pub(crate) fn usage(&self) -> HttpUsage {
        self.budget.usage()
    }
}

impl From<HttpUsage> for HttpUse {
    fn from(usage: HttpUsage) -> Self {
        let HttpUsage { requests, refused, bytes_sent, bytes_received, time, in_flight_max: _, limit_hits: _ } = usage;
        Self { requests: requests - refused, bytes_sent, bytes_received, time }
    }
}

fn http_limits(limits: &Limits) -> HttpLimits {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    HttpLimits {
        requests_per_call: number(limits.http_requests),
        concurrency_per_call: number(limits.http_concurrency),
        requests_per_second: number(limits.http_requests_per_second),
        request_bytes_max: limits.http_request_bytes,
        response_bytes_max: limits.http_response_bytes,
        headers_max: number(limits.http_headers),
        header_bytes_max: HttpLimits::default().header_bytes_max,
        exchange_time_max: Duration::from_millis(limits.http_time_ms),
    }
}

impl Host for CallState {
    async fn send(&mut self, _request: Request) -> wasmtime::Result<Result<Response, Failure>> {
        let why = if self.http.allowed { "this host has no HTTP client" } else { "no HTTP here" };
        Ok(Err(Failure::Forbidden(why.to_owned())))
    }

    async fn send_all(&mut self, requests: Vec<Request>) -> wasmtime::Result<Vec<Result<Response, Failure>>> {
        let mut all = Vec::new();
        for request in requests {
            all.push(self.send(request).await?);
        }
        Ok(all)
    }
}

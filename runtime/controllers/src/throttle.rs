//! The rate limit of a client: client-go's token bucket.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Request;
use tokio::time::{Instant, Sleep, sleep};
use tower::{Layer, Service};

/// Waits longer than this are logged, as by client-go.
const LONG: Duration = Duration::from_secs(1);

/// Requests per second and the size of a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    qps: f64,
    burst: f64,
}

impl Rate {
    /// As client-go: a rate of 0 means 5, a burst of 0 means 10, a negative rate means no limit.
    #[must_use]
    pub fn new(qps: f32, burst: u16) -> Option<Self> {
        let qps = if qps == 0.0 { 5.0 } else { qps };
        let burst = if burst == 0 { 10 } else { burst };
        (qps > 0.0).then(|| Self { qps: qps.into(), burst: burst.into() })
    }
}

/// A token bucket: full at first; each request takes a token, and tokens return at the rate.
struct Bucket {
    rate: Rate,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        Self { rate, tokens: rate.burst, at: Instant::now() }
    }

    /// How long until there is a token.
    fn wait(&mut self) -> Duration {
        let now = Instant::now();
        let come = now.duration_since(self.at).as_secs_f64() * self.rate.qps;
        (self.tokens, self.at) = ((self.tokens + come).min(self.rate.burst), now);
        // Rounding to nanoseconds can leave less than a thousandth of a token missing.
        let missing = 1.0 - self.tokens;
        if missing < 0.001 {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(missing / self.rate.qps).unwrap_or(Duration::MAX)
        }
    }

    fn take(&mut self) {
        self.tokens -= 1.0;
    }
}

/// Applies the rate limit to a client.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleLayer(Rate);

impl ThrottleLayer {
    /// A layer with this rate.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self(rate)
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttle<S>;

    fn layer(&self, inner: S) -> Throttle<S> {
        Throttle { inner, bucket: Bucket::new(self.0), waiting: None }
    }
}

/// See [`ThrottleLayer`]. The wait is in `poll_ready`, so that requests keep their order and a
/// request that is cancelled during the wait takes no token.
pub struct Throttle<S> {
    inner: S,
    bucket: Bucket,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Throttle<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            let wait = self.bucket.wait();
            if wait.is_zero() {
                return self.inner.poll_ready(cx);
            }
            if wait > LONG {
                tracing::info!(wait_ms = wait.as_millis(), "client-side rate limit (--kube-api-qps): a request waits");
            }
            self.waiting = Some(Box::pin(sleep(wait)));
        }
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.bucket.take();
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use http::Request;
    use tokio::time::Instant;
    use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

    use super::{Rate, ThrottleLayer};

    /// How long this number of requests takes.
    async fn time_of(rate: Rate, requests: u16) -> Duration {
        let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(()) });
        let (mut client, begin) = (ThrottleLayer::new(rate).layer(inner), Instant::now());
        for _ in 0..requests {
            client.ready().await.unwrap().call(Request::new(())).await.unwrap();
        }
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_does_not_wait_and_the_rest_is_sent_at_the_rate() {
        let rate = Rate::new(20.0, 30).unwrap();
        assert_eq!(time_of(rate, 30).await, Duration::ZERO);
        let rest = time_of(rate, 130).await;
        assert!((Duration::from_millis(5000)..Duration::from_millis(5200)).contains(&rest), "{rest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_client_gets_at_most_the_burst_back() {
        let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(()) });
        let mut client = ThrottleLayer::new(Rate::new(1.0, 2).unwrap()).layer(inner);
        let mut ask = async || {
            let begin = Instant::now();
            client.ready().await.unwrap().call(Request::new(())).await.unwrap();
            begin.elapsed()
        };
        assert_eq!((ask().await, ask().await), (Duration::ZERO, Duration::ZERO));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!((ask().await, ask().await), (Duration::ZERO, Duration::ZERO));
        assert!(ask().await >= Duration::from_millis(990));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_takes_no_token() {
        let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(()) });
        let mut client = ThrottleLayer::new(Rate::new(1.0, 1).unwrap()).layer(inner);
        client.ready().await.unwrap().call(Request::new(())).await.unwrap();
        for _ in 0..5 {
            let given_up = tokio::time::timeout(Duration::from_millis(100), client.ready()).await;
            assert!(given_up.is_err());
        }
        let begin = Instant::now();
        client.ready().await.unwrap();
        assert!(begin.elapsed() <= Duration::from_millis(502), "{:?}", begin.elapsed());
    }

    #[test]
    fn zero_is_client_gos_default_and_a_negative_rate_is_no_limit() {
        assert_eq!(Rate::new(0.0, 0), Rate::new(5.0, 10));
        assert_eq!(Rate::new(-1.0, 30), None);
    }
}

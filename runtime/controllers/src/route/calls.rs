//! Creates and deletes routes in pages (provider). One call at a time, so that a slow provider has
//! one call in flight, not two hundred.

use skysail_provider::{Call, Code, Error, NewRoute, Result, Route};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, lane::Lane};

/// The maximum number of routes in one call. A cloud without batch requests needs one request to
/// create a route, and one more to delete an old one; with the listed pages before, both stay below
/// the default of `httpRequests`.
const ROUTES_PER_PAGE: usize = 25;

/// One result for each route, in order.
pub(crate) struct CallResults {
    pub(crate) results: Vec<Result<()>>,
    /// The provider rejects all calls for now; no call follows this error.
    pub(crate) refused: Option<Error>,
}

/// What all calls of one pass share.
pub(crate) struct Calls<'a> {
    context: &'a Context,
    lane: &'a Lane,
    stop: &'a CancellationToken,
}

impl<'a> Calls<'a> {
    pub(crate) fn new(context: &'a Context, lane: &'a Lane, stop: &'a CancellationToken) -> Self {
        Self { context, lane, stop }
    }

    /// The metadata of one call: each page is a step of the turn. A call about many routes names no
    /// object.
    fn call(&self) -> Call {
        self.context.call(self.lane, None)
    }

    /// Every route that the provider reports for this cluster.
    pub(crate) async fn list(&self) -> Result<Vec<Route>> {
        match self.lane.provider.routes() {
            Some(routes) => routes.list(&self.call(), &self.context.settings.cluster_name).await,
            None => Err(absent()),
        }
    }

    /// Creates routes.
    pub(crate) async fn create(&self, routes: &[NewRoute]) -> CallResults {
        let mut answers = CallResults::new();
        for page in routes.chunks(ROUTES_PER_PAGE) {
            if answers.is_over(page.len(), self.stop) {
                continue;
            }
            // Fetched for each page, because a swap may replace the release in between.
            let answer = match self.lane.provider.routes() {
                Some(routes) => routes.create(&self.call(), &self.context.settings.cluster_name, page).await,
                None => Err(absent()),
            };
            answers.take(page.len(), answer);
        }
        answers
    }

    /// Deletes routes that [`Self::list`] returned.
    pub(crate) async fn delete(&self, routes: &[Route]) -> CallResults {
        let mut answers = CallResults::new();
        for page in routes.chunks(ROUTES_PER_PAGE) {
            if answers.is_over(page.len(), self.stop) {
                continue;
            }
            let answer = match self.lane.provider.routes() {
                Some(routes) => routes.delete(&self.call(), &self.context.settings.cluster_name, page).await,
                None => Err(absent()),
            };
            answers.take(page.len(), answer);
        }
        answers
    }
}

fn absent() -> Error {
    Error::new(Code::NotServing, "the provider has no routes, or no release of it serves")
}

impl CallResults {
    const fn new() -> Self {
        Self { results: Vec::new(), refused: None }
    }

    /// Whether no further page may be sent; its routes then get the error of the page before.
    fn is_over(&mut self, asked: usize, stop: &CancellationToken) -> bool {
        if stop.is_cancelled() {
            self.refused.get_or_insert_with(|| Error::new(Code::NotServing, "the manager is shutting down"));
        }
        if let Some(error) = &self.refused {
            self.results.extend((0..asked).map(|_| Err(error.clone())));
        }
        self.refused.is_some()
    }

    fn take(&mut self, asked: usize, answer: Result<Vec<Result<()>>>) {
        let error = match answer {
            Ok(results) if results.len() == asked => {
                self.results.extend(results);
                return;
            }
            Ok(results) => {
                let text = format!("the provider returned {} results for {asked} routes", results.len());
                Error::new(Code::Internal, text)
            }
            Err(error) => error,
        };
        self.results.extend((0..asked).map(|_| Err(error.clone())));
        // These errors concern all calls; any other failure may concern one route of the page.
        if matches!(error.code, Code::RetryAfter | Code::Denied | Code::NotServing | Code::NotLeading) {
            self.refused = Some(error);
        }
    }
}

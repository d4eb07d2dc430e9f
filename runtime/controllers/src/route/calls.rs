//! Creates and deletes routes in pages (provider). One call at a time: a provider that is slow has
//! one call in flight, not two hundred.

use skysail_provider::{Call, Code, Error, Result, Route};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, lane::Lane};

/// Most routes in one call. A cloud without lists takes a request for each, and one more to take an
/// old one away; with the pages that are listed before, both stay below the default of
/// `httpRequests`.
const ROUTES_PER_PAGE: usize = 25;

/// One result for each route, in order.
pub(crate) struct Answers {
    pub(crate) results: Vec<Result<()>>,
    /// The whole provider does not want to be called for now; nothing was called after it said so.
    pub(crate) refused: Option<Error>,
}

/// What all calls of one pass share.
pub(crate) struct Calls<'a> {
    context: &'a Context,
    lane: &'a Lane,
    stop: &'a CancellationToken,
    call: Call,
}

impl<'a> Calls<'a> {
    pub(crate) fn new(context: &'a Context, lane: &'a Lane, stop: &'a CancellationToken) -> Self {
        // Many routes are no one object.
        Self { context, lane, stop, call: context.call(lane, None) }
    }

    /// Every route that the provider says is the cluster's.
    pub(crate) async fn list(&self) -> Result<Vec<Route>> {
        match self.lane.provider.routes() {
            Some(routes) => routes.list(&self.call, &self.context.settings.cluster_name).await,
            None => Err(absent()),
        }
    }

    /// Creates routes, each with its name hint.
    pub(crate) async fn create(&self, routes: &[(String, Route)]) -> Answers {
        let mut answers = Answers::new();
        for page in routes.chunks(ROUTES_PER_PAGE) {
            if answers.is_over(page.len(), self.stop) {
                continue;
            }
            // Asked again for each page: a swap may come in between.
            let answer = match self.lane.provider.routes() {
                Some(routes) => routes.create(&self.call, &self.context.settings.cluster_name, page).await,
                None => Err(absent()),
            };
            answers.take(page.len(), answer);
        }
        answers
    }

    /// Deletes routes that [`Self::list`] gave.
    pub(crate) async fn delete(&self, routes: &[Route]) -> Answers {
        let mut answers = Answers::new();
        for page in routes.chunks(ROUTES_PER_PAGE) {
            if answers.is_over(page.len(), self.stop) {
                continue;
            }
            let answer = match self.lane.provider.routes() {
                Some(routes) => routes.delete(&self.call, &self.context.settings.cluster_name, page).await,
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

impl Answers {
    const fn new() -> Self {
        Self { results: Vec::new(), refused: None }
    }

    /// No further page is begun; its routes get the answer of the page before.
    fn is_over(&mut self, asked: usize, stop: &CancellationToken) -> bool {
        if stop.is_cancelled() {
            self.refused.get_or_insert_with(|| Error::new(Code::NotServing, "the manager is ending"));
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
                let text = format!("the provider gave {} results for {asked} routes", results.len());
                Error::new(Code::Internal, text)
            }
            Err(error) => error,
        };
        self.results.extend((0..asked).map(|_| Err(error.clone())));
        // What the cloud says about all calls; any other failure may be that of one route of the
        // page.
        if matches!(error.code, Code::RetryAfter | Code::Denied | Code::NotServing | Code::NotLeading) {
            self.refused = Some(error);
        }
    }
}

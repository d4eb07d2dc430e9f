//! Clients that say who they are.

use std::sync::Arc;

use http::{HeaderValue, Request, header::USER_AGENT};
use kube::client::Body;
use skysail_dev::api::ApiServer;
use tower::ServiceExt as _;

/// The user agent of who only looks.
pub(crate) const REFEREE: &str = "referee";
/// The user agent of people and machines.
pub(crate) const PEOPLE: &str = "people";

/// A client of this API under this name.
pub(crate) fn named(server: &Arc<ApiServer>, name: &str) -> kube::Client {
    let (inner, agent) = (server.service(), HeaderValue::from_str(name).unwrap());
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, agent.clone());
        inner.clone().oneshot(request)
    });
    kube::Client::new(service, "default")
}

//! Clients of the API with a user agent of their own.

use std::sync::Arc;

use http::{HeaderValue, Request, header::USER_AGENT};
use kube::client::Body;
use skysail_controllers::{Clients, Deadlines, Rate, ThrottleLayer};
use skysail_dev::api::ApiServer;
use tower::{Layer as _, ServiceExt as _};

use crate::link::Link;

/// The user agent of the referee, which only reads.
pub(crate) const REFEREE: &str = "referee";
/// The user agent of people and machines.
pub(crate) const PEOPLE: &str = "people";

/// A client with this name and without faults.
pub(crate) fn undisturbed(server: &Arc<ApiServer>, name: &str) -> kube::Client {
    let (inner, agent) = (server.service(), agent(name));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, agent.clone());
        inner.clone().oneshot(request)
    });
    kube::Client::new(service, "default")
}

/// A client of a process with this name, with the deadlines and the rate limit of `skysail run`.
pub(crate) fn of_process(server: &Arc<ApiServer>, name: &str, (link, rate): (&Arc<Link>, Rate)) -> kube::Client {
    let (server, agent, link) = (Arc::clone(server), agent(name), Arc::clone(link));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, agent.clone());
        Arc::clone(&link).exchange(Arc::clone(&server), request)
    });
    kube::Client::new(ThrottleLayer::new(rate).layer(Deadlines::new(service)), "default")
}

/// The clients of the controllers: each has its own rate limit.
pub(crate) fn of_controllers(server: &Arc<ApiServer>, name: &str, link: (&Arc<Link>, Rate)) -> Clients {
    let client = || of_process(server, name, link);
    Clients {
        shared_informers: client(),
        service_controller: client(),
        node_controller: client(),
        route_controller: client(),
        service_events: client(),
        node_events: client(),
    }
}

fn agent(name: &str) -> HeaderValue {
    HeaderValue::from_str(name).unwrap()
}

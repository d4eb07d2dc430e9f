//! A client that checks the fence immediately before each write.

use http::Request;
use kube::client::Body;
use skysail_provider::Fence;
use tower::BoxError;

/// A client for a leader: it reads as `client` does, and writes only while the fence is open. A
/// blocked write fails with [`kube::Error::Service`] around a [`skysail_provider::FenceClosed`].
///
/// The fence is checked at each poll of a write: before it is sent, before the client retries it,
/// and when a frozen process continues.
#[must_use]
pub fn fenced(client: &kube::Client, fence: Fence) -> kube::Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, fence) = (inner.clone(), fence.clone());
        async move {
            if request.method().is_safe() {
                return inner.send(request).await.map_err(BoxError::from);
            }
            fence.guard(inner.send(request)).await?.map_err(BoxError::from)
        }
    });
    kube::Client::new(service, client.default_namespace())
}

#[cfg(test)]
mod tests;

//! A client whose writes ask the fence at the last moment before they leave.

use http::Request;
use kube::client::Body;
use skysail_provider::Fence;
use tower::BoxError;

/// The same client for a leader: it reads as before, and writes only while the fence is open. A
/// write that is held back fails with [`kube::Error::Service`] around a
/// [`skysail_provider::FenceClosed`].
///
/// The fence is asked before each step of a write: before it is sent, before the client sends it
/// again after a refusal, and whenever a process that was frozen goes on with it.
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

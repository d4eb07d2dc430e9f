//! The network link of one process. Connections can be lost without an error, and the process can
//! be frozen.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use skysail_dev::api::ApiServer;
use tokio::{
    select,
    sync::{
        oneshot,
        watch::{Receiver, Sender},
    },
    task::JoinSet,
};
use tower::{BoxError, ServiceExt as _};

/// The connections of one process. All its clients and providers share it.
#[derive(Debug)]
pub(crate) struct Link {
    /// Whether the process is frozen, as by SIGSTOP.
    frozen: Sender<bool>,
    /// Counts how often the established connections were lost.
    losses: Sender<u64>,
    requests: Requests,
}

/// Requests under way of all processes, which outlive their senders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<Mutex<JoinSet<()>>>);

impl Requests {
    fn send<T: Send + 'static>(&self, request: impl Future<Output = T> + Send + 'static) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while requests.try_join_next().is_some() {}
        // The sender may have died.
        requests.spawn(async move { drop(answer.send(request.await)) });
        answered
    }
}

impl Link {
    pub(crate) fn new(requests: Requests) -> Arc<Self> {
        Arc::new(Self { frozen: Sender::new(false), losses: Sender::new(0), requests })
    }

    /// Freezes the process, or lets it continue.
    ///
    /// A frozen process sends no request and receives no answer, and its slots, its feeders and its
    /// main task do not run. The tasks that a manager itself spawns go on as far as to their next
    /// request: the runtime of the day polls them, and no process has a runtime of its own.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        *self.frozen.borrow()
    }

    /// The established connections drop all data without an error. New connections work.
    pub(crate) fn lose_connections(&self) {
        self.losses.send_modify(|losses| *losses += 1);
    }

    /// Runs this future while the process is not frozen.
    pub(crate) async fn run<F: Future>(&self, future: F) -> F::Output {
        let (mut frozen, mut future) = (self.frozen.subscribe(), pin!(future));
        loop {
            until(&mut frozen, false).await;
            select! {
                biased;
                () = until(&mut frozen, true) => {}
                output = &mut future => return output,
            }
        }
    }

    /// Sends one request to the API server and returns its answer. A sent request takes effect even
    /// if its sender dies.
    pub(crate) async fn exchange(
        self: Arc<Self>,
        server: Arc<ApiServer>,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let mut losses = self.losses.subscribe();
        self.run(std::future::ready(())).await;
        let sent = self.requests.send(server.service().oneshot(request));
        let answer = carried(&mut losses, self.run(sent)).await??;
        let (head, body) = answer.into_parts();
        let frames = stream::unfold((self, losses, body), |(link, mut losses, mut body)| async move {
            let frame: Option<Result<Frame<Bytes>, _>> = carried(&mut losses, link.run(body.frame())).await;
            Some((frame?.map_err(BoxError::from), (link, losses, body)))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }
}

/// The output of this future; pending for ever if the connection is lost before.
async fn carried<F: Future>(losses: &mut Receiver<u64>, future: F) -> F::Output {
    select! {
        biased;
        // The link owns the sender of this channel and outlives this future.
        _ = losses.changed() => std::future::pending().await,
        output = future => output,
    }
}

async fn until(frozen: &mut Receiver<bool>, state: bool) {
    // The link, which sends, lives as long as what it carries.
    drop(frozen.wait_for(|frozen| *frozen == state).await);
}

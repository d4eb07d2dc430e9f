//! Tests of how often the status is written, with a fake API server and a paused clock.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::{
    Client,
    api::DynamicObject,
    client::Body,
    runtime::{reflector::store::Writer, watcher},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use skysail_controllers::{ControllerMetrics, Events};
use skysail_host::slot::SlotStatus;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, interval},
};
use tower::service_fn;

use super::{
    super::{Figures, ProviderState, Reporter, api_resource},
    provider_state, serving,
};
use crate::custom_resource::Calls;

/// A reporter on one Provider whose number of calls the test sets.
struct World {
    ended: Arc<AtomicU64>,
    slot: watch::Sender<SlotStatus>,
    /// The time of each write, and the number of calls in it.
    written: Arc<Mutex<Vec<(Duration, u64)>>>,
    _provider_states: watch::Sender<Vec<ProviderState>>,
    _tasks: JoinSet<()>,
}

impl World {
    fn start() -> Self {
        Self::start_beside(|status| status)
    }

    /// As [`World::start`], beside another client that replaces each written status.
    fn start_beside(other: fn(Value) -> Value) -> Self {
        let (slot, status) = watch::channel(serving(1));
        let ended = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&ended);
        let figures = Figures(Arc::new(move || {
            let calls = counted.load(Ordering::SeqCst);
            vec![Calls { function: "routes.list".to_owned(), calls, ..Calls::default() }]
        }));
        let of_it = ProviderState { slot: Some(status), figures, ..provider_state(None) };
        let (provider_states, reported) = watch::channel(vec![of_it]);
        let mut writer = Writer::<DynamicObject>::new(api_resource());
        writer.apply_watcher_event(&watcher::Event::Apply(object(&Value::Null)));
        let reporter = Reporter::new(writer.as_reader(), reported);
        let written = Arc::<Mutex<Vec<_>>>::default();
        let client = api(writer, Arc::clone(&written), other);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (events, _notices) = Events::new(ControllerMetrics::register(&mut Registry::default()));
            reporter.run(client, events).await;
        });
        Self { ended, slot, written, _provider_states: provider_states, _tasks: tasks }
    }

    /// Advances the clock; in each second this number of calls ends.
    async fn pass(&self, seconds: u64, calls: u64) {
        let mut second = interval(Duration::from_secs(1));
        second.tick().await;
        for _ in 0..seconds {
            second.tick().await;
            self.ended.fetch_add(calls, Ordering::SeqCst);
        }
    }

    fn written(&self) -> Vec<(Duration, u64)> {
        self.written.lock().unwrap().clone()
    }
}

fn object(status: &Value) -> DynamicObject {
    let metadata = json!({ "name": "sim", "uid": "1", "generation": 3 });
    let object =
        json!({ "apiVersion": "skysail.dev/v1alpha1", "kind": "Provider", "metadata": metadata, "status": status });
    serde_json::from_value(object).unwrap()
}

/// An API server that accepts each status and sends to the watch what `other` makes of it.
fn api(writer: Writer<DynamicObject>, written: Arc<Mutex<Vec<(Duration, u64)>>>, other: fn(Value) -> Value) -> Client {
    let (began, writer) = (Instant::now(), Arc::new(Mutex::new(writer)));
    let service = service_fn(move |request: Request<Body>| {
        let (writer, written) = (Arc::clone(&writer), Arc::clone(&written));
        async move {
            assert_eq!(request.uri().path(), "/apis/skysail.dev/v1alpha1/providers/sim/status");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let status = serde_json::from_slice::<Value>(&body).unwrap()["status"].take();
            written.lock().unwrap().push((began.elapsed(), status["calls"][0]["calls"].as_u64().unwrap_or_default()));
            let object = object(&other(status));
            writer.lock().unwrap().apply_watcher_event(&watcher::Event::Apply(object.clone()));
            Ok::<_, Infallible>(Response::new(Body::from(serde_json::to_vec(&object).unwrap())))
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn call_statistics_alone_are_written_once_a_minute_and_only_if_they_changed() {
    let world = World::start();
    world.pass(600, 7).await;
    let busy = world.written();
    assert!((9..=11).contains(&busy.len()), "{busy:?}");
    assert!(busy.windows(2).all(|two| two[1].0 - two[0].0 >= Duration::from_secs(60)), "{busy:?}");
    assert!(busy.windows(2).all(|two| two[1].1 > two[0].1), "{busy:?}");
    world.pass(120, 0).await;
    let last = world.written();
    assert_eq!(last.last().unwrap().1, 600 * 7);
    world.pass(3_600, 0).await;
    assert_eq!(world.written(), last, "the status was written although no call ended");
}

#[tokio::test(start_paused = true)]
async fn a_new_release_is_written_at_once_with_its_statistics_and_restarts_the_minute() {
    let world = World::start();
    world.pass(10, 1).await;
    assert_eq!(world.written(), [(Duration::ZERO, 0)]);
    world.ended.store(2, Ordering::SeqCst);
    world.slot.send_replace(serving(2));
    world.pass(1, 0).await;
    let written = world.written();
    let [_, (at, calls)] = written.as_slice() else { panic!("{written:?}") };
    assert!(*at < Duration::from_secs(11) && *calls == 2, "{written:?}");
    world.pass(58, 1).await;
    assert_eq!(world.written(), written);
    world.pass(60, 1).await;
    assert_eq!(world.written().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_client_empties_each_time_is_written_every_30_seconds() {
    let world = World::start_beside(|_| Value::Null);
    world.pass(3_600, 0).await;
    let written = world.written();
    assert!((118..=122).contains(&written.len()), "{} writes in an hour", written.len());
    assert!(written.windows(2).all(|two| two[1].0 - two[0].0 >= Duration::from_secs(29)), "{written:?}");
}

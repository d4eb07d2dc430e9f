//! A foreign controller that empties the status of a Service each time one of our processes writes
//! it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use skysail_dev::api::ApiServer;
use tokio::{
    sync::mpsc::{Sender, channel},
    task::JoinSet,
    time::Instant,
};

use crate::{
    client::{PEOPLE, undisturbed},
    clock::wait,
    story::Story,
};

/// How long the rival takes to notice a write.
const REACTION: Duration = Duration::from_millis(20);

/// Writes that the rival has not processed yet: more than there are Services.
const WRITES_MAX: usize = 64;

/// See the module.
pub(crate) struct Rival {
    until: Arc<Mutex<Instant>>,
    _task: JoinSet<()>,
}

impl Rival {
    /// A rival that is not active yet, and the channel for names of Services whose status was
    /// written.
    pub(crate) fn begin(server: &Arc<ApiServer>, story: Story) -> (Self, Sender<String>) {
        let (written, mut writes) = channel::<String>(WRITES_MAX);
        let until = Arc::new(Mutex::new(Instant::now()));
        let services: Api<Service> = Api::namespaced(undisturbed(server, PEOPLE), "default");
        let acts = Arc::clone(&until);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(name) = writes.recv().await {
                if Instant::now() >= *acts.lock().unwrap_or_else(PoisonError::into_inner) {
                    continue;
                }
                wait(REACTION).await;
                story.tell("rival", format_args!("empties the status of service {name}"));
                let patch = json!({ "status": { "loadBalancer": { "ingress": null } } });
                // The Service may be gone.
                drop(services.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        });
        (Self { until, _task: task }, written)
    }

    /// Makes the rival active until this time.
    pub(crate) fn act_until(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

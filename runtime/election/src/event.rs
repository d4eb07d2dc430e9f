//! The Event about the Lease that names the leader, as upstream writes it.

use std::time::Duration;

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Event, EventSource, ObjectReference},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{PostParams, Resource as _},
};
use tokio::time::timeout;

/// Component of the Event, as upstream.
const COMPONENT: &str = "cloud-controller-manager";
/// Reason of the Event, as upstream.
const REASON: &str = "LeaderElection";

/// Timeout of the write: Events are best-effort.
const PATIENCE: Duration = Duration::from_millis(500);

/// Writes the Event; a failure is only logged.
pub(crate) async fn emit(client: kube::Client, lease: Lease, message: String, now: Timestamp) {
    let namespace = lease.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client, &namespace);
    let params = PostParams { field_manager: Some(crate::lease::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let event = event(&lease, message, now);
    match timeout(PATIENCE, api.create(&params, &event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "writing the Event about the lease failed");
        }
        Err(_elapsed) => tracing::warn!("writing the Event about the lease timed out"),
    }
}

fn event(lease: &Lease, message: String, now: Timestamp) -> Event {
    let name = lease.metadata.name.clone().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: lease.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(Lease::api_version(&()).into_owned()),
            kind: Some(Lease::kind(&()).into_owned()),
            name: Some(name),
            namespace: lease.metadata.namespace.clone(),
            uid: lease.metadata.uid.clone(),
            resource_version: lease.metadata.resource_version.clone(),
            ..ObjectReference::default()
        },
        reason: Some(REASON.to_owned()),
        message: Some(message),
        type_: Some("Normal".to_owned()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), ..EventSource::default() }),
        reporting_component: Some(COMPONENT.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

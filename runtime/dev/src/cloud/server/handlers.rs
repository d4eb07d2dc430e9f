//! The API for providers: `/v1`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::{
    body::Bytes,
    extract::{Path, Query as UrlQuery, State as Extract},
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::{MethodRouter, get, post, put},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    list::{Facts, Query},
    reply::{ErrorResponse, parse, reply},
};
use crate::cloud::{
    SimCloud,
    error::CloudError,
    model::{
        Backend, Cluster, ElasticIp, Instance, NewElasticIp, NewInstance, NewRoute, NewSshKey, NewVirtualServer,
        NewVolume, Route, SshKey, VirtualServer, VirtualServerPatch, Volume, Zone,
    },
    requests::cut,
    state::{InstanceEntry, Made, ServerEntry, State},
};

type Reply = Result<Response, ErrorResponse>;
type Pairs = UrlQuery<Vec<(String, String)>>;

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<SimCloud>)> {
    vec![
        ("/openapi.json", get(|| async { ([("content-type", "application/json")], include_str!("../openapi.json")) })),
        ("/v1/zones", get(list::<Zone>)),
        ("/v1/clusters", get(list::<Cluster>)),
        ("/v1/ssh-keys", get(list::<SshKey>).post(add_ssh_key)),
        ("/v1/instances", get(list::<Instance>).post(create::<Instance>)),
        ("/v1/instances/{id}", get(read::<Instance>).delete(delete_instance)),
        ("/v1/instances/{id}/start", post(start_instance)),
        ("/v1/instances/{id}/stop", post(stop_instance)),
        ("/v1/routes", get(list::<Route>).post(create::<Route>)),
        ("/v1/routes/{id}", get(read::<Route>).delete(delete_route)),
        ("/v1/volumes", get(list::<Volume>).post(create::<Volume>)),
        ("/v1/volumes/{id}", get(read::<Volume>).delete(delete_volume)),
        ("/v1/elastic-ips", get(list::<ElasticIp>).post(create::<ElasticIp>)),
        ("/v1/elastic-ips/{id}", get(read::<ElasticIp>).delete(delete_elastic_ip)),
        ("/v1/virtual-servers", get(list::<VirtualServer>).post(create::<VirtualServer>)),
        (
            "/v1/virtual-servers/{id}",
            get(read::<VirtualServer>).patch(patch_virtual_server).delete(delete_virtual_server),
        ),
        ("/v1/virtual-servers/{id}/real-servers", put(put_real_servers)),
    ]
}

/// Records that can be listed.
trait Listed: Serialize + Sized + Send + 'static {
    /// The record in the state.
    type Entry;
    /// Sorted by ID.
    fn entries(state: &State) -> impl Iterator<Item = &Self::Entry>;
    fn facts(entry: &Self::Entry) -> Facts<'_>;
    /// The present record.
    fn view(state: &State, entry: &Self::Entry) -> Self;
}

/// Records that can be created.
trait Resource: Listed {
    type New: DeserializeOwned;
    const KIND: &'static str;
    fn create(state: &mut State, new: Self::New) -> Result<Self, CloudError>;
    fn find(state: &State, id: &str) -> Option<Self>;
    fn id(&self) -> &str;
}

async fn list<T: Listed>(Extract(cloud): Extract<SimCloud>, UrlQuery(pairs): Pairs) -> Reply {
    let query = Query::parse(pairs)?;
    let page = {
        let state = cloud.state();
        let entries_max = state.faults.knobs().page_entries_max;
        query.page(T::entries(&state), T::facts, |entry| T::view(&state, entry), entries_max)
    };
    Ok(reply(200, &page))
}

async fn read<T: Resource>(Extract(cloud): Extract<SimCloud>, Path(id): Path<String>) -> Reply {
    let record = T::find(&cloud.state(), &id);
    Ok(reply(200, &record.ok_or_else(|| CloudError::NotFound { kind: T::KIND, id: cut(&id) })?))
}

/// Creates a record. With the header `idempotency-key` the same request returns the same record
/// while the record exists.
async fn create<T: Resource>(Extract(cloud): Extract<SimCloud>, headers: HeaderMap, body: Bytes) -> Reply {
    let new: T::New = parse(&body)?;
    let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    let key = key.map(|key| format!("{}/{}", T::KIND, cut(key)));
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let hash = hasher.finish();
    let mut state = cloud.state();
    let known = key.as_ref().and_then(|key| state.idempotency.get(key)).cloned();
    if let Some((known_hash, id)) = known {
        if known_hash != hash {
            let message = format!("this idempotency key made {} {id} from another request", T::KIND);
            return Err(CloudError::Conflict(message).into());
        }
        let record = T::find(&state, &id).ok_or(CloudError::NotFound { kind: T::KIND, id })?;
        return Ok(reply(200, &record));
    }
    let record = T::create(&mut state, new)?;
    if let Some(key) = key {
        state.idempotency.insert(key, (hash, record.id().to_owned()));
    }
    Ok(reply(201, &record))
}

async fn delete_instance(
    Extract(cloud): Extract<SimCloud>,
    Path(id): Path<String>,
) -> Result<StatusCode, ErrorResponse> {
    cloud.delete_instance(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn start_instance(Extract(cloud): Extract<SimCloud>, Path(id): Path<String>) -> Reply {
    Ok(reply(200, &cloud.start_instance(&id).await?))
}

async fn stop_instance(Extract(cloud): Extract<SimCloud>, Path(id): Path<String>) -> Reply {
    Ok(reply(200, &cloud.stop_instance(&id).await?))
}

async fn delete_route(Extract(cloud): Extract<SimCloud>, Path(id): Path<String>) -> Result<StatusCode, ErrorResponse> {
    cloud.state().delete_route(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_volume(Extract(cloud): Extract<SimCloud>, Path(id): Path<String>) -> Result<StatusCode, ErrorResponse> {
    cloud.state().delete_volume(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_elastic_ip(
    Extract(cloud): Extract<SimCloud>,
    Path(id): Path<String>,
) -> Result<StatusCode, ErrorResponse> {
    cloud.state().delete_elastic_ip(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete_virtual_server(
    Extract(cloud): Extract<SimCloud>,
    Path(id): Path<String>,
) -> Result<StatusCode, ErrorResponse> {
    cloud.delete_virtual_server(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn patch_virtual_server(Extract(cloud): Extract<SimCloud>, Path(id): Path<String>, body: Bytes) -> Reply {
    let patch: VirtualServerPatch = parse(&body)?;
    Ok(reply(200, &cloud.state().patch_virtual_server(&id, patch)?))
}

async fn put_real_servers(Extract(cloud): Extract<SimCloud>, Path(id): Path<String>, body: Bytes) -> Reply {
    let real_servers: Vec<Backend> = parse(&body)?;
    let patch = VirtualServerPatch { real_servers: Some(real_servers), ..VirtualServerPatch::default() };
    Ok(reply(200, &cloud.state().patch_virtual_server(&id, patch)?))
}

async fn add_ssh_key(Extract(cloud): Extract<SimCloud>, body: Bytes) -> Reply {
    let key: NewSshKey = parse(&body)?;
    Ok(reply(201, &cloud.state().add_ssh_key(key)?))
}

impl Listed for Zone {
    type Entry = Self;
    fn entries(state: &State) -> impl Iterator<Item = &Self> {
        sorted(&state.zones)
    }
    fn facts(entry: &Self) -> Facts<'_> {
        Facts { id: &entry.name, name: &entry.name, tags: None }
    }
    fn view(_: &State, entry: &Self) -> Self {
        entry.clone()
    }
}

impl Listed for Cluster {
    type Entry = Self;
    fn entries(state: &State) -> impl Iterator<Item = &Self> {
        sorted(&state.clusters)
    }
    fn facts(entry: &Self) -> Facts<'_> {
        Facts { id: &entry.name, name: &entry.name, tags: None }
    }
    fn view(_: &State, entry: &Self) -> Self {
        entry.clone()
    }
}

impl Listed for SshKey {
    type Entry = Self;
    fn entries(state: &State) -> impl Iterator<Item = &Self> {
        state.ssh_keys.iter()
    }
    fn facts(entry: &Self) -> Facts<'_> {
        Facts { id: &entry.id, name: &entry.user, tags: None }
    }
    fn view(_: &State, entry: &Self) -> Self {
        entry.clone()
    }
}

impl Listed for Instance {
    type Entry = InstanceEntry;
    fn entries(state: &State) -> impl Iterator<Item = &InstanceEntry> {
        state.instances.values()
    }
    fn facts(entry: &InstanceEntry) -> Facts<'_> {
        Facts { id: &entry.record.id, name: &entry.record.name, tags: Some(&entry.record.tags) }
    }
    fn view(_: &State, entry: &InstanceEntry) -> Self {
        entry.record.clone()
    }
}

impl Listed for Route {
    type Entry = Self;
    fn entries(state: &State) -> impl Iterator<Item = &Self> {
        state.routes.values()
    }
    fn facts(entry: &Self) -> Facts<'_> {
        Facts { id: &entry.id, name: &entry.name, tags: Some(&entry.tags) }
    }
    fn view(state: &State, entry: &Self) -> Self {
        state.with_blackhole(entry.clone())
    }
}

impl Listed for Volume {
    type Entry = Self;
    fn entries(state: &State) -> impl Iterator<Item = &Self> {
        state.volumes.values()
    }
    fn facts(entry: &Self) -> Facts<'_> {
        Facts { id: &entry.id, name: &entry.name, tags: Some(&entry.tags) }
    }
    fn view(_: &State, entry: &Self) -> Self {
        entry.clone()
    }
}

impl Listed for ElasticIp {
    type Entry = Made<Self>;
    fn entries(state: &State) -> impl Iterator<Item = &Made<Self>> {
        state.elastic_ips.values()
    }
    fn facts(entry: &Made<Self>) -> Facts<'_> {
        Facts { id: &entry.record.id, name: &entry.record.name, tags: Some(&entry.record.tags) }
    }
    fn view(_: &State, entry: &Made<Self>) -> Self {
        State::elastic_ip_of(entry)
    }
}

impl Listed for VirtualServer {
    type Entry = ServerEntry;
    fn entries(state: &State) -> impl Iterator<Item = &ServerEntry> {
        state.virtual_servers.values()
    }
    fn facts(entry: &ServerEntry) -> Facts<'_> {
        let record = entry.record();
        Facts { id: &record.id, name: &record.name, tags: Some(&record.tags) }
    }
    fn view(_: &State, entry: &ServerEntry) -> Self {
        entry.view()
    }
}

impl Resource for Instance {
    type New = NewInstance;
    const KIND: &'static str = "instance";
    fn create(state: &mut State, new: NewInstance) -> Result<Self, CloudError> {
        state.create_instance(new)
    }
    fn find(state: &State, id: &str) -> Option<Self> {
        state.instances.get(id).map(|entry| entry.record.clone())
    }
    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for Route {
    type New = NewRoute;
    const KIND: &'static str = "route";
    fn create(state: &mut State, new: NewRoute) -> Result<Self, CloudError> {
        state.create_route(new)
    }
    fn find(state: &State, id: &str) -> Option<Self> {
        state.routes.get(id).cloned().map(|route| state.with_blackhole(route))
    }
    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for Volume {
    type New = NewVolume;
    const KIND: &'static str = "volume";
    fn create(state: &mut State, new: NewVolume) -> Result<Self, CloudError> {
        state.create_volume(new)
    }
    fn find(state: &State, id: &str) -> Option<Self> {
        state.volumes.get(id).cloned()
    }
    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for ElasticIp {
    type New = NewElasticIp;
    const KIND: &'static str = "elastic IP";
    fn create(state: &mut State, new: NewElasticIp) -> Result<Self, CloudError> {
        state.create_elastic_ip(new)
    }
    fn find(state: &State, id: &str) -> Option<Self> {
        state.elastic_ips.get(id).map(State::elastic_ip_of)
    }
    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for VirtualServer {
    type New = NewVirtualServer;
    const KIND: &'static str = "virtual server";
    fn create(state: &mut State, new: NewVirtualServer) -> Result<Self, CloudError> {
        state.create_virtual_server(new)
    }
    fn find(state: &State, id: &str) -> Option<Self> {
        state.virtual_servers.get(id).map(ServerEntry::view)
    }
    fn id(&self) -> &str {
        &self.id
    }
}

fn sorted<T: Listed<Entry = T>>(records: &[T]) -> impl Iterator<Item = &T> {
    let mut records: Vec<&T> = records.iter().collect();
    records.sort_by(|one, other| T::facts(one).id.cmp(T::facts(other).id));
    records.into_iter()
}

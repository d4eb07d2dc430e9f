//! The world of `skysail dev`: a simulated cloud, an in-memory Kubernetes API, and what ties them together.
//!
//! The ties are what a real cluster has beside a cloud-controller-manager: kubelets that register nodes, and kube-proxy with pods behind
//! the node ports. Nothing here does a provider's work.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, watcher},
};
use skysail_dev::{
    api::{ApiOptions, ApiServer, Serving},
    cloud::{Instance, Knobs, Power, SimCloud, SimOptions, SimServer},
    kubelet::{self, Machine},
};
use tokio::{
    sync::{broadcast::error::RecvError, watch},
    task::JoinSet,
};

/// Cluster, cloud and their ties; dropped, everything ends.
pub(crate) struct World {
    pub(crate) serving: Serving,
    pub(crate) client: Client,
    pub(crate) cloud: SimCloud,
    pub(crate) cloud_server: SimServer,
}

/// Starts everything with so many machines, and the ties; one of them that ends is a fault. Nodes register by themselves.
///
/// # Errors
/// An address cannot be bound.
pub(crate) async fn start(
    api_address: SocketAddr,
    machines: u16,
    latency: Duration,
) -> anyhow::Result<(World, JoinSet<anyhow::Result<()>>)> {
    let knobs = Knobs { latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX), ..Knobs::default() };
    let options = SimOptions { knobs, ..SimOptions::isolated() };
    let zones: Vec<String> = options.zones.iter().map(|zone| zone.name.clone()).collect();
    let cloud = SimCloud::new(options);
    for (number, zone) in (1..=machines).zip(zones.iter().cycle()) {
        cloud.add_instance(&format!("node-{number}"), zone).context("cannot make a machine")?;
    }
    let cloud_server =
        cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("cannot serve the simulated cloud")?;
    let api = ApiServer::new(&ApiOptions { epoch: k8s_openapi::jiff::Timestamp::now(), ..ApiOptions::default() });
    let serving = api
        .serve(api_address)
        .await
        .with_context(|| format!("cannot serve the Kubernetes API on {api_address}: choose another --api-address"))?;
    let client = api.client();
    let (sender, receiver) = watch::channel(machines_of(&cloud));
    let mut ties = JoinSet::new();
    ties.spawn(follow_cloud(cloud.clone(), sender));
    let kubelets = client.clone();
    ties.spawn(async move { kubelet::run(kubelets, receiver).await.context("the simulated kubelets broke") });
    ties.spawn(run_proxies(cloud.clone(), client.clone()));
    Ok((World { serving, client, cloud, cloud_server }, ties))
}

fn machines_of(cloud: &SimCloud) -> Vec<Machine> {
    let machine = |instance: Instance| Machine { running: instance.state == Power::Running, name: instance.name };
    cloud.snapshot().instances.into_iter().map(machine).collect()
}

/// Tells the kubelets of machines that came, stopped, started and went.
async fn follow_cloud(cloud: SimCloud, machines: watch::Sender<Vec<Machine>>) -> anyhow::Result<()> {
    let mut changes = cloud.changes();
    loop {
        // The first look comes after the subscription, so that nothing falls between.
        let now = machines_of(&cloud);
        machines.send_if_modified(|known| {
            let changed = *known != now;
            *known = now;
            changed
        });
        match changes.recv().await {
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => anyhow::bail!("the simulated cloud ended"),
        }
    }
}

/// Does what kube-proxy and pods do: on every machine, each node port of a Service answers.
async fn run_proxies(cloud: SimCloud, client: Client) -> anyhow::Result<()> {
    let mut changes = cloud.changes();
    let mut events =
        watcher(Api::<Service>::all(client), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut ports: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    loop {
        tokio::select! {
            service = events.next() => {
                let service = service.context("the watch of Services ended")?.context("the watch of Services broke")?;
                let name = format!("{}/{}", service.metadata.namespace.as_deref().unwrap_or_default(), service.metadata.name.as_deref().unwrap_or_default());
                ports.insert(name, node_ports(&service));
            }
            change = changes.recv() => if matches!(change, Err(RecvError::Closed)) {
                anyhow::bail!("the simulated cloud ended");
            }
        }
        let wanted: BTreeSet<u16> = ports.values().flatten().copied().collect();
        for instance in cloud.snapshot().instances {
            for port in &wanted {
                // One that is there stays; a machine that is going away refuses, and that is as it should be.
                if let Err(error) = cloud.serve_backend(&instance.id, *port).await {
                    tracing::debug!(
                        instance = instance.name,
                        port,
                        error = &error as &dyn std::error::Error,
                        "no backend"
                    );
                }
            }
        }
    }
}

fn node_ports(service: &Service) -> BTreeSet<u16> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.filter_map(|port| u16::try_from(port.node_port?).ok()).collect()
}

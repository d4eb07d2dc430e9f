//! The environment of `skysail dev`: a simulated cloud, an in-memory Kubernetes API, and the tasks
//! that connect the two.
//!
//! These tasks simulate what a real cluster runs beside a cloud-controller-manager: kubelets that
//! register nodes, and kube-proxy with pods behind the node ports.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use skysail_dev::{
    api::{ApiOptions, ApiServer, Serving},
    cloud::{CloudError, Instance, Knobs, Power, SimCloud, SimOptions, SimServer},
    kubelet::{self, Machine},
};
use tokio::{
    sync::{broadcast::error::RecvError, watch},
    task::JoinSet,
};

/// The cluster and the cloud; dropping this value ends them.
pub(crate) struct World {
    pub(crate) serving: Serving,
    pub(crate) client: Client,
    pub(crate) cloud: SimCloud,
    pub(crate) cloud_server: SimServer,
}

/// Starts the cloud with this number of machines and this latency.
///
/// # Errors
/// No port can be bound.
pub(crate) async fn start_cloud(machines: u16, latency: Duration) -> anyhow::Result<(SimCloud, SimServer)> {
    let knobs = Knobs { latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX), ..Knobs::default() };
    let options = SimOptions { knobs, ..SimOptions::isolated() };
    let zones: Vec<String> = options.zones.iter().map(|zone| zone.name.clone()).collect();
    let cloud = SimCloud::new(options);
    for (number, zone) in (1..=machines).zip(zones.iter().cycle()) {
        cloud.add_instance(&format!("node-{number}"), zone).context("cannot make a machine")?;
    }
    let server =
        cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await.context("cannot serve the simulated cloud")?;
    Ok((cloud, server))
}

/// Starts the cluster, the cloud with this number of machines, and the tasks that connect them; a
/// task that ends is a fault. The simulated kubelets register the nodes.
///
/// # Errors
/// An address cannot be bound.
pub(crate) async fn start(
    api_address: SocketAddr,
    machines: u16,
    latency: Duration,
) -> anyhow::Result<(World, JoinSet<anyhow::Result<()>>)> {
    let (cloud, cloud_server) = start_cloud(machines, latency).await?;
    let epoch = k8s_openapi::jiff::Timestamp::now();
    let api = ApiServer::new(&ApiOptions { epoch, ..ApiOptions::default() });
    let serving = api
        .serve(api_address)
        .await
        .with_context(|| format!("cannot serve the Kubernetes API on {api_address}; choose another --api-address"))?;
    let client = api.client();
    let (sender, receiver) = watch::channel(machines_of(&cloud));
    let mut ties = JoinSet::new();
    ties.spawn(follow_cloud(cloud.clone(), sender));
    let kubelets = client.clone();
    ties.spawn(async move { kubelet::run(kubelets, receiver, epoch).await.context("the simulated kubelets failed") });
    ties.spawn(run_proxies(cloud.clone(), client.clone()));
    Ok((World { serving, client, cloud, cloud_server }, ties))
}

fn machines_of(cloud: &SimCloud) -> Vec<Machine> {
    let machine = |instance: Instance| Machine { running: instance.state == Power::Running, name: instance.name };
    cloud.snapshot().instances.into_iter().map(machine).collect()
}

/// Sends the machines and their power states to the kubelets after each change in the cloud.
async fn follow_cloud(cloud: SimCloud, machines: watch::Sender<Vec<Machine>>) -> anyhow::Result<()> {
    let mut changes = cloud.changes();
    loop {
        // The first snapshot is taken after the subscription, so that no change is missed.
        let now = machines_of(&cloud);
        machines.send_if_modified(|known| {
            let changed = *known != now;
            *known = now;
            changed
        });
        match changes.recv().await {
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => anyhow::bail!("the simulated cloud stopped"),
        }
    }
}

/// Simulates kube-proxy and pods: on every machine, each node port of a Service answers as long as
/// the Service has the port.
async fn run_proxies(cloud: SimCloud, client: Client) -> anyhow::Result<()> {
    let mut changes = cloud.changes();
    let (services, writer) = reflector::store();
    let watched = watcher(Api::<Service>::all(client), watcher::Config::default());
    let mut events = watched.default_backoff().reflect(writer).boxed();
    let mut served = BTreeSet::new();
    loop {
        tokio::select! {
            event = events.next() => {
                // After an error the watch starts again, with backoff.
                if let Err(error) = event.context("the watch of Services ended")? {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the watch of Services failed; it starts again");
                }
            }
            change = changes.recv() => if matches!(change, Err(RecvError::Closed)) {
                anyhow::bail!("the simulated cloud stopped");
            }
        }
        let wanted: BTreeSet<u16> = services.state().iter().flat_map(|service| node_ports(service)).collect();
        for instance in cloud.snapshot().instances {
            serve(&cloud, &instance, &served, &wanted).await;
        }
        served = wanted;
    }
}

/// Opens and closes the node ports of one machine.
async fn serve(cloud: &SimCloud, instance: &Instance, served: &BTreeSet<u16>, wanted: &BTreeSet<u16>) {
    for port in served.difference(wanted) {
        if let Err(error) = cloud.end_backend(&instance.id, *port).await {
            refused(instance, *port, &error);
        }
    }
    for port in wanted {
        // A port that is open already stays open.
        if let Err(error) = cloud.serve_backend(&instance.id, *port).await {
            refused(instance, *port, &error);
        }
    }
}

/// Logs that a machine refused a change; a machine that is being deleted does.
fn refused(instance: &Instance, port: u16, error: &CloudError) {
    let error = error as &dyn std::error::Error;
    tracing::debug!(instance = instance.name, port, error, "the machine refuses a change of its node ports");
}

fn node_ports(service: &Service) -> BTreeSet<u16> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.filter_map(|port| u16::try_from(port.node_port?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        net::SocketAddr,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    use k8s_openapi::api::core::v1::Service;
    use kube::{
        Api,
        api::{DeleteParams, PostParams},
    };
    use serde_json::json;
    use skysail_dev::{
        api::{ApiOptions, ApiServer, Fault, RequestInfo},
        cloud::{SimCloud, SimOptions},
    };
    use tokio::{net::TcpStream, task::JoinSet, time::timeout};

    use super::{super::story::until, run_proxies};

    const NODE_PORT: u16 = 30_123;

    async fn answers(address: SocketAddr, wanted: bool) {
        let look = until(async || Ok((TcpStream::connect(address).await.is_ok() == wanted).then_some(())));
        timeout(Duration::from_secs(60), look).await.expect("the node port should follow its Service").unwrap();
    }

    #[tokio::test]
    async fn a_node_port_is_served_as_long_as_its_service_exists_even_if_the_watch_fails() {
        let cloud = SimCloud::new(SimOptions::isolated());
        let machine = cloud.add_instance("node-1", "zone-a").unwrap();
        let address = SocketAddr::from((machine.private_address, NODE_PORT));
        let api = ApiServer::new(&ApiOptions::default());
        let busy = AtomicBool::new(true);
        api.set_faults(Some(Arc::new(move |request: &RequestInfo| {
            let first = request.verb == "list" && busy.swap(false, Ordering::Relaxed);
            if first { Fault::too_many_requests(1) } else { Fault::None }
        })));
        let mut proxies = JoinSet::new();
        proxies.spawn(run_proxies(cloud.clone(), api.client()));

        let services: Api<Service> = Api::default_namespaced(api.client());
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": NODE_PORT}]},
        }))
        .unwrap();
        services.create(&PostParams::default(), &service).await.unwrap();
        answers(address, true).await;
        api.end_watches();
        services.delete("web", &DeleteParams::default()).await.unwrap();
        answers(address, false).await;
        assert!(proxies.try_join_next().is_none(), "the proxies ended");
    }
}

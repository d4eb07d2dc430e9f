//! An API server that carries out three requests at once, and more clients than that: the
//! `FlowSchemas` of `deploy/manifests` keep the leader its lease.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use skysail_test_e2e::{
    api_server::ApiServer,
    objects::{address_in, create_service, services},
    wait::eventually,
};
use tokio::task::JoinSet;

use crate::manifests::{FROM_A_FILE, World, manifests};

/// All requests but those of administrators share these places.
const FLAGS: [&str; 2] = ["--max-requests-inflight=2", "--max-mutating-requests-inflight=1"];
/// Clients that list all the time: many times the places.
const CLIENTS: usize = 30;
/// Work of the manager beside its lease.
const SERVICES: usize = 60;
/// Renewals of the lease under load, one each two seconds: the lease lasts for seven of them.
const RENEWALS: usize = 15;
/// Seconds for all of this, also on a busy machine.
const PATIENCE: u64 = 900;

/// Regression: the leader exited twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_keeps_its_lease_on_an_api_server_with_three_requests_at_once() -> Result<()> {
    let mut world = World::on(ApiServer::start_with(&FLAGS)?, &manifests(&[FROM_A_FILE])?).await?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-system");
    let lease = || async { leases.get("cloud-controller-manager").await?.spec.context("no spec") };
    let leader =
        eventually("the manager leads", 60, || async { lease().await?.holder_identity.context("none") }).await?;

    let mut load = load(&world.server).await?;
    eventually("requests wait for a place", 60, || std::future::ready(requests_wait(&world.server))).await?;
    for number in 0..SERVICES {
        create_service(&world.client, &format!("web-{number}"), 8080, 0).await?;
    }
    let renewals = Mutex::new(BTreeSet::new());
    let done = || async {
        let spec = lease().await?;
        ensure!(spec.holder_identity.as_deref() == Some(&leader), "another leader: {spec:?}");
        let renewed = {
            let mut renewals = renewals.lock().unwrap_or_else(PoisonError::into_inner);
            renewals.extend(spec.renew_time.map(|time| time.0));
            renewals.len()
        };
        let all = services(&world.client).list(&ListParams::default()).await?.items;
        let served = all.iter().filter(|service| address_in(service).is_some()).count();
        ensure!(renewed > RENEWALS && served == SERVICES, "{renewed} renewals, {served} Services are served");
        anyhow::Ok(())
    };
    eventually("the Services are served and the lease is renewed", PATIENCE, done)
        .await
        .map_err(|error| error.context(world.manager.log_tail()))?;
    eventually("requests still wait for a place", 60, || std::future::ready(requests_wait(&world.server))).await?;
    ensure!(load.try_join_next().is_none(), "a client of the load has ended");
    world.manager.still_runs()
}

/// Clients of an account without a `FlowSchema` of its own that list all the time.
async fn load(server: &ApiServer) -> Result<JoinSet<()>> {
    server.kubectl(&["-n", "default", "create", "serviceaccount", "load"])?;
    let binding = ["create", "clusterrolebinding", "load", "--clusterrole=view", "--serviceaccount=default:load"];
    server.kubectl(&binding)?;
    let token = server.kubectl(&["-n", "default", "create", "token", "load"])?;
    let kubeconfig = server.write_kubeconfig("load", &token)?;
    let mut load = JoinSet::new();
    for _ in 0..CLIENTS {
        let services: Api<Service> = Api::all(client(&kubeconfig).await?);
        load.spawn(async move {
            loop {
                // A request that is refused is a part of the load, too.
                drop(services.list(&ListParams::default()).await);
            }
        });
    }
    Ok(load)
}

/// A connection of its own.
async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Checks the API server's metrics for requests that had to wait for a place, and go on to.
fn requests_wait(server: &ApiServer) -> Result<()> {
    let metrics = server.kubectl(&["get", "--raw", "/metrics"])?;
    let waiting =
        |line: &&str| line.starts_with("apiserver_flowcontrol_current_inqueue_requests{") && !line.ends_with(" 0");
    ensure!(metrics.lines().any(|line| waiting(&line)), "no request waits");
    Ok(())
}

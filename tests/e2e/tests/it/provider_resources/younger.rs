//! A younger Provider that claims what an older one has, and a definition that is deleted: no load
//! balancer changes, and the operator sees why.

use std::{collections::BTreeMap, net::Ipv4Addr};

use kube::api::PostParams;
use skysail_dev::cloud::model::VirtualServer;
use skysail_test_e2e::objects::services;

use super::*;

const YOUNGER: &str = "younger";
const CLASS: &str = "sim.example/lb";

/// Regression: a second Provider of the same cloud emptied the load balancers of the first one
/// within a second, and no check failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_younger_provider_takes_nothing_from_an_older_one_and_the_operator_sees_it() -> Result<()> {
    let mut world = World::new().await?;
    world.write_secrets()?;
    let digest = world.push(&component("simcloud")?)?;
    let mut older = world.provider()?;
    older["spec"]["loadBalancerClasses"] = json!([CLASS]);
    world.apply(&older)?;
    world.until_serving(&digest).await?;
    register_node(&world.client, "a").await?;
    eventually("the node is initialised", 60, || initialized(&world.client, "a")).await?;
    create_service(&world.client, "web", 8080, NODE_PORT).await?;
    create_with_class(&world, "classy", 8081).await?;
    for name in ["web", "classy"] {
        eventually("the Service gets an address", 60, || address_of(&world.client, name)).await?;
    }
    let address = address_of(&world.client, "web").await?;
    wait_for_answers(&address, 8080, &["a"]).await?;
    let before = balancers(&world);
    ensure!(before.len() == 2 && before.values().all(|backends| backends.len() == 1), "{before:?}");

    let mut younger = older.clone();
    younger["metadata"]["name"] = json!(YOUNGER);
    world.apply(&younger)?;
    it_is_seen(&world).await?;
    create_with_class(&world, "late", 8082).await?;
    eventually("the Service gets an address", 60, || address_of(&world.client, "late")).await?;
    let metrics = world.manager.metrics().await?;
    ensure!(
        !metrics.contains(r#"provider="younger",function="load-balancers"#),
        "the younger one was asked:\n{metrics}"
    );
    stays(&world, &before)?;

    definition_deleted(&mut world, &older).await.context("a definition that is deleted")?;
    wait_for_answers(&address, 8080, &["a"]).await?;
    stays(&world, &before)?;
    let status = world.manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

async fn create_with_class(world: &World, name: &str, port: u16) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": CLASS,
            "ports": [{ "port": port, "protocol": "TCP" }],
        },
    });
    services(&world.client).create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

/// The load balancers of the cloud, each with its backends.
type Balancers = BTreeMap<String, Vec<(Ipv4Addr, u16)>>;

fn balancers(world: &World) -> Balancers {
    let servers = world.cloud.cloud.snapshot().virtual_servers.into_iter();
    let backends = |server: &VirtualServer| server.real_servers.iter().map(|it| (it.address, it.port)).collect();
    servers.map(|server| (server.id.clone(), backends(&server))).collect()
}

/// Checks that each of these load balancers has its backends, and that none was ever changed or
/// deleted.
fn stays(world: &World, before: &Balancers) -> Result<()> {
    let now = balancers(world);
    ensure!(before.iter().all(|(id, backends)| now.get(id) == Some(backends)), "{before:?} became {now:?}");
    let changes = |method: &str| ["PUT", "PATCH", "DELETE"].contains(&method);
    let requests = world.cloud.cloud.requests();
    let wrong: Vec<_> =
        requests.iter().filter(|it| changes(&it.method) && it.path.starts_with("/v1/virtual-servers")).collect();
    ensure!(wrong.is_empty(), "load balancers were changed: {wrong:?}");
    Ok(())
}

/// The claims that the younger one has not are in its conditions, in `kubectl get providers`, in
/// `skysail status` and in `/readyz?verbose`. The older one is well, and both are ready.
async fn it_is_seen(world: &World) -> Result<()> {
    let page = || async {
        let page = of_cluster(&world.server, &["status", YOUNGER])?;
        let said = ["spec.default: ", "has the class \"sim.example/lb\"", "has the provider-ID scheme \"simcloud\""];
        ensure!(page.starts_with("Provider younger: ready, but degraded\n  problem     ClaimTaken: "), "{page}");
        ensure!(said.iter().all(|said| page.contains(said)), "{page}");
        anyhow::Ok(())
    };
    eventually("skysail status names all three claims", PATIENCE, page)
        .await
        .map_err(|error| error.context(world.manager.log_tail()))?;
    let table = world.server.kubectl(&["get", "providers"])?;
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().take(4).collect()).collect();
    let expected = [
        ["NAME", "READY", "DEGRADED", "REASON"],
        ["sim", "True", "False", "AsExpected"],
        ["younger", "True", "True", "ClaimTaken"],
    ];
    ensure!(rows == expected, "{table}");
    world.until_event_about(YOUNGER, "ClaimTaken").await?;
    let (status, text) = world.manager.readiness().await?;
    ensure!(status == 200 && text.contains("[+]provider/sim ok\n"), "{status}: {text}");
    ensure!(text.contains("[+]provider/younger ok: degraded (ClaimTaken)\n"), "{text}");
    Ok(())
}

/// Regression: the load balancers stayed, and `/readyz` was ok without a provider.
async fn definition_deleted(world: &mut World, older: &Value) -> Result<()> {
    world.server.kubectl(&["delete", "crd", "providers.skysail.dev"])?;
    let reported = || async {
        let (status, text) = world.manager.readiness().await?;
        ensure!(status == 500 && text.contains("[-]providers failed"), "{status}: {text}");
        anyhow::Ok(())
    };
    eventually("/readyz fails", PATIENCE, reported).await?;
    let said = world.manager.log();
    ensure!(said.contains("the cluster has no Provider, so nothing is served"), "{}", world.manager.log_tail());
    world.manager.still_runs()?;

    let definition = run(&skysail()?, &["crd"])?;
    apply(&world.server, world.folder.path(), &definition)?;
    world.server.wait_for_definition("providers.skysail.dev").await?;
    world.apply(older)?;
    world.wait("Ready").map_err(|error| error.context(world.manager.log_tail()))?;
    eventually("/readyz passes", PATIENCE, || async {
        let (status, text) = world.manager.readiness().await?;
        ensure!(status == 200, "{status}: {text}");
        anyhow::Ok(())
    })
    .await
}

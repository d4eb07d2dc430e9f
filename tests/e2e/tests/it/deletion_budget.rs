//! The budget of deletions with a real API server: what is beyond it stays in the cloud, and the
//! documented command lets one Service through.

use anyhow::{Result, ensure};
use skysail_test_e2e::{
    objects::{create_service, delete_service},
    wait::eventually,
};

use crate::{
    documents::{first_commands, section},
    simulated::Served,
};

const NODE_PORT: u16 = 30_080;
/// The provider deletes a virtual server and its address.
const OF_ONE_SERVICE: u32 = 2;

fn with_budget(file: String) -> String {
    let budget = format!("spec:\n  deletionBudget: {{deletions: {OF_ONE_SERVICE}, window: 24h}}\n");
    file.replacen("spec:\n", &budget, 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_beyond_the_budget_wait_until_a_person_lets_them_through() -> Result<()> {
    let world = Served::start(with_budget).await?;
    let [command] = first_commands(&section("deploy/docs/services.md", "## A budget of deletions")?)?;
    let client = &world.site.client;
    for (name, port) in [("first", 8080), ("web", 8081)] {
        create_service(client, name, port, NODE_PORT + port - 8080).await?;
        world.until_served(name).await?;
    }
    delete_service(client, "first").await?;
    world.until_gone("first").await?;
    delete_service(client, "web").await?;
    let allowed = "spec.deletionBudget of the Provider sim allows 2 requests that delete something in 24h";
    let degraded = ["degraded", "DeletionsHeld", "deletions wait: of Services 1, such as default/web"];
    world.until_said("the deletion waits", &["status"], &degraded).await?;
    world.until_said("the manager explains it", &["explain", "service", "web"], &[allowed]).await?;
    let events = "kubectl get events --field-selector reason=DeletionHeld,involvedObject.name=web -o jsonpath={.items[*].message}";
    let event = || {
        let said = world.site.kubectl(events).and_then(|said| {
            let way_out = "kubectl annotate service web --namespace default skysail.dev/allow-deletion=true";
            ensure!(said.contains(allowed) && said.contains(way_out), "{said:?}");
            Ok(())
        });
        std::future::ready(said)
    };
    eventually("the Event names the command", 60, event).await?;
    let metrics = world.manager.metrics().await?;
    ensure!(metrics.contains("skysail_held_deletions{provider=\"sim\"} 1"), "{metrics}");
    let balancers = world.site.cloud.cloud.snapshot().virtual_servers.len();
    ensure!(balancers == 1, "the cloud has {balancers} load balancers");

    world.site.kubectl(&command)?;
    world.until_gone("web").await?;
    ensure!(world.site.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
    let metrics = world.manager.metrics().await?;
    ensure!(metrics.contains("skysail_held_deletions{provider=\"sim\"} 0"), "{metrics}");
    ensure!(world.manager.end().await?.success(), "the manager failed");
    Ok(())
}

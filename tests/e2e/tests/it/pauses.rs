//! Pauses of a Service and of a provider with a real API server, by the commands of the document:
//! nothing changes in the cloud, a deletion waits, and one Service can be let through.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use skysail_test_e2e::{
    objects::{create_service, delete_service, services, set_port},
    wait::eventually,
};

use crate::{
    documents::{first_commands, section},
    simulated::Served,
};

const NODE_PORT: u16 = 30_080;

struct World(Served);

impl World {
    fn ensures(&self) -> usize {
        self.0.manager.calls("load-balancers.ensure").len()
    }

    /// A user pauses a Service and then changes it.
    async fn pause_the_service(&self, pause: &str) -> Result<()> {
        let before = self.ensures();
        self.0.site.kubectl(pause)?;
        set_port(&self.0.site.client, "web", 9090, NODE_PORT).await?;
        let events =
            "kubectl get events --field-selector reason=Paused,involvedObject.name=web -o jsonpath={.items[*].message}";
        let event = || {
            let message = self.0.site.kubectl(events).and_then(|message| {
                let command = "kubectl annotate service web --namespace default skysail.dev/paused-";
                ensure!(message.contains(command), "{message:?}");
                Ok(())
            });
            std::future::ready(message)
        };
        eventually("the Event names the command that continues", 60, event).await?;
        let explained = [
            "Service default/web: paused",
            "  paused      The annotation skysail.dev/paused pauses",
            "Paused: the pause holds the step Ensure back: fields of the Service have changed since the last ensure: spec.ports",
        ];
        self.0.until_said("the manager explains the pause", &["explain", "service", "web"], &explained).await?;
        ensure!(self.ensures() == before, "the paused Service costs a call: {}", self.0.manager.log_tail());
        let metrics = self.0.manager.metrics().await?;
        ensure!(metrics.contains("skysail_paused_services{provider=\"sim\"} 1"), "{metrics}");
        self.0.says(&["status"], &["  paused      Services that their annotation", "pauses: 1, such as default/web"])
    }

    /// The operator pauses the provider, and the deletion of the Service waits also without its own
    /// annotation.
    async fn pause_the_provider(&self, resume: &str) -> Result<()> {
        let providers = self.0.manager.component().with_file_name("providers.yaml");
        fs::write(&providers, fs::read_to_string(&providers)?.replacen("spec:\n", "spec:\n  paused: true\n", 1))?;
        let paused = ["Provider sim: ready, and paused", "  paused      spec.paused is true"];
        self.0.until_said("the provider is paused", &["status"], &paused).await?;
        delete_service(&self.0.site.client, "web").await?;
        self.0.site.kubectl(resume)?;
        let waits =
            ["paused, and is being deleted", "The provider sim is paused (spec.paused)", "holds the step Cleanup back"];
        self.0.until_said("the deletion waits", &["explain", "service", "web"], &waits).await?;
        ensure!(!self.0.site.cloud.cloud.snapshot().has_no_load_balancers(), "the load balancer is deleted");
        ensure!(services(&self.0.site.client).get_opt("web").await?.is_some(), "the Service is gone");
        Ok(())
    }
}

#[tokio::test]
async fn a_pause_keeps_the_cloud_as_it_is_and_ends_with_the_documented_commands() -> Result<()> {
    let world = World(Served::start(|file| file).await?);
    // One command pauses a Service, one ends the pause.
    let [pause, resume] = first_commands(&section("deploy/docs/services.md", "## Pauses")?)?;
    create_service(&world.0.site.client, "web", 8080, NODE_PORT).await?;
    world.0.until_served("web").await?;
    world.pause_the_service(&pause).await?;
    world.pause_the_provider(&resume).await?;
    world.0.site.kubectl("kubectl annotate service web skysail.dev/paused=false")?;
    world.0.until_gone("web").await?;
    ensure!(world.0.site.cloud.cloud.snapshot().has_no_load_balancers(), "something is left in the cloud");
    let status = world.0.manager.end().await.context("the manager does not end")?;
    if !status.success() {
        bail!("the manager ended with {status}");
    }
    Ok(())
}

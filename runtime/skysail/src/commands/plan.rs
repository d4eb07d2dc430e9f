//! `skysail plan`: shows what the manager would change in the cloud and in the cluster.
//!
//! # Flow
//! 1. serve (provider): load the components of the provider file, or of the cluster's Providers.
//! 2. read (client): all nodes and Services.
//! 3. dry run (client, provider): `skysail_controllers::dry_run`.
//! 4. print: `plan/show.rs`.

mod show;

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use prometheus_client::registry::Registry;
use skysail_controllers::{Clients, ControllerMetrics, DryRunObject, Snapshot, dry_run};
use skysail_serving::metrics::RestClientMetrics;

use crate::{
    args::{LoggingFormat, PlanArgs, RecordsArgs},
    cluster::{Cluster, list_all},
    commands::{retained, run::entries, served},
    exit::{MarkExt as _, Reason},
    output, telemetry,
};

/// Shows the plan.
///
/// # Errors
/// A file or a flag is invalid, the cluster or a provider does not answer; [`Reason::Changes`] if
/// the plan has changes.
pub(crate) fn run(args: PlanArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(plan(args))
}

async fn plan(args: PlanArgs) -> anyhow::Result<()> {
    let only = args.provider.as_deref();
    let specs = served::specs(args.provider_file.as_deref(), only).or_exit(Reason::Usage)?;
    let mut registry = Registry::default();
    let client_metrics = RestClientMetrics::register(&mut registry);
    let cluster = Cluster::find(&args.common.generic, client_metrics).await.or_exit(Reason::Usage)?;
    // With the identity of the process: an account of a controller may not exist yet, and a plan
    // creates none.
    let clients = Clients::from(cluster.client("plan").await.or_exit(Reason::Usage)?);
    // serve (provider)
    output::say("loading the components of the providers");
    let fleet = served::fleet(clients.shared_informers.clone(), specs, only).await?;
    // read (client)
    output::say("reading the nodes and the Services of the cluster");
    let snapshot = snapshot(&clients.shared_informers, &args.records).await.or_exit(Reason::Unreachable)?;
    let asked = (snapshot.nodes.len(), snapshot.services.len());
    // dry run (client, provider)
    let metrics = ControllerMetrics::register(&mut registry);
    let progress = |provider: &str, what: &str| output::say(&format!("asking the provider {provider}: {what}"));
    let settings = (args.common.settings(), metrics);
    let objects = dry_run(&clients, &entries(&fleet)?, settings, snapshot, progress).await;
    // print
    output::print(show::shown(&objects, args.output)?.as_bytes())?;
    judged(&objects, asked)
}

async fn snapshot(client: &kube::Client, records: &RecordsArgs) -> anyhow::Result<Snapshot> {
    let nodes = list_all(&Api::<core::Node>::all(client.clone())).await.context("cannot list the nodes")?;
    let services = list_all(&Api::<core::Service>::all(client.clone())).await;
    let services = services.context("cannot list the Services of all namespaces")?;
    Ok(Snapshot { nodes, services, retained: retained::config_map(client, records).await? })
}

/// The summary, with the exit code.
fn judged(objects: &[DryRunObject], (nodes, services): (usize, usize)) -> anyhow::Result<()> {
    let changed = objects.iter().filter(|object| object.is_changed()).count();
    let failed = objects.iter().filter(|object| !object.failures.is_empty()).count();
    let checked = format!("checked: Services: {services}, nodes: {nodes}");
    match (changed, failed) {
        (0, 0) => {
            output::say(&format!("nothing would change; {checked}"));
            Ok(())
        }
        (changed, 0) => Err(anyhow!("objects that would change: {changed}; {checked}")).or_exit(Reason::Changes),
        (changed, failed) => Err(anyhow!(
            "the plan is incomplete: objects that failed: {failed}; objects that would change: {changed}; {checked}; correct what failed, and plan again"
        ))
        .or_exit(Reason::Failed),
    }
}

#[cfg(test)]
mod tests {
    use skysail_controllers::DryRunObject;

    use super::judged;

    #[test]
    fn a_plan_with_a_failure_is_incomplete_even_if_it_has_changes() {
        let changed = DryRunObject { omitted: 1, ..DryRunObject::default() };
        let failed = DryRunObject { failures: vec!["no answer".to_owned()], ..DryRunObject::default() };
        assert!(judged(&[], (2, 1)).is_ok());
        let text = |objects: &[DryRunObject]| judged(objects, (2, 1)).unwrap_err().to_string();
        assert_eq!(
            text(std::slice::from_ref(&changed)),
            "objects that would change: 1; checked: Services: 1, nodes: 2"
        );
        let both = "the plan is incomplete: objects that failed: 1; objects that would change: 1; ";
        assert!(text(&[changed, failed]).starts_with(both));
    }
}

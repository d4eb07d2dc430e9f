//! `skysail dev --demo`: a demonstration in steps; each step checks its result.
//!
//! The checks do not look inside the manager: each step acts and looks as a user does with kubectl,
//! curl and an editor.

mod hostile;
mod load;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use self::load::Load;
use super::{
    Dev, components,
    display::Screen,
    story::{Shown, Story, until},
};
use crate::{
    args::DevArgs,
    exit::{MarkExt as _, Reason},
    signals::Signals,
};

/// The Service of the demonstration.
const SERVICE: &str = "web";
/// Port of the Service: above 1023, so that binding it needs no root.
const PORT: u16 = 8080;
/// The resourceVersion of the API before anything was written.
const EMPTY_CLUSTER: &str = "1";
/// Machines of the demonstration.
const MACHINES: u16 = 3;
/// How long the provider is under load around the swap.
const LOAD_TIME: Duration = Duration::from_secs(2);

/// Runs the demonstration.
///
/// # Errors
/// A check failed, or a signal came before the end.
pub(crate) async fn run(args: &DevArgs, mut signals: Signals) -> anyhow::Result<()> {
    let screen = Screen::new();
    let wrong = |what: &str| Err(anyhow!("{what}")).or_exit(Reason::Usage);
    if args.nodes != MACHINES {
        return wrong("--demo always has three machines; leave --nodes out");
    }
    if args.provider.is_some() || args.provider_file.is_some() || args.cloud_config.is_some() {
        return wrong("--demo uses the bundled provider; leave --provider, --provider-file and --cloud-config out");
    }
    let (dev, mut tasks) = Dev::start(args).await?;
    screen.say(&format!(
        "A simulated cluster ({}), a simulated cloud ({}) and the manager run in this process.\n",
        dev.world.serving.url(),
        dev.world.cloud_server.url
    ));
    let mut story = Story::new(screen);
    tokio::select! {
        outcome = run_steps(&dev, &mut story) => outcome?,
        error = tasks.broken() => return Err(error),
        _ = signals.end() => bail!("a signal stopped the demo before its last step"),
    }
    tasks.stop().await?;
    screen.say(&screen.bold("Results"));
    screen.say(&story.table());
    let component = components::bundled(dev.components.as_deref(), "simcloud")?;
    screen.say(&screen.bold("Next commands"));
    screen.say(&format!(
        "  skysail dev                                 the same cluster and cloud, for kubectl and curl\n  \
         skysail inspect SIMCLOUD                    the imports and exports of the provider\n  \
         skysail run --provider-file providers.yaml  the manager on a real cluster (deploy/manifests)\n\n\
         SIMCLOUD is {}",
        component.display()
    ));
    Ok(())
}

async fn run_steps(dev: &Dev, story: &mut Story) -> anyhow::Result<()> {
    story.step("Three uninitialised nodes become ready for pods", nodes_become_ready(dev)).await?;
    story.step("A Service of type LoadBalancer gets an address", service_gets_an_address(dev)).await?;
    story.step("A machine is deleted in the cloud: its node and its backend are removed", a_machine_goes(dev)).await?;
    story.step("The provider is replaced while it is called", provider_is_swapped(dev)).await?;
    for hostile in hostile::ALL {
        story.step(hostile.title, hostile::attack(dev, hostile)).await?;
    }
    story.step("The Service is deleted: nothing is left in the cloud", service_goes(dev)).await
}

/// Requests that the cloud has answered so far.
fn cloud_requests(dev: &Dev) -> usize {
    dev.world.cloud.requests().len()
}

async fn nodes_become_ready(dev: &Dev) -> anyhow::Result<Shown> {
    let nodes: Api<Node> = Api::all(dev.world.client.clone());
    let start = Instant::now();
    for node in registered(&nodes).await? {
        ensure!(is_tainted(&node), "{} was registered without the taint, so the step proves nothing", name(&node));
    }
    let ready = until(async || {
        let list = nodes.list(&ListParams::default()).await.context("cannot list nodes")?.items;
        let initialized = list.iter().filter(|node| is_initialized(node)).count();
        Ok((list.len() == usize::from(MACHINES) && initialized == list.len()).then_some(list))
    })
    .await?;
    let zones: BTreeSet<_> = ready.iter().filter_map(|node| label(node, "topology.kubernetes.io/zone")).collect();
    ensure!(zones.len() == usize::from(MACHINES), "the nodes' zones are {zones:?}, and every machine has its own");
    Ok(Shown {
        what: format!("{MACHINES} nodes lost their taint and have a provider ID, addresses and a zone"),
        figures: format!("{} ms, {} cloud requests", start.elapsed().as_millis(), cloud_requests(dev)),
    })
}

/// The nodes as their kubelets registered them, before any change by the manager: the watch begins
/// before the first node.
async fn registered(nodes: &Api<Node>) -> anyhow::Result<Vec<Node>> {
    let mut events = nodes.watch(&WatchParams::default(), EMPTY_CLUSTER).await.context("cannot watch nodes")?.boxed();
    let mut registered = Vec::new();
    while registered.len() < usize::from(MACHINES) {
        match events.next().await.context("the watch of nodes ended")?.context("the watch of nodes broke")? {
            WatchEvent::Added(node) => registered.push(node),
            WatchEvent::Error(status) => bail!("the watch of nodes failed: {}", status.message),
            WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
        }
    }
    Ok(registered)
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn is_tainted(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == "node.cloudprovider.kubernetes.io/uninitialized")
}

fn is_initialized(node: &Node) -> bool {
    let has_id = node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some());
    let mut addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    has_id && !is_tainted(node) && addresses.any(|address| address.type_ == "InternalIP")
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

async fn service_gets_an_address(dev: &Dev) -> anyhow::Result<Shown> {
    let services: Api<Service> = Api::default_namespaced(dev.world.client.clone());
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": SERVICE},
        "spec": {"type": "LoadBalancer", "selector": {"app": SERVICE}, "ports": [{"port": PORT, "targetPort": 80}]},
    }))?;
    let start = Instant::now();
    services.create(&PostParams::default(), &service).await.context("cannot create the Service")?;
    let address = until(async || Ok(address_of(&services.get(SERVICE).await?))).await?;
    let took = start.elapsed();
    let answered = until(async || {
        let answered = ask(address, 12).await;
        Ok((answered.len() == usize::from(MACHINES)).then_some(answered))
    })
    .await?;
    let names: Vec<_> = answered.keys().map(String::as_str).collect();
    Ok(Shown {
        what: format!("http://{address}:{PORT}/ answers, through the load balancer, from {}", names.join(", ")),
        figures: format!("address after {} ms; 12 requests, all answered", took.as_millis()),
    })
}

fn address_of(service: &Service) -> Option<IpAddr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.first()?.ip.as_ref()?.parse().ok()
}

/// Sends this number of requests, each on a new connection, and counts the answers by backend.
/// Failed requests are not counted.
async fn ask(address: IpAddr, requests: usize) -> BTreeMap<String, usize> {
    let mut answered = BTreeMap::new();
    for _ in 0..requests {
        if let Ok(name) = ask_once(address).await {
            *answered.entry(name).or_default() += 1;
        }
    }
    answered
}

async fn ask_once(address: IpAddr) -> anyhow::Result<String> {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
    let response = client.get(format!("http://{address}:{PORT}/")).send().await?.error_for_status()?;
    Ok(response.text().await?.trim().to_owned())
}

async fn a_machine_goes(dev: &Dev) -> anyhow::Result<Shown> {
    let nodes: Api<Node> = Api::all(dev.world.client.clone());
    let gone = dev.world.cloud.snapshot().instances.into_iter().next_back().context("the cloud has no machine")?;
    let start = Instant::now();
    dev.world.cloud.delete_instance(&gone.id).await.context("cannot delete the machine")?;
    until(async || Ok(nodes.get_opt(&gone.name).await?.is_none().then_some(()))).await?;
    let node_took = start.elapsed();
    let backends = until(async || {
        let backends: Vec<_> =
            dev.world.cloud.snapshot().virtual_servers.iter().flat_map(|server| server.real_servers.clone()).collect();
        let left = backends.iter().all(|backend| backend.address != gone.private_address);
        Ok((left && !backends.is_empty()).then_some(backends.len()))
    })
    .await?;
    let took = start.elapsed();
    let services: Api<Service> = Api::default_namespaced(dev.world.client.clone());
    let address = address_of(&services.get(SERVICE).await?).context("the Service lost its address")?;
    let answered = ask(address, 12).await;
    ensure!(answered.values().sum::<usize>() == 12, "only {answered:?} of 12 requests were answered");
    ensure!(!answered.contains_key(&gone.name), "{} still answers", gone.name);
    Ok(Shown {
        what: format!("the node {} is deleted, and {backends} backends serve the traffic", gone.name),
        figures: format!(
            "node gone after {} ms, backend after {} ms; 12 requests, all answered",
            node_took.as_millis(),
            took.as_millis()
        ),
    })
}

async fn provider_is_swapped(dev: &Dev) -> anyhow::Result<Shown> {
    let slot = dev.slot()?;
    let before = slot.status().borrow().active.clone().context("no release serves")?;
    let load = Load::start(dev).await?;
    tokio::time::sleep(LOAD_TIME / 2).await;
    let start = Instant::now();
    let file = dev.component();
    append_custom_section(&file)?;
    let after = until(async || {
        let active = slot.status().borrow().active.clone();
        Ok(active.filter(|active| active.digest != before.digest))
    })
    .await?;
    let took = start.elapsed();
    tokio::time::sleep(LOAD_TIME / 2).await;
    let counts = load.stop().await?;
    ensure!(counts.failed == 0, "{} of {} calls failed: {}", counts.failed, counts.all(), counts.first_failure);
    let old = counts.by_digest.get(&before.digest).copied().unwrap_or(0);
    let new = counts.by_digest.get(&after.digest).copied().unwrap_or(0);
    ensure!(old > 0 && new > 0, "the load met only one release: {old} calls before, {new} after");
    Ok(Shown {
        what: format!("the new release serves; 0 of {} calls failed", counts.all()),
        figures: format!(
            "{} ms from the change to serving; {old} calls on the old release, {new} on the new one",
            took.as_millis()
        ),
    })
}

/// Imitates the next build of an author: the same functions in a file with another digest. As an
/// editor does, it writes a new file and renames it over the old one.
fn append_custom_section(file: &Path) -> anyhow::Result<()> {
    let mut bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    // Section 0 (custom), 5 bytes: a name of 4 bytes.
    bytes.extend_from_slice(b"\x00\x05\x04demo");
    let beside = file.with_extension("new");
    fs::write(&beside, bytes)
        .and_then(|()| fs::rename(&beside, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

async fn service_goes(dev: &Dev) -> anyhow::Result<Shown> {
    let services: Api<Service> = Api::default_namespaced(dev.world.client.clone());
    let start = Instant::now();
    services.delete(SERVICE, &DeleteParams::default()).await.context("cannot delete the Service")?;
    until(async || Ok(services.get_opt(SERVICE).await?.is_none().then_some(()))).await?;
    let took = start.elapsed();
    let snapshot = dev.world.cloud.snapshot();
    let left = snapshot.elastic_ips.len() + snapshot.virtual_servers.len();
    if left > 0 {
        bail!(
            "the Service is deleted, but {left} elastic IPs and virtual servers are left in the simulated cloud, which is a bug of Skysail: please report it"
        );
    }
    Ok(Shown {
        what: "the finalizer held the Service until the cloud was clean".to_owned(),
        figures: format!("{} ms; 0 elastic IPs, 0 virtual servers left", took.as_millis()),
    })
}

//! What only the provider for VMware vSphere has to do: datacenters, tags, UUIDs in two byte
//! orders, sessions.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use skysail_provider::{Code, Detail, Instance, Node, NodeSet, SystemUuid};
use skysail_test_providers::{
    cloud::Cloud as _,
    clouds::vsphere::Vsphere,
    leaks,
    suite::machines,
    world::{World, set},
};

type Vcenter = World<Vsphere>;

mod judged {
    use anyhow::Result;
    use skysail_test_providers::{published, suite::judged::machines as judged_machines};

    use super::{Vsphere, leaks};

    mod machines {
        use super::Result;

        judged_instances!(Vsphere);
    }
}

/// The instances of all nodes, each of which has to be found.
async fn found(world: &Vcenter, nodes: &NodeSet, detail: Detail) -> Result<Vec<Instance>> {
    let answers = world.machines(nodes, detail).await?;
    let each = nodes.as_slice().iter().zip(answers);
    each.map(|(node, answer)| answer.with_context(|| format!("{} is not found", node.name))).collect()
}

/// Repeats the look-up for a minute: the host does not replace a session in its first half minute.
/// No machine may be missing meanwhile.
async fn until_described(world: &Vcenter, nodes: &NodeSet) -> Result<()> {
    for _ in 0..60 {
        match world.machines(nodes, Detail::Metadata).await {
            Ok(answers) if answers.iter().all(Result::is_ok) => return Ok(()),
            Ok(answers) => {
                let gone = answers.iter().flat_map(|answer| answer.as_ref().err()).find(|e| e.code == Code::NotFound);
                ensure!(gone.is_none(), "a machine is reported as gone: {gone:?}");
            }
            Err(error) => ensure!(error.code == Code::Denied, "{error}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!("the host did not log in again within a minute")
}

async fn with_datacenters(datacenters: &str) -> Result<Vsphere> {
    let mut cloud = Vsphere::start().await?;
    cloud.datacenters = datacenters.to_owned();
    Ok(cloud)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_has_the_zone_of_the_nearest_tag() -> Result<()> {
    let world = Vcenter::start().await?;
    world.cloud.tag("k8s-zone", "zone-b", "/DC0/host/DC0_C0/DC0_C0_H1")?;
    // A tag of another category.
    world.cloud.tag("rack", "rack-7", "/DC0/host/DC0_C0/DC0_C0_H0")?;
    let nodes = world.nodes(&["node-a", "node-b"]).await?;
    let places = |found: Vec<Instance>| found.into_iter().map(|one| (one.region, one.zone)).collect::<Vec<_>>();
    let expected = ["zone-a", "zone-b"].map(|zone| ("region-1".to_owned(), zone.to_owned()));
    ensure!(places(found(&world, &nodes, Detail::Metadata).await?) == expected, "the tags are not those of the hosts");
    ensure!(world.writes().is_empty(), "a look-up writes");
    // The first answers are remembered: no login, no search, no tag is asked for.
    ensure!(places(found(&world, &nodes, Detail::Metadata).await?) == expected, "the second answer is another one");
    let requests = world.proxy.take();
    ensure!(requests.len() == 1, "the second call sends {} requests", requests.len());
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_tags_waits_unless_it_has_the_labels() -> Result<()> {
    let cloud = with_datacenters("F0/DC1").await?;
    let untagged = cloud.add("/F0/DC1", &[("node-a", None)])?;
    let world = Vcenter::before(cloud).await?;
    let answers = world.machines(&set(untagged.clone()), Detail::Metadata).await?;
    let [Err(error)] = answers.as_slice() else { bail!("a node without tags: {answers:?}") };
    ensure!(error.code == Code::Unavailable && error.message.contains("k8s-zone"), "{error}");
    found(&world, &set(untagged.clone()), Detail::State).await?;
    let labels = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
    let labelled = |node: Node| Node {
        labels: labels.map(|label| (label.to_owned(), "of-old".to_owned())).into_iter().collect(),
        ..node
    };
    let kept = found(&world, &set(untagged.into_iter().map(labelled).collect()), Detail::Metadata).await?;
    ensure!(kept.iter().all(|one| one.zone.is_empty() && !one.addresses.is_empty()), "{kept:?}");
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_found_only_in_the_datacenters_of_the_config() -> Result<()> {
    for (datacenters, visible) in [("DC0, F0/DC1", [true, true]), ("F0/DC1", [false, true])] {
        let cloud = with_datacenters(datacenters).await?;
        let mut nodes = cloud.add("/DC0", &[("node-a", None)])?;
        nodes.extend(cloud.add("/F0/DC1", &[("node-b", None)])?);
        let world = Vcenter::before(cloud).await?;
        let by_id = world.machines(&set(nodes.clone()), Detail::State).await?;
        ensure!(by_id.iter().map(Result::is_ok).eq(visible), "{datacenters}, by ID: {by_id:?}");
        let nameless = nodes.iter().map(|node| Node { provider_id: None, ..node.clone() }).collect();
        let by_name = world.machines(&set(nameless), Detail::State).await?;
        ensure!(by_name.iter().map(Result::is_ok).eq(visible), "{datacenters}, by name: {by_name:?}");
    }
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_uuid_in_the_other_byte_order_is_the_same_machine() -> Result<()> {
    const FIRMWARE: &str = "42013ddb-57d9-3e2c-9a7c-0123456789ab";
    const KERNEL: &str = "db3d0142-d957-2c3e-9a7c-0123456789ab";
    let world = Vcenter::start().await?;
    let nodes = world.cloud.add("/DC0", &[("node-a", Some(FIRMWARE)), ("node-b", None)])?;
    let node = nodes.into_iter().next().context("no machine was created")?;
    // The answer repeats a provider ID, because Kubernetes never changes one.
    let id = format!("vsphere://{KERNEL}");
    let reversed = Node { provider_id: Some(id.clone()), ..node.clone() };
    let [instance] = found(&world, &set(vec![reversed]), Detail::State).await?.try_into().ok().context("one answer")?;
    ensure!(instance.provider_id == id, "the ID became {}", instance.provider_id);
    // A new node gets the ID of the firmware, whatever its kernel says.
    for uuid in [KERNEL, FIRMWARE] {
        let new = Node { provider_id: None, system_uuid: Some(SystemUuid::from(uuid)), ..node.clone() };
        let found = found(&world, &set(vec![new]), Detail::Metadata).await?;
        ensure!(found.iter().all(|one| one.provider_id == format!("vsphere://{FIRMWARE}")), "{uuid}: {found:?}");
    }
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ended_is_followed_by_another_one() -> Result<()> {
    let world = Vcenter::start().await?;
    let nodes = world.nodes(&["node-a"]).await?;
    found(&world, &nodes, Detail::Metadata).await?;
    world.cloud.end_sessions()?;
    let later = world.nodes(&["node-b"]).await?;
    let both = NodeSet::new([nodes.as_slice(), later.as_slice()].concat());
    // A tag that was not asked for yet, so that REST is needed, too.
    world.cloud.tag("k8s-zone", "zone-b", "/DC0/host/DC0_C0/DC0_C0_H1")?;
    until_described(&world, &both).await?;
    world.proxy.clear();
    found(&world, &nodes, Detail::State).await?;
    ensure!(world.proxy.take().len() == 1, "the new session is not kept");
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_without_labels_asks_for_no_tags() -> Result<()> {
    let mut cloud = Vsphere::start().await?;
    cloud.labels = false;
    let world = Vcenter::before(cloud).await?;
    let nodes = world.nodes(&["node-a"]).await?;
    let found = found(&world, &nodes, Detail::Metadata).await?;
    ensure!(found.iter().all(|one| one.zone.is_empty() && one.region.is_empty()), "{found:?}");
    let requests = world.proxy.take();
    let other = requests.iter().find(|request| request.path != "/sdk");
    ensure!(other.is_none(), "a request to another API than SOAP: {other:?}");
    leaks::none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_nodes_without_zones_costs_little_fuel() -> Result<()> {
    let mut cloud = Vsphere::start().await?;
    cloud.labels = false;
    machines::the_first_page_costs_little_fuel(&Vcenter::before(cloud).await?).await?;
    leaks::none()
}

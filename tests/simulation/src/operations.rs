//! Operations of people and machines: the load of a day.

mod retention;

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use skysail_controllers::names::{
    ADOPT_LOAD_BALANCER_ANNOTATION, ALLOW_DELETION_ANNOTATION, LOAD_BALANCER_FINALIZER, PAUSED_ANNOTATION,
};
use tokio::time::Instant;

use self::retention::HandOn;
use crate::{
    Plan, Referee,
    chance::Chance,
    client::{PEOPLE, undisturbed},
    cloud::Cloud,
    referee::{LOOK_EVERY, text},
    replica::{BY_HAND, CLASS, CLOUD_LABEL, Site},
    story::Story,
};

/// The number of Services of [`People::act_on`].
const LATE: usize = 3;
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// Label of an object with a finalizer or taint of another controller, which has to stay.
pub(crate) const MARK: &str = "example.com-others";
/// Label of a Service that came with the finalizer of another manager.
const ADOPTED: &str = "example.com-adopted";
pub(crate) const ADOPTED_MARK: &str = "/metadata/labels/example.com-adopted";
pub(crate) const OTHERS_MARK: &str = "/metadata/labels/example.com-others";
pub(crate) const OTHERS_FINALIZER: &str = "example.com/other";
pub(crate) const OTHERS_TAINT: &str = "example.com/other";

/// A kind of operation.
#[derive(Clone, Copy, Debug)]
enum Operation {
    CreateService,
    AdoptService,
    ChangePorts,
    ChangeType,
    Annotate,
    Spoil,
    EmptyStatus,
    DeleteService,
    AddMachine,
    DeleteMachine,
    SwitchMachine,
    ReplaceMachine,
    MoveMachine,
    ExcludeNode,
    DeleteNode,
    Heartbeat,
}

const WEIGHTS: [(u32, Operation); 16] = [
    (6, Operation::CreateService),
    (2, Operation::AdoptService),
    (4, Operation::ChangePorts),
    (3, Operation::ChangeType),
    (2, Operation::Annotate),
    (1, Operation::Spoil),
    (2, Operation::EmptyStatus),
    (4, Operation::DeleteService),
    (6, Operation::AddMachine),
    (3, Operation::DeleteMachine),
    (2, Operation::SwitchMachine),
    (3, Operation::ReplaceMachine),
    (1, Operation::MoveMachine),
    (2, Operation::ExcludeNode),
    (2, Operation::DeleteNode),
    (3, Operation::Heartbeat),
];

/// People, and the kubelets.
pub(crate) struct People {
    client: Client,
    clouds: Vec<Arc<Cloud>>,
    referee: Arc<Referee>,
    story: Story,
    chance: Chance,
    /// The highest number in a name.
    names_max: usize,
    /// Gives each node its own pod range.
    nodes_made: usize,
    /// The node that people joined by hand, and how many there were.
    by_hand: Option<String>,
    joined_by_hand: usize,
    /// Second steps of operations, and when they are due.
    begun: Vec<(Instant, Later)>,
}

/// The second step of an operation.
enum Later {
    /// A new machine takes over this name of a deleted one, in this cloud.
    Succeed(String, Arc<Cloud>),
    /// The Service becomes a load balancer of this class.
    Convert(String, Value),
    /// The Service's status is emptied.
    Empty(String),
    /// A step of a load balancer's way from one Service to another.
    HandOn(HandOn),
}

impl People {
    pub(crate) fn new(site: &Site, plan: &Plan) -> Self {
        Self {
            client: undisturbed(&site.server, PEOPLE),
            // The third cloud, another account of the first one, is not used.
            clouds: site.clouds.iter().take(2).cloned().collect(),
            referee: Arc::clone(&site.referee),
            story: site.story.clone(),
            chance: Chance::of(plan.seed, "people"),
            names_max: plan.names - 1,
            nodes_made: 0,
            by_hand: None,
            joined_by_hand: 0,
            begun: Vec::new(),
        }
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Performs one operation, if it applies to the existing objects.
    pub(crate) async fn act(&mut self) {
        match self.chance.weighted(&WEIGHTS).unwrap() {
            Operation::CreateService => self.create_service().await,
            Operation::AdoptService => self.adopt_service().await,
            Operation::ChangePorts => {
                let ports = self.ports();
                self.patch_some_service(json!({ "spec": { "ports": ports } })).await;
            }
            Operation::ChangeType => self.change_some_type().await,
            Operation::Annotate => {
                let names = self.names("/api/v1/namespaces/default/services");
                if let Some(name) = self.chance.pick(&names).cloned() {
                    self.annotate(&name).await;
                }
            }
            Operation::Spoil => {
                self.patch_some_service(json!({ "metadata": { "annotations": { SOURCE_RANGES: "everywhere" } } }))
                    .await;
            }
            Operation::EmptyStatus => self.empty_some_status().await,
            Operation::DeleteService => self.delete_some_service().await,
            Operation::AddMachine => self.add_machine().await,
            Operation::DeleteMachine => self.delete_some_machine().await,
            Operation::SwitchMachine => self.switch_some_machine().await,
            Operation::ReplaceMachine => self.replace_some_machine().await,
            Operation::MoveMachine => self.move_some_machine(),
            Operation::ExcludeNode => self.exclude_some_node().await,
            Operation::DeleteNode => {
                if let Some(name) = self.some_node() {
                    self.delete_node(&name).await;
                }
            }
            Operation::Heartbeat => {
                if let Some(name) = self.some_node() {
                    let status = if self.machine_of(&name).is_some_and(|(_, on)| on) { "True" } else { "Unknown" };
                    self.heartbeat(&name, status).await;
                }
            }
        }
    }

    /// Makes the Services and machines of a cluster that begins full.
    pub(crate) async fn populate(&mut self, (services, machines): (usize, usize)) {
        for number in 0..machines {
            if let Some(cloud) = self.chance.pick(&self.clouds).cloned() {
                self.make_machine(&format!("n{number}"), &cloud).await;
            }
        }
        for number in 0..services {
            self.create_service_named(format!("s{number}")).await;
        }
    }

    /// Performs an operation that takes effect within two minutes if nothing fails.
    pub(crate) async fn act_promptly(&mut self) {
        match self.chance.number(0..=9) {
            0 => self.create_service().await,
            1 => {
                let ports = self.ports();
                self.patch_some_service(json!({ "spec": { "ports": ports } })).await;
            }
            2 => self.change_some_type().await,
            3 => self.empty_some_status().await,
            4 => self.add_machine().await,
            5 => self.exclude_some_node().await,
            6 => self.replace_some_machine().await,
            7 | 8 => self.hand_some_service_over().await,
            _ => {
                let names = self.names("/api/v1/namespaces/default/services");
                if let Some(name) = self.chance.pick(&names).cloned() {
                    self.delete_service(&name, true).await;
                }
            }
        }
    }

    /// Makes a few Services and a machine of this cloud.
    pub(crate) async fn act_on(&mut self, cloud: &Arc<Cloud>) {
        let class = if cloud.has_routes { Value::Null } else { json!(CLASS) };
        for number in 0..LATE {
            let (name, spec) = (
                format!("late-{number}"),
                json!({ "type": "LoadBalancer", "ports": self.ports(), "loadBalancerClass": class }),
            );
            self.put_service(json!({ "name": name }), spec).await;
        }
        self.make_machine("late", cloud).await;
    }

    /// Pauses a Service, or ends its pause.
    pub(crate) async fn pause_some_service(&mut self, chance: &mut Chance) {
        let names = self.names("/api/v1/namespaces/default/services");
        let values = [json!("true"), json!("yes"), json!("false"), Value::Null];
        if let (Some(name), Some(value)) = (chance.pick(&names), chance.pick(&values)) {
            self.pause(name, value).await;
        }
    }

    async fn pause(&self, name: &str, value: &Value) {
        self.patch_service(name, json!({ "metadata": { "annotations": { PAUSED_ANNOTATION: value } } })).await;
    }

    /// Pauses the Services of [`Self::act_on`], or ends their pauses; returns their UIDs.
    pub(crate) async fn pause_late(&self, paused: bool) -> BTreeSet<String> {
        let (value, mut uids) = (if paused { json!("true") } else { Value::Null }, BTreeSet::new());
        for number in 0..LATE {
            let name = format!("late-{number}");
            self.pause(&name, &value).await;
            let object = self.referee.object(&format!("/api/v1/namespaces/default/services/{name}"));
            uids.extend(object.map(|object| text(&object, "/metadata/uid").to_owned()));
        }
        uids
    }

    /// Changes one of the Services of [`Self::act_on`], deletes another, and changes the nodes of
    /// the cloud.
    pub(crate) async fn ask_for_late_changes(&mut self, cloud: &Arc<Cloud>) {
        self.patch_service("late-0", json!({ "spec": { "ports": [{ "name": "new", "port": 99 }] } })).await;
        self.delete_service("late-1", true).await;
        self.make_machine("later", cloud).await;
        self.delete_machines(cloud, 1).await;
    }

    /// Empties the status of each Service of [`Self::act_on`].
    pub(crate) async fn empty_late_statuses(&self) {
        for number in 0..LATE {
            self.empty_status(&format!("late-{number}")).await;
        }
    }

    /// Brings the number of machines of this cloud to at least this one.
    pub(crate) async fn make_machines(&mut self, cloud: &Arc<Cloud>, count: usize) {
        for number in 0..count {
            if cloud.state().machines.len() < count {
                self.make_machine(&format!("more-{number}"), cloud).await;
            }
        }
    }

    /// Deletes this number of machines of the cloud at once.
    pub(crate) async fn delete_machines(&mut self, cloud: &Arc<Cloud>, count: usize) {
        let names: Vec<String> = cloud.state().machines.into_values().map(|machine| machine.name).take(count).collect();
        self.story.tell(PEOPLE, format_args!("delete machines {names:?} of {}", cloud.name));
        cloud.change(|state| state.machines.retain(|_, machine| !names.contains(&machine.name)));
        for name in &names {
            self.heartbeat(name, "Unknown").await;
        }
    }

    /// The kubelet of the first machine of this cloud stops or continues to report.
    pub(crate) async fn silence_kubelet(&mut self, cloud: &Cloud, silent: bool) {
        if let Some(machine) = cloud.state().machines.into_values().next() {
            self.heartbeat(&machine.name, if silent { "Unknown" } else { "True" }).await;
        }
    }

    /// Registers each node again that has the machine of another node: a lie gave it that machine.
    pub(crate) async fn part_swapped_nodes(&mut self) {
        for cloud in self.clouds.clone() {
            for (id, machine) in cloud.state().machines {
                let node = self.referee.object(&format!("/api/v1/nodes/{}", machine.name)).unwrap_or_default();
                let known = text(&node, "/spec/providerID");
                if !known.is_empty() && known != id {
                    self.delete_node(&machine.name).await;
                    self.register(&machine.name, &cloud).await;
                }
            }
        }
    }

    /// Starts all machines, whose kubelets report Ready; machines without a node register again;
    /// nodes without a machine are not Ready.
    pub(crate) async fn bring_everything_up(&mut self) {
        self.begun.clear();
        if self.clouds.iter().all(|cloud| cloud.state().machines.is_empty()) {
            // Without any node the route controller deletes no route, because an empty list of
            // nodes is more likely an error.
            self.add_machine().await;
        }
        for cloud in self.clouds.clone() {
            cloud.change(|state| state.machines.values_mut().for_each(|machine| machine.off = false));
            for machine in cloud.state().machines.into_values() {
                if self.referee.object(&format!("/api/v1/nodes/{}", machine.name)).is_none() {
                    self.register(&machine.name, &cloud).await;
                }
            }
        }
        self.part_swapped_nodes().await;
        // A lie may have given a node the machine of another node.
        for name in self.names("/api/v1/nodes") {
            let node = self.referee.object(&format!("/api/v1/nodes/{name}")).unwrap_or_default();
            let id = text(&node, "/spec/providerID");
            let machine = self.clouds.iter().find_map(|cloud| cloud.state().machines.get(id).cloned());
            if machine.is_some_and(|machine| machine.name != name) {
                self.delete_node(&name).await;
            }
        }
        for name in self.names("/api/v1/namespaces/default/services") {
            // Who asks for what another Service has gets a load balancer of its own.
            let annotations =
                json!({ SOURCE_RANGES: null, PAUSED_ANNOTATION: null, ADOPT_LOAD_BALANCER_ANNOTATION: null });
            let mended = json!({ "metadata": { "annotations": annotations } });
            drop(self.services().patch(&name, &PatchParams::default(), &Patch::Merge(&mended)).await);
            let path = format!("/api/v1/namespaces/default/services/{name}");
            let object = self.referee.object(&path).unwrap_or_default();
            if object.pointer("/metadata/deletionTimestamp").is_some() {
                self.other_controller_lets_go(&name, &object).await;
            }
        }
        for name in self.names("/api/v1/nodes") {
            let is_there = self.machine_of(&name).is_some() || self.by_hand.as_ref() == Some(&name);
            self.heartbeat(&name, if is_there { "True" } else { "Unknown" }).await;
            if !is_there {
                // The breaker may prevent the deletion.
                let patch = json!({ "metadata": { "annotations": { ALLOW_DELETION_ANNOTATION: "true" } } });
                drop(self.nodes().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    }

    /// A user deletes a load balancer in the cloud.
    pub(crate) fn tamper(&mut self) {
        let Some(cloud) = self.chance.pick(&self.clouds).cloned() else { return };
        let names: Vec<String> = cloud.state().balancers.into_keys().collect();
        if let Some(name) = self.chance.pick(&names) {
            self.story.tell(PEOPLE, format_args!("delete {name} in {} without the manager", cloud.name));
            cloud.change(|state| state.balancers.remove(name));
        }
    }

    /// A user deletes the backend pool of a load balancer, which keeps its backends until the next
    /// change.
    pub(crate) fn delete_some_pool(&mut self) {
        let Some(cloud) = self.chance.pick(&self.clouds).cloned() else { return };
        let names: Vec<String> = cloud.state().balancers.into_keys().collect();
        if let Some(name) = self.chance.pick(&names).cloned() {
            self.story.tell(PEOPLE, format_args!("delete the backend pool of {name} in {}", cloud.name));
            cloud.change(|state| state.without_pool.insert(name));
        }
    }

    fn names(&self, path: &str) -> Vec<String> {
        let objects = self.referee.objects(path);
        objects.iter().map(|object| text(object, "/metadata/name").to_owned()).collect()
    }

    fn some_node(&mut self) -> Option<String> {
        let mut names = self.names("/api/v1/nodes");
        names.retain(|name| self.by_hand.as_ref() != Some(name));
        self.chance.pick(&names).cloned()
    }

    /// Joins a node by hand, or removes it: an initialised node without a provider ID, which the
    /// second and the younger provider select, so that it has no owner.
    pub(crate) async fn join_by_hand(&mut self, joins: bool) {
        if joins == self.by_hand.is_some() {
            return;
        }
        if let Some(name) = self.by_hand.take() {
            self.referee.contest(None);
            return self.delete_node(&name).await;
        }
        self.joined_by_hand += 1;
        let name = format!("by-hand-{}", self.joined_by_hand);
        self.story.tell(PEOPLE, format_args!("join node {name} by hand"));
        let object = json!({ "metadata": { "name": name, "labels": { CLOUD_LABEL: "second", BY_HAND: "yes" } } });
        self.nodes().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        self.heartbeat(&name, "True").await;
        self.referee.contest(Some(name.clone()));
        self.by_hand = Some(name);
    }

    /// The cloud of the machine behind this node, and whether it runs.
    fn machine_of(&self, node: &str) -> Option<(Arc<Cloud>, bool)> {
        let object = self.referee.object(&format!("/api/v1/nodes/{node}")).unwrap_or_default();
        let id = text(&object, "/spec/providerID");
        self.clouds.iter().find_map(|cloud| {
            let state = cloud.state();
            let machine = state.machines.get(state.behind(id, node)?)?;
            Some((Arc::clone(cloud), !machine.off))
        })
    }

    fn ports(&mut self) -> Value {
        let count = self.chance.number(1..=3);
        let first = self.chance.number(80..=90);
        (0..count).map(|i| json!({ "name": format!("p{i}"), "port": first + i })).collect()
    }

    async fn change_some_type(&mut self) {
        // Only load balancers have a class, which cannot change while the type stays; the node
        // ports of a NodePort stay, too.
        let spec = match self.chance.number(0..=5) {
            0 | 1 => json!({ "type": "ClusterIP", "loadBalancerClass": null, "externalTrafficPolicy": null }),
            2 | 3 => json!({ "type": "NodePort", "loadBalancerClass": null }),
            4 => json!({ "type": "LoadBalancer" }),
            _ => json!({ "type": "LoadBalancer", "loadBalancerClass": self.class() }),
        };
        self.patch_some_service(json!({ "spec": spec })).await;
    }

    /// A load balancer goes to the other provider at once: the new one's turn comes while the old
    /// one still deletes.
    async fn hand_some_service_over(&mut self) {
        let is_balancer = |object: &Value| text(object, "/spec/type") == "LoadBalancer";
        let balancers = self.referee.objects("/api/v1/namespaces/default/services").into_iter().filter(is_balancer);
        let balancers: Vec<Value> = balancers.collect();
        let Some(service) = self.chance.pick(&balancers) else { return };
        let name = text(service, "/metadata/name").to_owned();
        let class = if text(service, "/spec/loadBalancerClass").is_empty() { json!(CLASS) } else { Value::Null };
        self.patch_service(&name, json!({ "spec": { "type": "NodePort", "loadBalancerClass": null } })).await;
        self.patch_service(&name, json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": class } })).await;
    }

    async fn create_service(&mut self) {
        let name = format!("s{}", self.chance.number(0..=self.names_max));
        self.create_service_named(name).await;
    }

    async fn create_service_named(&mut self, name: String) {
        let class = self.class();
        let policy = if self.chance.once_in(0.3) { "Local" } else { "Cluster" };
        let spec = json!({
            "type": "LoadBalancer", "ports": self.ports(), "loadBalancerClass": class, "externalTrafficPolicy": policy,
        });
        let metadata = if self.chance.once_in(0.2) {
            json!({ "name": name, "finalizers": [OTHERS_FINALIZER], "labels": { MARK: "yes" } })
        } else {
            json!({ "name": name })
        };
        self.put_service(metadata, spec).await;
    }

    async fn put_service(&self, metadata: Value, spec: Value) {
        let annotations = metadata.pointer("/annotations").cloned().unwrap_or_default();
        let name = text(&metadata, "/name");
        match annotations.is_null() {
            true => self.story.tell(PEOPLE, format_args!("create service {name} {spec}")),
            false => self.story.tell(PEOPLE, format_args!("create service {name} {annotations} {spec}")),
        }
        let object = json!({ "metadata": metadata, "spec": spec });
        // The Service may exist already, which is an error without effect.
        drop(self.services().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await);
    }

    /// Creates a Service from another manager's time: it has the finalizer, and no record says
    /// which provider made its load balancer. While all providers are asked, it becomes a load
    /// balancer again.
    async fn adopt_service(&mut self) {
        let name = format!("s{}", self.chance.number(0..=self.names_max));
        let spec = json!({ "type": "ClusterIP", "ports": self.ports() });
        self.story.tell(PEOPLE, format_args!("bring service {name} {spec} from another manager"));
        let metadata = json!({ "name": name, "finalizers": [LOAD_BALANCER_FINALIZER], "labels": { ADOPTED: "yes" } });
        let object = json!({ "metadata": metadata, "spec": spec });
        if self.services().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.is_ok() {
            let after = self.chance.milliseconds(0..=2_000);
            // A class of ours: a Service that gets a foreign class keeps the finalizer for the
            // other
            // manager.
            let class = if self.chance.once_in(0.5) { Value::Null } else { json!(CLASS) };
            self.begun.push((Instant::now() + after, Later::Convert(name, class)));
        }
    }

    fn class(&mut self) -> Value {
        match self.chance.number(0..=9) {
            0..=5 => Value::Null,
            6..=8 => json!(CLASS),
            _ => json!("example.com/nobody"),
        }
    }

    /// Another controller removes its finalizer.
    async fn other_controller_lets_go(&self, name: &str, object: &Value) {
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let left: Vec<&Value> = finalizers.into_iter().flatten().filter(|one| *one != OTHERS_FINALIZER).collect();
        let version = text(object, "/metadata/resourceVersion");
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": left } });
        drop(self.services().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await);
    }

    async fn empty_some_status(&mut self) {
        let names = self.names("/api/v1/namespaces/default/services");
        let Some(name) = self.chance.pick(&names).cloned() else { return };
        if self.chance.once_in(0.5) {
            self.empty_status(&name).await;
            return;
        }
        // At about the time of the next ensure.
        self.annotate(&name).await;
        let after = self.chance.milliseconds(0..=200);
        self.begun.push((Instant::now() + after, Later::Empty(name)));
    }

    async fn empty_status(&self, name: &str) {
        self.story.tell(PEOPLE, format_args!("empty the status of service {name}"));
        let patch = json!({ "status": { "loadBalancer": { "ingress": null } } });
        drop(self.services().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await);
    }

    async fn annotate(&mut self, name: &str) {
        let value = self.chance.number(0..=3).to_string();
        let patch = json!({ "metadata": { "annotations": { "example.com/a": value } } });
        self.patch_service(name, patch).await;
    }

    /// A machine gets another address.
    fn move_some_machine(&mut self) {
        let Some(name) = self.some_node() else { return };
        let Some((cloud, _)) = self.machine_of(&name) else { return };
        let address = format!("10.99.{}.{}", self.chance.number(0..=200), self.chance.number(1..=254));
        self.story.tell(PEOPLE, format_args!("machine {name} of {} has the address {address} now", cloud.name));
        cloud.change(|state| {
            let own = state.machines.values_mut().filter(|machine| machine.name == name);
            own.for_each(|machine| machine.address.clone_from(&address));
        });
    }

    async fn patch_some_service(&mut self, patch: Value) {
        let names = self.names("/api/v1/namespaces/default/services");
        if let Some(name) = self.chance.pick(&names).cloned() {
            self.patch_service(&name, patch).await;
        }
    }

    async fn patch_service(&self, name: &str, patch: Value) {
        self.story.tell(PEOPLE, format_args!("patch service {name} {patch}"));
        // The Service may be gone, or its type may not allow the patch.
        drop(self.services().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await);
    }

    async fn delete_some_service(&mut self) {
        let names = self.names("/api/v1/namespaces/default/services");
        if let Some(name) = self.chance.pick(&names).cloned() {
            let is_let_go = self.chance.once_in(0.5);
            self.delete_service(&name, is_let_go).await;
        }
    }

    async fn delete_service(&mut self, name: &str, is_let_go: bool) {
        self.story.tell(PEOPLE, format_args!("delete service {name}"));
        self.services().delete(name, &DeleteParams::default()).await.unwrap();
        if is_let_go {
            let path = format!("/api/v1/namespaces/default/services/{name}");
            let object = self.referee.object(&path).unwrap_or_default();
            self.other_controller_lets_go(name, &object).await;
        }
    }

    async fn add_machine(&mut self) {
        let name = format!("n{}", self.chance.number(0..=self.names_max));
        if let Some(cloud) = self.chance.pick(&self.clouds).cloned() {
            self.make_machine(&name, &cloud).await;
        }
    }

    /// Makes a machine, unless one with this name exists.
    async fn make_machine(&mut self, name: &str, cloud: &Cloud) {
        if self.clouds.iter().any(|cloud| cloud.state().machine_named(name).is_some()) {
            return;
        }
        let id = cloud.change(|state| state.make_machine(name));
        self.story.tell(PEOPLE, format_args!("make machine {name} {id}"));
        // The kubelet of a new machine replaces a node that another machine left behind.
        self.delete_node(name).await;
        self.register(name, cloud).await;
    }

    async fn register(&mut self, name: &str, cloud: &Cloud) {
        self.nodes_made += 1;
        let cidr = format!("10.244.{}.{}/28", self.nodes_made / 16, self.nodes_made % 16 * 16);
        let label = if cloud.has_routes { "first" } else { "second" };
        let taint =
            json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" });
        let (mut labels, mut taints) = (json!({ CLOUD_LABEL: label }), vec![taint]);
        if self.chance.once_in(0.3) {
            taints.push(json!({ "key": OTHERS_TAINT, "value": "x", "effect": "NoSchedule" }));
            labels = json!({ CLOUD_LABEL: label, MARK: "yes" });
        }
        let object = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "podCIDR": cidr, "podCIDRs": [cidr], "taints": taints },
        });
        self.story.tell(PEOPLE, format_args!("register node {name} {cidr}"));
        self.nodes().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        self.heartbeat(name, "True").await;
    }

    async fn heartbeat(&self, name: &str, ready: &str) {
        let message = self.nodes_made.to_string();
        let condition = json!({ "type": "Ready", "status": ready, "reason": "Kubelet", "message": message });
        let patch = json!({ "status": { "conditions": [condition] } });
        self.story.tell(PEOPLE, format_args!("node {name} is ready: {ready}"));
        // The node may be deleted at any time.
        drop(self.nodes().patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await);
    }

    async fn delete_node(&self, name: &str) {
        if let Some(object) = self.referee.object(&format!("/api/v1/nodes/{name}")) {
            self.story.tell(PEOPLE, format_args!("delete node {name}"));
            self.referee.deleted_by_people(text(&object, "/metadata/uid"));
            // Another client may have deleted the node already.
            drop(self.nodes().delete(name, &DeleteParams::default()).await);
        }
    }

    async fn delete_some_machine(&mut self) {
        let Some(name) = self.some_node() else { return };
        let Some((cloud, _)) = self.machine_of(&name) else { return };
        self.story.tell(PEOPLE, format_args!("delete machine {name} of {}", cloud.name));
        cloud.change(|state| state.machines.retain(|_, machine| machine.name != name));
        self.heartbeat(&name, "Unknown").await;
    }

    /// A machine goes, and an autoscaler deletes its node at once.
    pub(crate) async fn scale_in(&mut self) {
        let Some(name) = self.some_node() else { return };
        let Some((cloud, _)) = self.machine_of(&name) else { return };
        self.story.tell(PEOPLE, format_args!("delete machine {name} of {} and its node", cloud.name));
        cloud.change(|state| state.machines.retain(|_, machine| machine.name != name));
        self.delete_node(&name).await;
    }

    /// Replaces a machine by a new one with the same name, at about the time when a controller has
    /// seen twice that the first one is missing.
    async fn replace_some_machine(&mut self) {
        let Some(name) = self.some_node() else { return };
        let Some((cloud, _)) = self.machine_of(&name) else { return };
        self.story.tell(PEOPLE, format_args!("replace machine {name} of {}", cloud.name));
        cloud.change(|state| state.machines.retain(|_, machine| machine.name != name));
        self.heartbeat(&name, "Unknown").await;
        let after = self.chance.milliseconds(4_000..=13_000);
        self.begun.push((Instant::now() + after, Later::Succeed(name, cloud)));
    }

    /// When the next second step is due.
    pub(crate) fn next_due(&self) -> Instant {
        self.begun.iter().map(|(at, _)| *at).min().unwrap_or_else(|| Instant::now() + LOOK_EVERY)
    }

    /// Performs the second steps that are due.
    pub(crate) async fn go_on(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.begun.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, later) in due {
            match later {
                Later::Succeed(name, cloud) => self.make_machine(&name, &cloud).await,
                Later::Convert(name, class) => {
                    self.patch_service(
                        &name,
                        json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": class } }),
                    )
                    .await;
                }
                Later::Empty(name) => self.empty_status(&name).await,
                Later::HandOn(step) => self.hand_on(step).await,
            }
        }
    }

    async fn switch_some_machine(&mut self) {
        let Some(name) = self.some_node() else { return };
        let Some((cloud, on)) = self.machine_of(&name) else { return };
        self.story.tell(PEOPLE, format_args!("switch machine {name} {}", if on { "off" } else { "on" }));
        cloud.change(|state| {
            let own = state.machines.values_mut().filter(|machine| machine.name == name);
            own.for_each(|machine| machine.off = on);
        });
        self.heartbeat(&name, if on { "Unknown" } else { "True" }).await;
    }

    pub(crate) async fn exclude_some_node(&mut self) {
        let Some(name) = self.some_node() else { return };
        let value = if self.chance.once_in(0.5) { json!("") } else { Value::Null };
        self.story.tell(PEOPLE, format_args!("exclude node {name}: {}", !value.is_null()));
        let patch =
            json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": value } } });
        drop(self.nodes().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await);
    }
}

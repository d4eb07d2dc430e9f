//! The life of Services against an AWS in memory: both kinds of load balancers.

mod classic;
mod deletion;
mod limits;
mod machines;
mod named_groups;
mod network;
mod probes;
mod refusals;

use skysail_guest_sdk::{Error, LoadBalancerStatus, Node, NodeSet, Result, Service};

use super::{Done, Task, name_of};
use crate::{
    fixture::{FakeAws, machine, settings, vpc},
    inventory,
    settings::Settings,
};

const NAME: &str = "a0a1b2c3d4e5f6789abcdef012345678";

/// AWS, and the settings of the provider.
struct World {
    aws: FakeAws,
    settings: Settings,
}

impl World {
    fn new(more: &str) -> Self {
        let aws = FakeAws::default();
        *aws.ec2.borrow_mut() = vpc();
        Self { aws, settings: settings(more) }
    }

    fn task<'a>(&'a self, service: &'a Service) -> Task<'a> {
        Task::new(&self.aws, &self.settings, "prod", service)
    }

    fn ensure(&self, service: &Service, nodes: usize) -> Result<Done<LoadBalancerStatus>> {
        self.task(service).ensure(&node_set(nodes))
    }

    /// Ensures, and gives the name in the status.
    fn made(&self, service: &Service, nodes: usize) -> String {
        let status = self.ensure(service, nodes).unwrap().value;
        status.ingress[0].hostname.clone().unwrap()
    }

    /// The writes that a call makes.
    fn writes<T>(&self, call: impl FnOnce(&Self) -> T) -> Vec<String> {
        self.aws.called();
        call(self);
        self.aws.called().into_iter().filter(|action| !action.starts_with("Describe")).collect()
    }

    /// What the cloud holds of load balancers: their number, and that of all that belongs to them.
    fn left(&self) -> [usize; 5] {
        let (ec2, elb, v2) = (self.aws.ec2.borrow(), self.aws.elb.borrow(), self.aws.elb_v2.borrow());
        let made = ec2.groups.iter().filter(|group| group.name.starts_with("k8s-")).count();
        [
            elb.balancers.len() + v2.balancers.len(),
            v2.listeners.len(),
            v2.groups.len(),
            made,
            ec2.rules("sg-node").len(),
        ]
    }
}

fn node_set(nodes: usize) -> NodeSet {
    let node = |n: usize| Node {
        provider_id: Some(format!("aws:///us-east-1a/{}", machine(n).id)),
        labels: vec![("pool".to_owned(), format!("p{n}"))],
        ..Node::new(&format!("node-{n}"))
    };
    NodeSet::of((0..nodes).map(node).collect())
}

/// The rule by which a group of a Classic Load Balancer reaches the nodes, as the fake shows it.
fn granted(group: &str) -> String {
    format!("-1 {group} skysail.dev/rule/classic")
}

/// The same Service after its load balancer was deleted and made again.
fn of_another(service: &Service) -> Service {
    Service { uid: "ffffffff-4e5f-6789-abcd-ef0123456789".to_owned(), name: "other".to_owned(), ..service.clone() }
}

/// Every way in which `ensure` can end before it has finished: the next one finishes it and leaves
/// no more than an undisturbed one, a third one makes no write, and a deletion leaves nothing, also
/// of the unfinished one.
fn survives_every_crash(more: &str, before: Option<&Service>, service: &Service) {
    let undisturbed = World::new(more);
    undisturbed.made(service, 3);
    for writes in 0..60 {
        let [finished, deleted] = [World::new(more), World::new(more)];
        let mut completed = false;
        for world in [&finished, &deleted] {
            if let Some(before) = before {
                world.made(before, 2);
            }
            world.aws.die_after(writes);
            completed = world.ensure(service, 3).is_ok();
            world.aws.live();
        }
        finished.made(service, 3);
        assert_eq!(finished.left(), undisturbed.left(), "after {writes} writes");
        let again = finished.writes(|world| world.made(service, 3));
        assert_eq!(again, [""; 0], "after {writes} writes");
        finished.task(service).ensure_deleted().unwrap();
        assert_eq!(finished.left(), [0; 5], "a finished one after {writes} writes");
        deleted.task(service).ensure_deleted().unwrap();
        assert_eq!(deleted.left(), [0; 5], "an unfinished one after {writes} writes");
        if completed {
            assert!(writes > 2, "the call made no writes");
            return;
        }
    }
    panic!("the call makes more than 60 writes");
}

/// Every way in which a deletion can end before it has finished.
fn deletion_survives_every_crash(more: &str, service: &Service) {
    for writes in 0..30 {
        let world = World::new(more);
        world.made(service, 3);
        world.aws.die_after(writes);
        let completed = world.task(service).ensure_deleted().is_ok();
        world.aws.live();
        world.task(service).ensure_deleted().unwrap();
        assert_eq!(world.left(), [0; 5], "after {writes} writes");
        if completed {
            return;
        }
    }
    panic!("a deletion makes more than 30 writes");
}

/// A Service of this name was never made, belongs to another cluster, or is another one.
fn only_its_own_are_touched(service: &Service) {
    let world = World::new("");
    let other = of_another(service);
    world.task(service).ensure_deleted().unwrap();
    world.made(&other, 3);
    let there = world.left();
    assert_eq!(world.writes(|world| world.task(service).ensure_deleted().unwrap()), [""; 0]);
    assert_eq!(world.task(service).get().unwrap(), None);
    let foreign = World { settings: settings("KubernetesClusterTag = k1\n"), ..world };
    let foreign = World { settings: crate::fixture::settings_without_id(""), ..foreign };
    for result in [foreign.task(&other).ensure_deleted(), foreign.ensure(&other, 1).map(drop)] {
        assert!(matches!(result, Err(Error::Denied(_) | Error::Invalid(_))), "{result:?}");
    }
    let list = |world: &World, cluster: &str| inventory::list(&world.aws, &world.settings, cluster).unwrap();
    assert_eq!(list(&foreign, "k2"), []);
    let refused = inventory::delete(&foreign.aws, &foreign.settings, "k2", &name_of(&other));
    assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
    assert_eq!(foreign.left(), there);
    let owned: Vec<_> = list(&foreign, "k1").into_iter().map(|one| one.name).collect();
    assert_eq!(owned, [name_of(&other)]);
    for _ in 0..2 {
        inventory::delete(&foreign.aws, &foreign.settings, "k1", &name_of(&other)).unwrap();
    }
    assert_eq!(foreign.left(), [0; 5]);
}

/// Every way in which a deletion of fewer than `most` writes can end before it has finished: the
/// next one leaves nothing.
fn nothing_is_left_after_every_crash(most: usize, made: impl Fn() -> World, delete: impl Fn(&World) -> Result<()>) {
    for writes in 0..most {
        let world = made();
        world.aws.die_after(writes);
        let completed = delete(&world).is_ok();
        world.aws.live();
        delete(&world).unwrap();
        assert_eq!(world.left(), [0; 5], "after {writes} writes");
        if completed {
            return;
        }
    }
    panic!("the deletion makes {most} writes or more");
}

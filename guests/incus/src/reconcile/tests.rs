//! One Service's life against an Incus in memory.

use skysail_guest_sdk::{Error, Protocol, Service};

use super::{Cloud as _, Nodes, Task, delete_owned, list_owned};
use crate::{
    fixture::{self, FakeIncus},
    plan::Listener,
    settings::{self, Settings},
};

const CONFIG: &str = "endpoint = https://a:8443\nnetwork = ovn0\n";

fn web() -> Service {
    fixture::service(&[(Protocol::Tcp, 80, 30_080)])
}

fn nodes(count: usize) -> Nodes {
    (0..count).map(|n| (format!("node-{n}"), vec![format!("10.88.0.{}", n + 2)])).collect()
}

struct World {
    cloud: FakeIncus,
    settings: Settings,
}

impl World {
    fn new(config: &str) -> Self {
        Self { cloud: FakeIncus::default(), settings: settings::parse(config).config().unwrap() }
    }

    fn task<'a>(&'a self, cluster: &'a str, service: &'a Service) -> Task<'a, FakeIncus> {
        Task { cloud: &self.cloud, settings: &self.settings, cluster, service }
    }

    /// Ensures and says which addresses the status has.
    fn ensure(&self, service: &Service, count: usize) -> Result<Vec<String>, Error> {
        let done = self.task("prod", service).ensure(&nodes(count))?;
        Ok(done.value.ingress.into_iter().filter_map(|ingress| ingress.ip).collect())
    }
}

#[test]
fn a_service_gets_the_first_free_address_and_ensuring_again_writes_nothing() {
    let world = World::new(CONFIG);
    assert_eq!(world.ensure(&web(), 2).unwrap(), ["198.51.100.200"]);
    assert_eq!(world.cloud.written(), ["create 198.51.100.200 backends=2"]);
    assert_eq!(world.ensure(&web(), 2).unwrap(), ["198.51.100.200"]);
    assert_eq!(world.cloud.written(), [""; 0]);
    assert!(world.task("prod", &web()).get().unwrap().is_some());
}

#[test]
fn update_changes_the_backends_and_an_absent_load_balancer_is_not_found() {
    let world = World::new(CONFIG);
    assert!(matches!(world.task("prod", &web()).update(&nodes(1)), Err(Error::NotFound(_))));
    world.ensure(&web(), 1).unwrap();
    world.cloud.written();
    world.task("prod", &web()).update(&nodes(3)).unwrap();
    world.task("prod", &web()).update(&nodes(3)).unwrap();
    world.task("prod", &web()).update(&nodes(0)).unwrap();
    assert_eq!(world.cloud.written(), ["replace 198.51.100.200 backends=3", "replace 198.51.100.200 backends=0"]);
}

#[test]
fn addresses_of_other_networks_are_passed_over() {
    let mut world = World::new(CONFIG);
    world.cloud.elsewhere = ["198.51.100.200", "198.51.100.201"].map(|text| text.parse().unwrap()).into();
    assert_eq!(world.ensure(&web(), 1).unwrap(), ["198.51.100.202"]);
    world.cloud.elsewhere = (200..=207).map(|n| format!("198.51.100.{n}").parse().unwrap()).collect();
    let other = Service { uid: "another".to_owned(), ..web() };
    assert!(matches!(world.ensure(&other, 1), Err(Error::Exhausted(_))));
}

/// Only so many addresses are tried for each Service.
#[test]
fn a_restricted_client_passes_over_the_addresses_of_its_own_network() {
    let mut world = World::new(&format!("{CONFIG}listen = 203.0.113.0/28\n"));
    world.cloud.hides_allocations = true;
    for number in 0..12 {
        let service = Service { uid: format!("uid-{number}"), ..web() };
        let addresses = world.ensure(&service, 1).unwrap();
        assert_eq!(addresses.len(), 1, "Service {number}");
    }
}

#[test]
fn a_changed_address_is_made_before_the_old_one_goes() {
    let world = World::new(CONFIG);
    world.ensure(&web(), 1).unwrap();
    world.cloud.written();
    let fixed = Service { load_balancer_ip: Some("198.51.100.205".to_owned()), ..web() };
    assert_eq!(world.ensure(&fixed, 1).unwrap(), ["198.51.100.205"]);
    assert_eq!(world.cloud.written(), ["create 198.51.100.205 backends=1", "delete 198.51.100.200"]);
    // Without the wish the Service stays where it is.
    assert_eq!(world.ensure(&web(), 1).unwrap(), ["198.51.100.205"]);
}

#[test]
fn a_fixed_address_of_another_owner_is_invalid_and_is_not_changed() {
    let world = World::new(CONFIG);
    world.ensure(&web(), 1).unwrap();
    let thief = Service { uid: "thief".to_owned(), load_balancer_ip: Some("198.51.100.200".to_owned()), ..web() };
    assert!(matches!(world.ensure(&thief, 1), Err(Error::Invalid(_))));
    world.task("prod", &thief).ensure_deleted().unwrap();
    assert_eq!(world.cloud.addresses(), ["198.51.100.200"]);
}

#[test]
fn a_second_listener_left_by_a_lost_answer_is_removed() {
    let world = World::new(CONFIG);
    world.ensure(&web(), 1).unwrap();
    let (_, _, mut listeners) = world.cloud.look().unwrap();
    let Some(Listener::LoadBalancer(mut twin)) = listeners.pop() else { panic!("a load balancer was made") };
    "198.51.100.203".clone_into(&mut twin.listen_address);
    world.cloud.create(&Listener::LoadBalancer(twin)).unwrap();
    assert_eq!(world.ensure(&web(), 1).unwrap(), ["198.51.100.200"]);
    assert_eq!(world.cloud.addresses(), ["198.51.100.200"]);
}

#[test]
fn a_listener_outside_the_operators_new_pool_moves_into_it() {
    let old = World::new(CONFIG);
    old.ensure(&web(), 1).unwrap();
    let config = format!("{CONFIG}listen = 198.51.100.206\n");
    let new = World { cloud: old.cloud, settings: settings::parse(&config).config().unwrap() };
    assert_eq!(new.ensure(&web(), 1).unwrap(), ["198.51.100.206"]);
    assert_eq!(new.cloud.addresses(), ["198.51.100.206"]);
}

#[test]
fn deleting_leaves_nothing_of_this_service_and_everything_of_others() {
    let world = World::new(CONFIG);
    let other = Service { uid: "other".to_owned(), name: "other".to_owned(), ..web() };
    world.ensure(&web(), 1).unwrap();
    world.ensure(&other, 1).unwrap();
    world.task("prod", &web()).ensure_deleted().unwrap();
    world.task("prod", &web()).ensure_deleted().unwrap();
    assert_eq!(world.cloud.addresses(), ["198.51.100.201"]);
}

#[test]
fn the_same_service_of_another_cluster_is_another_service() {
    let world = World::new(CONFIG);
    world.ensure(&web(), 1).unwrap();
    world.task("test", &web()).ensure_deleted().unwrap();
    assert!(world.task("test", &web()).get().unwrap().is_none());
    assert_eq!(world.cloud.addresses(), ["198.51.100.200"]);
}

#[test]
fn the_inventory_lists_and_deletes_this_cluster_only() {
    let world = World::new(CONFIG);
    world.ensure(&web(), 1).unwrap();
    let owned = list_owned(&world.cloud, "prod").unwrap();
    assert_eq!(owned.len(), 1);
    assert_eq!(owned[0].service, Some(("default".to_owned(), "web".to_owned(), web().uid)));
    assert!(list_owned(&world.cloud, "test").unwrap().is_empty());
    assert!(matches!(delete_owned(&world.cloud, "test", &owned[0].name), Err(Error::Denied(_))));
    delete_owned(&world.cloud, "prod", &owned[0].name).unwrap();
    delete_owned(&world.cloud, "prod", &owned[0].name).unwrap();
    assert_eq!(world.cloud.addresses(), [""; 0]);
}

#[test]
fn nodes_outside_the_network_are_an_event_and_no_failure() {
    let world = World::new(CONFIG);
    let stranger = vec![("far".to_owned(), vec!["192.168.0.9".to_owned()])];
    let done = world.task("prod", &web()).ensure(&stranger).unwrap();
    assert_eq!(done.warnings.len(), 1);
    assert_eq!(done.warnings[0].0, "NodesOutsideNetwork");
    assert_eq!(world.cloud.written(), ["create 198.51.100.200 backends=0"]);
}

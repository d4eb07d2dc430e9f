//! Tests of load balancers: create, update, traffic and deletion.

use std::collections::BTreeSet;

use skysail_dev::cloud::Knobs;
use skysail_provider::{Code, IpFamily, LoadBalancerStatus, OwnedLoadBalancer, Protocol, SessionAffinity};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Duration,
};

use super::{CLUSTER, PORT, World, service, set};

fn address(status: &LoadBalancerStatus) -> &str {
    let [ingress] = status.ingress.as_slice() else { panic!("{status:?}") };
    ingress.ip.as_deref().unwrap()
}

/// The name of the machine that answers an HTTP request to this address; none without an answer.
async fn who_answers(address: &str, port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(format!("{address}:{port}")).await.ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n").await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    Some(text.split_once("\r\n\r\n")?.1.trim().to_owned())
}

/// The names of all machines that answer in this number of connections.
async fn all_who_answer(address: &str, port: u16, connections: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for _ in 0..connections {
        names.extend(who_answers(address, port).await);
    }
    names
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_second_ensure_changes_nothing() {
    let world = World::new().await;
    let nodes = world.nodes(&["a", "b"]).await;
    let service = service("0a1b-2c");
    assert_eq!(world.balancers().get(&world.call, CLUSTER, &service).await, Ok(None));
    let status = world.ensure(&service, &nodes).await.unwrap();
    assert_eq!(world.writes(), ["POST /v1/elastic-ips", "POST /v1/virtual-servers", "POST /v1/virtual-servers"]);
    let before = world.cloud.snapshot();
    assert_eq!((before.elastic_ips.len(), before.virtual_servers.len()), (1, 2));
    assert_eq!(world.balancers().name(&world.call, CLUSTER, &service).await, Ok("a0a1b2c".to_owned()));
    assert!(before.virtual_servers.iter().all(|server| server.name == "a0a1b2c" && server.real_servers.len() == 2));

    assert_eq!(world.ensure(&service, &nodes).await, Ok(status.clone()));
    assert_eq!(world.requests(), ["GET /v1/elastic-ips", "GET /v1/virtual-servers"]);
    assert_eq!(world.cloud.snapshot(), before);
    assert_eq!(world.balancers().get(&world.call, CLUSTER, &service).await, Ok(Some(status)));
}

#[tokio::test]
async fn two_concurrent_ensures_create_one_load_balancer() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let service = service("a");
    let (one, other) = tokio::join!(world.ensure(&service, &nodes), world.ensure(&service, &nodes));
    assert_eq!(one.unwrap(), other.unwrap());
    let snapshot = world.cloud.snapshot();
    assert_eq!((snapshot.elastic_ips.len(), snapshot.virtual_servers.len()), (1, 2));
}

#[tokio::test]
async fn http_through_the_address_reaches_every_backend() {
    let world = World::new().await;
    let nodes = world.nodes(&["a", "b", "c"]).await;
    let status = world.ensure(&service("a"), &nodes).await.unwrap();
    for port in [PORT, PORT + 1] {
        assert_eq!(all_who_answer(address(&status), port, 3).await, names(&["a", "b", "c"]));
    }
}

#[tokio::test]
async fn update_changes_the_backends_and_nothing_else() {
    let world = World::new().await;
    let (old, new) = (world.nodes(&["a", "b"]).await, world.nodes(&["c"]).await);
    let mut service = service("a");
    let status = world.ensure(&service, &old).await.unwrap();
    let before = world.cloud.snapshot();
    world.requests();

    // Only `ensure` applies other changes.
    service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
    service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    world.balancers().update(&world.call, CLUSTER, &service, &new).await.unwrap();
    let mut writes = world.writes();
    writes.sort();
    let put = |n: usize| format!("PUT /v1/virtual-servers/{}/real-servers", before.virtual_servers[n].id);
    assert_eq!(writes, [put(0), put(1)]);
    let mut after = world.cloud.snapshot();
    for (server, was) in after.virtual_servers.iter_mut().zip(&before.virtual_servers) {
        assert_eq!(server.real_servers.len(), 1);
        server.real_servers.clone_from(&was.real_servers);
    }
    assert_eq!(after, before);
    assert_eq!(all_who_answer(address(&status), PORT, 3).await, names(&["c"]));

    world.balancers().update(&world.call, CLUSTER, &service, &new).await.unwrap();
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn update_without_a_load_balancer_returns_not_found() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let error = world.balancers().update(&world.call, CLUSTER, &service("a"), &nodes).await.unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    assert!(world.cloud.snapshot().has_no_load_balancers());
}

#[tokio::test]
async fn ensure_applies_changes_of_the_service() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let mut service = service("a");
    let status = world.ensure(&service, &nodes).await.unwrap();
    service.ports.truncate(1);
    service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
    service.source_ranges = vec!["10.1.2.3/8".to_owned()];
    assert_eq!(world.ensure(&service, &nodes).await, Ok(status.clone()));
    let snapshot = world.cloud.snapshot();
    let [server] = snapshot.virtual_servers.as_slice() else { panic!("{snapshot:?}") };
    assert_eq!((server.port, server.session_affinity_seconds), (PORT, 60));
    assert_eq!(server.allowed_sources, ["10.0.0.0/8"]);
    assert_eq!(who_answers(address(&status), PORT).await, None, "127.0.0.1 must not be an allowed source");
    assert_eq!(who_answers(address(&status), PORT + 1).await, None);

    let [a, b, c, last] = address(&status).parse::<std::net::Ipv4Addr>().unwrap().octets();
    let asked = std::net::Ipv4Addr::from([a, b, c, last + 7]).to_string();
    service.load_balancer_ip = Some(asked.clone());
    service.source_ranges.clear();
    let moved = world.ensure(&service, &nodes).await.unwrap();
    assert_eq!(address(&moved), asked);
    let snapshot = world.cloud.snapshot();
    assert_eq!((snapshot.elastic_ips.len(), snapshot.virtual_servers.len()), (1, 1));
    assert_eq!(who_answers(&asked, PORT).await.as_deref(), Some("a"));
}

#[tokio::test]
async fn ensure_deleted_is_idempotent_and_leaves_nothing() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let service = service("a");
    assert_eq!(world.ensure_deleted(&service).await, Ok(()), "nothing was ever created");
    assert_eq!(world.writes(), Vec::<String>::new());
    let status = world.ensure(&service, &nodes).await.unwrap();
    for _ in 0..2 {
        assert_eq!(world.ensure_deleted(&service).await, Ok(()));
        assert!(world.cloud.snapshot().has_no_load_balancers());
    }
    assert_eq!(who_answers(address(&status), PORT).await, None);
    assert_eq!(world.balancers().get(&world.call, CLUSTER, &service).await, Ok(None));
}

#[tokio::test]
async fn load_balancers_of_other_clusters_are_ignored() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let service = service("a");
    let theirs = world.balancers().ensure(&world.call, "other", &service, &nodes).await.unwrap();
    assert_eq!(world.balancers().get(&world.call, CLUSTER, &service).await, Ok(None));
    let before = world.cloud.snapshot();
    let ours = world.ensure(&service, &nodes).await.unwrap();
    assert_ne!(address(&ours), address(&theirs));
    world.ensure_deleted(&service).await.unwrap();
    assert_eq!(world.cloud.snapshot(), before);
}

#[tokio::test]
async fn the_inventory_lists_and_deletes_only_this_clusters() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    world.ensure(&service("a-1"), &nodes).await.unwrap();
    world.balancers().ensure(&world.call, "other", &service("b-2"), &nodes).await.unwrap();
    let listed = world.inventory().list(&world.call, CLUSTER).await.unwrap();
    let [owned] = listed.as_slice() else { panic!("{listed:?}") };
    let whose = ("default".to_owned(), "web".to_owned(), "a-1".to_owned());
    assert_eq!((owned.name.as_str(), owned.service.as_ref()), ("aa1", Some(&whose)));

    let named = |name: &str| OwnedLoadBalancer { name: name.to_owned(), service: None };
    let error = world.inventory().delete(&world.call, CLUSTER, &named("ab2")).await.unwrap_err();
    assert_eq!(error.code, Code::Denied);
    assert_eq!(world.cloud.snapshot().virtual_servers.len(), 4);
    // The share of an earlier Service, with the name of a load balancer that exists.
    let earlier = ("default".to_owned(), "web".to_owned(), "z-9".to_owned());
    let share = OwnedLoadBalancer { service: Some(earlier), ..named("aa1") };
    assert_eq!(world.inventory().delete(&world.call, CLUSTER, &share).await, Ok(()));
    assert_eq!(world.inventory().list(&world.call, CLUSTER).await.unwrap().len(), 1);
    for _ in 0..2 {
        assert_eq!(world.inventory().delete(&world.call, CLUSTER, owned).await, Ok(()));
    }
    assert_eq!(world.inventory().list(&world.call, CLUSTER).await, Ok(Vec::new()));
    assert_eq!(world.inventory().list(&world.call, "other").await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_impossible_service_is_unsupported_before_anything_is_created() {
    let world = World::new().await;
    let nodes = world.nodes(&["a"]).await;
    let mut udp = service("a");
    udp.ports[1].protocol = Protocol::Udp;
    let mut six = service("a");
    six.ip_families = vec![IpFamily::Ipv6];
    let mut closed = service("a");
    closed.source_ranges = vec!["fd00::/8".to_owned()];
    for service in [udp, six, closed] {
        assert_eq!(world.ensure(&service, &nodes).await.unwrap_err().code, Code::Unsupported);
    }
    let mut without_node_port = service("a");
    without_node_port.ports[0].node_port = 0;
    assert_eq!(world.ensure(&without_node_port, &nodes).await.unwrap_err().code, Code::Invalid);
    assert_eq!(world.writes(), Vec::<String>::new());
    assert!(world.cloud.snapshot().has_no_load_balancers());
}

#[tokio::test]
async fn an_unfinished_load_balancer_is_polled_and_not_created_twice() {
    let world = World::new().await;
    world.turn(Knobs { provisioning_ms: 3_600_000, ..Knobs::default() });
    for _ in 0..2 {
        let error = world.ensure(&service("a"), &set(Vec::new())).await.unwrap_err();
        assert_eq!((error.code, error.retry_after), (Code::RetryAfter, Some(Duration::from_secs(1))));
    }
    let snapshot = world.cloud.snapshot();
    assert_eq!((snapshot.elastic_ips.len(), snapshot.virtual_servers.len()), (1, 2));
}

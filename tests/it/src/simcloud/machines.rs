//! Tests of machines, zones, clusters, the interface `node-legacy`, and the cloud-config.

use skysail_dev::cloud::{Knobs, NewInstance};
use skysail_host::{CallRecorder, Engine, Limits, Release, Sandbox, SandboxOptions, Severity, check_config};
use skysail_provider::{AddressKind, Code, Detail, Interface, Node, NodeAddress, Provider as _, Zone};

use super::{CLUSTER, World, node, set};
use crate::components::built;

#[tokio::test]
async fn every_interface_of_the_contract_is_there() {
    let world = World::new().await;
    assert_eq!(world.provider.info().unwrap().name, "simcloud");
    assert_eq!(world.provider.release().interfaces(), Interface::ALL);
}

#[tokio::test]
async fn three_hundred_nodes_take_two_requests_and_keep_their_order() {
    let world = World::new().await;
    let machine = |n: u32| world.cloud.add_instance(&format!("node-{n:03}"), "zone-b").unwrap();
    // Created in reverse order, so that the order of IDs differs from the order of names.
    let machines: Vec<_> = (0..300).rev().map(machine).collect();
    let nodes = set(machines.iter().map(|machine| node(&machine.name, Some(&machine.id))).collect());
    let found = world.instances().describe(&world.call, &nodes, Detail::Metadata).await.unwrap();
    assert_eq!(world.requests(), ["GET /v1/instances", "GET /v1/zones"]);
    let wanted: Vec<_> = machines.iter().rev().map(|machine| format!("simcloud://{}", machine.id)).collect();
    let ids: Vec<_> = found.into_iter().map(|instance| instance.unwrap().provider_id).collect();
    assert_eq!(ids, wanted);

    // Zones are cached, and one node takes one request.
    let one = set(vec![node("node-007", None)]);
    world.instances().describe(&world.call, &one, Detail::Metadata).await.unwrap();
    assert_eq!(world.requests(), ["GET /v1/instances"]);

    // The provider fetches all pages of a cloud with small pages.
    world.turn(Knobs { page_entries_max: 70, ..Knobs::default() });
    let paged = world.instances().describe(&world.call, &nodes, Detail::State).await.unwrap();
    assert_eq!(world.requests().len(), 5);
    assert!(paged.len() == 300 && paged.iter().all(Result::is_ok));
}

#[tokio::test]
async fn each_node_has_its_own_result() {
    let world = World::new().await;
    let [off, gone] = ["off", "gone"].map(|name| world.cloud.add_instance(name, "zone-a").unwrap());
    let new = NewInstance {
        name: "on".to_owned(),
        zone: Some("zone-c".to_owned()),
        instance_type: Some("sim.large".to_owned()),
        public: true,
        tags: std::collections::BTreeMap::new(),
    };
    let on = world.cloud.create_instance(new).unwrap();
    world.cloud.stop_instance(&off.id).await.unwrap();
    world.cloud.delete_instance(&gone.id).await.unwrap();
    let foreign = Node { provider_id: Some("aws:///i-1".to_owned()), ..node("foreign", None) };
    let nodes = set(vec![
        foreign.clone(),
        node("gone", Some(&gone.id)),
        node("never", None),
        node("off", Some(&off.id)),
        node("on", None),
    ]);
    for detail in [Detail::State, Detail::Metadata] {
        let answers = world.instances().describe(&world.call, &nodes, detail).await.unwrap();
        let codes: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(|error| error.code)).collect();
        assert_eq!(codes, [Some(Code::Invalid), Some(Code::NotFound), Some(Code::NotFound), None, None]);
        let [.., stopped, running] = answers.as_slice() else { panic!("{answers:?}") };
        assert!(stopped.as_ref().unwrap().shutdown && !running.as_ref().unwrap().shutdown);
    }
    let answers = world.instances().describe(&world.call, &nodes, Detail::Metadata).await.unwrap();
    let running = answers[4].as_ref().unwrap();
    assert_eq!(running.provider_id, format!("simcloud://{}", on.id));
    assert_eq!((&*running.zone, &*running.region, &*running.instance_type), ("zone-c", "region-1", "sim.large"));
    let address = |kind, address: String| NodeAddress { kind, address };
    let addresses = [
        address(AddressKind::Hostname, "on".to_owned()),
        address(AddressKind::InternalIp, on.private_address.to_string()),
        address(AddressKind::ExternalIp, on.public_address.unwrap().to_string()),
    ];
    assert_eq!(running.addresses, addresses);

    // A new machine with the name of a node is not that node's machine.
    world.cloud.add_instance("gone", "zone-a").unwrap();
    let again = world.instances().describe(&world.call, &set(vec![node("gone", Some(&gone.id))]), Detail::State).await;
    assert_eq!(again.unwrap()[0].as_ref().unwrap_err().code, Code::NotFound);

    // An empty set needs no request.
    world.requests();
    let answers = world.instances().describe(&world.call, &set(vec![foreign]), Detail::State).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap_err().code, Code::Invalid);
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn zones_are_found_by_the_config_the_provider_id_and_the_name() {
    let world = World::new().await;
    let machine = world.cloud.add_instance("a", "zone-c").unwrap();
    let zones = world.provider.zones().unwrap();
    let zone = |name: &str| Zone { failure_domain: name.to_owned(), region: "region-1".to_owned() };
    assert_eq!(zones.current(&world.call).await, Ok(zone("zone-b")));
    let id = format!("simcloud://{}", machine.id);
    assert_eq!(zones.by_provider_id(&world.call, &id).await, Ok(zone("zone-c")));
    assert_eq!(zones.by_node_name(&world.call, "a").await, Ok(zone("zone-c")));
    assert_eq!(zones.by_provider_id(&world.call, "simcloud://i-999").await.unwrap_err().code, Code::NotFound);
    assert_eq!(zones.by_provider_id(&world.call, "aws:///i-1").await.unwrap_err().code, Code::Invalid);
    assert_eq!(zones.by_node_name(&world.call, "b").await.unwrap_err().code, Code::NotFound);

    let nowhere = World::with("").await;
    let error = nowhere.provider.zones().unwrap().current(&nowhere.call).await.unwrap_err();
    assert_eq!(error.code, Code::Unsupported);
}

#[tokio::test]
async fn clusters_are_listed_with_their_masters() {
    let world = World::new().await;
    let clusters = world.provider.clusters().unwrap();
    assert_eq!(clusters.list(&world.call).await, Ok(vec![CLUSTER.to_owned()]));
    assert_eq!(clusters.master(&world.call, CLUSTER).await, Ok("https://10.0.0.1:6443".to_owned()));
    assert_eq!(clusters.master(&world.call, "other").await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn the_oldest_interface_adds_keys_and_finds_names() {
    let world = World::new().await;
    world.cloud.add_instance("a", "zone-a").unwrap();
    let legacy = world.provider.node_legacy().unwrap();
    for _ in 0..2 {
        legacy.add_ssh_key_to_all_instances(&world.call, "core", b"ssh-ed25519 AAAA").await.unwrap();
    }
    let keys = world.cloud.snapshot().ssh_keys;
    assert_eq!(keys.len(), 1);
    assert_eq!((&*keys[0].user, &*keys[0].key), ("core", "ssh-ed25519 AAAA"));
    let error = legacy.add_ssh_key_to_all_instances(&world.call, "core", &[0xff]).await.unwrap_err();
    assert_eq!(error.code, Code::Invalid);
    assert_eq!(legacy.current_node_name(&world.call, "a").await, Ok("a".to_owned()));
    assert_eq!(legacy.current_node_name(&world.call, "b").await.unwrap_err().code, Code::NotFound);
    let (servers, searches) = (vec!["10.0.0.10".to_owned()], vec!["example.com".to_owned()]);
    assert_eq!(legacy.scrub_dns(&world.call, &servers, &searches).await, Ok((servers.clone(), searches.clone())));
}

#[tokio::test]
async fn each_problem_of_the_config_names_its_line_and_key() {
    let engine = Engine::on_demand().unwrap();
    let options =
        SandboxOptions { name: "simcloud".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    let sandbox = Sandbox::new(&engine, CallRecorder::default(), options).unwrap();
    let release = Release::from_wasm(&sandbox, &built("simcloud")).unwrap();
    assert_eq!(check_config(&sandbox, &release, "[Global]\nendpoint = https://cloud\n").await, Ok(Vec::new()));
    let places = async |text: &str| {
        let problems = check_config(&sandbox, &release, text).await.unwrap();
        let place = |problem: skysail_host::Problem| {
            assert_eq!(problem.severity, Severity::Fatal);
            (problem.line, problem.key)
        };
        problems.into_iter().map(place).collect::<Vec<_>>()
    };
    let key = |line, key: &str| (line, key.to_owned());
    assert_eq!(places("").await, [key(None, "Global.endpoint")]);
    assert_eq!(places("[Global]\nendpoint = cloud\n").await, [key(Some(2), "Global.endpoint")]);
    assert_eq!(
        places("[Global]\nzoen = zone-a\nendpoint = ftp://cloud\n").await,
        [key(Some(2), "Global.zoen"), key(Some(3), "Global.endpoint")]
    );
}

//! `openapi.json` describes the API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::{cloud, raw};
use crate::cloud::{
    model::{NewElasticIp, NewRoute, NewSshKey, NewVirtualServer, NewVolume},
    server::routes,
};

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

fn document() -> Value {
    serde_json::from_str(include_str!("../openapi.json")).unwrap()
}

#[test]
fn the_document_has_the_paths_of_the_router() {
    let document = document();
    let documented: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(documented, routes().into_iter().map(|(path, _)| path).collect());
}

#[tokio::test]
async fn each_path_takes_the_methods_of_the_document_and_no_other() {
    for (path, methods) in document()["paths"].as_object().unwrap() {
        // A cloud for each path, because one of the paths expires the token.
        let (_cloud, server) = cloud().await;
        for method in METHODS {
            let token = if path.starts_with("/control") { &server.admin_token } else { &server.token };
            let line = format!("{} {}", method.to_uppercase(), path.replace("{id}", "x"));
            let headers = format!("authorization: Bearer {token}");
            let address = server.url.trim_start_matches("http://");
            let answer = raw(address, &line, &[&headers], Some(json!({}))).await.unwrap();
            assert_eq!(answer.status == 405, methods.get(method).is_none(), "{line}: {}", answer.status);
        }
    }
}

#[tokio::test]
async fn records_have_the_members_of_their_schemas() {
    let (cloud, _server) = cloud().await;
    let instance = cloud.add_instance("a", "zone-a").unwrap();
    let (elastic_ip, tags) = (NewElasticIp { name: "e".into(), address: None, tags: [].into() }, [].into());
    let route = NewRoute { name: "r".into(), destination_cidr: "10.0.0.0/24".into(), instance: instance.id, tags };
    let volume = NewVolume { name: "d".into(), zone: None, size_gib: 1, tags: [].into() };
    let key = NewSshKey { user: "u".into(), key: "k".into() };
    {
        let mut state = cloud.state();
        state.create_route(route).unwrap();
        state.create_volume(volume).unwrap();
        state.add_ssh_key(key).unwrap();
        let elastic_ip = state.create_elastic_ip(elastic_ip).unwrap().id;
        let new = json!({"name": "v", "elastic_ip": elastic_ip, "protocol": "tcp", "port": 18_080,
            "real_servers": [{"address": "127.0.0.1", "port": 1}]});
        state.create_virtual_server(serde_json::from_value::<NewVirtualServer>(new).unwrap()).unwrap();
    }
    let schemas = &document()["components"]["schemas"];
    let snapshot = serde_json::to_value(cloud.snapshot()).unwrap();
    let check = |schema: &str, record: &Value| {
        let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(members(record), members(&schemas[schema]["properties"]), "{schema}");
    };
    check("Snapshot", &snapshot);
    check("Instance", &snapshot["instances"][0]);
    check("Route", &snapshot["routes"][0]);
    check("Volume", &snapshot["volumes"][0]);
    check("ElasticIp", &snapshot["elastic_ips"][0]);
    check("VirtualServer", &snapshot["virtual_servers"][0]);
    check("RealServer", &snapshot["virtual_servers"][0]["real_servers"][0]);
    check("SshKey", &snapshot["ssh_keys"][0]);
    check("Knobs", &serde_json::to_value(cloud.knobs()).unwrap());
}

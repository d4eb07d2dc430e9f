//! Real connections through virtual servers.

use serde_json::{Value, json};

use super::client::{Answer, cloud, raw, send};
use crate::cloud::{SimCloud, SimServer, model::Health};

const PORT: u16 = 18_080;
const NODE_PORT: u16 = 30_080;

/// A virtual server with a separate address; the response and the address to connect to.
async fn virtual_server(server: &SimServer, port: u16, more: Value) -> (Answer, String) {
    let eip = send(server, "POST /v1/elastic-ips", &[], Some(json!({"name": "e"}))).await.json();
    let mut new = json!({"name": "v", "elastic_ip": eip["id"], "protocol": "tcp", "port": port});
    new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = send(server, "POST /v1/virtual-servers", &[], Some(new)).await;
    (answer, format!("{}:{port}", eip["address"].as_str().unwrap()))
}

async fn backends(cloud: &SimCloud, names: &[&str]) -> Value {
    let mut backends = Vec::new();
    for name in names {
        let instance = cloud.add_instance(name, "zone-a").unwrap();
        let address = cloud.serve_backend(&instance.id, NODE_PORT).await.unwrap();
        backends.push(json!({"address": address.ip(), "port": address.port()}));
    }
    json!({ "real_servers": backends })
}

async fn who_answers(address: &str) -> Option<String> {
    raw(address, "GET /", &[], None).await.ok().map(|answer| answer.text.trim().to_owned())
}

#[tokio::test]
async fn connections_reach_every_running_machine_in_turn() {
    let (cloud, server) = cloud().await;
    let (made, address) = virtual_server(&server, PORT, backends(&cloud, &["a", "b"]).await).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let mut answers = [who_answers(&address).await, who_answers(&address).await];
    answers.sort();
    assert_eq!(answers, [Some("a".to_owned()), Some("b".to_owned())]);

    let stopped = cloud.snapshot().instances.iter().find(|instance| instance.name == "a").unwrap().id.clone();
    cloud.stop_instance(&stopped).await.unwrap();
    for _ in 0..4 {
        assert_eq!(who_answers(&address).await.as_deref(), Some("b"));
    }
    let real_servers = &cloud.snapshot().virtual_servers[0].real_servers;
    assert!(real_servers.iter().any(|real| real.health == Health::Unhealthy));
    assert!(real_servers.iter().any(|real| real.health == Health::Healthy));
    cloud.start_instance(&stopped).await.unwrap();
    assert!(cloud.snapshot().instances.iter().all(|instance| instance.state == crate::cloud::model::Power::Running));
}

#[tokio::test]
async fn a_backend_that_ended_frees_its_port_and_does_not_come_back_with_the_machine() {
    let (cloud, _server) = cloud().await;
    let instance = cloud.add_instance("a", "zone-a").unwrap();
    let address = cloud.serve_backend(&instance.id, NODE_PORT).await.unwrap();
    assert_eq!(who_answers(&address.to_string()).await.as_deref(), Some("a"));
    for _ in 0..2 {
        cloud.end_backend(&instance.id, NODE_PORT).await.unwrap();
    }
    drop(std::net::TcpListener::bind(address).expect("the port should be free"));
    cloud.stop_instance(&instance.id).await.unwrap();
    cloud.start_instance(&instance.id).await.unwrap();
    assert_eq!(who_answers(&address.to_string()).await, None);
    cloud.serve_backend(&instance.id, NODE_PORT).await.unwrap();
    assert_eq!(who_answers(&address.to_string()).await.as_deref(), Some("a"));
}

#[tokio::test]
async fn real_servers_are_replaced_while_it_serves() {
    let (cloud, server) = cloud().await;
    let both = backends(&cloud, &["a", "b"]).await;
    let (made, address) = virtual_server(&server, PORT, both.clone()).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let only = json!([both["real_servers"][1]]);
    let line = format!("PUT /v1/virtual-servers/{id}/real-servers");
    assert_eq!(send(&server, &line, &[], Some(only)).await.status, 200);
    for _ in 0..3 {
        assert_eq!(who_answers(&address).await.as_deref(), Some("b"));
    }
    assert_eq!(send(&server, &line, &[], Some(json!([]))).await.status, 200);
    assert_eq!(who_answers(&address).await, None);
}

#[tokio::test]
async fn a_client_outside_the_allowed_sources_is_refused() {
    let (cloud, server) = cloud().await;
    let mut more = backends(&cloud, &["a"]).await;
    more["allowed_sources"] = json!(["10.0.0.0/8"]);
    let (made, address) = virtual_server(&server, PORT, more).await;
    assert_eq!(who_answers(&address).await, None);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let patch = json!({"allowed_sources": ["127.0.0.0/8"]});
    send(&server, &format!("PATCH /v1/virtual-servers/{id}"), &[], Some(patch)).await;
    assert_eq!(who_answers(&address).await.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_client_with_affinity_keeps_its_machine() {
    let (cloud, server) = cloud().await;
    let mut more = backends(&cloud, &["a", "b", "c"]).await;
    more["session_affinity_seconds"] = json!(600);
    let (_, address) = virtual_server(&server, PORT, more).await;
    let first = who_answers(&address).await;
    for _ in 0..5 {
        assert_eq!(who_answers(&address).await, first);
    }
}

#[tokio::test]
async fn a_taken_port_is_a_conflict_and_a_deleted_one_is_free_at_once() {
    let (cloud, server) = cloud().await;
    let (made, address) = virtual_server(&server, PORT, backends(&cloud, &["a"]).await).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let eip = made.json()["elastic_ip"].as_str().unwrap().to_owned();
    let new = json!({"name": "w", "elastic_ip": eip, "protocol": "tcp", "port": PORT});
    assert_eq!(send(&server, "POST /v1/virtual-servers", &[], Some(new.clone())).await.code(), "conflict");
    let busy = std::net::TcpListener::bind(address.replace(&PORT.to_string(), "18082")).unwrap();
    let mut other = new.clone();
    other["port"] = json!(18_082);
    assert_eq!(send(&server, "POST /v1/virtual-servers", &[], Some(other)).await.code(), "port-in-use");
    drop(busy);
    assert_eq!(send(&server, &format!("DELETE /v1/elastic-ips/{eip}"), &[], None).await.status, 409);
    assert_eq!(send(&server, &format!("DELETE /v1/virtual-servers/{id}"), &[], None).await.status, 204);
    assert_eq!(who_answers(&address).await, None);
    assert_eq!(send(&server, "POST /v1/virtual-servers", &[], Some(new)).await.status, 201);
}

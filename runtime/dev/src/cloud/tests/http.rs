//! Tokens, pages, idempotency, faults, and the log.

use serde_json::json;

use super::client::{cloud, raw, send};
use crate::cloud::{Failures, Knobs};

#[tokio::test]
async fn a_token_is_needed_and_a_read_only_one_may_not_write() {
    let (cloud, server) = cloud().await;
    let address = server.url.trim_start_matches("http://");
    let status = async |line: &str, token: &str| {
        let header = format!("authorization: Bearer {token}");
        raw(address, line, &[&header], Some(json!({"name": "a"}))).await.unwrap().status
    };
    assert_eq!(raw(address, "GET /v1/zones", &[], None).await.unwrap().status, 401);
    assert_eq!(status("GET /v1/zones", "guess").await, 401);
    assert_eq!(status("GET /v1/zones", "sim-read-only").await, 200);
    assert_eq!(status("POST /v1/instances", "sim-read-only").await, 403);
    assert_eq!(status("GET /control/state", "sim-token").await, 401);
    assert_eq!(status("GET /control/state", "sim-admin").await, 200);
    assert_eq!(status("POST /v1/instances", "sim-token").await, 201);
    cloud.expire_token();
    assert_eq!(status("GET /v1/zones", "sim-token").await, 401);
    let renewed = cloud.renew_token();
    assert_eq!(status("GET /v1/zones", &renewed).await, 200);
    assert_eq!(cloud.snapshot().instances.len(), 1);
}

#[tokio::test]
async fn a_list_comes_in_pages_and_by_filter() {
    let (cloud, server) = cloud().await;
    for n in 0..5 {
        cloud.add_instance(&format!("node-{n}"), "zone-b").unwrap();
    }
    let mut names = Vec::new();
    let mut cursor = String::new();
    let mut pages = 0;
    loop {
        let page = send(&server, &format!("GET /v1/instances?limit=2{cursor}"), &[], None).await.json();
        names.extend(page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((pages, names.join(" ")), (3, "node-0 node-1 node-2 node-3 node-4".to_owned()));
    let some = send(&server, "GET /v1/instances?name=node-3&id=i-000001&name=none", &[], None).await.json();
    assert_eq!(some["items"].as_array().unwrap().len(), 2);
    assert_eq!(send(&server, "GET /v1/instances?tag=a=b", &[], None).await.json()["items"], json!([]));
    for bad in ["limit=0", "limit=501", "cursor=*", "tag=a", "colour=red"] {
        assert_eq!(send(&server, &format!("GET /v1/instances?{bad}"), &[], None).await.status, 422, "{bad}");
    }
}

#[tokio::test]
async fn an_idempotency_key_makes_one_record_until_it_is_deleted() {
    let (cloud, server) = cloud().await;
    let key = "idempotency-key: k";
    let make = async |body| send(&server, "POST /v1/elastic-ips", &[key], Some(body)).await;
    let first = make(json!({"name": "a"})).await;
    let again = make(json!({"name": "a"})).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_eq!(make(json!({"name": "b"})).await.code(), "conflict");
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(send(&server, &format!("DELETE /v1/elastic-ips/{id}"), &[], None).await.status, 204);
    assert_eq!(send(&server, &format!("DELETE /v1/elastic-ips/{id}"), &[], None).await.status, 404);
    assert_eq!(make(json!({"name": "b"})).await.status, 201);
    assert_eq!(cloud.snapshot().elastic_ips.len(), 1);
}

#[tokio::test]
async fn faults_affect_the_configured_requests() {
    let (cloud, server) = cloud().await;
    let make = async || send(&server, "POST /v1/elastic-ips", &[], Some(json!({"name": "a"}))).await.status;
    let fail = |carried_out| Failures { after: 1, count: 1, status: 503, writes_only: true, carried_out };
    cloud.set_knobs(Knobs { fail: Some(fail(false)), ..Knobs::default() }).unwrap();
    assert_eq!((make().await, make().await, make().await), (201, 503, 201));
    assert_eq!(cloud.snapshot().elastic_ips.len(), 2);
    cloud.set_knobs(Knobs { fail: Some(fail(true)), ..Knobs::default() }).unwrap();
    assert_eq!((make().await, make().await), (201, 503));
    assert_eq!(cloud.snapshot().elastic_ips.len(), 4);
    cloud.set_knobs(Knobs { requests_per_second: Some(0), ..Knobs::default() }).unwrap();
    let refused = send(&server, "GET /v1/zones", &[], None).await;
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    let error = cloud.set_knobs(Knobs { error_rate: 2.0, ..Knobs::default() }).unwrap_err();
    assert!(error.to_string().contains("error_rate"), "{error}");
}

/// A real cloud does not notice that its client was killed.
#[tokio::test]
async fn a_request_is_carried_out_though_its_client_is_gone() {
    let (cloud, server) = cloud().await;
    cloud.set_knobs(Knobs { latency_ms: 300, ..Knobs::default() }).unwrap();
    let mut changes = cloud.changes();
    {
        let make = send(&server, "POST /v1/elastic-ips", &[], Some(json!({"name": "a"})));
        tokio::pin!(make);
        while cloud.requests_under_way().is_empty() {
            // Without a timer: on a busy machine the latency may pass before a timer is noticed.
            tokio::select! {
                biased;
                answer = &mut make => panic!("answered already: {}", answer.status),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    assert_eq!(cloud.requests_under_way()[0].method, "POST");
    assert_eq!(cloud.requests(), []);
    assert_eq!(changes.recv().await.unwrap().kind, "elastic-ip");
    assert_eq!(cloud.snapshot().elastic_ips[0].name, "a");
}

#[tokio::test]
async fn the_knobs_and_the_log_are_reached_over_http() {
    let (cloud, server) = cloud().await;
    send(&server, "GET /v1/zones?limit=1", &["x-request-id: r-1"], None).await;
    let address = server.url.trim_start_matches("http://");
    let admin = format!("authorization: Bearer {}", server.admin_token);
    let control = async |line: &str, body| raw(address, line, &[&admin], body).await.unwrap();
    let log = control("GET /control/requests", None).await.json();
    assert_eq!(log[0]["path"], "/v1/zones?limit=1");
    assert_eq!((&log[0]["request_id"], &log[0]["status"]), (&json!("r-1"), &json!(200)));
    assert_eq!(control("DELETE /control/requests", None).await.status, 204);
    assert_eq!(cloud.requests(), []);
    assert_eq!(control("PUT /control/knobs", Some(json!({"latency_ms": 1, "seed": 7}))).await.status, 200);
    assert_eq!((cloud.knobs().latency_ms, cloud.knobs().seed), (1, 7));
    assert_eq!(control("PUT /control/knobs", Some(json!({"speed": 1}))).await.status, 422);
}

#[tokio::test]
async fn an_invalid_request_gets_an_error_with_the_reason() {
    let (cloud, server) = cloud().await;
    let instance = cloud.add_instance("a", "zone-a").unwrap().id;
    let eip = send(&server, "POST /v1/elastic-ips", &[], Some(json!({"name": "e"}))).await.json();
    let eip = &eip["id"];
    let route = |cidr: &str, id: &str| json!({"name": "r", "destination_cidr": cidr, "instance": id});
    let server_of = |protocol: &str, backend: &str| {
        json!({"name": "v", "elastic_ip": eip, "protocol": protocol, "port": 18_081,
            "real_servers": [{"address": backend, "port": 80}]})
    };
    let table = [
        ("instances", json!({"name": "a"}), 409),
        ("instances", json!({"name": "b", "zone": "nowhere"}), 422),
        ("instances", json!({"name": "b", "colour": "red"}), 422),
        ("instances", json!({"name": ""}), 422),
        ("routes", route("10.0.0.0/24", "i-9"), 404),
        ("routes", route("10.0.0.0", &instance), 422),
        ("elastic-ips", json!({"name": "e", "address": "10.0.0.1"}), 422),
        ("virtual-servers", server_of("udp", "127.0.0.1"), 422),
        ("virtual-servers", server_of("tcp", "10.0.0.1"), 422),
    ];
    for (path, body, status) in table {
        let answer = send(&server, &format!("POST /v1/{path}"), &[], Some(body.clone())).await;
        assert_eq!(answer.status, status, "{path} {body}");
        assert!(!answer.json()["error"]["message"].as_str().unwrap().is_empty());
    }
    assert_eq!(send(&server, "GET /v1/nothing", &[], None).await.code(), "no-path");
}

#[tokio::test]
async fn a_route_whose_machine_is_gone_is_a_blackhole() {
    let (cloud, server) = cloud().await;
    let instance = cloud.add_instance("a", "zone-a").unwrap().id;
    let route = json!({"name": "r", "destination_cidr": "10.244.3.7/24", "instance": instance});
    let made = send(&server, "POST /v1/routes", &[], Some(route)).await.json();
    assert_eq!((&made["destination_cidr"], &made["blackhole"]), (&json!("10.244.3.0/24"), &json!(false)));
    cloud.delete_instance(&instance).await.unwrap();
    assert!(cloud.snapshot().routes[0].blackhole);
}

#[tokio::test]
async fn a_new_address_is_pending_for_as_long_as_the_knob_says() {
    let (cloud, server) = cloud().await;
    cloud.set_knobs(Knobs { provisioning_ms: 3_600_000, ..Knobs::default() }).unwrap();
    let made = send(&server, "POST /v1/elastic-ips", &[], Some(json!({"name": "e"}))).await.json();
    assert_eq!(made["state"], "pending");
}

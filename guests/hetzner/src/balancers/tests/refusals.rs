//! What the user reads when Hetzner Cloud refuses a request, or when something else answers: the
//! object, what was said, and what to do.

use expect_test::expect;
use serde_json::json;
use skysail_guest_sdk::{AddressKind, NewRoute, NodeAddress, Result, instances::By};

use crate::{
    fixture::{Scene, settled},
    network_routes::Routes,
};

const BALANCERS: &str = "/load_balancers";

/// Code and text of an error, without the IDs of the fixture.
fn read<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    format!("{}: {}\n", error.code(), error.message())
}

fn said(code: &str, message: &str) -> String {
    json!({"error": {"code": code, "message": message, "details": null}}).to_string()
}

/// What `ensure` of a new load balancer says if one request gets this answer.
fn ensure(method: &'static str, path: &str, status: u16, body: &str) -> String {
    let scene = Scene::new("");
    // A refused creation is repeated without targets.
    for _ in 0..2 {
        scene.fake().answer_once(method, path, status, body);
    }
    read(scene.ensure(1))
}

/// What `ensure` says if one action of an existing load balancer gets this answer.
fn act(verb: &str, change: impl Fn(&mut Scene), status: u16, body: &str) -> String {
    let mut scene = Scene::new("network = kube\n");
    scene.ensure(1).unwrap();
    let id = scene.balancer()["id"].to_string();
    change(&mut scene);
    scene.fake().answer_once("POST", &format!("{BALANCERS}/{id}/actions/{verb}"), status, body);
    read(scene.ensure(2)).replace(&id, "ID")
}

fn add_port(scene: &mut Scene) {
    scene.service.ports.push(crate::fixture::port(443, 30_443));
}

/// Hetzner says the same of a token that is wrong, that was deleted, and that has expired.
#[test]
fn a_token_that_is_wrong_or_may_only_read_is_named_with_what_to_do() {
    let texts = [
        ensure("GET", BALANCERS, 401, &said("unauthorized", "unable to authenticate")),
        ensure("POST", BALANCERS, 403, &said("token_readonly", "the token is only allowed to perform GET requests")),
        ensure("POST", BALANCERS, 403, &said("forbidden", "insufficient permissions")),
        ensure("GET", BALANCERS, 403, &said("unknown_code", "no")),
    ];
    expect![[r#"
        denied: GET https://api.hetzner.cloud/v1/load_balancers?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D0a1b2c3d-4e5f-6789-abcd-ef0123456789: status 401: unable to authenticate (unauthorized); write a valid token of the project into the credential
        denied: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 403: the token is only allowed to perform GET requests (token_readonly); use a token with Read & Write
        denied: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 403: insufficient permissions (forbidden); use a token with Read & Write
        denied: GET https://api.hetzner.cloud/v1/load_balancers?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D0a1b2c3d-4e5f-6789-abcd-ef0123456789: status 403: no (unknown_code); write a valid token of the project into the credential
    "#]].assert_eq(&texts.concat());
}

#[test]
fn a_used_up_limit_names_the_object_that_could_not_be_made() {
    let limit = |message: &str| said("resource_limit_exceeded", message);
    let mut managed = Scene::new("");
    managed.annotate("protocol", "https");
    managed.annotate("certificate-type", "managed");
    managed.annotate("http-managed-certificate-domains", "example.com");
    managed.fake().answer_once("POST", "/certificates", 403, &limit("certificate limit exceeded"));
    let texts = [
        ensure("POST", BALANCERS, 403, &limit("load balancer limit exceeded")),
        act("add_service", add_port, 403, &limit("load balancer service limit exceeded")),
        read(managed.ensure(1)),
    ];
    expect![[r#"
        exhausted: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 403: load balancer limit exceeded (resource_limit_exceeded); delete what nobody needs, or ask Hetzner for a higher limit
        exhausted: POST https://api.hetzner.cloud/v1/load_balancers/ID/actions/add_service: status 403: load balancer service limit exceeded (resource_limit_exceeded); delete what nobody needs, or ask Hetzner for a higher limit
        exhausted: certificate "ccm-managed-certificate-0a1b2c3d-4e5f-6789-abcd-ef0123456789": POST https://api.hetzner.cloud/v1/certificates: status 403: certificate limit exceeded (resource_limit_exceeded); delete what nobody needs, or ask Hetzner for a higher limit
    "#]].assert_eq(&texts.concat());
}

#[test]
fn a_full_network_and_names_that_hetzner_does_not_know_are_named() {
    let subnet = |scene: &mut Scene| scene.annotate("private-ipv4", "10.0.2.9");
    let kind = |scene: &mut Scene| scene.annotate("type", "lb99");
    let field = json!({"error": {"code": "invalid_input", "message": "invalid input in field 'load_balancer_type'",
        "details": {"fields": [{"name": "load_balancer_type", "messages": ["unknown load balancer type"]}]}}});
    let texts = [
        ensure("POST", BALANCERS, 422, &said("no_subnet_available", "no subnet or IP is available")),
        act("attach_to_network", subnet, 422, &said("no_subnet_available", "no subnet or IP is available")),
        act("attach_to_network", subnet, 422, &said("ip_not_available", "provided IP is not available")),
        ensure("POST", BALANCERS, 412, &said("resource_unavailable", "type lb11 is not available in fsn1")),
        ensure("POST", BALANCERS, 412, &said("placement_error", "error during placement")),
        ensure("POST", BALANCERS, 422, &field.to_string()),
        act("change_type", kind, 422, &field.to_string()),
        ensure("POST", BALANCERS, 422, &said("invalid_input", "location 'mars1' does not exist")),
    ];
    expect![[r#"
        exhausted: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 422: no subnet or IP is available (no_subnet_available); add a subnet to the network, or release addresses
        exhausted: POST https://api.hetzner.cloud/v1/load_balancers/ID/actions/attach_to_network: status 422: no subnet or IP is available (no_subnet_available); add a subnet to the network, or release addresses
        invalid: POST https://api.hetzner.cloud/v1/load_balancers/ID/actions/attach_to_network: status 422: provided IP is not available (ip_not_available); correct the annotations of the Service or the cloud-config, or change what is in the way in the cloud
        exhausted: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 412: type lb11 is not available in fsn1 (resource_unavailable); choose another location or type, or wait
        exhausted: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 412: error during placement (placement_error); choose another location or type, or wait
        invalid: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 422: invalid input in field 'load_balancer_type' (invalid_input); load_balancer_type: unknown load balancer type; correct the annotations of the Service or the cloud-config, or change what is in the way in the cloud
        invalid: POST https://api.hetzner.cloud/v1/load_balancers/ID/actions/change_type: status 422: invalid input in field 'load_balancer_type' (invalid_input); load_balancer_type: unknown load balancer type; correct the annotations of the Service or the cloud-config, or change what is in the way in the cloud
        invalid: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 422: location 'mars1' does not exist (invalid_input); correct the annotations of the Service or the cloud-config, or change what is in the way in the cloud
    "#]].assert_eq(&texts.concat());
}

#[test]
fn an_answer_that_is_not_of_hetzner_or_lacks_something_names_the_request_and_the_endpoint() {
    const PAGE: &str = "<html><head/><body>Back soon</body></html>";
    let lacking = |field: &str| {
        let scene = Scene::new("");
        scene.ensure(1).unwrap();
        let mut balancer = scene.balancer();
        balancer.as_object_mut().unwrap().remove(field);
        let page = json!({"load_balancers": [balancer], "meta": {"pagination": {"next_page": null}}});
        scene.fake().answer_once("GET", BALANCERS, 200, &page.to_string());
        read(scene.ensure(1))
    };
    let texts = [
        ensure("GET", BALANCERS, 200, PAGE),
        ensure("POST", BALANCERS, 200, PAGE),
        ensure("POST", BALANCERS, 502, PAGE),
        ensure("GET", BALANCERS, 404, "404 page not found"),
        ensure("GET", BALANCERS, 200, "{}"),
        ensure("POST", BALANCERS, 201, "{}"),
        ensure("POST", BALANCERS, 201, ""),
        ensure("POST", BALANCERS, 200, &said("resource_limit_exceeded", "load balancer limit exceeded")),
        act("add_service", add_port, 200, &said("source_port_already_used", "source port 443 is already in use")),
        lacking("public_net"),
        lacking("load_balancer_type"),
    ];
    expect![[r#"
        unavailable: GET https://api.hetzner.cloud/v1/load_balancers?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D0a1b2c3d-4e5f-6789-abcd-ef0123456789: status 200: a page in HTML, which is not an answer of the API; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        unavailable: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 200: a page in HTML, which is not an answer of the API; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        unavailable: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 502: <html><head/><body>Back soon</body></html>; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        unavailable: GET https://api.hetzner.cloud/v1/load_balancers?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D0a1b2c3d-4e5f-6789-abcd-ef0123456789: status 404: 404 page not found; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        internal: GET https://api.hetzner.cloud/v1/load_balancers?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D0a1b2c3d-4e5f-6789-abcd-ef0123456789: unexpected JSON: missing field `entries` at line 1 column 2; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        internal: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: unexpected JSON: missing field `object` at line 1 column 2; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        internal: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: unexpected JSON: invalid type: null, expected struct Created at line 1 column 4; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        exhausted: load balancer "a0a1b2c3d4e5f6789abcdef012345678": POST https://api.hetzner.cloud/v1/load_balancers: status 200: load balancer limit exceeded (resource_limit_exceeded); delete what nobody needs, or ask Hetzner for a higher limit
        unavailable: POST https://api.hetzner.cloud/v1/load_balancers/ID/actions/add_service: status 200: source port 443 is already in use (source_port_already_used)
        internal: GET https://api.hetzner.cloud/v1/load_balancers?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D0a1b2c3d-4e5f-6789-abcd-ef0123456789: unexpected JSON: missing field `public_net` at line 1 column 1026; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        internal: GET https://api.hetzner.cloud/v1/load_balancers?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D0a1b2c3d-4e5f-6789-abcd-ef0123456789: unexpected JSON: missing field `load_balancer_type` at line 1 column 977; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
    "#]].assert_eq(&texts.concat());
}

/// Neither a gateway nor an error in a successful answer ends a deletion or a change of labels.
#[test]
fn an_answer_without_meaning_is_no_success_of_a_change() {
    let of = |method: &'static str, body: &str| {
        let scene = Scene::new("");
        scene.ensure(1).unwrap();
        let id = scene.balancer()["id"].to_string();
        let path = format!("{BALANCERS}/{id}");
        let text = if method == "PUT" {
            scene.by_user("PUT", &path, &json!({"labels": {"hcloud-ccm/service-uid": scene.service.uid}}));
            scene.fake().answer_once(method, &path, 200, body);
            read(scene.ensure(1))
        } else {
            scene.fake().answer_once(method, &path, 200, body);
            read(scene.delete())
        };
        assert_eq!(scene.all("load_balancers").len(), 1);
        text.replace(&id, "ID")
    };
    let refused = said("protected", "the load balancer is protected");
    let texts = [of("PUT", "{}"), of("PUT", &refused), of("DELETE", "{}"), of("DELETE", &refused)];
    expect![[r#"
        internal: PUT https://api.hetzner.cloud/v1/load_balancers/ID: unexpected JSON: missing field `object` at line 1 column 2; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        unavailable: PUT https://api.hetzner.cloud/v1/load_balancers/ID: status 200: the load balancer is protected (protected)
        internal: DELETE https://api.hetzner.cloud/v1/load_balancers/ID: unexpected JSON: invalid type: map, expected unit at line 1 column 0; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        unavailable: DELETE https://api.hetzner.cloud/v1/load_balancers/ID: status 200: the load balancer is protected (protected)
    "#]].assert_eq(&texts.concat());
}

#[test]
fn a_failed_action_names_its_object() {
    let scene = Scene::new("");
    let action = json!({"id": 7, "command": "create_load_balancer", "status": "error",
        "resources": [{"id": 4711, "type": "load_balancer"}],
        "error": {"code": "resource_unavailable", "message": "no host is available"}});
    let action: crate::wire::Action = serde_json::from_value(action).unwrap();
    expect![[r#"
        exhausted: action create_load_balancer (7) of load_balancer 4711 failed: no host is available (resource_unavailable); choose another location or type, or wait
    "#]].assert_eq(&read(scene.cloud.ended("uid", &action)));
}

#[test]
fn nodes_networks_and_routes_name_their_objects() {
    let scene = Scene::new("network = kube\n");
    let fake = scene.fake();
    let network = fake.network.to_string();
    let route = NewRoute {
        name_hint: String::new(),
        node: "node-0".to_owned(),
        provider_id: Some(format!("hcloud://{}", fake.servers[0])),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, "10.0.1.2")],
        destination_cidr: "10.4.0.0/24".to_owned(),
        extra: Vec::new(),
    };
    let mut texts = Vec::new();
    fake.answer_once("GET", "/servers", 401, &said("unauthorized", "unable to authenticate"));
    texts.push(read(scene.cloud.servers()));
    texts.push(read(scene.cloud.server_of(By::Id("42"))));
    texts.push(read(scene.cloud.server_of(By::Id("bm-7"))));
    fake.answer_once("GET", "/servers", 200, r#"{"servers": [{"id": 1}], "meta": {"pagination": {}}}"#);
    texts.push(read(scene.cloud.servers()));
    let path = format!("/networks/{network}/actions/add_route");
    fake.answer_once("POST", &path, 403, &said("resource_limit_exceeded", "network route limit exceeded"));
    let routes = Routes::new(&scene.cloud, &scene.settings).unwrap();
    texts.push(read(settled(|| routes.create(vec![route.clone()])).unwrap().remove(0)).replace(&network, "ID"));
    let other = Scene::new("network = elsewhere\n");
    texts.push(read(other.ensure(1)));
    expect![[r#"
        denied: GET https://api.hetzner.cloud/v1/servers?per_page=50: status 401: unable to authenticate (unauthorized); write a valid token of the project into the credential
        not-found: GET https://api.hetzner.cloud/v1/servers/42: status 404: server with ID '42' not found (not_found)
        invalid: provider ID hcloud://bm-7 is not that of a cloud server; write hcloud://NUMBER, or give the node to another provider
        internal: GET https://api.hetzner.cloud/v1/servers?per_page=50: unexpected JSON: missing field `name` at line 1 column 22; the answer is not that of the Hetzner Cloud API: correct the key endpoint, or the proxy before the API
        exhausted: POST https://api.hetzner.cloud/v1/networks/ID/actions/add_route: status 403: network route limit exceeded (resource_limit_exceeded); delete what nobody needs, or ask Hetzner for a higher limit
        denied: the project of this token has no network "elsewhere"; correct the key network, or the token
    "#]].assert_eq(&texts.concat());
}

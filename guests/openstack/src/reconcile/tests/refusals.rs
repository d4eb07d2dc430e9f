//! What the user reads when OpenStack refuses a request, or when something else answers: the
//! object, what was said, and what to do. The bodies are in the forms of Keystone, Nova, Neutron
//! and Octavia.

use expect_test::expect;
use serde_json::json;
use skysail_guest_sdk::{AddressKind, Detail, NewRoute, NodeAddress, Result, instances::Turn};

use super::World;
use crate::{
    fixture::{annotated, nodes, settings, web},
    machines,
    routing::{Extensions, Routing},
    settings::Api,
};

/// Code and text of an error.
fn read<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    format!("{}: {}\n", error.code(), error.message())
}

/// What `ensure` of a new load balancer says if one request gets this answer.
fn with(config: &str, method: &'static str, path: &str, status: u16, body: &str) -> String {
    let world = World::new(config);
    world.cloud.answer_once(method, path, status, body);
    read(world.ensure(&web(), &nodes(2)))
}

fn ensure(method: &'static str, path: &str, status: u16, body: &str) -> String {
    with("", method, path, status, body)
}

/// What `ensure` says if one change of an existing load balancer gets this answer.
fn change(
    config: &str,
    annotations: &[(&str, &str)],
    request: (&'static str, &str),
    status: u16,
    body: &str,
) -> String {
    let world = World::new(config);
    world.ensure(&web(), &nodes(1)).unwrap();
    let lb = world.column("loadbalancers", "id")[0].as_str().unwrap().to_owned();
    let pool = world.column("pools", "id")[0].as_str().unwrap().to_owned();
    let path = request.1.replace("POOL", &pool);
    world.cloud.answer_once(request.0, &path, status, body);
    read(world.ensure(&annotated(annotations), &nodes(2))).replace(&lb, "LB").replace(&pool, "POOL")
}

fn octavia(text: &str) -> String {
    json!({"faultcode": "Client", "faultstring": text, "debuginfo": null}).to_string()
}

fn neutron(kind: &str, text: &str) -> String {
    json!({"NeutronError": {"type": kind, "message": text, "detail": ""}}).to_string()
}

fn keystone(code: u16, title: &str, text: &str) -> String {
    json!({"error": {"code": code, "message": text, "title": title}}).to_string()
}

/// The host logs in again once, so a 401 means the account and not an old token.
#[test]
fn a_login_that_is_wrong_or_has_expired_and_a_missing_role_are_named_with_what_to_do() {
    let expired = "The request you have made requires authentication.";
    let texts = [
        ensure("GET", "loadbalancers", 401, &keystone(401, "Unauthorized", expired)),
        ensure("POST", "loadbalancers", 401, "Authentication required"),
        ensure("POST", "loadbalancers", 403, &octavia("Policy does not allow this request to be performed.")),
        ensure(
            "POST",
            "floatingips",
            403,
            &neutron("PolicyNotAuthorized", "(rule:create_floatingip) is disallowed by policy"),
        ),
    ];
    expect![[r#"
        denied: GET https://octavia/v2.0/lbaas/loadbalancers?name=kube_service_prod_default_web: status 401: The request you have made requires authentication; correct the login in spec.credentials of the provider
        denied: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 401: Authentication required; correct the login in spec.credentials of the provider
        denied: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 403: Policy does not allow this request to be performed; give the account the roles member and load-balancer_member on the project
        denied: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 403: (rule:create_floatingip) is disallowed by policy (PolicyNotAuthorized); give the account the roles member and load-balancer_member on the project
    "#]].assert_eq(&texts.concat());
}

#[test]
fn a_used_up_quota_names_the_object_that_could_not_be_made() {
    const SECURED: &str = "manage-security-groups = true\n";
    let over = |of: &str| neutron("OverQuota", &format!("Quota exceeded for resources: ['{of}']."));
    let met = |of: &str| octavia(&format!("Quota has been met for resources: {of}"));
    let monitor = &[("enable-health-monitor", "true")];
    let texts = [
        ensure("POST", "loadbalancers", 403, &met("Load Balancer")),
        with("provider-requires-serial-api-calls = true\n", "POST", "listeners", 403, &met("Listener")),
        with("provider-requires-serial-api-calls = true\n", "POST", "pools", 403, &met("Pool")),
        change("", &[], ("PUT", "pools/POOL/members"), 403, &met("Member")),
        change("", monitor, ("POST", "healthmonitors"), 403, &met("Health Monitor")),
        ensure("POST", "floatingips", 409, &over("floatingip")),
        with(SECURED, "POST", "security-groups", 409, &over("security_group")),
        with(SECURED, "POST", "security-group-rules", 409, &over("security_group_rule")),
    ];
    expect![[r#"
        exhausted: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 403: Quota has been met for resources: Load Balancer; delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: listener "listener_0_kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/listeners: status 403: Quota has been met for resources: Listener; delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: pool "pool_0_kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/pools: status 403: Quota has been met for resources: Pool; delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: PUT https://octavia/v2.0/lbaas/pools/POOL/members: status 403: Quota has been met for resources: Member; delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: healthmonitor "monitor_0_kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/healthmonitors: status 403: Quota has been met for resources: Health Monitor; delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 409: Quota exceeded for resources: ['floatingip'] (OverQuota); delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: security_group "lb-sg-0a1b2c3d-4e5f-6789-abcd-ef0123456789-default-web": POST https://neutron/v2.0/security-groups: status 409: Quota exceeded for resources: ['security_group'] (OverQuota); delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: POST https://neutron/v2.0/security-group-rules: status 409: Quota exceeded for resources: ['security_group_rule'] (OverQuota); delete what nobody needs, or let the operator of the cloud raise the quota
    "#]].assert_eq(&texts.concat());
}

#[test]
fn a_full_subnet_and_a_full_pool_of_floating_ips_name_the_keys_to_change() {
    let texts = [
        ensure(
            "POST",
            "floatingips",
            400,
            &neutron("ExternalIpAddressExhausted", "Unable to find any IP address on external network net-public."),
        ),
        ensure(
            "POST",
            "floatingips",
            409,
            &neutron("IpAddressGenerationFailure", "No more IP addresses available on network net-public."),
        ),
        ensure(
            "POST",
            "loadbalancers",
            500,
            &octavia(
                "Error creating neutron port on network net-nodes, due to: No more IP addresses available on network.",
            ),
        ),
        ensure(
            "POST",
            "loadbalancers",
            409,
            &neutron("IpAddressGenerationFailureForSubnet", "No more IP addresses available for subnet subnet-nodes."),
        ),
    ];
    expect![[r#"
        exhausted: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 400: Unable to find any IP address on external network net-public (ExternalIpAddressExhausted); release addresses, or name another network or subnet in [LoadBalancer] or in the annotations
        exhausted: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 409: No more IP addresses available on network net-public (IpAddressGenerationFailure); release addresses, or name another network or subnet in [LoadBalancer] or in the annotations
        exhausted: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 500: Error creating neutron port on network net-nodes, due to: No more IP addresses available on network; release addresses, or name another network or subnet in [LoadBalancer] or in the annotations
        exhausted: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 409: No more IP addresses available for subnet subnet-nodes (IpAddressGenerationFailureForSubnet); release addresses, or name another network or subnet in [LoadBalancer] or in the annotations
    "#]].assert_eq(&texts.concat());
}

#[test]
fn names_that_openstack_does_not_know_are_named() {
    let texts = [
        with("flavor-id = big\n", "POST", "loadbalancers", 400, &octavia("Validation failure: Invalid flavor_id.")),
        with(
            "availability-zone = mars\n",
            "POST",
            "loadbalancers",
            400,
            &octavia("Validation failure: Invalid availability zone."),
        ),
        with("lb-provider = f5\n", "POST", "loadbalancers", 400, &octavia("Provider 'f5' is not enabled.")),
        with("subnet-id = none\n", "POST", "loadbalancers", 400, &octavia("Subnet none not found.")),
        with("subnet-id = none\n", "POST", "loadbalancers", 404, &octavia("Subnet none not found.")),
        with("", "POST", "loadbalancers", 501, &octavia("Provider 'ovn' does not support a requested option: x")),
        with(
            "floating-network-id = none\n",
            "POST",
            "floatingips",
            404,
            &neutron("NetworkNotFound", "Network none could not be found."),
        ),
        with(
            "floating-network-id = net-nodes\n",
            "POST",
            "floatingips",
            400,
            &neutron("BadRequest", "Bad floatingip request: Network net-nodes is not a valid external network."),
        ),
        ensure("POST", "floatingips", 409, &neutron("FloatingIPPortAlreadyAssociated", "the port has a floating IP")),
    ];
    expect![[r#"
        invalid: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 400: Validation failure: Invalid flavor_id; correct the annotations of the Service, or the cloud-config
        invalid: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 400: Validation failure: Invalid availability zone; correct the annotations of the Service, or the cloud-config
        invalid: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 400: Provider 'f5' is not enabled; correct the annotations of the Service, or the cloud-config
        invalid: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 400: Subnet none not found; correct the annotations of the Service, or the cloud-config
        unavailable: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 404: Subnet none not found; correct the ID in the annotations of the Service, or in the cloud-config
        unsupported: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 501: Provider 'ovn' does not support a requested option: x; remove the option, or choose another lb-provider in [LoadBalancer]
        unavailable: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 404: Network none could not be found (NetworkNotFound); correct the ID in the annotations of the Service, or in the cloud-config
        invalid: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 400: Bad floatingip request: Network net-nodes is not a valid external network (BadRequest); correct the annotations of the Service, or the cloud-config
        unavailable: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 409: the port has a floating IP (FloatingIPPortAlreadyAssociated); delete or change the object that is in the way
    "#]].assert_eq(&texts.concat());
}

#[test]
fn an_answer_that_is_not_of_openstack_or_lacks_something_names_the_request_and_the_endpoint() {
    const PAGE: &str = "<html><head/><body>Back soon</body></html>";
    let lacking = |field: &str| {
        let world = World::new("");
        world.ensure(&web(), &nodes(1)).unwrap();
        let mut lb = world.cloud.all(Api::LoadBalancer, "loadbalancers").remove(0);
        lb.as_object_mut().unwrap().remove(field);
        world.cloud.answer_once("GET", "loadbalancers", 200, &json!({"loadbalancers": [lb]}).to_string());
        read(world.ensure(&web(), &nodes(1)))
    };
    let texts = [
        ensure("GET", "loadbalancers", 200, PAGE),
        ensure("POST", "loadbalancers", 200, PAGE),
        ensure("POST", "loadbalancers", 502, PAGE),
        ensure("GET", "loadbalancers", 404, "404 page not found"),
        ensure("GET", "loadbalancers", 200, "{}"),
        ensure("POST", "loadbalancers", 201, "{}"),
        ensure("POST", "loadbalancers", 201, ""),
        ensure("POST", "loadbalancers", 201, r#"{"loadbalancer": {}}"#),
        ensure("POST", "floatingips", 201, r#"{"floatingip": {"id": "f"}}"#),
        ensure("POST", "loadbalancers", 200, &octavia("Quota has been met for resources: Load Balancer")),
        change("", &[], ("PUT", "pools/POOL/members"), 202, &octavia("Load Balancer is immutable")),
        ensure("POST", "floatingips", 200, &neutron("OverQuota", "Quota exceeded for resources: ['floatingip'].")),
        lacking("id"),
        lacking("provisioning_status"),
    ];
    expect![[r#"
        unavailable: GET https://octavia/v2.0/lbaas/loadbalancers?name=kube_service_prod_default_web: status 200: a page in HTML, which is not an answer of the API; correct the endpoint, or the gateway before the service
        unavailable: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 200: a page in HTML, which is not an answer of the API; correct the endpoint, or the gateway before the service
        unavailable: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 502: <html><head/><body>Back soon</body></html>; correct the endpoint, or the gateway before the service
        unavailable: GET https://octavia/v2.0/lbaas/loadbalancers?name=kube_service_prod_default_web: status 404: 404 page not found; the answer is not that of the service about an object, so nothing is known to be gone: correct the endpoint, or the gateway before the service
        internal: GET loadbalancers?name=kube_service_prod_default_web: unexpected JSON: an object without content; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        internal: POST loadbalancers of loadbalancer "kube_service_prod_default_web": unexpected JSON: an object without content; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        unavailable: POST loadbalancers of loadbalancer "kube_service_prod_default_web": the answer is not JSON: EOF while parsing a value at line 1 column 0; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        internal: POST loadbalancers of loadbalancer "kube_service_prod_default_web": unexpected JSON: missing field `id` at line 1 column 2; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        internal: POST floatingips of floatingip "Floating IP for Kubernetes external service default/web from cluster prod": unexpected JSON: missing field `floating_ip_address` at line 1 column 11; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        unavailable: loadbalancer "kube_service_prod_default_web": POST https://octavia/v2.0/lbaas/loadbalancers: status 200: an error in a successful answer: Quota has been met for resources: Load Balancer; correct the endpoint, or the gateway before the service
        unavailable: PUT https://octavia/v2.0/lbaas/pools/POOL/members: status 202: an error in a successful answer: Load Balancer is immutable; correct the endpoint, or the gateway before the service
        unavailable: floatingip "Floating IP for Kubernetes external service default/web from cluster prod": POST https://neutron/v2.0/floatingips: status 200: an error in a successful answer: Quota exceeded for resources: ['floatingip']; correct the endpoint, or the gateway before the service
        internal: GET loadbalancers?name=kube_service_prod_default_web: unexpected JSON: missing field `id` at line 1 column 367; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        internal: GET loadbalancers?name=kube_service_prod_default_web: unexpected JSON: missing field `provisioning_status` at line 1 column 351; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
    "#]].assert_eq(&texts.concat());
}

#[test]
fn nodes_and_routes_name_their_objects() {
    let world = World::new("");
    let describe = |id: &str| {
        let node = ("node-0".to_owned(), Some(format!("openstack:///{id}")));
        machines::describe(&world.cloud, &world.settings, vec![node], Detail::State, Turn::of(0))
    };
    let mut texts = Vec::new();
    let mut one = |status, body: &str| {
        world.cloud.answer_once("GET", "servers/server-0", status, body);
        texts.push(read(describe("server-0").and_then(|mut all| all.remove(0))));
    };
    one(401, &keystone(401, "Unauthorized", "The request you have made requires authentication."));
    one(404, r#"{"itemNotFound": {"code": 404, "message": "Instance server-0 could not be found."}}"#);
    one(404, "<html></html>");
    one(200, "{}");
    one(200, r#"{"itemNotFound": {"code": 404, "message": "Instance server-0 could not be found."}}"#);
    one(200, r#"{"server": {"id": "server-0", "name": "node-0"}}"#);
    texts.push(read(describe("server-9").unwrap().remove(0)));

    let routing = Routing {
        cloud: &world.cloud,
        router: "router",
        extensions: serde_json::from_value::<Extensions>(json!({"atomic": true, "address_pairs": false})).unwrap(),
    };
    let route = NewRoute {
        name_hint: String::new(),
        node: "node-0".to_owned(),
        provider_id: Some("openstack:///server-0".to_owned()),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, "10.6.0.10")],
        destination_cidr: "10.4.0.0/24".to_owned(),
        extra: Vec::new(),
    };
    let mut create = |status, body: &str| {
        world.cloud.answer_once("PUT", "routers/router/add_extraroutes", status, body);
        texts.push(read(routing.create(std::slice::from_ref(&route)).and_then(|mut all| all.remove(0))));
    };
    create(
        400,
        &neutron(
            "RoutesExhausted",
            "Unable to complete operation for router. The number of routes exceeds the maximum 30.",
        ),
    );
    create(409, &neutron("OverQuota", "Quota exceeded for resources: ['router']."));
    let other = World { settings: settings("[Route]\nrouter-id = gone\n"), ..World::new("") };
    let gone = Routing { cloud: &other.cloud, router: "gone", extensions: routing.extensions };
    texts.push(read(gone.create(&[route])));
    expect![[r#"
        denied: GET https://nova/v2.1/servers/server-0: status 401: The request you have made requires authentication; correct the login in spec.credentials of the provider
        not-found: OpenStack has no server server-0
        unavailable: GET https://nova/v2.1/servers/server-0: status 404: a page in HTML, which is not an answer of the API; the answer is not that of the service about an object, so nothing is known to be gone: correct the endpoint, or the gateway before the service
        internal: server server-0: unexpected JSON: an object without content; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        unavailable: GET https://nova/v2.1/servers/server-0: status 200: an error in a successful answer: Instance server-0 could not be found; correct the endpoint, or the gateway before the service
        internal: server server-0: unexpected JSON: missing field `status` at line 1 column 36; the answer is not that of OpenStack: correct the endpoint in Keystone's catalogue or in [Skysail], or the gateway before the service
        not-found: OpenStack has no server server-9
        exhausted: PUT https://neutron/v2.0/routers/router/add_extraroutes: status 400: Unable to complete operation for router. The number of routes exceeds the maximum 30 (RoutesExhausted); delete what nobody needs, or let the operator of the cloud raise the quota
        exhausted: PUT https://neutron/v2.0/routers/router/add_extraroutes: status 409: Quota exceeded for resources: ['router'] (OverQuota); delete what nobody needs, or let the operator of the cloud raise the quota
        denied: [Route] router-id: OpenStack has no router gone, or does not show it to this account: routers gone could not be found; correct the ID, or the project of the account
    "#]].assert_eq(&texts.concat());
}

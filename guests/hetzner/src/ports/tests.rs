//! What the annotations make of the ports of a Service.

use serde_json::{Value, json};
use skysail_guest_sdk::{Error, Protocol};

use super::{Certificates, Ports, ports};
use crate::{fixture::Scene, plan::Warnings};

fn read(config: &str, annotations: &[(&str, &str)]) -> (skysail_guest_sdk::Result<Ports>, Warnings) {
    let mut scene = Scene::new(config);
    for (key, value) in annotations {
        scene.annotate(key, value);
    }
    let mut warnings = Warnings::new();
    (ports(&scene.service, &scene.settings.balancers, &mut warnings), warnings)
}

/// The body of the first service.
fn body(config: &str, annotations: &[(&str, &str)]) -> Value {
    json!(read(config, annotations).0.unwrap().services[0])
}

#[test]
fn a_port_without_annotations_is_tcp_with_a_check_of_the_node_port() {
    let expected = json!({
        "protocol": "tcp", "listen_port": 80, "destination_port": 30_080,
        "health_check": {"protocol": "tcp", "port": 30_080},
    });
    assert_eq!(body("", &[]), expected);
    let mut service = read("", &[]).0.unwrap().services.remove(0).complete();
    service.health_check.interval = Some(7);
    assert_eq!(
        json!(service)["health_check"],
        json!({
            "protocol": "tcp", "port": 30_080, "interval": 7, "timeout": 10, "retries": 3,
        })
    );
}

#[test]
fn every_annotation_for_http_has_its_field() {
    let service = body(
        "",
        &[
            ("protocol", "HTTPS"),
            ("uses-proxyprotocol", "true"),
            ("http-cookie-name", "KUBE"),
            ("http-cookie-lifetime", "5m"),
            ("http-timeout-idle", "90s"),
            ("http-redirect-http", "true"),
            ("http-sticky-sessions", "t"),
        ],
    );
    assert_eq!((&service["protocol"], &service["proxyprotocol"]), (&json!("https"), &json!(true)));
    let http = json!({
        "cookie_name": "KUBE", "cookie_lifetime": 300, "timeout_idle": 90, "redirect_http": true,
        "sticky_sessions": true,
    });
    assert_eq!(service["http"], http);
}

#[test]
fn every_annotation_for_the_health_check_has_its_field() {
    let service = body(
        "",
        &[
            ("protocol", "http"),
            ("health-check-port", "10256"),
            ("health-check-interval", "5s"),
            ("health-check-timeout", "3s"),
            ("health-check-retries", "2"),
            ("health-check-http-domain", "example.com"),
            ("health-check-http-path", "/healthz"),
            ("health-check-http-validate-certificate", "true"),
            ("http-status-codes", "200, 3??"),
        ],
    );
    let check = json!({
        "protocol": "http", "port": 10_256, "interval": 5, "timeout": 3, "retries": 2,
        "http": {"domain": "example.com", "path": "/healthz", "tls": true, "status_codes": ["200", "3??"]},
    });
    assert_eq!(service["health_check"], check);
}

#[test]
fn a_check_with_https_is_http_with_tls() {
    let check = |annotations: &[(&str, &str)]| body("", annotations)["health_check"].clone();
    let https = check(&[("health-check-protocol", "https")]);
    assert_eq!(https, json!({"protocol": "http", "port": 30_080, "http": {"tls": true}}));
    // The load balancer ends TLS: the targets of a service with HTTPS speak HTTP.
    let inherited = check(&[("protocol", "https"), ("health-check-retries", "2")]);
    assert_eq!(inherited, json!({"protocol": "http", "port": 30_080, "retries": 2, "http": {}}));
    let new = read("", &[("health-check-protocol", "http")]).0.unwrap().services.remove(0).complete();
    assert_eq!(json!(new)["health_check"]["http"], json!({"domain": null, "path": "/"}));
}

#[test]
fn the_cloud_config_has_defaults_and_an_annotation_wins() {
    let config = "load-balancers-uses-proxyprotocol = true\nload-balancers-health-check-interval = 1m\n\
                  load-balancers-health-check-timeout = 20s\nload-balancers-health-check-retries = 9\n";
    let service = body(config, &[("health-check-timeout", "3s"), ("uses-proxyprotocol", "false")]);
    assert_eq!(service["proxyprotocol"], false);
    let check = json!({"protocol": "tcp", "port": 30_080, "interval": 60, "timeout": 3, "retries": 9});
    assert_eq!(service["health_check"], check);
}

#[test]
fn fields_that_nothing_asks_for_are_not_compared() {
    let wanted = read("", &[]).0.unwrap().services.remove(0);
    let mut actual = wanted.clone().complete();
    actual.proxyprotocol = Some(true);
    actual.health_check.interval = Some(99);
    assert!(wanted.is_done_by(&actual));
    actual.health_check.port = 1;
    assert!(!wanted.is_done_by(&actual));
    let https = read("", &[("protocol", "https"), ("http-redirect-http", "true")]).0.unwrap().services.remove(0);
    let mut actual = https.clone().complete();
    assert!(https.is_done_by(&actual));
    actual.http = None;
    assert!(!https.is_done_by(&actual));
}

#[test]
fn a_wrong_value_is_refused_with_the_name_of_its_annotation() {
    let wrong = [
        ("protocol", "udp"),
        ("uses-proxyprotocol", "yes"),
        ("http-cookie-lifetime", "300"),
        ("http-timeout-idle", "10s"),
        ("http-timeout-idle", "301s"),
        ("http-redirect-http", "1.0"),
        ("http-sticky-sessions", "on"),
        ("health-check-protocol", "grpc"),
        ("health-check-port", "65536"),
        ("health-check-interval", "15"),
        ("health-check-timeout", "-1s"),
        ("health-check-retries", "many"),
        ("health-check-http-validate-certificate", "no!"),
    ];
    for (key, value) in wrong {
        let Err(Error::Invalid(message)) = read("", &[(key, value)]).0 else { panic!("{key} = {value}") };
        assert!(message.starts_with(&format!("annotation load-balancer.hetzner.cloud/{key}: ")), "{message}");
    }
    let managed = [("protocol", "https"), ("certificate-type", "managed")];
    let Err(Error::Invalid(message)) = read("", &managed).0 else { panic!("no domains") };
    assert!(message.contains("http-managed-certificate-domains"), "{message}");
}

#[test]
fn certificates_are_listed_or_managed() {
    let certificates = |annotations: &[(&str, &str)]| {
        let https = [("protocol", "https")];
        read("", &[&https[..], annotations].concat()).0.unwrap().certificates
    };
    assert_eq!(certificates(&[]), Certificates::Unchanged);
    let listed = Certificates::Listed(["42", "shop"].map(str::to_owned).to_vec());
    assert_eq!(certificates(&[("http-certificates", "42, shop")]), listed);
    let managed = [
        ("certificate-type", "Managed"),
        ("http-managed-certificate-name", "shop"),
        ("http-managed-certificate-domains", "a.example,b.example"),
        ("http-managed-certificate-acme-staging", "true"),
        ("http-certificates", "ignored"),
    ];
    let domains = ["a.example", "b.example"].map(str::to_owned).to_vec();
    let expected = Certificates::Managed { name: Some("shop".to_owned()), domains, staging: true };
    assert_eq!(certificates(&managed), expected);
}

#[test]
fn ports_without_tcp_and_options_without_http_are_left_out_with_a_warning() {
    let mut scene = Scene::new("");
    scene.annotate("http-redirect-http", "true");
    scene.service.ports.push(crate::fixture::port(53, 30_053));
    scene.service.ports[1].protocol = Protocol::Udp;
    let mut warnings = Warnings::new();
    let ports = ports(&scene.service, &scene.settings.balancers, &mut warnings).unwrap();
    assert_eq!((ports.services.len(), ports.services[0].http.as_ref()), (1, None));
    let reasons: Vec<_> = warnings.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["UnsupportedProtocolConfigured", "HTTPOptionsIgnored"]);
    scene.service.ports[0].node_port = 0;
    let refused = super::ports(&scene.service, &scene.settings.balancers, &mut warnings);
    assert!(matches!(refused, Err(Error::Invalid(text)) if text.contains("port 80 has no node port")));
}

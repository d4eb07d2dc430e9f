//! Vendors' files, taken apart and refused. The names and defaults are those of the vendors'
//! documents.

use serde_json::{Value, json};

use super::{Beside, Format, Parts};

fn beside() -> Beside {
    let origins = vec!["https://cloud.example.com".to_owned()];
    Beside { credential: "cloud".to_owned(), origins, has_ca_bundle: false }
}

fn apart(format: Format, text: &str) -> (Parts, Value) {
    let parts = format.take_apart(text, &beside()).unwrap();
    let mut credential = serde_json::to_value(&parts.credentials["cloud"]).unwrap();
    assert_eq!(credential["origins"].take(), json!(["https://cloud.example.com"]));
    (parts, credential)
}

/// The values, by the keys under which they are kept.
fn values(parts: &Parts) -> Vec<(&str, &str)> {
    parts.values.iter().map(|(place, secret)| (place.key.as_str(), secret.expose())).collect()
}

#[track_caller]
fn refused(format: Format, text: &str) -> String {
    format.take_apart(text, &beside()).unwrap_err()
}

const CLOUD_CONF: &str = r#"[Global]
auth-url = https://keystone.example.com:5000
username = "ccm"            ; of Skysail
password = "pa\"ss;word"
region = RegionOne
tenant-name = k8s
domain-name = Default

[LoadBalancer]
use-octavia = true
floating-network-id = 5f2c ; outside
"#;

#[test]
fn a_cloud_conf_with_a_password_becomes_a_keystone_credential_and_a_cloud_config() {
    let (parts, credential) = apart(Format::Openstack, CLOUD_CONF);
    assert_eq!(values(&parts), [("password", "pa\"ss;word")]);
    let place = json!({"secretKeyRef": {"namespace": "", "name": "vendorConfig", "key": "password"}});
    let keystone = json!({
        "authUrl": "https://keystone.example.com:5000/v3",
        "password": {
            "user": {"name": "ccm", "domainName": "Default"},
            "password": place,
            "project": {"name": "k8s", "domainName": "Default"},
        },
    });
    assert_eq!(credential["keystone"], keystone);
    let expected = r#"[Global]
auth-url = https://keystone.example.com:5000
# username: in the credential "cloud"
# password: in the credential "cloud"
region = RegionOne
# tenant-name: in the credential "cloud"
# domain-name: in the credential "cloud"

[LoadBalancer]
use-octavia = true
floating-network-id = 5f2c
"#;
    assert_eq!(parts.config, expected);
}

/// An old password in a comment is often still valid.
#[test]
fn the_cloud_config_has_no_text_of_a_comment() {
    let text = "\u{feff}# password = hunter-1\n[Global] ; hunter-2\nauth-url=https://k/v3 # hunter-3\nuser-id=u\npassword=hunter-4\n  ;password=hunter-5\nswitch # hunter-6\nname = \"a # b\" ; hunter-7\n";
    let (parts, _) = apart(Format::Openstack, text);
    let expected = "#\n[Global]\nauth-url=https://k/v3\n# user-id: in the credential \"cloud\"\n# password: in the credential \"cloud\"\n#\nswitch\nname = \"a # b\"\n";
    assert_eq!(parts.config, expected);
}

#[test]
fn an_application_credential_wins_over_a_password() {
    let head = "[Global]\nauth-url=https://k/v3/\npassword=other-secret\n";
    let (parts, credential) = apart(
        Format::Openstack,
        &format!("{head}application-credential-id=21dc\napplication-credential-secret=s3cret-of-it\nusername=ccm\n"),
    );
    assert_eq!(values(&parts), [("application-credential-secret", "s3cret-of-it")]);
    let place =
        json!({"secretKeyRef": {"namespace": "", "name": "vendorConfig", "key": "application-credential-secret"}});
    assert_eq!(credential["keystone"]["authUrl"], "https://k/v3");
    assert_eq!(credential["keystone"]["applicationCredential"], json!({"id": "21dc", "secret": place}));
    assert!(!parts.config.contains("secret-of-it") && !parts.config.contains("other-secret"), "{}", parts.config);

    let (_, credential) = apart(
        Format::Openstack,
        &format!(
            "{head}application-credential-name=ccm\napplication-credential-secret=s3cret-of-it\nusername=u\nuser-domain-id=d\ndomain-name=e\n"
        ),
    );
    let of_name = &credential["keystone"]["applicationCredential"];
    assert_eq!((&of_name["name"], &of_name["user"]), (&json!("ccm"), &json!({"name": "u", "domainId": "d"})));
}

#[test]
fn a_trust_uses_the_trustee_and_no_project() {
    let text =
        "[Global]\nauth-url=https://k/v3\ntrust-id=7f\ntrustee-id=9a\ntrustee-password=secret-of-9a\ntenant-id=p\n";
    let (parts, credential) = apart(Format::Openstack, text);
    assert_eq!(values(&parts), [("password", "secret-of-9a")]);
    let password = &credential["keystone"]["password"];
    assert_eq!((&password["user"], &password["trustId"]), (&json!({"id": "9a"}), &json!("7f")));
    assert_eq!(password.get("project"), None);
}

#[test]
fn keys_are_found_in_any_case_and_every_repetition_is_taken() {
    let text =
        "[GLOBAL]\nAuth-URL=https://k/v3\nuser-id=u\nPassword=first-secret\npassword=second-secret\ntenant-id=p\n";
    let (parts, _) = apart(Format::Openstack, text);
    assert_eq!(values(&parts), [("password", "second-secret")]);
    assert!(!parts.config.contains("-secret"), "{}", parts.config);
}

#[test]
fn a_config_that_cannot_be_split_is_refused_with_its_line_and_without_its_value() {
    let with = |line: &str| format!("[Global]\nauth-url=https://k/v3\nuser-id=u\npassword=a-secret-value\n{line}\n");
    for (line, place) in [
        ("tls-insecure=true", "line 5: [Global] tls-insecure: "),
        ("use-clouds", "line 5: [Global] use-clouds: "),
        ("clouds-file=/etc/clouds.yaml", "line 5: [Global] clouds-file: "),
        ("ca-file=/etc/ca.pem", "line 5: [Global] ca-file: "),
        ("key-file=/etc/key.pem", "line 5: [Global] key-file: "),
        ("[Other]\nvendor-password=hidden-value", "line 6: vendor-password: "),
        ("name = \"never ends", "line 5: the second quotation mark"),
        ("name = a\\", "line 5: the value goes on"),
        ("[Global", "line 5: `]` is missing"),
        ("[Other] vendor-password=hidden-value", "line 5: behind `]` only a comment is allowed"),
    ] {
        let error = refused(Format::Openstack, &with(line));
        assert!(error.starts_with(place), "{error}");
        assert!(!error.contains("a-secret-value") && !error.contains("hidden-value"), "{error}");
    }
    for (text, reason) in [
        ("[Global]\nuser-id=u\n", "[Global] has no auth-url"),
        ("[Global]\nauth-url=https://k/v2.0\n", "line 2: [Global] auth-url: Identity API v2.0"),
        ("[Global]\nauth-url=https://k\nuser-id=u\n", "[Global] has neither password nor"),
        ("[Global]\nauth-url=https://k\npassword=a-secret-value\n", "[Global] has a password and no username"),
    ] {
        let error = refused(Format::Openstack, text);
        assert!(error.starts_with(reason), "{error}");
    }
    // Switched off, or answered elsewhere.
    let text = with("tls-insecure=false\nca-file=/etc/ca.pem");
    let beside = Beside { has_ca_bundle: true, ..beside() };
    let parts = Format::Openstack.take_apart(&text, &beside).unwrap();
    assert!(parts.config.ends_with("tls-insecure=false\n# ca-file: in egress.caBundle\n"), "{}", parts.config);
}

#[test]
fn each_vcenter_gets_a_credential_that_its_section_names() {
    let text = r#"[Global]
port = 8443
[VirtualCenter "vc1.example.com"]
user = "ADM\\ccm"
password = "first-secret"
datacenters = DC0
[VirtualCenter "tenant"]
server = 10.0.0.2
password = second-secret
user = ccm@vsphere.local
port = 443
"#;
    let parts = Format::Vsphere.take_apart(text, &beside()).unwrap();
    assert_eq!(values(&parts), [("cloud-1.password", "first-secret"), ("cloud-2.password", "second-secret")]);
    let account = |name: &str| {
        let spec = &parts.credentials[name];
        let vsphere = spec.vsphere.as_ref().unwrap();
        assert_eq!(spec.origins, [vsphere.url.as_str()]);
        (vsphere.url.as_str(), vsphere.username.as_str())
    };
    assert_eq!(account("cloud-1"), ("https://vc1.example.com:8443", "ADM\\ccm"));
    assert_eq!(account("cloud-2"), ("https://10.0.0.2:443", "ccm@vsphere.local"));
    let expected = r#"[Global]
port = 8443
[VirtualCenter "vc1.example.com"]
credential = "cloud-1"
# password: in the credential "cloud-1"
datacenters = DC0
[VirtualCenter "tenant"]
server = 10.0.0.2
# password: in the credential "cloud-2"
credential = "cloud-2"
port = 443
"#;
    assert_eq!(parts.config, expected);

    let address = "[VirtualCenter \"[fd00::1]\"]\nuser = ccm\npassword = a-secret\n";
    let parts = Format::Vsphere.take_apart(address, &beside()).unwrap();
    assert_eq!(parts.credentials["cloud"].vsphere.as_ref().unwrap().url, "https://[fd00::1]:443");

    let one = "[Global]\nserver = vc\nuser = ccm\npassword = a-secret\n";
    let parts = Format::Vsphere.take_apart(one, &beside()).unwrap();
    assert_eq!(parts.credentials["cloud"].vsphere.as_ref().unwrap().url, "https://vc:443");
    assert_eq!(
        parts.config,
        "[Global]\nserver = vc\ncredential = \"cloud\"\n# password: in the credential \"cloud\"\n"
    );
}

#[test]
fn a_vsphere_conf_without_accounts_or_with_other_secrets_is_refused() {
    let vcenter = "[VirtualCenter \"vc\"]\nuser=ccm\npassword=a-secret\n";
    for (text, place) in [
        ("global:\n  port: 443\n".to_owned(), "it is YAML"),
        (format!("{vcenter}insecure-flag = 1\n"), "line 4: insecure-flag: "),
        (format!("{vcenter}secret-name = x\n"), "line 4: secret-name: "),
        (format!("{vcenter}thumbprint = x\n"), "line 4: thumbprint: "),
        ("[VirtualCenter \"vc\"]\npassword=a-secret\n".to_owned(), "vCenter vc has no user"),
        ("[VirtualCenter \"vc\"]\nuser=ccm\n".to_owned(), "vCenter vc has no password"),
        (
            format!("{vcenter}[VirtualCenter \"two\"]\n[Global]\nuser=u\npassword=p\n"),
            "vCenter two has no user of its own",
        ),
        ("[Labels]\nzone=z\n".to_owned(), "it names no vCenter"),
    ] {
        let error = refused(Format::Vsphere, &text);
        assert!(error.starts_with(place) && !error.contains("a-secret"), "{error}");
    }
}

/// A kubeconfig whose user and cluster have these fields.
fn kubeconfig(user: &Value, cluster: Value) -> String {
    let mut details = json!({"server": "https://harvester.example.com/k8s/clusters/local"});
    details.as_object_mut().unwrap().extend(cluster.as_object().unwrap().clone());
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "contexts": [
            {"name": "other", "context": {"cluster": "b", "user": "b"}},
            {"name": "local", "context": {"cluster": "a", "user": "a", "namespace": "guests"}},
        ],
        "clusters": [{"name": "a", "cluster": details}],
        "users": [{"name": "b", "user": {"token": "another-token"}}, {"name": "a", "user": user}],
    });
    config.to_string()
}

#[test]
fn a_kubeconfig_becomes_a_credential_a_ca_bundle_and_the_server() {
    let cluster = json!({"certificate-authority-data": "Q0E="});
    let (parts, credential) = apart(Format::Kubeconfig, &kubeconfig(&json!({"token": "a-token"}), cluster));
    assert_eq!(values(&parts), [("token", "a-token")]);
    assert_eq!(credential["bearer"]["secretKeyRef"]["key"], "token");
    assert_eq!(parts.ca.as_deref(), Some("CA"));
    assert_eq!(parts.config, "server = https://harvester.example.com/k8s/clusters/local\nnamespace = guests\n");

    let user = json!({"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"});
    let (parts, _) = apart(Format::Kubeconfig, &kubeconfig(&user, json!({})));
    assert_eq!(values(&parts), [("client-certificate-data", "CERT"), ("client-key-data", "KEY")]);
    let user = json!({"username": "admin", "password": "a-password"});
    let (parts, credential) = apart(Format::Kubeconfig, &kubeconfig(&user, json!({})));
    assert_eq!((values(&parts), &credential["basic"]["username"]), (vec![("password", "a-password")], &json!("admin")));
}

#[test]
fn a_kubeconfig_that_names_files_programs_or_a_trust_in_everyone_is_refused() {
    let token = json!({"token": "a-token"});
    for (user, cluster, key) in [
        (token.clone(), json!({"insecure-skip-tls-verify": true}), "insecure-skip-tls-verify"),
        (token.clone(), json!({"certificate-authority": "/ca.pem"}), "certificate-authority"),
        (token.clone(), json!({"proxy-url": "http://proxy"}), "proxy-url"),
        (token, json!({"certificate-authority-data": "!"}), "certificate-authority-data"),
        (json!({"exec": {"command": "aws"}}), json!({}), "exec"),
        (json!({"auth-provider": {"name": "gcp"}}), json!({}), "auth-provider"),
        (json!({"tokenFile": "/token"}), json!({}), "tokenFile"),
        (json!({"client-certificate": "/c.pem", "client-key": "/k.pem"}), json!({}), "client-certificate"),
        (json!({"token": "a-token", "as": "admin"}), json!({}), "as"),
    ] {
        let error = refused(Format::Kubeconfig, &kubeconfig(&user, cluster));
        assert!(error.starts_with(&format!("{key}: ")), "{error}");
    }
    assert!(refused(Format::Kubeconfig, &kubeconfig(&json!({}), json!({}))).starts_with("the user has no token"));
    let error = refused(Format::Kubeconfig, "users: [{name: a, user: {token: [a-token]}}]");
    assert!(error.starts_with("it is not a valid kubeconfig") && !error.contains("a-token"), "{error}");
    assert!(refused(Format::Kubeconfig, "current-context: x").starts_with("it has no context \"x\""));
}

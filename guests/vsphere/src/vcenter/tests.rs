//! What the user reads when vCenter Server refuses a request, or when something else answers: the
//! vCenter and the object, what was said, and what to do.
//!
//! The provider only reads, so vCenter has no quota, no subnet and no type that could be used up or
//! unknown.

use expect_test::expect;
use skysail_guest_sdk::{Detail, Result, http::Response, instances::Turn};

use super::{check_kind, datacenter_in, judge_tagging, readable};
use crate::{
    fixture::{FakeVcenter, machine, uuid},
    lookup::{self, Index, Wanted},
    machines,
    settings::{self, Labels},
    soap,
    vim::{self, Machine, ServiceContent},
};

const ORIGIN: &str = "https://vcenter.example.com";

/// Code and text of an error.
fn read<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    format!("{}: {}\n", error.code(), error.message())
}

/// The answer of vCenter, whose fault has this type and this text.
fn fault(kind: &str, text: &str) -> String {
    format!(
        "<soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\"><soapenv:Body><soapenv:Fault>\
         <faultstring>{text}</faultstring><detail><{kind}Fault/></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>"
    )
}

fn response(status: u16, media_type: &str, body: &str) -> Response {
    Response::new(&format!("POST {ORIGIN}/sdk"), status, &[("content-type", media_type)], body)
}

/// What `describe` says of a page of nodes if every request gets this answer.
fn describe(status: u16, media_type: &str, body: &str) -> String {
    let response = response(status, media_type, body);
    let error = soap::judge(&response).or_else(|| response.check().err()).expect("the answer is an error");
    let cloud = FakeVcenter::new(vec![machine(1)]);
    *cloud.failure.borrow_mut() = Some(error);
    let node = Wanted::new("node-1", Some(&format!("vsphere://{}", uuid(1))), None).unwrap();
    let found = lookup::find(&[cloud], &mut [Index::new()], &[node], Machine::POWER, Turn::of(0));
    read(found)
}

fn refused(kind: &str, text: &str) -> String {
    describe(500, "text/xml", &fault(kind, text))
}

#[test]
fn a_credential_that_is_wrong_or_has_expired_is_named_with_the_part_to_correct() {
    let not_authenticated = include_str!("../testdata/not-authenticated.xml");
    let texts = [
        describe(500, "text/xml", not_authenticated),
        refused("NotAuthenticated", "The session is not authenticated."),
        refused("InvalidLogin", "Cannot complete login due to an incorrect user name or password."),
        refused("PasswordExpired", "The password of the user has expired."),
        refused("NoPermission", "Permission to perform this operation was denied."),
        refused("RestrictedVersion", "Current license or ESXi version prohibits execution of the requested operation."),
        describe(401, "text/plain", "Unauthorized"),
    ];
    expect![[r#"
        denied: POST https://vcenter.example.com/sdk: status 500: NotAuthenticated (privilege System.View); correct name and password of the account in the credential, and unlock the account
        denied: POST https://vcenter.example.com/sdk: status 500: NotAuthenticated: The session is not authenticated; correct name and password of the account in the credential, and unlock the account
        denied: POST https://vcenter.example.com/sdk: status 500: InvalidLogin: Cannot complete login due to an incorrect user name or password; correct name and password of the account in the credential, and unlock the account
        denied: POST https://vcenter.example.com/sdk: status 500: PasswordExpired: The password of the user has expired; give the account a new password, and write the password into the credential
        denied: POST https://vcenter.example.com/sdk: status 500: NoPermission: Permission to perform this operation was denied; give the account the role Read-only on the nodes' datacenters, with "Propagate to children"
        denied: POST https://vcenter.example.com/sdk: status 500: RestrictedVersion: Current license or ESXi version prohibits execution of the requested operation; give vCenter Server a license for this API
        denied: POST https://vcenter.example.com/sdk: status 401: Unauthorized; correct the account in the credential, or the proxy before vCenter Server
    "#]].assert_eq(&texts.concat());
}

#[test]
fn other_faults_are_repeated_in_the_words_of_vcenter() {
    let texts = [
        refused("HostCommunication", "Unable to communicate with the remote host"),
        refused("ManagedObjectNotFound", "The object has already been deleted"),
        refused("MethodNotFound", "no such method"),
        describe(200, "text/xml", &fault("NoPermission", "Permission to perform this operation was denied.")),
    ];
    expect![[r#"
        unavailable: POST https://vcenter.example.com/sdk: status 500: HostCommunication: Unable to communicate with the remote host
        unavailable: POST https://vcenter.example.com/sdk: status 500: ManagedObjectNotFound: The object has already been deleted
        internal: POST https://vcenter.example.com/sdk: status 500: MethodNotFound: no such method; report the fault to the author of the provider
        denied: POST https://vcenter.example.com/sdk: status 200: NoPermission: Permission to perform this operation was denied; give the account the role Read-only on the nodes' datacenters, with "Propagate to children"
    "#]].assert_eq(&texts.concat());
}

#[test]
fn an_answer_that_is_not_of_vcenter_names_the_request_and_the_keys() {
    const PAGE: &str = "<html><head/><body>Back soon</body></html>";
    let texts = [
        describe(200, "text/html", PAGE),
        describe(200, "text/xml", ""),
        describe(200, "application/json", "{}"),
        describe(200, "text/xml", "<Envelope><Body/></Envelope>"),
        describe(200, "text/xml", PAGE),
        describe(404, "text/html", PAGE),
        describe(502, "text/html", PAGE),
        describe(500, "text/html", PAGE),
    ];
    expect![[r#"
        unavailable: POST https://vcenter.example.com/sdk: status 200: a page in HTML, which is not an answer of the API; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
        unavailable: POST https://vcenter.example.com/sdk: status 200: neither an answer nor a fault; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
        unavailable: POST https://vcenter.example.com/sdk: status 200: neither an answer nor a fault; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
        unavailable: POST https://vcenter.example.com/sdk: status 200: neither an answer nor a fault; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
        unavailable: POST https://vcenter.example.com/sdk: status 200: neither an answer nor a fault; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
        unavailable: POST https://vcenter.example.com/sdk: status 404: a page in HTML, which is not an answer of the API; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
        unavailable: POST https://vcenter.example.com/sdk: status 502: <html><head/><body>Back soon</body></html>; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
        unavailable: POST https://vcenter.example.com/sdk: status 500: <html><head/><body>Back soon</body></html>; the answer is not that of vCenter Server: correct server and port, or the proxy before vCenter Server
    "#]].assert_eq(&texts.concat());
}

#[test]
fn an_answer_that_lacks_something_names_what_is_missing() {
    const CONTENT: &str = include_str!("../testdata/service-content.xml");
    let without = |tag: &str| {
        let (before, rest) = CONTENT.split_once(&format!("<{tag}")).unwrap();
        let (_, after) = rest.split_once(&format!("</{tag}>")).unwrap();
        read(readable(ORIGIN, vim::service_content(format!("{before}{after}").as_bytes())))
    };
    let vcenter = settings::parse("[VirtualCenter \"vcenter.example.com\"]\n").config().unwrap();
    let instance =
        |machine: &Machine| machines::instance(machine, None, Detail::State, &vcenter.nodes, &vcenter.vcenters[0]);
    let labels = Labels { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() };
    let texts = [
        without("rootFolder"),
        without("propertyCollector"),
        without("searchIndex"),
        without("about"),
        read(readable(ORIGIN, vim::page::<Machine>(b"<Envelope><Body><XResponse><returnval><objects/>"))),
        read(instance(&Machine { power: String::new(), ..machine(1) })),
        read(machines::with_place(instance(&machine(1)).unwrap(), &machine(1), None, &labels)),
    ];
    expect![[r#"
        internal: https://vcenter.example.com: unexpected XML: RetrieveServiceContent without rootFolder; the answer is not that of vCenter Server: correct server and port, or report the fault to the author of the provider
        internal: https://vcenter.example.com: unexpected XML: RetrieveServiceContent without propertyCollector; the answer is not that of vCenter Server: correct server and port, or report the fault to the author of the provider
        internal: https://vcenter.example.com: unexpected XML: RetrieveServiceContent without searchIndex; the answer is not that of vCenter Server: correct server and port, or report the fault to the author of the provider
        internal: https://vcenter.example.com: unexpected XML: RetrieveServiceContent without about/apiType; the answer is not that of vCenter Server: correct server and port, or report the fault to the author of the provider
        internal: https://vcenter.example.com: unexpected XML: properties of no object; the answer is not that of vCenter Server: correct server and port, or report the fault to the author of the provider
        internal: machine vm-1 of https://vcenter.example.com has no power state, which vCenter Server promises; report the fault to the author of the provider
        unavailable: machine vm-1 has no tags of both categories "k8s-zone" and "k8s-region" on its host, cluster, datacenter, resource pool or folders; attach them, or correct zone and region in [Labels]
    "#]].assert_eq(&texts.concat());
}

#[test]
fn what_the_cloud_config_names_wrongly_is_named_with_the_key() {
    let host = ServiceContent { api_type: "HostAgent".to_owned(), ..ServiceContent::default() };
    let none = include_bytes!("../testdata/none.xml");
    let tags = |status, body: &str| {
        let line = format!("POST {ORIGIN}/rest/com/vmware/cis/tagging/tag-association");
        let response = Response::new(&line, status, &[("content-type", "application/json")], body);
        read(Err::<(), _>(judge_tagging(&response).expect("the answer is an error")))
    };
    let unauthorized = "{\"type\": \"com.vmware.vapi.std.errors.unauthorized\", \"value\": {\"messages\": []}}";
    let texts = [
        read(check_kind(ORIGIN, &host)),
        read(datacenter_in(none, "DC9", ORIGIN)),
        tags(403, unauthorized),
        tags(401, "{}"),
        tags(503, "{}"),
    ];
    expect![[r#"
        denied: https://vcenter.example.com is not a vCenter Server but "HostAgent"; write the address of a vCenter Server into the cloud-config
        denied: https://vcenter.example.com has no datacenter "DC9", or does not show it to this account; correct `datacenters`, or give the account the role Read-only
        denied: POST https://vcenter.example.com/rest/com/vmware/cis/tagging/tag-association: status 403: {"type": "com.vmware.vapi.std.errors.unauthorized", "value": {"messages": []}}; give the account the role Read-only as a global permission
        denied: POST https://vcenter.example.com/rest/com/vmware/cis/tagging/tag-association: status 401: {}; give the account the role Read-only as a global permission
        unavailable: POST https://vcenter.example.com/rest/com/vmware/cis/tagging/tag-association: status 503: {}
    "#]].assert_eq(&texts.concat());
}

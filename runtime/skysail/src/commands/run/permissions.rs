//! Checks that the account has all permissions that the controllers need. Missing permissions are
//! logged by name at the start and shown by `/readyz`.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use skysail_controllers::{Clients, ControllerSettings, EnabledControllers, names::RETAINED_CONFIG_MAP};
use tokio::sync::watch;

/// Pause between two checks while a permission is missing: an operator who binds a role waits for
/// the next check.
const WHILE_MISSING: Duration = Duration::from_secs(30);
/// Pause between two checks while no permission is missing: each permission costs a request.
const WHILE_COMPLETE: Duration = Duration::from_mins(10);

/// A permission: verb, resource, subresource. All resources are of the core group. A permission on
/// ConfigMaps is for the namespace of the records of retained load balancers.
type Right = (&'static str, &'static str, &'static str);

const WATCH_NODES: [Right; 2] = [("list", "nodes", ""), ("watch", "nodes", "")];
const WATCH_SERVICES: [Right; 2] = [("list", "services", ""), ("watch", "services", "")];
const SERVICE: [Right; 1] = [("patch", "services", "status")];
const WATCH_RECORDS: [Right; 3] = [("get", CONFIG_MAPS, ""), ("list", CONFIG_MAPS, ""), ("watch", CONFIG_MAPS, "")];
const RECORDS: [Right; 3] = [("get", CONFIG_MAPS, ""), ("patch", CONFIG_MAPS, ""), ("create", CONFIG_MAPS, "")];
const CLOUD_NODE: [Right; 2] = [("patch", "nodes", ""), ("patch", "nodes", "status")];
const CLOUD_NODE_LIFECYCLE: [Right; 2] = [("patch", "nodes", ""), ("delete", "nodes", "")];
const ROUTE: [Right; 1] = [("patch", "nodes", "status")];
const EVENTS: [Right; 2] = [("create", "events", ""), ("patch", "events", "")];

const CONFIG_MAPS: &str = "configmaps";

/// The permissions that the enabled controllers need, with the client that needs each.
fn needed<'a>(clients: &'a Clients, enabled: EnabledControllers) -> Vec<(&'a Client, Right)> {
    let of = |client: &'a Client, enabled: bool, rights: &'static [Right]| {
        let rights = if enabled { rights } else { &[] };
        rights.iter().map(move |right| (client, *right))
    };
    let shared = of(&clients.shared_informers, true, &WATCH_NODES);
    let shared = shared.chain(of(&clients.shared_informers, enabled.service || enabled.cloud_node, &WATCH_SERVICES));
    let shared = shared.chain(of(&clients.shared_informers, enabled.service, &WATCH_RECORDS));
    let service = of(&clients.service_controller, enabled.service, &SERVICE);
    let service = service.chain(of(&clients.service_controller, enabled.service, &RECORDS));
    let service = service.chain(of(&clients.service_events, enabled.service, &EVENTS));
    let node = of(&clients.node_controller, enabled.cloud_node, &CLOUD_NODE);
    let node = node.chain(of(&clients.node_controller, enabled.cloud_node_lifecycle, &CLOUD_NODE_LIFECYCLE));
    let node = node.chain(of(&clients.node_events, enabled.cloud_node || enabled.cloud_node_lifecycle, &EVENTS));
    let route = of(&clients.route_controller, enabled.route, &ROUTE);
    shared.chain(service).chain(node).chain(route).collect()
}

/// The permissions that are missing. A missing permission does not stop the manager, because a role
/// can be bound later.
pub(super) struct Permissions {
    clients: Clients,
    enabled: EnabledControllers,
    /// Namespace of the records of retained load balancers.
    namespace: String,
    missing: watch::Sender<Option<String>>,
    /// Whether the last check had an answer to each question.
    is_known: bool,
}

impl Permissions {
    /// Checks each permission that controllers with these settings need.
    pub(super) async fn ask_for(clients: &Clients, settings: &ControllerSettings) -> Self {
        let (missing, namespace) = (watch::Sender::new(None), settings.namespace.clone());
        let enabled = settings.controllers;
        let mut permissions = Self { clients: clients.clone(), enabled, namespace, missing, is_known: false };
        permissions.is_known = permissions.ask().await;
        permissions
    }

    /// The missing permissions, for `/readyz`.
    pub(super) fn missing(&self) -> watch::Receiver<Option<String>> {
        self.missing.subscribe()
    }

    /// Repeats the check until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let is_complete = self.is_known && self.missing.borrow().is_none();
            tokio::time::sleep(if is_complete { WHILE_COMPLETE } else { WHILE_MISSING }).await;
            self.is_known = self.ask().await;
        }
    }

    /// Checks each permission, and logs a warning if the missing permissions have changed. Returns
    /// whether each question had an answer.
    async fn ask(&self) -> bool {
        let needed = needed(&self.clients, self.enabled);
        let answers = join_all(needed.iter().map(|(client, right)| self.allowed(client, *right))).await;
        let mut missing = BTreeSet::new();
        for ((_, (verb, resource, subresource)), answer) in needed.into_iter().zip(answers) {
            let slash = if subresource.is_empty() { "" } else { "/" };
            match answer {
                Ok(true) => {}
                Ok(false) if resource == CONFIG_MAPS => {
                    missing.insert(format!("{verb} the ConfigMap {}/{RETAINED_CONFIG_MAP}", self.namespace));
                }
                Ok(false) => drop(missing.insert(format!("{verb} {resource}{slash}{subresource}"))),
                Err(error) => {
                    // The result of the check before stays valid.
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "cannot check the permission to {verb} {resource}{slash}{subresource}");
                    return false;
                }
            }
        }
        let text = (!missing.is_empty()).then(|| {
            let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
            format!("this account has no permission to {missing}, which the controllers need; bind roles like those in deploy/manifests/rbac.yaml to the account")
        });
        let is_new = self.missing.send_if_modified(|known| std::mem::replace(known, text.clone()) != text);
        if let Some(text) = text.filter(|_| is_new) {
            tracing::warn!("{text}");
        }
        true
    }

    async fn allowed(&self, client: &Client, (verb, resource, subresource): Right) -> kube::Result<bool> {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let is_record = resource == CONFIG_MAPS;
        let attributes = ResourceAttributes {
            verb: filled(verb),
            resource: filled(resource),
            subresource: filled(subresource),
            namespace: is_record.then(|| self.namespace.clone()),
            // RBAC cannot restrict `create` to a name.
            name: (is_record && verb != "create").then(|| RETAINED_CONFIG_MAP.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None };
        let question = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = Api::all(client.clone()).create(&PostParams::default(), &question).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::{Client, client::Body};
    use serde_json::{Value, json};
    use skysail_controllers::{Clients, ControllerSettings, EnabledControllers};
    use skysail_dev::api::{ApiOptions, ApiServer};
    use tower::service_fn;

    use super::{Permissions, Right, needed};

    fn rights(enabled: EnabledControllers) -> Vec<Right> {
        let clients = Clients::from(ApiServer::new(&ApiOptions::default()).client());
        needed(&clients, enabled).into_iter().map(|(_, right)| right).collect()
    }

    #[tokio::test]
    async fn a_disabled_controller_needs_no_permission() {
        let only_lifecycle =
            EnabledControllers { service: false, cloud_node: false, cloud_node_lifecycle: true, route: false };
        let needed = rights(only_lifecycle);
        assert!(needed.contains(&("delete", "nodes", "")) && !needed.iter().any(|right| right.1 == "services"));
    }

    /// A log line at the start is easily missed when nodes keep their taint.
    #[tokio::test]
    async fn a_missing_permission_is_named_until_it_is_granted() {
        let granted = Arc::new(AtomicBool::new(false));
        let is_granted = Arc::clone(&granted);
        let api = service_fn(move |request: Request<Body>| {
            let granted = is_granted.load(Ordering::SeqCst);
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                let attributes = &review["spec"]["resourceAttributes"];
                let is_missing = (&attributes["verb"], &attributes["resource"]) == (&json!("list"), &json!("services"));
                review["status"] = json!({ "allowed": granted || !is_missing });
                Ok::<_, Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
            }
        });
        let clients = Clients::from(Client::new(api, "default"));
        let permissions = Permissions::ask_for(&clients, &ControllerSettings::default()).await;
        let missing = permissions.missing().borrow().clone().unwrap();
        assert!(
            missing.starts_with("this account has no permission to list services, which the controllers need; bind"),
            "{missing}"
        );
        granted.store(true, Ordering::SeqCst);
        permissions.ask().await;
        assert_eq!(*permissions.missing().borrow(), None);
    }

    #[tokio::test]
    async fn the_roles_in_deploy_grant_every_permission_that_is_checked() {
        let role = include_str!("../../../../../deploy/manifests/rbac.yaml");
        for (verb, resource, subresource) in rights(EnabledControllers::default()) {
            let name = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
            let rules = role.split("- apiGroups").filter(|rule| rule.contains(&format!("resources: [{name}]")));
            let verbs: Vec<&str> = rules.filter_map(|rule| rule.lines().find(|line| line.contains("verbs:"))).collect();
            assert!(verbs.iter().any(|verbs| verbs.contains(verb)), "{verb} {name} in {verbs:?}");
        }
    }
}

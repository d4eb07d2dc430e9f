//! What the account may not do and the controllers need: said at start, by name, and not found out one failed write at a time.

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use skysail_controllers::{Clients, EnabledControllers};

/// A right: verb, resource, subresource. All resources are of the core group.
type Right = (&'static str, &'static str, &'static str);

const WATCH_NODES: [Right; 2] = [("list", "nodes", ""), ("watch", "nodes", "")];
const WATCH_SERVICES: [Right; 2] = [("list", "services", ""), ("watch", "services", "")];
const SERVICE: [Right; 1] = [("patch", "services", "status")];
const CLOUD_NODE: [Right; 2] = [("patch", "nodes", ""), ("patch", "nodes", "status")];
const CLOUD_NODE_LIFECYCLE: [Right; 2] = [("patch", "nodes", ""), ("delete", "nodes", "")];
const ROUTE: [Right; 1] = [("patch", "nodes", "status")];
const EVENTS: [Right; 2] = [("create", "events", ""), ("patch", "events", "")];

/// What these controllers need, by the client that needs it; each once.
fn needed<'a>(clients: &'a Clients, enabled: EnabledControllers) -> Vec<(&'a Client, Right)> {
    let of = |client: &'a Client, enabled: bool, rights: &'static [Right]| {
        let rights = if enabled { rights } else { &[] };
        rights.iter().map(move |right| (client, *right))
    };
    let shared = of(&clients.shared_informers, true, &WATCH_NODES);
    let shared = shared.chain(of(&clients.shared_informers, enabled.service || enabled.cloud_node, &WATCH_SERVICES));
    let service = of(&clients.service_controller, enabled.service, &SERVICE);
    let service = service.chain(of(&clients.service_events, enabled.service, &EVENTS));
    let node = of(&clients.node_controller, enabled.cloud_node, &CLOUD_NODE);
    let node = node.chain(of(&clients.node_controller, enabled.cloud_node_lifecycle, &CLOUD_NODE_LIFECYCLE));
    let node = node.chain(of(&clients.node_events, enabled.cloud_node || enabled.cloud_node_lifecycle, &EVENTS));
    let route = of(&clients.route_controller, enabled.route, &ROUTE);
    shared.chain(service).chain(node).chain(route).collect()
}

/// Asks the API server for each right, and warns of each that is missing. A role may come later: that is no reason to end.
pub(super) async fn warn_of_missing(clients: &Clients, enabled: EnabledControllers) {
    let needed = needed(clients, enabled);
    let answers = join_all(needed.iter().map(|(client, right)| allowed(client, *right))).await;
    let mut told = Vec::new();
    for ((_, right), answer) in needed.into_iter().zip(answers) {
        let (verb, resource, subresource) = right;
        let slash = if subresource.is_empty() { "" } else { "/" };
        match answer {
            Ok(true) => {}
            Ok(false) if told.contains(&right) => {}
            Ok(false) => {
                told.push(right);
                tracing::warn!(
                    "this account may not {verb} {resource}{slash}{subresource}, which the controllers need: bind a role such as \
                     deploy/manifests/rbac.yaml to it"
                );
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot ask whether this account may {verb} {resource}{slash}{subresource}");
            }
        }
    }
}

async fn allowed(client: &Client, (verb, resource, subresource): Right) -> kube::Result<bool> {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        verb: filled(verb),
        resource: filled(resource),
        subresource: filled(subresource),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None };
    let question = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &question).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use skysail_controllers::{Clients, EnabledControllers};
    use skysail_dev::api::{ApiOptions, ApiServer};

    use super::{Right, needed};

    fn rights(enabled: EnabledControllers) -> Vec<Right> {
        let clients = Clients::from(ApiServer::new(&ApiOptions::default()).client());
        needed(&clients, enabled).into_iter().map(|(_, right)| right).collect()
    }

    #[tokio::test]
    async fn a_controller_that_does_not_run_needs_no_right() {
        let only_lifecycle =
            EnabledControllers { service: false, cloud_node: false, cloud_node_lifecycle: true, route: false };
        let needed = rights(only_lifecycle);
        assert!(needed.contains(&("delete", "nodes", "")) && !needed.iter().any(|right| right.1 == "services"));
    }

    /// The role that we ship and the check must not drift apart.
    #[tokio::test]
    async fn the_rights_are_those_of_the_role_that_is_shipped() {
        let role = include_str!("../../../../../deploy/manifests/rbac.yaml");
        for (verb, resource, subresource) in rights(EnabledControllers::default()) {
            let name = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
            let rule = role.split("- apiGroups").find(|rule| rule.contains(&format!("resources: [{name}]")));
            let verbs = rule.and_then(|rule| rule.lines().find(|line| line.contains("verbs:"))).unwrap_or_default();
            assert!(verbs.contains(verb), "{verb} {name} in {verbs:?}");
        }
    }
}

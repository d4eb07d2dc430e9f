//! Clients of the Kubernetes API: one for each controller, named as upstream's.
//!
//! They may be one client. Where they are several, each has its own name, rate and identity.

use kube::Client;

/// The clients. A controller writes with its own; what all look at comes through the first.
#[derive(Clone)]
pub struct Clients {
    /// Lists and watches for all controllers.
    pub shared_informers: Client,
    /// Writes of the service controller.
    pub service_controller: Client,
    /// Writes of the node and the node lifecycle controller.
    pub node_controller: Client,
    /// Writes of the route controller.
    pub route_controller: Client,
    /// The service controller's again, for Events: a flood of them holds up no write.
    pub service_events: Client,
    /// The node controller's again, for Events.
    pub node_events: Client,
}

impl Clients {
    /// The same clients, each changed alike.
    #[must_use]
    pub fn map(&self, change: impl Fn(&Client) -> Client) -> Self {
        let Self {
            shared_informers,
            service_controller,
            node_controller,
            route_controller,
            service_events,
            node_events,
        } = self;
        Self {
            shared_informers: change(shared_informers),
            service_controller: change(service_controller),
            node_controller: change(node_controller),
            route_controller: change(route_controller),
            service_events: change(service_events),
            node_events: change(node_events),
        }
    }

    /// Who writes Events about objects of this kind.
    pub(crate) fn events(&self, kind: &str) -> &Client {
        if kind == "Node" { &self.node_events } else { &self.service_events }
    }
}

impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self {
            shared_informers: client.clone(),
            service_controller: client.clone(),
            node_controller: client.clone(),
            route_controller: client.clone(),
            service_events: client.clone(),
            node_events: client,
        }
    }
}

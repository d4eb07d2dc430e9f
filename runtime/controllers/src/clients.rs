//! Clients of the Kubernetes API: one for each controller, with upstream's names.
//!
//! All fields may hold the same client. Separate clients each have their own name, rate limit and
//! identity.

use kube::Client;

/// The clients. Each controller writes with its own client; the lists and watches use the first
/// one.
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
    /// Events about all other kinds. A separate client, so that a flood of Events delays no other
    /// write.
    pub service_events: Client,
    /// Events about Nodes.
    pub node_events: Client,
}

impl Clients {
    /// Applies `change` to each client.
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

    /// The client that writes Events about objects of this kind.
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

//! OpenStack with Octavia's driver `ovn` and a network that carries packets.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use serde_json::json;
use skysail_provider::Node;
use tokio::sync::OnceCell;

use super::{Driver, OpenStack, SCHEME};
use crate::cloud::machine_of;

/// A node's packets pass only by the security group that the provider makes: Neutron's default
/// group has no rules here.
static OVN: Driver = Driver {
    program: "traffic.py",
    balancer: "lb-provider = ovn\nlb-method = SOURCE_IP_PORT\nmanage-security-groups = true\n",
    running: OnceCell::const_new(),
};

/// What a client got.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Answers {
    /// How many of the requests each node answered.
    #[serde(rename = "answers")]
    pub of_nodes: BTreeMap<String, usize>,
    /// Requests without an answer.
    pub unanswered: usize,
}

impl OpenStack {
    /// A project in a cloud whose network carries packets.
    ///
    /// # Errors
    /// The process is not root, a program is missing, or the cloud does not start.
    pub async fn with_traffic() -> Result<Self> {
        Self::open(&OVN).await
    }

    /// Puts a node on the network. From now on each of these ports answers HTTP with the name of
    /// the node.
    ///
    /// # Errors
    /// The cloud refuses.
    pub fn serve(&self, node: &Node, ports: &[u16]) -> Result<()> {
        let machine = [("id", json!(machine_of(node, SCHEME)?)), ("name", json!(node.name)), ("ports", json!(ports))];
        self.ask("serve", machine).map(drop)
    }

    /// Ends what answers on a node; the node stays.
    ///
    /// # Errors
    /// The node does not serve.
    pub fn silence(&self, node: &Node) -> Result<()> {
        self.ask("silence", [("id", json!(machine_of(node, SCHEME)?))]).map(drop)
    }

    /// Gives a node the address of a pod, and lets the nodes begin connections.
    ///
    /// # Errors
    /// The node is not on the network.
    pub fn add_pod(&self, node: &Node, address: &str) -> Result<()> {
        let id = json!(machine_of(node, SCHEME)?);
        self.ask("pod", [("id", id), ("address", json!(address))]).map(drop)
    }

    /// So many requests of the client, each over a connection of its own; fewer if there is no
    /// answer.
    ///
    /// # Errors
    /// The client cannot be started.
    pub fn get(&self, url: &str, count: usize) -> Result<Answers> {
        Ok(Answers::deserialize(self.ask("get", [("url", json!(url)), ("count", json!(count))])?)?)
    }

    /// [`Self::get`] for a node instead of the client.
    ///
    /// # Errors
    /// The node is not on the network.
    pub fn get_from(&self, node: &Node, url: &str, count: usize) -> Result<Answers> {
        let id = ("id", json!(machine_of(node, SCHEME)?));
        Ok(Answers::deserialize(self.ask("get", [("url", json!(url)), ("count", json!(count)), id])?)?)
    }
}

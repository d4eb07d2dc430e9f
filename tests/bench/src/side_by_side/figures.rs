//! The measured figures.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{contestant::Contestant, world::Size};

/// One run of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Seconds from the manager's start until every node was initialised; the whole task's end
    /// where a scenario has another one.
    pub nodes_s: f64,
    /// Until every Service had an address.
    pub services_s: f64,
    /// Until every load balancer had every node.
    pub backends_s: f64,
    /// Until the last request to the cloud: then all was done.
    pub quiet_s: f64,
    /// Seconds of CPU until nodes, Services and load balancers were done.
    pub cpu_s: f64,
    /// Until the last request to the cloud.
    pub cpu_quiet_s: f64,
    /// Seconds of CPU in the minute after the last request.
    pub cpu_idle_s: f64,
    /// MiB when all was done.
    pub resident_mib: f64,
    /// MiB after the minute.
    pub resident_idle_mib: f64,
    /// MiB, at most.
    pub peak_mib: f64,
    /// Calls of the provider by function, until the end of that minute.
    pub provider_calls: BTreeMap<String, u64>,
    /// Requests to the cloud by method and path, until the end of that minute.
    pub cloud_requests: BTreeMap<String, u64>,
    /// Requests to the API server by verb and resource, until the end of that minute.
    pub api_requests: BTreeMap<String, u64>,
}

/// Which task it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// A cluster whose nodes and Services wait for the manager.
    Start,
    /// A node that is deleted while the others register.
    Deletion,
    /// Nodes that are replaced by new ones.
    Replacement,
}

/// One line of the raw figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The task.
    pub scenario: Scenario,
    /// Who did it.
    pub contestant: Contestant,
    /// How large it was.
    pub size: Size,
    /// From 1.
    pub round: usize,
    /// The figures of the run.
    pub figures: Figures,
}

/// The points of one contestant's curve.
pub type Growth = BTreeMap<Size, Vec<Figures>>;

impl Figures {
    /// `ensure` and `update` together.
    #[must_use]
    pub fn load_balancer_calls(&self) -> u64 {
        ["ensure", "update"].iter().filter_map(|function| self.provider_calls.get(*function)).sum()
    }

    /// Calls that look up machines.
    #[must_use]
    pub fn instance_calls(&self) -> u64 {
        self.provider_calls.get("instances").copied().unwrap_or_default()
    }

    /// All of them.
    #[must_use]
    pub fn all_cloud_requests(&self) -> u64 {
        self.cloud_requests.values().sum()
    }

    /// Writes of nodes, or of Services: with their statuses.
    #[must_use]
    pub fn api_writes(&self, resource: &str) -> u64 {
        let is_write = |request: &str| {
            let (verb, path) = request.split_once(' ').unwrap_or_default();
            matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE") && path.split('/').next() == Some(resource)
        };
        self.api_requests.iter().filter(|(request, _)| is_write(request)).map(|(_, count)| count).sum()
    }

    /// Seconds until nodes, Services and load balancers were done.
    #[must_use]
    pub fn done_s(&self) -> f64 {
        self.nodes_s.max(self.services_s).max(self.backends_s)
    }
}

pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

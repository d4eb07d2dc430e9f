//! The endpoint `/services/NAMESPACE/NAME`: the controllers' explanation of a Service, with the
//! last calls of providers for the Service. Only the process that runs the service controller
//! knows.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skysail_controllers::{Explainer, ServiceExplanation, Unexplained};
use skysail_provider::Fence;
use skysail_serving::NoDocument;
use tokio::sync::watch;

use crate::{
    last_calls::{LastCall, LastCalls},
    leadership::{LeaseControllers, OtherLeader},
};

/// The answer of the endpoint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceDocument {
    #[serde(flatten)]
    pub(crate) explanation: ServiceExplanation,
    /// The last calls about the Service, the latest first.
    pub(crate) calls: Vec<LastCall>,
}

/// Explains Services.
pub(super) struct Explanations {
    explainer: Explainer,
    last_calls: LastCalls,
    /// None if the flags disable the service controller.
    leadership: Option<ServiceLeadership>,
}

/// Whether this process runs the service controller.
struct ServiceLeadership {
    /// `Some` after this process has acquired the Lease.
    fence: watch::Receiver<Option<Fence>>,
    other_leader: Option<OtherLeader>,
}

impl Explanations {
    pub(super) fn new(shares: &[LeaseControllers], explainer: Explainer, last_calls: LastCalls) -> Self {
        let share = shares.iter().find(|share| share.controllers.service);
        let leadership = share
            .map(|share| ServiceLeadership { fence: share.fence.clone(), other_leader: share.other_leader.clone() });
        Self { explainer, last_calls, leadership }
    }

    /// The document about this Service.
    pub(super) fn service(&self, namespace: &str, name: &str) -> Result<Value, NoDocument> {
        let explanation = self.explainer.service(namespace, name).map_err(|why| match why {
            Unexplained::NotRunning => NoDocument::Unavailable(self.not_running()),
            Unexplained::NotListed => NoDocument::Unavailable(why.to_string()),
            Unexplained::Unknown => NoDocument::NotFound(format!("there is no Service {namespace}/{name}")),
        })?;
        let document = ServiceDocument { explanation, calls: self.last_calls.of_service(namespace, name) };
        serde_json::to_value(&document).map_err(|error| NoDocument::Unavailable(error.to_string()))
    }

    /// Why the service controller does not run here, and which process to ask.
    fn not_running(&self) -> String {
        let Some(ServiceLeadership { fence, other_leader }) = &self.leadership else {
            return "this manager does not run the service controller (--controllers); ask the manager that does"
                .to_owned();
        };
        let starting = "the controllers of this manager have not started; ask again in a few seconds".to_owned();
        let Some(OtherLeader { lease, identity }) = other_leader.as_ref().filter(|_| fence.borrow().is_none()) else {
            return starting;
        };
        match identity.borrow().as_str() {
            "" => format!(
                "this manager is not the leader, and the holder of the Lease {lease} is not known yet; ask again in a few seconds"
            ),
            holder => format!("this manager is not the leader; ask {holder}, which holds the Lease {lease}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use skysail_controllers::{EnabledControllers, Explainer, Ledger};
    use skysail_provider::Fence;
    use skysail_serving::NoDocument;
    use tokio::sync::watch;

    use super::{Explanations, LastCalls};
    use crate::leadership::{LeaseControllers, OtherLeader};

    /// What a manager answers whose Lease is held like this.
    fn said(holder: &str, leads: bool, service: bool) -> NoDocument {
        let fence = watch::channel(leads.then(Fence::default)).1;
        let other_leader = OtherLeader {
            lease: "kube-system/cloud-controller-manager".to_owned(),
            identity: watch::channel(holder.to_owned()).1,
        };
        let controllers = EnabledControllers { service, ..EnabledControllers::default() };
        let share =
            LeaseControllers { controllers, fence, ledger: Ledger::default(), other_leader: Some(other_leader) };
        let explanations = Explanations::new(&[share], Explainer::default(), LastCalls::default());
        explanations.service("default", "web").unwrap_err()
    }

    #[test]
    fn a_manager_without_controllers_says_which_process_to_ask() {
        let unavailable = |text: &str| NoDocument::Unavailable(text.to_owned());
        assert_eq!(
            said("host_1", false, true),
            unavailable(
                "this manager is not the leader; ask host_1, which holds the Lease kube-system/cloud-controller-manager"
            )
        );
        assert_eq!(
            said("", false, true),
            unavailable(
                "this manager is not the leader, and the holder of the Lease kube-system/cloud-controller-manager is not known yet; ask again in a few seconds"
            )
        );
        let starting = "the controllers of this manager have not started; ask again in a few seconds";
        assert_eq!(said("host_1", true, true), unavailable(starting));
        let disabled = "this manager does not run the service controller (--controllers); ask the manager that does";
        assert_eq!(said("", false, false), unavailable(disabled));
    }
}

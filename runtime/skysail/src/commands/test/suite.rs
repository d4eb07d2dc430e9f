//! The requirements of the contract that can be judged from outside, without knowledge of the
//! cloud's objects: by the answers of the component, and by the requests that it sends.

mod apart;
mod balancers;
mod changes;
mod faults;
mod inventory;
mod machines;
mod routes;

use anyhow::ensure;
use futures::future::LocalBoxFuture;
use skysail_provider::Interface;

pub(super) use self::routes::delete_routes;
use super::{
    bench::Bench,
    requests::{Sent, writes_after},
};

/// What a case that did not fail has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// Passed, and the author should know something.
    Noted(String),
    /// Not tested, and why.
    NotTested(String),
}

/// An error is the sentence with which the case fails.
pub(super) type Judged = anyhow::Result<Verdict>;

/// One requirement.
pub(super) struct Case {
    pub(super) interface: Interface,
    pub(super) name: &'static str,
    pub(super) run: for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, Judged>,
}

macro_rules! cases {
    ($($interface:ident $name:literal $run:expr;)*) => {
        /// All requirements, in the order in which they are tested.
        pub(super) const CASES: &[Case] = &[
            $(Case { interface: Interface::$interface, name: $name, run: |bench| Box::pin($run(bench)) },)*
        ];
    };
}

cases! {
    Instances "known machines are described" machines::known_machines_are_described;
    Instances "a machine that never was is not found" machines::a_machine_that_never_was_is_not_found;
    Instances "a page has one answer for each node" machines::a_page_has_one_answer_for_each_node;
    Instances "a failed request makes no machine not found" machines::a_failed_request_makes_no_machine_not_found;
    LoadBalancers "a second ensure changes nothing" balancers::a_second_ensure_changes_nothing;
    LoadBalancers "update changes the backends" balancers::update_changes_the_backends;
    LoadBalancers "a deletion leaves nothing and may be repeated" balancers::a_deletion_may_be_repeated;
    LoadBalancers "every field of a port can be changed, and back" changes::every_field_of_a_port;
    LoadBalancers "the load balancers of two Services are apart" apart::two_services;
    LoadBalancers "the load balancers of two clusters are apart" apart::two_clusters;
    LoadBalancers "the load balancers of the longest names are apart" apart::the_longest_names;
    LoadBalancers "ensure after a rate limit (429)" faults::rate_limit;
    LoadBalancers "ensure after an error of the cloud (500)" faults::server_error;
    LoadBalancers "ensure after an outage of the cloud (503)" faults::outage;
    LoadBalancers "ensure after a cut connection" faults::cut_connection;
    LoadBalancers "ensure after a lost answer" faults::lost_answer;
    LoadBalancerInventory "the inventory lists what the cluster has, and deletes it" inventory::of_this_cluster;
    Routes "routes are created once, listed and deleted" routes::created_listed_and_deleted;
}

/// Collects what the author should know.
#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    fn verdict(self) -> Verdict {
        if self.0.is_empty() { Verdict::Passed } else { Verdict::Noted(self.0.join("; ")) }
    }

    /// Fails if a call that should change nothing sent writes that may have changed something,
    /// after a call that made the requests `before`.
    fn nothing_changed(&mut self, what: &str, requests: &[Sent], before: &[Sent]) -> anyhow::Result<()> {
        let writes = writes_after(before, requests);
        ensure!(
            writes.changes.is_empty(),
            "{what} sent {}: {}; read what exists before you write, or name the request with --reads if it changes nothing",
            if writes.changes.len() == 1 { "a write" } else { "writes" },
            writes.changes.join(", ")
        );
        if let Some(repeated) = writes.repeated {
            self.add(format!(
                "a repeated call sends a write that changes nothing ({repeated}); a read before it saves the write"
            ));
        }
        Ok(())
    }
}

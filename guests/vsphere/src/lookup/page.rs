//! The nodes of one call, and what is known of each.

use skysail_guest_sdk::{Error, Result};

use super::{Found, Key, Wanted, roster::Roster};
use crate::vim::Machine;

/// The nodes of one call.
pub(super) struct Page<'w> {
    nodes: Vec<(&'w Wanted, State)>,
    /// The first error of each vCenter; it is not asked again.
    failed: Vec<Option<Error>>,
}

/// What is known of one node.
enum State {
    /// No vCenter has shown the machine yet.
    Open,
    /// As open, but this call looks it up no more.
    Later,
    Done(Result<Box<Found>>),
}

impl<'w> Page<'w> {
    pub(super) fn new(wanted: &'w [Wanted], vcenters: usize) -> Self {
        Self { nodes: wanted.iter().map(|wanted| (wanted, State::Open)).collect(), failed: vec![None; vcenters] }
    }

    /// The nodes whose machines are to be looked up.
    pub(super) fn open(&self) -> Vec<&'w Wanted> {
        self.nodes.iter().filter(|(_, state)| matches!(state, State::Open)).map(|(wanted, _)| *wanted).collect()
    }

    /// Whether some machine would be reported as gone.
    pub(super) fn has_absent(&self) -> bool {
        self.open().iter().any(|wanted| matches!(wanted.key, Key::Id(_)))
    }

    /// Asks a vCenter for machines of the open nodes, unless it has failed or nothing is open.
    pub(super) fn ask(&mut self, vcenter: usize, ask: impl FnOnce(&Self) -> Result<Vec<Machine>>) {
        if self.open().is_empty() || self.failed.get(vcenter).is_none_or(Option::is_some) {
            return;
        }
        match ask(self) {
            Ok(machines) => self.take(vcenter, &machines),
            Err(error) => {
                if let Some(failed) = self.failed.get_mut(vcenter) {
                    *failed = Some(never_gone(error));
                }
            }
        }
    }

    fn take(&mut self, vcenter: usize, machines: &[Machine]) {
        let roster = Roster::new(machines);
        for (wanted, state) in self.nodes.iter_mut().filter(|(_, state)| matches!(state, State::Open)) {
            match wanted.choose(&roster) {
                Ok(None) => {}
                Ok(Some(machine)) => {
                    *state = State::Done(Ok(Box::new(Found { vcenter, machine: machine.clone() })));
                }
                Err(error) => *state = State::Done(Err(error)),
            }
        }
    }

    /// Leaves at most `count` nodes open.
    pub(super) fn postpone(&mut self, count: usize) {
        let open = self.nodes.iter_mut().filter(|(_, state)| matches!(state, State::Open));
        open.skip(count).for_each(|(_, state)| *state = State::Later);
    }

    /// The answer for each node.
    ///
    /// # Errors
    ///
    /// The first vCenter's error if all of them failed and no machine was found.
    pub(super) fn finish(self, vcenters: &[&str]) -> Result<Vec<Result<Found>>> {
        let Self { nodes, failed } = self;
        let nothing = !nodes.iter().any(|(_, state)| matches!(state, State::Done(_)));
        if let (true, true, Some(Some(error))) = (nothing, failed.iter().all(Option::is_some), failed.first()) {
            return Err(error.clone());
        }
        let error = failed.into_iter().flatten().next();
        let vcenters = vcenters.join(", ");
        let answer = |(wanted, state): (&Wanted, State)| match (state, &error) {
            (State::Done(found), _) => found.map(|found| *found),
            (State::Open | State::Later, Some(error)) => Err(error.clone()),
            (State::Open, None) => Err(wanted.absent(&vcenters)),
            (State::Later, None) => Err(Error::Unavailable(format!(
                "node {}: its machine is not in the list of {vcenters}, as those of other nodes, which were looked up \
                 first; the next call looks up more",
                wanted.node
            ))),
        };
        Ok(nodes.into_iter().map(answer).collect())
    }
}

/// An answer that the API itself is not there, as of a gateway, says nothing about a machine.
pub(crate) fn never_gone(error: Error) -> Error {
    match error {
        Error::NotFound(why) => Error::Unavailable(format!("the vCenter's API is not found: {why}")),
        error => error,
    }
}

impl Wanted {
    /// A provider ID that no vCenter has is that of a machine which was deleted. A host name that
    /// none has proves nothing: VMware Tools report it some time after the start.
    fn absent(&self, vcenters: &str) -> Error {
        let node = &self.node;
        match &self.key {
            Key::Id([uuid, _]) => Error::NotFound(format!("node {node}: no machine of {vcenters} has the UUID {uuid}")),
            Key::Name(_) => Error::Unavailable(format!(
                "node {node}: no machine of {vcenters} reports this host name; start VMware Tools in the machine, and \
                 give it the host name {node}"
            )),
        }
    }
}

//! The nodes of one call, and what is known of each.

use skysail_guest_sdk::{
    Error, Result,
    instances::{Turn, not_yet_looked_up},
};

use super::{Found, Key, Wanted, roster::Roster};
use crate::vim::Machine;

/// The nodes of one call.
pub(super) struct Page<'w> {
    nodes: Vec<(&'w Wanted, State)>,
    /// The names of the vCenters, for messages.
    vcenters: Vec<&'w str>,
    /// The first error of each vCenter; it is not asked again.
    failed: Vec<Option<Error>>,
}

/// What is known of one node.
enum State {
    /// No machine was chosen yet; the vCenters have shown these candidates.
    Open(Vec<Found>),
    /// No machine was chosen, and this call looks it up no more.
    Later,
    Done(Result<Box<Found>>),
}

impl<'w> Page<'w> {
    pub(super) fn new(wanted: &'w [Wanted], vcenters: Vec<&'w str>) -> Self {
        let nodes = wanted.iter().map(|wanted| (wanted, State::Open(Vec::new()))).collect();
        Self { nodes, failed: vec![None; vcenters.len()], vcenters }
    }

    /// The nodes whose machines are to be looked up.
    pub(super) fn open(&self) -> Vec<&'w Wanted> {
        self.nodes.iter().filter(|(_, state)| matches!(state, State::Open(_))).map(|(wanted, _)| *wanted).collect()
    }

    /// Whether some machine would be reported as gone.
    pub(super) fn has_absent(&self) -> bool {
        self.open().iter().any(|wanted| matches!(wanted.key, Key::Id(_)))
    }

    /// The IDs of the machines that were chosen in the vCenter of this name.
    pub(super) fn found_in(&self, vcenter: &str) -> Vec<String> {
        let is_there = |found: &&Found| self.vcenters.get(found.vcenter) == Some(&vcenter);
        let chosen = self.nodes.iter().filter_map(|(_, state)| match state {
            State::Done(Ok(found)) => Some(&**found),
            State::Done(Err(_)) | State::Open(_) | State::Later => None,
        });
        chosen.filter(is_there).map(|found| found.machine.id.clone()).collect()
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
                    // A gateway whose vCenter is away answers 404, too.
                    *failed = Some(error.never_gone());
                }
            }
        }
    }

    fn take(&mut self, vcenter: usize, machines: &[Machine]) {
        let roster = Roster::new(machines);
        for (wanted, state) in &mut self.nodes {
            if let State::Open(candidates) = state {
                // Two sections of the cloud-config may be the same vCenter, with other datacenters.
                let is_new = |machine: &&Machine| {
                    let same = |found: &&Found| self.vcenters.get(found.vcenter) == self.vcenters.get(vcenter);
                    !candidates.iter().filter(same).any(|found| found.machine.id == machine.id)
                };
                let new: Vec<_> = wanted.candidates(&roster).into_iter().filter(is_new).collect();
                candidates.extend(new.into_iter().map(|machine| Found { vcenter, machine: machine.clone() }));
            }
        }
    }

    /// Chooses the machine of each open node among those that all vCenters have shown: a copy of
    /// the machine may be in another vCenter.
    pub(super) fn choose(&mut self) {
        for (wanted, state) in &mut self.nodes {
            if let State::Open(candidates) = state {
                match wanted.choose(std::mem::take(candidates), &self.vcenters) {
                    Ok(None) => {}
                    Ok(Some(found)) => *state = State::Done(Ok(Box::new(found))),
                    Err(error) => *state = State::Done(Err(error)),
                }
            }
        }
    }

    /// As [`Page::choose`], for machines that were not known before. If a vCenter has failed, a
    /// machine counts only with the node's name: it may be a copy of one in the failed vCenter.
    pub(super) fn choose_proven(&mut self) {
        if self.failed.iter().any(Option::is_some) {
            for (wanted, state) in &mut self.nodes {
                if let State::Open(candidates) = state {
                    candidates.retain(|found| wanted.is_name_of(&found.machine));
                }
            }
        }
        self.choose();
    }

    /// Leaves at most `count` nodes open: those that have the turn.
    pub(super) fn postpone(&mut self, count: usize, turn: Turn) {
        let open = self.nodes.iter_mut().filter(|(_, state)| matches!(state, State::Open(_)));
        let (_, later) = turn.split(open, count, |(wanted, _)| &wanted.node);
        for (_, state) in later {
            *state = State::Later;
        }
    }

    /// The answer for each node.
    ///
    /// # Errors
    ///
    /// The first vCenter's error if all of them failed and no machine was found.
    pub(super) fn finish(self) -> Result<Vec<Result<Found>>> {
        let Self { nodes, vcenters, failed } = self;
        let nothing = !nodes.iter().any(|(_, state)| matches!(state, State::Done(_)));
        if let (true, true, Some(Some(error))) = (nothing, failed.iter().all(Option::is_some), failed.first()) {
            return Err(error.clone());
        }
        let error = failed.into_iter().flatten().next();
        let vcenters = vcenters.join(", ");
        let answer = |(wanted, state): (&Wanted, State)| match (state, &error) {
            (State::Done(found), _) => found.map(|found| *found),
            (State::Open(_) | State::Later, Some(error)) => Err(error.clone()),
            (State::Open(_), None) => Err(wanted.absent(&vcenters)),
            (State::Later, None) => {
                let machine = format!("the machine of node {}", wanted.node);
                Err(not_yet_looked_up(&format!("the list of {vcenters}"), &machine))
            }
        };
        Ok(nodes.into_iter().map(answer).collect())
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

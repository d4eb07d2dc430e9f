//! `instances.describe` from a list of all machines. A machine that the list lacks is looked up
//! before it is reported as gone.

use std::collections::HashMap;

use crate::{Error, Instance, NodeSet, Result, provider_id};

/// Machines of one page of nodes that are looked up one by one because the list lacks them.
///
/// Each look-up is a request, and all of them have to end within the limits `httpRequests` (64 by
/// default) and `deadlineMs`; the host asks again about the nodes beyond this number.
pub const CONFIRMED_MAX: usize = 20;

/// A machine in the cloud's list.
pub trait Machine: Sized {
    /// The part after `<scheme>://` in its provider ID.
    fn id(&self) -> &str;

    /// The name of its node, which identifies it while the node has no provider ID.
    fn name(&self) -> &str;

    /// The contract's `describe` of this machine.
    fn instance(&self) -> Instance;

    /// Looks up one machine, by the ID of a node or, for a node without an ID, by its name.
    ///
    /// # Errors
    ///
    /// `not-found` only where the cloud says that there is no such machine: the node may be
    /// deleted.
    fn look_up(by: By<'_>) -> Result<Self>;
}

/// The key of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By<'a> {
    /// The part after `<scheme>://`.
    Id(&'a str),
    /// The node's name.
    Name(&'a str),
}

/// Implements `instances.describe`.
///
/// A node with a provider ID is the machine of that ID, a node without is the machine of its name.
/// A machine that the list lacks is looked up before it is `not-found`, because a list in pages may
/// lose an entry.
///
/// `Invalid` for a provider ID of another scheme; `Unavailable` for machines beyond
/// [`CONFIRMED_MAX`] that the list lacks.
#[must_use]
pub fn describe<M: Machine>(scheme: &str, machines: &[M], nodes: &NodeSet) -> Vec<Result<Instance>> {
    let ids: HashMap<_, _> = machines.iter().map(|machine| (machine.id(), machine)).collect();
    let names: HashMap<_, _> = machines.iter().map(|machine| (machine.name(), machine)).collect();
    let mut looked_up = 0;
    let columns = nodes.names().into_iter().zip(nodes.provider_ids());
    let describe = |(name, id): (String, Option<String>)| {
        let id = id.as_deref().map(|id| provider_id::parse(scheme, id)).transpose()?;
        let by = id.map_or(By::Name(&name), By::Id);
        let listed = match by {
            By::Id(id) => ids.get(id),
            By::Name(name) => names.get(name),
        };
        if let Some(machine) = listed {
            return Ok(machine.instance());
        }
        looked_up += 1;
        if looked_up > CONFIRMED_MAX {
            return Err(Error::Unavailable(format!(
                "the cloud's list lacks the machine of node {name} and {CONFIRMED_MAX} others of this call, which were looked up \
                 first; the next call looks up more"
            )));
        }
        M::look_up(by).map(|machine| machine.instance())
    };
    columns.map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::{By, CONFIRMED_MAX, Machine, describe};
    use crate::{Error, Instance, Node, NodeSet, Result};

    struct Server(&'static str, &'static str);

    impl Machine for Server {
        fn id(&self) -> &str {
            self.0
        }
        fn name(&self) -> &str {
            self.1
        }
        fn instance(&self) -> Instance {
            Instance::new(format!("example://{}", self.0))
        }
        fn look_up(by: By<'_>) -> Result<Self> {
            match by {
                By::Id("7") => Ok(Self("7", "moved")),
                By::Id("8") => Err(Error::Denied("expired".to_owned())),
                _ => Err(Error::NotFound(format!("{by:?}"))),
            }
        }
    }

    fn node(name: &str, id: Option<&str>) -> Node {
        Node { provider_id: id.map(str::to_owned), ..Node::new(name) }
    }

    #[test]
    fn what_a_list_lacks_is_looked_up_before_it_is_gone() {
        let machines = [Server("1", "a"), Server("2", "b")];
        let nodes = NodeSet::of(vec![
            node("a", Some("example://1")),
            node("b", None),
            node("c", Some("example://7")),
            node("d", Some("example://8")),
            node("e", None),
            // The name of another machine: the ID counts.
            node("f", Some("example://9")),
            node("g", Some("other://1")),
        ]);
        let answers = describe("example", &machines, &nodes);
        let ids: Vec<_> = answers.iter().map(|answer| answer.as_ref().map(|instance| &*instance.provider_id)).collect();
        assert_eq!(ids[..3], [Ok("example://1"), Ok("example://2"), Ok("example://7")]);
        assert_eq!(
            ids[3],
            Err(&Error::Denied("expired".to_owned())),
            "a failed look-up does not mean that the machine is gone"
        );
        assert_eq!(ids[4], Err(&Error::NotFound("Name(\"e\")".to_owned())));
        assert_eq!(ids[5], Err(&Error::NotFound("Id(\"9\")".to_owned())));
        assert!(matches!(ids[6], Err(Error::Invalid(_))), "{:?}", ids[6]);
    }

    /// An empty list, from a cloud that forgot all machines or a token of another project, costs no
    /// request for each node.
    #[test]
    fn look_ups_of_one_page_have_a_bound() {
        let nodes = NodeSet::of((0..100).map(|n| node(&format!("node-{n:03}"), None)).collect());
        let answers = describe::<Server>("example", &[], &nodes);
        let gone = answers.iter().filter(|answer| matches!(answer, Err(Error::NotFound(_)))).count();
        let later = answers.iter().filter(|answer| matches!(answer, Err(Error::Unavailable(_)))).count();
        assert_eq!((gone, later), (CONFIRMED_MAX, 100 - CONFIRMED_MAX));
    }
}

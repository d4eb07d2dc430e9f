//! `instances.describe` from a list of all machines. A machine that the list lacks is looked up
//! before it is reported as gone.

use std::collections::{HashMap, HashSet};

use crate::{Error, Instance, NodeSet, Result, clock, provider_id};

/// Machines of one page of nodes that are looked up one by one because the list lacks them.
///
/// Each look-up is a request, and all of them have to end within the limits `httpRequests` (64 by
/// default) and `deadlineMs`. Nodes beyond this number get their turn in later calls, each for ten
/// minutes: `unavailable` until then.
pub const CONFIRMED_MAX: usize = 20;

/// How long the same nodes have the turn. The host deletes a node only after several calls in a row
/// that report its machine as gone, by default after two, 5 s apart.
const TURN_MS: u64 = 600_000;

/// Which nodes are looked up, of more than one call can look up. All have the turn at some time, so
/// that machines which stay missing do not keep others from being reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(u64);

impl Turn {
    /// The present turn, which lasts until the clock shows a multiple of ten minutes. In a native
    /// test, which has no clock, the turn is always the same.
    #[must_use]
    pub fn now() -> Self {
        Self(if cfg!(target_family = "wasm") { clock::now_ms() / TURN_MS } else { 0 })
    }

    /// The turn of this number, for tests.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self(number)
    }

    /// The nodes that have the turn, `max` of them, and the others. A node that comes or goes
    /// meanwhile changes one of the first at most.
    pub fn split<T>(
        self,
        nodes: impl IntoIterator<Item = T>,
        max: usize,
        name: impl Fn(&T) -> &str,
    ) -> (Vec<T>, Vec<T>) {
        let mut nodes: Vec<T> = nodes.into_iter().collect();
        nodes.sort_by(|one, other| name(one).cmp(name(other)));
        if nodes.len() > max {
            // Each turn begins at another point of the circle of hashes, far from those before.
            let begin = self.0.wrapping_mul(GOLDEN_RATIO);
            nodes.sort_by_key(|node| hash(name(node)).wrapping_sub(begin));
        }
        let later = nodes.split_off(max.min(nodes.len()));
        (nodes, later)
    }
}

/// The answer for a node that does not have the turn. `list` is what was asked, such as `the list
/// of servers`, and `machine` the ID or the name.
#[must_use]
pub fn not_yet_looked_up(list: &str, machine: &str) -> Error {
    Error::Unavailable(format!(
        "{list} lacks {machine} and other machines, which are looked up first, a few with each call; a later call looks up \
         this one"
    ))
}

/// 2^64 divided by the golden ratio: multiples of it, modulo 2^64, are spread evenly.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// FNV-1a, and the last step of `SplitMix64`, because similar names have to be far apart.
fn hash(name: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

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
    describe_in(Turn::now(), scheme, machines, nodes)
}

fn describe_in<M: Machine>(turn: Turn, scheme: &str, machines: &[M], nodes: &NodeSet) -> Vec<Result<Instance>> {
    let ids: HashMap<_, _> = machines.iter().map(|machine| (machine.id(), machine)).collect();
    let names: HashMap<_, _> = machines.iter().map(|machine| (machine.name(), machine)).collect();
    let columns: Vec<_> = nodes.names().into_iter().zip(nodes.provider_ids()).collect();
    let keys: Vec<Result<By<'_>>> = columns.iter().map(|(name, id)| By::of(scheme, name, id.as_deref())).collect();
    let listed = |by: By<'_>| match by {
        By::Id(id) => ids.get(id).copied(),
        By::Name(name) => names.get(name).copied(),
    };
    let lacks = |key: &Result<By<'_>>| key.as_ref().is_ok_and(|by| listed(*by).is_none());
    let lacking = keys.iter().zip(&columns).enumerate().filter(|(_, (key, _))| lacks(key));
    let (lacking, _) =
        turn.split(lacking.map(|(place, (_, (name, _)))| (place, name)), CONFIRMED_MAX, |(_, name)| name);
    let have_the_turn: HashSet<usize> = lacking.into_iter().map(|(place, _)| place).collect();
    let nodes = keys.into_iter().zip(&columns).enumerate();
    let instances = nodes.map(|(place, (key, (name, _)))| {
        let by = key?;
        match listed(by) {
            Some(machine) => Ok(machine.instance()),
            None if have_the_turn.contains(&place) => M::look_up(by).map(|machine| machine.instance()),
            None => Err(not_yet_looked_up("the cloud's list", &format!("the machine of node {name}"))),
        }
    });
    instances.collect()
}

impl<'a> By<'a> {
    fn of(scheme: &str, name: &'a str, id: Option<&'a str>) -> Result<Self> {
        Ok(match id {
            Some(id) => Self::Id(provider_id::parse(scheme, id)?),
            None => Self::Name(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{By, CONFIRMED_MAX, Machine, Turn, describe, describe_in};
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
    /// request for each node. Machines that stay missing do not keep others from being reported.
    #[test]
    fn look_ups_of_one_page_have_a_bound_and_all_nodes_have_the_turn() {
        let nodes = NodeSet::of((0..100).rev().map(|n| node(&format!("node-{n:03}"), None)).collect());
        let mut seen = BTreeSet::new();
        for turn in 7..37 {
            let answers = describe_in::<Server>(Turn::of(turn), "example", &[], &nodes);
            let gone = |answer: &Result<Instance>| matches!(answer, Err(Error::NotFound(_)));
            assert!(answers.iter().all(|answer| gone(answer) || matches!(answer, Err(Error::Unavailable(_)))));
            let gone: Vec<_> = (0..100).filter(|place| answers.get(*place).is_some_and(gone)).collect();
            assert_eq!(gone.len(), CONFIRMED_MAX);
            seen.extend(gone);
        }
        assert_eq!(seen.len(), 100);
        assert_eq!(describe::<Server>("example", &[], &nodes).len(), 100, "without a host, too");
    }

    #[test]
    fn a_turn_leaves_no_node_out_and_few_nodes_stay_in_the_order_of_their_names() {
        for (count, max) in [(0, 20), (1, 20), (20, 20), (21, 20), (40, 12), (7, 1), (3, 0), (500, 20)] {
            let names: Vec<String> = (0..count).map(|n| format!("node-{n:03}")).collect();
            let mut first = BTreeSet::new();
            for turn in u64::MAX - 200..=u64::MAX {
                let nodes = names.iter().rev().map(String::as_str);
                let (mut all, later) = Turn::of(turn).split(nodes, max, |name| name);
                first.extend(all.iter().map(|name| (*name).to_owned()));
                if count <= max {
                    assert_eq!((&all, later.len()), (&names.iter().map(String::as_str).collect(), 0));
                }
                assert_eq!(all.len(), count.min(max));
                all.extend(later);
                all.sort_unstable();
                assert_eq!(all, names);
            }
            assert_eq!(first.len(), if max == 0 { 0 } else { count }, "{count} of which {max}");
        }
    }

    /// The host counts the calls in a row that report a machine as gone.
    #[test]
    fn a_node_that_goes_changes_the_turn_of_the_others_little() {
        let names: Vec<String> = (0..100).map(|n| format!("node-{n:03}")).collect();
        let first = |without: usize| {
            let nodes = names.iter().enumerate().filter(|(at, _)| *at != without).map(|(_, name)| name.as_str());
            Turn::of(3_000_000).split(nodes, 20, |name| name).0.into_iter().collect::<BTreeSet<_>>()
        };
        let before = first(99);
        assert!((0..99).all(|without| first(without).intersection(&before).count() >= 18));
    }
}

//! Whether vCenter would show a machine to the account, so that a machine which no search finds is
//! gone. Pure.
//!
//! vCenter answers as if an object without permission did not exist. The root folder of a
//! datacenter's machines always has the roles of the datacenter, and the objects in the folder have
//! them only if the permission propagates. Roles alone therefore do not show what the account sees
//! below; the permissions that give the roles do.

use std::collections::BTreeSet;

use skysail_guest_sdk::{Error, Result};

use crate::vim::{Entity, Machine, Ref};

/// The built-in roles of an account that may read nothing: no access, anonymous, view.
const ROLES_WITHOUT_READ: [i64; 3] = [-5, -4, -3];

const GIVE_ROLE: &str = "give the account the role Read-only on the datacenters, with \"Propagate to children\"";
const LET_PROPAGATE: &str =
    "let the permission propagate or, if it is that of another account, give this account a role of its own";

/// Checks all that is above machines: the places of the search, and the datacenters, folders and
/// vApps below the places.
///
/// # Errors
///
/// `denied` where machines may exist that vCenter does not show.
pub(super) fn check(vcenter: &str, places: &[Ref], above: &[Entity]) -> Result<()> {
    let shown: BTreeSet<_> = above.iter().map(|entity| &entity.of).collect();
    let folders: Vec<_> = above.iter().filter_map(|entity| entity.machines.as_ref()).collect();
    let hidden = places.iter().chain(folders.iter().copied()).find(|of| !shown.contains(of));
    let hidden = hidden.map(|Ref { kind, id }| (format!("the account may not read {kind} {id}"), GIVE_ROLE));
    let none = || folders.is_empty().then(|| ("the account sees no datacenter".to_owned(), GIVE_ROLE));
    match hidden.or_else(|| above.iter().find_map(flaw)).or_else(none) {
        None => Ok(()),
        Some((why, remedy)) => {
            Err(Error::Denied(format!("{vcenter}: {why}, so it is unknown which machines are gone; {remedy}")))
        }
    }
}

/// Checks that each machine has a UUID, except the machines of these IDs, whose UUIDs are known.
///
/// # Errors
///
/// `unavailable` where one has none: it may be the machine of any node.
pub(super) fn check_uuids(vcenter: &str, machines: &[Machine], known: &BTreeSet<String>) -> Result<()> {
    let is_unknown = |machine: &&Machine| machine.uuid.is_empty() && !known.contains(&machine.id);
    match machines.iter().find(is_unknown) {
        None => Ok(()),
        Some(Machine { id, .. }) => Err(Error::Unavailable(format!(
            "{vcenter}: machine {id} has no UUID that can be read, so it is unknown which machines are gone; wait until \
             the machine is created, or make its datastore available"
        ))),
    }
}

/// Why vCenter may hide the machines below an object, and what helps.
fn flaw(entity: &Entity) -> Option<(String, &'static str)> {
    if let Some(fault) = &entity.refused {
        return Some((format!("{entity} cannot be read: {fault}"), GIVE_ROLE));
    }
    if entity.roles.iter().all(|role| ROLES_WITHOUT_READ.contains(role)) {
        return Some((format!("the account may not read {entity}"), GIVE_ROLE));
    }
    // vCenter does not say to which groups the account belongs, so every permission with a role of
    // the account may be the account's own.
    let ends_here = entity.permissions.iter().find(|given| !given.propagates && entity.roles.contains(&given.role))?;
    let (principal, role) = (&ends_here.principal, ends_here.role);
    Some((
        format!("the permission of {principal} on {entity}, whose role {role} the account has, does not propagate"),
        LET_PROPAGATE,
    ))
}

//! Zones and regions: tags of two categories on the objects above a machine.
//!
//! The nearest tag counts, on the way from the machine's host up to the root, else from its
//! resource pool, else from the machine through its folders. A way counts only if it has both tags.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use skysail_guest_sdk::{Error, Result};

use crate::{
    settings::Labels,
    vim::{Entity, Machine, Ref},
};

/// Tags and categories that one call looks up, each with a request; the next call has them in the
/// cache and goes on.
const LOOKED_UP_MAX: usize = 24;

/// The most objects from a machine up to the root; a longer way is a circle.
const DEPTH_MAX: usize = 64;

/// What this module asks of a vCenter.
pub(crate) trait Tags {
    /// The objects and all objects above them.
    fn places(&self, objects: &[Ref]) -> Result<Vec<Entity>>;

    /// The IDs of the tags on each object.
    fn attached(&self, objects: &[Ref]) -> Result<BTreeMap<Ref, Vec<String>>>;

    /// The tags of these IDs; those that do not exist any more are left out.
    fn tags(&self, ids: &[String]) -> Result<Vec<(String, Tag)>>;

    /// The names of these categories; those that do not exist any more are left out.
    fn categories(&self, ids: &[String]) -> Result<Vec<(String, String)>>;
}

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tag {
    pub(crate) name: String,
    /// ID of its category.
    pub(crate) category: String,
}

/// Zone and region of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) zone: String,
    pub(crate) region: String,
}

/// What earlier calls have learned of one vCenter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// By the ID of the object where the way up begins. A way without both tags is asked for again.
    places: BTreeMap<String, Place>,
    tags: BTreeMap<String, Tag>,
    categories: BTreeMap<String, String>,
}

/// The place of each machine, in order; none where a tag is missing on all ways.
///
/// # Errors
///
/// Those of the vCenter; `retry-after` where more tags are unknown than one call looks up.
pub(crate) fn places<T: Tags>(
    cloud: &T,
    known: &mut Known,
    labels: &Labels,
    machines: &[&Machine],
) -> Result<Vec<Option<Place>>> {
    let mut found: Vec<Option<Place>> = vec![None; machines.len()];
    let ways: [fn(&Machine) -> Option<Ref>; 3] =
        [|machine| machine.host.clone(), |machine| machine.pool.clone(), |machine| Some(machine.reference())];
    for start in ways {
        let open = || machines.iter().zip(&found).filter(|(_, place)| place.is_none()).map(|(machine, _)| *machine);
        let starts: BTreeSet<Ref> = open().filter_map(start).collect();
        learn(cloud, known, labels, starts)?; // (client)
        for (machine, place) in machines.iter().zip(&mut found).filter(|(_, place)| place.is_none()) {
            *place = start(machine).and_then(|start| known.places.get(&start.id).cloned());
        }
    }
    Ok(found)
}

/// Learns the places of the ways that begin at these objects.
fn learn<T: Tags>(cloud: &T, known: &mut Known, labels: &Labels, starts: BTreeSet<Ref>) -> Result<()> {
    let starts: Vec<Ref> = starts.into_iter().filter(|start| !known.places.contains_key(&start.id)).collect();
    if starts.is_empty() {
        return Ok(());
    }
    let parents: BTreeMap<Ref, Option<Ref>> =
        cloud.places(&starts)?.into_iter().map(|entity| (entity.of, entity.parent)).collect();
    let attached = cloud.attached(&parents.keys().cloned().collect::<Vec<_>>())?;
    learn_tags(cloud, known, &attached)?;
    for start in starts {
        let tags = way(&parents, &start).filter_map(|object| attached.get(object)).flatten();
        if let Some(place) = place(known, labels, tags) {
            known.places.insert(start.id, place);
        }
    }
    Ok(())
}

fn learn_tags<T: Tags>(cloud: &T, known: &mut Known, attached: &BTreeMap<Ref, Vec<String>>) -> Result<()> {
    let ids: BTreeSet<&String> = attached.values().flatten().filter(|id| !known.tags.contains_key(*id)).collect();
    let first: Vec<String> = ids.iter().take(LOOKED_UP_MAX).map(|id| (*id).clone()).collect();
    known.tags.extend(cloud.tags(&first)?);
    let categories: BTreeSet<&String> = known.tags.values().map(|tag| &tag.category).collect();
    let unknown = categories.into_iter().filter(|id| !known.categories.contains_key(*id)).cloned();
    let unknown: Vec<String> = unknown.take(LOOKED_UP_MAX).collect();
    known.categories.extend(cloud.categories(&unknown)?);
    if ids.len() > LOOKED_UP_MAX {
        return Err(Error::retry_after(
            std::time::Duration::ZERO,
            format!("{} tags are on the objects above the machines; the next call looks up more", ids.len()),
        ));
    }
    Ok(())
}

/// The objects from one up to the root.
fn way<'p>(parents: &'p BTreeMap<Ref, Option<Ref>>, start: &'p Ref) -> impl Iterator<Item = &'p Ref> {
    std::iter::successors(Some(start), |object| parents.get(object)?.as_ref()).take(DEPTH_MAX)
}

/// The first tag of each of the two categories; none unless there are both.
fn place<'t>(known: &Known, labels: &Labels, tags: impl Iterator<Item = &'t String>) -> Option<Place> {
    let (mut zone, mut region) = (None, None);
    for tag in tags.filter_map(|id| known.tags.get(id)) {
        let category = known.categories.get(&tag.category);
        for (label, value) in [(&labels.zone, &mut zone), (&labels.region, &mut region)] {
            if category == Some(label) {
                value.get_or_insert_with(|| tag.name.clone());
            }
        }
    }
    Some(Place { zone: zone?, region: region? })
}

#[cfg(test)]
mod tests;

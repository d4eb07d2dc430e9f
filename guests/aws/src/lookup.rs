//! Questions to EC2 about machines and zones.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use serde_json::{Value, json};
use skysail_guest_sdk::{Error, Result};

use crate::{
    call::Call,
    cloud::{Answer, Cloud, list, pages, send},
    fault::{Expected as _, Fault},
    wire::ec2::{self, Instance, ZONES, Zone},
};

/// IDs in one question, as in the vendor's manager. Such an answer has one page.
const IDS_PER_CALL: usize = 500;
/// AWS refuses more values of one filter.
const VALUES_PER_FILTER: usize = 200;
/// Entries of one page; the most that EC2 sends.
const PAGE: u32 = 1_000;
/// Zones never change their ID; a new zone is asked for when a machine is in it.
const ZONES_TTL: Duration = Duration::from_hours(24);

const UNKNOWN_ID: &str = "InvalidInstanceID.NotFound";
const MALFORMED_ID: [&str; 2] = ["InvalidInstanceID.Malformed", "InvalidID"];
/// States that AWS still shows of a machine that has a name.
const ALIVE: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

/// The machines with these IDs, by their IDs; those that EC2 does not show are absent.
pub(crate) fn by_ids(cloud: &dyn Cloud, ids: &BTreeSet<&str>) -> Result<HashMap<String, Instance>> {
    let ids: Vec<&str> = ids.iter().copied().collect();
    let mut found = Vec::with_capacity(ids.len());
    for ids in ids.chunks(IDS_PER_CALL) {
        let whole = send(cloud, Call::ec2("DescribeInstances").list("InstanceId", ids));
        let unknown = [UNKNOWN_ID, MALFORMED_ID[0], MALFORMED_ID[1]];
        match whole.unless(&unknown)? {
            Some(answer) => found.extend(answer.stream(ec2::instances)?.0),
            // One unknown ID fails the whole question; a filter leaves the unknown ones out.
            None => {
                for ids in ids.chunks(VALUES_PER_FILTER) {
                    found.extend(filtered(cloud, Call::ec2("DescribeInstances").filter("instance-id", ids))?);
                }
            }
        }
    }
    Ok(found.into_iter().map(|machine| (machine.id.clone(), machine)).collect())
}

/// The machines whose private DNS names these are, without those that are terminated.
pub(crate) fn by_names(cloud: &dyn Cloud, names: &BTreeSet<&str>) -> Result<Vec<Instance>> {
    let names: Vec<&str> = names.iter().copied().collect();
    let mut found = Vec::new();
    for names in names.chunks(VALUES_PER_FILTER) {
        found.extend(filtered(cloud, named(names))?);
    }
    Ok(found)
}

fn named(names: &[&str]) -> Call {
    Call::ec2("DescribeInstances").filter("private-dns-name", names).filter("instance-state-name", ALIVE)
}

fn filtered(cloud: &dyn Cloud, call: Call) -> Result<Vec<Instance>, Fault> {
    pages(cloud, &call.set("MaxResults", PAGE), |answer| answer.stream(ec2::instances))
}

/// A machine that a list lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacking<'a> {
    Id(&'a str),
    Name(&'a str),
}

/// Asks for each machine by itself, all in parallel.
///
/// # Errors
///
/// `not-found` only where EC2 says so: it does not know the ID, or no machine has the name.
pub(crate) fn confirm(cloud: &dyn Cloud, lacking: &[Lacking<'_>]) -> Vec<Result<Vec<Instance>>> {
    let call = |lacking: &Lacking<'_>| match lacking {
        Lacking::Id(id) => Call::ec2("DescribeInstances").list("InstanceId", [id]),
        Lacking::Name(name) => named(&[name]).set("MaxResults", PAGE),
    };
    if lacking.is_empty() {
        return Vec::new();
    }
    let answers = cloud.send_all(lacking.iter().map(call).collect());
    let judge = |(lacking, answer): (&Lacking<'_>, Result<Answer, Fault>)| {
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) if fault.is(&[UNKNOWN_ID]) => return Err(Error::NotFound(fault.error.message().to_owned())),
            Err(fault) if fault.is(&MALFORMED_ID) => return Err(Error::Invalid(fault.error.message().to_owned())),
            Err(fault) => return Err(fault.error),
        };
        let (found, _) = answer.stream(ec2::instances)?;
        match lacking {
            // AWS answers a question for an unknown ID with an error, never with an empty list.
            Lacking::Id(id) if found.is_empty() => {
                Err(Error::Internal(format!("EC2 answered without the machine {id} that was asked for")))
            }
            Lacking::Name(name) if found.is_empty() => {
                Err(Error::NotFound(format!("EC2 has no machine whose private DNS name is {name}")))
            }
            Lacking::Id(_) | Lacking::Name(_) => Ok(found),
        }
    };
    lacking.iter().zip(answers).map(judge).collect()
}

/// ID and kind of each zone, by its name; asks again if one of these zones is not known yet.
pub(crate) fn zones(cloud: &dyn Cloud, needed: &BTreeSet<&str>) -> Result<HashMap<String, Zone>> {
    const KEY: &str = "zones";
    if needed.is_empty() {
        return Ok(HashMap::new());
    }
    let known = cloud.recall(KEY).as_ref().and_then(read_zones).unwrap_or_default();
    if needed.iter().all(|zone| known.contains_key(*zone)) {
        return Ok(known);
    }
    let listed = list(cloud, &Call::ec2("DescribeAvailabilityZones"), &ZONES, Zone::read)?;
    let value = listed.iter().map(|zone| (zone.name.clone(), json!([zone.id, zone.kind]))).collect();
    cloud.remember(KEY, &Value::Object(value), ZONES_TTL);
    Ok(listed.into_iter().map(|zone| (zone.name.clone(), zone)).collect())
}

fn read_zones(value: &Value) -> Option<HashMap<String, Zone>> {
    let zone = |(name, value): (&String, &Value)| {
        let text = |at: usize| value.get(at).and_then(Value::as_str).map(str::to_owned);
        Some((name.clone(), Zone { name: name.clone(), id: text(0)?, kind: text(1)? }))
    };
    value.as_object()?.iter().map(zone).collect()
}

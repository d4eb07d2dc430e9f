//! Routes to the pods of each node, in the cluster's route table. A route's target is a machine.

use std::collections::{BTreeSet, HashMap, HashSet};

use skysail_guest_sdk::{Error, NewRoute, Result, Route, Target};

use crate::{
    call::Call,
    cloud::{Cloud, list as list_all},
    fault::{Expected as _, Fault},
    lookup, provider_id,
    settings::Settings,
    tagging::Tagging,
    wire::ec2::{self, Instance, ROUTE_TABLES, RouteTable},
};

/// The route tables of the VPC.
pub(crate) fn tables(cloud: &dyn Cloud, settings: &Settings) -> Result<Vec<RouteTable>> {
    let call = Call::ec2("DescribeRouteTables").filter("vpc-id", [&settings.vpc]);
    list_all(cloud, &call, &ROUTE_TABLES, RouteTable::read).map_err(Error::from)
}

/// The configured table, else the one with the cluster's tag.
fn table(cloud: &dyn Cloud, settings: &Settings, tagging: &Tagging) -> Result<RouteTable> {
    let ours = |table: &RouteTable| match &settings.route_table {
        Some(id) => table.id == *id,
        None => tagging.has(&table.tags),
    };
    let mut ours = tables(cloud, settings)?.into_iter().filter(ours);
    let what = match &settings.route_table {
        Some(id) => format!("route table {id}"),
        None => format!("route table with the tag of cluster {:?}", tagging.cluster()),
    };
    let vpc = &settings.vpc;
    match (ours.next(), ours.next()) {
        (Some(table), None) => Ok(table),
        (None, _) => Err(Error::Denied(format!(
            "VPC {vpc} has no {what}, or EC2 does not show it to this account; tag one, or name it in RouteTableID"
        ))),
        (Some(one), Some(other)) => Err(Error::Denied(format!(
            "VPC {vpc} has more than one {what}: {} and {}; keep the tag of one, or name it in RouteTableID",
            one.id, other.id
        ))),
    }
}

/// As `routes.list`: one question for the table, and one for the zones of the machines, which are
/// in their provider IDs.
pub(crate) fn list(cloud: &dyn Cloud, settings: &Settings, cluster: &str) -> Result<Vec<Route>> {
    let table = table(cloud, settings, &Tagging::new(settings, cluster))?;
    let ids = table.routes.iter().filter_map(|route| route.instance.as_deref()).collect();
    let machines = lookup::by_ids(cloud, &ids)?;
    let listed = |route: &ec2::Route| {
        let destination = route.destination.clone().filter(|_| is_ours(route))?;
        let machine = route.instance.as_deref().and_then(|id| machines.get(id));
        Some(Route {
            name: format!("{cluster}-{destination}"),
            target: machine
                .map_or(Target::None, |machine| Target::ProviderId(provider_id::format(&machine.zone, &machine.id))),
            target_addresses: Vec::new(),
            destination_cidr: destination,
            blackhole: route.is_blackhole,
            extra: Vec::new(),
        })
    };
    Ok(table.routes.iter().filter_map(listed).collect())
}

/// Routes to gateways and to other VPCs belong to the operator.
fn is_ours(route: &ec2::Route) -> bool {
    route.instance.is_some() || route.is_blackhole
}

/// As `routes.create`: one question for the table, at most one each for machines by ID and by name;
/// then the writes that are missing, in parallel by kind.
pub(crate) fn create(
    cloud: &dyn Cloud,
    settings: &Settings,
    cluster: &str,
    wanted: &[NewRoute],
) -> Result<Vec<Result<()>>> {
    let tagging = Tagging::new(settings, cluster);
    let table = table(cloud, settings, &tagging)?;
    let machines = targets(cloud, &tagging, wanted)?;
    let present: HashMap<&str, &ec2::Route> =
        table.routes.iter().filter_map(|route| Some((route.destination.as_deref()?, route))).collect();
    let mut tasks: Vec<Result<Task<'_>>> = wanted
        .iter()
        .zip(&machines)
        .map(|(route, machine)| {
            let machine = machine.as_ref().map_err(Clone::clone)?;
            Task::new(&table.id, &route.destination_cidr, machine, present.get(&*route.destination_cidr).copied())
        })
        .collect();
    let mut checked = HashSet::new();
    run(cloud, &mut tasks, &[], |task| task.open().filter(|_| checked.insert(task.machine.id.as_str())));
    run(cloud, &mut tasks, &["InvalidRoute.NotFound"], Task::remove);
    run(cloud, &mut tasks, &[], Task::create);
    Ok(tasks.into_iter().map(|task| task.map(drop)).collect())
}

/// What one route needs.
struct Task<'a> {
    table: &'a str,
    destination: &'a str,
    machine: &'a Instance,
    is_in_the_way: bool,
    is_there: bool,
}

impl<'a> Task<'a> {
    fn new(table: &'a str, destination: &'a str, machine: &'a Instance, present: Option<&ec2::Route>) -> Result<Self> {
        if let Some(route) = present.filter(|route| !is_ours(route)) {
            let gateway = route.gateway.as_deref().unwrap_or("a target that is not a machine");
            return Err(Error::Invalid(format!(
                "route table {table} leads {destination} to {gateway}; remove this route, or use another range for pods"
            )));
        }
        let leads_there = |route: &ec2::Route| route.instance.as_deref() == Some(&*machine.id) && !route.is_blackhole;
        let is_there = present.is_some_and(leads_there);
        Ok(Self { table, destination, machine, is_in_the_way: present.is_some() && !is_there, is_there })
    }

    /// Packets of pods have addresses that are not the machine's own.
    fn open(&self) -> Option<Call> {
        let call = || {
            Call::ec2("ModifyInstanceAttribute").set("InstanceId", &self.machine.id).set("SourceDestCheck.Value", false)
        };
        self.machine.source_dest_check.then(call)
    }

    fn remove(&self) -> Option<Call> {
        self.is_in_the_way.then(|| remove(self.table, self.destination))
    }

    fn create(&self) -> Option<Call> {
        let call = || destined("CreateRoute", self.table, self.destination).set("InstanceId", &self.machine.id);
        (!self.is_there).then(call)
    }
}

/// Sends the calls of the tasks that have not failed. An answer with one of the codes is a success.
fn run<'a>(
    cloud: &dyn Cloud,
    tasks: &mut [Result<Task<'a>>],
    good: &[&str],
    mut call: impl FnMut(&Task<'a>) -> Option<Call>,
) {
    let calls = tasks.iter().enumerate().filter_map(|(at, task)| Some((at, call(task.as_ref().ok()?)?)));
    let (places, calls): (Vec<_>, Vec<_>) = calls.unzip();
    if calls.is_empty() {
        return;
    }
    for (at, answer) in places.into_iter().zip(cloud.send_all(calls)) {
        if let (Err(error), Some(task)) = (answer.unless(good), tasks.get_mut(at)) {
            *task = Err(error);
        }
    }
}

fn remove(table: &str, destination: &str) -> Call {
    destined("DeleteRoute", table, destination)
}

fn destined(action: &'static str, table: &str, destination: &str) -> Call {
    let family = if destination.contains(':') { "DestinationIpv6CidrBlock" } else { "DestinationCidrBlock" };
    Call::ec2(action).set("RouteTableId", table).set(family, destination)
}

/// The machine of each route: by the node's provider ID, else by its name.
fn targets(cloud: &dyn Cloud, tagging: &Tagging, wanted: &[NewRoute]) -> Result<Vec<Result<Instance>>> {
    let ids: Vec<Option<Result<&str>>> =
        wanted.iter().map(|route| route.provider_id.as_deref().map(provider_id::instance_of)).collect();
    let known: BTreeSet<&str> = ids.iter().flatten().filter_map(|id| id.as_ref().ok().copied()).collect();
    let unknown = wanted.iter().zip(&ids).filter(|(_, id)| id.is_none()).map(|(route, _)| route.node.as_str());
    let by_id = lookup::by_ids(cloud, &known)?;
    let named = lookup::by_names(cloud, &unknown.collect())?;
    let target = |(route, id): (&NewRoute, Option<Result<&str>>)| {
        let machine = match id.transpose()? {
            Some(id) => by_id.get(id),
            None => named.iter().find(|one| one.private_dns == route.node && tagging.has(&one.tags)),
        };
        machine.cloned().ok_or_else(|| Error::NotFound(format!("EC2 has no machine for node {}", route.node)))
    };
    Ok(wanted.iter().zip(ids).map(target).collect())
}

/// As `routes.delete`: one question for the table, then the deletions in parallel. A route that
/// leads to no machine is the operator's and stays.
pub(crate) fn delete(
    cloud: &dyn Cloud,
    settings: &Settings,
    cluster: &str,
    routes: &[Route],
) -> Result<Vec<Result<()>>> {
    let table = table(cloud, settings, &Tagging::new(settings, cluster))?;
    let ours: HashSet<&str> =
        table.routes.iter().filter(|route| is_ours(route)).filter_map(|route| route.destination.as_deref()).collect();
    let present = |route: &&Route| ours.contains(&*route.destination_cidr);
    let calls: Vec<_> = routes.iter().filter(present).map(|route| remove(&table.id, &route.destination_cidr)).collect();
    let mut answers = if calls.is_empty() { Vec::new() } else { cloud.send_all(calls) }.into_iter();
    let missing = || Fault::from(Error::Internal("the host returned fewer responses than requests".to_owned()));
    let result = |route: &Route| {
        if !present(&route) {
            return Ok(());
        }
        let answer = answers.next().unwrap_or_else(|| Err(missing()));
        answer.unless(&["InvalidRoute.NotFound"]).map(drop)
    };
    Ok(routes.iter().map(result).collect())
}

#[cfg(test)]
mod tests;

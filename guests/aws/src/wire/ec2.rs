//! EC2: machines, zones, subnets, route tables and security groups.

use std::borrow::Cow;

use skysail_guest_sdk::{
    Cidr, Error, Result,
    xml::{Element, reader::Reader},
};

use super::{Tags, number, optional, required, texts};
use crate::cloud::Page;

/// Path of a list's entries in the answers of EC2.
pub(crate) const SUBNETS: [&str; 2] = ["subnetSet", "item"];
pub(crate) const ROUTE_TABLES: [&str; 2] = ["routeTableSet", "item"];
pub(crate) const SECURITY_GROUPS: [&str; 2] = ["securityGroupInfo", "item"];
pub(crate) const ZONES: [&str; 2] = ["availabilityZoneInfo", "item"];
pub(crate) const TOPOLOGIES: [&str; 2] = ["instanceSet", "item"];

fn tags(element: Element<'_>) -> Tags {
    super::tags(element, &["tagSet", "item"], "key", "value")
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) id: String,
    /// `pending`, `running`, `shutting-down`, `terminated`, `stopping` or `stopped`.
    pub(crate) state: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) private_dns: String,
    pub(crate) public_dns: String,
    pub(crate) public_ip: String,
    /// Whether the network drops packets that are not from or for the machine's own address.
    pub(crate) source_dest_check: bool,
    /// IDs of security groups.
    pub(crate) groups: Vec<String>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) tags: Tags,
}

/// A network interface of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    /// `in-use`, `available`, …
    pub(crate) status: String,
    /// None while it is not attached.
    pub(crate) device_index: Option<u32>,
    pub(crate) ipv4: Vec<String>,
    pub(crate) ipv6: Vec<String>,
}

/// The machines of a page, and the cursor of the next page. Without a tree: EC2 writes some
/// kilobytes for each machine.
pub(crate) fn instances(answer: &mut Reader<'_>) -> Result<Page<Instance>> {
    let (mut machines, mut next) = (Vec::new(), None);
    while let Some(start) = answer.child()? {
        match start.name {
            "reservationSet" => answer.each(&["item", "instancesSet", "item"], &mut |entry| {
                machines.push(Instance::read(entry)?);
                Ok(())
            })?,
            "nextToken" => next = Some(text(answer)?).filter(|token| !token.is_empty()),
            _ => answer.skip()?,
        }
    }
    Ok((machines, next))
}

impl Instance {
    /// Reads an element whose start was read.
    fn read(entry: &mut Reader<'_>) -> Result<Self> {
        let mut machine = Self { source_dest_check: true, ..Self::default() };
        while let Some(start) = entry.child()? {
            match start.name {
                "instanceId" => machine.id = text(entry)?,
                "instanceState" => entry.each(&["name"], &mut set(&mut machine.state))?,
                "instanceType" => machine.instance_type = text(entry)?,
                "placement" => entry.each(&["availabilityZone"], &mut set(&mut machine.zone))?,
                "privateDnsName" => machine.private_dns = text(entry)?,
                "dnsName" => machine.public_dns = text(entry)?,
                "ipAddress" => machine.public_ip = text(entry)?,
                "sourceDestCheck" => machine.source_dest_check = entry.text()? != "false",
                "groupSet" => entry.each(&["item", "groupId"], &mut push(&mut machine.groups))?,
                "networkInterfaceSet" => entry.each(&["item"], &mut |interface| {
                    machine.interfaces.push(Interface::read(interface)?);
                    Ok(())
                })?,
                "tagSet" => entry.each(&["item"], &mut |tag| {
                    let (mut key, mut value) = (String::new(), String::new());
                    while let Some(start) = tag.child()? {
                        match start.name {
                            "key" => key = text(tag)?,
                            "value" => value = text(tag)?,
                            _ => tag.skip()?,
                        }
                    }
                    machine.tags.insert(key, value);
                    Ok(())
                })?,
                _ => entry.skip()?,
            }
        }
        match [("instanceId", &machine.id), ("instanceState/name", &machine.state)].iter().find(|(_, is)| is.is_empty())
        {
            Some((lacking, _)) => Err(Error::Internal(format!("an entry of instancesSet without {lacking}"))),
            None => Ok(machine),
        }
    }
}

impl Interface {
    /// Reads an element whose start was read.
    fn read(entry: &mut Reader<'_>) -> Result<Self> {
        let (mut interface, mut index) = (Self::default(), String::new());
        while let Some(start) = entry.child()? {
            match start.name {
                "status" => interface.status = text(entry)?,
                "attachment" => entry.each(&["deviceIndex"], &mut set(&mut index))?,
                "privateIpAddressesSet" => {
                    entry.each(&["item", "privateIpAddress"], &mut push(&mut interface.ipv4))?;
                }
                "ipv6AddressesSet" => entry.each(&["item", "ipv6Address"], &mut push(&mut interface.ipv6))?,
                _ => entry.skip()?,
            }
        }
        interface.device_index = index.parse().ok();
        Ok(interface)
    }
}

fn text(reader: &mut Reader<'_>) -> Result<String> {
    reader.text().map(Cow::into_owned)
}

/// Reads the text of an element into `to`.
fn set(to: &mut String) -> impl FnMut(&mut Reader<'_>) -> Result<()> {
    |reader| {
        *to = text(reader)?;
        Ok(())
    }
}

/// Adds the text of an element to `texts` where there is one.
fn push(texts: &mut Vec<String>) -> impl FnMut(&mut Reader<'_>) -> Result<()> {
    |reader| {
        texts.extend(Some(text(reader)?).filter(|text| !text.is_empty()));
        Ok(())
    }
}

/// A zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) id: String,
    /// `availability-zone`, `local-zone` or `wavelength-zone`.
    pub(crate) kind: String,
}

impl Zone {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        Ok(Self {
            name: required(element, &["zoneName"])?,
            id: element.text_of(&["zoneId"]).to_owned(),
            kind: element.text_of(&["zoneType"]).to_owned(),
        })
    }
}

/// The place of a machine in the network, from the top down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) instance: String,
    pub(crate) layers: Vec<String>,
}

impl Topology {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        let instance = required(element, &["instanceId"])?;
        Ok(Self { instance, layers: texts(element, &["networkNodeSet", "item"]) })
    }
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) zone: String,
    pub(crate) cidr: String,
    pub(crate) tags: Tags,
}

impl Subnet {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        Ok(Self {
            id: required(element, &["subnetId"])?,
            zone: required(element, &["availabilityZone"])?,
            cidr: required(element, &["cidrBlock"])?,
            tags: tags(element),
        })
    }
}

/// A route table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteTable {
    pub(crate) id: String,
    /// Subnets that use this table.
    pub(crate) subnets: Vec<String>,
    /// Whether the other subnets of the VPC use it.
    pub(crate) is_main: bool,
    pub(crate) routes: Vec<Route>,
    pub(crate) tags: Tags,
}

/// One route of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// An IPv4 or IPv6 range; none for a list of prefixes.
    pub(crate) destination: Option<String>,
    pub(crate) instance: Option<String>,
    /// `local`, or the ID of an internet gateway or of a virtual private gateway.
    pub(crate) gateway: Option<String>,
    pub(crate) is_blackhole: bool,
}

impl RouteTable {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        let route = |route: Element<'_>| Route {
            destination: optional(route, &["destinationCidrBlock"])
                .or_else(|| optional(route, &["destinationIpv6CidrBlock"])),
            instance: optional(route, &["instanceId"]),
            gateway: optional(route, &["gatewayId"]),
            is_blackhole: route.text_of(&["state"]) == "blackhole",
        };
        let mut associations = element.all(&["associationSet", "item"]);
        Ok(Self {
            id: required(element, &["routeTableId"])?,
            subnets: texts(element, &["associationSet", "item", "subnetId"]),
            is_main: associations.any(|association| association.text_of(&["main"]) == "true"),
            routes: element.all(&["routeSet", "item"]).map(route).collect(),
            tags: tags(element),
        })
    }
}

/// A security group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecurityGroup {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) tags: Tags,
    /// One entry for each source: EC2 sends the sources of a port together.
    pub(crate) rules: Vec<Rule>,
}

/// Who may send what to the members of a security group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) traffic: Traffic,
    pub(crate) source: Source,
    pub(crate) description: String,
}

/// A protocol with its ports, or with its types of messages for ICMP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Traffic {
    /// `tcp`, `udp`, `icmp`, or `-1` for all.
    pub(crate) protocol: String,
    /// First and last; none for all protocols.
    pub(crate) ports: Option<(i32, i32)>,
}

/// The source of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Range(Cidr),
    /// Members of the security group with this ID.
    Group(String),
    /// A list of prefixes, or a text that is not a range.
    Other(String),
}

impl SecurityGroup {
    pub(crate) fn read(element: Element<'_>) -> Result<Self> {
        Ok(Self {
            id: required(element, &["groupId"])?,
            name: required(element, &["groupName"])?,
            tags: tags(element),
            rules: element
                .all(&["ipPermissions", "item"])
                .map(rules)
                .collect::<Result<Vec<_>>>()?
                .into_iter()
                .flatten()
                .collect(),
        })
    }
}

fn rules(permission: Element<'_>) -> Result<Vec<Rule>> {
    let ports = match permission.text_of(&["fromPort"]) {
        "" => None,
        _ => Some((number(permission, &["fromPort"])?, number(permission, &["toPort"])?)),
    };
    let traffic = Traffic { protocol: required(permission, &["ipProtocol"])?, ports };
    let range = |text: String| text.parse().map_or(Source::Other(text), Source::Range);
    type Kind = (&'static str, &'static str, fn(String) -> Source);
    let kinds: [Kind; 4] = [
        ("ipRanges", "cidrIp", range),
        ("ipv6Ranges", "cidrIpv6", range),
        ("groups", "groupId", Source::Group),
        ("prefixListIds", "prefixListId", Source::Other),
    ];
    let mut rules = Vec::new();
    for (set, name, source) in kinds {
        for entry in permission.all(&[set, "item"]) {
            let description = entry.text_of(&["description"]).to_owned();
            rules.push(Rule { traffic: traffic.clone(), source: source(required(entry, &[name])?), description });
        }
    }
    Ok(rules)
}

//! Cluster IPs and node ports: the used ones, and the next free one.
//!
//! The next free one is used in order, so that a run is repeatable; a real API server draws at
//! random. The allocations follow the stored Services ([`Allocator::transfer`]), so a refused write
//! leaks nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde_json::Value;

use super::ApiOptions;
use super::errors::Cause;
use super::object::{list, text};

/// The allocations of Services.
#[derive(Debug)]
pub(crate) struct Allocator {
    ranges: Vec<IpNet>,
    node_ports: RangeInclusive<u16>,
    taken_ips: BTreeSet<IpAddr>,
    /// Number of uses of a port: one Service may use it for several protocols.
    taken_ports: BTreeMap<u16, usize>,
}

impl Allocator {
    pub(crate) fn new(options: &ApiOptions) -> Self {
        Self {
            ranges: options.service_cidrs.clone(),
            node_ports: options.node_ports.clone(),
            taken_ips: BTreeSet::new(),
            taken_ports: BTreeMap::new(),
        }
    }

    /// The families of the service ranges, the first one being the default.
    pub(crate) fn families(&self) -> impl Iterator<Item = &'static str> {
        self.ranges.iter().map(|r| if r.addr().is_ipv4() { "IPv4" } else { "IPv6" })
    }

    /// A free address of a family.
    pub(crate) fn next_ip(&self, family: &str) -> Option<IpAddr> {
        let range = self.ranges.iter().find(|r| r.addr().is_ipv4() == (family == "IPv4"))?;
        // The network address is not usable, and the first address belongs to the API server's
        // Service.
        (2..=u32::MAX).map(|offset| at(range, offset)).take_while(|ip| range.contains(ip)).find(|ip| self.is_free(ip))
    }

    fn is_free(&self, ip: &IpAddr) -> bool {
        !self.taken_ips.contains(ip)
    }

    /// A free node port that is not in `also_taken`.
    pub(crate) fn next_port(&self, also_taken: &BTreeSet<u16>) -> Option<u16> {
        self.node_ports.clone().find(|p| !self.taken_ports.contains_key(p) && !also_taken.contains(p))
    }

    /// Why an address that a Service asks for cannot be given.
    pub(crate) fn ip_fault(&self, ip: &str, field: &str) -> Option<Cause> {
        let parsed: IpAddr = ip.parse().ok()?;
        let value = Value::from(ip);
        if !self.ranges.iter().any(|r| r.contains(&parsed)) {
            let ranges: Vec<_> = self.ranges.iter().map(ToString::to_string).collect();
            let detail = format!(
                "failed to allocate IP {ip}: the provided IP ({ip}) is not in the valid range. The range of valid IPs \
                 is {}",
                ranges.join(",")
            );
            return Some(Cause::invalid(field, &value, &detail));
        }
        (!self.is_free(&parsed)).then(|| {
            let detail = format!("failed to allocate IP {ip}: provided IP is already allocated");
            Cause::invalid(field, &value, &detail)
        })
    }

    /// Why a node port that a Service asks for cannot be given.
    pub(crate) fn port_fault(&self, port: i64, field: &str) -> Option<Cause> {
        let value = Value::from(port);
        match u16::try_from(port).ok().filter(|p| self.node_ports.contains(p)) {
            None => {
                let (first, last) = (self.node_ports.start(), self.node_ports.end());
                let detail =
                    format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
                Some(Cause::invalid(field, &value, &detail))
            }
            Some(port) => self
                .taken_ports
                .contains_key(&port)
                .then(|| Cause::invalid(field, &value, "provided port is already allocated")),
        }
    }

    /// Follows a write: releases the allocations of the old Service and takes those of the new one.
    pub(crate) fn transfer(&mut self, old: Option<&Value>, new: Option<&Value>) {
        if let Some(old) = old {
            for ip in ips(old) {
                self.taken_ips.remove(&ip);
            }
            for port in ports(old) {
                match self.taken_ports.get_mut(&port) {
                    Some(claims) if *claims > 1 => *claims -= 1,
                    _ => {
                        self.taken_ports.remove(&port);
                    }
                }
            }
        }
        if let Some(new) = new {
            self.taken_ips.extend(ips(new));
            for port in ports(new) {
                *self.taken_ports.entry(port).or_insert(0) += 1;
            }
        }
    }
}

fn at(range: &IpNet, offset: u32) -> IpAddr {
    match range.network() {
        IpAddr::V4(base) => IpAddr::V4(Ipv4Addr::from_bits(base.to_bits().wrapping_add(offset))),
        IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from_bits(base.to_bits().wrapping_add(u128::from(offset)))),
    }
}

fn ips(service: &Value) -> impl Iterator<Item = IpAddr> {
    list(service, "/spec/clusterIPs").iter().filter_map(|ip| ip.as_str()?.parse().ok())
}

/// Every node port of a Service, including its health-check port.
pub(crate) fn ports(service: &Value) -> Vec<u16> {
    if !matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer") {
        return Vec::new();
    }
    list(service, "/spec/ports")
        .iter()
        .map(|p| p.get("nodePort"))
        .chain([service.pointer("/spec/healthCheckNodePort")])
        .filter_map(|p| u16::try_from(p?.as_u64()?).ok())
        .filter(|p| *p > 0)
        .collect()
}

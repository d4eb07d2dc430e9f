"""The cloud provider example.

This first version needs no cloud: load balancers get an address of a pool, two Services may get the
same one, no traffic flows, and every node has an instance. Replace the functions one by one by
requests to the cloud; the README of skysail_provider shows how.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from zlib import crc32

import skysail_provider
from skysail_provider import (
    INI,
    Detail,
    Info,
    Ingress,
    Instance,
    LoadBalancerStatus,
    NodeAddress,
    NodeSet,
    Problem,
    ProviderError,
    Service,
    default_load_balancer_name,
    load_config,
)

# Begins the provider IDs of this cloud's machines: example://ID.
SCHEME = "example"
# The documentation range of RFC 5737.
POOL = IPv4Network("203.0.113.0/24")


def parse(text: str) -> tuple[IPv4Network, Sequence[Problem]]:
    """Reads the cloud-config: `[LoadBalancer] pool = CIDR`, an IPv4 range."""
    ini = INI(text)
    pool = ini.read("LoadBalancer", "pool", IPv4Network)
    return pool or POOL, ini.problems()


class Identity(skysail_provider.Identity):
    """Describes the provider."""

    def describe(self) -> Info:
        return Info(
            name=SCHEME, version="0.1.0", description="Addresses of a pool, without a cloud"
        )

    def check_config(self, text: str) -> Sequence[Problem]:
        return parse(text)[1]

    def origins(self, text: str) -> Sequence[str]:
        """The scheme, host and port of the cloud's API: no API yet."""
        return []


class Instances(skysail_provider.Instances):
    """The machines behind nodes."""

    def describe(self, nodes: NodeSet, detail: Detail) -> Sequence[Instance | ProviderError]:
        """Answers for each node, in the order of the nodes.

        NotFound(…) in place of an instance deletes the node.
        """
        return [
            Instance(
                provider_id=f"{SCHEME}://{name}",
                addresses=[NodeAddress("InternalIP", address) for address in addresses],
            )
            for name, addresses in zip(nodes.names(), nodes.addresses("InternalIP"), strict=True)
        ]


class LoadBalancers(skysail_provider.LoadBalancers):
    """The load balancers of Services."""

    def name(self, cluster: str, service: Service) -> str:
        return default_load_balancer_name(service)

    def get(self, cluster: str, service: Service) -> LoadBalancerStatus | None:
        """Returns None if the cloud has no load balancer for the Service."""
        return status(service)

    def ensure(self, cluster: str, service: Service, nodes: NodeSet) -> LoadBalancerStatus:
        """The host repeats this after failures and restarts.

        Look for what exists before creating.
        """
        return status(service)

    def update(self, cluster: str, service: Service, nodes: NodeSet) -> None:
        pass

    def ensure_deleted(self, cluster: str, service: Service) -> None:
        pass


def status(service: Service) -> LoadBalancerStatus:
    """The status of the Service's load balancer."""
    ip = address(load_config(parse), service.uid)
    return LoadBalancerStatus([Ingress(ip=str(ip))])


def address(pool: IPv4Network, uid: str) -> IPv4Address:
    """Selects an address of the pool by the Service's UID."""
    return pool[crc32(uid.encode()) % pool.num_addresses]

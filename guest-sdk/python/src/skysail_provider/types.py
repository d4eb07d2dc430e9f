"""The types of the contract, with the names and the spelling of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

AddressType = str
"""Kubernetes' type of a node address: Hostname, InternalIP, ExternalIP, InternalDNS, ExternalDNS,
or a type of the cloud's own."""
TransportProtocol = Literal["TCP", "UDP", "SCTP"]
IPFamily = Literal["IPv4", "IPv6"]
IPFamilyPolicy = Literal["SingleStack", "PreferDualStack", "RequireDualStack"]
TrafficPolicy = Literal["Cluster", "Local"]
IPMode = Literal["VIP", "Proxy"]
Detail = Literal["state", "metadata"]
""""state" asks for existence and `shutdown` only; "metadata" for every field."""


@dataclass(slots=True)
class NodeAddress:
    """An address of a node."""

    type: AddressType
    address: str


@dataclass(slots=True)
class Node:
    """A node of the cluster."""

    name: str
    uid: str = ""
    provider_id: str | None = None
    """None before the node is initialised."""
    addresses: list[NodeAddress] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    pod_cidrs: list[str] = field(default_factory=list)
    ready: bool = True
    extra: dict[str, str] = field(default_factory=dict)


class NodeSet(Protocol):
    """The nodes of a call, sorted by name.

    The nodes stay with the host until a function asks for them: ask for columns of all nodes where
    one field is enough.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Node:
        """One whole node."""
        ...

    def __iter__(self) -> Iterator[Node]:
        """Every whole node."""
        ...

    def digest(self) -> int:
        """Equal digests mean equal sets."""
        ...

    def names(self) -> list[str]: ...

    def provider_ids(self) -> list[str | None]:
        """None for a node that is not initialised."""
        ...

    def addresses(self, type: AddressType) -> list[list[str]]:
        """All addresses of one type of each node."""
        ...

    def label(self, key: str) -> list[str | None]:
        """The value of a label of each node; None where the node does not have the label."""
        ...


@dataclass(slots=True, kw_only=True)
class Info:
    """Describes a provider."""

    name: str
    """At most 63 lower-case letters, digits and dashes."""
    version: str
    description: str
    provider_id_schemes: list[str] | None = None
    """Schemes of the provider IDs; None for the name. An empty list: the operator claims
    prefixes."""
    has_cluster_id: bool = True
    """False for a provider that works without a name of the cluster."""
    serial_load_balancers: bool = False
    """Asks for one call about load balancers at a time."""
    page_nodes: int | None = None
    """The most nodes that `Instances.describe` gets at once: 1 to 500, the default."""
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Problem:
    """A finding about a cloud-config."""

    severity: Literal["fatal", "warning"]
    """"fatal" refuses the cloud-config; "warning" does not prevent calls."""
    line: int
    """From 1; 0 where no line is to blame."""
    key: str
    """`Section.key`."""
    message: str


@dataclass(slots=True, kw_only=True)
class Instance:
    """The machine behind a node. Absent texts are empty."""

    provider_id: str = ""
    """Empty only with `without_provider_id`."""
    shutdown: bool = False
    instance_type: str = ""
    zone: str = ""
    region: str = ""
    addresses: list[NodeAddress] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    without_provider_id: bool = False
    """The cloud has no IDs of machines."""
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ServicePort:
    """A port of a Service."""

    port: int
    name: str = ""
    protocol: TransportProtocol = "TCP"
    app_protocol: str | None = None
    node_port: int = 0
    """0 where none is allocated."""
    target_port: str = ""
    """A number or a name."""
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PortStatus:
    """The state of one port of an `Ingress`."""

    port: int
    protocol: TransportProtocol
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class Ingress:
    """One address of a load balancer: an IP or a host name."""

    ip: str | None = None
    hostname: str | None = None
    ip_mode: IPMode | None = None
    ports: list[PortStatus] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class LoadBalancerStatus:
    """What Kubernetes shows of a load balancer."""

    ingress: list[Ingress]


@dataclass(slots=True, kw_only=True)
class Service:
    """A Service of type LoadBalancer."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    ports: list[ServicePort] = field(default_factory=list)
    client_ip_timeout_seconds: int = 0
    """Timeout of the session affinity ClientIP; 0 without affinity."""
    load_balancer_ip: str | None = None
    load_balancer_class: str | None = None
    source_ranges: list[str] = field(default_factory=list)
    external_ips: list[str] = field(default_factory=list)
    external_traffic_policy: TrafficPolicy = "Cluster"
    internal_traffic_policy: TrafficPolicy = "Cluster"
    health_check_node_port: int = 0
    """0 where the Service has none."""
    ip_families: list[IPFamily] = field(default_factory=list)
    ip_family_policy: IPFamilyPolicy | None = None
    allocate_node_ports: bool = True
    status: LoadBalancerStatus = field(default_factory=lambda: LoadBalancerStatus([]))
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ServiceRef:
    """Names a Service."""

    namespace: str
    name: str
    uid: str


@dataclass(slots=True, kw_only=True)
class Owned:
    """A load balancer that the cluster owns."""

    name: str
    service: ServiceRef | None = None
    """None where the cloud does not know the Service."""
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class NodeTarget:
    """A route leads to the node with this name."""

    name: str


@dataclass(slots=True)
class ProviderIDTarget:
    """A route leads to the node with this provider ID."""

    provider_id: str


@dataclass(slots=True)
class AddressTarget:
    """A route leads to the node with this address."""

    address: str


Target = NodeTarget | ProviderIDTarget | AddressTarget | None
"""What a route leads to; None where the cloud does not say."""


@dataclass(slots=True, kw_only=True)
class Route:
    """A route of the cloud."""

    name: str
    """The cloud's name of the route."""
    target: Target
    destination_cidr: str
    target_addresses: list[NodeAddress] = field(default_factory=list)
    blackhole: bool = False
    """The target of the route no longer exists."""
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class NewRoute:
    """A route that a node needs."""

    name_hint: str
    node: str
    provider_id: str | None
    addresses: list[NodeAddress]
    destination_cidr: str
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class PersistentVolume:
    """A volume without topology labels."""

    name: str
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    storage_class: str = ""
    source: str = ""
    """A field of `spec`: `csi`, `flexVolume`, …"""
    driver: str = ""
    handle: str = ""
    """The cloud's ID of the volume."""
    attributes: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)

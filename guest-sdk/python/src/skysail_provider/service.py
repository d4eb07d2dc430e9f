"""What most providers do with a Service, with nodes and with provider IDs."""

from __future__ import annotations

import ipaddress
import re

from .errors import Invalid
from .text import quoted
from .types import IPFamily, NodeSet, Service

_NAME_MAX = 32

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def default_load_balancer_name(service: Service) -> str:
    """Upstream's name of a Service's load balancer."""
    return f"a{service.uid.replace('-', '')}"[:_NAME_MAX]


def service_key(service: Service) -> str:
    """`namespace/name`."""
    return f"{service.namespace}/{service.name}"


def families(service: Service) -> list[IPFamily]:
    """The IP families of the Service; IPv4 where it names none."""
    return service.ip_families or ["IPv4"]


def allowed_sources(service: Service) -> list[Network]:
    """The source ranges as a sorted set, IPv4 first.

    Every address of the Service's families where the Service names no range.
    """
    everything = ["::/0" if family == "IPv6" else "0.0.0.0/0" for family in families(service)]
    ranges = {_network(text.strip()) for text in service.source_ranges or everything}
    return sorted(
        ranges, key=lambda range: (range.version, int(range.network_address), range.prefixlen)
    )


# `ip_network` reads more than CIDRs, such as an address alone and a netmask.
_CIDR = re.compile(r"[\d.]+/\d{1,2}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/\d{1,3}", re.ASCII)


def _network(text: str) -> Network:
    try:
        if _CIDR.fullmatch(text):
            return ipaddress.ip_network(text, strict=False)
    except ValueError:
        pass
    raise Invalid(f"{quoted(text)} is not a CIDR such as 10.0.0.0/8")


def internal_ips(nodes: NodeSet, family: IPFamily) -> list[str]:
    """The first internal IP of this family of each node that has one."""
    is_of = is_ipv4 if family == "IPv4" else is_ipv6
    firsts = (next(filter(is_of, addresses), None) for addresses in nodes.addresses("InternalIP"))
    return [first for first in firsts if first is not None]


def is_ipv4(text: str) -> bool:
    """Whether the text is an IPv4 address in four decimal parts."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def is_ipv6(text: str) -> bool:
    """Whether the text, an address that Kubernetes has accepted, is of IPv6."""
    return ":" in text


def parse_provider_id(scheme: str, provider_id: str) -> str | Invalid:
    """What follows `scheme://`.

    For another provider ID the error `Invalid`, which is returned because it is about its node
    alone.
    """
    start = f"{scheme}://"
    if provider_id.startswith(start) and len(provider_id) > len(start):
        return provider_id[len(start) :]
    return Invalid(f"provider ID {quoted(provider_id)} does not have the form {scheme}://<id>")

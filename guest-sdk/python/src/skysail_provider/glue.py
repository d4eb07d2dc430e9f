"""Between the contract as componentize-py passes it and the types of this SDK.

The entry that `skysail-componentize-py` makes exports the classes that these functions return. The
modules of `wit_world` exist for the interfaces of a component only, so that each function imports
its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from componentize_py_types import Err, Ok, Result
from wit_world.imports import types as contract

from . import host
from . import types as sdk
from .errors import Internal, ProviderError, RetryAfter
from .interfaces import (
    Identity,
    Instances,
    LoadBalancerInventory,
    LoadBalancers,
    PersistentVolumeLabels,
    Routes,
)
from .text import well_formed

T = TypeVar("T")
U = TypeVar("U")

Pairs = list[tuple[str, str]]


class WrongType(TypeError):
    """What a provider returned is not of the type that this SDK declares.

    The path grows on the way out, so that it costs nothing where all is well.
    """

    def __init__(self, path: str, wanted: str, value: object) -> None:
        super().__init__()
        self.path = path
        self.wanted = wanted
        self.value = value

    def __str__(self) -> str:
        return f"{self.path} is not {self.wanted}: {_shown(self.value)}"


class Uncaught(Exception):
    """Ends a call; the contract has no error for a bug."""


_SHOWN_MAX = 200


def _shown(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:
        # The provider's own code: the type alone is shown.
        shown = f"a value of the type {type(value).__name__}"
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"


def _panic(error: BaseException) -> NoReturn:
    """Ends the call with a trap: the host shows the text of the log line as its reason."""
    frames = traceback.extract_tb(error.__traceback__)
    places = (
        f"\n  at {frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames)
    )
    own = [place for place in places if "/skysail_provider/glue.py:" not in place]
    described = "".join(traceback.format_exception_only(error)).strip()
    text = well_formed(f"uncaught {described}{''.join(own)}")
    host.current().log("error", text, [("panic", "true")])
    raise Uncaught(text) from None


def _total(call: Callable[..., T]) -> Callable[..., T]:
    """A function whose result in the contract has no error."""

    def total(*arguments: Any) -> T:
        try:
            return call(*arguments)
        except BaseException as error:
            _panic(error)

    return total


def _fallible(call: Callable[..., T]) -> Callable[..., T]:
    """A function whose result in the contract has an error: it raises the contract's."""

    def fallible(*arguments: Any) -> T:
        try:
            return call(*arguments)
        except BaseException as error:
            failure = _known(error)
        raise Err(_from_error(failure))

    return fallible


def _known(error: BaseException) -> ProviderError:
    """The error of a provider; a result of a wrong type is `Internal`."""
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, WrongType):
        return Internal(str(error))
    _panic(error)


# More than an hour is an hour to the host.
_WAIT_MAX_MS = 3_600_000

_ERRORS: dict[str, Callable[[str], contract.Error]] = {
    "not-found": contract.Error_NotFound,
    "implemented-elsewhere": contract.Error_ImplementedElsewhere,
    "unsupported": contract.Error_Unsupported,
    "invalid": contract.Error_Invalid,
    "denied": contract.Error_Denied,
    "exhausted": contract.Error_Exhausted,
    "unavailable": contract.Error_Unavailable,
    "internal": contract.Error_Internal,
}


def _from_error(error: ProviderError) -> contract.Error:
    message = well_formed(str(error))
    if isinstance(error, RetryAfter):
        wait = host.milliseconds(error.seconds, _WAIT_MAX_MS)
        return contract.Error_RetryAfter(contract.Retry(wait, message))
    return _ERRORS[error.code](message)


# === values of a provider ===


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise WrongType(where, "a str", value)
    return well_formed(value)


def _optional_text(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


def _integer(value: object, where: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise WrongType(where, f"a whole number from 0 to {most}", value)
    return value


def _flag(value: object, where: str) -> bool:
    """A value that JSON may have as a text: "false" is not false."""
    if not isinstance(value, bool):
        raise WrongType(where, "a bool", value)
    return value


def _of(value: object, wanted: type[T], where: str = "") -> T:
    if not isinstance(value, wanted):
        raise WrongType(where, f"of the type {wanted.__name__}", value)
    return value


def _each(values: object, where: str, convert: Callable[[Any], U]) -> list[U]:
    """Every element; `where` begins the names of what is in them."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise WrongType(where, "a list", values)
    converted: list[U] = []
    try:
        # By append, which knows the place of a wrong element.
        for value in values:
            converted.append(convert(value))  # noqa: PERF401
    except WrongType as error:
        error.path = f"{where}[{len(converted)}]{error.path}"
        raise
    return converted


def _one_of(names: Mapping[str, T], value: object, where: str) -> T:
    found = names.get(value) if isinstance(value, str) else None
    if found is None:
        raise WrongType(where, f"one of {', '.join(names)}", value)
    return found


def _pairs(fields: object, where: str) -> Pairs:
    if not isinstance(fields, Mapping):
        raise WrongType(where, "a dict", fields)
    for key, value in fields.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise WrongType(f"{where}[{_shown(key)}]", "a str", value)
    return sorted((well_formed(key), well_formed(value)) for key, value in fields.items())


def _nothing(value: object, where: str) -> None:
    if value is not None:
        raise WrongType(where, "None", value)


def _result(convert: Callable[[Any], U]) -> Callable[[Any], Result[U, contract.Error]]:
    """The result of one element; a value of a wrong type is an error of this element alone."""

    def result(value: object) -> Result[U, contract.Error]:
        if isinstance(value, ProviderError):
            return Err(_from_error(value))
        try:
            return Ok(convert(value))
        except WrongType as error:
            error.path = f"the result of a node{error.path}"
            return Err(_from_error(_known(error)))

    return result


def _unit(value: object) -> Result[None, contract.Error]:
    if value is None:
        return Ok(None)
    if isinstance(value, ProviderError):
        return Err(_from_error(value))
    wrong = WrongType("the result of a route", "None or a ProviderError", value)
    return Err(_from_error(_known(wrong)))


# === types of the contract in both directions ===

_PROTOCOLS = {protocol.name: protocol for protocol in contract.Protocol}
_IP_MODES = {"VIP": contract.IpMode.VIP, "Proxy": contract.IpMode.PROXY}
_KINDS: dict[str, contract.AddressKind] = {
    "Hostname": contract.AddressKind_Hostname(),
    "InternalIP": contract.AddressKind_InternalIp(),
    "ExternalIP": contract.AddressKind_ExternalIp(),
    "InternalDNS": contract.AddressKind_InternalDns(),
    "ExternalDNS": contract.AddressKind_ExternalDns(),
}
_TYPES = {type(kind): name for name, kind in _KINDS.items()}
_MODES: dict[contract.IpMode, sdk.IPMode] = {
    contract.IpMode.VIP: "VIP",
    contract.IpMode.PROXY: "Proxy",
}
_TRANSPORTS: dict[contract.Protocol, sdk.TransportProtocol] = {
    contract.Protocol.TCP: "TCP",
    contract.Protocol.UDP: "UDP",
    contract.Protocol.SCTP: "SCTP",
}
_FAMILIES: dict[contract.IpFamily, sdk.IPFamily] = {
    contract.IpFamily.IPV4: "IPv4",
    contract.IpFamily.IPV6: "IPv6",
}
_POLICIES: dict[contract.TrafficPolicy, sdk.TrafficPolicy] = {
    contract.TrafficPolicy.CLUSTER: "Cluster",
    contract.TrafficPolicy.LOCAL: "Local",
}
_FAMILY_POLICIES: dict[contract.IpFamilyPolicy, sdk.IPFamilyPolicy] = {
    contract.IpFamilyPolicy.SINGLE_STACK: "SingleStack",
    contract.IpFamilyPolicy.PREFER_DUAL_STACK: "PreferDualStack",
    contract.IpFamilyPolicy.REQUIRE_DUAL_STACK: "RequireDualStack",
}


def _kind(type: str) -> contract.AddressKind:
    return _KINDS.get(type) or contract.AddressKind_Other(well_formed(type))


def _to_address(address: contract.NodeAddress) -> sdk.NodeAddress:
    kind = address.kind
    other = kind.value if isinstance(kind, contract.AddressKind_Other) else ""
    return sdk.NodeAddress(_TYPES.get(type(kind), other), address.address)


def _from_address(value: object) -> contract.NodeAddress:
    address = _of(value, sdk.NodeAddress)
    return contract.NodeAddress(
        _kind(_text(address.type, ".type")), _text(address.address, ".address")
    )


class Nodes:
    """The nodes of a call, read when they are asked for."""

    def __init__(self, held: contract.NodeSet) -> None:
        self._held = held

    def __len__(self) -> int:
        return self._held.len()

    def __getitem__(self, index: int) -> sdk.Node:
        place = index + len(self) if index < 0 else index
        node = self._held.get(place) if 0 <= place < 2**32 else None
        if node is None:
            raise IndexError(f"there is no node {index}")
        return sdk.Node(
            name=node.name,
            uid=node.uid,
            provider_id=node.provider_id,
            addresses=[_to_address(address) for address in node.addresses],
            labels=dict(node.labels),
            annotations=dict(node.annotations),
            pod_cidrs=node.pod_cidrs,
            ready=node.ready,
            extra=dict(node.extra),
        )

    def __iter__(self) -> Iterator[sdk.Node]:
        return (self[index] for index in range(len(self)))

    def digest(self) -> int:
        """Equal digests mean equal sets."""
        return self._held.digest()

    def names(self) -> list[str]:
        """The name of each node."""
        return self._held.names()

    def provider_ids(self) -> list[str | None]:
        """The provider ID of each node."""
        return self._held.provider_ids()

    def addresses(self, type: str) -> list[list[str]]:
        """All addresses of one type of each node."""
        return self._held.addresses(_kind(type))

    def label(self, key: str) -> list[str | None]:
        """The value of a label of each node."""
        return self._held.label(well_formed(key))


def _to_status(status: contract.LoadBalancerStatus) -> sdk.LoadBalancerStatus:
    return sdk.LoadBalancerStatus(
        [
            sdk.Ingress(
                ip=ingress.ip,
                hostname=ingress.hostname,
                ip_mode=None if ingress.ip_mode is None else _MODES[ingress.ip_mode],
                ports=[
                    sdk.PortStatus(port.port, _TRANSPORTS[port.protocol], port.error)
                    for port in ingress.ports
                ],
                extra=dict(ingress.extra),
            )
            for ingress in status.ingress
        ]
    )


def _from_port_status(value: object) -> contract.PortStatus:
    status = _of(value, sdk.PortStatus)
    return contract.PortStatus(
        _integer(status.port, ".port", 0xFFFF),
        _one_of(_PROTOCOLS, status.protocol, ".protocol"),
        _optional_text(status.error, ".error"),
    )


def _from_ingress(value: object) -> contract.Ingress:
    ingress = _of(value, sdk.Ingress)
    mode = ingress.ip_mode
    return contract.Ingress(
        ip=_optional_text(ingress.ip, ".ip"),
        hostname=_optional_text(ingress.hostname, ".hostname"),
        ip_mode=None if mode is None else _one_of(_IP_MODES, mode, ".ip_mode"),
        ports=_each(ingress.ports, ".ports", _from_port_status),
        extra=_pairs(ingress.extra, ".extra"),
    )


def _from_status(value: object, where: str) -> contract.LoadBalancerStatus:
    status = _of(value, sdk.LoadBalancerStatus, where)
    return contract.LoadBalancerStatus(_each(status.ingress, f"{where}.ingress", _from_ingress))


def _to_port(port: contract.ServicePort) -> sdk.ServicePort:
    return sdk.ServicePort(
        port=port.port,
        name=port.name,
        protocol=_TRANSPORTS[port.protocol],
        app_protocol=port.app_protocol,
        node_port=port.node_port,
        target_port=port.target_port,
        extra=dict(port.extra),
    )


def _to_service(service: contract.Service) -> sdk.Service:
    affinity = service.session_affinity
    policy = service.ip_family_policy
    return sdk.Service(
        namespace=service.namespace,
        name=service.name,
        uid=service.uid,
        labels=dict(service.labels),
        annotations=dict(service.annotations),
        ports=[_to_port(port) for port in service.ports],
        client_ip_timeout_seconds=(
            affinity.value if isinstance(affinity, contract.SessionAffinity_ClientIp) else 0
        ),
        load_balancer_ip=service.load_balancer_ip,
        load_balancer_class=service.load_balancer_class,
        source_ranges=service.source_ranges,
        external_ips=service.external_ips,
        external_traffic_policy=_POLICIES[service.external_traffic_policy],
        internal_traffic_policy=_POLICIES[service.internal_traffic_policy],
        health_check_node_port=service.health_check_node_port,
        ip_families=[_FAMILIES[family] for family in service.ip_families],
        ip_family_policy=None if policy is None else _FAMILY_POLICIES[policy],
        allocate_node_ports=service.allocate_node_ports,
        status=_to_status(service.status),
        extra=dict(service.extra),
    )


# === the interfaces ===


def identity(provider: Identity) -> type:
    """The interface `identity`."""
    from wit_world.exports import identity as exported

    severities = {"fatal": exported.Severity.FATAL, "warning": exported.Severity.WARNING}

    def problem(value: object) -> exported.Problem:
        found = _of(value, sdk.Problem)
        return exported.Problem(
            severity=_one_of(severities, found.severity, ".severity"),
            line=_integer(found.line, ".line", 2**32 - 1),
            key=_text(found.key, ".key"),
            message=_text(found.message, ".message"),
        )

    def describe(_self: object) -> exported.Info:
        info = _of(provider.describe(), sdk.Info, "the result of describe")
        schemes = [info.name] if info.provider_id_schemes is None else info.provider_id_schemes
        extra = dict(info.extra)
        if info.page_nodes is not None:
            extra["page-nodes"] = str(_integer(info.page_nodes, "Info.page_nodes", 500))
        return exported.Info(
            name=_text(info.name, "Info.name"),
            version=_text(info.version, "Info.version"),
            description=_text(info.description, "Info.description"),
            provider_id_schemes=_each(schemes, "Info.provider_id_schemes", _element),
            has_cluster_id=_flag(info.has_cluster_id, "Info.has_cluster_id"),
            serial_load_balancers=_flag(info.serial_load_balancers, "Info.serial_load_balancers"),
            extra=_pairs(extra, "Info.extra"),
        )

    def check_config(_self: object, text: str) -> list[exported.Problem]:
        return _each(provider.check_config(text), "the result of check_config", problem)

    def origins(_self: object, text: str) -> list[str]:
        return _each(provider.origins(text), "the result of origins", _element)

    functions: dict[str, Callable[..., Any]] = {
        "describe": describe,
        "check_config": check_config,
        "origins": origins,
    }
    return type("Identity", (), {name: _total(call) for name, call in functions.items()})


def _element(value: object) -> str:
    return _text(value, "")


def instances(provider: Instances) -> type:
    """The interface `instances`."""
    from wit_world.exports import instances as exported

    details: dict[exported.Detail, sdk.Detail] = {
        exported.Detail.STATE: "state",
        exported.Detail.METADATA: "metadata",
    }

    def instance(value: object) -> exported.Instance:
        found = _of(value, sdk.Instance)
        extra = _pairs(found.extra, ".extra")
        if _flag(found.without_provider_id, ".without_provider_id"):
            extra.append(("without-provider-id", "true"))
        return exported.Instance(
            provider_id=_text(found.provider_id, ".provider_id"),
            shutdown=_flag(found.shutdown, ".shutdown"),
            instance_type=_text(found.instance_type, ".instance_type"),
            zone=_text(found.zone, ".zone"),
            region=_text(found.region, ".region"),
            addresses=_each(found.addresses, ".addresses", _from_address),
            labels=_pairs(found.labels, ".labels"),
            extra=extra,
        )

    convert = _result(instance)

    def describe(
        _self: object, nodes: contract.NodeSet, detail: exported.Detail
    ) -> list[Result[exported.Instance, contract.Error]]:
        found = provider.describe(Nodes(nodes), details[detail])
        return _each(found, "the result of describe", convert)

    return type("Instances", (), {"describe": _fallible(describe)})


def load_balancers(provider: LoadBalancers) -> type:
    """The interface `load-balancers`."""

    def name(_self: object, cluster: str, service: contract.Service) -> str:
        return _text(provider.name(cluster, _to_service(service)), "the result of name")

    def get(
        _self: object, cluster: str, service: contract.Service
    ) -> contract.LoadBalancerStatus | None:
        status = provider.get(cluster, _to_service(service))
        return None if status is None else _from_status(status, "the result of get")

    def ensure(
        _self: object, cluster: str, service: contract.Service, nodes: contract.NodeSet
    ) -> contract.LoadBalancerStatus:
        status = provider.ensure(cluster, _to_service(service), Nodes(nodes))
        return _from_status(status, "the result of ensure")

    def update(
        _self: object, cluster: str, service: contract.Service, nodes: contract.NodeSet
    ) -> None:
        update: Callable[..., object] = provider.update
        _nothing(update(cluster, _to_service(service), Nodes(nodes)), "the result of update")

    def ensure_deleted(_self: object, cluster: str, service: contract.Service) -> None:
        ensure_deleted: Callable[..., object] = provider.ensure_deleted
        _nothing(ensure_deleted(cluster, _to_service(service)), "the result of ensure_deleted")

    functions: dict[str, Callable[..., Any]] = {
        "name": _total(name),
        "get": _fallible(get),
        "ensure": _fallible(ensure),
        "update": _fallible(update),
        "ensure_deleted": _fallible(ensure_deleted),
    }
    return type("LoadBalancers", (), functions)


def load_balancer_inventory(provider: LoadBalancerInventory) -> type:
    """The interface `load-balancer-inventory`."""
    from wit_world.exports import load_balancer_inventory as exported

    def owned(value: object) -> exported.Owned:
        found = _of(value, sdk.Owned)
        service = found.service
        names = None
        if service is not None:
            _of(service, sdk.ServiceRef, ".service")
            names = (
                _text(service.namespace, ".service.namespace"),
                _text(service.name, ".service.name"),
                _text(service.uid, ".service.uid"),
            )
        return exported.Owned(_text(found.name, ".name"), names, _pairs(found.extra, ".extra"))

    def list_(_self: object, cluster: str) -> list[exported.Owned]:
        return _each(provider.list(cluster), "the result of list", owned)

    def delete(
        _self: object, cluster: str, name: str, service: tuple[str, str, str] | None
    ) -> None:
        delete: Callable[..., object] = provider.delete
        named = None if service is None else sdk.ServiceRef(*service)
        _nothing(delete(cluster, name, named), "the result of delete")

    functions = {"list": _fallible(list_), "delete": _fallible(delete)}
    return type("LoadBalancerInventory", (), functions)


def routes(provider: Routes) -> type:
    """The interface `routes`."""
    from wit_world.exports import routes as exported

    def to_target(target: exported.Target) -> sdk.Target:
        match target:
            case exported.Target_Node(name):
                return sdk.NodeTarget(name)
            case exported.Target_ProviderId(provider_id):
                return sdk.ProviderIDTarget(provider_id)
            case exported.Target_Address(address):
                return sdk.AddressTarget(address)
        return None

    def from_target(target: object) -> exported.Target:
        match target:
            case None:
                return exported.Target_None_()
            case sdk.NodeTarget(name):
                return exported.Target_Node(_text(name, ".target.name"))
            case sdk.ProviderIDTarget(provider_id):
                return exported.Target_ProviderId(_text(provider_id, ".target.provider_id"))
            case sdk.AddressTarget(address):
                return exported.Target_Address(_text(address, ".target.address"))
        raise WrongType(".target", "None, a NodeTarget, ProviderIDTarget or AddressTarget", target)

    def from_route(value: object) -> exported.Route:
        route = _of(value, sdk.Route)
        return exported.Route(
            name=_text(route.name, ".name"),
            target=from_target(route.target),
            target_addresses=_each(route.target_addresses, ".target_addresses", _from_address),
            destination_cidr=_text(route.destination_cidr, ".destination_cidr"),
            blackhole=_flag(route.blackhole, ".blackhole"),
            extra=_pairs(route.extra, ".extra"),
        )

    def list_(_self: object, cluster: str) -> list[exported.Route]:
        return _each(provider.list(cluster), "the result of list", from_route)

    def create(
        _self: object, cluster: str, wanted: list[exported.NewRoute]
    ) -> list[Result[None, contract.Error]]:
        new = [
            sdk.NewRoute(
                name_hint=route.name_hint,
                node=route.node,
                provider_id=route.provider_id,
                addresses=[_to_address(address) for address in route.addresses],
                destination_cidr=route.destination_cidr,
                extra=dict(route.extra),
            )
            for route in wanted
        ]
        return _each(provider.create(cluster, new), "the result of create", _unit)

    def delete(
        _self: object, cluster: str, unwanted: list[exported.Route]
    ) -> list[Result[None, contract.Error]]:
        old = [
            sdk.Route(
                name=route.name,
                target=to_target(route.target),
                target_addresses=[_to_address(address) for address in route.target_addresses],
                destination_cidr=route.destination_cidr,
                blackhole=route.blackhole,
                extra=dict(route.extra),
            )
            for route in unwanted
        ]
        return _each(provider.delete(cluster, old), "the result of delete", _unit)

    functions: dict[str, Callable[..., Any]] = {"list": list_, "create": create, "delete": delete}
    return type("Routes", (), {name: _fallible(call) for name, call in functions.items()})


def persistent_volume_labels(provider: PersistentVolumeLabels) -> type:
    """The interface `persistent-volume-labels`."""
    from wit_world.exports import persistent_volume_labels as exported

    def labels(_self: object, cluster: str, volume: exported.PersistentVolume) -> Pairs:
        found = provider.labels(
            cluster,
            sdk.PersistentVolume(
                name=volume.name,
                uid=volume.uid,
                labels=dict(volume.labels),
                annotations=dict(volume.annotations),
                storage_class=volume.storage_class,
                source=volume.source,
                driver=volume.driver,
                handle=volume.handle,
                attributes=dict(volume.attributes),
                extra=dict(volume.extra),
            ),
        )
        return _pairs(found, "the result of labels")

    return type("PersistentVolumeLabels", (), {"labels": _fallible(labels)})

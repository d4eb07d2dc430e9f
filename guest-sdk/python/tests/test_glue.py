"""Between the contract and the SDK, natively: the bindings of componentize-py have all types."""

import sys
from pathlib import Path
from typing import Any
from unittest import TestCase

sys.path.insert(0, str(Path(__file__).parents[1] / "build/bindings"))

from componentize_py_types import Err, Ok
from wit_world.exports import instances as contract_instances
from wit_world.exports import routes as contract_routes
from wit_world.imports import types as contract

from skysail_provider import (
    AddressTarget,
    Info,
    Ingress,
    Instance,
    LoadBalancerStatus,
    NodeAddress,
    NodeTarget,
    NotFound,
    Owned,
    PortStatus,
    Problem,
    ProviderIDTarget,
    RetryAfter,
    Route,
    ServiceRef,
    glue,
)
from skysail_provider.testing import Host

STATE = contract_instances.Detail.STATE
SERVICE = contract.Service(
    namespace="default",
    name="web",
    uid="0a",
    labels=[("a", "b")],
    annotations=[],
    ports=[contract.ServicePort("http", contract.Protocol.TCP, None, 80, 30080, "8080", [])],
    session_affinity=contract.SessionAffinity_ClientIp(7),
    load_balancer_ip=None,
    load_balancer_class=None,
    source_ranges=[],
    external_ips=[],
    external_traffic_policy=contract.TrafficPolicy.LOCAL,
    internal_traffic_policy=contract.TrafficPolicy.CLUSTER,
    health_check_node_port=0,
    ip_families=[contract.IpFamily.IPV6],
    ip_family_policy=contract.IpFamilyPolicy.PREFER_DUAL_STACK,
    allocate_node_ports=True,
    status=contract.LoadBalancerStatus(
        [contract.Ingress("1.2.3.4", None, contract.IpMode.PROXY, [], [])]
    ),
    extra=[],
)


class Held(contract.NodeSet):
    """A set of one node."""

    def len(self) -> int:
        return 1

    def names(self) -> list[str]:
        return ["a"]

    def addresses(self, kind: contract.AddressKind) -> list[list[str]]:
        return [[repr(kind)]]

    def get(self, index: int) -> contract.Node | None:
        addresses = [
            contract.NodeAddress(contract.AddressKind_InternalIp(), "10.0.0.1"),
            contract.NodeAddress(contract.AddressKind_Other("Own"), "x"),
        ]
        node = contract.Node("a", "0a", None, addresses, [("l", "v")], [], ["p"], True, [])
        return None if index else node


class Provider:
    """A provider whose functions do what the test says."""

    def __init__(self, **functions: Any) -> None:
        vars(self).update(functions)


def exported(interface: str, **functions: Any) -> Any:
    """The interface of a provider with these functions, as the component exports it."""
    return getattr(glue, interface)(Provider(**functions))()


class Glue(TestCase):
    """The interfaces of a component."""

    def setUp(self) -> None:
        self.host = self.enterContext(Host())

    def outer(self, call: Any, *arguments: Any) -> Any:
        """The contract's error of a call."""
        with self.assertRaises(Err) as caught:
            call(*arguments)
        return caught.exception.value

    def internal(self, call: Any, *arguments: Any) -> str:
        """The text of an internal error."""
        error = self.outer(call, *arguments)
        self.assertIsInstance(error, contract.Error_Internal)
        return str(error.value)

    def described(self, *results: Any) -> list[Any]:
        """What the host gets of these results."""
        machines = exported("instances", describe=lambda _nodes, _detail: list(results))
        found: list[Any] = machines.describe(Held(), STATE)
        return found

    def test_what_a_provider_returns_in_a_wrong_shape_is_an_internal_error_that_names_it(
        self,
    ) -> None:
        machines = exported("instances", describe=lambda _nodes, _detail: None)
        said = self.internal(machines.describe, Held(), STATE)
        self.assertEqual(said, "the result of describe is not a list: None")
        addresses: Any = [NodeAddress("Hostname", "a"), NodeAddress("InternalIP", None)]  # type: ignore[arg-type]
        wrong: list[tuple[Any, str]] = [
            (None, " is not of the type Instance: None"),
            ({"provider_id": "x"}, " is not of the type Instance: {'provider_id': 'x'}"),
            (Instance(zone=7), ".zone is not a str: 7"),  # type: ignore[arg-type]
            # JSON of a cloud may have a text, which Python takes for true.
            (Instance(shutdown="false"), ".shutdown is not a bool: 'false'"),  # type: ignore[arg-type]
            (Instance(addresses=addresses), ".addresses[1].address is not a str: None"),
            (Instance(labels={"a": None}), ".labels['a'] is not a str: None"),  # type: ignore[dict-item]
            (Instance(labels=[]), ".labels is not a dict: []"),  # type: ignore[arg-type]
        ]
        for value, said in wrong:
            good, bad = self.described(Instance(provider_id="x://1"), value)
            self.assertIsInstance(good, Ok)
            self.assertEqual(bad.value.value, f"the result of a node{said}")

    def test_wrong_results_of_the_other_interfaces_name_their_place(self) -> None:
        def ensure(result: Any) -> str:
            balancers = exported("load_balancers", ensure=lambda *_: result)
            return self.internal(balancers.ensure, "", SERVICE, Held())

        start = "the result of ensure"
        self.assertEqual(ensure({}), f"{start} is not of the type LoadBalancerStatus: {{}}")
        status: Any = LoadBalancerStatus([Ingress(ip_mode="vip")])  # type: ignore[arg-type]
        said = f"{start}.ingress[0].ip_mode is not one of VIP, Proxy: 'vip'"
        self.assertEqual(ensure(status), said)
        status = LoadBalancerStatus([Ingress(ports=[PortStatus(70_000, "TCP")])])
        said = f"{start}.ingress[0].ports[0].port is not a whole number from 0 to 65535: 70000"
        self.assertEqual(ensure(status), said)
        updated = exported("load_balancers", update=lambda *_: True)
        said = "the result of update is not None: True"
        self.assertEqual(self.internal(updated.update, "", SERVICE, Held()), said)
        target: Any = "a"
        route = Route(name="a", target=target, destination_cidr="b")
        said = self.internal(exported("routes", list=lambda _cluster: [route]).list, "")
        self.assertRegex(
            said, r"^the result of list\[0\].target is not None, a NodeTarget, .*: 'a'$"
        )
        created = exported("routes", create=lambda *_: [True]).create("", [])
        said = "the result of a route is not None or a ProviderError: True"
        self.assertEqual(created[0].value.value, said)

    def test_an_exception_of_a_bug_ends_the_call_with_its_text_and_place(self) -> None:
        def bug(error: BaseException) -> Any:
            def ensure_deleted(_cluster: str, _service: Any) -> None:
                raise error

            return exported("load_balancers", ensure_deleted=ensure_deleted)

        bugs = [TypeError("a bug"), SystemExit(1), KeyboardInterrupt(), Err("not-found")]
        for error in bugs:
            with self.assertRaises(glue.Uncaught):
                bug(error).ensure_deleted("", SERVICE)
            line = self.host.logs.pop()
            self.assertTrue(line.startswith("error uncaught "), line)
            self.assertTrue(line.endswith(" panic=true"), line)
            self.assertRegex(line, r"\n  at ensure_deleted \(.*test_glue.py:\d+\)")
            self.assertNotIn("/skysail_provider/glue.py", line)

    def test_errors_of_a_provider_reach_the_host_as_the_contract_has_them(self) -> None:
        def fail(error: Exception) -> Any:
            def listed(_cluster: str) -> None:
                raise error

            return self.outer(exported("routes", list=listed).list, "")

        def waiting(seconds: float) -> int:
            wait: int = fail(RetryAfter("later", seconds)).value.after_ms
            return wait

        self.assertEqual([waiting(0.0016), waiting(-1), waiting(float("nan"))], [2, 0, 0])
        for seconds in (1e20, float("inf")):
            self.assertEqual(waiting(seconds), 3_600_000)
        self.assertEqual(fail(NotFound("\ud800")), contract.Error_NotFound("\ufffd"))
        results = exported("routes", create=lambda *_: [None, NotFound("x")]).create("", [])
        self.assertEqual(results, [Ok(None), Err(contract.Error_NotFound("x"))])

    def test_identity_has_the_defaults_of_the_contract(self) -> None:
        info = Info(name="x", version="1", description="d", page_nodes=250)
        identity = exported(
            "identity",
            describe=lambda: info,
            check_config=lambda _text: [Problem("fatal", 1, "A.b", "c")],
            origins=lambda _text: ["https://x"],
        )
        described = identity.describe()
        self.assertEqual(described.provider_id_schemes, ["x"])
        self.assertEqual(
            (described.has_cluster_id, described.extra), (True, [("page-nodes", "250")])
        )
        self.assertEqual(identity.check_config("")[0].severity.name, "FATAL")
        self.assertEqual(identity.origins(""), ["https://x"])
        with self.assertRaises(glue.Uncaught):
            exported("identity", describe=lambda: None).describe()

    def test_a_service_and_nodes_come_with_the_names_of_kubernetes(self) -> None:
        seen: list[Any] = []

        def ensure(_cluster: str, service: Any, nodes: Any) -> LoadBalancerStatus:
            seen.extend([service, list(nodes), nodes.addresses("InternalIP"), nodes[-1]])
            with self.assertRaises(IndexError):
                nodes[1]
            status: LoadBalancerStatus = service.status
            return status

        status = exported("load_balancers", ensure=ensure).ensure("", SERVICE, Held())
        self.assertEqual(status, SERVICE.status)
        service, (node,), addresses, last = seen
        self.assertEqual(service.client_ip_timeout_seconds, 7)
        self.assertEqual((service.labels, service.ip_families), ({"a": "b"}, ["IPv6"]))
        self.assertEqual(service.ip_family_policy, "PreferDualStack")
        policies = (service.external_traffic_policy, service.internal_traffic_policy)
        self.assertEqual(policies, ("Local", "Cluster"))
        self.assertEqual((service.ports[0].protocol, service.ports[0].node_port), ("TCP", 30080))
        kinds = [(address.type, address.address) for address in node.addresses]
        self.assertEqual(kinds, [("InternalIP", "10.0.0.1"), ("Own", "x")])
        self.assertEqual(
            (node.labels, addresses, last), ({"l": "v"}, [["AddressKind_InternalIp()"]], node)
        )

    def test_a_route_comes_back_as_it_was(self) -> None:
        for target in (NodeTarget("n"), ProviderIDTarget("p"), AddressTarget("a"), None):
            route = Route(name="r", target=target, destination_cidr="c", extra={"k": "v"})
            seen: list[Route] = []
            interface = exported(
                "routes",
                list=lambda _cluster, route=route: [route],
                delete=lambda _cluster, routes, seen=seen: seen.extend(routes) or [None],
            )
            listed: list[contract_routes.Route] = interface.list("")
            self.assertEqual(interface.delete("", listed), [Ok(None)])
            self.assertEqual(seen, [route])

    def test_the_inventory_and_volumes_pass_names_and_labels(self) -> None:
        deleted: list[Any] = []
        inventory = exported(
            "load_balancer_inventory",
            list=lambda _cluster: [
                Owned(name="a", service=ServiceRef("n", "s", "u")),
                Owned(name="b"),
            ],
            delete=lambda *arguments: deleted.extend(arguments),
        )
        self.assertEqual([owned.service for owned in inventory.list("c")], [("n", "s", "u"), None])
        inventory.delete("c", "a", ("n", "s", "u"))
        self.assertEqual(deleted, ["c", "a", ServiceRef("n", "s", "u")])
        labels = exported("persistent_volume_labels", labels=lambda *_: {"z": "1", "a": "2"})
        fields = dict.fromkeys(("name", "uid", "storage_class", "source", "driver", "handle"), "")
        lists: dict[str, Any] = {
            name: [] for name in ("labels", "annotations", "attributes", "extra")
        }
        volume = Provider(**fields, **lists)
        self.assertEqual(labels.labels("", volume), [("a", "2"), ("z", "1")])

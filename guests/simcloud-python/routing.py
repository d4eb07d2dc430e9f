"""Routes to the pods of each machine.

The cloud names the target of a route by the machine's ID.
"""

from collections.abc import Sequence

from api import CLUSTER_TAG, Record, list_all, load, owned
from machines import SCHEME, id_of

from skysail_provider import (
    API,
    Denied,
    NewRoute,
    NotFound,
    ProviderError,
    ProviderIDTarget,
    Request,
    Route,
    Routes,
    absent_ok,
    send_all,
)
from skysail_provider.text import quoted


class Routing(Routes):
    """Routes to the pod CIDRs of nodes."""

    def list(self, cluster: str) -> Sequence[Route]:
        """One list: the host finds the node of a machine."""
        return [
            Route(
                name=route["id"],
                target=ProviderIDTarget(f"{SCHEME}://{route['instance']}"),
                destination_cidr=route["destination_cidr"],
                blackhole=route["blackhole"],
            )
            for route in owned(load(), "routes", cluster)
        ]

    def create(self, cluster: str, routes: Sequence[NewRoute]) -> Sequence[ProviderError | None]:
        """One list, a second one where a node has no provider ID, and one request for each route.

        A route of this cluster to another machine is deleted first: pod CIDRs move when a node is
        created again.
        """
        cloud = load()
        present = owned(cloud, "routes", cluster)
        targets = machines_of(cloud, routes)
        results = [target if isinstance(target, ProviderError) else None for target in targets]
        stale: list[Record] = []
        missing: list[tuple[int, Request]] = []
        for index, (wanted, machine) in enumerate(zip(routes, targets, strict=True)):
            if isinstance(machine, ProviderError):
                continue
            cidr = wanted.destination_cidr
            there = [route for route in present if route["destination_cidr"] == cidr]
            stale += [route for route in there if route["instance"] != machine]
            if not any(route["instance"] == machine for route in there):
                missing.append((index, creation(cloud, cluster, wanted, machine)))
        for result in send_all([cloud.delete("v1", "routes", route["id"]) for route in stale]):
            absent_ok(result)
        created = send_all([request for _, request in missing])
        for (index, _), result in zip(missing, created, strict=True):
            results[index] = result if isinstance(result, ProviderError) else None
        return results

    def delete(self, cluster: str, routes: Sequence[Route]) -> Sequence[ProviderError | None]:
        """One list, then one request for each route. A missing route is a success.

        A route of another cluster is refused, because the name comes from the host and proves no
        ownership.
        """
        cloud = load()
        ours = {route["id"] for route in owned(cloud, "routes", cluster)}

        def request(route: Route) -> Request:
            method = "DELETE" if route.name in ours else "GET"
            return cloud.request(method, "v1", "routes", route.name)

        def result(route: Route, answer: object) -> ProviderError | None:
            if isinstance(answer, ProviderError):
                return None if isinstance(answer, NotFound) else answer
            if route.name in ours:
                return None
            return Denied(f"route {quoted(route.name)} is not of cluster {quoted(cluster)}")

        answers = send_all([request(route) for route in routes])
        return [result(route, answer) for route, answer in zip(routes, answers, strict=True)]


def creation(cloud: API, cluster: str, wanted: NewRoute, machine: str) -> Request:
    """The request that creates a route."""
    cidr = wanted.destination_cidr
    body = {
        "name": wanted.name_hint or cidr,
        "destination_cidr": cidr,
        "instance": machine,
        "tags": {CLUSTER_TAG: cluster},
    }
    request = cloud.post("v1", "routes").json(body)
    return request.header("idempotency-key", f"{cluster}/{cidr}/{machine}")


def machines_of(cloud: API, wanted: Sequence[NewRoute]) -> list[str | ProviderError]:
    """The ID of the machine of each route: by the node's provider ID, else by the node's name."""
    ids = [id_of(route.provider_id) for route in wanted]
    listed = list_all(cloud.get("v1", "instances"), "id", "name") if None in ids else []
    by_name: dict[str, str] = {machine["name"]: machine["id"] for machine in listed}

    def found(node: str) -> str | ProviderError:
        return by_name.get(node) or NotFound(f"the cloud has no machine {quoted(node)}")

    return [
        found(route.node) if machine is None else machine
        for route, machine in zip(wanted, ids, strict=True)
    ]

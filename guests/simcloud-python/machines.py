"""Machines."""

from api import Record, list_all, load, zones

from skysail_provider import (
    API,
    Detail,
    Instance,
    Instances,
    NodeAddress,
    NodeSet,
    NotFound,
    ProviderError,
    parse_provider_id,
)

SCHEME = "simcloud"
# The maximum number of nodes in one request by ID and name: a URL has a limited length.
ASKED_MAX = 100


class Machines(Instances):
    """The machines behind nodes."""

    def describe(self, nodes: NodeSet, detail: Detail) -> list[Instance | ProviderError]:
        """One list request for up to 500 machines of the cloud, or for up to 100 nodes."""
        cloud = load()
        names, ids = nodes.names(), [id_of(provider_id) for provider_id in nodes.provider_ids()]
        machines = machines_of(cloud, names, ids)
        regions = zones(cloud) if machines and detail == "metadata" else {}
        by_id = {machine["id"]: machine for machine in machines}
        by_name = {machine["name"]: machine for machine in machines}

        def result(name: str, machine_id: str | ProviderError | None) -> Instance | ProviderError:
            if isinstance(machine_id, ProviderError):
                return machine_id
            machine = by_name.get(name) if machine_id is None else by_id.get(machine_id)
            if machine is None:
                by = "by name" if machine_id is None else f"{SCHEME}://{machine_id}"
                return NotFound(f"the cloud has no machine for node {name} ({by})")
            return instance(machine, regions.get(machine["zone"], ""))

        return [result(name, machine_id) for name, machine_id in zip(names, ids, strict=True)]


def id_of(provider_id: str | None) -> str | ProviderError | None:
    """The machine's ID in a provider ID, or the error that the ID is another provider's."""
    return None if provider_id is None else parse_provider_id(SCHEME, provider_id)


def machines_of(
    cloud: API, names: list[str], ids: list[str | ProviderError | None]
) -> list[Record]:
    """Empty where no node can be of this cloud.

    Without a filter the cloud would list all machines.
    """
    request = cloud.get("v1", "instances")
    pairs = zip(names, ids, strict=True)
    asked = [(name, one) for name, one in pairs if not isinstance(one, ProviderError)]
    if not asked:
        return []
    if len(names) <= ASKED_MAX:
        for name, one in asked:
            request = request.query("name", name) if one is None else request.query("id", one)
    return list_all(request, "id", "name")


def instance(machine: Record, region: str) -> Instance:
    """The instance of a machine."""
    addresses = [
        NodeAddress("Hostname", machine["name"]),
        NodeAddress("InternalIP", machine["private_address"]),
    ]
    if machine["public_address"]:
        addresses.append(NodeAddress("ExternalIP", machine["public_address"]))
    return Instance(
        provider_id=f"{SCHEME}://{machine['id']}",
        shutdown=machine["state"] == "stopped",
        instance_type=machine["type"],
        zone=machine["zone"],
        region=region,
        addresses=addresses,
    )

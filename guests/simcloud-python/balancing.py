"""Load balancers: an elastic IP, and a virtual server for each port.

All have the name of the load balancer and the cluster's tag.
"""

from ipaddress import IPv4Address

from api import CLUSTER_TAG, Record, list_all, load, owned

from skysail_provider import (
    API,
    Denied,
    Ingress,
    Invalid,
    LoadBalancerInventory,
    LoadBalancers,
    LoadBalancerStatus,
    NodeSet,
    NotFound,
    Owned,
    Request,
    RetryAfter,
    Service,
    ServiceRef,
    Unsupported,
    absent_ok,
    allowed_sources,
    default_load_balancer_name,
    families,
    internal_ips,
    send_all,
    send_every,
    service_key,
)
from skysail_provider.text import quoted

SERVICE_TAG = "skysail-service"
UID_TAG = "skysail-service-uid"
# The wait before the next look at a resource that is still being created, in seconds.
PENDING = 1

Backends = list[dict[str, str | int]]


class Balancers(LoadBalancers):
    """The load balancers of Services."""

    def name(self, _cluster: str, service: Service) -> str:
        return default_load_balancer_name(service)

    def get(self, cluster: str, service: Service) -> LoadBalancerStatus | None:
        ips = owned(load(), "elastic-ips", cluster, default_load_balancer_name(service))
        return status(ips[0]) if ips else None

    def ensure(self, cluster: str, service: Service, nodes: NodeSet) -> LoadBalancerStatus:
        """Lists what there is first, so that it finds repeated and partial work.

        The idempotency key finds the result of a request whose response was lost.
        """
        cloud = load()
        check(service)
        sources = allowed_ipv4(service)
        name = default_load_balancer_name(service)
        ips, servers = present(cloud, cluster, name)
        asked = service.load_balancer_ip
        kept = next((ip for ip in ips if not asked or ip["address"] == asked), None)
        there = {
            server["port"]: server
            for server in servers
            if kept
            and server["elastic_ip"] == kept["id"]
            and any(port.port == server["port"] for port in service.ports)
        }
        remove(
            cloud,
            [server for server in servers if server is not there.get(server["port"])],
            [ip for ip in ips if ip is not kept],
        )
        tags = {CLUSTER_TAG: cluster, SERVICE_TAG: service_key(service), UID_TAG: service.uid}
        ip = kept or allocate(cloud, f"{cluster}/{name}/{asked or ''}", name, asked, tags)
        addresses = sorted_addresses(nodes)
        requests: list[Request] = []
        for port in service.ports:
            settings = {
                "real_servers": backends(addresses, port.node_port),
                "allowed_sources": sources,
                "session_affinity_seconds": service.client_ip_timeout_seconds,
            }
            server = there.get(port.port)
            if server is None:
                wanted = {
                    "name": name,
                    "elastic_ip": ip["id"],
                    "protocol": "tcp",
                    "port": port.port,
                    "tags": tags,
                    **settings,
                }
                key = f"{cluster}/{name}/{ip['id']}/{port.port}"
                request = cloud.post("v1", "virtual-servers").json(wanted)
                requests.append(request.header("idempotency-key", key))
            elif not same(server, settings):
                requests.append(cloud.patch("v1", "virtual-servers", server["id"]).json(settings))
        made = [response.json() for response in send_every(requests)]
        if any(record["state"] == "pending" for record in [ip, *there.values(), *made]):
            raise RetryAfter(f"{ip['address']} is being made", PENDING)
        return status(ip)

    def update(self, cluster: str, service: Service, nodes: NodeSet) -> None:
        cloud = load()
        check(service)
        servers = owned(cloud, "virtual-servers", cluster, default_load_balancer_name(service))
        there = {server["port"]: server for server in servers}
        addresses = sorted_addresses(nodes)
        requests: list[Request] = []
        for port in service.ports:
            server = there.get(port.port)
            if server is None:
                raise NotFound(f"there is no virtual server for port {port.port}")
            wanted = backends(addresses, port.node_port)
            if pairs(server["real_servers"]) != pairs(wanted):
                path = ("v1", "virtual-servers", server["id"], "real-servers")
                requests.append(cloud.put(*path).json(wanted))
        send_every(requests)

    def ensure_deleted(self, cluster: str, service: Service) -> None:
        remove_all(load(), cluster, default_load_balancer_name(service))


class Inventory(LoadBalancerInventory):
    """Load balancers without their Services."""

    def list(self, cluster: str) -> list[Owned]:
        ips, servers = present(load(), cluster)
        named = {record["name"]: record["tags"] for record in [*ips, *servers]}
        return [Owned(name=name, service=service_of(named[name])) for name in sorted(named)]

    def delete(self, cluster: str, name: str, service: ServiceRef | None) -> None:
        """A load balancer has one Service: one of another Service with this name stays."""
        cloud = load()
        all_ips = list_all(cloud.get("v1", "elastic-ips").query("name", name), "id")
        if service and any(ip["tags"].get(UID_TAG, service.uid) != service.uid for ip in all_ips):
            return
        if any(ip["tags"].get(CLUSTER_TAG) != cluster for ip in all_ips):
            raise Denied(f"load balancer {quoted(name)} is not of cluster {quoted(cluster)}")
        remove_all(cloud, cluster, name)


def status(ip: Record) -> LoadBalancerStatus:
    """The status of a load balancer with this elastic IP."""
    return LoadBalancerStatus([Ingress(ip=ip["address"])])


def service_of(tags: dict[str, str]) -> ServiceRef | None:
    """The Service that the tags name."""
    namespace, _, name = tags.get(SERVICE_TAG, "").partition("/")
    uid = tags.get(UID_TAG)
    return ServiceRef(namespace, name, uid) if namespace and name and uid else None


def present(cloud: API, cluster: str, name: str | None = None) -> tuple[list[Record], list[Record]]:
    """What exists of one name; of all names without one: elastic IPs, and virtual servers."""
    ips = owned(cloud, "elastic-ips", cluster, name)
    return ips, owned(cloud, "virtual-servers", cluster, name)


def allocate(cloud: API, key: str, name: str, address: str | None, tags: dict[str, str]) -> Record:
    """Gets an elastic IP: the asked one, or one that the cloud chooses."""
    wanted = {"name": name, "tags": tags, **({"address": address} if address else {})}
    request = cloud.post("v1", "elastic-ips").json(wanted).header("idempotency-key", key)
    made: Record = request.send().json()
    return made


def remove_all(cloud: API, cluster: str, name: str) -> None:
    """Removes a load balancer."""
    ips, servers = present(cloud, cluster, name)
    remove(cloud, servers, ips)


def remove(cloud: API, servers: list[Record], ips: list[Record]) -> None:
    """Virtual servers first: an address in use cannot be released."""
    for kind, records in (("virtual-servers", servers), ("elastic-ips", ips)):
        for result in send_all([cloud.delete("v1", kind, record["id"]) for record in records]):
            absent_ok(result)


def check(service: Service) -> None:
    """Refuses what the cloud does not support before anything is created."""
    if "IPv4" not in families(service):
        raise Unsupported("the simulated cloud has IPv4 only")
    for port in service.ports:
        if port.protocol != "TCP":
            raise Unsupported(f"port {port.port}: the simulated cloud carries TCP only")
        if port.node_port == 0:
            raise Invalid(
                f"port {port.port} has no node port: the load balancer reaches pods through "
                "node ports"
            )


def allowed_ipv4(service: Service) -> list[str]:
    """The IPv4 ranges; no range at all means every client."""
    ranges = [source for source in allowed_sources(service) if source.version == 4]
    if any(source.prefixlen == 0 for source in ranges):
        return []
    if not ranges:
        raise Unsupported("no source range is IPv4: the simulated cloud has no other clients")
    return [str(source) for source in ranges]


def sorted_addresses(nodes: NodeSet) -> list[str]:
    """Each address once, in the order of the cloud."""
    addresses = {IPv4Address(address) for address in internal_ips(nodes, "IPv4")}
    return [str(address) for address in sorted(addresses)]


def same(server: Record, settings: Record) -> bool:
    """Whether a virtual server has these settings."""
    if pairs(server["real_servers"]) != pairs(settings["real_servers"]):
        return False
    return all(
        server[field] == settings[field]
        for field in ("allowed_sources", "session_affinity_seconds")
    )


def pairs(found: Backends) -> list[tuple[str | int, str | int]]:
    """The cloud's backends have more than address and port."""
    return [(backend["address"], backend["port"]) for backend in found]


def backends(addresses: list[str], port: int) -> Backends:
    """The backends on a port."""
    return [{"address": address, "port": port} for address in addresses]

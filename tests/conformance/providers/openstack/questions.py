"""What a test may ask of the cloud: accounts, machines, and what is in an account."""

import contextlib
import sqlite3
import time
import uuid

import requests

ROLES = ("member", "load-balancer_member")
SECONDS = 60
GRANTS = 3

OCTAVIA = """
WITH
  own AS (SELECT * FROM load_balancer WHERE project_id = :project AND provisioning_status != 'DELETED'),
  tagged AS (SELECT resource_id, group_concat(tag) AS tags FROM (SELECT * FROM tags ORDER BY tag) GROUP BY 1),
  ranged AS
    (SELECT listener_id, group_concat(cidr) AS cidrs FROM (SELECT * FROM listener_cidr ORDER BY cidr) GROUP BY 1)
SELECT printf('load balancer %s "%s" %s %s tags %s, flavor %s, zone %s, in subnet %s, %s', b.name, b.description,
    b.provider, b.provisioning_status, tags, flavor_id, availability_zone, subnet_id,
    iif(octavia_owned, 'port of its own', 'port ' || port_id))
  FROM own b LEFT JOIN tagged ON resource_id = b.id LEFT JOIN vip v ON v.load_balancer_id = b.id
UNION ALL
SELECT printf('listener %s of %s: %s %d, limit %d, headers %s, timeouts %d %d %d %d, from %s, pool %s, tags %s, %s',
    l.name, b.name, l.protocol, protocol_port, connection_limit, hex(insert_headers), timeout_client_data,
    timeout_member_connect, timeout_member_data, timeout_tcp_inspect, cidrs, p.name, tags, l.provisioning_status)
  FROM own b JOIN listener l ON l.load_balancer_id = b.id LEFT JOIN pool p ON p.id = default_pool_id
  LEFT JOIN tagged ON resource_id = l.id LEFT JOIN ranged ON listener_id = l.id
UNION ALL
SELECT printf('pool %s of %s: %s %s, affinity %s, %s', p.name, b.name, protocol, lb_algorithm, s.type,
    p.provisioning_status)
  FROM own b JOIN pool p ON p.load_balancer_id = b.id LEFT JOIN session_persistence s ON s.pool_id = p.id
UNION ALL
SELECT printf('member %s:%d of %s in subnet %s, checked at %d, %s', m.name, protocol_port, p.name, m.subnet_id,
    monitor_port, m.provisioning_status)
  FROM own b JOIN pool p ON p.load_balancer_id = b.id JOIN member m ON m.pool_id = p.id
UNION ALL
SELECT printf('monitor %s of %s: %s every %d s within %d s, %d up, %d down, %s', h.name, p.name, h.type, delay, timeout,
    rise_threshold, fall_threshold, h.provisioning_status)
  FROM own b JOIN pool p ON p.load_balancer_id = b.id JOIN health_monitor h ON h.pool_id = p.id
"""

NEUTRON = """
SELECT printf('floating IP "%s" %s', a.description, iif(p.id IS NULL, 'of no port', 'of a port of ' || device_owner))
  FROM floatingips f JOIN standardattributes a ON a.id = f.standard_attr_id LEFT JOIN ports p ON p.id = fixed_port_id
  WHERE f.project_id = :project
UNION ALL
SELECT 'a port of a load balancer' FROM ports WHERE project_id = :project
  AND device_owner IN ('Octavia', 'ovn-lb:vip', 'ovn-lb-hm:distributed')
UNION ALL
SELECT printf('security group %s', name) FROM securitygroups WHERE project_id = :project AND name != 'default'
UNION ALL
SELECT printf('a rule of security group %s: %s %s %s %d-%d from %s', name, direction, ethertype, protocol,
    port_range_min, port_range_max, remote_ip_prefix)
  FROM securitygrouprules r JOIN securitygroups g ON g.id = security_group_id
  WHERE g.project_id = :project AND name != 'default'
"""

# A route, and the permission of its node to send packets with its addresses.
ROUTES = """
SELECT printf('route to %s by %s', destination, nexthop) FROM routerroutes JOIN routers ON id = router_id
  WHERE project_id = :project
UNION ALL
SELECT printf('address pair %s of %s', a.ip_address, i.ip_address) FROM allowedaddresspairs a
  JOIN ports p ON p.id = a.port_id JOIN ipallocations i ON i.port_id = p.id WHERE project_id = :project
"""


class Operator:
    # The ID of Octavia's flavor; empty without flavors.
    flavor = ""

    def __init__(self, folder, urls):
        self.folder, self.urls = folder, urls
        self.session = requests.Session()
        self.tokens, self.copies = {}, set()

    # Requests.

    def token(self, user, password, project):
        key = (user, project)
        if key not in self.tokens:
            who = {"name": user, "domain": {"id": "default"}, "password": password}
            auth = {"identity": {"methods": ["password"], "password": {"user": who}},
                    "scope": {"project": {"name": project, "domain": {"id": "default"}}}}
            answer = self.session.post(self.urls["keystone"] + "/v3/auth/tokens", json={"auth": auth})
            answer.raise_for_status()
            self.tokens[key] = answer.headers["X-Subject-Token"]
        return self.tokens[key]

    def send(self, method, service, path, body=None, who=("admin", "admin", "admin"), accept=()):
        headers = {"X-Auth-Token": self.token(*who), "OpenStack-API-Version": "compute 2.47"}
        answer = self.session.request(method, self.urls[service] + path, json=body, headers=headers)
        if answer.status_code >= 400 and answer.status_code not in accept:
            raise RuntimeError(f"{method} {answer.url}: {answer.status_code} {answer.text[:500]}")
        return answer

    def create(self, service, path, kind, who=("admin", "admin", "admin"), **fields):
        return self.send("POST", service, path, {kind: fields}, who).json()[kind]

    # What an operator has in place.

    def catalogue(self, types, paths):
        self.project = self.create("keystone", "/v3/projects", "project", name="service", domain_id="default")["id"]
        roles = self.send("GET", "keystone", "/v3/roles").json()["roles"]
        self.roles = {role["name"]: role["id"] for role in roles}
        for name in ("load-balancer_member", "load-balancer_admin"):
            self.roles[name] = self.create("keystone", "/v3/roles", "role", name=name)["id"]
        for kind, name in types.items():
            if name != "keystone":
                self.user(name, "pw", self.project, ("admin", "service"))
            service = self.create("keystone", "/v3/services", "service", type=kind, name=name)["id"]
            url = self.urls[name] + paths.get(name, "")
            for interface in ("public", "internal"):
                self.create("keystone", "/v3/endpoints", "endpoint", service_id=service, interface=interface, url=url,
                            region_id="RegionOne")

    def user(self, name, password, project, roles):
        user = self.create("keystone", "/v3/users", "user", name=name, password=password, domain_id="default")["id"]
        self.grant(user, project, roles)
        return user

    def grant(self, user, project, roles):
        for role in roles:
            self.send("PUT", "keystone", f"/v3/projects/{project}/users/{user}/roles/{self.roles[role]}")

    def prepare(self):
        public = {"name": "public", "router:external": True, "provider:network_type": "flat",
                  "provider:physical_network": "public"}
        self.external = self.create("neutron", "/v2.0/networks", "network", **public)["id"]
        self.floating_subnet = self.create(
            "neutron", "/v2.0/subnets", "subnet", network_id=self.external, ip_version=4, enable_dhcp=False,
            name="floating", cidr="198.18.0.0/16", gateway_ip="198.18.0.1")["id"]
        self.send("PUT", "neutron", f"/v2.0/subnets/{self.floating_subnet}/tags", {"tags": ["pool"]})
        self.create("nova", "/v2.1/flavors", "flavor", id="small", name="m1.small", ram=16, vcpus=1, disk=1)
        image = self.send("POST", "glance", "/v2/images", {
            "name": "image", "disk_format": "raw", "container_format": "bare", "visibility": "public"}).json()["id"]
        url = f"{self.urls['glance']}/v2/images/{image}/file"
        headers = {"X-Auth-Token": self.token("admin", "admin", "admin"), "Content-Type": "application/octet-stream"}
        self.session.put(url, data=b"no system", headers=headers).raise_for_status()
        self.image = image
        self.offer_flavors()

    def offer_flavors(self):
        profile = self.create("octavia", "/v2.0/lbaas/flavorprofiles", "flavorprofile", name="single",
                              provider_name="amphora", flavor_data='{"loadbalancer_topology": "SINGLE"}')["id"]
        self.flavor = self.create("octavia", "/v2.0/lbaas/flavors", "flavor", name="single",
                                  flavor_profile_id=profile)["id"]
        profile = self.create("octavia", "/v2.0/lbaas/availabilityzoneprofiles", "availability_zone_profile",
                              name="nova", provider_name="amphora",
                              availability_zone_data='{"compute_zone": "nova"}')["id"]
        self.create("octavia", "/v2.0/lbaas/availabilityzones", "availability_zone", name="nova",
                    availability_zone_profile_id=profile)

    # Questions.

    def answer(self, question):
        try:
            return getattr(self, "do_" + question.pop("do"))(**question)
        except Exception as error:  # pylint: disable=broad-except
            return {"error": f"{type(error).__name__}: {error}"}

    def do_account(self):
        name, password = "account-" + uuid.uuid4().hex[:8], uuid.uuid4().hex
        project = self.create("keystone", "/v3/projects", "project", name=name, domain_id="default")["id"]
        user = self.user(name, password, project, ROLES)
        who = (name, password, name)
        network = self.create("neutron", "/v2.0/networks", "network", who, name="nodes")["id"]
        subnet = self.create("neutron", "/v2.0/subnets", "subnet", who, network_id=network, ip_version=4,
                             enable_dhcp=False, cidr="10.6.0.0/16")["id"]
        router = self.create("neutron", "/v2.0/routers", "router", who, name="router",
                             external_gateway_info={"network_id": self.external})["id"]
        self.send("PUT", "neutron", f"/v2.0/routers/{router}/add_router_interface", {"subnet_id": subnet}, who)
        port = self.create("neutron", "/v2.0/ports", "port", who, network_id=network, name="web")["id"]
        names = {"network": network, "subnet": subnet, "external": self.external, "port": port,
                 "floating-subnet": self.floating_subnet, "flavor": self.flavor}
        return {"name": name, "password": password, "project": project, "user": user, "network": network,
                "router": router, "external": self.external, "names": names}

    def do_machines(self, account, names, made):
        """Creates running servers: so many, and the others as copies of the rows of the first.

        Nova needs a second of CPU for each server that it makes. Copies answer every question about
        servers; they have no ports and no allocations, so they are deleted as rows, too.
        """
        servers = [self.create("nova", "/v2.1/servers", "server", who(account), name=name, imageRef=self.image,
                               flavorRef="small", networks=[{"uuid": account["network"]}])["id"]
                   for name in names[:made]]
        machines = [self.until(server, who(account), "ACTIVE") for server in servers]
        machines = [{"id": server["id"], "name": server["name"], "address": server["addresses"]["nodes"][0]["addr"]}
                    for server in machines]
        for number, name in enumerate(names[made:]):
            address = f"10.6.{200 + number // 250}.{1 + number % 250}"
            machines.append({"id": str(uuid.uuid4()), "name": name, "address": address})
        self.copy_rows(machines[0]["id"], machines[made:])
        return {"machines": machines}

    def copy_rows(self, source, copies):
        tables = (
            ("nova", "instances", "uuid"), ("nova", "instance_info_caches", "instance_uuid"),
            ("nova", "instance_extra", "instance_uuid"), ("nova", "instance_system_metadata", "instance_uuid"),
            ("nova_api", "instance_mappings", "instance_uuid"),
        )
        for file, table, key in tables:
            with self.database(file) as database:
                for row in database.execute(f"SELECT * FROM {table} WHERE {key} = ?", [source]).fetchall():
                    fields = [field for field in row.keys() if field != "id"]
                    values = [self.changed(row, field, key, copy) for copy in copies for field in fields]
                    rows = [values[at:at + len(fields)] for at in range(0, len(values), len(fields))]
                    places = ", ".join("?" * len(fields))
                    database.executemany(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({places})", rows)

        self.copies.update(copy["id"] for copy in copies)

    @staticmethod
    def changed(row, field, key, copy):
        changes = {key: copy["id"], "display_name": copy["name"], "hostname": copy["name"]}
        return changes.get(field, row[field])

    def do_stop(self, account, id):
        self.send("POST", "nova", f"/v2.1/servers/{id}/action", {"os-stop": None}, who(account))
        self.until(id, who(account), "SHUTOFF")
        return {}

    def do_delete(self, account, id):
        if id in self.copies:
            with self.database("nova") as nova, self.database("nova_api") as nova_api:
                nova.execute("UPDATE instances SET deleted = id, vm_state = 'deleted' WHERE uuid = ?", [id])
                nova_api.execute("DELETE FROM instance_mappings WHERE instance_uuid = ?", [id])
            return {}
        self.send("DELETE", "nova", f"/v2.1/servers/{id}", who=who(account))
        self.until(id, who(account), None)
        return {}

    def do_revoke(self, account):
        """Disables the user, and waits until the services have forgotten every token that they knew before."""
        me = who(account)
        lists = {"nova": "/v2.1/servers", "neutron": "/v2.0/networks", "octavia": "/v2.0/lbaas/loadbalancers"}
        # The services will remember a new token for longer than the provider's.
        self.tokens.pop((me[0], me[2]))
        for service, path in lists.items():
            self.send("GET", service, path, who=me)
        self.send("PATCH", "keystone", f"/v3/users/{account['user']}", {"user": {"enabled": False}})
        for service, path in lists.items():
            until(lambda: self.send("GET", service, path, who=me, accept=(401,)).status_code == 401,
                  f"{service} still accepts the token of a user that is disabled")
        return {}

    def do_application_credential(self, account):
        """Creates an application credential with the roles of the account.

        On a busy machine Keystone now and then answers 400 Bad Request, "Could not find role assignment", for a
        role that the token of the same request has. A grant makes Keystone forget the assignments that it
        computed.
        """
        path = f"/v3/users/{account['user']}/application_credentials"
        for _ in range(GRANTS):
            answer = self.send("POST", "keystone", path, {"application_credential": {"name": "skysail"}}, who(account),
                               accept=(400,))
            if answer.status_code != 400:
                made = answer.json()["application_credential"]
                return {"id": made["id"], "secret": made["secret"]}
            self.grant(account["user"], account["project"], ROLES)
        raise RuntimeError(f"POST {answer.url}: 400 after {GRANTS} grants: {answer.text[:500]}")

    def do_endpoints(self, account, urls):
        """Gives the account a catalogue of its own, with these URLs."""
        services = self.send("GET", "keystone", "/v3/services").json()["services"]
        for service in services:
            if service["type"] in urls:
                endpoint = self.create("keystone", "/v3/endpoints", "endpoint", service_id=service["id"],
                                       interface="public", url=urls[service["type"]], region_id="RegionOne")["id"]
                self.send("PUT", "keystone", f"/v3/OS-EP-FILTER/projects/{account['project']}/endpoints/{endpoint}")
        return {}

    def until(self, server, who, status):
        """The server when it has this status; none for a server that does not exist."""
        found = {}

        def reached():
            answer = self.send("GET", "nova", f"/v2.1/servers/{server}", who=who, accept=(404,))
            found.update(answer.json().get("server", {"status": None}))
            if found["status"] == "ERROR":
                raise RuntimeError(f"server {server} has the status ERROR: {found.get('fault')}")
            return found["status"] == status

        until(reached, f"server {server} does not get the status {status}")
        return found

    # What is in an account, from the databases: lists of the services would take a second of CPU.

    @contextlib.contextmanager
    def database(self, name):
        with contextlib.closing(sqlite3.connect(self.folder / f"{name}.db", timeout=SECONDS)) as database:
            database.row_factory = sqlite3.Row
            with database:
                yield database

    def do_balancers(self, account):
        with self.database("octavia") as octavia, self.database("neutron") as neutron:
            lines = [line for database, query in ((octavia, OCTAVIA), (neutron, NEUTRON))
                     for (line,) in database.execute(query, {"project": account["project"]})]
        return {"lines": sorted(lines)}

    def do_balancer_ids(self, account):
        query = "SELECT id FROM load_balancer WHERE project_id = ? AND provisioning_status != 'DELETED'"
        with self.database("octavia") as octavia:
            return {"lines": [id for (id,) in octavia.execute(query, [account["project"]])]}

    def do_routes(self, account):
        with self.database("neutron") as neutron:
            lines = [line for (line,) in neutron.execute(ROUTES, {"project": account["project"]})]
        return {"lines": sorted(lines)}


def who(account):
    return account["name"], account["password"], account["name"]


def until(reached, otherwise):
    end = time.monotonic() + SECONDS
    while not reached():
        if time.monotonic() > end:
            raise RuntimeError(f"{otherwise} within {SECONDS} s")
        time.sleep(0.1)

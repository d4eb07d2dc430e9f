"""The OpenStack of cloud.py with a network that carries packets, and Octavia's provider `ovn`.

usage: traffic.py FOLDER

Neutron has its mechanism driver for OVN (fabric.py). A server of Nova can become a network
namespace on its port of Neutron, and a client stands on the external network. Root only, and in a
mount and a PID namespace of its own: nothing of the machine changes, and all processes end with
this one.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

# The folder of the sources gets no other files.
sys.dont_write_bytecode = True
import cloud
import fabric
import questions

PROGRAMS = ("unshare", "ip", "ethtool", "ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd", "ovn-northd",
            "ovn-nbctl", "ovn-sbctl", "ovn-controller")
PEER = pathlib.Path(__file__).resolve().parent / "peer.py"
# An address of the external network that Neutron gives last.
CLIENT = "198.18.255.250/16"


class Operator(questions.Operator):
    """Further questions: nodes that serve, and requests of the client."""

    def __init__(self, folder, urls, network):
        super().__init__(folder, urls)
        self.network = network
        self.servers = {}

    def prepare(self):
        super().prepare()
        self.network.plug("client", "br-ex", CLIENT)

    def offer_flavors(self):
        """Octavia's provider `ovn` has none."""

    def do_serve(self, account, id, name, ports):
        """Makes a server a network namespace on its port, which answers HTTP with its name."""
        me = questions.who(account)
        port = self.send("GET", "neutron", f"/v2.0/ports?device_id={id}", who=me).json()["ports"][0]
        subnet = self.send("GET", "neutron", f"/v2.0/subnets/{account['names']['subnet']}", who=me).json()["subnet"]
        length = subnet["cidr"].split("/")[1]
        address = f"{port['fixed_ips'][0]['ip_address']}/{length}"
        self.network.plug(id, "br-int", address, port["mac_address"], port["id"])
        fabric.run("ip", "-n", id, "route", "add", "default", "via", subnet["gateway_ip"])
        server = subprocess.Popen(fabric.within(id, sys.executable, "-I", "-S", PEER, "serve", name, *map(str, ports)),
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.servers[id] = server
        if not server.stdout.readline():
            raise RuntimeError(f"the server of {name} ended with {server.wait()}")
        path = f"/v2.0/ports/{port['id']}"
        questions.until(lambda: self.send("GET", "neutron", path, who=me).json()["port"]["status"] == "ACTIVE",
                        f"the port of {name} does not become ACTIVE")
        return {}

    def do_silence(self, account, id):
        """Ends the server of a node; the node stays."""
        server = self.servers.pop(id)
        server.stdin.close()
        server.wait()
        return {}

    def do_pod(self, account, id, address):
        """Gives a node the address of a pod, and lets all nodes of the account begin connections."""
        fabric.run("ip", "-n", id, "addr", "add", f"{address}/32", "dev", "lo")
        me = questions.who(account)
        groups = self.send("GET", "neutron", "/v2.0/security-groups?name=default", who=me).json()["security_groups"]
        self.create("neutron", "/v2.0/security-group-rules", "security_group_rule", me, ethertype="IPv4",
                    direction="egress", security_group_id=groups[0]["id"])
        return {}

    def do_get(self, account, url, count, id="client"):
        """Requests of the client, or of a node."""
        output = fabric.run(*fabric.within(id, sys.executable, "-I", "-S", PEER, "get", url, str(count)))
        return json.loads(output)


class Cloud(cloud.Cloud):
    def __init__(self, parent):
        super().__init__(parent)
        self.network = fabric.Fabric(self.folder)

    def operator(self, folder, urls):
        return Operator(folder, urls, self.network)

    def start(self):
        self.network.start()
        return super().start()

    def stop(self):
        super().stop()
        self.network.stop()

    def run(self, name):
        if name == "octavia":
            # The places of its sockets are in the provider's code.
            pathlib.Path("/run/octavia").mkdir()
            self.spawn("driver-agent", [])
        super().run(name)

    def write(self, file, sections):
        ovn = {f"ovn_{name}_connection": f"unix:{fabric.OVN}/{name}.sock" for name in ("nb", "sb")}
        changes = {
            "neutron.conf": {
                "DEFAULT": {"service_plugins": "ovn-router"},
                "ml2": {"mechanism_drivers": "ovn", "type_drivers": "flat,geneve", "tenant_network_types": "geneve",
                        "overlay_ip_version": "4"},
                "ml2_type_geneve": {"vni_ranges": "1:65536", "max_header_size": "38"},
                "ovn": ovn | {"enable_distributed_floating_ip": "true"},
            },
            "octavia.conf": {
                "api_settings": {"enabled_provider_drivers": "ovn:OVN", "default_provider_driver": "ovn"},
                "driver_agent": {"enabled_provider_agents": "ovn"},
                "ovn": ovn,
            },
        }
        for name, keys in changes.get(file, {}).items():
            sections[name] = sections.get(name, {}) | keys
        super().write(file, sections)


def enter():
    """Goes on as process 1 of namespaces of its own."""
    if os.geteuid() != 0:
        sys.exit("the network of this OpenStack consists of namespaces, which need root: run the test as root")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}; `.ci/setup openstack` installs what this OpenStack needs")
    # The end of this process, however it comes, ends process 1 and with it all others.
    os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
                          sys.executable, __file__, sys.argv[1], "inside"])


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if sys.argv[2:] != ["inside"]:
        enter()
    fabric.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    cloud.main(Cloud)

"""The network behind Neutron: OVN's databases and daemons, Open vSwitch in userspace, namespaces.

Everything here is in the mount and PID namespaces of traffic.py: sockets are in a /run of their
own, and each process ends with process 1.
"""

import pathlib
import subprocess
import time

OVS, OVN, CHASSIS = pathlib.Path("/run/openvswitch"), pathlib.Path("/run/ovn"), "host1"
SECONDS = 60
# A network of the type geneve has 1,442 bytes in Neutron.
MTU = "1400"


class Fabric:
    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        self.plugged = 0

    def start(self):
        for folder in (OVS, OVN):
            folder.mkdir(parents=True)
        self.database("conf", "/usr/share/openvswitch/vswitch.ovsschema", OVS / "db.sock")
        for name in ("nb", "sb"):
            self.database(name, f"/usr/share/ovn/ovn-{name}.ovsschema", OVN / f"{name}.sock")
        nb, sb = f"unix:{OVN}/nb.sock", f"unix:{OVN}/sb.sock"
        self.daemon("northd", "ovn-northd", f"--ovnnb-db={nb}", f"--ovnsb-db={sb}", f"--unixctl={OVN}/northd.ctl")
        run("ovn-nbctl", f"--db={nb}", "init")
        run("ovn-sbctl", f"--db={sb}", "init")
        run("ovs-vsctl", "--no-wait", "init")
        settings = {
            "system-id": CHASSIS, "hostname": CHASSIS, "ovn-remote": sb, "ovn-encap-type": "geneve",
            "ovn-encap-ip": "127.0.0.1", "ovn-bridge-datapath-type": "netdev",
            "ovn-bridge-mappings": "public:br-ex", "ovn-cms-options": "enable-chassis-as-gw",
        }
        run("ovs-vsctl", "--no-wait", "set", "open", ".", *(f"external_ids:{k}={v}" for k, v in settings.items()))
        # The datapath `netdev` is Open vSwitch without a module of the kernel; `ovs` is its host.
        run("ip", "netns", "add", "ovs")
        run("ip", "-n", "ovs", "link", "set", "lo", "up")
        self.daemon("vswitchd", *within("ovs"), "ovs-vswitchd", f"unix:{OVS}/db.sock", "--disable-system",
                    f"--unixctl={OVS}/vswitchd.ctl")
        for bridge in ("br-ex", "br-int"):
            run("ovs-vsctl", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev")
        run("ovs-vsctl", "set", "bridge", "br-int", "fail-mode=secure")
        self.daemon("controller", *within("ovs"), "ovn-controller", f"unix:{OVS}/db.sock")
        # Neutron binds ports only on a host that OVN knows.
        run("ovn-sbctl", f"--db={sb}", "wait-until", "chassis_private", CHASSIS, f"name={CHASSIS}")

    def database(self, name, schema, socket):
        file = self.folder / f"{name}.ovsdb"
        run("ovsdb-tool", "create", file, schema)
        self.daemon(name, "ovsdb-server", file, f"--remote=punix:{socket}", f"--unixctl={socket.parent}/{name}.ctl")
        end = time.monotonic() + SECONDS
        while not socket.exists():
            if time.monotonic() > end:
                raise RuntimeError(f"ovsdb-server did not make {socket} within {SECONDS} s")
            time.sleep(0.05)

    def daemon(self, name, *command):
        with open(self.folder / f"{name}.log", "w") as log:
            self.daemons.append(subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def stop(self):
        for process in reversed(self.daemons):
            process.kill()
            process.wait()

    def plug(self, namespace, bridge, address, mac=None, port=None):
        """Makes a network namespace with one interface, on a port of Neutron or directly on a bridge."""
        self.plugged += 1
        name = f"v{self.plugged}"
        run("ip", "netns", "add", namespace)
        run("ip", "-n", "ovs", "link", "add", name, "mtu", MTU, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        inside = ("ip", "-n", namespace)
        if mac:
            run(*inside, "link", "set", "eth0", "address", mac)
        run(*inside, "addr", "add", address, "dev", "eth0")
        for device in ("lo", "eth0"):
            run(*inside, "link", "set", device, "mtu", MTU, "up")
        run("ip", "-n", "ovs", "link", "set", name, "up")
        # Open vSwitch in userspace fills in no checksums.
        for end in (within("ovs", "ethtool", "-K", name), within(namespace, "ethtool", "-K", "eth0")):
            run(*end, "tx", "off")
        interface = ("--", "set", "interface", name, f"external_ids:iface-id={port}") if port else ()
        run("ovs-vsctl", "add-port", bridge, name, *interface)


def within(namespace, *command):
    return ("ip", "netns", "exec", namespace, *command)


def run(*command):
    """The standard output of a program that succeeded."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout

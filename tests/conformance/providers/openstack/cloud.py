"""An OpenStack for tests: Keystone, Glance, Placement, Nova, Neutron and Octavia on loopback.

usage: cloud.py FOLDER

Makes a folder below FOLDER, starts all services, prints a line of JSON when all of them answer,
then answers each line of JSON on the standard input with one on the standard output, and ends
everything with the standard input. After a failed start the folder with the logs stays; the error
names it.
"""

import base64
import configparser
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

# The folder of the sources gets no other files.
sys.dont_write_bytecode = True
import questions

HERE = pathlib.Path(__file__).resolve().parent
ETC = pathlib.Path(sys.prefix) / "etc"
SERVICES = ("keystone", "placement", "glance", "nova", "neutron", "octavia")
TYPES = {
    "identity": "keystone", "image": "glance", "placement": "placement", "compute": "nova", "network": "neutron",
    "load-balancer": "octavia",
}
PATHS = {"keystone": "/v3", "nova": "/v2.1"}
# A start takes 40 seconds of CPU.
READY_SECONDS = 600


class Failed(Exception):
    pass


class Cloud:
    operator = questions.Operator

    def __init__(self, parent):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="openstack-", dir=pathlib.Path(parent).resolve()))
        self.sockets = {name: socket.create_server(("127.0.0.1", 0), backlog=128) for name in SERVICES}
        self.urls = {name: "http://127.0.0.1:%d" % s.getsockname()[1] for name, s in self.sockets.items()}
        self.processes = {}

    def start(self):
        # The last lines of the standard error are part of the error of a start that takes too long.
        print(f"the logs of the services are in {self.folder}", file=sys.stderr, flush=True)
        self.configure()
        # Keystone first: the others log in when they start.
        for name in SERVICES:
            self.run(name)
        self.wait_for("keystone")
        operator = self.operator(self.folder, self.urls)
        operator.catalogue(TYPES, PATHS)
        (self.folder / "catalogue.ready").touch()
        for name in SERVICES:
            self.wait_for(name)
        operator.prepare()
        return operator

    def run(self, name):
        fd = self.sockets[name].fileno()
        self.spawn(name, [str(fd)], pass_fds=[fd])
        # Else a service that ended would still take connections, and never answer.
        self.sockets[name].close()

    def spawn(self, name, arguments, **options):
        # Neutron writes files into the folder for temporary files.
        env = os.environ | {"PYTHONPATH": f"{self.folder}:{HERE}", "PYTHONWARNINGS": "ignore",
                            "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.folder)}
        with open(self.folder / f"{name}.log", "w") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, HERE / "service.py", name, self.folder, *arguments], cwd=self.folder, env=env,
                stdin=subprocess.PIPE, stdout=log, stderr=log, **options)

    def wait_for(self, name):
        end = time.monotonic() + READY_SECONDS
        while not (self.folder / f"{name}.ready").exists():
            code = self.processes[name].poll()
            if code is not None or time.monotonic() > end:
                what = "does not serve" if code is None else f"ended with {code}"
                lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
                raise Failed(f"{name} {what}; see the logs in {self.folder}\n" + "\n".join(lines))
            time.sleep(0.05)

    def stop(self):
        for process in self.processes.values():
            process.stdin.close()
        for process in self.processes.values():
            process.wait()

    def write(self, file, sections):
        config = configparser.RawConfigParser()
        config.read_dict(sections)
        with open(self.folder / file, "w") as out:
            config.write(out)

    # Services find each other by `endpoint_override`: the catalogue has the proxies of all tests.
    def login(self, name):
        return {
            "auth_url": self.urls["keystone"] + "/v3", "auth_type": "password", "username": name, "password": "pw",
            "project_name": "service", "user_domain_id": "default", "project_domain_id": "default",
            "region_name": "RegionOne",
        }

    def checks_tokens(self, name):
        # A token that Keystone revoked is refused after this time.
        return self.login(name) | {"www_authenticate_uri": self.urls["keystone"], "token_cache_time": "10"}

    def database(self, name, **more):
        file = self.folder / f"{name}.db"
        # Readers do not wait for writers. The file remembers it.
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA journal_mode = WAL")
        return {"connection": f"sqlite:///{file}", **more}

    def configure(self):
        for keys in ("fernet", "credential"):
            folder = self.folder / keys
            folder.mkdir(mode=0o700)
            for number in "01":
                (folder / number).write_bytes(base64.urlsafe_b64encode(os.urandom(32)))
        for source in ("nova/api-paste.ini", "glance/glance-api-paste.ini"):
            shutil.copy(ETC / source, self.folder)
        # Neutron finds a mechanism driver by its entry point.
        package = self.folder / "loopback-1.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: loopback\nVersion: 1\n")
        (package / "entry_points.txt").write_text(
            "[neutron.ml2.mechanism_drivers]\nloopback = mechanism:MechanismDriver\n")
        self.database("nova_cell0")
        common = {"transport_url": "fake:/", "host": "host1"}
        self.write("keystone.conf", {
            # Without it each request is some fifty queries.
            "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
            "database": self.database("keystone"),
            "fernet_tokens": {"key_repository": self.folder / "fernet"},
            "fernet_receipts": {"key_repository": self.folder / "fernet"},
            "credential": {"key_repository": self.folder / "credential"},
            # The cheapest that Keystone accepts: the passwords protect nothing.
            "identity": {"password_hash_rounds": "4"},
        })
        self.write("glance-api.conf", {
            "DEFAULT": {"enabled_backends": "file:file", "enabled_import_methods": "[]",
                        "worker_self_reference_url": self.urls["glance"]},
            "glance_store": {"default_backend": "file"},
            "file": {"filesystem_store_datadir": self.folder / "images"},
            "os_glance_staging_store": {"filesystem_store_datadir": self.folder / "staging"},
            "os_glance_tasks_store": {"filesystem_store_datadir": self.folder / "tasks"},
            "database": self.database("glance"),
            "paste_deploy": {"flavor": "keystone", "config_file": self.folder / "glance-api-paste.ini"},
            "keystone_authtoken": self.checks_tokens("glance"),
        })
        self.write("placement.conf", {
            "placement_database": self.database("placement", sync_on_startup="true"),
            "keystone_authtoken": self.checks_tokens("placement"),
        })
        self.write("nova.conf", {
            "DEFAULT": common | {
                "compute_driver": "fake.FakeDriverWithoutFakeNodes", "state_path": self.folder, "my_ip": "127.0.0.1",
                "vif_plugging_is_fatal": "false", "vif_plugging_timeout": "0", "periodic_enable": "false",
                "cpu_allocation_ratio": "64", "ram_allocation_ratio": "64", "disk_allocation_ratio": "64",
            },
            # Nova's default of 1000 takes 10 seconds on a busy machine.
            "api": {"max_limit": "200"},
            "database": self.database("nova"),
            "api_database": self.database("nova_api"),
            "wsgi": {"api_paste_config": self.folder / "api-paste.ini"},
            "quota": {"instances": "-1", "cores": "-1", "ram": "-1"},
            "oslo_concurrency": {"lock_path": self.folder / "locks"},
            "vnc": {"enabled": "false"},
            "service_user": {"send_service_user_token": "true"} | self.login("nova"),
            "placement": self.login("nova") | {"endpoint_override": self.urls["placement"]},
            "glance": self.login("nova") | {"endpoint_override": self.urls["glance"]},
            "neutron": self.login("nova") | {"endpoint_override": self.urls["neutron"]},
            "keystone_authtoken": self.checks_tokens("nova"),
        })
        self.write("neutron.conf", {
            "DEFAULT": common | {
                "state_path": self.folder, "core_plugin": "ml2", "service_plugins": "router",
                # Neutron then collects no messages for agents, of which there are none.
                "rpc_workers": "0",
                "api_paste_config": ETC / "neutron/api-paste.ini",
                "notify_nova_on_port_status_changes": "false", "notify_nova_on_port_data_changes": "false",
            },
            "database": self.database("neutron"),
            "oslo_concurrency": {"lock_path": self.folder / "locks"},
            "ml2": {"mechanism_drivers": "loopback", "type_drivers": "flat,vxlan", "tenant_network_types": "vxlan",
                    "extension_drivers": "port_security"},
            "ml2_type_vxlan": {"vni_ranges": "1:65536"},
            "ml2_type_flat": {"flat_networks": "*"},
            "quotas": {f"quota_{kind}": "-1" for kind in (
                "network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule")},
            "keystone_authtoken": self.checks_tokens("neutron"),
        })
        self.write("octavia.conf", {
            "DEFAULT": common,
            # Octavia's default of 1000 load balancers would take an hour.
            "api_settings": {"auth_strategy": "keystone", "pagination_max_limit": "25", "enabled_provider_drivers": "amphora:Amphorae",
                             "default_provider_driver": "amphora"},
            "database": self.database("octavia"),
            "oslo_messaging": {"topic": "octavia_prov"},
            "controller_worker": {"network_driver": "allowed_address_pairs_driver"},
            "health_manager": {"heartbeat_key": "key"},
            "service_auth": self.login("octavia"),
            "neutron": {"region_name": "RegionOne", "endpoint_override": self.urls["neutron"]},
            "keystone_authtoken": self.checks_tokens("octavia"),
        })


def end_with_the_test():
    """Interrupts a question whose test was killed."""
    hangup = select.poll()
    hangup.register(sys.stdin, 0)
    hangup.poll()
    # Without a question the loop of `main` ends first.
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def main(kind=Cloud):
    # As the end of the standard input: stops the services and deletes the folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=end_with_the_test, daemon=True).start()
    cloud, failed = kind(sys.argv[1]), None
    try:
        operator = cloud.start()
        print(json.dumps({"services": cloud.urls, "folder": str(cloud.folder)}), flush=True)
        for line in sys.stdin:
            print(json.dumps(operator.answer(json.loads(line))), flush=True)
    except BrokenPipeError:
        # Nobody reads the answer: the test was killed.
        pass
    except Exception as error:
        failed = error if isinstance(error, Failed) else f"{error!r}; see the logs in {cloud.folder}"
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        cloud.stop()
        # The logs of a failure stay.
        if failed is None:
            shutil.rmtree(cloud.folder, ignore_errors=True)
    if failed is not None:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()

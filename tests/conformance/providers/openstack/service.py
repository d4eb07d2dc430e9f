"""One service of OpenStack in one process: `service.py NAME FOLDER [FD]`.

NAME is a key of SERVICES, FOLDER has the service's configuration and becomes the place of its
database, FD is the socket on which the service listens. The process makes its database, serves, and
ends with its standard input. `driver-agent` is the other process of Octavia, without a socket.

The code of each service is that of its release. What differs from an operator's cloud:

* One process has all parts of a service, so that messages need no broker (oslo.messaging's driver
  `fake`), and nothing waits for another process.
* The databases are files of SQLite. Tables are made from the models, because the migrations of
  Neutron and Octavia need another database.
* Nova has its own fake hypervisor; Neutron binds ports without an agent (mechanism.py); Octavia's
  provider `amphora` sends its work to a worker that boots no amphorae (worker.py).
"""

import functools
import gc
import os
import socket
import sys
import threading
import time
import types
import warnings

warnings.simplefilter("ignore")
NAME, FOLDER, *REST = sys.argv[1:]
# The services read the command line as their own.
sys.argv = [NAME]


def end_with_standard_input():
    while os.read(0, 4096):
        pass
    os._exit(0)


def prepare_sqlite():
    """Makes a transaction take SQLite's one lock for writers when it begins.

    A transaction that reads first and writes later cannot wait for the lock (SQLITE_BUSY), and the
    services know no such error. A transaction inside another one of the same thread must not wait
    for the outer one.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    begun = threading.local()

    def files():
        if not hasattr(begun, "files"):
            begun.files = {}
        return begun.files

    @event.listens_for(Engine, "connect")
    def connect(connection, _record):
        # The databases live as long as the process: nothing has to survive a crash.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA busy_timeout = 120000")

    @event.listens_for(Engine, "before_cursor_execute", retval=True)
    def begin(connection, _cursor, statement, parameters, _context, _many):
        if statement.strip() == "BEGIN":
            holder = files().setdefault(connection.engine.url.database, connection)
            statement = "BEGIN IMMEDIATE" if holder is connection else statement
        return statement, parameters

    def ended(connection):
        for file in [file for file, holder in files().items() if holder is connection]:
            del files()[file]

    event.listen(Engine, "commit", ended)
    event.listen(Engine, "rollback", ended)


def keep_connections():
    """Gives oslo.db a pool for files of SQLite.

    By default oslo.db opens a connection for each transaction, and SQLite then reads the whole
    schema: a fifth of the time of Neutron and Nova.
    """
    from oslo_db.sqlalchemy import engines
    from sqlalchemy import pool

    class Pool(pool.QueuePool):
        def __init__(self, creator, **options):
            # A size of 0 is no limit.
            super().__init__(creator, **options | {"pool_size": 0})

    engines.pool = types.SimpleNamespace(**vars(pool) | {"NullPool": Pool})


def config_file(name):
    return os.path.join(FOLDER, name)


def wait_for_the_catalogue():
    """Nova logs in and asks Placement when it starts."""
    while not os.path.exists(config_file("catalogue.ready")):
        time.sleep(0.05)


def keystone():
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = config_file("keystone.conf")
    from keystone.server.flask import core

    application = core.initialize_application(name="public", config_files=[config_file("keystone.conf")])
    from keystone.cmd import bootstrap
    from keystone.common.sql import core as sql

    with sql.session_for_write() as session:
        sql.ModelBase.metadata.create_all(session.get_bind())
    # The application has loaded them, and they can be loaded only once.
    bootstrap.backends.load_backends = lambda: None
    first = bootstrap.Bootstrapper()
    first.admin_username = first.admin_password = first.project_name = first.admin_role_name = "admin"
    first.region_id = "RegionOne"
    first.bootstrap()
    return application


def glance():
    os.environ["OS_GLANCE_CONFIG_DIR"] = FOLDER
    from glance.common import wsgi_app
    from glance.db.sqlalchemy import models
    from sqlalchemy import create_engine

    models.register_models(create_engine(f"sqlite:///{config_file('glance.db')}"))
    return wsgi_app.init_app()


def placement():
    os.environ["OS_PLACEMENT_CONFIG_DIR"] = FOLDER
    from placement import wsgi

    return wsgi.init_application()


def nova():
    os.environ["OS_NOVA_CONFIG_DIR"] = FOLDER
    os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"
    from nova import monkey_patch

    monkey_patch.patch(backend="threading")
    import os_vif
    from nova import context, objects, service
    from nova.api.openstack import wsgi_app
    from nova.db.api import models as api_models
    from nova.db.main import models
    from nova.objects import host_mapping
    from sqlalchemy import create_engine

    wsgi_app.init_global_data([config_file("api-paste.ini"), config_file("nova.conf")], "osapi_compute", "nova-api")
    urls = {name: f"sqlite:///{config_file(name + '.db')}" for name in ("nova_api", "nova", "nova_cell0")}
    api_models.BASE.metadata.create_all(create_engine(urls["nova_api"]))
    for name in ("nova", "nova_cell0"):
        models.BASE.metadata.create_all(create_engine(urls[name]))
    admin = context.get_admin_context()
    cells = ((objects.CellMapping.CELL0_UUID, "nova_cell0"), ("c0000000-0000-4000-8000-000000000001", "nova"))
    for uuid, name in cells:
        cell = objects.CellMapping(admin, uuid=uuid, name=name, transport_url="fake:/", database_connection=urls[name])
        cell.create()
    os_vif.initialize()
    wait_for_the_catalogue()
    parts = (("nova-conductor", "conductor", None), ("nova-scheduler", "scheduler", None),
             ("nova-compute", "compute", "compute-alt"))
    for binary, topic, other in parts:
        service.Service.create(binary=binary, topic=topic, topic_alt=other).start()
    host_mapping.discover_hosts(admin)
    return wsgi_app.init_application("osapi_compute", "nova-api")


def neutron():
    os.environ["OS_NEUTRON_CONFIG_DIR"] = FOLDER
    os.environ["OS_NEUTRON_CONFIG_FILES"] = "neutron.conf"
    # The mechanism driver for OVN shares out events among so many processes.
    os.environ["ASGI_WORKERS"] = "1"
    from neutron import server
    from neutron.db.migration.models import head
    from neutron.server import api
    from sqlalchemy import create_engine

    head.get_metadata().create_all(create_engine(f"sqlite:///{config_file('neutron.db')}"))
    answer_all_events()
    return server.boot_server(api.api_server, prog="neutron-api")


def answer_all_events():
    """Lets the threads that commit to OVN's databases read nothing of SQLite.

    Another thread may wait for such a commit while it has SQLite's lock. Neutron's processes share
    out the events by a table; here is one process. One event asks for a router before it is queued;
    here it asks afterwards.
    """
    from neutron.plugins.ml2.drivers.ovn.mech_driver.ovsdb import ovsdb_monitor

    def notify(self, event, row, updates=None):
        for everywhere in (True, False):
            self.notify_handler.notify(event, row, updates, global_=everywhere)

    ovsdb_monitor.OvnIdlDistributedLock.notify = notify
    kind = ovsdb_monitor.LogicalSwitchPortUpdateLogicalRouterPortEvent
    matches, run = kind.match_fn, kind.run
    kind.match_fn = ovsdb_monitor.LogicalSwitchPortEvent.match_fn
    kind.run = lambda self, *event: matches(self, *event) and run(self, *event)


def octavia():
    from octavia.common import utils

    # Each new driver asks Neutron for all of its extensions.
    utils.get_network_driver = functools.cache(utils.get_network_driver)
    from octavia.api import app
    from octavia.common import constants
    from octavia.db import base_models, models
    from sqlalchemy import create_engine, orm

    engine = create_engine(f"sqlite:///{config_file('octavia.db')}")
    base_models.BASE.metadata.create_all(engine)
    # The rows that the migrations write.
    names = (
        (models.ProvisioningStatus, constants.SUPPORTED_PROVISIONING_STATUSES),
        (models.OperatingStatus, constants.SUPPORTED_OPERATING_STATUSES),
        (models.HealthMonitorType, constants.SUPPORTED_HEALTH_MONITOR_TYPES),
        (models.Algorithm, constants.SUPPORTED_LB_ALGORITHMS),
        (models.Protocol, constants.SUPPORTED_PROTOCOLS),
        (models.SessionPersistenceType, constants.SUPPORTED_SP_TYPES),
        (models.LBTopology, constants.SUPPORTED_LB_TOPOLOGIES),
        (models.ClientAuthenticationMode, constants.SUPPORTED_CLIENT_AUTH_MODES),
    )
    with orm.Session(engine) as session:
        session.add_all(model(name=name) for model, all_names in names for name in all_names)
        session.commit()
    application = app.setup_app(argv=["octavia-api", "--config-file", config_file("octavia.conf")])
    import worker

    forget_the_pool_timeout()
    worker.start()
    return application


def driver_agent():
    """Records in Octavia's database what the provider `ovn` reports, until the process ends."""
    sys.argv += ["--config-file", config_file("octavia.conf")]
    from octavia.cmd import driver_agent as agent

    forget_the_pool_timeout()
    agent.main()


def forget_the_pool_timeout():
    """SQLite's connections do not have this default of Octavia's."""
    from oslo_config import cfg

    cfg.CONF.set_override("pool_timeout", None, "database")


SERVICES = {
    "keystone": keystone, "glance": glance, "placement": placement, "nova": nova, "neutron": neutron,
    "octavia": octavia,
}


def main():
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    prepare_sqlite()
    keep_connections()
    # The modules of a service are many objects, which each collection of cycles would look at.
    gc.set_threshold(100_000, 50, 50)
    if NAME == "driver-agent":
        return driver_agent()
    application = SERVICES[NAME]()
    from werkzeug.serving import WSGIRequestHandler, make_server

    # On a kept connection the body of a response would wait for the acknowledgement of its head.
    WSGIRequestHandler.disable_nagle_algorithm = True
    # `make_server` duplicates the socket.
    fd = int(REST[0])
    address, port = socket.socket(fileno=os.dup(fd)).getsockname()
    server = make_server(address, port, application, threaded=True, fd=fd)
    open(config_file(f"{NAME}.ready"), "w").close()
    server.serve_forever()


if __name__ == "__main__":
    main()

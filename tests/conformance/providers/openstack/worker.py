"""Octavia's worker for the provider `amphora`, without amphorae.

The API and the provider driver are Octavia's: they check each request, mark the objects as
PENDING_… and send a message. Octavia's worker would boot and configure machines. This one waits a
moment and then records what that worker records after a success.
"""

import inspect
import threading
import time

import oslo_messaging
from octavia.common import constants, rpc, utils
from octavia.controller.queue.v2 import endpoints
from octavia.db import api as db_api
from octavia.db import models, repositories
from oslo_config import cfg

# Seconds for which a load balancer is PENDING_…: a client that asks at once sees it.
WORK_SECONDS = 0.05

REPOSITORIES = repositories.Repositories()
ONE_AT_A_TIME = threading.Lock()


def finish(session, balancer):
    """Records the success of what is pending in a load balancer."""
    going = balancer.provisioning_status == constants.PENDING_DELETE
    objects = [(listener, going) for listener in balancer.listeners]
    for pool in balancer.pools:
        # Octavia marks only the parent: its worker deletes what belongs to it.
        with_pool = going or pool.provisioning_status == constants.PENDING_DELETE
        children = list(pool.members) + ([pool.health_monitor] if pool.health_monitor else [])
        objects += [(child, with_pool) for child in children] + [(pool, going)]
    for entry, with_parent in objects:
        if with_parent or entry.provisioning_status == constants.PENDING_DELETE:
            REPOSITORIES.decrement_quota(session, type(entry).__data_model__, entry.project_id)
            session.delete(entry)
        elif entry.provisioning_status.startswith("PENDING_"):
            entry.provisioning_status = constants.ACTIVE
            member = isinstance(entry, models.Member)
            entry.operating_status = constants.NO_MONITOR if member else constants.ONLINE
    if going:
        REPOSITORIES.decrement_quota(session, models.LoadBalancer.__data_model__, balancer.project_id)
        # The row stays, and the API hides it.
        balancer.provisioning_status = constants.DELETED
    else:
        balancer.provisioning_status, balancer.operating_status = constants.ACTIVE, constants.ONLINE


def pending(session):
    query = session.query(models.LoadBalancer)
    return query.filter(models.LoadBalancer.provisioning_status.like("PENDING_%")).all()


def work(*_args, **_message):
    time.sleep(WORK_SECONDS)
    # A load balancer has one change at a time, so all that is pending belongs to the message.
    with ONE_AT_A_TIME:
        with db_api.session().begin() as session:
            going = [balancer for balancer in pending(session)
                     if balancer.provisioning_status == constants.PENDING_DELETE]
            going = [REPOSITORIES.load_balancer.get(session, id=balancer.id) for balancer in going]
        for balancer in going:
            if balancer.vip.octavia_owned:
                utils.get_network_driver().deallocate_vip(balancer.vip)
        with db_api.session().begin() as session:
            for balancer in pending(session):
                if balancer.provisioning_status != constants.PENDING_DELETE or any(balancer.id == b.id for b in going):
                    finish(session, balancer)


# The names of all messages that Octavia's worker understands.
MESSAGES = {name: work for name, value in vars(endpoints.Endpoints).items()
            if inspect.isfunction(value) and not name.startswith("_")}
Worker = type("Worker", (), {"target": endpoints.Endpoints.target, **MESSAGES})


def start():
    target = oslo_messaging.Target(topic=constants.TOPIC_AMPHORA_V2, server=cfg.CONF.host, fanout=False)
    rpc.get_server(target, [Worker()]).start()

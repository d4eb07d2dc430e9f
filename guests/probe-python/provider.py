"""A program that does in the sandbox what programs in Python do elsewhere.

The name of the cluster in a call is what it does, and the error of the call is what it saw.
`tests/it/src/python_guests.rs` has a test for each.
"""

import datetime
import json
import logging
import os
import random
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import skysail_provider
from skysail_provider import (
    API,
    Info,
    Ingress,
    Invalid,
    LoadBalancerStatus,
    NodeSet,
    ProviderError,
    RetryAfter,
    Service,
    Unsupported,
    cache,
    event,
    request,
    send_all,
)

LOADED_AT = time.time()


def refused(*calls: Callable[[], object]) -> str:
    """How many of the calls the sandbox refused."""
    count = 0
    for call in calls:
        try:
            call()
        except (OSError, ImportError, RuntimeError):
            count += 1
    return f"{count} of {len(calls)} were refused"


def outside() -> str:
    """What reaches outside of a program in other places."""

    def read() -> str:
        with open("/etc/passwd") as file:
            return file.read()

    return refused(
        read,
        lambda: os.listdir("/"),
        lambda: os.mkdir("/tmp/x"),
        lambda: __import__("wave"),
        threading.Thread(target=print).start,
    )


def numbers() -> str:
    """Random numbers of three kinds."""
    return "|".join([str(random.random()), secrets.token_hex(), str(uuid.uuid4())])


def clock() -> bool:
    """The clock goes on, and a date is read by a module that the library imports late."""
    read = datetime.datetime.strptime("2026-12-01", "%Y-%m-%d").year
    return time.time() > LOADED_AT and read == 2026


def output() -> str:
    """A line of each kind."""
    print("by print")
    logging.getLogger("probe").warning("by %s", "logging", extra={"number": 7})
    event("Probed", "by event")
    return "done"


def exception() -> str:
    """A bug."""
    nothing: Any = None
    return str(nothing.member)


def huge_numbers() -> str:
    """Numbers and texts that the contract does not have."""
    cache.set("a", 1, float("inf"))
    cache.set("\ud800", 1, -1)
    raise RetryAfter("huge", 1e20)


def loop() -> str:
    """Goes on for ever."""
    while True:
        pass


def recursion(depth: int = 0) -> str:
    """Calls itself."""
    return recursion(depth + 1) + "."


def memory() -> str:
    """Takes all memory."""
    everything = []
    while True:
        everything.append(bytearray(1 << 20))


def requests() -> str:
    """Requests that the operator does not allow."""
    api = API("http://127.0.0.1:1", credential="api")
    results: list[object] = [*send_all([api.get("a"), api.get("b")])]
    try:
        request("GET", "http://127.0.0.1:1/c")
    except ProviderError as error:
        results.append(error)
    return ",".join(
        error.code if isinstance(error, ProviderError) else "no error" for error in results
    )


def text() -> str:
    """Texts come back as they were."""
    texts = ["", "abc", "äöü", "漢字 🌍", "\0\x7f\x80\xff", "x" * 10_000 + "ß"]
    for one in texts:
        cache.set("text", one, 60)
        if cache.get("text") != one:
            return f"{one!r} came back as {cache.get('text')!r}"
    for codec in (
        "ascii",
        "cp1252",
        "latin-1",
        "utf-8-sig",
        "utf-16",
        "utf-16-le",
        "utf-32",
        "idna",
    ):
        if "abc".encode(codec).decode(codec) != "abc":
            return f"{codec} changed a text"
    return "equal"


ACTIONS: dict[str, Callable[[], object]] = {
    "outside": outside,
    "environment": lambda: f"{len(os.environ)} {sys.argv[1:]}",
    "socket": lambda: socket.create_connection(("127.0.0.1", 1)),
    "random": numbers,
    "clock": clock,
    "output": output,
    "exception": exception,
    "exit": lambda: sys.exit(3),
    "huge numbers": huge_numbers,
    "a wrong type": lambda: LoadBalancerStatus([Ingress(ip=7)]),  # type: ignore[arg-type]
    "deep JSON": lambda: json.loads("[" * 100_000),
    "loop": loop,
    "recursion": recursion,
    "memory": memory,
    "requests": requests,
    "text": text,
}


class Identity(skysail_provider.Identity):
    """Describes the probe."""

    def describe(self) -> Info:
        return Info(
            name="probe-python", version="0.1.0", description="A probe of the sandbox, in Python"
        )

    def check_config(self, text: str) -> list[skysail_provider.Problem]:
        return []

    def origins(self, text: str) -> list[str]:
        return []


class LoadBalancers(skysail_provider.LoadBalancers):
    """What the probe does."""

    def name(self, cluster: str, service: Service) -> str:
        return "probe"

    def get(self, cluster: str, service: Service) -> LoadBalancerStatus | None:
        action = ACTIONS.get(cluster)
        if action is None:
            raise Unsupported(f"the probe has no {cluster}")
        seen = action()
        if isinstance(seen, LoadBalancerStatus):
            return seen
        raise Invalid(str(seen))

    def ensure(self, cluster: str, service: Service, nodes: NodeSet) -> LoadBalancerStatus:
        return LoadBalancerStatus([])

    def update(self, cluster: str, service: Service, nodes: NodeSet) -> None:
        """Reads every node in both ways."""
        names, ids, labels = nodes.names(), nodes.provider_ids(), nodes.label("name")
        for node, name, provider_id, label in zip(nodes, names, ids, labels, strict=True):
            if (node.name, node.provider_id, node.labels["name"]) != (name, provider_id, label):
                raise Invalid(f"a node is {node} instead of {name}")
        raise Invalid(f"{len(names)} of {len(nodes)} nodes, {nodes.label('absent')[0]}")

    def ensure_deleted(self, cluster: str, service: Service) -> None:
        pass

"""What a provider reaches outside of itself.

In the sandbox Skysail's host, in a test `Host` of `skysail_provider.testing`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .text import well_formed

Level = Literal["debug", "info", "warn", "error"]
Kind = Literal["normal", "warning"]
Fields = list[tuple[str, str]]


@dataclass(slots=True)
class RawRequest:
    """A request as the contract has it."""

    method: str
    url: str
    headers: Fields
    body: bytes | None
    credential: str | None
    timeout_ms: int


@dataclass(slots=True)
class RawResponse:
    """A response as the contract has it; names of headers are in lower case."""

    status: int
    headers: Fields
    body: bytes


@dataclass(slots=True)
class Failure:
    """Why there is no response: a case of `failure` in `wit/v0.1.0/http.wit`, and its text."""

    case: str
    said: str = ""


class Host(Protocol):
    """The functions that the host offers."""

    def config(self) -> str: ...
    def send_all(self, requests: list[RawRequest]) -> list[RawResponse | Failure]: ...
    def log_enabled(self, level: Level) -> bool: ...
    def log(self, level: Level, message: str, fields: Fields) -> None: ...
    def emit(self, kind: Kind, reason: str, message: str) -> None: ...
    def cache_get(self, key: str) -> bytes | None: ...
    def cache_set(self, key: str, value: bytes, ttl_ms: int) -> bool: ...
    def cache_compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int
    ) -> bool: ...
    def cache_delete(self, key: str) -> None: ...


_current: Host | None = None
_NATIVE = (
    "this function calls Skysail's host, which exists only in the sandbox: a native test installs "
    "one, `with Host():` of skysail_provider.testing"
)
BUILD = (
    "the top level of a module runs once, when the component is built: Skysail's host and the log "
    "exist only in calls"
)
_absence = _NATIVE


def use_host(host: Host | None, absence: str = _NATIVE) -> None:
    """Installs a host; None for none, with what to say then. Components and tests call it."""
    global _current, _absence
    _current = host
    _absence = absence


def current() -> Host:
    """The host of this call."""
    if _current is None:
        raise RuntimeError(_absence)
    return _current


def config() -> str:
    """The cloud-config of this call."""
    return current().config()


def event(reason: str, message: str) -> None:
    """Emits an Event about the Service of this call.

    In a call about nodes or routes, about the cluster.
    """
    current().emit("normal", well_formed(reason), well_formed(message))


def warning_event(reason: str, message: str) -> None:
    """Emits an Event of type Warning."""
    current().emit("warning", well_formed(reason), well_formed(message))


def milliseconds(seconds: float, most: int = 2**63 - 1) -> int:
    """A duration that the host accepts."""
    if math.isnan(seconds) or seconds <= 0:
        return 0
    return most if seconds * 1000 >= most else round(seconds * 1000)


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


class LogHandler(logging.Handler):
    """Writes the lines of `logging` into the host's log; what `extra` has are their fields."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line."""
        level = _level(record.levelno)
        host = current()
        if not host.log_enabled(level):
            return
        fields = [(k, str(v)) for k, v in vars(record).items() if k not in _STANDARD]
        if record.name != "root":
            fields.append(("logger", record.name))
        pairs = [(well_formed(key), well_formed(value)) for key, value in fields]
        host.log(level, well_formed(self.format(record)), pairs)


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warn"
    return "info" if number >= logging.INFO else "debug"


def log_through_host() -> None:
    """Makes `logging` write into the host's log, which decides what is kept."""
    handlers = [LogHandler()]
    logging.basicConfig(handlers=handlers, level=logging.DEBUG, format="%(message)s", force=True)
    # The host knows thread and process of a call; a call has one of each.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # A handler that fails is a bug of the provider, such as a wrong number of arguments.
    logging.raiseExceptions = True


_TRIES = 16


class Cache:
    """Small values that outlive the call, as JSON. The host may drop one at any time."""

    def get(self, key: str) -> Any:
        """The value of this key; None without one."""
        return _parsed(current().cache_get(well_formed(key)))

    def set(self, key: str, value: Any, ttl: float) -> bool:
        """Keeps a value for `ttl` seconds; False where the host does not keep it."""
        return current().cache_set(well_formed(key), _encoded(value), milliseconds(ttl))

    def delete(self, key: str) -> None:
        """Deletes a key, if there is one."""
        current().cache_delete(well_formed(key))

    def get_or(self, key: str, ttl: float, load: Callable[[], Any]) -> Any:
        """The value of this key, which `load` makes where the host has none."""
        found = self.get(key)
        if found is None:
            found = load()
            self.set(key, found, ttl)
        return found

    def update(self, key: str, ttl: float, change: Callable[[Any], Any]) -> Any:
        """Changes a value that calls at the same time may change, too.

        `change` gets None where there is no value; the result is None where the host did not keep
        the change.
        """
        host = current()
        for _ in range(_TRIES):
            before = host.cache_get(well_formed(key))
            after = change(_parsed(before))
            if host.cache_compare_and_set(
                well_formed(key), before, _encoded(after), milliseconds(ttl)
            ):
                return after
        return None


cache = Cache()


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parsed(value: bytes | None) -> Any:
    """What `set` kept; None for bytes that are not JSON."""
    if value is None:
        return None
    try:
        return json.loads(value.decode())
    except ValueError:
        return None

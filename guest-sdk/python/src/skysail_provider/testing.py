"""A host in memory, for native tests of a provider: `unittest` or any other runner."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import TracebackType
from typing import Any
from urllib.parse import SplitResult, urlsplit

from . import types as sdk
from .host import Failure, Fields, Kind, Level, RawRequest, RawResponse, use_host

__all__ = ["Answer", "Event", "Failure", "Host", "SentRequest", "nodes", "service"]


@dataclass
class SentRequest:
    """A request of the provider; a credential that it names is not in the headers."""

    method: str
    url: SplitResult
    headers: dict[str, str]
    body: str
    credential: str | None


@dataclass
class Answer:
    """A response of a test's cloud."""

    json: Any = None
    """The body as JSON; None for `body`."""
    body: str | bytes = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Event:
    """An Event that the provider emitted."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


Cloud = Callable[[SentRequest], Answer | Failure]


class Host:
    """A host for the time of a `with` statement.

    `cloud` answers the requests of the provider; without it no request gets a response.
    """

    def __init__(self, cloud_config: str = "", cloud: Cloud | None = None) -> None:
        self.cloud_config = cloud_config
        self.cloud = cloud
        self.requests: list[SentRequest] = []
        self.events: list[Event] = []
        self.logs: list[str] = []
        """Level, message and fields of each line."""
        self._cache: dict[str, bytes] = {}

    def __enter__(self) -> Host:
        use_host(self)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        use_host(None)

    def config(self) -> str:
        """The text that the provider reads."""
        return self.cloud_config

    def send_all(self, requests: list[RawRequest]) -> list[RawResponse | Failure]:
        """Answers requests."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: RawRequest) -> RawResponse | Failure:
        if malformed := _refused(request):
            return Failure("malformed", malformed)
        sent = SentRequest(
            method=request.method,
            url=urlsplit(request.url),
            headers=dict(request.headers),
            body=(request.body or b"").decode(),
            credential=request.credential,
        )
        self.requests.append(sent)
        if self.cloud is None:
            return Failure("unreachable", "the test has no cloud")
        answer = self.cloud(sent)
        if isinstance(answer, Failure):
            return answer
        headers = {name.lower(): value for name, value in answer.headers.items()}
        body = answer.body
        if answer.json is not None:
            body = json.dumps(answer.json)
            headers.setdefault("content-type", "application/json")
        raw = body.encode() if isinstance(body, str) else body
        return RawResponse(answer.status, list(headers.items()), raw)

    def log_enabled(self, _level: Level) -> bool:
        """A test keeps every line."""
        return True

    def log(self, level: Level, message: str, fields: Fields) -> None:
        """Keeps a line."""
        self.logs.append(" ".join([level, message, *(f"{key}={value}" for key, value in fields)]))

    def emit(self, kind: Kind, reason: str, message: str) -> None:
        """Keeps an Event."""
        self.events.append(Event("Warning" if kind == "warning" else "Normal", reason, message))

    def cache_get(self, key: str) -> bytes | None:
        """A value of the cache."""
        return self._cache.get(key)

    def cache_set(self, key: str, value: bytes, _ttl_ms: int) -> bool:
        """Keeps a value."""
        self._cache[key] = value
        return True

    def cache_compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, _ttl_ms: int
    ) -> bool:
        """Keeps a value in place of the expected one."""
        if self._cache.get(key) != expected:
            return False
        self._cache[key] = value
        return True

    def cache_delete(self, key: str) -> None:
        """Deletes a value."""
        self._cache.pop(key, None)


# The rules of runtime/egress: the tests of both read guest-sdk/requests.json.
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_URL_BYTES_MAX = 8 * 1024
# Every proxy-… as well.
_HOSTS = {
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "accept-encoding",
    "cookie",
    "cookie2",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
}


def _refused(request: RawRequest) -> str | None:
    """Why the host would not send the request."""
    if request.method not in _METHODS:
        return f"the method must be one of {', '.join(_METHODS)}"
    if why := _refused_url(request.url):
        return f"{request.url}: {why}"
    for header, value in request.headers:
        name = header.lower()
        if not re.fullmatch("[a-z0-9-]+", name):
            return f"servers read the header {header} as another one"
        if re.search(r"[\0-\x08\x0a-\x1f\x7f]", value):
            return f"the value of the header {name} has a control character"
        if name in _HOSTS or name.startswith("proxy-"):
            return f"the host sets the header {name} itself"
        if request.credential and _is_not_sent_with_credential(name, value):
            return f"the header {name} is not sent with a credential"
    return None


def _refused_url(text: str) -> str | None:
    if len(text.encode()) > _URL_BYTES_MAX:
        return "the URL is too long"
    if re.search(r"[\s\\\x00-\x1f\x7f-\x9f]", text):
        return "the URL has a space, a control character or a backslash"
    parts = re.match(r"https?://([^/?#]+)([^?#]*)", text, re.IGNORECASE)
    if not parts:
        return "this is not an absolute http or https URL"
    authority, path = parts[1], parts[2]
    if "@" in authority:
        return "the URL has user information"
    if re.search(r"/(?:(?:\.|%2e)?%2e|%2e\.)(?:/|$)", path, re.IGNORECASE):
        return "the path has an encoded dot segment"
    return _refused_authority(authority)


_NAME = re.compile(r"\[[0-9a-fA-F:.]+\]|[^\[\]:<>^|%]+")


def _refused_authority(authority: str) -> str | None:
    try:
        url = urlsplit(f"http://{authority}")
        name, port = url.hostname, url.port
    except ValueError:
        return "the URL has no valid host and port"
    text = authority.removesuffix(f":{port}") if port is not None else authority.removesuffix(":")
    if not name or not _NAME.fullmatch(text):
        return "the URL has no valid host and port"
    return "the URL has the port 0" if port == 0 else None


def _is_not_sent_with_credential(name: str, value: str) -> bool:
    """Headers that a credential sets, or that choose how its echo would look."""
    if name in ("authorization", "range", "accept-charset"):
        return True
    if name == "accept":
        return "charset" in value.lower()
    return name.endswith("-range") and name != "content-range"


def service(**changes: Any) -> sdk.Service:
    """A Service with one port, and what the test changes of it."""
    defaults: dict[str, Any] = {
        "namespace": "default",
        "name": "web",
        "uid": "0a1b2c3d-0000-4000-8000-000000000000",
        "ports": [sdk.ServicePort(name="http", port=80, node_port=30080, target_port="8080")],
        "ip_families": ["IPv4"],
        "ip_family_policy": "SingleStack",
    }
    return sdk.Service(**{**defaults, **changes})


def nodes(*some: sdk.Node) -> sdk.NodeSet:
    """A set of nodes, sorted by name as the host's."""
    return _Nodes(sorted(some, key=lambda node: node.name))


class _Nodes:
    def __init__(self, all: list[sdk.Node]) -> None:
        self._all = all

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> sdk.Node:
        return self._all[index]

    def __iter__(self) -> Iterator[sdk.Node]:
        return iter(self._all)

    def digest(self) -> int:
        return int.from_bytes(sha256(repr(self._all).encode()).digest()[:8])

    def names(self) -> list[str]:
        return [node.name for node in self._all]

    def provider_ids(self) -> list[str | None]:
        return [node.provider_id for node in self._all]

    def addresses(self, type: str) -> list[list[str]]:
        return [
            [address.address for address in node.addresses if address.type == type]
            for node in self._all
        ]

    def label(self, key: str) -> list[str | None]:
        return [node.labels.get(key) for node in self._all]

"""The host of a component: the imports of the contract as componentize-py passes them."""

from __future__ import annotations

# A function can import only what the snapshot has: these are the modules that the standard library
# imports at the first call of a function, `strptime` and `encode` among them.
import _strptime  # type: ignore[import-not-found] # noqa: F401
import encodings.ascii
import encodings.cp1252
import encodings.idna
import encodings.latin_1
import encodings.utf_8_sig
import encodings.utf_16
import encodings.utf_16_be
import encodings.utf_16_le
import encodings.utf_32
import encodings.utf_32_be
import encodings.utf_32_le  # noqa: F401

from componentize_py_types import Err
from wit_world.imports import cache, config, events, http, log

from . import host
from .host import Failure, Fields, Kind, Level, RawRequest, RawResponse

_LEVELS = {
    "debug": log.Level.DEBUG,
    "info": log.Level.INFO,
    "warn": log.Level.WARN,
    "error": log.Level.ERROR,
}
_CASES: dict[type, str] = {
    http.Failure_Forbidden: "forbidden",
    http.Failure_Limited: "limited",
    http.Failure_Malformed: "malformed",
    http.Failure_Unreachable: "unreachable",
    http.Failure_Tls: "tls",
    http.Failure_Interrupted: "interrupted",
    http.Failure_Timeout: "timeout",
    http.Failure_TooLarge: "too-large",
    http.Failure_CredentialRefused: "credential-refused",
    http.Failure_CredentialUnavailable: "credential-unavailable",
    http.Failure_Other: "other",
}


class SandboxHost:
    """Skysail's host."""

    def config(self) -> str:
        """The cloud-config."""
        return config.text()

    def send_all(self, requests: list[RawRequest]) -> list[RawResponse | Failure]:
        """Sends requests at the same time."""
        answers = http.send_all([_request(request) for request in requests])
        return [
            _failure(answer.value)
            if isinstance(answer, Err)
            else RawResponse(answer.value.status, answer.value.headers, answer.value.body)
            for answer in answers
        ]

    def log_enabled(self, level: Level) -> bool:
        """Whether the host keeps lines of this level."""
        return log.enabled(_LEVELS[level])

    def log(self, level: Level, message: str, fields: Fields) -> None:
        """Writes a line."""
        log.write(_LEVELS[level], message, fields)

    def emit(self, kind: Kind, reason: str, message: str) -> None:
        """Emits an Event."""
        events.emit(
            events.Kind.WARNING if kind == "warning" else events.Kind.NORMAL, reason, message
        )

    def cache_get(self, key: str) -> bytes | None:
        """A value of the cache."""
        return cache.get(key)

    def cache_set(self, key: str, value: bytes, ttl_ms: int) -> bool:
        """Keeps a value."""
        return cache.set(key, value, ttl_ms)

    def cache_compare_and_set(
        self, key: str, expected: bytes | None, value: bytes, ttl_ms: int
    ) -> bool:
        """Keeps a value in place of the expected one."""
        return cache.compare_and_set(key, expected, value, ttl_ms)

    def cache_delete(self, key: str) -> None:
        """Deletes a value."""
        cache.delete(key)


def _request(raw: RawRequest) -> http.Request:
    return http.Request(
        method=raw.method,
        url=raw.url,
        headers=raw.headers,
        body=raw.body,
        credential=raw.credential,
        timeout_ms=raw.timeout_ms,
        extra=[],
    )


def _failure(failure: http.Failure) -> Failure:
    match failure:
        case http.Failure_Timeout():
            said = ""
        case http.Failure_TooLarge(size):
            said = f"{size} bytes" if size else ""
        case http.Failure_Other((case, text)):
            said = f"{case}: {text}"
        case _:
            said = failure.value
    return Failure(_CASES[type(failure)], said)


def serve() -> None:
    """Installs the host; the entry of the component calls it after the modules were loaded."""
    host.use_host(SandboxHost())
    host.log_through_host()

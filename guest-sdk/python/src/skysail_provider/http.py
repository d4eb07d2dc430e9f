"""Requests through the host, and responses with the names of the package `requests`."""

from __future__ import annotations

import calendar
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate
from typing import Any, TypeVar
from urllib.parse import quote

from . import host
from .errors import (
    Denied,
    Exhausted,
    Internal,
    Invalid,
    NotFound,
    ProviderError,
    RetryAfter,
    Unavailable,
    worst,
)
from .host import Failure, RawRequest, RawResponse
from .text import quoted, well_formed

T = TypeVar("T")


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    data: str | bytes | None = None,
    credential: str | None = None,
    timeout: float | None = None,
) -> Response:
    """Sends a request and returns the response, whatever its status is.

    The host adds the operator's `credential` of this name, follows no redirect and repeats nothing.
    `timeout` is that of the whole exchange in seconds; None for the host's limits alone.
    """
    (result,) = _exchange([_raw(method, url, headers or {}, (data, credential, timeout))])
    if isinstance(result, ProviderError):
        raise result
    return result


def _raw(
    method: str,
    url: str,
    headers: Mapping[str, str],
    rest: tuple[str | bytes | None, str | None, float | None],
) -> RawRequest:
    data, credential, timeout = rest
    return RawRequest(
        method=well_formed(method),
        url=well_formed(url),
        headers=[(well_formed(name), well_formed(value)) for name, value in headers.items()],
        body=well_formed(data).encode() if isinstance(data, str) else data,
        credential=well_formed(credential) if credential else None,
        # 0 sets none: a shorter timeout than a millisecond is one.
        timeout_ms=max(host.milliseconds(timeout, 2**32 - 1), 1) if timeout else 0,
    )


def _exchange(raws: list[RawRequest]) -> list[Response | ProviderError]:
    answers = host.current().send_all(raws)
    return [
        _failed(raw, answer) if isinstance(answer, Failure) else Response(answer, _line(raw))
        for raw, answer in zip(raws, answers, strict=True)
    ]


def _line(raw: RawRequest) -> str:
    return f"{raw.method} {raw.url.partition('?')[0]}"


_FAILURES: dict[str, tuple[type[ProviderError], str]] = {
    "forbidden": (Denied, "the operator does not allow the request"),
    "limited": (Unavailable, "a limit of the sandbox was met"),
    "malformed": (Internal, "not a request that can be sent"),
    "unreachable": (Unavailable, "the cloud is unreachable"),
    "tls": (Unavailable, "no trusted connection to the cloud"),
    "interrupted": (Unavailable, "the response was cut off"),
    "timeout": (Unavailable, "the cloud did not answer in time"),
    "too-large": (Internal, "the response is larger than the sandbox allows"),
    "credential-refused": (Denied, "the login was refused"),
    "credential-unavailable": (Unavailable, "no login is possible now"),
}


def _failed(raw: RawRequest, failure: Failure) -> ProviderError:
    """The error of a request that got no response."""
    make, what = _FAILURES.get(failure.case, (Unavailable, "no response"))
    return make(f"{_line(raw)}: {what}{f': {failure.said}' if failure.said else ''}")


class Headers(Mapping[str, str]):
    """The headers of a response, without case; several values are joined by ", "."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values[name.lower()])

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def values_of(self, name: str) -> list[str]:
        """The values of a header, one for each time that the header came."""
        return self._values.get(name.lower(), [])


_NEXT = re.compile(r'\s*rel\s*=\s*"?(?:[^"]*\s)?next(?:["\s,]|$)', re.IGNORECASE)
_DATE = re.compile(r"\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT", re.ASCII)
_HTML = re.compile(r"\s*text/html\s*(;|$)", re.IGNORECASE)

_STATUSES: dict[int, type[ProviderError]] = {
    400: Invalid,
    401: Denied,
    402: Exhausted,
    403: Denied,
    404: NotFound,
    408: Unavailable,
    409: RetryAfter,
    410: NotFound,
    413: Invalid,
    422: Invalid,
    423: RetryAfter,
    425: Unavailable,
    429: RetryAfter,
    507: Exhausted,
}


class Response:
    """A response; its names are those of the package `requests`."""

    def __init__(self, raw: RawResponse, line: str) -> None:
        self.status_code = raw.status
        self.content = raw.body
        self.headers = Headers(raw.headers)
        self._line = line

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status_code < 300

    @property
    def text(self) -> str:
        """The body as text; raises `Internal` where it is not UTF-8."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise Internal(self.message("the body is not UTF-8")) from None

    def json(self) -> Any:
        """The body as JSON.

        Raises `Internal` where it is something else, empty or null: what is absent must not read as
        "there is none". Check what is inside, for example by `require_texts`.
        """
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise Internal(f"{self._line}: unexpected JSON: {error}") from None
        if value is None:
            raise Internal(f"{self._line}: the response is null")
        return value

    @property
    def next_link(self) -> str | None:
        """The target of `Link: <…>; rel="next"`; None for none."""
        # A target may have commas, but no angle brackets.
        for value in self.headers.values_of("link"):
            for link in value.split("<")[1:]:
                target, _, parameters = link.partition(">")
                if any(_NEXT.match(parameter) for parameter in parameters.split(";")):
                    return target
        return None

    def message(self, said: str) -> str:
        """The text of an error about this response: request, status and what the cloud said."""
        return f"{self._line}: status {self.status_code}{f': {said}' if said else ''}"

    @property
    def retry_after(self) -> float | None:
        """The wait that the response asks for, in seconds; None for none."""
        names = ["retry-after"]
        if self.status_code == 429:
            names += ["ratelimit-reset", "x-ratelimit-reset"]
        waits = (self._wait(value.strip()) for name in names for value in self._first(name))
        return next((wait for wait in waits if wait is not None), None)

    def _first(self, name: str) -> list[str]:
        return self.headers.values_of(name)[:1]

    def _wait(self, value: str) -> float | None:
        if value.isascii() and value.isdigit():
            # Python refuses to read numbers of thousands of digits.
            number = float(value)
            # From here on a number is seconds, or milliseconds, since 1970.
            if number < 1e9:
                return number
            then = number if number < 1e12 else number / 1000
        else:
            then = _date(value)
        # The cloud's clock may differ from this one.
        now = _date("".join(self._first("date")).strip())
        wait = then - now
        return max(wait, 0) if math.isfinite(wait) else None

    def error(self) -> ProviderError | None:
        """The error that the status means; None for success."""
        status = self.status_code
        is_html = _HTML.match(self.headers.get("content-type", ""))
        if is_html and (status < 300 or status in (404, 410)):
            said = "a page in HTML, which is not an answer of the API"
            return Unavailable(self.message(said))
        if status < 300:
            return None
        message = self.message(_detail(self.content))
        wait = self.retry_after
        make = _STATUSES.get(status) or (Unavailable if 500 <= status < 600 else Internal)
        if make is RetryAfter or (status in (413, 503) and wait is not None):
            return RetryAfter(message, wait or 0)
        return make(message)

    def raise_for_status(self) -> None:
        """Raises the error that the status means."""
        if error := self.error():
            raise error


def _date(text: str) -> float:
    """The time of an HTTP date; `parsedate` alone reads other texts, too."""
    parts = parsedate(text) if _DATE.fullmatch(text) else None
    return float(calendar.timegm(parts)) if parts else math.nan


_DETAIL_MAX = 300
# A body with more brackets is not read: JSON of that depth could use up the stack.
_BRACKETS_MAX = 100


def _detail(body: bytes) -> str:
    """What a body says about an error, in the members that most APIs have."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "the body is not UTF-8"
    said = text.strip()
    if text.count("[") + text.count("{") <= _BRACKETS_MAX:
        # Where the body is not JSON, its text says what the cloud said.
        with suppress(ValueError):
            said = _member(json.loads(text)) or said
    return said if len(said) <= _DETAIL_MAX else f"{said[:_DETAIL_MAX]}…"


def _member(body: Any) -> str:
    if not isinstance(body, dict):
        return body if isinstance(body, str) else ""
    values = list(body.values())
    alone = values[0] if len(values) == 1 and isinstance(values[0], dict) else None
    inner = alone if alone is not None else body.get("error", body)
    if not isinstance(inner, dict):
        return inner if isinstance(inner, str) else ""
    for key in ("message", "detail", "title", "faultstring", "error"):
        if isinstance(inner.get(key), str):
            return str(inner[key])
    return ""


def _no_error(_response: Response) -> ProviderError | None:
    return None


@dataclass(frozen=True)
class API:
    """The root of an HTTP API that speaks JSON."""

    endpoint: str
    credential: str | None = None
    """Name of the operator's credential that the host adds to each request."""
    timeout: float | None = None
    """Timeout of one exchange in seconds."""
    judge: Callable[[Response], ProviderError | None] = _no_error
    """Finds errors that a status does not tell."""

    @property
    def origin(self) -> str:
        """Scheme, host and port of the endpoint."""
        return re.split(r"(?<![:/])[/?#]", self.endpoint, maxsplit=1)[0]

    def request(self, method: str, *segments: str) -> Request:
        """Begins a request to the path that the segments are; each is escaped."""
        root = self.endpoint.rstrip("/")
        # DELETE /servers/ is another request than DELETE /servers/ID.
        if not all(segments):
            raise Internal(f"{method} {root}: a segment of the path is empty")
        return Request(self, method, "/".join([root, *map(_segment, segments)]))

    def get(self, *segments: str) -> Request:
        """Begins a GET."""
        return self.request("GET", *segments)

    def post(self, *segments: str) -> Request:
        """Begins a POST."""
        return self.request("POST", *segments)

    def put(self, *segments: str) -> Request:
        """Begins a PUT."""
        return self.request("PUT", *segments)

    def patch(self, *segments: str) -> Request:
        """Begins a PATCH."""
        return self.request("PATCH", *segments)

    def delete(self, *segments: str) -> Request:
        """Begins a DELETE."""
        return self.request("DELETE", *segments)

    def follow(self, link: str) -> Request:
        """Begins a GET of a link that the cloud returned, such as that of the next page.

        A URL, or a path from the root. A link to another origin is refused, because the request
        would carry the credential there.
        """
        is_path = link.startswith("/") and not link.startswith("//")
        if not is_path and not link.startswith(f"{self.origin}/"):
            why = f"is no path, and leads to another origin than {self.origin}"
            raise Internal(f"the link {quoted(link)} {why}")
        return Request(self, "GET", self.origin + link if is_path else link)


def _segment(segment: str) -> str:
    # A segment "." or ".." would mean another path.
    return segment.replace(".", "%2E") if segment in (".", "..") else _escaped(segment)


def _escaped(text: str) -> str:
    return quote(well_formed(text), safe="!*'()")


@dataclass(frozen=True)
class Request:
    """A request that is being built.

    Each method returns a new one, so that a request can be the beginning of several.
    """

    api: API
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: {"accept": "application/json"})
    body: str | bytes | None = None

    def query(self, key: str, value: str | int) -> Request:
        """Adds a parameter.

        An empty one, too: without it a filter would be gone, and a list be that of all objects.
        """
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise TypeError(f"the parameter {key} is neither a text nor a whole number: {value}")
        separator = "&" if "?" in self.url else "?"
        return replace(self, url=f"{self.url}{separator}{_escaped(key)}={_escaped(str(value))}")

    def query_unless_empty(self, key: str, value: str | int | None) -> Request:
        """Adds a parameter that has a value."""
        return self if value is None or value == "" else self.query(key, value)

    def header(self, name: str, value: str) -> Request:
        """Sets a header."""
        return replace(self, headers={**self.headers, name.lower(): value})

    def json(self, value: Any) -> Request:
        """Sets the body to JSON."""
        return self.data("application/json", json.dumps(value, separators=(",", ":")))

    def form(self, values: Mapping[str, str]) -> Request:
        """Sets the body to the pairs of a form."""
        pairs = "&".join(f"{_escaped(key)}={_escaped(value)}" for key, value in values.items())
        return self.data("application/x-www-form-urlencoded; charset=utf-8", pairs)

    def data(self, content_type: str, body: str | bytes) -> Request:
        """Sets the body."""
        return replace(self.header("content-type", content_type), body=body)

    def send(self) -> Response:
        """Sends the request; raises the error that the response means."""
        (result,) = send_all([self])
        if isinstance(result, ProviderError):
            raise result
        return result

    def raw(self) -> RawRequest:
        """The request as the contract has it."""
        rest = (self.body, self.api.credential, self.api.timeout)
        return _raw(self.method, self.url, self.headers, rest)


def send_all(requests: Sequence[Request]) -> list[Response | ProviderError]:
    """Sends requests at the same time. The results are in the order of the requests."""
    if not requests:
        return []
    return [
        result if isinstance(result, ProviderError) else _judged(request.api, result)
        for request, result in zip(
            requests, _exchange([request.raw() for request in requests]), strict=True
        )
    ]


def _judged(api: API, response: Response) -> Response | ProviderError:
    return api.judge(response) or response.error() or response


def send_every(requests: Sequence[Request]) -> list[Response]:
    """Sends requests at the same time and returns all responses; raises the worst error."""
    results = send_all(requests)
    if error := worst(result for result in results if isinstance(result, ProviderError)):
        raise error
    return [result for result in results if isinstance(result, Response)]


def absent_ok(result: Response | ProviderError) -> None:
    """For deletions: raises an error unless the error says that the object does not exist."""
    if isinstance(result, ProviderError) and not isinstance(result, NotFound):
        raise result


_PAGES_MAX = 1000
# How often `offset_pages` reads a list that changes meanwhile.
_READS_MAX = 3


def pages(page: Callable[[str], tuple[Sequence[T], str | None]]) -> list[T]:
    """Collects a list that the cloud returns in pages, by the cursor of the next page.

    `page` gets a cursor, the empty text first, and returns entries and the next cursor; an absent
    or empty one ends the list.
    """
    all: list[T] = []
    seen: set[str] = set()
    cursor = ""
    for _ in range(_PAGES_MAX):
        entries, following = page(cursor)
        all.extend(entries)
        if not following:
            return all
        if following in seen:
            raise Unavailable(f"the list does not end: cursor {quoted(following)} came twice")
        seen.add(following)
        cursor = following
    raise Unavailable(f"the list does not end after {_PAGES_MAX} pages")


def offset_pages(id: Callable[[T], str], page: Callable[[int], tuple[Sequence[T], int]]) -> list[T]:
    """Collects a list that the cloud returns in pages by offset or number.

    `page` gets an offset, and returns entries and the number of entries of the whole list. An entry
    that goes between two pages moves the later ones forward, and one of them is on no page: the
    list is then read again, and `Unavailable` where it changes each time. A deletion together with
    a creation is not seen: look a machine up before it is gone.
    """
    for _ in range(_READS_MAX):
        all = _read_by_offset(page)
        if all is not None and len({id(entry) for entry in all}) == len(all):
            return all
    raise Unavailable(f"the list changed between two pages, {_READS_MAX} times")


def _read_by_offset(page: Callable[[int], tuple[Sequence[T], int]]) -> list[T] | None:
    """Reads a list once; None where it changed meanwhile."""
    entries, total = page(0)
    all = list(entries)
    for _ in range(1, _PAGES_MAX):
        if len(all) >= total:
            return all if len(all) == total else None
        more, total_now = page(len(all))
        if total_now != total or not more:
            return None
        all.extend(more)
    raise Unavailable(f"the list does not end after {_PAGES_MAX} pages")


def require_texts(value: Any, what: str, *keys: str) -> list[dict[str, Any]]:
    """Returns the value, a list of objects in which each of these members is a text.

    Raises `Internal` for anything else. An ID that is a number, or a name that is absent or empty,
    would not be found, and a machine that is not found deletes its node.
    """
    if not isinstance(value, list):
        raise Internal(f"{what}: not a list")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise Internal(f"{what}[{index}]: not an object")
        for key in keys:
            found = entry.get(key)
            if not isinstance(found, str) or not found:
                raise Internal(f"{what}[{index}].{key}: not a text with at least one character")
    return value

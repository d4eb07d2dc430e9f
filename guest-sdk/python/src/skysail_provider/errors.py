"""Errors of the contract; `wit/v0.1.0/types.wit` says how the host reacts to each code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class ProviderError(Exception):
    """An error that a provider reports. Raise or return one of the subclasses.

    Any other exception is a bug and ends the call with a trap.
    """

    code: ClassVar[str]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(ProviderError):
    """The object does not exist. About a machine, it deletes the node."""

    code = "not-found"


class ImplementedElsewhere(ProviderError):
    """Another program serves this Service."""

    code = "implemented-elsewhere"


class Unsupported(ProviderError):
    """The cloud cannot do it."""

    code = "unsupported"


class Invalid(ProviderError):
    """The object or the cloud-config has to be changed first."""

    code = "invalid"


class Denied(ProviderError):
    """The cloud refuses the credential or the rights."""

    code = "denied"


class Exhausted(ProviderError):
    """A quota is used up."""

    code = "exhausted"


class RetryAfter(ProviderError):
    """The cloud is busy, or still at work: the host calls again after a wait.

    `seconds` is the wait; 0 lets the host choose.
    """

    code = "retry-after"

    def __init__(self, message: str, seconds: float = 0) -> None:
        super().__init__(message)
        self.seconds = seconds


class Unavailable(ProviderError):
    """The cloud is unreachable, slow or broken."""

    code = "unavailable"


class Internal(ProviderError):
    """The cloud answered what the provider does not understand."""

    code = "internal"


_RANKS = {NotFound.code: 0, Unavailable.code: 1, RetryAfter.code: 2}


def _rank(error: ProviderError) -> tuple[int, float]:
    wait = error.seconds if isinstance(error, RetryAfter) else 0
    return (_RANKS.get(error.code, 3), wait)


def worst(errors: Iterable[ProviderError]) -> ProviderError | None:
    """The worst of several errors; None for no error.

    An error that no retry repairs is worse than the longest wait, and a wait is worse than an
    outage. The result is `NotFound` only where all errors are, because it may delete a node.
    """
    return max(errors, key=_rank, default=None)

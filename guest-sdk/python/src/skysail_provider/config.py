"""The cloud-config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from .errors import Invalid
from .host import config
from .text import quoted
from .types import Problem

T = TypeVar("T")


def load_config(parse: Callable[[str], tuple[T, Sequence[Problem]]]) -> T:
    """Parses the cloud-config of this call by the function that `check_config` calls, too.

    Raises the first fatal problem; warnings do not prevent a call.
    """
    value, problems = parse(config())
    for problem in problems:
        if problem.severity == "fatal":
            raise Invalid(f"cloud-config, line {problem.line}, {problem.key}: {problem.message}")
    return value


def has_fatal(problems: Iterable[Problem]) -> bool:
    """Whether one of the problems refuses the cloud-config."""
    return any(problem.severity == "fatal" for problem in problems)


@dataclass(slots=True)
class _Entry:
    line: int
    section: str
    key: str
    value: str
    is_asked: bool = False

    @property
    def path(self) -> str:
        return _path(self.section, self.key)


def _path(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _is_comment(text: str) -> bool:
    return text.startswith(("#", ";"))


class INI:
    """A cloud-config of sections, keys and values, the format of most clouds.

    Sections and keys are compared without case. `configparser` reads such a file, too, and knows
    neither the line of a key nor the keys that nobody asked for.
    """

    def __init__(self, text: str) -> None:
        self._entries: list[_Entry] = []
        self._found: list[Problem] = []
        section = ""
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if not line or _is_comment(line):
                continue
            if line.startswith("["):
                section = self._section(number, line, section)
            else:
                self._entry(number, section, line)

    def _section(self, number: int, line: str, before: str) -> str:
        name, bracket, after = line[1:].partition("]")
        after = after.strip()
        if bracket and (not after or _is_comment(after)):
            return name.strip()
        self._problem("fatal", number, "", "a section ends with ]")
        return before

    def _entry(self, number: int, section: str, line: str) -> None:
        key, assigns, text = line.partition("=")
        if not assigns:
            self._problem("fatal", number, line, "expected key = value")
            return
        key = key.strip()
        try:
            self._entries.append(_Entry(number, section, key, _value(text.strip())))
        except ValueError as error:
            self._problem("fatal", number, _path(section, key), str(error))

    def _problem(
        self, severity: Literal["fatal", "warning"], line: int, key: str, message: str
    ) -> None:
        self._found.append(Problem(severity, line, key, message))

    def _of(self, section: str, key: str) -> list[_Entry]:
        wanted = (section.lower(), key.lower())
        return [e for e in self._entries if (e.section.lower(), e.key.lower()) == wanted]

    def _line(self, section: str, key: str) -> int:
        return next((entry.line for entry in self._of(section, key)), 0)

    def optional(self, section: str, key: str) -> str | None:
        """A value; None where the key is absent. A second value is a problem."""
        entries = self._of(section, key)
        for entry in entries:
            entry.is_asked = True
        for other in entries[1:]:
            self._problem("fatal", other.line, _path(section, key), "stands here a second time")
        return entries[0].value if entries else None

    def required(self, section: str, key: str) -> str:
        """A value; an absent or empty one is a problem."""
        value = self.optional(section, key) or ""
        if not value:
            self.refuse(section, key, "is required")
        return value

    def list(self, section: str, key: str) -> list[str]:
        """All values of a key that may stand several times, in their order."""
        entries = self._of(section, key)
        for entry in entries:
            entry.is_asked = True
        return [entry.value for entry in entries]

    def read(self, section: str, key: str, parse: Callable[[str], T]) -> T | None:
        """A value as `parse` reads it.

        None where the key is absent, and where `parse` raises `ValueError`, which is a problem.
        """
        text = self.optional(section, key)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.refuse(section, key, f"{quoted(text)}: {error}")
            return None

    def refuse(self, section: str, key: str, message: str) -> None:
        """Adds a fatal problem of a key."""
        self._problem("fatal", self._line(section, key), _path(section, key), message)

    def warn(self, section: str, key: str, message: str) -> None:
        """Adds a warning about a key."""
        self._problem("warning", self._line(section, key), _path(section, key), message)

    def problems(self) -> Sequence[Problem]:
        """All problems by line, with one for each key that nobody asked for."""
        unknown = [
            Problem("fatal", entry.line, entry.path, "is not a key of this provider")
            for entry in self._entries
            if not entry.is_asked
        ]
        return sorted([*self._found, *unknown], key=lambda problem: problem.line)


_COMMENT = re.compile(r"(^|[ \t])[#;].*$")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(.*)')


def _value(text: str) -> str:
    r"""An unquoted value ends at a comment after a space; a quoted one has \" and \\."""
    if not text.startswith('"'):
        return _COMMENT.sub("", text).rstrip()
    quoted = _QUOTED.fullmatch(text)
    if not quoted:
        raise ValueError("the quote is not closed")
    inner, rest = quoted[1], quoted[2].strip()
    if rest and not _is_comment(rest):
        raise ValueError("text behind the closing quote")
    if re.search(r'\\[^"\\]', inner.replace("\\\\", "")):
        raise ValueError('after \\ only " and \\ may stand')
    return re.sub(r"\\(.)", r"\1", inner)

"""Texts as the host and people read them."""

from __future__ import annotations

import json
import re

_SURROGATES = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """A text that is UTF-8: a string of Python may have halves of surrogate pairs."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def quoted(text: str) -> str:
    """A text within an error."""
    return json.dumps(text, ensure_ascii=False)

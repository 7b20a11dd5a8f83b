"""Files of variables as Docker Compose reads them (Compose Specification, env_file)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pagecage.errors import PagecageError

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*(?:=\s*(?P<value>.*))?")
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*(?:#.*)?")
_COMMENT = re.compile(r"\s#.*$")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def compose_variables(text: str, name: str) -> Iterator[str]:
    """Yield NAME=VALUE, or NAME without a value, for each variable of a file.

    Raises PagecageError for a line that is none, and for a value that contains another variable.
    """
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if not match:
            raise PagecageError(
                f"{name}: line {number} is not NAME=VALUE", f"sed -n {number}p {name}"
            )
        value = match["value"]
        yield match["name"] if value is None else f"{match['name']}={_value(value, name, number)}"


def _value(text: str, name: str, number: int) -> str:
    quoted = _QUOTED.fullmatch(text)
    if quoted and quoted["quote"] == "'":
        return quoted["text"]
    value = _unescaped(quoted["text"]) if quoted else _COMMENT.sub("", f" {text}").strip()
    if "$" in value:
        raise PagecageError(
            f"{name}: line {number} contains a variable", "write its value, in single quotes"
        )
    return value


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)

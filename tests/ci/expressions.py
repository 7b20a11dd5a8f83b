"""Expressions of GitHub Actions, as far as `action.yml` needs them; anything else is refused.

Grammar: `||` of `&&` of comparisons (`==`, `!=`) of strings in quotation marks and names
(documentation of GitHub Actions, "Evaluate expressions in workflows and actions").
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Context = Mapping[str, str]
"""Values of names such as `inputs.size` and `steps.run.outputs.status`."""
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>[a-z][\w.-]*)|(?P<sign>[=!]=|&&|\|\|))"
)
_EMBEDDED = re.compile(r"\$\{\{(.*?)\}\}")


class UnknownExpressionError(ValueError):
    """An expression that this module does not evaluate."""


def interpolate(text: str, context: Context) -> str:
    """Return a text with each `${{ }}` replaced by its value."""
    return _EMBEDDED.sub(lambda match: _value(_tokens(match[1]), context), text)


def is_true(condition: str, context: Context) -> bool:
    """Return whether the condition of a step holds."""
    return any(
        all(_comparison(part, context) for part in _split(clause, "&&"))
        for clause in _split(_tokens(condition), "||")
    )


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise UnknownExpressionError(text)
        found.append(match.group(0).strip())
        position = match.end()
    return found


def _split(tokens: list[str], sign: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for token in tokens:
        if token == sign:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _comparison(tokens: list[str], context: Context) -> bool:
    if len(tokens) == 3 and tokens[1] in ("==", "!="):
        # Strings are compared without regard to case.
        left, right = (_value([token], context).lower() for token in tokens[::2])
        return (left == right) is (tokens[1] == "==")
    raise UnknownExpressionError(" ".join(tokens))


def _value(tokens: list[str], context: Context) -> str:
    if len(tokens) != 1:
        raise UnknownExpressionError(" ".join(tokens))
    token = tokens[0]
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    if token not in context:
        raise UnknownExpressionError(token)
    return context[token]

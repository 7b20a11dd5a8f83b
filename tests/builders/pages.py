"""The addresses that a page loads, and the contrast of its colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser

# Attributes that make a browser fetch something at once. A link (href of <a>) fetches nothing until
# it is followed.
LOADS_BY_STYLE = re.compile(r"url\((?!['\"]?(?:#|data:))")
LOADS = {"src", "srcset", "data", "poster", "background", "action", "xlink:href"}


def loads_of(page: str) -> list[str]:
    parser = Loads()
    parser.feed(page)
    css = re.findall(r"url\(([^)]*)\)", page) + re.findall(r"@import[^;]*", page)
    return parser.found + [
        address for address in css if not address.strip("'\"").startswith(("#", "data:"))
    ]


class Loads(HTMLParser):
    """Every address that a browser would fetch on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            loads = name in LOADS or (name == "href" and tag != "a")
            loads = loads or (name == "style" and bool(LOADS_BY_STYLE.search(value or "")))
            if loads and not re.match(r"^(data:|#)", value or ""):
                self.found.append(f"{name} of <{tag}>: {value}")


def luminance(colour: Sequence[float]) -> float:
    """Return the relative luminance of WCAG 2.2 of red, green and blue, each 0 to 255."""
    red, green, blue = (
        c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the contrast ratio of WCAG 2.2; 7 is its strictest requirement for text."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)

"""Links in documents that leave the site are shown as words: a published page must not lead nowhere."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_OUTSIDE = ("http://", "https://", "#", "mailto:")


def within(text: str, page: str, pages: Collection[str]) -> str:
    """A document's text in which every link to a file that is no page of the site is its words alone.

    `page` is where the document stands in the site, `pages` all that stand there, as `docs/FORMAT.md`.
    """

    def kept(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if target.startswith(_OUTSIDE):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
        return match[0] if path in pages else words

    return _LINK.sub(kept, text)

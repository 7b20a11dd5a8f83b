"""SHA-256 digests of texts and of JSON documents, by which a later change is recognized."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def text_sha256(text: str) -> str:
    """Return the digest of a text in UTF-8; a file name that is not valid text has one too."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def json_sha256(value: Any) -> str:
    """Return the digest of a JSON value, whatever the order of its keys."""
    return text_sha256(json.dumps(value, sort_keys=True))


def document_sha256(document: Mapping[str, Any], digest_key: str) -> str:
    """Return the digest of a document without the key that holds its own digest."""
    return json_sha256({key: value for key, value in document.items() if key != digest_key})

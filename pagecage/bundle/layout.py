"""What a bundle may hold, and where: the one list that packing and unpacking go by."""

from __future__ import annotations

import re

from pagecage.bundle.ro_crate import NAME as CRATE

BUNDLE_VERSION = 1
MANIFEST = "bundle.json"
SUFFIX = ".pagecage.zip"
REQUIRED = ("plan.json", "records.jsonl")
_NAME = r"[A-Za-z0-9_+@=-][A-Za-z0-9._+@=-]*"
_ALLOWED = re.compile(
    rf"plan\.json|records\.jsonl|report\.ipynb|{re.escape(CRATE)}|facts/{_NAME}\.json|trials/{_NAME}/{_NAME}"
)


def is_allowed(path: str) -> bool:
    """Whether a path is one of a bundle's: in the run's own shape, so that none can lead out of its folder."""
    return _ALLOWED.fullmatch(path) is not None

"""Names and paths in a bundle, used for packing and unpacking."""

from __future__ import annotations

import re

from pagecage.bundle.ro_crate import NAME as CRATE

BUNDLE_VERSION = 1
MANIFEST = "bundle.json"
SUFFIX = ".pagecage.zip"
REQUIRED = ("plan.json", "records.jsonl")
REPORT = "report.ipynb"
"""Contained in older bundles, and never used: a report is made from the data."""
_NAME = r"[A-Za-z0-9_+@=-][A-Za-z0-9._+@=-]*"
_ALLOWED = re.compile(
    rf"plan\.json|records\.jsonl|{re.escape(REPORT)}|{re.escape(CRATE)}|facts/{_NAME}\.json|trials/{_NAME}/{_NAME}"
)


def is_allowed(path: str) -> bool:
    """Return whether a bundle may contain this path; none leads out of its folder."""
    return _ALLOWED.fullmatch(path) is not None

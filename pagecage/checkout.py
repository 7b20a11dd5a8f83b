"""Paths of this checkout and of its runs."""

from __future__ import annotations

import os
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
RUNS = Path(os.environ.get("PAGECAGE_RUNS", TOP / "runs"))

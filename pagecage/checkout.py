"""Where this checkout is, and where its runs are kept."""

from __future__ import annotations

import os
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
RUNS = Path(os.environ.get("PAGECAGE_RUNS", TOP / "runs"))

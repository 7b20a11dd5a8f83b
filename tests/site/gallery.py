"""`python -m tests.site.gallery RUNS`: pictures of a site made of a folder's runs, for docs/gallery and README.

Taken in chromium at one width, light, of the first page and of the top of two reports.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from analysis.site.publish import publish
from tests.tree import ROOT

GALLERY = ROOT / "docs/gallery"
WIDTH = 1280
PICTURES = {"site.png": ("index.html", 1500), "async-hazard.png": ("reports/async-hazard.html", 1900),
            "readahead-amplification.png": ("reports/readahead-amplification.html", 1900)}  # fmt: skip
"""Which page, and how much of it from the top, in pixels."""


def main(runs: Path, out: Path = GALLERY) -> list[Path]:
    """Make the site, take the pictures, and give their paths."""
    program = shutil.which("chromium")
    assert program, "there is no chromium here: tools/bootstrap browser installs it"
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        site = publish(ROOT, runs, [], Path(scratch) / "site").parent
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(color_scheme="light", viewport={"width": WIDTH, "height": 1000})
        made = [_take(page, site / where, out / name, height) for name, (where, height) in PICTURES.items()]
        browser.close()
    return made


def _take(page: Page, source: Path, target: Path, height: int) -> Path:
    page.goto(source.as_uri(), wait_until="networkidle")
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.screenshot(path=str(target))
    return target


if __name__ == "__main__":
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in main(Path(sys.argv[1])))

"""Screenshots of a site for docs/gallery and README: `python -m tests.site.gallery docs/runs`.

They show the first page and parts of two reports in chromium, in the light theme.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from analysis.data.bundles import bundled_runs
from analysis.site.publish import publish
from tests.tree import ROOT

GALLERY = ROOT / "docs/gallery"
WIDTH = 1280
REPORTS = {"async-hazard": "Latency distribution", "constrained-random": "Results"}
"""Experiments whose report is shown, and the heading at which the picture begins."""


def main(bundles: Path, out: Path = GALLERY) -> list[Path]:
    """Build the site of a folder of bundles, and take screenshots of it; return their paths."""
    with tempfile.TemporaryDirectory() as scratch, bundled_runs(bundles) as runs:
        return screenshots(publish(ROOT, runs, [], Path(scratch) / "site").parent, out)


def screenshots(site: Path, out: Path = GALLERY) -> list[Path]:
    """Take screenshots of a site and of those REPORTS that it has."""
    with opened() as page:
        found = {name: site / "runs" / name / "report.html" for name in REPORTS}
        return [
            taken(page, site / "index.html", out / "site.png", 1000),
            *(
                taken(page, report, out / f"{name}-report.png", 1150, REPORTS[name])
                for name, report in found.items()
                if report.exists()
            ),
        ]


@contextmanager
def opened() -> Iterator[Page]:
    """Open a page in chromium."""
    program = shutil.which("chromium")
    assert program, "there is no chromium here: make build/.stamp-browser installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser.new_page(color_scheme="light", viewport={"width": WIDTH, "height": 1000})
        browser.close()


def taken(page: Page, source: Path, target: Path, height: int, heading: str = "") -> Path:
    """Take a screenshot of this height, from a heading or from the top of the page."""
    page.goto(source.resolve().as_uri(), wait_until="networkidle")
    top = page.locator("h2", has_text=heading).first.bounding_box() if heading else None
    clip = {"x": 0, "y": max(0, top["y"] - 20) if top else 0, "width": WIDTH, "height": height}
    page.screenshot(path=str(target), full_page=True, clip=clip)
    return target


if __name__ == "__main__":
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in main(Path(sys.argv[1])))

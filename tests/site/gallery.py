"""Pages and screenshots of docs/gallery and README: `python -m tests.site.gallery docs/runs`.

Screenshots show the first page of a site and parts of three reports in chromium, in the light
theme.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Page

from analysis.articles.ratios import run_by_experiment
from analysis.data.load import Run, bundled_runs
from analysis.site import publish
from analysis.views.render import PAGE, render
from tests.site.browser import chromium
from tests.tree import ROOT

GALLERY = ROOT / "docs/gallery"
WIDTH = 1280
TITLE = "the title"
REPORTS = {
    "async-hazard": {"Latency distribution": 700},
    "constrained-random": {TITLE: 420, "Results": 590},
    "postgres-gp3": {TITLE: 440, "Diagnosis": 600},
}
"""Experiments whose report is shown, and the heights of the parts of it, by heading."""
NOTEBOOK = "notebooks/constrained-random.html"
NOTEBOOK_PARTS = {"What the limit costs": 430}


def main(bundles: Path, out: Path = GALLERY) -> list[Path]:
    """Make the reports and the site of a folder of bundles, and take screenshots of it.

    Return the paths of what was written.
    """
    with tempfile.TemporaryDirectory() as scratch, bundled_runs(bundles) as runs:
        made = reports(runs, out)
        site = publish(ROOT, nullcontext(runs), [], Path(scratch) / "site").parent
        return [*made, *screenshots(site, out)]


def reports(runs: Sequence[Run], out: Path = GALLERY) -> list[Path]:
    """Make each page again, from one run of its experiment; return their paths."""
    made = []
    for experiment, run in run_by_experiment(runs).items():
        if (page := out / f"{experiment}.html").exists():
            render(run.path)
            shutil.copy(run.path / PAGE, page)
            made.append(page)
    return made


def screenshots(site: Path, out: Path = GALLERY) -> list[Path]:
    """Take screenshots of a site and of those REPORTS that it has."""
    with opened() as page:
        found = {name: site / "runs" / name / "report.html" for name in REPORTS}
        return [
            taken(page, site / "index.html", out / "site.png", {TITLE: 1000}),
            taken(page, site / NOTEBOOK, out / "notebook.png", NOTEBOOK_PARTS, left=370),
            *(
                taken(page, report, out / f"{name}-report.png", REPORTS[name])
                for name, report in found.items()
                if report.exists()
            ),
        ]


@contextmanager
def opened() -> Iterator[Page]:
    """Open a page in chromium."""
    with chromium() as browser:
        yield browser.new_page(color_scheme="light", viewport={"width": WIDTH, "height": 1000})


def taken(
    page: Page, source: Path, target: Path, heights: Mapping[str, int], left: int = 0
) -> Path:
    """Take a picture of parts of a page, each from its heading on; return its path.

    `left` pixels of the page are cut off.
    """
    page.goto(source.resolve().as_uri(), wait_until="networkidle")
    parts = [Image.open(BytesIO(_part(page, *part, left))) for part in heights.items()]
    whole = Image.new("RGB", (WIDTH - left, sum(part.height for part in parts)))
    for number, part in enumerate(parts):
        whole.paste(part, (0, sum(above.height for above in parts[:number])))
    whole.save(target, optimize=True)
    return target


def _part(page: Page, heading: str, height: int, left: int) -> bytes:
    where = page.locator("h2", has_text=heading).first.bounding_box() if heading != TITLE else None
    top = max(0, where["y"] - 20) if where else 0
    clip = FloatRect(x=left, y=top, width=WIDTH - left, height=height)
    return page.screenshot(full_page=True, clip=clip)


if __name__ == "__main__":
    sys.stdout.writelines(f"{path.relative_to(ROOT)}\n" for path in main(Path(sys.argv[1])))

"""Tests of the site in a browser: errors, offline use, themes, narrow screens, updates."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, FloatRect, Locator, Page, ViewportSize

from analysis.data.load import load_run
from analysis.site import drop_outside_links, publish
from pagecage.bundle.unpack import unpack
from pagecage.errors import PagecageError
from pagecage.model.published_figures import read_rows
from tests.builders.command_line import called
from tests.builders.pages import contrast
from tests.fixtures.runs import build_run
from tests.tree import ROOT

pytestmark = pytest.mark.slow
PAGES = (
    *("index.html", "scorecard.html", "answers.html", "docs/README.html", "docs/FORMAT.html"),
    *("docs/METHODOLOGY.html", "docs/decisions/index.html"),
)


Scheme = Literal["dark", "light"]


@dataclass
class Visitor:
    """A browser at the site, with the errors and requests while it showed pages."""

    browser: Browser
    site: Path
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def page(self, scheme: Scheme | None = None, width: int = 1280, height: int = 720) -> Page:
        """Open an empty page whose errors and requests are recorded."""
        size = ViewportSize(width=width, height=height)
        page = self.browser.new_page(color_scheme=scheme, viewport=size)
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("requestfailed", lambda one: self.errors.append(f"{one.url}: {one.failure}"))
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def go(self, page: Page, name: str) -> Page:
        """Open a page of the site, to its last request."""
        page.goto((self.site / name).as_uri(), wait_until="networkidle")
        return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    run = build_run(folder / "runs" / "20260101T000000Z-constrained-random-vm")
    publish(ROOT, nullcontext([load_run(run)]), [], folder / "site")
    return folder / "site"


@pytest.fixture
def visitor(browser: Browser, site: Path) -> Visitor:
    return Visitor(browser, site)


ALL_PAGES = (
    *PAGES,
    *("reports/constrained-random.html", "notebooks/constrained-random.html"),
    *("notebooks/003.html", "search.html"),
)


def test_no_page_has_errors_or_external_requests(visitor: Visitor) -> None:
    page = visitor.page()
    for name in ALL_PAGES:
        visitor.go(page, name)
    assert visitor.errors == []
    own = (visitor.site.as_uri(), "data:")
    assert {url for url in visitor.requests if not url.startswith(own)} == set()
    assert len(visitor.requests) > len(PAGES)


def test_failed_requests_and_errors_are_noticed(visitor: Visitor, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<script src="http://127.0.0.1:9/x.js"></script><script>console.error("so")</script>'
    )
    visitor.page().goto(bad.as_uri())
    assert any("127.0.0.1" in url for url in visitor.requests)
    assert "so" in visitor.errors


def test_every_link_leads_somewhere(visitor: Visitor) -> None:
    page = visitor.page()
    for name in ALL_PAGES:
        file = visitor.site / name
        page.goto(file.as_uri())
        for target in page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"):
            path, _, anchor = target.removeprefix("file://").partition("#")
            is_there = not target.startswith("file:") or Path(path.partition("?")[0]).is_file()
            assert is_there, f"{name}: {target}"
            if anchor and path == str(file):
                assert page.locator(f"[id='{anchor}']").count(), f"{name}: #{anchor}"


def first_column(page: Page, place: int = 1) -> list[str]:
    return page.locator(f"table.sortable tbody tr:visible td:nth-child({place})").all_inner_texts()


@pytest.fixture
def scorecard(visitor: Visitor) -> Page:
    return visitor.go(visitor.page(height=900), "scorecard.html")


def test_a_heading_sorts_in_both_directions(scorecard: Page) -> None:
    before = first_column(scorecard, 2)
    scorecard.get_by_role("button", name="experiment").click()
    assert first_column(scorecard, 2) == sorted(before)
    scorecard.get_by_role("button", name="experiment").click()
    assert first_column(scorecard, 2) == sorted(before, reverse=True)


def test_a_button_filters_the_table_and_resets_it(scorecard: Page) -> None:
    everything = len(first_column(scorecard))
    scorecard.locator(".chips button[data-verdict=untestable]").click()
    assert 0 < len(first_column(scorecard)) < everything
    assert all(text.startswith("untestable") for text in first_column(scorecard, 6))
    scorecard.locator(".chips button[data-verdict=untestable]").press("Enter")
    assert len(first_column(scorecard)) == everything


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_themes(visitor: Visitor, scheme: Scheme) -> None:
    page = visitor.go(visitor.page(scheme), "reports/constrained-random.html")
    ink, paper = page.evaluate(
        "() => [getComputedStyle(document.querySelector('table.pagecage td')).color,"
        " getComputedStyle(document.body).backgroundColor].map(c => c.match(/[0-9.]+/g).slice(0,"
        " 3).map(Number))"
    )
    assert contrast(ink, paper) > 7
    assert (sum(paper) > 384) == (scheme == "light")


@pytest.mark.parametrize(
    "name",
    [
        *("index.html", "scorecard.html"),
        *("reports/constrained-random.html", "notebooks/constrained-random.html"),
    ],
)
def test_a_narrow_screen_needs_no_scrolling_sideways(visitor: Visitor, name: str) -> None:
    page = visitor.go(visitor.page(width=390, height=844), name)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_the_site_works_from_a_server_and_can_be_searched(visitor: Visitor) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(visitor.site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = visitor.page()
        page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q=cachestat")
        page.wait_for_selector("#search-results li a")
        server.shutdown()
    assert visitor.errors == []


def test_without_scripts_the_tables_are_there(site: Path, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "scorecard.html").as_uri())
    assert len(first_column(page)) > 300
    context.close()


def box(locator: Locator) -> FloatRect:
    found = locator.bounding_box()
    assert found is not None
    return found


def test_the_verdicts_are_visible_on_a_notebooks_screen(scorecard: Page) -> None:
    table = scorecard.locator("table.sortable")
    verdict = box(table.locator("tbody tr td:nth-child(6)").first)
    assert verdict["x"] + verdict["width"] <= 1280
    assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")


def test_the_scorecard_has_totals_by_article_and_host(scorecard: Page) -> None:
    hosts = scorecard.locator(".totals").nth(1).locator("tbody th").all_inner_texts()
    assert hosts == ["real CPU", "emulated guest", "without a run"]
    totals = scorecard.locator(".totals").first.locator("tbody td:last-child").all_inner_texts()
    assert sum(map(int, totals)) == len(read_rows(ROOT / "experiments"))
    measured = scorecard.locator("[id='003-178'] td:nth-child(5)").inner_text().splitlines()
    assert measured[1:] == ["emulated guest", "20260101T000000Z-constrained-random-vm"]


def test_a_card_has_the_strip_of_its_report(visitor: Visitor) -> None:
    page = visitor.go(visitor.page(), "reports/constrained-random.html")
    result, trust = (
        page.locator(f".strip {part}").inner_text() for part in (".result", "dd >> nth=-1")
    )
    bars = page.locator(".strip .bar").count()
    card = visitor.go(page, "index.html").locator(".card").first
    assert result in card.inner_text()
    assert trust in card.inner_text()
    assert card.locator(".bar").count() == bars > 1
    assert box(card.locator(".bar b").last)["width"] > 20


def test_a_report_leads_to_its_notebook_with_frames_and_pictures(visitor: Visitor) -> None:
    page = visitor.go(visitor.page(), "reports/constrained-random.html")
    page.get_by_role("link", name="data frames", exact=True).click()
    page.wait_for_load_state("networkidle")
    assert page.url == (visitor.site / "notebooks/constrained-random.html").as_uri()
    assert page.locator("table.dataframe").count() >= 6
    pictures = page.locator("article img")
    assert [pictures.nth(n).evaluate("i => i.naturalWidth > 300") for n in range(2)] == [True] * 2
    assert "analysis.load(source)" in page.locator("article").inner_text()
    assert visitor.errors == []


def test_a_runs_notebook_lies_beside_its_bundle_and_names_it(site: Path) -> None:
    given = site / "runs/constrained-random"
    (bundle,) = given.glob("*.pagecage.zip")
    cells = json.loads((given / "data-frames.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    assert any(f'source = "{bundle.name}"' in source for source in sources)


def test_a_folder_with_other_files_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(PagecageError, match="not a pagecage site"):
        publish(ROOT, nullcontext([]), [], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_failed_build_leaves_the_old_site(tmp_path: Path, site: Path) -> None:
    old = shutil.copytree(site, tmp_path / "site")
    run = build_run(tmp_path / "runs" / "20260101T000000Z-constrained-random-vm")
    (run / "records.jsonl").write_text('{"record_version": 1, "trial_id"')
    with pytest.raises(PagecageError):
        publish(ROOT, nullcontext([]), [run], old)
    assert (old / "index.html").read_bytes() == (site / "index.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "site"]


def test_the_published_bundle_renders_the_same_report(site: Path, tmp_path: Path) -> None:
    (archive,) = (site / "runs/constrained-random").glob("*.pagecage.zip")
    unpack(archive, tmp_path / "out")
    assert called(["show", tmp_path / "out", "--html"]) == 0
    again, given = (
        re.findall(r"<table.*?</table>", (folder / "report.html").read_text(), re.DOTALL)
        for folder in (tmp_path / "out", archive.parent)
    )
    assert again == given != []


def test_publishing_no_run_is_an_error_message(tmp_path: Path) -> None:
    with pytest.raises(PagecageError, match="no run to publish"):
        publish(ROOT, nullcontext([]), [], tmp_path / "site")


def test_a_link_out_of_the_site_becomes_text_and_one_within_it_stays() -> None:
    text = "[a](FORMAT.md#keys) [b](../Makefile) [c](https://example.org) [d](#here) ![e](x.png)"
    kept = "[a](FORMAT.md#keys) b [c](https://example.org) [d](#here) ![e](x.png)"
    assert drop_outside_links(text, "docs/A.md", {"docs/FORMAT.md"}) == kept


def test_a_link_to_a_generated_document_leads_to_the_sites_page() -> None:
    text = "[s](SCORECARD.md) [a](../answers.md)"
    assert drop_outside_links(text, "docs/decisions/x.md", set()) == "s [a](../../answers.md)"
    assert drop_outside_links(text, "docs/A.md", set()) == "[s](../scorecard.md) a"
    text = "[d](decisions) [r](gallery/README.md) [b](runs)"
    kept = "[d](decisions/index.md) [r](../index.md) b"
    assert drop_outside_links(text, "docs/README.md", set()) == kept


def test_the_index_of_the_documents_is_first_in_their_menu(site: Path) -> None:
    page = (site / "index.html").read_text()
    menu = page.partition("Documentation</span>")[2]
    assert re.findall(r'href="([^"]*)"', menu)[0] == "docs/README.html"


def test_a_script_that_got_into_a_page_does_not_run(
    site: Path, browser: Browser, tmp_path: Path
) -> None:
    """Injected after the build, as if a text had not been escaped."""
    copied = shutil.copytree(site, tmp_path / "site")
    (copied / "own.js").write_text("window.hacked = true")
    script = '<script>window.hacked = true</script><script src="own.js"></script>'
    script += '<img src="x" onerror="window.hacked = true">'
    visitor = Visitor(browser, copied)
    report = "runs/constrained-random/report.html"
    for name in ("index.html", "reports/constrained-random.html", report):
        path = copied / name
        path.write_text(path.read_text().replace("</body>", f"{script}</body>"))
        page = visitor.go(visitor.page(), name)
        assert page.evaluate("() => window.hacked") is None
        assert any("Content Security Policy" in text for text in visitor.errors), visitor.errors
        visitor.errors.clear()

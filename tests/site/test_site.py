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

import pytest
from playwright.sync_api import Browser, Page

from analysis.data.load import load_run
from analysis.site import drop_outside_links, publish
from pagecage.bundle.unpack import unpack
from pagecage.errors import PagecageError
from pagecage.model.published_figures import read_rows
from tests.builders.command_line import called
from tests.fixtures.runs import build_run
from tests.tree import ROOT

pytestmark = pytest.mark.slow
PAGES = (
    "index.html",
    "scorecard.html",
    "answers.html",
    "docs/README.html",
    "docs/FORMAT.html",
    "docs/METHODOLOGY.html",
    "docs/decisions/index.html",
)


@dataclass
class BrowserLog:
    """Errors and requests of a browser while it showed pages."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    run = build_run(folder / "runs" / "20260101T000000Z-constrained-random-vm")
    publish(ROOT, nullcontext([load_run(run)]), [], folder / "site")
    return folder / "site"


@pytest.fixture
def log() -> BrowserLog:
    return BrowserLog()


def open_page(browser: Browser, log: BrowserLog, **options: object) -> Page:
    page = browser.new_page(**options)
    page.on(
        "console",
        lambda message: (
            log.errors.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: log.errors.append(str(error)))
    page.on("requestfailed", lambda request: log.errors.append(f"{request.url}: {request.failure}"))
    page.on("request", lambda request: log.requests.append(request.url))
    return page


def all_pages(site: Path) -> list[str]:
    pages = (
        "reports/constrained-random",
        "notebooks/constrained-random",
        "notebooks/003",
        "search",
    )
    return [*PAGES, *(f"{name}.html" for name in pages)]


def test_no_page_has_errors_or_external_requests(
    site: Path, browser: Browser, log: BrowserLog
) -> None:
    page = open_page(browser, log)
    for name in all_pages(site):
        page.goto((site / name).as_uri(), wait_until="networkidle")
    assert log.errors == []
    assert {url for url in log.requests if not url.startswith((site.as_uri(), "data:"))} == set()
    assert len(log.requests) > len(PAGES)


def test_failed_requests_and_errors_are_noticed(
    browser: Browser, log: BrowserLog, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<script src="http://127.0.0.1:9/x.js"></script><script>console.error("so")</script>'
    )
    open_page(browser, log).goto(bad.as_uri())
    assert any("127.0.0.1" in url for url in log.requests)
    assert "so" in log.errors


def test_every_link_leads_somewhere(site: Path, browser: Browser, log: BrowserLog) -> None:
    page = open_page(browser, log)
    for name in all_pages(site):
        page.goto((site / name).as_uri())
        for target in page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"):
            path, _, anchor = target.removeprefix("file://").partition("#")
            assert not target.startswith("file:") or Path(path.partition("?")[0]).is_file(), (
                f"{name}: {target}"
            )
            if anchor and path == str(site / name):
                assert page.locator(f"[id='{anchor}']").count() or not anchor, f"{name}: #{anchor}"


def first_column(page: Page, place: int = 1) -> list[str]:
    return page.locator(f"table.sortable tbody tr:visible td:nth-child({place})").all_inner_texts()


def test_a_heading_sorts_in_both_directions(site: Path, browser: Browser, log: BrowserLog) -> None:
    page = open_page(browser, log)
    page.goto((site / "scorecard.html").as_uri())
    before = first_column(page, 2)
    page.get_by_role("button", name="experiment").click()
    assert first_column(page, 2) == sorted(before)
    page.get_by_role("button", name="experiment").click()
    assert first_column(page, 2) == sorted(before, reverse=True)


def test_a_button_filters_the_table_and_resets_it(
    site: Path, browser: Browser, log: BrowserLog
) -> None:
    page = open_page(browser, log)
    page.goto((site / "scorecard.html").as_uri())
    everything = len(first_column(page))
    page.locator(".chips button[data-verdict=untestable]").click()
    assert 0 < len(first_column(page)) < everything
    assert all(text.startswith("untestable") for text in first_column(page, 6))
    page.locator(".chips button[data-verdict=untestable]").press("Enter")
    assert len(first_column(page)) == everything


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_themes(
    site: Path, browser: Browser, log: BrowserLog, scheme: str
) -> None:
    page = open_page(browser, log, color_scheme=scheme)
    page.goto((site / "reports/constrained-random.html").as_uri())
    ink, paper = page.evaluate(
        "() => [getComputedStyle(document.querySelector('table.pagecage td')).color,"
        " getComputedStyle(document.body).backgroundColor].map(c => c.match(/[0-9.]+/g).slice(0,"
        " 3).map(Number))"
    )
    assert contrast(ink, paper) > 7
    assert (sum(paper) > 384) == (scheme == "light")


def contrast(one: list[float], other: list[float]) -> float:
    """Return the contrast ratio of WCAG 2.2; 7 is its strictest requirement for text."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: list[float]) -> float:
    red, green, blue = (
        c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "scorecard.html",
        "reports/constrained-random.html",
        "notebooks/constrained-random.html",
    ],
)
def test_a_narrow_screen_needs_no_scrolling_sideways(
    site: Path, browser: Browser, log: BrowserLog, name: str
) -> None:
    page = open_page(browser, log, viewport={"width": 390, "height": 844})
    page.goto((site / name).as_uri())
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_the_site_works_from_a_server_and_can_be_searched(
    site: Path, browser: Browser, log: BrowserLog
) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = open_page(browser, log)
        page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q=cachestat")
        page.wait_for_selector("#search-results li a")
        server.shutdown()
    assert log.errors == []


def test_without_scripts_the_tables_are_there(site: Path, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "scorecard.html").as_uri())
    assert len(first_column(page)) > 300
    context.close()


def test_the_verdicts_are_visible_on_a_notebooks_screen(
    site: Path, browser: Browser, log: BrowserLog
) -> None:
    page = open_page(browser, log, viewport={"width": 1280, "height": 900})
    page.goto((site / "scorecard.html").as_uri())
    table = page.locator("table.sortable")
    box = table.locator("tbody tr td:nth-child(6)").first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 1280
    assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")


def test_the_scorecard_has_totals_by_article_and_host(
    site: Path, browser: Browser, log: BrowserLog
) -> None:
    page = open_page(browser, log)
    page.goto((site / "scorecard.html").as_uri())
    hosts = page.locator(".totals").nth(1).locator("tbody th").all_inner_texts()
    assert hosts == ["real CPU", "emulated guest", "without a run"]
    totals = page.locator(".totals").first.locator("tbody td:last-child").all_inner_texts()
    assert sum(map(int, totals)) == len(read_rows(ROOT / "experiments"))
    measured = page.locator("[id='003-178'] td:nth-child(5)").inner_text().splitlines()
    assert measured[1:] == ["emulated guest", "20260101T000000Z-constrained-random-vm"]


def test_a_card_has_the_strip_of_its_report(site: Path, browser: Browser, log: BrowserLog) -> None:
    page = open_page(browser, log)
    page.goto((site / "index.html").as_uri(), wait_until="networkidle")
    card = page.locator(".card").first
    page.goto((site / "reports/constrained-random.html").as_uri())
    result, trust = (
        page.locator(f".strip {part}").inner_text() for part in (".result", "dd >> nth=-1")
    )
    bars = page.locator(".strip .bar").count()
    page.goto((site / "index.html").as_uri(), wait_until="networkidle")
    assert result in card.inner_text()
    assert trust in card.inner_text()
    assert card.locator(".bar").count() == bars > 1
    assert card.locator(".bar b").last.bounding_box()["width"] > 20  # type: ignore[index]


def test_a_report_leads_to_its_notebook_with_frames_and_pictures(
    site: Path, browser: Browser, log: BrowserLog
) -> None:
    page = open_page(browser, log)
    page.goto((site / "reports/constrained-random.html").as_uri())
    page.get_by_role("link", name="data frames", exact=True).click()
    page.wait_for_load_state("networkidle")
    assert page.url == (site / "notebooks/constrained-random.html").as_uri()
    assert page.locator("table.dataframe").count() >= 6
    pictures = page.locator("article img")
    assert [pictures.nth(n).evaluate("i => i.naturalWidth > 300") for n in range(2)] == [True] * 2
    assert "analysis.load(source)" in page.locator("article").inner_text()
    assert log.errors == []


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
    folder = tmp_path / "out"
    unpack(archive, folder)
    assert called(["show", str(folder), "--html"]) == 0
    again, given = (
        (path / "report.html").read_text() for path in (folder, site / "runs/constrained-random")
    )
    assert tables_of(again) == tables_of(given) != []


def tables_of(page: str) -> list[str]:
    return re.findall(r"<table.*?</table>", page, re.DOTALL)


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
    assert re.search(r'href="([^"]*)"', menu)[1] == "docs/README.html"  # type: ignore[index]


def test_a_script_that_got_into_a_page_does_not_run(
    site: Path, browser: Browser, log: BrowserLog, tmp_path: Path
) -> None:
    """Injected after the build, as if a text had not been escaped."""
    copied = shutil.copytree(site, tmp_path / "site")
    (copied / "own.js").write_text("window.hacked = true")
    script = '<script>window.hacked = true</script><script src="own.js"></script>'
    script += '<img src="x" onerror="window.hacked = true">'
    for name in (
        "index.html",
        "reports/constrained-random.html",
        "runs/constrained-random/report.html",
    ):
        path = copied / name
        path.write_text(path.read_text().replace("</body>", f"{script}</body>"))
        page = open_page(browser, log)
        page.goto(path.as_uri(), wait_until="networkidle")
        assert page.evaluate("() => window.hacked") is None
        assert any("Content Security Policy" in text for text in log.errors), log.errors
        log.errors.clear()

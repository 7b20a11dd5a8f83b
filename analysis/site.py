"""The site of published runs."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import Any

import nbformat

from analysis.articles.evaluate import evaluate_claims
from analysis.articles.findings import Finding, evaluate_findings, open_questions
from analysis.articles.pages import answers_report, article_table, coverage, host_table
from analysis.articles.ratios import (
    HostedScorecard,
    hosted_scorecard,
    published_ratios,
    run_by_experiment,
)
from analysis.articles.scorecard import VERDICTS, Scorecard, ScoredClaim, count_verdicts
from analysis.articles.tables import (
    MEANINGS,
    Column,
    columns,
    contradiction_sentence,
    verdict_words,
)
from analysis.data.load import Run, load_run
from analysis.formatting import format_quantity, format_verdict
from analysis.views.html import blocks_html
from analysis.views.render import HERE as ANALYSIS
from analysis.views.render import NAME, PAGE, render
from pagecage.bundle.pack import SUFFIX, pack
from pagecage.bundle.unpack import unpack
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.process import OWN_PYTHON
from pagecage.process import run as run_process
from pagecage.report.model import Table, markdown_text, to_markdown
from pagecage.whole_files import scratch_folder, sync_folder

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_SOURCE = re.compile(r"""\ssrc="([^"?]+)(?:\?[^"]*)?"\s*""")
_THEME_PAGES = ("genindex.html", "search.html")
"""Pages without any text of a run: each script in them belongs to the theme."""
_HEAD = re.compile(r"<meta charset=[^>]*>", re.IGNORECASE)
_REPORTS = "runs"
"""Folder of the reports on one page, which have a policy of their own."""


def protect(site: Path) -> None:
    """Put the theme's scripts into every page, and a policy that allows these alone.

    Raises ValueError for a page in which the policy has no place.
    """
    trusted = {
        text for name in _THEME_PAGES for text in _scripts(site, (site / name).read_text(), site)
    }
    for path in sorted(site.rglob("*.html")):
        if path.relative_to(site).parts[0] != _REPORTS:
            path.write_text(_protected(site, path, trusted))


def _scripts(site: Path, page: str, folder: Path) -> Iterable[str]:
    return (_text(site, folder, *match.groups()) for match in _SCRIPT.finditer(page))


def _text(site: Path, folder: Path, attributes: str, inline: str) -> str:
    """Return a script's text; empty for one that is not in the site."""
    source = _SOURCE.search(attributes)
    if source is None:
        return inline
    path = (folder / source[1]).resolve()
    return path.read_text() if path.is_relative_to(site.resolve()) and path.is_file() else ""


def _protected(site: Path, path: Path, trusted: set[str]) -> str:
    page = path.read_text()
    texts = [text for text in _scripts(site, page, path.parent) if text in trusted]

    def inlined(match: re.Match[str]) -> str:
        text = _text(site, path.parent, *match.groups())
        return f"<script>{text}</script>" if text in trusted else match[0]

    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(texts)}">'
    page, count = _HEAD.subn(lambda match: match[0] + meta, _SCRIPT.sub(inlined, page), count=1)
    if count != 1:
        raise ValueError(f"{path} has no head")
    return page


def policy(scripts: Iterable[str]) -> str:
    """Return a policy that allows these scripts, and styles, images and fonts of the site."""
    hashes = sorted({f"'sha256-{_digest(script)}'" for script in scripts})
    return (
        f"default-src 'none'; script-src {' '.join(hashes) or repr('none')};"
        " style-src 'self' file: 'unsafe-inline'; img-src 'self' file: data:;"
        " connect-src 'self'; form-action 'self' file:; base-uri 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


_TITLE = re.compile(r"\s*<h1>.*?</h1>", re.DOTALL)
_HEADING = re.compile(r"\s*<h2>(.*?)</h2>", re.DOTALL)
_ABSENT = ("parameters", "injected-parameters")


def site_page(source: Path, title: str, downloads: str) -> Any:
    """Return the notebook at `source` as a page; `downloads` is a line of Markdown below its title.

    Cells without output are left out. The site collapses a cell's code.
    """
    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    head = nbformat.v4.new_markdown_cell(f"# {title}\n\n{downloads}")  # type: ignore[no-untyped-call]
    notebook.cells = [head, *(cell for old in notebook.cells for cell in _cells(old))]
    return notebook


def _cells(cell: Any) -> Iterator[Any]:
    if cell.cell_type != "code":
        yield cell
        return
    if not cell.outputs or set(cell.metadata.get("tags", [])) & set(_ABSENT):
        return
    data = cell.outputs[0].get("data", {})
    text = _TITLE.sub("", data.get("text/html", ""), count=1)
    if match := _HEADING.match(text):
        yield nbformat.v4.new_markdown_cell(f"## {markdown_text(unescape(match[1]))}")  # type: ignore[no-untyped-call]
        text = text[match.end() :]
    if "text/html" in data:
        data["text/html"] = text
    cell.metadata["tags"] = ["remove-input"]
    yield cell


def index(runs: Mapping[str, Run], card: Scorecard, documents: Iterable[str]) -> str:
    """Return the first page: a summary of the published figures, and a card per report."""
    cards = "\n".join(_card(name, run) for name, run in runs.items())
    return f"""# Disk reads under a customer's limits

Experiments on storage, the page cache and mapped files, under limits that were read back from the
kernel and over-driven to verify them. Every figure can be reproduced from the raw records beside
its report.

{_tally(card)}

{raw_html(f'<div class="cards">{cards}</div>')}
{_contents("Results", ["scorecard", "answers"])}
{_contents("Reports", [f"reports/{name}" for name in runs])}
{_contents("Method", [*documents, "docs/decisions/index"])}"""


def raw_html(text: str) -> str:
    """Return HTML as a directive of MyST; a fence within the text does not end it."""
    return f"```{{raw}} html\n{text.replace('`', '&#96;')}\n```\n"


def _contents(caption: str, pages: Iterable[str]) -> str:
    """Return a part of the table of contents."""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def _card(name: str, run: Run) -> str:
    counted = sum(trial.is_included for trial in run.trials)
    emulated = ", emulated" if run.is_emulated else ""
    about = (
        f"{counted} of {len(run.plan['trials'])} trials included, size {run.plan['size']}{emulated}"
    )
    return (
        f'<a class="card" href="reports/{name}.html"><span class="thumbnail">'
        f'<img src="_static/{name}.svg" width="480" height="270" alt="" loading="lazy"></span>'
        f"<strong>{escape(name)}</strong><span>{escape(run.definition['question'])}</span>"
        f"{_said(run)}{_contradicted(run)}<small>{escape(about)}</small></a>"
    )


def _contradicted(run: Run) -> str:
    sentence = contradiction_sentence(evaluate_claims(run)).partition(":")[0]
    return f'<span class="contradicts">{escape(sentence)}</span>' if sentence else ""


def headline(run: Run) -> tuple[str, str]:
    """Return the ratio in the card's sentence and the published one; empty if there is none."""
    found = _sentence(run)
    if found is None or found.finding.middle is None or not found.is_ratio:
        return "", ""
    published = found.published.partition(" (")[0]
    return format_quantity("amplification", found.finding.middle), published


@dataclass(frozen=True)
class CardSentence:
    """The finding that a card shows, whether it is a ratio, and the published ratio."""

    finding: Finding
    is_ratio: bool
    published: str


def _sentence(run: Run) -> CardSentence | None:
    """Return the first proven ratio; without one the first proven finding."""
    tables = run.definition.get("findings", [])
    proven = [
        CardSentence(finding, bool(table.get("over")), published)
        for table, finding, published in zip(
            tables, evaluate_findings(run), published_ratios(run), strict=True
        )
        if finding.is_proven
    ]
    return next((one for one in proven if one.is_ratio), proven[0] if proven else None)


def _said(run: Run) -> str:
    found = _sentence(run)
    return f'<span class="said">{escape(found.finding.sentence)}</span>' if found else ""


def _tally(card: Scorecard) -> str:
    counts = count_verdicts(card.rows)
    parts = (
        f'<b class="{verdict}">{counts[verdict]}</b> {verdict_words(verdict)}'
        for verdict in VERDICTS
        if counts[verdict]
    )
    line = " · ".join(parts)
    return (
        f'<p class="tally"><a href="scorecard.html">{counts["all"]} published figures</a>:'
        f" {line}</p>"
    )


def decisions(documents: Iterable[str]) -> str:
    """Return the index of the decision records; `documents` are their names."""
    head = (
        "# Decisions\n\nEach page states a decision, its reason, and the alternatives that were"
        " rejected.\n"
    )
    return "\n".join([head, "```{toctree}", *documents, "```", ""])


def downloads(run: Run, name: str, files: Mapping[str, str]) -> str:
    """Return the line below a report's title with its downloads; `files` by their link texts."""
    links = " · ".join(
        f'<a href="../runs/{name}/{file}">{text}</a>' for text, file in files.items()
    )
    return f'<p class="source">Run {run.plan["run_id"]} · {links}</p>'


_BELOW = {
    **dict.fromkeys(("host", "run"), "measured"),
    **dict.fromkeys(("reason", "rule changed"), "verdict"),
    "origin": "published",
}
"""Columns that are shown in small below another column's text."""


def scorecard_page(scored: HostedScorecard, reports: Collection[str]) -> str:
    """Return the page as Markdown; `reports` are the experiments that have a report."""
    every = columns(scored)
    shown = [column for column in every if column.heading not in _BELOW]
    heads = "".join(f"<th>{column.heading}</th>" for column in shown)
    rows = "\n".join(_row(row, every, reports) for row in scored.card.rows)
    chips = f'<div class="chips" role="group" aria-label="Show only">{_chips(scored)}</div>\n'
    table = (
        '<div class="scroll"><table class="pagecage sortable" data-filter="verdict">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )
    return f"""# Every published figure

The experiments retrace five articles. Each row is one of their figures, with the measurement of the
newest run. {coverage(scored).text}

{_totals("By article", article_table(scored))}
{_totals("By host", host_table(scored))}

## All rows

Click a heading to sort the table, or a button to filter it.

{raw_html(f"{chips}{table}")}"""


def _chips(scored: HostedScorecard) -> str:
    counts = count_verdicts(scored.card.rows)
    return "".join(
        f'<button type="button" data-verdict="{verdict}" aria-pressed="false"'
        f' title="{escape(MEANINGS.get(verdict, verdict_words(verdict)))}">'
        f'<b class="{verdict}">{format_verdict(verdict)}</b> {counts[verdict]}</button>'
        for verdict in VERDICTS
        if counts[verdict]
    )


def _totals(heading: str, table: Table) -> str:
    body = f'<div class="totals">{blocks_html((table,))}</div>'
    return f"## {heading}\n\n{raw_html(body)}"


def _row(row: ScoredClaim, every: Sequence[Column], reports: Collection[str]) -> str:
    cells = "".join(
        f"<td>{_cell(column, row, reports)}{_notes(row, column.heading, every)}</td>"
        for column in every
        if column.heading not in _BELOW
    )
    return f'<tr id="{escape(row.id)}" data-verdict="{row.verdict}">{cells}</tr>'


def _notes(row: ScoredClaim, heading: str, every: Sequence[Column]) -> str:
    """Return the small lines below a column's text; a dash is left out."""
    notes = {
        column.heading: column.text(row)
        for column in every
        if _BELOW.get(column.heading) == heading
    }
    if date := notes.get("rule changed", "–").strip("–"):
        notes["rule changed"] = f"rule changed {date}"
    return "".join(f"<small>{escape(text)}</small>" for text in notes.values() if text != "–")


def _cell(column: Column, row: ScoredClaim, reports: Collection[str]) -> str:
    text = escape(column.text(row))
    if column.heading == "experiment" and row.experiment in reports:
        return f'<a href="reports/{text}.html">{text}</a>'
    if column.heading == "verdict":
        return f'<b class="{row.verdict}">{verdict_words(row.verdict)}</b>'
    return text


_THEME = Path(__file__).resolve().parent / "theme"
_BUILD_SECONDS = 900.0


@dataclass(frozen=True)
class Site:
    """The project's folder, the runs that get a page by experiment, and all stored runs."""

    top: Path
    runs: Mapping[str, Run]
    stored: Sequence[Run]


def publish(top: Path, stored: Sequence[Run], named: Sequence[Path], out: Path) -> Path:
    """Build the site in `out`, completely or not at all; return the path of its first page.

    Each run is redacted first, and a report is made of what is left. An existing site is replaced
    when the new one is complete. Raises PagecageError if there is no run to show, if `out` holds
    something other than a site, or if Sphinx fails.
    """
    _check_replaceable(out)
    runs = runs_to_publish(run_by_experiment(stored), named)
    with _scratch_beside(out) as scratch:
        given = {run.path: run for run in (*stored, *runs.values())}
        redacted = {
            path: _redacted(run, scratch / f"run-{number}")
            for number, (path, run) in enumerate(given.items())
        }
        shown = {name: redacted[run.path] for name, run in runs.items()}
        site = Site(top, shown, [redacted[run.path] for run in stored])
        source, made = scratch / "source", scratch / "made"
        _lay_out(site, source)
        _build(source, made)
        protect(made)
        _replace(made, out, scratch / "before")
    return out / "index.html"


def _redacted(run: Run, folder: Path) -> Run:
    """Return the run as a stranger gets it, from its bundle next to `folder`."""
    archive = folder.with_suffix(SUFFIX)
    pack(run.path, archive)
    unpack(archive, folder)
    return load_run(folder)


@contextmanager
def _scratch_beside(out: Path) -> Iterator[Path]:
    """Yield a folder on the file system of `out`, so that the site can be renamed into place.

    Raises PagecageError if there cannot be one.
    """
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            scratch = stack.enter_context(scratch_folder(out.parent, "pagecage-site"))
        except OSError as error:
            raise PagecageError(
                f"{out} cannot be written: {error.strerror}", "name another folder with --out"
            ) from None
        yield scratch


def _check_replaceable(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise PagecageError(f"{out} is not a folder", "name another with --out")
    if out.exists() and any(out.iterdir()) and not (out / ".buildinfo").exists():
        raise PagecageError(
            f"{out} holds files that are not a pagecage site", "name another folder with --out"
        )


def _lay_out(site: Site, source: Path) -> None:
    """Write the folder that Sphinx reads."""
    for name in ("_static", "_extra", "reports", "docs"):
        (source / name).mkdir(parents=True)
    shutil.copy(_THEME / "conf.py", source)
    shutil.copy(ANALYSIS / "templates/offline/parts.css", source / "_static")
    for name in ("favicon.svg", "site.css", "site.js"):
        shutil.copy(_THEME / name, source / "_static")
    for name, run in site.runs.items():
        _lay_out_report(source, name, run)
    documents, experiments = _lay_out_documents(site.top, source), site.top / "experiments"
    scored = hosted_scorecard(experiments, site.stored)
    (source / "index.md").write_text(index(site.runs, scored.card, documents))
    (source / "scorecard.md").write_text(scorecard_page(scored, site.runs))
    (source / "answers.md").write_text(
        to_markdown(answers_report(open_questions(experiments, scored.runs)))
    )


def _lay_out_report(source: Path, name: str, run: Run) -> None:
    """Write a report's page and downloads, the run's bundle among them."""
    from analysis.figures.panels import thumbnail_svg

    given = source / "_extra" / "runs" / name
    given.mkdir(parents=True)
    render(run.path)
    bundle = f"{run.plan['run_id']}{SUFFIX}"
    for file in (PAGE, NAME):
        shutil.copy(run.path / file, given)
    shutil.copy(run.path.with_suffix(SUFFIX), given / bundle)
    files = {"one page": PAGE, "notebook": NAME, "bundle: raw records and traces": bundle}
    page = site_page(run.path / NAME, name, downloads(run, name, files))
    nbformat.write(page, source / "reports" / f"{name}.ipynb")  # type: ignore[no-untyped-call]
    (source / "_static" / f"{name}.svg").write_text(thumbnail_svg(run, *headline(run)))


_GENERATED = {"docs/answers.md": "answers.md", "docs/SCORECARD.md": "scorecard.md"}
"""Documents that the site generates itself, and their pages there."""


def _lay_out_documents(top: Path, source: Path) -> list[str]:
    """Copy the project's documents; return the names of those for the table of contents."""
    found = {
        path.relative_to(top).as_posix(): path for path in sorted((top / "docs").rglob("*.md"))
    }
    kept = {
        name: path
        for name, path in found.items()
        if path.name != "README.md" and name not in _GENERATED
    }
    (source / "docs/decisions").mkdir()
    for name, path in kept.items():
        (source / name).write_text(drop_outside_links(path.read_text(), name, kept))
    stems = [Path(name).stem for name in kept if name.startswith("docs/decisions/")]
    (source / "docs/decisions/index.md").write_text(decisions(stems))
    return [name.removesuffix(".md") for name in kept if name.count("/") == 1]


def _build(source: Path, made: Path) -> None:
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        source,
        made,
    ]
    done = run_process(argv, check=False, timeout_seconds=_BUILD_SECONDS, env=OWN_PYTHON)
    if not done.ok:
        lines = (done.stderr.strip() or "it printed no reason").splitlines()
        raise PagecageError(
            f"the site could not be built: {lines[0]}", "pagecage show NAME --html", EXIT_FAILED
        )


def _replace(made: Path, out: Path, before: Path) -> None:
    """Replace the old site by renames, which is possible because both are on one file system."""
    if out.exists():
        out.rename(before)
    made.rename(out)
    sync_folder(out.parent)


def runs_to_publish(newest: Mapping[str, Run], named: Sequence[Path]) -> dict[str, Run]:
    """Return runs by experiment, sorted by name; runs at smoke size, which show little, come last.

    Raises PagecageError if there is no run, if a folder is not a run, or if two runs are of one
    experiment, because a site has one page for each.
    """
    found = _runs_by_experiment(named) if named else newest
    if not found:
        raise PagecageError("there is no run to publish", "make experiment NAME=constrained-random")
    return dict(sorted(found.items(), key=lambda item: (item[1].plan["size"] == "smoke", item[0])))


def _runs_by_experiment(folders: Sequence[Path]) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for run in map(load_run, folders):
        name = run.plan["experiment"]
        if name in found:
            raise PagecageError(
                f"{found[name].plan['run_id']} and {run.plan['run_id']} are both runs of {name},"
                " which has one page",
                "name one of them",
            )
        found[name] = run
    return found


_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_OUTSIDE = ("http://", "https://", "#", "mailto:")


def drop_outside_links(text: str, page: str, pages: Collection[str]) -> str:
    """Replace links to files that are not pages of the site by their text.

    Links to documents that the site generates itself lead to its own pages.

    `page` is the document's path in the site, and `pages` are all paths, such as `docs/FORMAT.md`.
    """

    def replacement(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        if target.startswith(_OUTSIDE):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
        if own := _GENERATED.get(path):
            return f"[{label}]({posixpath.relpath(own, posixpath.dirname(page) or '.')})"
        return match[0] if path in pages else label

    return _LINK.sub(replacement, text)

"""The site of published runs."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from copy import deepcopy
from html import escape, unescape
from pathlib import Path
from typing import Any

import nbformat

from analysis.articles import pages, ratios, scorecard, tables
from analysis.articles.evaluate import evaluate_claims
from analysis.articles.findings import open_questions
from analysis.data.load import Run, load_run
from analysis.execution import article_notebooks, execute, execute_article, run_notebook
from analysis.formatting import format_verdict
from analysis.strip import run_strip
from analysis.views.html import bars_html, blocks_html
from analysis.views.render import HERE as ANALYSIS
from analysis.views.render import NAME, PAGE, render
from pagecage.bundle.pack import SUFFIX, pack
from pagecage.bundle.unpack import unpack
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.process import OWN_PYTHON
from pagecage.process import run as run_process
from pagecage.report.model import markdown_text, to_markdown
from pagecage.whole_files import scratch_folder, sync_folder

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_SOURCE = re.compile(r"""\ssrc="([^"?]+)(?:\?[^"]*)?"\s*""")
_THEME_PAGES = ("genindex.html", "search.html")
"""Pages without any text of a run: each script in them belongs to the theme."""
_HEAD = re.compile(r"<meta charset=[^>]*>", re.IGNORECASE)
_REPORTS = "runs"
"""Folder of the reports on one page, which have a policy of their own."""


def _scripts(site: Path, path: Path, page: str) -> Iterator[tuple[str, str]]:
    for match in _SCRIPT.finditer(page):
        source, text = _SOURCE.search(match[1]), match[2]
        if source:
            file = (path.parent / source[1]).resolve()
            is_ours = file.is_relative_to(site.resolve()) and file.is_file()
            text = file.read_text() if is_ours else ""
        yield match[0], text


def _protect(site: Path) -> None:
    """Put the theme's scripts into every page, and a policy that allows these alone."""
    pages = [site / name for name in _THEME_PAGES]
    trusted = {text for path in pages for _, text in _scripts(site, path, path.read_text())}
    for path in sorted(site.rglob("*.html")):
        if path.relative_to(site).parts[0] != _REPORTS:
            path.write_text(_protected(site, path, trusted))


def _protected(site: Path, path: Path, trusted: set[str]) -> str:
    page = path.read_text()
    found = {element: text for element, text in _scripts(site, path, page) if text in trusted}
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(found.values())}">'

    def inlined(match: re.Match[str]) -> str:
        return f"<script>{found[match[0]]}</script>" if match[0] in found else match[0]

    page, count = _HEAD.subn(lambda match: match[0] + meta, _SCRIPT.sub(inlined, page), count=1)
    if count != 1:
        raise ValueError(f"{path} has no head")
    return page


def policy(scripts: Iterable[str]) -> str:
    """Return a policy that allows these scripts, and styles, images and fonts of the site."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = sorted({f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests})
    return (
        f"default-src 'none'; script-src {' '.join(hashes) or repr('none')};"
        " style-src 'self' file: 'unsafe-inline'; img-src 'self' file: data:;"
        " connect-src 'self'; form-action 'self' file:; base-uri 'none'"
    )


_TITLE = re.compile(r"\s*<h1>.*?</h1>", re.DOTALL)
_HEADING = re.compile(r"\s*<h2>(.*?)</h2>", re.DOTALL)
_ABSENT = ("parameters", "injected-parameters")


def site_page(source: Path, title: str, downloads: str) -> Any:
    """Return the notebook at `source` as a page; `downloads` is a line of Markdown below its title.

    Cells without output are left out. The site collapses a cell's code.
    """
    markdown_cell = nbformat.v4.new_markdown_cell
    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    cells = [markdown_cell(f"# {title}\n\n{downloads}")]  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if not cell.outputs or set(cell.metadata.get("tags", [])) & set(_ABSENT):
                continue
            data = cell.outputs[0].get("data", {})
            text = _TITLE.sub("", data.get("text/html", ""), count=1)
            if match := _HEADING.match(text):
                heading = f"## {markdown_text(unescape(match[1]))}"
                cells.append(markdown_cell(heading))  # type: ignore[no-untyped-call]
                text = text[match.end() :]
            if "text/html" in data:
                data["text/html"] = text
            cell.metadata["tags"] = ["remove-input"]
        cells.append(cell)
    notebook.cells = cells
    return notebook


def index(runs: Mapping[str, Run], card: scorecard.Scorecard, documents: Iterable[str]) -> str:
    cards = []
    for name, run in runs.items():
        strip = run_strip(run)
        against = escape(tables.contradiction_sentence(evaluate_claims(run)).partition(":")[0])
        against = f'<span class="contradicts">{against}</span>' if against else ""
        bars = bars_html(strip.chart) if strip.chart else ""
        cards.append(
            f'<div class="card"><a href="reports/{name}.html"><strong>{escape(name)}</strong></a>'
            f"<span>{escape(run.definition['question'])}</span>"
            f"<b>{escape(strip.result)}</b>{bars}{against}"
            f"<small>{escape(strip.trust)}, size {escape(run.size)}</small></div>"
        )
    counts, newline = scorecard.count_verdicts(card.rows), "\n"
    tally = " · ".join(
        f'<b class="{verdict}">{counts[verdict]}</b> {tables.verdict_words(verdict)}'
        for verdict in scorecard.VERDICTS
        if counts[verdict]
    )
    return f"""# Disk reads under a customer's limits

Experiments on storage, the page cache and mapped files, under limits that were read back from the
kernel and over-driven to verify them. Every figure can be reproduced from the raw records next to
its report. The [documentation](docs/README.md) begins with a tutorial.

<p class="tally"><a href="scorecard.html">{counts["all"]} published figures</a>: {tally}</p>

{_raw_html(f'<div class="cards">{newline.join(cards)}</div>')}
{_contents("Results", ["scorecard", "answers"])}
{_contents("Articles", [f"notebooks/{article}" for article in article_notebooks(runs)])}
{_contents("Reports", [f"reports/{name}" for name in runs])}
{_contents("Data frames", [f"notebooks/{name}" for name in runs])}
{_contents("Documentation", [*documents, "docs/decisions/index"])}"""


def _raw_html(text: str) -> str:
    """Return HTML as a directive of MyST; a fence within the text does not end it."""
    return f"```{{raw}} html\n{text.replace('`', '&#96;')}\n```\n"


def _contents(caption: str, pages: Sequence[str]) -> str:
    if not pages:
        return ""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


_BELOW = {
    **dict.fromkeys(("host", "run"), "measured"),
    **dict.fromkeys(("reason", "rule changed"), "verdict"),
    **dict.fromkeys(("kind", "origin"), "published"),
}
"""Columns that are shown in small below another column's text."""


def scorecard_page(
    scored: ratios.HostedScorecard,
    reports: Collection[str],
    deviations: Sequence[scorecard.Deviation] = (),
) -> str:
    """Return the page as Markdown; `reports` are the experiments that have a report."""
    articles, hosts = (
        _raw_html(f'<div class="totals">{blocks_html((totals(scored),))}</div>')
        for totals in (pages.article_table, pages.host_table)
    )
    causes = blocks_html(pages.causes_and_needs(scored.card, deviations))
    return f"""# Every published figure

{scored.card.headline()}

The experiments retrace five articles. Each row is one of their figures, with the measurement of the
newest run. {pages.coverage(scored).text}

## By article

{articles}
## By host

{hosts}

{_raw_html(f'<div class="totals scroll">{causes}</div>')}

## All rows

Click a heading to sort the table, or a button to filter it.

{_raw_html(_row_table(scored, reports))}"""


def _row_table(scored: ratios.HostedScorecard, reports: Collection[str]) -> str:
    counts = scorecard.count_verdicts(scored.card.rows)
    chips = "".join(
        f'<button type="button" data-verdict="{verdict}" aria-pressed="false"'
        f' title="{escape(tables.MEANINGS.get(verdict, tables.verdict_words(verdict)))}">'
        f'<b class="{verdict}">{format_verdict(verdict)}</b> {counts[verdict]}</button>'
        for verdict in scorecard.VERDICTS
        if counts[verdict]
    )
    rows, heads = [], ""
    for row in scored.card.rows:
        texts = tables.row_texts(scored, row)
        heads = "".join(f"<th>{name}</th>" for name in texts if name not in _BELOW)
        cells = {name: escape(text) for name, text in texts.items() if name not in _BELOW}
        if row.experiment in reports:
            name = cells["experiment"]
            cells["experiment"] = f'<a href="reports/{name}.html">{name}</a>'
        cells["verdict"] = f'<b class="{row.verdict}">{tables.verdict_words(row.verdict)}</b>'
        for name, note in texts.items():
            if name in _BELOW and note != "–":
                note = f"rule changed {note}" if name == "rule changed" else note
                cells[_BELOW[name]] += f"<small>{escape(note)}</small>"
        line = "".join(f"<td>{cell}</td>" for cell in cells.values())
        rows.append(f'<tr id="{escape(row.id)}" data-verdict="{row.verdict}">{line}</tr>')
    newline = "\n"
    return (
        f'<div class="chips" role="group" aria-label="Show only">{chips}</div>\n'
        '<div class="scroll"><table class="pagecage sortable" data-filter="verdict">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{newline.join(rows)}\n</tbody></table></div>"
    )


_FRAMES = "data-frames.ipynb"
"""The notebook of a run, next to its bundle."""
_THEME = Path(__file__).resolve().parent / "theme"


def publish(
    top: Path,
    read_stored: AbstractContextManager[Sequence[Run]],
    named: Sequence[Path],
    out: Path,
    deviations: Sequence[scorecard.Deviation] = (),
) -> Path:
    """Build the site in `out`, completely or not at all; return the path of its first page.

    The stored runs are read after `named` and `out` were found good. `deviations` are causes of
    figures that do not hold on the stored runs. Raises PagecageError if there is no run to show, if
    `out` holds something other than a site, or if Sphinx fails.
    """
    hint = "name another folder with --out"
    _require_replaceable(out, hint)
    chosen = _by_experiment(named)
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            # On one file system with `out`, so that the site can be renamed into place.
            scratch = stack.enter_context(scratch_folder(out.parent, "pagecage-site"))
        except OSError as error:
            raise PagecageError(f"{out} cannot be written: {error.strerror}", hint) from None
        stored = stack.enter_context(read_stored)
        runs = _in_order(chosen or ratios.run_by_experiment(stored))
        given = {run.run_id: run for run in (*stored, *runs.values())}
        (bundles := scratch / "bundles").mkdir()
        redacted = {id_: _redacted(run, bundles / id_) for id_, run in given.items()}
        shown = {name: redacted[run.run_id] for name, run in runs.items()}
        source, made = scratch / "source", scratch / "made"
        _lay_out(top, shown, [redacted[run.run_id] for run in stored], source, deviations)
        _lay_out_notebooks(shown, bundles, source)
        _build(source, made)
        _protect(made)
        if out.exists():
            out.rename(scratch / "before")
        made.rename(out)
        sync_folder(out.parent)
    return out / "index.html"


def _require_replaceable(out: Path, hint: str) -> None:
    if out.exists() and not out.is_dir():
        raise PagecageError(f"{out} is not a folder", "name another with --out")
    if out.exists() and any(out.iterdir()) and not (out / ".buildinfo").exists():
        raise PagecageError(f"{out} holds files that are not a pagecage site", hint)


def _build(source: Path, made: Path) -> None:
    argv: list[str | Path] = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    argv += ["-b", "html", source, made]
    done = run_process(argv, check=False, timeout_seconds=900.0, env=OWN_PYTHON)
    if not done.ok:
        first = (done.stderr.strip() or "it printed no reason").splitlines()[0]
        message = f"the site could not be built: {first}"
        raise PagecageError(message, "pagecage show NAME --html", EXIT_FAILED)


def _by_experiment(named: Sequence[Path]) -> dict[str, Run]:
    """Return runs by experiment. Raises PagecageError if two runs are of one experiment."""
    found: dict[str, Run] = {}
    for run in map(load_run, named):
        name = run.experiment
        if name in found:
            ids = f"{found[name].run_id} and {run.run_id}"
            message = f"{ids} are both runs of {name}, which has one page"
            raise PagecageError(message, "name one of them")
        found[name] = run
    return found


def _in_order(runs: Mapping[str, Run]) -> dict[str, Run]:
    """Sort runs by name; runs at smoke size, which show little, come last."""
    if not runs:
        raise PagecageError("there is no run to publish", "make experiment NAME=constrained-random")
    return dict(sorted(runs.items(), key=lambda item: (item[1].size == "smoke", item[0])))


def _redacted(run: Run, folder: Path) -> Run:
    """Return the run as a stranger gets it, from its bundle next to `folder`."""
    archive = folder.with_name(f"{folder.name}{SUFFIX}")
    pack(run.path, archive)
    unpack(archive, folder)
    return load_run(folder)


def _lay_out(
    top: Path,
    runs: Mapping[str, Run],
    stored: Sequence[Run],
    source: Path,
    deviations: Sequence[scorecard.Deviation],
) -> None:
    """Write the folder that Sphinx reads, with a page for each of `runs`."""
    for name in ("_static", "_extra", "reports", "notebooks", "docs"):
        (source / name).mkdir(parents=True)
    shutil.copy(_THEME / "conf.py", source)
    shutil.copy(ANALYSIS / "templates/offline/parts.css", source / "_static")
    for name in ("favicon.svg", "site.css", "site.js"):
        shutil.copy(_THEME / name, source / "_static")
    for name, run in runs.items():
        given = source / "_extra" / "runs" / name
        given.mkdir(parents=True)
        render(run.path)
        bundle = f"{run.run_id}{SUFFIX}"
        for file in (PAGE, NAME):
            shutil.copy(run.path / file, given)
        shutil.copy(run.path.with_name(bundle), given)
        files = {"one page": PAGE, "notebook": NAME, "bundle: raw records and traces": bundle}
        links = [f'<a href="../notebooks/{name}.html">data frames</a>']
        links += [f'<a href="../runs/{name}/{file}">{text}</a>' for text, file in files.items()]
        below = f'<p class="source">Run {run.run_id} · {" · ".join(links)}</p>'
        page = site_page(run.path / NAME, name, below)
        nbformat.write(page, source / "reports" / f"{name}.ipynb")  # type: ignore[no-untyped-call]
    documents, experiments = _lay_out_documents(top, source), top / "experiments"
    scored = ratios.hosted_scorecard(experiments, stored)
    answers = to_markdown(pages.answers_report(open_questions(experiments, scored.runs)))
    (source / "index.md").write_text(index(runs, scored.card, documents))
    (source / "scorecard.md").write_text(scorecard_page(scored, runs, deviations))
    (source / "answers.md").write_text(answers)


def _lay_out_notebooks(runs: Mapping[str, Run], bundles: Path, source: Path) -> None:
    """Execute a notebook for each run, next to its bundle, and the notebooks of the articles."""
    for name, run in runs.items():
        given = source / "_extra" / "runs" / name
        bundle = f"{run.run_id}{SUFFIX}"
        made = execute(run_notebook(run.plan), given, f"{name}: data frames", source=bundle)
        nbformat.write(made, given / _FRAMES)  # type: ignore[no-untyped-call]
        links = (
            f'<p class="source">Run {run.run_id} · <a href="../reports/{name}.html">report</a>'
            f' · <a href="../runs/{name}/{_FRAMES}">this notebook</a>'
            f' · <a href="../runs/{name}/{bundle}">its bundle</a></p>'
        )
        page = deepcopy(made)
        title, _, rest = page.cells[0]["source"].partition("\n")
        page.cells[0]["source"] = f"{title}\n\n{links}\n\n{rest}"
        nbformat.write(page, source / "notebooks" / f"{name}.ipynb")  # type: ignore[no-untyped-call]
    for article, path in article_notebooks(runs).items():
        made = execute_article(article, path, bundles)
        nbformat.write(made, source / "notebooks" / f"{article}.ipynb")  # type: ignore[no-untyped-call]


_GENERATED = {
    "docs/answers.md": "answers.md",
    "docs/SCORECARD.md": "scorecard.md",
    "docs/gallery/README.md": "index.md",
    "docs/decisions": "docs/decisions/index.md",
}
"""Documents and folders for which the site has pages of its own, with these pages."""
_DOCUMENTS = "docs/README"


def _lay_out_documents(top: Path, source: Path) -> list[str]:
    """Copy the project's documents; return the names of those in the menu, the index first."""
    found = {
        path.relative_to(top).as_posix(): path for path in sorted((top / "docs").rglob("*.md"))
    }
    kept = {name: path for name, path in found.items() if name not in _GENERATED}
    for name in ("docs/decisions", "docs/schema"):
        (source / name).mkdir()
    targets = set(kept)
    for path in sorted((top / "docs/schema").iterdir()):
        shutil.copy(path, source / "docs/schema")
        targets.add(f"docs/schema/{path.name}")
    for name, path in kept.items():
        (source / name).write_text(drop_outside_links(path.read_text(), name, targets))
    records = [Path(name).stem for name in kept if name.startswith("docs/decisions/")]
    head = (
        "# Decisions\n\nEach page states a decision, its reason, and the alternatives that were"
        " rejected.\n"
    )
    text = "\n".join([head, "```{toctree}", *records, "```", ""])
    (source / "docs/decisions/index.md").write_text(text)
    pages = [name.removesuffix(".md") for name in kept if name.count("/") == 1]
    return sorted(pages, key=lambda page: page != _DOCUMENTS)


_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_OUTSIDE = ("http://", "https://", "#", "mailto:")


def drop_outside_links(text: str, page: str, pages: Collection[str]) -> str:
    """Replace links to files that are not in the site by their text.

    Links to documents that the site generates itself lead to its own pages. `page` is the
    document's path in the site, and `pages` are all paths, such as `docs/FORMAT.md`, those of the
    schemas included.
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

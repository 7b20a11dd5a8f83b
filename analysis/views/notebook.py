"""The notebook of a run: written, and executed."""

from __future__ import annotations

import ast
import json
import linecache
import platform
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from analysis.alt_text import RunFrames
from analysis.articles import tables
from analysis.articles.tables import ratio_sections, with_anchors
from analysis.cells import fidelity_lines
from analysis.data.load import include_by_name, load_run
from analysis.views import evidence_tables, figure_sections, run
from analysis.views.custom_collectors import own_section
from analysis.views.html import (
    Html,
    blank_repeats,
    blocks_html,
    definition_text_html,
    folded_table,
    table_html,
)
from analysis.views.narrative import ABOUT_CLAIMS, answer_html, notices_html, story_html
from analysis.views.run import memory_section, minima_section
from pagecage.checkout import TOP
from pagecage.model.published_figures import PublishedFigure, read_rows

Cell = dict[str, Any]
"""A cell with the keys of nbformat 4.5; its texts are strings, which `write` splits into lines."""
PARAMETERS, INJECTED = "parameters", "injected-parameters"
"""papermill's tags of the cell with default values, and of the cell with this notebook's values."""
_HEADER = re.compile(r"\A# ---\n(#.*\n)*?# ---\n")
_MARK = re.compile(r"# %%( \[markdown\])?(?: tags=(\[.*\]))?")


def read_source(path: Path) -> list[Cell]:
    """Read the cells of a source in jupytext's percent format.

    Raises ValueError if a cell mark has anything but tags.
    """
    return read_cells(path.read_text(encoding="utf-8"))


def read_cells(text: str) -> list[Cell]:
    """Return the cells of a text likewise."""
    body = _HEADER.sub("", text)
    return [
        _cell(part) for part in re.split(r"^(?=# %%)", body, flags=re.MULTILINE) if part.strip()
    ]


def _cell(text: str) -> Cell:
    mark, _, source = text.partition("\n")
    match = _MARK.fullmatch(mark)
    if not match:
        raise ValueError(
            f"{mark!r} does not start a cell: only [markdown] and tags=[...] may follow # %%"
        )
    tags, source = json.loads(match[2] or "[]"), source.strip("\n")
    if match[1]:
        source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        return {"cell_type": "markdown", "metadata": {"tags": tags}, "source": source}
    return code_cell(source, tags)


def code_cell(source: str, tags: Sequence[str]) -> Cell:
    """Return a code cell without outputs."""
    metadata = {"tags": list(tags)}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": metadata,
        "outputs": [],
        "source": source,
    }


def with_parameters(cells: Sequence[Cell], parameters: Mapping[str, Any]) -> list[Cell]:
    """Insert a cell that assigns these values after the one tagged `parameters`."""
    source = "".join(
        [
            "# Parameters\n",
            *(f"{name} = {json.dumps(value)}\n" for name, value in parameters.items()),
        ]
    )
    return [
        shown_cell
        for cell in cells
        for shown_cell in (
            [cell, code_cell(source, [INJECTED])]
            if PARAMETERS in cell["metadata"]["tags"]
            else [cell]
        )
    ]


def notebook(cells: Sequence[Cell], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document that Jupyter opens (nbformat 4.5)."""
    language = {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    }
    return {
        "cells": numbered(cells),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {**language, "version": platform.python_version()},
            **metadata,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def numbered(cells: Sequence[Cell], first: int = 1) -> list[Cell]:
    """Return the cells with their ids."""
    return [{**cell, "id": f"cell-{number:02}"} for number, cell in enumerate(cells, first)]


def text_of(document: Mapping[str, Any]) -> str:
    """Return a notebook's text as Jupyter writes it: sorted keys, each text as a list of lines."""
    stored = {**document, "cells": [_stored(cell) for cell in document["cells"]]}
    return json.dumps(stored, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write a notebook to a file."""
    path.write_text(text_of(document), encoding="utf-8")


def _stored(cell: Cell) -> Cell:
    stored = {**cell, "source": cell["source"].splitlines(keepends=True)}
    if "outputs" in cell:
        stored["outputs"] = [dict(_split(output)) for output in cell["outputs"]]
    return stored


def _split(output: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in output.items():
        if key == "data":
            yield key, {kind: text.splitlines(keepends=True) for kind, text in value.items()}
        else:
            yield key, value.splitlines(keepends=True) if key == "text" else value


def read(path: Path) -> dict[str, Any]:
    """Read a stored notebook, and join the lines of its texts."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    for cell in document["cells"]:
        cell["source"] = "".join(cell["source"])
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = "".join(output["text"])
            if "data" in output:
                output["data"] = {kind: "".join(text) for kind, text in output["data"].items()}
    return document


MoreOutputs = Callable[[object], Iterable[Cell]]
"""Outputs of a cell that replace its value, such as figures."""
_OUR_FRAMES = 2
"""Frames of a traceback that belong to this module: `_run_cell` and `_value`."""


def no_outputs(_value: object) -> Iterable[Cell]:
    """Return no outputs besides a cell's value."""
    return ()


def run_cells(
    cells: Sequence[Cell], namespace: dict[str, Any], more_outputs: MoreOutputs = no_outputs
) -> Exception | None:
    """Run the code cells up to the first that fails.

    Returns that cell's exception, which is also stored in its outputs, or None. `more_outputs`
    gets the value of each cell.
    """
    code_cells = [cell for cell in cells if cell["cell_type"] == "code"]
    for number, cell in enumerate(code_cells, 1):
        if error := _run_cell(cell, number, namespace, more_outputs):
            return error
    return None


def _run_cell(
    cell: Cell, number: int, namespace: dict[str, Any], more_outputs: MoreOutputs
) -> Exception | None:
    stdout, stderr = StringIO(), StringIO()
    more: list[Cell] = []
    shown: dict[str, str] = {}
    raised = None
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            value = _value(cell["source"], f"<cell {number}>", namespace)
            more = list(more_outputs(value))
            shown = {} if more else _shown(value)
        except Exception as error:  # noqa: BLE001 - whatever a cell raises is its output
            raised = error
    cell["execution_count"] = number
    cell["outputs"] = [*_streams(stdout=stdout.getvalue(), stderr=stderr.getvalue())]
    if shown:
        cell["outputs"].append(
            {
                "output_type": "execute_result",
                "execution_count": number,
                "metadata": {},
                "data": shown,
            }
        )
    cell["outputs"] += more
    if raised:
        cell["outputs"].append(_error(raised))
    return raised


def _value(source: str, name: str, namespace: dict[str, Any]) -> object:
    """Execute the source, and return the value of its last expression, or None.

    The source is registered with linecache, so that tracebacks show its lines.
    """
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec", dont_inherit=True), namespace)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)


def _shown(value: object) -> dict[str, str]:
    """Return a value by media type; empty for None."""
    if value is None:
        return {}
    as_html = getattr(value, "_repr_html_", lambda: None)()
    return {**({"text/html": as_html} if as_html is not None else {}), "text/plain": repr(value)}


def _streams(**texts: str) -> Iterator[dict[str, str]]:
    for name, text in texts.items():
        if text:
            yield {"output_type": "stream", "name": name, "text": text}


def _error(error: Exception) -> dict[str, Any]:
    """Return an exception as Jupyter stores it; the traceback begins in the cell."""
    frames = error.__traceback__
    for _ in range(_OUR_FRAMES):
        frames = frames.tb_next if frames and frames.tb_next else frames
    lines = "".join(traceback.format_exception(type(error), error, frames)).splitlines()
    return {
        "output_type": "error",
        "ename": type(error).__name__,
        "evalue": str(error),
        "traceback": lines,
    }


class Results(RunFrames):
    """A run ready for display. Data frames are made once, on first use."""

    def __init__(self, run_dir: str | Path, include: Sequence[str] = ()) -> None:
        """Load a run; `include` names excluded trials, or verdicts, to include.

        Raises PagecageError if `run_dir` is not a run folder or has no record, and for a name that
        selects no excluded trial.
        """
        super().__init__(include_by_name(load_run(Path(run_dir)), include))

    @property
    def heading(self) -> Html:
        """Question, story and limitations."""
        return Html(story_html(self.run) + notices_html(self.run))

    @property
    def answer(self) -> Html | None:
        """The findings in sentences, ratios over two factors, and a search for memory."""
        tables = [*memory_section(self.run), *ratio_sections(self.run)]
        items, ratios = answer_html(self.run), blocks_html(tables)
        answer = f'<h2>Answer</h2><ul class="answer">{items}</ul>' if items else ""
        return Html(answer + ratios) if answer or ratios else None

    @property
    def cells(self) -> Html:
        """The experiment's table."""
        constant = self.run.layout.constant
        throughout = "; ".join(f"{name} {level}" for name, level in constant.items())
        note = f'<p class="source">Throughout: {escape(throughout)}.</p>' if throughout else ""
        kind = "cells" if self.run.layout.across else "cells rows"
        table = table_html(
            blank_repeats(run.cell_table(self.run), len(self.run.layout.down) - 1), kind
        )
        return Html(note + (table.text if table else ""))

    @property
    def tables(self) -> Html | None:
        """Further tables of the definition, each with its title and description."""
        parts = [
            part
            for table in self.run.definition.get("tables", [])
            if (part := self._further_table(table))
        ]
        return Html("".join(parts)) if parts else None

    def _further_table(self, table: Mapping[str, Any]) -> str | None:
        made = table_html(run.response_table(self.run, table), "cells further")
        heading, about = (
            definition_text_html(self.run.fill_places(table.get(key, "")))
            for key in ("title", "about")
        )
        return (
            f"<h3>{heading}</h3>{f'<p>{about}</p>' if about else ''}{made.text}" if made else None
        )

    @property
    def heat(self) -> Html | None:
        """The table as shades, if two or three factors vary and none is numeric."""
        return figure_sections.heat_section(self.run)

    @property
    def figure(self) -> Html | None:
        """The response over a numeric factor, or else one point per trial."""
        return figure_sections.response_section(self) or self.strips

    @property
    def latencies(self) -> Html | None:
        """Latency percentiles, if the workload, fio or a trace has any."""
        return figure_sections.latency_section(self)

    @property
    def claims(self) -> Html | None:
        """Published and measured figures; those without a figure are collapsed."""
        made = table_html(tables.claims_table(self.run), "claims")
        silent = folded_table(
            "published figures without a figure from this run",
            tables.silent_table(self.run),
            "claims",
        )
        left = folded_table(
            "published figures that cannot be tested here",
            tables.untestable_table(self.run, _published_figures()),
        )
        if not made and not silent and not left:
            return None
        about = f"<p>{ABOUT_CLAIMS}</p>" if made else ""
        parts = with_anchors("".join(part.text for part in (made, silent, left) if part))
        minima = blocks_html(minima_section(self.run))
        return Html(f"<h2>Published and measured</h2>{about}{parts}{minima}")

    @property
    def sweep(self) -> Html | None:
        """Measured and predicted times, and the knee, of a sweep; the curve of a memory search."""
        return figure_sections.sweep_section(self) or figure_sections.memory_section(self)

    @property
    def diagnosis(self) -> Html | None:
        """The diagnosis of each caged treatment."""
        made = table_html(evidence_tables.diagnosis_table(self.run), "narrow")
        items = "".join(f"<li>{escape(sentence)}.</li>" for sentence in fidelity_lines(self.run))
        cloud = f"<p>Fidelity to the provider's behaviour:</p><ul>{items}</ul>" if items else ""
        return Html(f"<h2>Diagnosis</h2>{made.text}{cloud}") if made else None

    @property
    def evidence(self) -> Html:
        """The evidence for the verdicts, collapsed: limits, cache, quiet, exclusions."""
        parts = (
            folded_table(
                "trials by outcome", evidence_tables.counts_table(self.run), "narrow", counted=False
            ),
            folded_table("trials that are not included", evidence_tables.excluded_table(self.run)),
            folded_table(
                "limits, with evidence that each was enforced",
                evidence_tables.limits_table(self.run),
            ),
            folded_table(
                "treatments: cache state, host and binding limit",
                evidence_tables.proof_table(self.run),
            ),
        )
        return Html("".join(part.text for part in parts if part))

    @property
    def strips(self) -> Html | None:
        """One point per trial."""
        return figure_sections.strip_section(self, self.trial_df, self.run.response)

    @property
    def amplification(self) -> Html | None:
        """Bytes read per byte requested, with the read-ahead window as a mark."""
        return figure_sections.amplification_section(self)

    @property
    def timelines(self) -> Html | None:
        """Transfer rates over time; sizes, residency, refaults and stalls are collapsed."""
        return figure_sections.timeline_section(self)

    @property
    def own_collectors(self) -> Html | None:
        """The numbers of the collectors that the definition brings along, over time."""
        return own_section(self)

    @property
    def residency(self) -> Html | None:
        """Resident parts of the data over time."""
        return figure_sections.residency_section(self)

    @property
    def kernel(self) -> Html | None:
        """Sizes of read-ahead requests, and faults by the flags of the mapping."""
        return figure_sections.kernel_section(self)

    @property
    def trials(self) -> Html | None:
        """Every trial, collapsed."""
        return folded_table(
            "trials, in the order they ran", evidence_tables.trial_table(self.run), "long"
        )

    @property
    def facts(self) -> Html | None:
        """Facts of the host."""
        return folded_table("facts of the host", evidence_tables.facts_table(self.run), "narrow")

    @property
    def making(self) -> Html | None:
        """Command, versions and hashes for repeating the run."""
        return table_html(evidence_tables.making_table(self.run), "narrow")


def _published_figures() -> list[PublishedFigure]:
    return read_rows(TOP / "experiments")

"""The open questions in a terminal: each with what is known and what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.claims.answers import OpenQuestion, OpenQuestions, QuestionFinding
from analysis.data.load import Run


def show_answers(found: OpenQuestions, console: Console) -> None:
    """Print every question, then how many have an answer."""
    for answer in found.questions:
        console.print(Text.assemble((f"{answer.id}  ", "bold cyan"), (answer.question, "bold")))
        for line in _lines(answer):
            console.print(Padding(line, (0, 0, 0, 5)))
    answered = sum(not answer.is_open for answer in found.questions)
    console.print(Text(f"{answered} of {len(found.questions)} answered by runs here", "bold"))


def _lines(answer: OpenQuestion) -> list[Text]:
    known = [Text(answer.known, "dim")] if answer.known else []
    said = [
        Text.assemble(("• " if s.is_proven else "? "), s.sentence, (f" ({s.note})" if s.note else "", "dim"), "  ",
                      (s.experiment, "dim"))
        for s in answer.said
    ]  # fmt: skip
    return [*known, *(said or [Text("open", "yellow")])]


_HEAD = """# What the articles left open, and what came out

The articles that the experiments retrace ask more than they answer. Each question has a number and one or more
experiments whose definition holds sentences with a place for a measured figure (`[[findings]]`). This page is made from
runs and by nobody's hand:

    pagecage answers --markdown

A figure stands here with the run that it comes from; hosts, kernels and sizes of the runs are at the end. A ratio is of
medians, its interval the 95 % one where there are trials enough for it, the range otherwise. Only figures of trials
that nothing excludes are told.
"""


def markdown(found: OpenQuestions) -> str:
    """The page, whole."""
    asked = [line for answer in found.questions for line in _question(answer)]
    used = {said.experiment for answer in found.questions for said in answer.said if said.is_proven}
    runs = [_run(run) for name, run in found.runs.items() if name in used]
    head = ["| experiment | run | size | host | kernel |", "|---|---|---|---|---|"]
    return "\n".join([_HEAD, *asked, "## The runs", "", *head, *runs]) + "\n"


def _question(answer: OpenQuestion) -> Iterator[str]:
    yield f"## {answer.id}: {answer.question}"
    yield ""
    if answer.known:
        yield f"{answer.known}\n"
    proven = [said for said in answer.said if said.is_proven]
    yield from (f"* {_sentence(said)}" for said in proven)
    if not proven:
        yield "Open: no run here has answered it." + (" What is known is above." if answer.known else "")
    yield ""


def _sentence(said: QuestionFinding) -> str:
    note = f" ({said.note})" if said.note else ""
    return f"{said.sentence.rstrip('.')}{note}. `{said.experiment}`"


def _run(run: Run) -> str:
    plan, kernels = run.plan, sorted({str(facts.get("kernel", "?")) for facts in run.facts})
    emulated = ", emulated" if run.is_emulated else ""
    host = f"{plan['host']}{emulated}"
    return f"| {plan['experiment']} | {plan['run_id']} | {plan['size']} | {host} | {', '.join(kernels)} |"

"""Report of the open questions: what is known of each, and the findings that answer it."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.claims.answers import OpenQuestion, OpenQuestions, QuestionFinding
from analysis.data.load import Run
from pagecage.report.model import Block, Heading, Paragraph, Report, make_table

_INTRODUCTION = (
    (
        "The articles that the experiments retrace raise more questions than they answer. Each"
        " question has a number, and one or more experiments define sentences for it with a place"
        " for a measured figure (`[[findings]]`). This page is generated from runs by `pagecage"
        " answers --markdown`."
    ),
    (
        "Each figure names the experiment that measured it; the runs, with their hosts, kernels and"
        " sizes, are listed at the end. A ratio is a ratio of medians with its 95 % interval, or"
        " with the range if there are too few trials. Figures of excluded trials do not answer a"
        " question."
    ),
)


def answers_report(found: OpenQuestions, *, with_unproven: bool = False) -> Report:
    """Return the report; `with_unproven` adds findings that rest on excluded trials alone."""
    blocks: list[Block] = [Paragraph(text) for text in _INTRODUCTION]
    for question in found.questions:
        blocks += _question(question, with_unproven=with_unproven)
    answered = sum(not question.is_open for question in found.questions)
    blocks.append(Heading("Runs"))
    blocks.append(
        Paragraph(f"{answered} of {len(found.questions)} questions are answered by these runs.")
    )
    proven = {
        one.experiment for question in found.questions for one in question.findings if one.is_proven
    }
    runs = [_run_row(run) for name, run in found.runs.items() if name in proven]
    blocks.append(make_table(["experiment", "run", "size", "host", "kernel"], runs))
    return Report("Open questions of the articles, and answers", tuple(blocks))


def _question(question: OpenQuestion, *, with_unproven: bool) -> Iterator[Block]:
    yield Heading(f"{question.id}: {question.question}")
    if question.known:
        yield Paragraph(question.known, tone="soft")
    for finding in question.findings:
        if finding.is_proven or with_unproven:
            yield _finding(finding)
    if question.is_open:
        yield Paragraph("Open: no run here has answered it.", tone="warning")


def _finding(finding: QuestionFinding) -> Paragraph:
    note = f" ({finding.note})" if finding.note else ""
    text = f"{finding.sentence.rstrip('.')}{note}. `{finding.experiment}`"
    return Paragraph(
        text,
        tone="plain" if finding.is_proven else "soft",
        marker="•" if finding.is_proven else "?",
    )


def _run_row(run: Run) -> list[str]:
    kernels = sorted({str(facts.get("kernel", "?")) for facts in run.facts})
    host = f"{run.plan['host']}{', emulated' if run.is_emulated else ''}"
    return [run.plan["experiment"], run.plan["run_id"], run.plan["size"], host, ", ".join(kernels)]

"""The open questions in a terminal: each with what is known and what was measured."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.answers import Answer, Answers


def show_answers(found: Answers, console: Console) -> None:
    """Print every question, then how many have an answer."""
    for answer in found.questions:
        console.print(Text.assemble((f"{answer.id}  ", "bold cyan"), (answer.question, "bold")))
        for line in _lines(answer):
            console.print(Padding(line, (0, 0, 0, 5)))
    answered = sum(not answer.is_open for answer in found.questions)
    console.print(Text(f"{answered} of {len(found.questions)} answered by runs here", "bold"))


def _lines(answer: Answer) -> list[Text]:
    known = [Text(answer.known, "dim")] if answer.known else []
    said = [
        Text.assemble(("• " if s.is_proven else "? "), s.sentence, (f" ({s.note})" if s.note else "", "dim"), "  ",
                      (s.experiment, "dim"))
        for s in answer.said
    ]  # fmt: skip
    return [*known, *(said or [Text("open", "yellow")])]

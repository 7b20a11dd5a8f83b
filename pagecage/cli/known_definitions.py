"""The question before the first run of a definition."""

from __future__ import annotations

import sys

from pagecage.cli.output import confirmed
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.known import (
    command_lines,
    is_known,
    remember_definition,
    remember_sections,
)
from pagecage.errors import PagecageError

_WHERE = {
    "local": "on this machine",
    "vm": "in the guest",
    "auto": "in the guest, or on this machine if it can measure the whole plan",
}


def ask_before_commands(experiment: Experiment, host: str, *, yes: bool) -> None:
    """Show the commands of a definition that has not run here before, and ask."""
    if not is_known(experiment):
        lines = [f"{experiment.file} has not run on this machine before. Its commands:"]
        where = _WHERE.get(host, f"on every host of {host}")
        lines += [f"  {line}" for line in command_lines(experiment, where)]
        # Control characters could hide a command on a terminal.
        shown = ("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines)
        sys.stderr.write("\n".join(shown) + "\n")
        if not yes and not sys.stdin.isatty():
            raise PagecageError(
                f"{experiment.name} has commands that have not run on this machine before",
                f"read them above, and `pagecage run {experiment.name} --dry-run`; then add --yes",
            )
        if not yes and not confirmed("Run them?"):
            raise PagecageError(
                f"not confirmed: the commands of {experiment.name}",
                f"pagecage run {experiment.name} --dry-run lists every command",
            )
        remember_definition(experiment)
    remember_sections(experiment.sections)

"""`pagecage sweep`: one limit of a cage varied, what each value costs, where raising it stops to pay."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from pagecage.cage import UNCAGED
from pagecage.campaign import check_memory_floor
from pagecage.cli.carry_out import Job, begun, carry_out
from pagecage.cli.choose import TOP, Wishes, build_plan, choose_host, choose_size, definitions
from pagecage.cli.preview import plan_lines
from pagecage.cli.report import render, show_run
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.hosts.host import Host
from pagecage.hosts.kit import make_kit
from pagecage.plan import Plan
from pagecage.sweep import cages_of, parse_vary, swept

_error = Console(stderr=True, highlight=False)
Treatments = Annotated[tuple[str, ...], Parameter(name="--treatment", consume_multiple=False)]


def _say(text: str) -> None:
    _error.print(text, soft_wrap=True, markup=False)


def sweep(
    base: str,
    experiment: str,
    /,
    wishes: Wishes = Wishes(),  # noqa: B008 - frozen
    *,
    vary: str,
    treatment: Treatments = (),
    dry_run: bool = False,
    yes: bool = False,
    as_json: Annotated[bool, Parameter(name="--json", help="Print data, and data alone, on standard output.")] = False,
) -> int:
    """Run one treatment of an experiment under several values of one limit; find the knee, and check the prediction.

    The time under each I/O cap is also predicted from the trial under the cage's own value, and both are printed.

    Parameters
    ----------
    base
        The cage whose limit is varied: one of cgroups/.
    experiment
        One of `pagecage list`.
    vary
        The limit and its values, as in IOReadIOPSMax=500,1000,2000 or MemoryMax=64MiB,128MiB; the cage's own is added.
    treatment
        FACTOR=LEVEL for each factor that has several levels, the cage apart.
    dry_run
        Print the plan, and start nothing.
    yes
        Do not ask before changing a setting of the disk that holds /.
    """
    plan, host = plan_for(base, experiment, vary, treatment, wishes)
    if dry_run:
        host.stop()
        print("\n".join(plan_lines(plan)))
        return EXIT_OK
    return _carried_out(begun(plan, host, yes), as_json)


def _carried_out(job: Job, as_json: bool) -> int:
    status = carry_out(job, _say)
    page = render(job.folder.path, _say)
    print(show_run(job.folder.path, as_json), end="")
    _say(f"report: {os.path.relpath(page)}")
    return status


def plan_for(base: str, name: str, vary: str, treatment: Sequence[str], wishes: Wishes) -> tuple[Plan, Host]:
    """The plan of a sweep and its host; everything that can be wrong with the input is found before a start."""
    if wishes.cage is not None:
        raise PagecageError("a sweep's cage is its first word", "leave --cage out")
    make_kit(TOP)
    experiment = definitions().experiment(name)
    if base != UNCAGED:
        definitions().cage(base, experiment.sizes["full"].total_bytes)
    chosen = _chosen(treatment)
    host = choose_host(wishes.host, wishes.data_dir, _say)
    try:
        size, reason = choose_size(wishes.size, host, _say)
        cage = definitions().cage(base, experiment.sizes[size].total_bytes)
        varied = parse_vary(vary, cage)
        typed = shlex.join(["pagecage", *sys.argv[1:]])
        wished, made = replace(wishes, size=size), cages_of(cage, varied)
        plan = build_plan(wished, swept(experiment, base, varied, chosen), host, typed, _say, made)
        check_memory_floor(plan)
    except BaseException:
        host.stop()
        raise
    about = {"property": varied.property, "values": dict(varied.values), "own": varied.own, "cage": base}
    return replace(plan, document={**plan.document, "size_reason": reason, "sweep": about}), host


def _chosen(treatment: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in treatment]
    if wrong := next((text for text in treatment if "=" not in text), None):
        raise PagecageError(f"--treatment: {wrong!r} names no level", "write FACTOR=LEVEL, as in load=lazy-random")
    return {factor: level for factor, _, level in pairs}

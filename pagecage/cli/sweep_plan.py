"""From what was typed after `pagecage sweep` to a plan: everything that can be wrong is found before a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from pagecage.cli import replay_plan
from pagecage.cli.output import Say
from pagecage.cli.replay_plan import ReplayOptions, data_bytes
from pagecage.cli.run_options import RunOptions, definitions
from pagecage.cli.run_plan import build_plan, choose_host, choose_size
from pagecage.errors import PagecageError
from pagecage.hosts.host import Host
from pagecage.model.cage import UNCAGED
from pagecage.planning.plan import Plan
from pagecage.planning.sweep import LimitVariation, cages_of, level_cage, parse_vary, sweep_experiment
from pagecage.runner.campaign import check_memory_floor


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """What the user may choose of an experiment that is swept.

    Parameters
    ----------
    treatment
        FACTOR=LEVEL for each factor of the experiment that has several levels, the cage apart.
    size
        Of the experiment: auto, full, default, emulated or smoke.
    fresh
        How often the host starts from its saved state, of an experiment.
    """

    treatment: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = ()
    size: str | None = None
    fresh: Literal["never", "run", "block", "trial"] | None = None


@dataclass(frozen=True)
class SweepOptions:
    """What was typed. `replay` holds what both forms share, and what a command alone may have."""

    base: str
    what: tuple[str, ...]
    vary: str
    own: ExperimentOptions
    replay: ReplayOptions


def plan_of_experiment(asked: SweepOptions, typed: str, say: Say) -> tuple[Plan, Host]:
    """One treatment of an experiment under each value."""
    _refuse(asked, of_command=False)
    if len(asked.what) != 1:
        hint = "name an experiment, or put -- before a command"
        raise PagecageError(f"{' '.join(asked.what) or 'nothing'} is no experiment", hint)
    experiment, chosen, shared = definitions().experiment(asked.what[0]), _chosen(asked.own.treatment), asked.replay
    if asked.base != UNCAGED:
        definitions().cage(asked.base, experiment.sizes["full"].total_bytes)
    host = choose_host(shared.host, shared.data_dir, say)
    try:
        size, reason = choose_size(asked.own.size or "auto", host, say)
        cage = definitions().cage(asked.base, experiment.sizes[size].total_bytes)
        vary = parse_vary(asked.vary, cage)
        wishes = RunOptions(size=size, repeats=shared.repeats, seed=shared.seed, fresh=asked.own.fresh)
        made = cages_of(cage, vary)
        plan = build_plan(wishes, sweep_experiment(experiment, asked.base, vary, chosen), host, typed, say, made)
        check_memory_floor(plan)
    except BaseException:
        host.stop()
        raise
    levels = {word: word for word in vary.values}
    return _with(plan, _about(asked.base, vary, vary.property, levels), size_reason=reason), host


def plan_of_command(asked: SweepOptions, typed: str, say: Say) -> tuple[Plan, Host]:
    """Any program under each value; an ordinary replay, whose cages are made here."""
    _refuse(asked, of_command=True)
    cage = definitions().cage(asked.base, data_bytes(asked.replay))
    vary = parse_vary(asked.vary, cage)
    plan, host = replay_plan.plan_for(asked.base, asked.what, asked.replay, typed, say, cages_of(cage, vary))
    levels = {word: level_cage(asked.base, vary.property, word) for word in vary.values}
    return _with(plan, _about(asked.base, vary, "cage", levels)), host


def _refuse(asked: SweepOptions, *, of_command: bool) -> None:
    """What does not go with a sweep, or with this form of it."""
    shared, plain = asked.replay, ReplayOptions()
    if shared.others or shared.no_control:
        raise PagecageError("a sweep has one cage, its first word, and no control", "leave --cage and --no-control out")
    of_replay = ("cold", "cache", "ready_when", "ready_port", "copy", "copy_program", "timeout", "collectors")
    told = (
        vars(asked.own)
        if of_command
        else {n: getattr(shared, n) for n in of_replay if getattr(shared, n) != getattr(plain, n)}
    )
    if wrong := next((name for name, value in told.items() if value), None):
        kind = "an experiment's treatment" if of_command else "a command after --"
        raise PagecageError(f"--{wrong.replace('_', '-')} is for {kind}", "pagecage sweep --help")


def _chosen(treatment: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in treatment]
    if wrong := next((text for text in treatment if "=" not in text), None):
        raise PagecageError(f"--treatment: {wrong!r} names no level", "write FACTOR=LEVEL, as in load=lazy-random")
    return {factor: level for factor, _, level in pairs}


def _about(base: str, vary: LimitVariation, factor: str, levels: dict[str, str]) -> dict[str, Any]:
    """What a plan says of its sweep: the values by the levels of the factor that they stand in."""
    values = {levels[word]: value for word, value in vary.values.items()}
    own = None if vary.own is None else levels[vary.own]
    return {"property": vary.property, "factor": factor, "values": values, "own": own, "cage": base}


def _with(plan: Plan, about: dict[str, Any], **changes: Any) -> Plan:
    return replace(plan, document={**plan.document, **changes, "sweep": about})

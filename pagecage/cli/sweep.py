"""`pagecage sweep`: one program at many values of a limit."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.checkout import TOP
from pagecage.cli import replay_plan
from pagecage.cli.cage_choice import choose_cage
from pagecage.cli.execution import ask_before_commands, create_run
from pagecage.cli.host_choice import plan_on_host
from pagecage.cli.options import (
    REPEATS,
    Dataset,
    Fresh,
    ReplayOptions,
    RunOptions,
    ServiceOptions,
    Treatments,
    definitions,
    given_options,
)
from pagecage.cli.output import Json, Notify, examples, notify, typed_command
from pagecage.cli.replay_plan import replay_cages
from pagecage.cli.run_plan import build_plan, choose_size
from pagecage.cli.show import measure
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.hosts.agent_package import make_agent_package, require_workloads
from pagecage.hosts.host import Host
from pagecage.model.plan import Plan
from pagecage.planning.plan import parse_treatment, plan_lines
from pagecage.planning.sweep import (
    LimitVariation,
    cages_of,
    level_cage,
    parse_vary,
    sweep_experiment,
)
from pagecage.runner.resource_needs import check_memory_floor

_OF_REPLAY = (
    *("cold", "cache", "ready_when", "ready_port", "copy", "copy_program", "timeout"),
    "collectors",
)


@Parameter(name="*", group=REPEATS)
@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Options of a sweep of an experiment.

    Parameters
    ----------
    treatment
        Level of a factor of the experiment; needed for each one with several, except the cage
    dataset
        Size of an experiment's data: auto, full, default, emulated or smoke
    fresh
        When to restore the guest's saved state, in a sweep of an experiment
    """

    treatment: Treatments = ()
    dataset: Dataset | None = None
    fresh: Fresh | None = None


@dataclass(frozen=True)
class SweepOptions:
    """All options of a sweep. `replay` holds those that both forms share and those of a command."""

    base: str
    words: tuple[str, ...]
    vary: str
    experiment: ExperimentOptions
    replay: ReplayOptions
    served: ServiceOptions = ServiceOptions()  # noqa: RUF009 - frozen

    def check(self, *, of_command: bool) -> None:
        kind = "an experiment" if of_command else "a command after --"
        mistaken = (self.experiment,) if of_command else (self.replay, _OF_REPLAY)
        for option in given_options(*mistaken):
            raise PagecageError(f"{option} applies only to {kind}", "pagecage sweep --help")


def plan_of_experiment(options: SweepOptions, command: str, notify: Notify) -> tuple[Plan, Host]:
    """Return the plan of one treatment of an experiment under each value, and its host."""
    options.check(of_command=False)
    if len(options.words) != 1:
        message = f"{' '.join(options.words)!r} is not an experiment"
        message = message if options.words else "no experiment and no command was given"
        raise PagecageError(message, "name an experiment, or put -- before a command")
    experiment, shared = definitions().experiment(options.words[0]), options.replay
    treatment = parse_treatment(options.experiment.treatment)
    volume = shared.volume
    choose_cage(options.base, volume, experiment.sizes["full"].total_bytes)

    def make(host: Host) -> Plan:
        size, reason = choose_size(options.experiment.dataset or "auto", host, notify)
        cage = choose_cage(options.base, volume, experiment.sizes[size].total_bytes)
        vary = parse_vary(options.vary, cage)
        run_options = RunOptions(
            dataset=size, repeats=shared.repeats, seed=shared.seed, fresh=options.experiment.fresh
        )
        varied = sweep_experiment(experiment, cage.name, vary, treatment)
        plan = build_plan(run_options, varied, host, command, notify, cages_of(cage, vary))
        check_memory_floor(plan)
        levels = {word: word for word in vary.values}
        swept = _with_sweep(plan, cage.name, vary, vary.property, levels)
        return replace(swept, document={**swept.document, "size_reason": reason})

    return plan_on_host(shared, make, notify)


def plan_of_command(options: SweepOptions, command: str, notify: Notify) -> tuple[Plan, Host]:
    """Return the plan of a replay of any program in one cage per value, and its host."""
    options.check(of_command=True)
    shared = options.replay
    (cage,) = replay_cages([options.base], shared).values()
    vary = parse_vary(options.vary, cage)
    cages = cages_of(cage, vary)
    plan, host = replay_plan.plan_for(cages, options.words, shared, command, notify, options.served)
    levels = {word: level_cage(cage.name, vary.property, word) for word in vary.values}
    return _with_sweep(plan, cage.name, vary, "cage", levels), host


def _with_sweep(
    plan: Plan, base: str, vary: LimitVariation, factor: str, levels: dict[str, str]
) -> Plan:
    sweep = {
        "property": vary.property,
        "factor": factor,
        "values": {levels[word]: value for word, value in vary.values.items()},
        "own": None if vary.own is None else levels[vary.own],
        "cage": base,
    }
    return replace(plan, document={**plan.document, "sweep": sweep})


_USAGE = "pagecage sweep --vary LIMIT=VALUES [OPTIONS] CAGE [EXPERIMENT | -- COMMAND...]"
app = App(name="sweep", help_epilogue=examples("sweep"), usage=_USAGE)


@app.default
def sweep(
    base: Annotated[str, Parameter(name="CAGE")],
    /,
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, name="TARGET")],
    vary: Annotated[str, Parameter(metavar="LIMIT=VALUES")],
    experiment_options: ExperimentOptions = ExperimentOptions(),
    replay_options: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    served: ServiceOptions = ServiceOptions(),  # noqa: B008 - frozen
    dry_run: bool = False,
    yes: bool = False,
    as_json: Json = False,
) -> int:
    """Measure a command or an experiment at several values of a limit.

    The report shows the knee, beyond which a higher limit saves little time. For I/O limits it also
    predicts times from the trial under the cage's own value. Of a server it shows the first metric.

    Parameters
    ----------
    base
        Cage whose limit is varied (see `pagecage cage list`)
    words
        Experiment (see `pagecage list`); or, after --, a program and its arguments; or --serve
    vary
        Limit and values, for example IOReadIOPSMax=500,1000,2000; the cage's own is added
    dry_run
        Show the plan; start nothing
    yes
        Do not ask before commands of a definition that has not run on this machine, or before
        changing settings of the disk that holds /
    """
    options = SweepOptions(base, words, vary, experiment_options, replay_options, served)
    plan, host = _plan(options, asks=not dry_run, yes=yes)
    if dry_run:
        host.stop()
        print("\n".join(plan_lines(plan)))
        return EXIT_OK
    return measure(create_run(plan, host, yes, notify), "json" if as_json else "")


def _plan(options: SweepOptions, *, asks: bool, yes: bool) -> tuple[Plan, Host]:
    if "--" in sys.argv or options.served != ServiceOptions():
        return plan_of_command(options, typed_command(), notify)
    if asks and len(options.words) == 1:
        experiment = definitions().experiment(options.words[0])
        ask_before_commands(experiment, options.replay.host, yes=yes)
    require_workloads(make_agent_package(TOP))
    return plan_of_experiment(options, typed_command(), notify)

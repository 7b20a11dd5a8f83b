"""The plan of a search for the memory that a program needs."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from cyclopts import Parameter

from pagecage.errors import PagecageError
from pagecage.hosts.host import Host
from pagecage.hosts.local import LocalHost
from pagecage.memory_search.need import SearchRule, most_levels
from pagecage.memory_search.rounds import KEY, rule_of
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.plan import Plan
from pagecage.planning import replay_plan
from pagecage.planning.options import ReplayOptions, parse_percent
from pagecage.planning.replay_plan import replay_cages
from pagecage.runner.resource_needs import resource_needs
from pagecage.terminal import Notify
from pagecage.units import MIB, exact_size, parse_size_bytes
from pagecage.whole_files import json_sha256

LEAST_REFERENCES = 3
"""Repeats of the reference, whose spread is the noise."""
_LEAST_PRECISION = 0.001


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """Options of a search for memory.

    Parameters
    ----------
    slowdown
        Loss of time that is accepted, against the time with all of the memory
    precision
        Width of the interval at which the search ends
    floor
        Least MemoryMax that is tried
    """

    slowdown: Annotated[str, Parameter(metavar="PERCENT")] = "5%"
    precision: Annotated[str, Parameter(metavar="PERCENT")] = "2%"
    floor: Annotated[str, Parameter(metavar="SIZE")] = "4MiB"


def plan_of(
    base: str,
    words: tuple[str, ...],
    options: MemoryOptions,
    shared: ReplayOptions,
    command: str,
    notify: Notify,
) -> tuple[Plan, Host]:
    """Return the plan of a search: the trials of the reference, and the rule for all others."""
    if shared.cold and shared.cache == "resident":
        raise PagecageError(
            "pages that are resident before the trial are charged to pagecage, not to the cage",
            "remove --cache",
        )
    if shared.driver == "process":
        raise PagecageError("the driver process has no cgroup, so no MemoryMax", "remove --driver")
    rule = _rule(options, shared.repeats)
    cage = _reference(replay_cages([base], shared).popitem()[1], rule)
    repeated = replace(shared, repeats=rule.reference_repeats)
    plan, host = replay_plan.plan_for({cage.name: cage}, words, repeated, command, notify)
    # Without those that replace trials that do not count; the last one is the second opinion.
    levels = most_levels(rule, _most_bytes(plan, host))
    search = {
        "rule": asdict(rule),
        "has_second_opinion": True,
        "most_trials": len(plan.trials) + levels * rule.repeats + 1,
    }
    question = f"How much memory does `{shlex.join(words)}` need in {cage.name}?"
    definition = plan.document["definition"] | {"question": question, "findings": []}
    changes = {"definition": definition, "definition_sha256": json_sha256(definition), KEY: search}
    return replace(plan, document={**plan.document, **changes}), host


def _most_bytes(plan: Plan, host: Host) -> int:
    limit = plan.trials[0].cage.properties.get("MemoryMax")
    machine = host.facts()["memory_bytes"] if isinstance(host, LocalHost) else None
    return limit or machine or resource_needs(plan).memory_bytes


def _rule(options: MemoryOptions, repeats: int) -> SearchRule:
    precision = parse_percent("--precision", options.precision)
    if precision < _LEAST_PRECISION:
        message = f"--precision: {options.precision} is finer than the kernel counts memory"
        raise PagecageError(message, "write 0.1% or more")
    floor_bytes = parse_size_bytes(options.floor, "--floor")
    if floor_bytes < MIB:
        raise PagecageError(
            f"--floor: {options.floor} is too small for any program", "write 1MiB or more"
        )
    return SearchRule(
        floor_bytes=floor_bytes,
        slowdown=parse_percent("--slowdown", options.slowdown),
        precision=precision,
        repeats=repeats,
        reference_repeats=max(LEAST_REFERENCES, repeats),
    )


def _reference(cage: Cage, rule: SearchRule) -> Cage:
    limit = cage.properties.get("MemoryMax")
    if limit is not None and limit <= rule.floor_bytes:
        raise PagecageError(
            f"the MemoryMax of {cage.name} is not above the floor of"
            f" {exact_size(rule.floor_bytes)}",
            "give a smaller --floor, or a cage with more memory",
        )
    if "MemoryHigh" in cage.properties:
        raise PagecageError(
            f"the MemoryHigh of {cage.name} throttles the program before any MemoryMax is reached",
            "give a cage without MemoryHigh",
        )
    return replace(cage, properties={"MemorySwapMax": 0}) if cage.name == UNCAGED else cage


def search_lines(plan: Plan, host: Host) -> list[str]:
    rule, most_bytes = rule_of(plan.document), _most_bytes(plan, host)
    assert rule is not None
    levels, each = most_levels(rule, most_bytes), rule.repeats
    return [
        f"{len(plan.trials)} trials with all of the memory, whose spread is the noise",
        f"then at most {levels} values of MemoryMax between {exact_size(rule.floor_bytes)} and"
        f" {exact_size(most_bytes)}, with {each} trial{'s' * (each > 1)} each: half of the memory"
        " in use, half of that and so on until the time or the refaults grow, then by bisection to"
        f" {100 * rule.precision:g} %",
        "one trial at the end that DAMON watches, for a second opinion",
        f"at most {plan.document[KEY]['most_trials']} trials; up to 2 more for each value whose"
        " trials do not count",
    ]

"""The plan of a replay: a program, or a service with its load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pagecage.model.cage import UNCAGED
from pagecage.model.experiment import Experiment, Level, Size
from pagecage.model.services import MetricPattern, ServiceSpec, is_better_if_higher
from pagecage.model.trial import CommandSpec, TrialData, recorded_command
from pagecage.whole_files import json_sha256


def service_question(server: Sequence[str], load: Sequence[str], cages: str) -> str:
    """Return the question of a replay, with both commands. `cages` is a list in words."""
    return f"How does `{shlex.join(server)}` serve the load `{shlex.join(load)}` in {cages}?"


def load_to_json(service: ServiceSpec | None) -> dict[str, Any]:
    """Return the keys of a workload that a file would hold for its load; empty without one."""
    if service is None:
        return {}
    return {
        "load": list(service.load),
        "metrics": {name: _metric(pattern) for name, pattern in service.metrics.items()},
        "warm_up_seconds": service.warm_up_seconds,
        "settle_seconds": service.settle_seconds,
        "ready_timeout_seconds": service.ready_timeout_seconds,
        "stop_signal": service.stop_signal,
    }


def _metric(pattern: MetricPattern) -> str | dict[str, Any]:
    if pattern.higher_is_better is None:
        return pattern.pattern
    return {"pattern": pattern.pattern, "higher_is_better": pattern.higher_is_better}


def service_tables(service: ServiceSpec | None) -> dict[str, Any]:
    """Return the table of all figures of a service; empty without one."""
    if service is None:
        return {}
    columns = {name.replace("_", " "): name for name in service.metrics}
    columns |= {"until the server serves": "ready_seconds", "load measured": "wall_seconds"}
    return {"tables": [{"title": "Figures of the load", "columns": columns}]}


def service_findings(service: ServiceSpec, cages: Sequence[str]) -> list[dict[str, Any]]:
    """Return the findings: each cage against the control, one for each metric and the start."""
    others = [cage for cage in cages if cage != UNCAGED]
    return [finding for cage in others for finding in _findings(service, cage)]


def _findings(service: ServiceSpec, cage: str) -> Iterator[dict[str, Any]]:
    """Yield findings whose ratio is above 1 where the cage costs something."""
    caged, free = {"cage": cage}, {"cage": UNCAGED}
    for name, pattern in service.metrics.items():
        if is_better_if_higher(name, pattern):
            says = f"Without limits, {name} is {{value}} times as high as in `{cage}`."
            yield {"says": says, "response": name, "where": free, "over": caged}
        else:
            says = f"In `{cage}`, {name} is {{value}} times as high as without limits."
            yield {"says": says, "response": name, "where": caged, "over": free}
    if not service.metrics:
        says = f"In `{cage}` the load takes {{value}} times as long as without limits."
        yield {"says": says, "response": "wall_seconds", "where": caged, "over": free}
    says = f"In `{cage}` it takes {{value}} times as long until the server serves."
    yield {"says": says, "response": "ready_seconds", "where": caged, "over": free}


SIZE = "default"
SIZE_REASON = "a replay uses the data as they are"


@dataclass(frozen=True)
class ReplaySpec:
    """The program to replay, its cages and its collectors.

    `typed` is the command as the user wrote it, `argv` the command as it runs on the host. `cages`
    includes the control (`uncaged`) if there is one. `data` are the copied files if the command
    writes to them. With `service` the program is a server, and `typed_load` its load's command as
    the user wrote it.
    """

    typed: tuple[str, ...]
    argv: tuple[str, ...]
    command: CommandSpec
    cages: tuple[str, ...]
    cache: str
    collectors: tuple[str, ...]
    driver: str | None = None
    data: TrialData | None = None
    service: ServiceSpec | None = None
    typed_load: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`replay-` and the program's name; `pagecage show` and `--resume` find the run by it."""
        slug = re.sub(r"[^a-z0-9]+", "-", PurePath(self.typed[0]).name.lower()).strip("-")
        return f"replay-{slug}" if slug else "replay"

    @property
    def subject(self) -> str:
        """The command in backquotes; for an image with the first digits of its id."""
        image, typed = self.command.image, f"`{shlex.join(self.typed)}`"
        return f"the image {typed} ({image.image_id[:19]})" if image else typed

    @property
    def response(self) -> str:
        """The response: the time until the program serves, or else until it exits.

        Of a service it is the first metric, or the time of its load.
        """
        if self.service:
            return next(iter(self.service.metrics), "wall_seconds")
        return "ready_seconds" if self.command.serves else "wall_seconds"


def make_experiment(replay: ReplaySpec) -> Experiment:
    """Return the replay as an experiment, with the definition that a file would hold."""
    definition = _definition(replay)
    levels = {cage: Level(cage=cage, cache=replay.cache) for cage in replay.cages}
    return Experiment(
        name=replay.name,
        question=definition["question"],
        program=replay.argv[0],
        workload_kind="service" if replay.service else "command",
        arguments=replay.argv[1:],
        min_memory_bytes=0,
        response=replay.response,
        repeats=1,
        fresh="never",
        read_ahead_kb=None,
        collectors=replay.collectors,
        factors={"cage": replay.cages},
        levels={"cage": levels},
        exclude=(),
        sizes={SIZE: Size(None, None)},
        claims=(),
        definition=definition,
        command=replay.command,
        service=replay.service,
        driver=replay.driver,
        conditions=replay.conditions,
        data=replay.data,
        definition_sha256=json_sha256(definition),
    )


def _definition(replay: ReplaySpec) -> dict[str, Any]:
    return {
        "question": _question(replay),
        "workload": {
            "program": replay.argv[0],
            "kind": "service" if replay.service else "command",
            "arguments": list(replay.argv[1:]),
            **(recorded_command(replay.command) or {}),
            **load_to_json(replay.service),
        },
        "response": replay.response,
        "collectors": list(replay.collectors),
        "factors": {"cage": list(replay.cages)},
        "levels": {"cage": {cage: {"cache": replay.cache} for cage in replay.cages}},
        "sizes": {SIZE: {}},
        "claims": [],
        "findings": _replay_findings(replay),
        **service_tables(replay.service),
        **({"driver": replay.driver} if replay.driver else {}),
        **({"conditions": list(replay.conditions)} if replay.conditions else {}),
    }


def _question(replay: ReplaySpec) -> str:
    cages = _listing(replay.cages)
    if replay.service:
        return service_question(replay.typed, replay.typed_load, cages)
    until = "until it serves" if replay.command.serves else "to its end"
    return f"How long does {replay.subject} take {until} in {cages}?"


def _listing(cages: tuple[str, ...]) -> str:
    *most, last = cages
    return f"{', '.join(most)} and {last}" if most else last


def _replay_findings(replay: ReplaySpec) -> list[dict[str, Any]]:
    """Return one finding per cage: its time divided by the control's; none without a control."""
    if UNCAGED not in replay.cages:
        return []
    if replay.service:
        return service_findings(replay.service, replay.cages)
    return [
        {
            "says": f"In `{cage}` it takes {{value}} times as long as without limits.",
            "response": replay.response,
            "where": {"cage": cage},
            "over": {"cage": UNCAGED},
        }
        for cage in replay.cages
        if cage != UNCAGED
    ]

"""The plan of a replay: a program, or a service with its load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from pagecage.definitions.experiment import Experiment
from pagecage.definitions.trial_tables import LevelTable, SizeTable
from pagecage.model.cage import UNCAGED
from pagecage.model.json_codec import Json
from pagecage.model.services import ServiceSpec, is_better_if_higher
from pagecage.model.trial import CommandSpec, TrialData, Workload, recorded_command
from pagecage.whole_files import json_sha256

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
        """The response: the time until the program serves, or else until it exits."""
        if self.service:
            return next(iter(self.service.metrics), "wall_seconds")
        return "ready_seconds" if self.command.serves else "wall_seconds"


def make_experiment(replay: ReplaySpec) -> Experiment:
    """Return the replay as an experiment, with the definition that a file would hold."""
    definition = _definition(replay)
    levels = {
        cage: LevelTable.model_validate({"cage": cage, "cache": replay.cache})
        for cage in replay.cages
    }
    return Experiment(
        name=replay.name,
        question=definition["question"],
        workload=Workload(
            *(replay.argv[0], replay.argv[1:], "service" if replay.service else "command"),
            command=replay.command,
            service=replay.service,
        ),
        response=replay.response,
        repeats=1,
        fresh="never",
        read_ahead_kb=None,
        collectors=replay.collectors,
        factors={"cage": replay.cages},
        levels={"cage": levels},
        exclude=(),
        sizes={SIZE: SizeTable()},
        claims=(),
        definition=definition,
        driver=replay.driver,
        conditions=replay.conditions,
        data=replay.data,
        definition_sha256=json_sha256(definition),
    )


def _definition(replay: ReplaySpec) -> Json:
    service, driver, conditions = replay.service, replay.driver, replay.conditions
    columns = {name.replace("_", " "): name for name in service.metrics} if service else {}
    columns |= {"until the server serves": "ready_seconds", "load measured": "wall_seconds"}
    table = {"title": "Figures of the load", "columns": columns}
    return {
        "question": _question(replay),
        "workload": {
            "program": replay.argv[0],
            "kind": "service" if service else "command",
            "arguments": list(replay.argv[1:]),
            **(recorded_command(replay.command) or {}),
            **(_load_to_json(service) if service else {}),
        },
        "response": replay.response,
        "collectors": list(replay.collectors),
        "factors": {"cage": list(replay.cages)},
        "levels": {"cage": {cage: {"cache": replay.cache} for cage in replay.cages}},
        "sizes": {SIZE: {}},
        "claims": [],
        "findings": list(_findings(replay)) if UNCAGED in replay.cages else [],
        **({"tables": [table]} if service else {}),
        **({"driver": driver} if driver else {}),
        **({"conditions": list(conditions)} if conditions else {}),
    }


def _question(replay: ReplaySpec) -> str:
    *most, last = replay.cages
    cages = f"{', '.join(most)} and {last}" if most else last
    if replay.service:
        server, load = shlex.join(replay.typed), shlex.join(replay.typed_load)
        return f"How does `{server}` serve the load `{load}` in {cages}?"
    until = "until it serves" if replay.command.serves else "to its end"
    return f"How long does {replay.subject} take {until} in {cages}?"


def _load_to_json(service: ServiceSpec) -> Json:
    metrics = {
        name: one.pattern
        if one.higher_is_better is None
        else {"pattern": one.pattern, "higher_is_better": one.higher_is_better}
        for name, one in service.metrics.items()
    }
    return {**vars(service), "load": list(service.load), "metrics": metrics}


def _findings(replay: ReplaySpec) -> Iterator[Json]:
    """Yield each cage against the control: its time, or each metric and the start of a service."""
    metrics = replay.service.metrics if replay.service else {}
    for cage in (cage for cage in replay.cages if cage != UNCAGED):
        caged, free = {"cage": cage}, {"cage": UNCAGED}
        for name, pattern in metrics.items():
            if is_better_if_higher(name, pattern):
                says = f"Without limits, {name} is {{value}} times as high as in `{cage}`."
                yield {"says": says, "response": name, "where": free, "over": caged}
            else:
                says = f"In `{cage}`, {name} is {{value}} times as high as without limits."
                yield {"says": says, "response": name, "where": caged, "over": free}
        longer = "takes {value} times as long"
        if replay.service is None:
            times = {f"it {longer} as without limits.": replay.response}
        else:
            times = {} if metrics else {f"the load {longer} as without limits.": "wall_seconds"}
            times[f"it {longer} until the server serves."] = "ready_seconds"
        for text, response in times.items():
            says = f"In `{cage}` {text}"
            yield {"says": says, "response": response, "where": caged, "over": free}

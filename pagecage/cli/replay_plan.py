"""From what was typed after `pagecage replay` to a plan: everything that can be wrong is found before a start."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from pagecage.cli.numbers import Port, Repeats, Seconds, Seed
from pagecage.cli.paths import Folder
from pagecage.cli.replay_data import check_cold, implied_copies
from pagecage.cli.run_options import definitions
from pagecage.cli.run_plan import choose_host, harness
from pagecage.cli.stdio import input_is_file
from pagecage.errors import PagecageError, nearest
from pagecage.hosts.host import Host
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.trial import COLLECTORS, CommandSpec, DriverName
from pagecage.planning.plan import Plan, PlanOptions, make_plan
from pagecage.planning.replay import SIZE, SIZE_REASON, ReplaySpec, make_experiment
from pagecage.runner.run_folder import new_run_id
from pagecage.runner.shared_libraries import carried_program
from pagecage.runner.uploads import FOLDER, UploadedFile, carried_to_json, make_carried, on_host, size_of, translated

Say = Callable[[str], None]
Made = Mapping[str, Cage]
_TIMEOUT_SECONDS = 3600.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What the user may choose for a replay.

    Parameters
    ----------
    others
        Another cage to compare with; may be given several times.
    no_control
        Leave out the run without limits.
    repeats
        How often it is run in each cage.
    host
        auto, local or vm.
    cold
        A file, or a directory for all files in it, that is out of the page cache when the program starts, measured; its
        disk is the one that is limited. A relative path is copied to a host that is not this machine, as by --copy. May
        be given several times.
    cache
        The state that --cold files are brought to: cold, resident, or any for as they are.
    ready_when
        Measure until a line of its output matches this regular expression, then end it.
    ready_port
        Measure until it listens on this TCP port, then end it.
    copy
        Copy a file or directory to the host's data disk and run the command there. May be given several times.
    copy_program
        Copy the program itself with the libraries that it is linked to.
    timeout
        Seconds after which a trial is ended.
    collectors
        Comma-separated: iostat, sar, vmtouch, bpftrace; or none. The sampler records ten times a second in any case.
    data_dir
        Directory on a disk of this machine for what pagecage writes itself (host local).
    seed
        Of the order within blocks; chosen and written down when not given.
    driver
        What runs the program in its cage (docs/CONTAINERS.md).
    """

    others: Annotated[tuple[str, ...], Parameter(name="--cage")] = ()
    no_control: bool = False
    repeats: Repeats = 1
    host: str = "auto"
    cold: tuple[str, ...] = ()
    cache: Literal["cold", "resident", "any"] = "cold"
    ready_when: str | None = None
    ready_port: Port | None = None
    copy: tuple[str, ...] = ()
    copy_program: bool = False
    timeout: Seconds = _TIMEOUT_SECONDS
    collectors: str = "none"
    data_dir: Folder | None = None
    seed: Seed | None = None
    driver: DriverName | None = None


def plan_for(
    cage: str, typed: tuple[str, ...], wishes: ReplayOptions, command: str, say: Say, made: Made | None = None
) -> tuple[Plan, Host]:
    """The plan and its host; everything that can be wrong with the input is found before anything starts.

    With `made` it runs in these cages, which stand in no file, and without a control.
    """
    cages = tuple(made) if made else _cages(cage, wishes)
    _check(typed, wishes)
    make_carried(wishes.copy)  # what is missing is told before a host is looked for
    program, start = carried_program(typed[0]) if wishes.copy_program else ((), (typed[0],))
    host = choose_host(wishes.host, wishes.data_dir, say)
    try:
        carried = make_carried((*wishes.copy, *implied_copies(wishes.cold, wishes.copy, host.name)))
        place = _place(host, carried + program)
        _check_program(typed[0], host, carried + program)
        check_cold(wishes.cold, host, carried + program, say)
        words = (*(word.replace("{directory}", place) for word in start), *typed[1:])
        replay = ReplaySpec(
            typed, translated(words, carried, place), _command(wishes, len(cages), carried, place), cages,
            wishes.cache if wishes.cold else "any", _collectors(wishes.collectors), wishes.driver,
        )  # fmt: skip
        more = {"carried": carried_to_json(carried + program), "directory": place}
        return _plan(replay, wishes, host, command, more, made), host
    except BaseException:
        host.stop()
        raise


def _plan(
    replay: ReplaySpec, wishes: ReplayOptions, host: Host, command: str, more: dict[str, Any], made: Made | None
) -> Plan:
    cages = made or {name: definitions().cage(name, data_bytes(wishes)) for name in {*replay.cages, UNCAGED}}
    seed = wishes.seed if wishes.seed is not None else random.SystemRandom().randrange(2**32)
    choices = PlanOptions(SIZE, SIZE_REASON, wishes.repeats, seed, host.name, "never")
    run_id = new_run_id(replay.name, host.name)
    return make_plan(run_id, make_experiment(replay), cages, choices, command, harness(), more)


def _cages(cage: str, wishes: ReplayOptions) -> tuple[str, ...]:
    """Each cage once, the control first."""
    known = definitions().cage_names()
    for name in (cage, *wishes.others):
        if name not in known:
            raise PagecageError(f"there is no cage {name!r}", nearest(name, known))
    control = () if wishes.no_control else (UNCAGED,)
    return tuple(dict.fromkeys((*control, cage, *wishes.others)))


def _check(typed: tuple[str, ...], wishes: ReplayOptions) -> None:
    if not typed:
        raise PagecageError("there is no command to replay", "pagecage replay CAGE -- COMMAND ARGUMENTS")
    if wishes.ready_when is not None and wishes.ready_port is not None:
        raise PagecageError("--ready-when and --ready-port are two ends of one time", "leave one of them out")
    try:
        re.compile(wishes.ready_when or "")
    except (re.error, OverflowError, RecursionError) as error:
        what = f"--ready-when: {wishes.ready_when!r} is no regular expression: {error}"
        raise PagecageError(what, "a backslash before a character takes it as it is, as in '\\(ready\\)'") from None


def _check_program(program: str, host: Host, carried: tuple[UploadedFile, ...]) -> None:
    """The program as far as the controller can look: a program of this machine, when it is the host."""
    if host.name == "local" and not carried and shutil.which(program) is None:
        raise PagecageError(f"there is no program {program!r}", "look whether its name is right and PATH has it")


def _place(host: Host, carried: tuple[UploadedFile, ...]) -> str:
    """Where the command runs: with what was copied, else where the user is, or in the guest's data directory."""
    if carried:
        return f"{host.data_dir}/{FOLDER}"
    return str(Path.cwd()) if host.name == "local" else host.data_dir


def _command(wishes: ReplayOptions, cages: int, carried: tuple[UploadedFile, ...], place: str) -> CommandSpec:
    is_single = cages * wishes.repeats == 1
    paths = (on_host(path, carried, place) or str(Path(place, path)) for path in wishes.cold)
    return CommandSpec(
        data_paths=tuple(paths), ready_when=wishes.ready_when, ready_port=wishes.ready_port,
        timeout_seconds=wishes.timeout, directory=place, is_literal=True,
        streams_output=is_single, takes_input=is_single or input_is_file(),
    )  # fmt: skip


def _collectors(text: str) -> tuple[str, ...]:
    names = () if text == "none" else tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in COLLECTORS:
            raise PagecageError(f"--collectors: there is no collector {name!r}", nearest(name, [*COLLECTORS, "none"]))
    return names


def data_bytes(wishes: ReplayOptions) -> int | None:
    """Bytes of the data, of which a cage may be a share; None where none are named, or none are here."""
    paths = [Path(path) for path in wishes.cold or wishes.copy]
    here = [path for path in paths if os.path.lexists(path)]
    return sum(map(size_of, here)) if here and len(here) == len(paths) else None

"""The parts of the benchmark by name, with their contents and durations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import PagecageError, nearest
from reliability.bench import (
    appends,
    caps,
    fleet_growth,
    growth,
    observers,
    peers,
    reading,
    render,
    replay,
    sampling,
    start,
    trials,
    volume,
)
from reliability.bench.bed import Bed, Figure, Session, scratch


@dataclass(frozen=True)
class Part:
    """A part; `minutes` in an emulated guest on two CPUs. A part that is `left_out` is measured
    only if it is named.
    """

    name: str
    about: str
    minutes: float
    measure: Callable[[Session], Iterator[Figure]]
    left_out: bool = False


def on_bed(measure: Callable[[Bed], Iterator[Figure]]) -> Callable[[Session], Iterator[Figure]]:
    """Return a measurement on the session's host."""
    return lambda session: measure(session.bed())


def alone(measure: Callable[[Path], Iterator[Figure]]) -> Callable[[Session], Iterator[Figure]]:
    """Return a measurement on this machine, with files in the scratch folder."""
    return lambda _: measure(scratch())


PARTS = (
    Part("log", "the append log against write(2), on this machine", 4.0, alone(appends.natively)),
    Part("caps", "how close the kernel holds reads to a cap", 1.0, on_bed(caps.measure)),
    Part("reading", "pcread against fio, on this machine", 2.0, alone(reading.natively)),
    Part("memory", "pcread's sum against the heap and memcpy", 1.0, on_bed(reading.measure_memory)),
    Part("trials", "what a trial and its collectors cost", 3.0, trials.measure),
    Part(
        "peers",
        "a trial of nothing beside systemd-run, hyperfine, docker and BenchExec",
        3.0,
        peers.measure,
        left_out=True,
    ),
    Part("replay", "what a replay costs beside the bare program", 2.0, replay.measure),
    Part(
        "start",
        "from the key press to trials and report, and the pause between trials",
        1.0,
        start.measure,
    ),
    Part(
        "volume",
        "the simulated volume against QEMU's file driver, on this machine",
        2.0,
        alone(volume.natively),
    ),
    Part("report", "what a report of a thousand trials costs", 1.0, lambda _: render.measure()),
    Part(
        "growth",
        "the controller's cost of a trial in plans of 100 to 10,000 trials, on this machine",
        6.0,
        lambda _: growth.measure(),
        left_out=True,
    ),
    Part(
        "fleets",
        "the controller's cost of a trial on 1, 10 and 100 hosts, on this machine",
        2.0,
        lambda _: fleet_growth.measure(),
        left_out=True,
    ),
    Part(
        "reports",
        "reports of 1, 1,000 and 10,000 trials, on this machine",
        5.0,
        lambda _: render.measure_growth(),
        left_out=True,
    ),
    Part(
        "observers",
        "what each collector costs a reader at full speed (HOST=local: on this machine)",
        5.0,
        observers.measure,
        left_out=True,
    ),
    Part(
        "sampler",
        "what the sampler costs a reader (HOST=local: on this machine)",
        2.0,
        sampling.measure,
        left_out=True,
    ),
    Part(
        "guest-reading",
        "pcread against fio in the guest, where the emulated CPU decides",
        4.0,
        on_bed(reading.measure),
        left_out=True,
    ),
    Part(
        "guest-log",
        "the append log in the guest, without aims",
        9.0,
        on_bed(appends.measure),
        left_out=True,
    ),
    Part(
        "clone",
        "the first command in a new clone with an empty cache",
        12.0,
        start.measure_clone,
        left_out=True,
    ),
)


def chosen(names: Sequence[str], parts: Sequence[Part] = PARTS) -> tuple[Part, ...]:
    """Return the named parts in their own order, or all that are not left out.

    Raises PagecageError for a name that no part has.
    """
    known = {part.name for part in parts}
    for name in names:
        if name not in known:
            raise PagecageError(
                f"there is no part {name!r} of the benchmark", nearest(name, sorted(known))
            )
    return tuple(part for part in parts if part.name in names or (not names and not part.left_out))


def listed(parts: Sequence[Part] = PARTS) -> Iterator[str]:
    """Format each part as a line, with the time of all parts that are not left out."""
    for part in parts:
        named = "; only when named" if part.left_out else ""
        yield f"  {part.name:<10} {minutes(part.minutes):>6}  {part.about}{named}"
    yield f"  all        {minutes(sum(part.minutes for part in parts if not part.left_out)):>6}"


def minutes(number: float) -> str:
    halves = max(1, round(number * 2))
    return f"{halves / 2:g} min"

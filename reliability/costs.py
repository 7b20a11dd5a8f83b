"""Collects what the benches measured into docs/trust/costs.json: `python -m reliability.costs`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pagecage.report.model import markdown_table
from reliability.bench.bed import (
    LEAST_SPEED,
    MOST_GROWTH,
    MOST_TIMES_PEER,
    median_with_interval,
    ratio_of_pairs,
    scratch,
)
from reliability.campaign import RESULTS, read_results, write_results

Row = Mapping[str, Any]
Cost = tuple[str, str, str, bool]
"""A cost, the bench that measured it, what was found, and whether it meets its goal."""
_HEAD = f"""## What the harness costs

Each row is a figure of `make bench ONLY=NAME HOST=local|vm`, with its interval. The guest's CPU is
emulated, so CPU time costs more there than on any real host. A figure that misses its goal is in
bold.

- A trial of nothing starts `true` without limits, data or collectors, with its proofs, its counters
  and its record on the disk. Its time is compared with the time of `true` under a peer, in turns.
  Goals: at most {MOST_TIMES_PEER["systemd-run"]:g} times `systemd-run --scope`, and less than
  runexec.
- Collectors record alongside a reader of random blocks, of a cold mapped file or of a resident
  file, in turns with trials without collectors. Goal: at least {100 * LEAST_SPEED:g} % of the
  speed. An interval wider than 1 % does not show that the goal is met. Only the sampler is on by
  default.
- A further trial in a plan, on a fleet, or in a report that is ten or a hundred times as large
  costs at most {MOST_GROWTH:g} times as much as in the smallest plan, fleet or report.
"""
_PLACES = {"guest": "in the guest", "natively": "on this machine"}


def costs_summary(results: Path) -> Iterator[str]:
    """Yield the summary of costs."""
    found = list(_costs(_read(results)))
    missed = [what for what, _, _, is_met in found if not is_met]
    others = f"; not: {'; '.join(missed)}" if missed else ""
    yield (
        f"**Costs**: {len(found) - len(missed)} of {len(found)} figures of the harness's cost meet"
        f" their goal{others}."
    )


def costs_section(results: Path) -> Iterator[str]:
    yield _HEAD
    costs = _costs(_read(results))
    rows = [
        [what, bench, (words if is_met else f"**{words}**")] for what, bench, words, is_met in costs
    ]
    yield markdown_table(["cost of", "bench", "measured"], rows)


def _read(results: Path) -> Row:
    found: Row = read_results(results / "costs.json")
    return found


def _costs(found: Row) -> Iterator[Cost]:
    for machine in found.get("peers", []):
        trial = machine["trial"]["seconds"]
        for name, peer in machine["peers"].items():
            if (most := MOST_TIMES_PEER.get(name)) is None:
                continue
            middle, low, high = ratio_of_pairs(trial, peer["seconds"])
            times = f"{middle:.2f} ({low:.2f} to {high:.2f})"
            words = f"{times} times {name}'s {median(peer['seconds']):.3f} s"
            yield f"a trial of nothing, {machine['machine']}", "peers", words, middle <= most
    for place, where in _PLACES.items():
        yield from _observers(found.get("observers", {}).get(place, []), where)
    for row in found.get("sampler", []):
        pairs = [one["with"] / one["without"] for one in row["rows"]]
        effect = median_with_interval(pairs)
        what = f"the sampler, {row['where']}"
        yield what, "sampler", _words(effect), effect[0] >= LEAST_SPEED
    yield from _growth(found.get("growth", []))
    yield from _fleets(found.get("fleets", []))
    yield from _reports(found.get("reports", []))


def _observers(trials: Sequence[Row], where: str) -> Iterator[Cost]:
    """Yield a cost for each reader: that of the collectors that slow it most."""
    for reader in dict.fromkeys(one["reader"] for one in trials):
        ours = [one for one in trials if one["reader"] == reader]
        names = dict.fromkeys(one["collectors"] for one in ours)
        effects = {
            name: effect
            for name in names
            if (effect := _effect([one for one in ours if one["beside"] == name], name))
        }
        if not effects:
            continue
        name, effect = min(effects.items(), key=lambda item: item[1])
        met = sum(one[0] >= LEAST_SPEED for one in effects.values())
        words = f"{met} of {len(effects)} sets meet it; {name} has {_words(effect)}"
        what = f"collectors beside a reader of a {reader} file, {where}"
        yield what, "observers", words, met == len(effects)


def _effect(rows: Sequence[Row], name: str) -> tuple[float, float, float] | None:
    """Return the ratio of the reader's speed with these collectors to that without; or None."""
    key = "bytes_per_second"
    if name in ("none", "busy"):
        return None
    values, bare = ([one[key] for one in rows if one["collectors"] == x] for x in (name, "none"))
    return ratio_of_pairs(values, bare) if values else None


def _words(effect: tuple[float, float, float]) -> str:
    middle, low, high = (100 * (one - 1) for one in effect)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f}) of the speed"


def _growth(costs: Sequence[Row]) -> Iterator[Cost]:
    for fresh, title in (("never", "in one go"), ("block", "in blocks")):
        ours = [one for one in costs if one["fresh"] == fresh]
        if len(ours) > 1:
            what = f"a plan of {ours[-1]['trials']:,} trials, {title}"
            yield _grown(what, "growth", ours, "run_seconds")


def _fleets(costs: Sequence[Row]) -> Iterator[Cost]:
    if len(costs) > 1:
        what = f"a fleet of {costs[-1]['hosts']} hosts"
        yield _grown(what, "fleets", costs[1:], "cpu_seconds")


def _grown(what: str, bench: str, costs: Sequence[Row], key: str) -> Cost:
    """Return the cost of a trial in the largest, compared with that in the smallest."""
    first, last = (one[key] / one["trials"] for one in (costs[0], costs[-1]))
    words = f"{1000 * last:.1f} ms of CPU a trial, {last / first:.2f} times that of the smallest"
    return what, bench, words, last <= MOST_GROWTH * first


def _reports(costs: Sequence[Row]) -> Iterator[Cost]:
    further = [
        (more["cpu_seconds"] - one["cpu_seconds"]) / (more["trials"] - one["trials"])
        for one, more in pairwise(costs)
    ]
    if further:
        last = costs[-1]
        words = (
            f"{1000 * further[-1]:.1f} ms of CPU a further trial, {further[0] * 1000:.1f} ms in a"
            f" small one; {last['cpu_seconds']:.0f} s and {last['most_bytes'] / 1e6:,.0f} MB in all"
        )
        what = f"a report of {last['trials']:,} trials"
        yield what, "reports", words, further[-1] <= MOST_GROWTH * further[0]


_WHOLE = ("peers", "growth", "reports", "fleets", "sampler")
_LINES = ("guest", "natively")


def collected(top: Path, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored results, with those replaced that a bench has measured since."""
    found = dict(stored)
    for name in _WHOLE:
        if (path := top / f"{name}.json").exists():
            found[name] = json.loads(path.read_text())
    observers = dict(found.get("observers", {}))
    for place in _LINES:
        if (path := top / f"observers-{place}.jsonl").exists():
            observers[place] = [*map(json.loads, path.read_text().splitlines())]
    return found | {"observers": observers}


def main() -> None:
    path = RESULTS / "costs.json"
    write_results(path, collected(scratch(), read_results(path, {})))


if __name__ == "__main__":
    main()

"""`python -m tests.bench [HOST]`: what the harness costs and how well its limits hold, as ratios. Asserts nothing."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

from pagecage.cli.choose import TOP, harness
from pagecage.errors import PagecageError
from tests.bench import caps, reading, trials
from tests.bench.bed import Figure, started
from tests.bench.say import say


def main(wish: str) -> int:
    """Measure everything, print a table, and write the same to build/bench.json."""
    try:
        with started(wish) as bed:
            figures = [*caps.measure(bed), *reading.measure(bed)]
            bare, host, emulated = trials.bare_scope_seconds(bed), bed.host.name, bed.emulated
        records = trials.run_trials(wish)
    except PagecageError as error:
        say(f"pagecage: {error}")
        return error.exit_code
    figures += [trials.fixed_cost(records, bare), trials.collectors_cost(records)]
    sys.stdout.write("\n".join(map(line, figures)) + "\n")
    result = {"host": host, "emulated": emulated, "unix_seconds": time.time(), "harness": harness()}
    path = TOP / "build" / "bench.json"
    path.write_text(json.dumps({**result, "figures": [asdict(figure) for figure in figures]}, indent=1) + "\n")
    say(f"written: {path.relative_to(TOP)} (host {host}{', emulated' if emulated else ''})")
    return 0


def line(figure: Figure) -> str:
    """A figure as a line: ratio, interval where there is one, aim, and what it is made of."""
    interval = f"[{figure.low:.3f}, {figure.high:.3f}]" if figure.samples > 1 else ""
    mark = "" if figure.met else "  MISSED"
    return f"{figure.name:<30} {figure.ratio:7.3f} {interval:<17} aim: {figure.aim:<25} {figure.says}{mark}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))

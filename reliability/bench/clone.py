"""The time of the README's first command in a new clone with an empty cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from pagecage.checkout import TOP
from pagecage.process import run
from reliability.bench.bed import Figure, Session, scratch, single_figure
from reliability.bench.start import timed
from reliability.campaign import tell

MOST_SECONDS = 420.0
FIRST = "constrained-random"


def measure(session: Session) -> Iterator[Figure]:
    """Clone the committed state, measure, and remove the clone and its cache."""
    session.leave()
    place = scratch() / "clone"
    shutil.rmtree(place, ignore_errors=True)
    run(["git", "clone", "--quiet", "--local", TOP, place / "checkout"])
    tell(f"make experiment NAME={FIRST} in a new clone")
    try:
        cache = {"XDG_CACHE_HOME": str(place / "cache")}
        first = timed(FIRST, place / "runs", session.wish, place / "checkout", cache, aloud=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    session.about = {"host": first.records[0].host, "emulated": first.records[0].emulated}
    seconds, until = first.seconds, first.starts[0] - first.began
    says = f"{until:.0f} s until the first of {len(first.records)} trials"
    aim = f"{MOST_SECONDS:g} or less"
    yield single_figure("seconds in a new clone", seconds, aim, seconds <= MOST_SECONDS, says)

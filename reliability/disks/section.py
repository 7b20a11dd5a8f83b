"""The words for each limit on each stack, and the section of docs/TRUST.md about disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.campaign import read_results
from reliability.disks.probe import BUFFERED, FLUSHED_SHARE, LIMITS
from reliability.disks.stacks import BY_NAME

GRACE = 1.1
"""A rate by fio's word above this share of what a limit allows has passed it."""
PROVEN, REFUSED, UNPROVEN, LEAKS, UNTESTED = "proven", "refused", "unproven", "leaks", "not tested"
COLUMNS = (*LIMITS, BUFFERED)
Cell = Mapping[str, Any]


def word(cell: Cell, column: str) -> str:
    """Return the word for one limit (or for buffered writes) on a stack, as one user."""
    if "limits" not in cell and not refusals(cell):
        return UNTESTED
    if cell.get("refused") or cell.get("not_in_force"):
        return REFUSED
    if cell.get("refused_writes") and (column == BUFFERED or column.startswith("IOWrite")):
        return REFUSED
    return measured(cell, column)


def measured(cell: Cell, column: str) -> str:
    """Return what the load has shown of a limit, whether the product would refuse it or not."""
    found = cell["limits"].get(column, {})
    if column == BUFFERED:
        rate = found.get("fio_rate")
        if rate is None:
            return UNTESTED
        return LEAKS if rate * FLUSHED_SHARE > found["cap"] * GRACE else PROVEN
    calibration = found.get("calibration")
    if not calibration:
        return UNTESTED
    rate = found.get("fio_rate")
    if calibration["held"] and rate is not None and rate > calibration["allowed"] * GRACE:
        return LEAKS
    return PROVEN if calibration["held"] else UNPROVEN


def refusals(cell: Cell) -> list[str]:
    """Return the sentences with which the product refuses a stack."""
    sentences = [one["reason"] for one in cell.get("refused", ())]
    if cell.get("not_in_force"):
        sentences.append(f"limits are not as asked: {'; '.join(cell['not_in_force'])}")
    return [*sentences, *cell.get("refused_writes", ())]


def leaks(cells: list[Cell]) -> list[tuple[Cell, str]]:
    """Return the limits that read back well, are not refused, and do not hold."""
    return [(cell, column) for cell in cells for column in COLUMNS if word(cell, column) == LEAKS]


def why_unproven(cell: Cell, column: str) -> str:
    calibration = cell["limits"][column]["calibration"] or {}
    if calibration.get("held") is False:
        return f"{calibration['observed']:,.0f} of {calibration['allowed']:,.0f} allowed"
    return str(calibration.get("error"))


_USERS = {
    "root": "root",
    "delegated": "a user with delegation",
    "undelegated": "a user without delegation",
}
_GUESTS = {"debian-13": "Debian 13", "debian-12": "Debian 12", "ubuntu-24.04": "Ubuntu 24.04"}
_HEAD = """## Every disk under the data directory

The kernel may report a limit as set without enforcing it. This campaign made stacks of devices in
guests. On each stack, the agent's code set every limit and read it back, and fio exceeded it for
two seconds.

- `proven`: pagecage reports the limit as proven, and fio's figures agree.
- `refused`: pagecage runs no trial with this limit on this stack.
- `unproven`: pagecage reports that nothing proved the limit.
- `leaks`: the worst case. The limit reads back well and pagecage reports it as proven, but it does
  not hold.

One of a stack's limits is tested with buffered writes and fsync, by fio's figures. vfat and ext4
with `data=journal` are refused because of writes that the kernel flushes without an fsync.
According to its documentation, these writes are charged to no cgroup of the trial. This campaign
does not test such writes. ZFS cannot be installed in the guest;
`tests/unit/linux/test_block_device.py` shows its refusal.
"""


def disks_section(results: Path) -> Iterator[str]:
    yield _HEAD
    cells = _cells(results)
    if not cells:
        yield "This has not been measured yet; `make trust-long` does.\n"
        return
    by_user = _by_user(cells)
    yield _summary(_tested(cells))
    head = ["guest", "kernel", "as", "stacks", PROVEN, REFUSED, UNPROVEN, LEAKS]
    yield markdown_table(head, [_row(ours) for ours in by_user])
    barred: dict[str, list[str]] = {}
    for ours in by_user:
        if why := _refused_everywhere(ours):
            barred.setdefault(why, []).append(
                f"as {_USERS[ours[0]['as']]} of {_GUESTS[ours[0]['guest']]}"
            )
    for why, users in barred.items():
        yield f"Refused on every stack, {' and '.join(users)}: {why}.\n"
    yield from _sentences(_tested(cells))
    yield _missing(cells)


def worst_cases(results: Path) -> tuple[int, int]:
    """Return the number of limits on stacks, and of those that read back well and do not hold."""
    tested = _tested(_cells(results))
    return len(tested) * len(COLUMNS), len(leaks(tested))


def _by_user(cells: Sequence[Cell]) -> list[list[Cell]]:
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell["guest"], cell["as"]), []).append(cell)
    return list(found.values())


def _tested(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of the users who are not refused everywhere."""
    return [cell for ours in _by_user(cells) if not _refused_everywhere(ours) for cell in ours]


def _cells(results: Path) -> list[Cell]:
    return list(read_results(results / "disks.json", {"cells": []})["cells"])


def _row(cells: Sequence[Cell]) -> list[str]:
    words = [word(cell, column) for cell in cells for column in COLUMNS]
    kernel = next((cell["kernel"] for cell in cells if "kernel" in cell), "–")
    counts = (words.count(one) for one in (PROVEN, REFUSED, UNPROVEN, LEAKS))
    user = _USERS[cells[0]["as"]]
    return [_GUESTS[cells[0]["guest"]], kernel, user, str(len(cells)), *map(str, counts)]


def _refused_everywhere(cells: list[Cell]) -> str | None:
    """Return a reason for which every limit is refused on every stack, or None."""
    shared = set[str].intersection(*({*refusals(cell)} for cell in cells))
    words = {word(cell, column) for cell in cells for column in COLUMNS}
    return min(shared) if shared and words == {REFUSED} else None


def _summary(cells: list[Cell]) -> str:
    words = [word(cell, column) for cell in cells for column in COLUMNS]
    counts = ", ".join(
        f"{words.count(one)} {one}" for one in (PROVEN, REFUSED, UNPROVEN) if words.count(one)
    )
    bad = leaks(cells)
    worst = "None read back well and did not hold." if not bad else _worst(bad)
    return f"Of {len(words)} limits, {counts}. {worst}\n"


def _missing(cells: list[Cell]) -> str:
    """Return the list of guests, users and stacks without a measurement."""
    lines = []
    for guest, title in _GUESTS.items():
        for user, name in _USERS.items():
            found = {
                cell["stack"] for cell in cells if (cell["guest"], cell["as"]) == (guest, user)
            }
            if left := len(BY_NAME) - len(found):
                lines.append(f"- {title} as {name}: {left} of {len(BY_NAME)} stacks")
    if not lines:
        return ""
    head = "**Not measured yet** (`make trust-long` does, and several calls add up):\n"
    return "\n".join([head, *lines]) + "\n"


def _worst(bad: list[tuple[Cell, str]]) -> str:
    names = "; ".join(f"{column} on {BY_NAME[cell['stack']].title}" for cell, column in bad)
    return f"**{len(bad)} read back well and did not hold: {names}.**"


def _title(column: str) -> str:
    return "buffered writes" if column == BUFFERED else column


def _sentences(cells: list[Cell]) -> Iterator[str]:
    """Yield the list of refusals and of limits without proof, each with its stacks and users."""
    notes: dict[str, dict[str, None]] = {}
    for cell in cells:
        for sentence in refusals(cell):
            plain = sentence.replace(f"/stacks/{cell['stack']}", "DIR").replace("DIR/root", "DIR")
            notes.setdefault(plain.replace("DIR/user", "DIR"), {})[_name(cell)] = None
        for column in COLUMNS:
            if "limits" in cell and word(cell, column) == UNPROVEN:
                why = f"{_title(column)} unproven, because the disk did not reach it"
                if cell["limits"][column]["calibration"]["held"] is False:
                    why = f"{_title(column)} unproven: {why_unproven(cell, column)}"
                notes.setdefault(why, {})[_name(cell)] = None
            if "limits" in cell and measured(cell, column) == LEAKS:
                rate, cap = (cell["limits"][column][key] for key in ("fio_rate", "cap"))
                sentence = f"{_title(column)} did not hold: {rate:,.0f} of {cap:,}"
                notes.setdefault(sentence, {})[_name(cell)] = None
    if notes:
        lines = [f"- {sentence}: {', '.join(names)}." for sentence, names in notes.items()]
        yield "\n".join(lines) + "\n"


def _name(cell: Cell) -> str:
    return BY_NAME[cell["stack"]].title

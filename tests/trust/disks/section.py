"""The section of docs/TRUST.md about the disks under the data directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pagecage.report.export import markdown_table
from tests.trust.disks.findings import (
    COLUMNS,
    LEAKS,
    PROVEN,
    REFUSED,
    UNPROVEN,
    Cell,
    leaks,
    measured,
    refusals,
    why_unproven,
    word,
)
from tests.trust.disks.probe import BUFFERED
from tests.trust.disks.stacks import BY_NAME

_USERS = {
    "root": "root",
    "delegated": "a user with delegation",
    "undelegated": "a user without delegation",
}
_GUESTS = {"debian-13": "Debian 13", "debian-12": "Debian 12"}
_HEAD = """## Every disk under the data directory

A limit can read back well and not hold. So stacks of devices were made in guests, and on each every
limit was set by the agent's own code, read back, and exceeded by fio for two seconds.

- `proven`: the product says so, and fio's own figures agree.
- `refused`: the product runs no trial with this limit on this stack.
- `unproven`: the product says that nothing proved the limit.
- `leaks`: the worst case. It reads back well, the product calls it proven, and it does not hold.

The last column is a buffered write with fsync under `IOWriteBandwidthMax`, by fio's word. vfat and
ext4 with `data=journal` are refused for writes that the kernel flushes without an fsync: by its
documentation they are charged to no cgroup of the trial. This campaign does not drive those.
"""


def disks_section(results: Path) -> Iterator[str]:
    """Yield the paragraphs of the section, from the stored results."""
    yield _HEAD
    path = results / "disks.json"
    cells: list[Cell] = json.loads(path.read_text())["cells"] if path.exists() else []
    if not cells:
        yield "This has not been measured yet; `make trust-long` does.\n"
        return
    yield _summary(cells)
    for guest in dict.fromkeys(cell["guest"] for cell in cells):
        ours = [cell for cell in cells if cell["guest"] == guest]
        yield from _of_guest(ours)
    yield _missing(cells)
    yield "ZFS cannot be installed in the guest. A unit test shows the refusal:"
    yield "`tests/unit/agent/system/test_block_device.py`.\n"


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


def _of_guest(cells: list[Cell]) -> Iterator[str]:
    first = next(cell for cell in cells if "kernel" in cell)
    yield f"**systemd {first['systemd']}, kernel {first['kernel']}**\n"
    by_stack: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        by_stack.setdefault(cell["stack"], {})[cell["as"]] = cell
    rows = [
        [BY_NAME[name].title, _limited(users), *_words(users)] for name, users in by_stack.items()
    ]
    head = ["data directory on", "limited device", *(_title(column) for column in COLUMNS)]
    yield markdown_table(head, rows)
    yield from _sentences(cells)


def _title(column: str) -> str:
    return "buffered writes" if column == BUFFERED else column


def _limited(users: Mapping[str, Cell]) -> str:
    cell = next((one for one in users.values() if "node" in one), None)
    return " → ".join(cell["stack_of_devices"]) if cell else "–"


def _words(users: Mapping[str, Cell]) -> Iterator[str]:
    """Yield a cell per column: one word if all users have the same, else a word for each."""
    for column in COLUMNS:
        found = {name: word(cell, column) for name, cell in users.items()}
        if len(set(found.values())) == 1:
            yield next(iter(found.values()))
        else:
            yield ", ".join(f"{name}: {one}" for name, one in found.items())


def _sentences(cells: list[Cell]) -> Iterator[str]:
    """Yield the list of refusals and of limits without proof, each with its stacks."""
    notes: dict[str, dict[str, None]] = {}
    for cell in cells:
        for sentence in refusals(cell):
            plain = sentence.replace(f"/stacks/{cell['stack']}", "DIR").replace("DIR/root", "DIR")
            notes.setdefault(plain.replace("DIR/user", "DIR"), {})[_name(cell)] = None
        for column in COLUMNS:
            if "limits" in cell and word(cell, column) == UNPROVEN:
                why = f"{_title(column)} unproven: {why_unproven(cell, column)}"
                notes.setdefault(why, {})[_name(cell)] = None
            if "limits" in cell and measured(cell, column) == LEAKS:
                rate, cap = (cell["limits"][column][key] for key in ("fio_rate", "cap"))
                sentence = f"{_title(column)} did not hold: {rate:,.0f} of {cap:,}"
                notes.setdefault(sentence, {})[_name(cell)] = None
    yield (
        "\n".join(f"- {', '.join(names)}: {sentence}." for sentence, names in notes.items()) + "\n"
    )


def _name(cell: Cell) -> str:
    return f"{BY_NAME[cell['stack']].title} ({_USERS[cell['as']]})"

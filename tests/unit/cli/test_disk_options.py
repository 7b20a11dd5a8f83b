from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.cli.disk_options import parse_disks
from pagecage.cli.host_choice import choose_host
from pagecage.errors import PagecageError
from pagecage.hosts.local import LocalHost


def test_directories_by_name(tmp_path: Path) -> None:
    assert parse_disks([f"wal={tmp_path}", "log=sub/x"]) == {
        "wal": str(tmp_path),
        "log": str(Path("sub/x").absolute()),
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wal"], "'wal' is not NAME=DIR"),
        (["=x"], "'=x' is not NAME=DIR"),
        (["wal="], "'wal=' is not NAME=DIR"),
        (["wal=/", "wal=/tmp"], "'wal' is given twice"),
        (["wal=/etc/passwd"], "'/etc/passwd' is not a directory"),
    ],
)
def test_refusals(words: list[str], said: str) -> None:
    with pytest.raises(PagecageError, match=said):
        parse_disks(words)


def test_a_local_host_has_the_disks(tmp_path: Path) -> None:
    host = choose_host("local", tmp_path, print, [f"wal={tmp_path}"])
    assert isinstance(host, LocalHost)
    assert host.disks == {"wal": str(tmp_path)}
    found = host.facts()
    assert found["disks"]["wal"] == found["disk"]


def test_the_guest_has_disks_of_its_own() -> None:
    with pytest.raises(PagecageError, match="--disk applies only to --host local"):
        choose_host("vm", None, print, ["wal=/tmp"])

"""`pagecage floor`: the least time that limits allow."""

from __future__ import annotations

from pathlib import Path

from tests.checkout import pagecage, refused


def test_the_least_time_of_another_disk(top: Path) -> None:
    words = ("floor", "gp3-wal-apart", "--writes", "90000")
    wal = pagecage(top, *words, "--disk", "wal")
    assert wal.stdout.startswith("gp3-wal-apart, disk wal")
    assert "at least 30 s, because of IOPS" in wal.stdout
    assert "--disk wal is another one" in pagecage(top, *words).stderr
    assert 'did you mean "wal"?' in refused(top, *words, "--disk", "wall")
    assert "fix: leave out --disk" in refused(top, "floor", "customer", *words[2:], "--disk", "x")

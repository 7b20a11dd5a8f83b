"""`pagecage cage floor`: the least time that limits allow."""

from __future__ import annotations

from pathlib import Path

from tests.checkout import pagecage, refused


def test_the_least_time_of_another_disk(top: Path) -> None:
    words = ("cage", "floor", "gp3-wal-apart", "--writes", "90000")
    wal = pagecage(top, *words, "--on-disk", "wal")
    assert wal.stdout.startswith("gp3-wal-apart, disk wal")
    assert "at least 30 s, because of IOPS" in wal.stdout
    assert "--on-disk wal is another one" in pagecage(top, *words).stderr
    assert 'did you mean "wal"?' in refused(top, *words, "--on-disk", "wall")
    other = ("cage", "floor", "customer", *words[3:], "--on-disk", "x")
    assert "fix: leave out --on-disk" in refused(top, *other)


def test_a_count_that_differs_from_the_requests_is_explained(top: Path) -> None:
    """Amazon may merge neighbouring requests to 256 KiB: 28 GB are then 106,812 operations."""
    words = ("cage", "floor", "aws-gp3", "--size", "500GiB")
    page = pagecage(top, *words, "--bytes", "28GB", "--reads", "220000").stdout
    assert "106,812" in page.partition("·")[0]
    assert "220,000 reads are at least 106,812 operations: the provider may merge" in page
    assert "·" not in pagecage(top, *words, "--reads", "9000").stdout
    large = ("cage", "floor", "azure-p10", "--bytes", "28GB", "--reads", "9")
    assert "9 reads are at least 106,812 operations: the provider counts one" in (
        pagecage(top, *large).stdout
    )

"""Options of `docker run`, read from the arguments of a process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.importers.result import BlockLimit
from pagecage.verify.target import run_options, typed_limits
from tests.builders.verified import VerifiedMachine

WORDS = st.lists(st.sampled_from(["docker", "run", "--name", "a", "-it", "-v", "--", "--rm"]))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("docker run --rm --name a img", [("--name", "a")]),
        ("docker run --name=a img --name b", [("--name", "a")]),
        ("docker container run -dit -v /a:/b --name a img", [("--name", "a")]),
        ("docker run -v/a:/b -p 80:80 -m 5g --name a", [("--name", "a")]),
        ("podman run --replace --name a img", [("--name", "a")]),
        ("docker run -- --name a", []),
        ("docker ps --name a", []),
        ("runner run --name a", []),
        ("docker run --name", [("--name", "")]),
        ("", []),
    ],
)
def test_options_end_at_the_image(line: str, found: list[tuple[str, str]]) -> None:
    options = [option for option in run_options(line.split()) if option[0] == "--name"]
    assert options == found


@given(words=WORDS)
def test_any_arguments(words: list[str]) -> None:
    assert all(option.startswith("-") for option, _ in run_options(words))


def test_limits_of_one_container_alone(machine: VerifiedMachine) -> None:
    line = "docker run --name {} --device-write-bps=/dev/vdb:{} --device-read-iops {} img"
    machine.process(8, "/", argv=line.format("one", "20m", "/dev/vda:9").split())
    machine.process(9, "/", argv=line.format("two", "1g", "x").split())
    (machine.kernel.proc / "9/cmdline").read_bytes()
    assert typed_limits("one", machine.kernel) == [
        BlockLimit("IOWriteBandwidthMax", "/dev/vdb", 20 << 20, "--device-write-bps /dev/vdb:20m"),
        BlockLimit("IOReadIOPSMax", "/dev/vda", 9, "--device-read-iops /dev/vda:9"),
    ]
    assert len(typed_limits("two", machine.kernel)) == 1
    assert typed_limits("three", machine.kernel) == []

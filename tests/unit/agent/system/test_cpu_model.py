"""Names of processors, from the text that kernels of both architectures print."""

from __future__ import annotations

import pytest

from pagecage.agent.facts import is_emulated
from pagecage.linux.procfs import cpu_model

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) @ 2.60GHz\n\n"
EMULATED_X86 = "QEMU TCG CPU version 2.5+"
ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm
CPU implementer\t: {}
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {}
CPU revision\t: 1

processor\t: 1
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (X86, "Intel(R) Xeon(R) @ 2.60GHz"),
        (X86.replace("Intel(R) Xeon(R) @ 2.60GHz", EMULATED_X86), EMULATED_X86),
        (ARM.format("0x41", "0xd0c"), "Neoverse-N1 r3p1"),
        (ARM.format("0x61", "0x022"), "implementer 0x61 part 0x022 r3p1"),
        (ARM.format("0x00", "0x051"), "QEMU TCG CPU (aarch64 max)"),
        ("processor\t: 0\n", None),
        ("", None),
    ],
)
def test_a_processor_has_the_name_that_its_kernel_states(text: str, name: str | None) -> None:
    assert cpu_model(text) == name


def test_an_emulated_processor_is_known_by_its_name() -> None:
    assert is_emulated({"cpu_model": cpu_model(ARM.format("0x00", "0x051"))})
    assert not is_emulated({"cpu_model": cpu_model(ARM.format("0x41", "0xd0c"))})
    assert not is_emulated({"cpu_model": None})

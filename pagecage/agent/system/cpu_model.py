"""The processor's name in /proc/cpuinfo.

x86-64 states a name. arm64 states the fields of MIDR_EL1 instead (arch/arm64/kernel/cpuinfo.c).
"""

from __future__ import annotations

EMULATED = "QEMU TCG"
"""Part of the name of a CPU whose instructions QEMU translates."""
_MAX = ("0x00", "0x051")  # QEMU's `-cpu max`: no implementer, part 'Q' (target/arm/tcg/cpu64.c)
_PARTS = {  # lscpu-arm.c of util-linux
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
}


def cpu_model(cpuinfo: str) -> str | None:
    """Return the name of the first processor; None if /proc/cpuinfo states none."""
    first = dict(map(_field, cpuinfo.split("\n\n", 1)[0].splitlines()))
    if "model name" in first:
        return first["model name"]
    maker, part = first.get("CPU implementer"), first.get("CPU part")
    if maker is None or part is None:
        return None
    if (maker, part) == _MAX:
        return f"{EMULATED} CPU (aarch64 max)"
    revision = f"r{int(first.get('CPU variant', '0'), 0)}p{first.get('CPU revision', '0')}"
    return f"{_PARTS.get((maker, part), f'implementer {maker} part {part}')} {revision}"


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()

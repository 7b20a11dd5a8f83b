"""bpftrace programs made of the probes that a kernel has: fentry, else kprobes, else tracepoints.

A part of a program fills one table of the trace. Each of its variants uses one kind of probe, and
says which keys that kind cannot fill. Such keys are absent from the trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pagecage.agent.system.tracing import Kernel

KINDS = ("fentry", "kprobe", "tracepoint")
"""Kinds of probes, the cheapest and most telling first."""
_PROBE = re.compile(r"^((?:fentry|fexit|kfunc|kretfunc|kprobe|kretprobe|tracepoint):\S+)", re.M)
_ARGS_WITH_DOT, _NAMED_FENTRY = (0, 19), (0, 20)  # bpftrace's CHANGELOG.md


@dataclass(frozen=True)
class Variant:
    """Statements that attach to kernel functions, or to tracepoints with these arguments.

    `lacks` are keys that the statements cannot fill.
    """

    text: str
    functions: tuple[str, ...] = ()
    tracepoints: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A part of a program by kinds of probes; `table` is filled from `maps`."""

    table: str
    maps: tuple[str, ...]
    variants: Mapping[str, Variant]


@dataclass(frozen=True)
class TracerProgram:
    """A bpftrace program, the maps that a tick prints, and the keys that it cannot fill."""

    text: str
    maps: tuple[str, ...]
    unavailable: tuple[str, ...]

    @property
    def probes(self) -> list[str]:
        """The probes of the program, in their order."""
        return list(dict.fromkeys(_PROBE.findall(self.text)))

    def to_json(self) -> dict[str, list[str]]:
        """Return what the record says about the program."""
        return {"probes": self.probes, "unavailable": list(self.unavailable)}

    def in_syntax_of(self, version: str) -> str:
        """Return the text for a version of bpftrace, by default for a recent one."""
        numbers = re.search(r"(\d+)\.(\d+)", version)
        number = tuple(map(int, numbers.groups())) if numbers else _NAMED_FENTRY
        text = self.text
        if number < _ARGS_WITH_DOT:
            text = re.sub(r"\bargs\.", "args->", text)
        if number < _NAMED_FENTRY:
            text = text.replace("fentry:", "kfunc:").replace("fexit:", "kretfunc:")
        return text


def programs(parts: Sequence[Part], kernel: Kernel) -> Iterator[TracerProgram]:
    """Yield the programs to try, the best first.

    The first assumes that the kernel has every function, because a look at its symbols takes an
    emulated CPU a second. A program without any probe is left out.
    """
    every = {name for part in parts for one in part.variants.values() for name in one.functions}
    first = _compose(parts, kernel, KINDS[0], frozenset(every))
    yield from [first] if first.maps else []
    present, tried = kernel.functions(every), {first.text}
    for kind in KINDS:
        program = _compose(parts, kernel, kind, present)
        if program.maps and program.text not in tried:
            tried.add(program.text)
            yield program


def _compose(
    parts: Sequence[Part], kernel: Kernel, kind: str, functions: frozenset[str]
) -> TracerProgram:
    """Return a program with each part by this kind of probe, or by the next one that exists."""
    text, maps, unavailable = "", list[str](), list[str]()
    for part in parts:
        kinds = [one for one in KINDS[KINDS.index(kind) :] if one in part.variants]
        found = (part.variants[one] for one in kinds if _exists(part, one, kernel, functions))
        variant = next(found, None)
        if variant is None:
            unavailable.append(part.table)
            continue
        text += variant.text
        maps += [name for name in part.maps if f"{name}[" in variant.text]
        unavailable += variant.lacks
    return TracerProgram(text, tuple(maps), tuple(unavailable))


def _exists(part: Part, kind: str, kernel: Kernel, functions: frozenset[str]) -> bool:
    variant = part.variants[kind]
    if kind == "tracepoint":
        return all(fields <= kernel.fields(name) for name, fields in variant.tracepoints.items())
    is_offered = kernel.has_btf and (kind != "kprobe" or kernel.has_kprobes)
    return is_offered and functions.issuperset(variant.functions)

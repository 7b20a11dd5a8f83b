"""The formats of customers' files, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pagecage.errors import PagecageError, why_unreadable
from pagecage.importers import cloud_disks, compose, docker, kubernetes, nvme, probe, systemd
from pagecage.importers.document import KNOWN, Document, read_document
from pagecage.importers.result import ImportResult, Selection

Found = TypeVar("Found")
Recognise = Callable[[Document], bool]
Read = Callable[[Document, Selection], ImportResult]
FORMATS: tuple[tuple[Recognise, Read], ...] = (
    (docker.recognise, docker.read),
    (kubernetes.recognise, kubernetes.read),
    (cloud_disks.is_aws, cloud_disks.read_aws),
    (cloud_disks.is_gcloud, cloud_disks.read_gcloud),
    (cloud_disks.is_azure, cloud_disks.read_azure),
    (compose.recognise, compose.read),
    (systemd.is_unit, systemd.read_unit),
    (systemd.is_show, systemd.read_show),
)


@dataclass(frozen=True)
class NamedText:
    """The text of a file, and the file's name for errors."""

    name: str
    text: str


def import_files(
    files: Sequence[NamedText],
    selection: Selection,
    rounding: probe.Rounding,
    seconds: float | None = None,
    *,
    is_described: bool = False,
) -> ImportResult:
    """Read the limits in a file of any known format.

    With one or two files of `nvme amzn stats`, another file may describe the volume. `seconds` is
    the time that they cover. `is_described` is true if the volume is known from elsewhere. Raises
    PagecageError if no format matches, if a file is broken, or if it has several containers, units,
    volumes or devices and none is picked.
    """
    for file in files:
        nvme.refuse_text(file.text, file.name)
    documents = [(read_document(file.text, file.name), file.name) for file in files]
    stats = [one for one in documents if nvme.recognise(one[0])]
    others = [one for one in documents if one not in stats]
    if not stats and len(others) == 1:
        _refuse_options(seconds, is_described=is_described)
        return _import(*others[0], selection, rounding)
    if not stats or len(others) > 1 or len(stats) > 2:
        raise PagecageError(
            f"{len(files)} such files cannot be imported at once",
            "give one file, or one or two of nvme amzn stats and one of aws ec2 describe-volumes",
        )
    described = _described(*others[0], selection, rounding) if others else None
    if described and is_described:
        raise PagecageError(f"{others[0][1]} describes the volume too", "remove --volume")
    found = _of_stats(stats, seconds, described=is_described or described is not None)
    return _merged(found, described) if described else found


def _refuse_options(seconds: float | None, *, is_described: bool) -> None:
    for option, is_given in (("--seconds", seconds is not None), ("--volume", is_described)):
        if is_given:
            raise PagecageError(f"{option} applies only to nvme amzn stats", f"remove {option}")


def _of_stats(
    stats: list[tuple[Document, str]], seconds: float | None, *, described: bool
) -> ImportResult:
    names = [name for _, name in stats]
    counters = [
        _fitting(name, partial(nvme.read_counters, document, name)) for document, name in stats
    ]
    used = counters[-1]
    if len(counters) == 2:
        used = nvme.difference(counters[0], counters[1], (names[0], names[1]))
    return _fitting(names[-1], lambda: nvme.latency_result(used, seconds, described=described))


def _described(
    document: Document, name: str, selection: Selection, rounding: probe.Rounding
) -> ImportResult:
    """Return the description of a volume. Raises PagecageError if the file describes none."""
    found = _import(document, name, selection, rounding)
    if found.volume is None:
        raise PagecageError(
            f"{name} does not describe a volume of Amazon EBS", "aws ec2 describe-volumes"
        )
    return found


def _merged(found: ImportResult, described: ImportResult) -> ImportResult:
    return replace(
        found,
        origin=f"{found.origin} and {described.origin}",
        unsupported=(*described.unsupported, *found.unsupported),
        ignored=described.ignored,
        volume=described.volume,
    )


def import_text(
    text: str, name: str, selection: Selection, rounding: probe.Rounding
) -> ImportResult:
    """Read the limits in one file, as `import_files` does."""
    return import_files([NamedText(name, text)], selection, rounding)


def _import(
    document: Document, name: str, selection: Selection, rounding: probe.Rounding
) -> ImportResult:
    probe_format: tuple[Recognise, Read] = (probe.recognise, partial(probe.read, rounding=rounding))
    for recognise, read in (probe_format, *FORMATS):
        if recognise(document):
            return _read(read, document, name, selection)
    raise PagecageError(f"{name} is not a file that can be imported", f"give the output of {KNOWN}")


def _read(read: Read, document: Document, name: str, selection: Selection) -> ImportResult:
    """Read a recognised file. A value that does not fit the format is an error in the file."""

    def checked() -> ImportResult:
        found = read(document, selection)
        if found.volume and found.volume.size_bytes <= 0:
            raise ValueError(f"a size of {found.volume.size_bytes} bytes")
        return found

    return _fitting(name, checked)


def _fitting(name: str, read: Callable[[], Found]) -> Found:
    """Return what `read` returns. Raises PagecageError for a value that does not fit the format."""
    try:
        return read()
    except (
        TypeError,
        ValueError,
        KeyError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        message = (
            f"{name} has a known format, but one of its values does not fit it"
            f" ({why_unreadable(error)})"
        )
        raise PagecageError(message, "export it again with the tool that made it") from None

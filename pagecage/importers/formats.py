"""Every format that can be imported, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pagecage.errors import PagecageError, why_unreadable
from pagecage.importers import (
    aws_volumes,
    azure_disk,
    compose,
    docker,
    gcloud_disk,
    kubernetes,
    probe,
    systemd_show,
    systemd_unit,
)
from pagecage.importers.document import KNOWN, Document, read_document
from pagecage.importers.result import ImportResult, Selection

Recognise = Callable[[Document], bool]
Read = Callable[[Document, Selection], ImportResult]
FORMATS: tuple[tuple[Recognise, Read], ...] = (
    (docker.recognise, docker.read),
    (kubernetes.recognise, kubernetes.read),
    (aws_volumes.recognise, aws_volumes.read),
    (gcloud_disk.recognise, gcloud_disk.read),
    (azure_disk.recognise, azure_disk.read),
    (compose.recognise, compose.read),
    (systemd_unit.recognise, systemd_unit.read),
    (systemd_show.recognise, systemd_show.read),
)


def import_text(text: str, name: str, picks: Selection, rounding: probe.Rounding) -> ImportResult:
    """What a customer's file says, whichever tool wrote it. `name` is the file's, for errors.

    Raises PagecageError for a file that none of the formats fits, for a broken one, and where there are several
    containers, units, volumes or devices and none was picked.
    """
    document = read_document(text, name)
    measured: tuple[Recognise, Read] = (probe.recognise, partial(probe.read, rounding=rounding))
    for recognise, read in (measured, *FORMATS):
        if recognise(document):
            return _read(read, document, name, picks)
    raise PagecageError(f"{name} is none of the files that can be imported", f"one of: {KNOWN}")


def _read(read: Read, document: Document, name: str, picks: Selection) -> ImportResult:
    """A file that begins like its format and goes on unlike it is a broken file, not a defect of ours."""
    try:
        found = read(document, picks)
        if found.volume and found.volume.size_bytes <= 0:
            raise ValueError(f"a size of {found.volume.size_bytes} bytes")
        return found
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        what = f"{name} begins like a known format and has a value that does not fit it ({why_unreadable(error)})"
        raise PagecageError(what, "export it again, with the tool that made it") from None

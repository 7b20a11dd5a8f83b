"""The formats of customers' files, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pagecage.errors import PagecageError, why_unreadable
from pagecage.importers import cloud_disks, compose, docker, kubernetes, probe, systemd
from pagecage.importers.document import KNOWN, Document, read_document
from pagecage.importers.result import ImportResult, Selection

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


def import_text(
    text: str, name: str, selection: Selection, rounding: probe.Rounding
) -> ImportResult:
    """Read the limits in a file of any known format; `name` is the file's name for errors.

    Raises PagecageError if no format matches, if the file is broken, or if it has several
    containers, units, volumes or devices and none is picked.
    """
    document = read_document(text, name)
    probe_format: tuple[Recognise, Read] = (probe.recognise, partial(probe.read, rounding=rounding))
    for recognise, read in (probe_format, *FORMATS):
        if recognise(document):
            return _read(read, document, name, selection)
    raise PagecageError(f"{name} is not a file that can be imported", f"give the output of {KNOWN}")


def _read(read: Read, document: Document, name: str, selection: Selection) -> ImportResult:
    """Read a recognised file. A value that does not fit the format is an error in the file."""
    try:
        found = read(document, selection)
        if found.volume and found.volume.size_bytes <= 0:
            raise ValueError(f"a size of {found.volume.size_bytes} bytes")
        return found
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

"""The formats of customers' files: each module of this folder lists its own in IMPORTERS."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import TypeVar

import pagecage.importers
from pagecage.errors import PagecageError, why_unreadable
from pagecage.importers import nvme
from pagecage.importers.document import KNOWN, Document, read_document
from pagecage.importers.result import Importer, ImportResult, Rounding, Selection

Found = TypeVar("Found")


@cache
def importers() -> tuple[Importer, ...]:
    package = pagecage.importers
    names = [found.name for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    modules = [import_module(name) for name in names]
    return tuple(one for module in modules for one in getattr(module, "IMPORTERS", ()))


@dataclass(frozen=True)
class NamedText:
    """The text of a file, and the file's name for errors."""

    name: str
    text: str


def import_files(
    files: Sequence[NamedText],
    selection: Selection,
    rounding: Rounding,
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
        for option, is_given in (("--time", seconds is not None), ("--volume", is_described)):
            if is_given:
                raise PagecageError(f"{option} applies only to nvme amzn stats", f"remove {option}")
        return _import(*others[0], replace(selection, rounding=rounding))
    if not stats or len(others) > 1 or len(stats) > 2:
        raise PagecageError(
            f"{len(files)} such files cannot be imported at once",
            "give one file, or one or two of nvme amzn stats and one of aws ec2 describe-volumes",
        )
    if not others:
        return _of_stats(stats, seconds, described=is_described)
    described, name = _import(*others[0], selection), others[0][1]
    if described.volume is None:
        reason = f"{name} does not describe a volume of Amazon EBS"
        raise PagecageError(reason, "aws ec2 describe-volumes")
    if is_described:
        raise PagecageError(f"{name} describes the volume too", "remove --volume")
    return _merged(_of_stats(stats, seconds, described=True), described)


def _merged(found: ImportResult, described: ImportResult) -> ImportResult:
    return replace(
        found,
        origin=f"{found.origin} and {described.origin}",
        unsupported=(*described.unsupported, *found.unsupported),
        ignored=described.ignored,
        volume=described.volume,
    )


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


def _import(document: Document, name: str, selection: Selection) -> ImportResult:
    for importer in importers():
        if importer.recognise(document):
            found = _fitting(name, partial(importer.read, document, selection))
            if found.volume and found.volume.size_bytes <= 0:
                error = ValueError(f"a size of {found.volume.size_bytes} bytes")
                raise _not_fitting(name, error)
            return found
    raise PagecageError(f"{name} is not a file that can be imported", f"give the output of {KNOWN}")


def _fitting(name: str, read: Callable[[], Found]) -> Found:
    try:
        return read()
    except _MISFITS as error:
        raise _not_fitting(name, error) from None


_MISFITS = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)


def _not_fitting(name: str, error: Exception) -> PagecageError:
    return PagecageError(
        f"{name} has a known format, but one of its values does not fit it"
        f" ({why_unreadable(error)})",
        "export it again with the tool that made it",
    )

"""Sources of a provider's figures, and the base of every table with figures from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PrivateAttr

from pagecage.cloud.formulas import ExactTable
from pagecage.definitions.fields import StrictTable

Seconds = Annotated[int, Field(gt=0)]


class SourceTable(StrictTable):
    """A page with figures, and the date of the figures."""

    title: str
    url: str
    date: str | None = Field(None, description="absent if the page has no date")


class OfferTable(ExactTable):
    """Something that a provider offers, with the names of its sources."""

    source_names: Annotated[list[str], Field(min_length=1, alias="sources")]
    remark: str = ""
    _provider: str = PrivateAttr("")
    _sources: tuple[SourceTable, ...] = PrivateAttr(())

    def connect(self, provider: str, known: Mapping[str, SourceTable]) -> None:
        """Set the provider, and look up the sources. Raises ValueError if a source is missing."""
        if unknown := set(self.source_names) - set(known):
            raise ValueError(f"sources.{min(unknown)} is missing")
        self._provider, self._sources = provider, tuple(known[name] for name in self.source_names)

    @property
    def provider(self) -> str:
        """The name of the provider."""
        return self._provider

    @property
    def sources(self) -> tuple[SourceTable, ...]:
        """The sources of the figures."""
        return self._sources

"""The tables of an experiment for its report: claims, findings, and further tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pagecage.definitions.fields import StrictTable
from pagecage.errors import PagecageError
from pagecage.model.published_figures import PublishedFigureRow, number_or_text

Published = float | str | list[float] | list[str]
Rule = Literal[
    "absolute",
    "ratio",
    "range",
    "ordering",
    "ordering_of_ratios",
    "at_most",
    "at_least",
    "outcome",
    "decoded",
    "config",
]
_ORDERINGS = ("less", "greater", "about_equal")
_OUTCOMES = ("killed", "ran", "wrong_answer")
_DECODED = ("vm_flags", "fault_flags", "ra_pages", "page_cache_ra_order")


class ClaimTable(StrictTable):
    """A published figure and the rule by which it counts as reproduced.

    `says`, `published`, `unit` and `remark` default to the row of experiments/articles/*.csv with
    this id. `over` selects the other side of a ratio or an ordering. `key` names the part of the
    definition that the rule `config` compares. The rule `ordering_of_ratios` compares where / over
    with than / than_over.
    """

    id: str
    rule: Rule
    says: str | None = None
    published: Published | None = None
    unit: str | None = None
    response: str | None = None
    key: str | None = None
    where: dict[str, str] = {}
    over: dict[str, str] | None = None
    than: dict[str, str] | None = None
    than_over: dict[str, str] | None = None
    with_wrong_answers: bool = Field(
        False,
        description="include trials whose answer was wrong; the reason then states what was wrong",
    )
    tolerance_factor: Annotated[float, Field(ge=1)] = 2.0
    needs: Literal["published_size", "any_size"] = "any_size"
    remark: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> ClaimTable:
        if self.rule in ("ratio", "ordering", "ordering_of_ratios") and self.over is None:
            raise ValueError(f"rule {self.rule!r} needs `over`, the other side of the comparison")
        if (self.rule == "ordering_of_ratios") != (
            self.than is not None and self.than_over is not None
        ):
            raise ValueError(
                "rule 'ordering_of_ratios' needs than and than_over, and no other rule has them"
            )
        if self.rule == "config" and self.key is None:
            raise ValueError(
                "rule 'config' needs `key`, the part of the definition that it compares"
            )
        if self.rule not in ("config", "outcome") and self.response is None:
            raise ValueError(f"rule {self.rule!r} needs a response")
        if self.rule == "decoded" and self.response not in _DECODED:
            raise ValueError(f"the response of rule 'decoded' must be one of {', '.join(_DECODED)}")
        return self


class FindingTable(StrictTable):
    """A sentence with {value} for a measured figure and its interval; `over` makes it a ratio."""

    question: str = Field("", description="an open question, Q01 to Q38; empty for none")
    says: str
    response: str
    where: dict[str, str] = {}
    over: dict[str, str] | None = None
    with_wrong_answers: bool = Field(
        False, description="include trials whose answer was wrong, and say so"
    )


class ReportTable(StrictTable):
    """A further table of the report, with one row per treatment of `where`.

    It shows published beside measured figures. `columns` maps headings to responses. `title` and
    `about` may contain placeholders of the size.
    """

    title: str
    about: str = ""
    where: dict[str, str] = {}
    columns: Annotated[dict[str, str], Field(min_length=1)]


def wrong_published(rule: str, published: Any) -> str | None:
    """Return the kind of figure that the rule needs if `published` is not one; else None."""
    if rule in ("absolute", "ratio", "at_most", "at_least"):
        return None if _is_number(published) else "a number"
    if rule == "range":
        pair = (
            isinstance(published, list) and len(published) == 2 and all(map(_is_number, published))
        )
        return None if pair and published[0] <= published[1] else "two numbers, the lower first"
    if rule in ("ordering", "ordering_of_ratios"):
        return None if published in _ORDERINGS else f"one of {', '.join(_ORDERINGS)}"
    if rule == "outcome":
        return None if published in _OUTCOMES else f"one of {', '.join(_OUTCOMES)}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def complete_claim(
    claim: ClaimTable, rows: Mapping[str, PublishedFigureRow] | None, experiment: str
) -> dict[str, Any]:
    """Return the claim, completed from its row.

    Raises PagecageError naming the key that is wrong.
    """
    row = _row_of(claim, rows, experiment)
    whole = claim.model_dump()
    defaults = _defaults(row) if row else {"remark": ""}
    whole |= {
        key: defaults.get(key)
        for key in ("says", "published", "unit", "remark")
        if whole[key] is None
    }
    for key in ("says", "published", "unit"):
        if whole[key] is None:
            raise PagecageError(
                f"claims.{claim.id}.{key} is missing",
                "add it here, or add the row to experiments/articles",
            )
    if wanted := wrong_published(claim.rule, whole["published"]):
        published = whole["published"]
        hint = "give published in the claim"
        raise PagecageError(
            f"claims.{claim.id}.published: {published!r} is not {wanted} (rule {claim.rule!r})",
            hint,
        )
    return whole


def _row_of(
    claim: ClaimTable, rows: Mapping[str, PublishedFigureRow] | None, experiment: str
) -> PublishedFigureRow | None:
    if rows is None:
        return None
    row = rows.get(claim.id)
    if row is None:
        raise PagecageError(
            f"claims: no article has a row {claim.id!r}", "see experiments/articles/*.csv"
        )
    if experiment not in row["experiment"].split():
        raise PagecageError(
            f"claims.{claim.id} belongs to {row['experiment']}", "move the claim there"
        )
    if row["untestable"]:
        raise PagecageError(
            f"claims.{claim.id} has a rule, but its row is marked untestable",
            "remove one of the two",
        )
    return row


def _defaults(row: PublishedFigureRow) -> dict[str, Any]:
    return {
        "says": f"{row['condition']}: {row['metric']}",
        "published": number_or_text(row["published"]),
        "unit": row["unit"],
        "remark": row["remark"],
    }


def check_config_key(claim: Mapping[str, Any], definition: Mapping[str, Any]) -> None:
    """Raise PagecageError if a `config` claim names a key that the definition does not have."""
    value: Any = definition
    for part in (claim["key"] or "").split(".") if claim["rule"] == "config" else ():
        if not isinstance(value, Mapping) or part not in value:
            raise PagecageError(
                f"claims.{claim['id']}.key: the definition has no {claim['key']}",
                "name another key",
            )
        value = value[part]

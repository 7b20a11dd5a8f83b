"""The tables of an experiment for its report: claims, findings, and further tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pagecage.definitions.fields import StrictTable, Tables
from pagecage.errors import PagecageError
from pagecage.model.published_figures import PublishedFigure, number_or_text

Published = float | str | list[float] | list[str]
Rule = Literal[
    "absolute",
    "ratio",
    "range",
    "ordering",
    "ordering_of_ratios",
    "at_most",
    "at_least",
    "difference",
    "knee",
    "outcome",
    "decoded",
    "config",
    "source_lines",
]
Divisor = Literal["dataset", "memory_limit"]
_COMPARING = ("ratio", "ordering", "ordering_of_ratios", "difference")
"""Rules that need `over`."""
_MAY_COMPARE = (*_COMPARING, "at_most", "at_least")
_OF_DEFINITION = ("config", "source_lines")
_ORDERINGS = ("less", "greater", "about_equal")
_OUTCOMES = ("killed", "ran", "wrong_answer")
_DECODED = ("vm_flags", "fault_flags", "ra_pages", "returned", "page_cache_ra_order", "ra_order")


class ClaimTable(StrictTable):
    """A published figure and the rule by which it counts as reproduced.

    `says`, `published`, `unit` and `remark` default to the row of experiments/articles/*.csv with
    this id. `over` selects the other side of a ratio, an ordering, a bound or a difference. `key`
    names the part of the definition that the rule `config` compares, or the function that the rule
    `source_lines` counts. The rule `ordering_of_ratios` compares where / over with than /
    than_over. The rule `decoded` compares several values of a trace, if `response` joins their
    names with + and `published` has a slash between them.
    """

    id: str
    rule: Rule
    says: str | None = None
    published: Published | None = None
    unit: str | None = None
    response: str | None = None
    over_response: str | None = Field(
        None, description="response of the other side; that of the first side without it"
    )
    over_boot: bool = Field(
        False, description="the other side is the same treatment after a restart of the host"
    )
    per: Divisor | None = Field(
        None, description="size by which the response is divided, so that it holds at any size"
    )
    statistic: Literal["median", "minimum", "maximum"] = "median"
    along: str | None = Field(None, description="factor whose numeric levels the knee lies on")
    key: str | None = None
    where: dict[str, str] = {}
    over: dict[str, str] | None = None
    than: dict[str, str] | None = None
    than_over: dict[str, str] | None = None
    also: list[dict[str, str]] = Field(
        [],
        description="levels for which the rule must hold as well; they replace those of `where`,"
        " and the same levels of the other sides",
    )
    with_wrong_answers: bool = Field(
        False,
        description="include trials whose answer was wrong; the reason then states what was wrong",
    )
    tolerance_factor: Annotated[float, Field(ge=1)] = 2.0
    needs: Literal["published_size", "any_size"] = "any_size"
    counts_as: Literal["mechanism", "absolute", "construction"] | None = Field(
        None,
        description="kind of the figure, if the rule does not tell it: a mechanism, an absolute"
        " figure of another machine, or a construction, which the definition or the set-up fixes",
    )
    corrected: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}: .+")] | None = Field(
        None,
        description="day of a correction (ISO 8601), a colon and its reason; older runs are judged"
        " by the corrected rule, and their rows say so",
    )
    remark: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> ClaimTable:
        if wrong := _wrong_sides(self) or _wrong_key(self):
            raise ValueError(wrong)
        return self


def _wrong_sides(claim: ClaimTable) -> str | None:
    rule, has_other = claim.rule, claim.over is not None or claim.over_boot
    if rule in _COMPARING and not has_other:
        return f"rule {rule!r} needs `over`, the other side of the comparison"
    if has_other and rule not in _MAY_COMPARE:
        return f"rule {rule!r} compares nothing, so that it has no `over`"
    if (rule == "ordering_of_ratios") != (claim.than is not None and claim.than_over is not None):
        return "rule 'ordering_of_ratios' needs than and than_over, and no other rule has them"
    return _equal_sides(claim.where, claim.over, claim.response, claim.over_response)


def _equal_sides(
    where: dict[str, str], over: dict[str, str] | None, *responses: str | None
) -> str | None:
    if over is None or where != over or responses[1] not in (None, responses[0]):
        return None
    return "where and over select the same figure; name another treatment, or over_response"


def _wrong_key(claim: ClaimTable) -> str | None:
    rule = claim.rule
    if rule == "config" and claim.key is None:
        return "rule 'config' needs `key`, the part of the definition that it compares"
    if rule == "source_lines" and ":" not in (claim.key or ""):
        return "rule 'source_lines' needs `key`, a path, a colon and a function's first words"
    if (rule == "knee") != (claim.along is not None):
        return (
            "rule 'knee' needs `along`, the factor whose levels it compares; no other rule has it"
        )
    if rule not in (*_OF_DEFINITION, "outcome") and claim.response is None:
        return f"rule {rule!r} needs a response"
    if rule == "decoded" and not {*(claim.response or "").split("+")} <= {*_DECODED}:
        return f"the response of rule 'decoded' must be one of {', '.join(_DECODED)}"
    return None


class FindingTable(StrictTable):
    """A sentence with {value} for a measured figure and its interval; `over` makes it a ratio.

    With `claim`, a note states whether that claim of the experiment holds.
    """

    question: str = Field("", description="an open question, Q01 to Q38; empty for none")
    says: str
    claim: str | None = None
    response: str
    over_response: str | None = Field(
        None, description="response of the other side; that of the first side without it"
    )
    where: dict[str, str] = {}
    over: dict[str, str] | None = None
    with_wrong_answers: bool = Field(
        False, description="include trials whose answer was wrong, and say so"
    )

    @model_validator(mode="after")
    def _whole(self) -> FindingTable:
        if wrong := _equal_sides(self.where, self.over, self.response, self.over_response):
            raise ValueError(wrong)
        return self


class ReportTable(StrictTable):
    """A further table of the report, with one row per treatment of `where`.

    It shows published beside measured figures. `columns` maps headings to responses. `title` and
    `about` may contain placeholders of the size.
    """

    title: str
    about: str = ""
    where: dict[str, str] = {}
    columns: Annotated[dict[str, str], Field(min_length=1)]


class RatioTable(StrictTable):
    """A table of ratios in the report: `of` over `over`, for the levels of two other factors.

    Ratios within `tolerance_factor` of `published` are marked.
    """

    title: str
    about: str = ""
    rows: str
    columns: str
    of: Annotated[dict[str, str], Field(min_length=1)]
    over: Annotated[dict[str, str], Field(min_length=1)]
    where: dict[str, str] = {}
    response: str | None = None
    published: Annotated[float, Field(gt=0)] | None = None
    tolerance_factor: Annotated[float, Field(gt=1)] = 1.5


def wrong_published(rule: str, published: Any) -> str | None:
    """Return the kind of figure that the rule needs if `published` is not one; else None."""
    if rule in ("absolute", "ratio", "at_most", "at_least", "knee", "source_lines"):
        return None if _is_number(published) else "a number"
    if rule in ("range", "difference"):
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
    claim: ClaimTable, rows: Mapping[str, PublishedFigure] | None, experiment: str
) -> Tables:
    """Return the claim, completed from its row. Raises PagecageError naming the wrong key."""
    row = _row_of(claim, rows, experiment)
    whole = claim.model_dump()
    whole["origin"] = row.origin if row else ""
    defaults: Tables = {"remark": ""}
    if row:
        defaults = {
            "says": row.description,
            "published": number_or_text(row.published),
            "unit": row.unit,
            "remark": row.remark,
        }
    whole |= {
        key: defaults.get(key)
        for key in ("says", "published", "unit", "remark")
        if whole[key] is None
    }
    for key in ("says", "published", "unit"):
        if whole[key] is None:
            hint = "add it here, or add the row to experiments/articles"
            raise PagecageError(f"claims.{claim.id}.{key} is missing", hint)
    if wanted := wrong_published(claim.rule, whole["published"]):
        published = whole["published"]
        reason = f"claims.{claim.id}.published: {published!r} is not {wanted} (rule {claim.rule!r})"
        raise PagecageError(reason, "give published in the claim")
    return whole


def _row_of(
    claim: ClaimTable, rows: Mapping[str, PublishedFigure] | None, experiment: str
) -> PublishedFigure | None:
    if rows is None:
        return None
    if (row := rows.get(claim.id)) is None:
        reason = f"claims: no article has a row {claim.id!r}"
        raise PagecageError(reason, "see experiments/articles/*.csv")
    if experiment not in row.experiments:
        reason = f"claims.{claim.id} belongs to {' '.join(row.experiments)}"
        raise PagecageError(reason, "move the claim there")
    if row.untestable:
        reason = f"claims.{claim.id} has a rule, but its row is marked untestable"
        raise PagecageError(reason, "remove one of the two")
    return row


def check_config_key(claim: Tables, definition: Tables) -> None:
    """Raise PagecageError if a `config` claim names a key that the definition does not have."""
    value: Any = definition
    for part in (claim["key"] or "").split(".") if claim["rule"] == "config" else ():
        if not isinstance(value, Mapping) or part not in value:
            reason = f"claims.{claim['id']}.key: the definition has no {claim['key']}"
            raise PagecageError(reason, "name another key")
        value = value[part]

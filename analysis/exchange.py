"""Results for other programs: JUnit, OpenMetrics, dashboards."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from analysis.cells import included_values, treatments, trials_of
from analysis.data.load import JudgedTrial, Run, Treatment
from analysis.formatting import depends_on_cpu_speed, response_scale, treatment_label
from analysis.stats import MedianSummary, summarise
from analysis.sweep import is_metric_rate
from pagecage.errors import PagecageError

_COUNTS = ("device_read_bytes", "device_reads", "major_faults")
"""Responses that hardly vary between repeats, and are therefore good gates."""


@dataclass(frozen=True)
class TreatmentFigure:
    """A response of one treatment, from its included trials alone.

    `values` are the trials' figures in plan order, and `summary` their median and interval.
    """

    name: str
    treatment: Treatment
    response: str
    values: tuple[float, ...]
    summary: MedianSummary


def responses_of(run: Run) -> tuple[str, ...]:
    """Return the main response, those of the further tables, and counts of I/Os."""
    tables = run.definition.get("tables") or []
    columns = (name for table in tables for name in table["columns"].values())
    return tuple(dict.fromkeys((run.response, *columns, *_COUNTS)))


def figures_of(run: Run, responses: Sequence[str]) -> Iterator[TreatmentFigure]:
    """Yield the figures of each treatment that has an included trial."""
    for treatment in treatments(run):
        label = treatment_label(treatment)
        name = f"{run.experiment}: {label}" if label else run.experiment
        for response in responses:
            if values := included_values(run, treatment, response):
                yield TreatmentFigure(name, treatment, response, tuple(values), summarise(values))


def is_rate(run: Run, response: str) -> bool:
    if response in run.metrics:
        return is_metric_rate(run, response)
    return response.endswith("_per_second")


def is_time(response: str) -> bool:
    return depends_on_cpu_speed(response) and not response.endswith("_per_second")


def unit_of(response: str) -> str:
    endings = ("bytes_per_second", "per_second", "seconds", "bytes", "ms", "us", "ns", "percent")
    return next((unit for unit in endings if response.endswith(f"_{unit}")), "")


def bencher(run: Run) -> str:
    """Return Bencher's metric format: figures by treatment and response."""
    found: dict[str, dict[str, Any]] = {}
    for figure in figures_of(run, responses_of(run)):
        summary = figure.summary
        found.setdefault(figure.name, {})[figure.response] = {
            "value": summary.middle,
            "lower_value": summary.low,
            "upper_value": summary.high,
        }
    return _json(found)


def github_benchmark(run: Run) -> str:
    """Return the main response for github-action-benchmark.

    Its tool is `customSmallerIsBetter`, or `customBiggerIsBetter` for a rate.
    """
    response, found = run.response, []
    better = f"{response} ({'more' if is_rate(run, response) else 'less'} is better)"
    for figure in figures_of(run, [response]):
        summary = figure.summary
        entry = {
            "name": figure.name,
            "unit": unit_of(response) or "count",
            "value": summary.middle,
            "range": f"{summary.low:g} to {summary.high:g}",
            "extra": f"{better}\nrun {run.run_id}\nn {summary.n}",
        }
        found.append(entry)
    return _json(found)


def hyperfine(run: Run) -> str:
    """Return the main response as `hyperfine --export-json` does.

    Raises PagecageError if the response is not a duration.
    """
    if not is_time(run.response):
        message = f"hyperfine's format holds durations, and {run.response} is none"
        raise PagecageError(message, "--format bencher")
    results = []
    for figure in figures_of(run, [run.response]):
        times = [value * response_scale(figure.response) for value in figure.values]
        result = {
            "command": figure.name,
            "mean": statistics.fmean(times),
            "stddev": statistics.stdev(times) if len(times) > 1 else None,
            "median": statistics.median(times),
            "min": min(times),
            "max": max(times),
            "times": times,
            "parameters": dict(figure.treatment),
        }
        results.append(result)
    return _json({"results": results})


def _json(data: Any) -> str:
    return json.dumps(data, indent=2) + "\n"


_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, not even escaped."""


def junit(run: Run) -> str:
    """Return the recorded trials as a test suite.

    A trial with a wrong answer or without an answer is a failure. A trial that is excluded is an
    error, because nothing is known from it. One is skipped if the host lacks a requirement.
    """
    suites = ElementTree.Element("testsuites", name=run.run_id)
    suite = ElementTree.SubElement(suites, "testsuite", name=run.experiment)
    suite.extend(cases := [_case(run, trial) for trial in run.trials])
    suite.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(run: Run, trial: JudgedTrial) -> ElementTree.Element:
    record = trial.record
    case = ElementTree.Element(
        "testcase",
        classname=_text(f"{run.experiment}: {treatment_label(record.treatment)}"),
        name=record.trial_id,
        time=f"{sum(phase.seconds or 0.0 for phase in record.phases):.6f}",
    )
    message = _text("; ".join(filter(None, (record.error, *trial.verdicts.reasons))))
    tag, about = "", {"message": message}
    if record.outcome == "requirement_missed":
        tag = "skipped"
    elif not trial.verdicts.is_data_point:
        tag, about = "failure", {"message": message or record.outcome, "type": record.outcome}
    elif trial.is_excluded:
        tag, about = "error", {"message": message, "type": "excluded"}
    if tag:
        ElementTree.SubElement(case, tag, about)
    return case


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("�", text)


def openmetrics(run: Run) -> str:
    """Return a gauge for each response, and the number of trials that were included and not.

    Labels are the run and the levels of the treatment. `statistic` is `median`, `low` or `high`.
    """
    lines: list[str] = []

    def sample(name: str, treatment: Treatment, value: str, **more: str) -> None:
        about = {"experiment": run.experiment, "run": run.run_id}
        escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
        labels = ",".join(
            f'{_name(label)}="{str(text).translate(escapes)}"'
            for label, text in {**about, **treatment, **more}.items()
        )
        lines.append(f"{name}{{{labels}}} {value}")

    found = sorted(figures_of(run, responses_of(run)), key=lambda figure: figure.response)
    for response, figures in groupby(found, key=lambda figure: figure.response):
        name = f"pagecage_{_name(response)}"
        lines.append(f"# TYPE {name} gauge")
        if unit := unit_of(response):
            lines.append(f"# UNIT {name} {unit}")
        for figure in figures:
            one = figure.summary
            for statistic, end in (("median", one.middle), ("low", one.low), ("high", one.high)):
                sample(name, figure.treatment, repr(end), statistic=statistic)
    lines.append("# TYPE pagecage_trials gauge")
    for treatment in treatments(run):
        trials = trials_of(run.trials, treatment)
        included = sum(trial.is_included for trial in trials)
        for state, n in (("included", included), ("not included", len(trials) - included)):
            sample("pagecage_trials", treatment, str(n), state=state)
    return "\n".join([*lines, "# EOF"]) + "\n"


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


WRITERS: Mapping[str, Callable[[Run], str]] = {
    "bencher": bencher,
    "github-benchmark": github_benchmark,
    "hyperfine": hyperfine,
    "junit": junit,
    "openmetrics": openmetrics,
}

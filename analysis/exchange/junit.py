"""Runs as JUnit XML, which servers for continuous integration show: one test for each trial."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from analysis.data.load import JudgedTrial, Run
from analysis.formatting import treatment_label

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, not even escaped."""


def junit(run: Run) -> str:
    """Return the recorded trials as a test suite.

    A trial with a wrong answer or without an answer is a failure. A trial that is excluded is an
    error, because nothing is known from it. One is skipped if the host lacks a requirement.
    """
    cases = [_case(run, trial) for trial in run.trials]
    counts = {
        name: str(sum(case.find(tag) is not None for case in cases))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    about = {"name": str(run.plan["experiment"]), "tests": str(len(cases))}
    suite = ElementTree.Element("testsuite", about | counts)
    suite.extend(cases)
    suites = ElementTree.Element("testsuites", name=str(run.plan["run_id"]))
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(run: Run, trial: JudgedTrial) -> ElementTree.Element:
    record = trial.record
    case = ElementTree.Element(
        "testcase",
        classname=_text(f"{run.plan['experiment']}: {treatment_label(record.treatment)}"),
        name=record.trial_id,
        time=f"{_seconds(trial):.6f}",
    )
    message = _text("; ".join(filter(None, (record.error, *trial.verdicts.reasons))))
    if record.outcome == "requirement_missed":
        ElementTree.SubElement(case, "skipped", message=message)
    elif not trial.verdicts.is_data_point:
        type_ = record.outcome
        ElementTree.SubElement(case, "failure", message=message or type_, type=type_)
    elif trial.is_excluded:
        ElementTree.SubElement(case, "error", message=message, type="excluded")
    return case


def _seconds(trial: JudgedTrial) -> float:
    """Return how long all phases of the trial took; 0 for a record without phases."""
    return sum(phase.seconds or 0.0 for phase in trial.record.phases)


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("�", text)

"""`pagecage predict` over stored runs: its page, its JSON, its exit status, and its refusals."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from pagecage.model.json_codec import Json
from pagecage.process import Completed
from tests.checkout import pagecage, refused
from tests.fixtures.runs import Change
from tests.fixtures.small_runs import FOLDER, unpacked

LAZY = str(FOLDER / "lazy-start.pagecage.zip")
PAGES = ("--treatment", "disk=customer-tenth", "--treatment", "read_ahead_kb=32")


def predicted(top: Path, *words: str, status: int = 0) -> Completed:
    done = pagecage(top, "predict", *words)
    assert done.status == status, done.stderr
    assert done.stderr == ""
    return done


def document(top: Path, *words: str, status: int = 0) -> Json:
    loaded: Json = json.loads(predicted(top, *words, "--json", status=status).stdout)
    return loaded


def cells(page: str, name: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(name))
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


def test_the_page_names_the_trial_the_volumes_and_what_binds(top: Path) -> None:
    page = predicted(top, LAZY, *PAGES, "--provider", "aws", "--latency", "300us").stdout
    lines = page.splitlines()
    assert lines[0].endswith("-lazy-start-vm")
    assert lines[2] == "disk=customer-tenth read_ahead_kb=32 files=1 load=lazy"
    assert cells(page, "measured")[1].startswith("3.07 s")
    assert cells(page, "reads")[1] == "1,232 of 23.3 KiB, 28 MiB in all"
    assert "one at a time" in page
    assert "emulated: a real CPU needs a fraction" in page
    assert re.search(r"[0-9]+% of the run was held back by the limits of customer-tenth", page)
    assert cells(page, "volume") == ["volume", "size and rates", "time", "range", "bound by"]
    assert cells(page, "aws-gp3")[:2] == ["aws-gp3", "1 GiB"]
    assert cells(page, "aws-gp3")[-1] == "the program"
    assert cells(page, "aws-st1")[-1] == "IOPS, volume"
    assert "A request takes 300 us, as --latency says." in page
    assert "The catalogue has no prices" in page
    assert max(map(len, lines[5:18])) <= 120


def test_a_target_names_the_smallest_volumes(top: Path) -> None:
    words = (LAZY, *PAGES, "--provider", "aws", "--latency", "300us", "--under", "2.5s")
    page = predicted(top, *words).stdout
    assert cells(page, "volume")[-1] == "under 2.5 s"
    assert cells(page, "aws-gp2")[-1] == "yes"
    first = page[page.index("under 2.5 s") :].splitlines()[1].split()[0]
    assert f"Enough with the lowest rates: {first} (" in page
    tight = predicted(top, *words[:-1], "1.9s", status=6).stdout
    rates = [cells(one, "aws-io2-block")[1].split(", ")[1].split()[0] for one in (page, tight)]
    assert int(rates[0]) < int(rates[1])


def test_out_of_reach_the_nearest_is_named_and_the_gate_fails(top: Path) -> None:
    page = predicted(top, LAZY, *PAGES, "--under", "10ms", status=5).stdout
    assert "No volume is under 0.01 s. The nearest is " in page
    assert "expected\n" not in page


def on_a_real_cpu(top: Path) -> str:
    """Return a run like LAZY whose CPU is not emulated."""
    return altered(top, "real", lambda record: record.update(emulated=False), of="lazy-start")


def test_what_cannot_be_told_is_undecided(top: Path) -> None:
    """Amazon states only that gp3 answers within 10 ms."""
    words = (on_a_real_cpu(top), *PAGES, "--type", "aws-gp3", "--under", "2.5s")
    page = predicted(top, *words, status=6).stdout
    assert cells(page, "aws-gp3")[-1] == "expected"
    told = "No volume is certain to be under 2.5 s. Expected, with the lowest rates: aws-gp3"
    assert told in page
    assert predicted(top, *words, "--latency", "300us").status == 0


def test_an_emulated_cpu_decides_nothing(top: Path) -> None:
    """The program's own time may be next to nothing on a real CPU; its I/O takes as long."""
    words = (*PAGES, "--type", "aws-gp2")
    real, emulated = on_a_real_cpu(top), LAZY
    lows = [
        document(top, run, *words)["treatments"][0]["volumes"][0]["low"] for run in (real, emulated)
    ]
    assert lows[1] < lows[0]
    between = ("--under", f"{sum(lows) / 2:.3f}s")
    assert cells(predicted(top, real, *words, *between, status=5).stdout, "aws-gp2")[-1] == "no"
    page = predicted(top, emulated, *words, *between, status=6).stdout
    assert cells(page, "aws-gp2")[-1] == "unknown"
    assert re.search("No conclusion about under .* s: the CPU of the run was emulated", page)
    assert "No volume" not in page
    assert predicted(top, emulated, *words, "--under", "1ms", status=5).status == 5
    assert predicted(top, emulated, *words, "--under", "1h").status == 0


def test_a_limit_that_reads_and_writes_share_allows_a_prediction(top: Path) -> None:
    """Only its division by use changed io.max: gp3 has no burst."""

    def share(record: Json) -> None:
        start = record["measured"]["start_monotonic_seconds"]
        both = ["IOReadIOPSMax", "IOWriteIOPSMax"]
        bucket = {"kind": "iops", "properties": both, "capacity": 0, "credits_at_start": 0}
        record["cage"]["credits"] = {
            "buckets": [{**bucket, "base": 500, "rate": 500}],
            "changes": [{"t": start + 0.1, "IOReadIOPSMax": 400, "IOWriteIOPSMax": 100}],
        }

    name = altered(top, "shared", share)
    assert document(top, name, "--type", "aws-gp3")["treatments"][0]["volumes"]


def test_the_json_has_what_the_page_rests_on(top: Path) -> None:
    found = document(top, LAZY, *PAGES, "--under", "1h", "--start", "half")
    assert found["run_id"].endswith("-lazy-start-vm")
    assert (found["under_seconds"], found["start"], found["scale"]) == (3600, "half", 1)
    [one] = found["treatments"]
    assert one["treatment"]["load"] == "lazy"
    assert one["source"]["emulated"] is True
    assert one["source"]["depth"] == pytest.approx(1, abs=0.3)
    assert one["source"]["seconds"] == pytest.approx(3.07, abs=0.01)
    rows = {row["name"]: row for row in one["volumes"]}
    assert len(rows) == len(one["volumes"]) > 15
    for row in [*rows.values(), *one["instances"]]:
        assert 0 < row["low"] <= row["seconds"] <= row["high"]
        assert row["answer"] == "yes"
    assert rows["aws-gp3"]["volume"]["iops"] == 3000
    assert rows["aws-gp3"]["latency_seconds"]["greatest"] == [0.00072, 0.01]
    assert rows["aws-gp3"]["latency_seconds"]["measured"][1] is None
    assert {row["provider"] for row in one["instances"]} == {"aws", "azure", "digitalocean", "gcp"}
    assert {left["name"] for left in one["left_out"]} == {"digitalocean-volume", "gcp-pd-extreme"}


SERVICE = (str(FOLDER / "postgres-gp3.pagecage.zip"), "--treatment", "cage=uncaged")


def test_a_service_has_a_rate_instead_of_a_time(top: Path) -> None:
    [one] = document(top, *SERVICE, "--at-least", "100")["treatments"]
    source = one["source"]
    assert source["rate"]["name"] == "tps"
    for row in one["volumes"]:
        transactions = source["rate"]["value"] * source["seconds"]
        assert row["rate"] * row["seconds"] == pytest.approx(transactions)
    sufficient = {row["name"] for row in one["volumes"] if row["answer"] == "yes"}
    enough = {row["name"] for row in one["volumes"] if row["high"] * 100 <= transactions}
    assert sufficient == enough != set()
    page = predicted(top, *SERVICE, "--provider", "aws", "--at-least", "5000", status=6).stdout
    assert cells(page, "volume")[2:] == ["tps", "range", "bound by", "5,000 tps"]
    assert "No conclusion about 5,000 tps: the CPU of the run was emulated" in page


def test_the_target_of_a_service_is_a_rate_and_that_of_a_program_a_time(top: Path) -> None:
    assert "fix: --at-least " in refused(top, "predict", *SERVICE, "--under", "2min")
    assert "fix: --under " in refused(top, "predict", LAZY, *PAGES, "--at-least", "500")


def test_an_instance_is_combined_with_its_providers_volumes(top: Path) -> None:
    [one] = document(top, LAZY, *PAGES, "--instance", "t3.nano", "--scale", "0.1")["treatments"]
    assert {row["name"].partition("-")[0] for row in one["volumes"]} == {"aws"}
    assert {row["volume"]["instance"] for row in one["volumes"]} == {"t3.nano"}
    assert (one["instances"], one["left_out"]) == ([], [])
    machine = document(top, LAZY, *PAGES, "--instance", "n2-standard-8")["treatments"][0]
    volumes = {row["name"] for row in machine["volumes"]}
    assert volumes == {"gcp-pd-standard", "gcp-pd-balanced", "gcp-pd-ssd"}
    assert "gcp-hyperdisk-extreme" in {left["name"] for left in machine["left_out"]}


def test_the_fill_of_the_buckets_counts(top: Path) -> None:
    """1,232 reads at 100 a second; while the program computes, a drained bucket refills."""
    words = (LAZY, *PAGES, "--type", "aws-gp2", "--size", "1GiB")
    full, drained = (
        document(top, *words, "--start", fill)["treatments"][0]["volumes"][0]["seconds"]
        for fill in ("full", "drained")
    )
    assert 11 < drained < 12.6
    assert full < drained / 3


def test_an_instance_with_less_memory_than_the_run_used_is_told(top: Path) -> None:
    run = str(FOLDER / "constrained-sequential.pagecage.zip")
    words = (run, "--type", "gp3", "--treatment", "cage=uncaged")
    assert "of memory, and the run used" not in predicted(top, *words).stdout
    altered_run = altered(top, "large", lambda _: None)
    records = top / "runs" / altered_run / "records.jsonl"
    peak = f'"memory.peak": {3 * 1024**3}'
    records.write_text(re.sub(r'"memory\.peak": ?[0-9]+', peak, records.read_text()))
    page = predicted(top, altered_run, "--type", "gp3", "--instance", "t3.small").stdout
    assert "t3.small has 2 GiB of memory, and the run used 3 GiB with its page cache" in page
    page = predicted(top, altered_run, "--type", "gp3", "--instance", "t3.medium").stdout
    assert "of memory, and the run used" not in page


def test_credits_that_end_within_the_run_are_told(top: Path) -> None:
    """At a tiny scale, the bucket of an HDD is empty before the run ends."""
    words = (LAZY, *PAGES, "--instance", "t3.nano", "--scale", "0.0001", "--type", "aws-st1")
    [row] = document(top, *words)["treatments"][0]["volumes"]
    assert {one["by"] for one in row["drained"]} <= {"aws-st1", "t3.nano"}
    page = predicted(top, *words).stdout
    for one in row["drained"]:
        assert f"the {one['limit']} credits of {one['by']} are used up after" in page
    assert row["drained"]


def test_size_and_rates_are_fixed_for_types_that_have_them(top: Path) -> None:
    words = ("--size", "100GiB", "--iops", "4000", "--throughput", "200")
    [one] = document(top, LAZY, *PAGES, "--provider", "aws", *words)["treatments"]
    volumes = {row["name"]: row["volume"] for row in one["volumes"]}
    assert volumes["aws-gp3"]["iops"] == 4000
    assert volumes["aws-gp3"]["throughput_bytes_per_second"] == 200 * 1024**2
    assert volumes["aws-gp2"]["iops"] is None
    assert {volume["size_bytes"] for volume in volumes.values()} == {100 * 1024**3}
    assert "aws-st1 is sold from 125 GiB to 16 TiB, not with 100 GiB" in {
        left["reason"] for left in one["left_out"]
    }


def test_a_run_folder_is_read_as_a_bundle_is(top: Path) -> None:
    (top / "runs").mkdir()
    folder = unpacked("lazy-start", top / "runs/lazy")
    words = (*PAGES, "--provider", "aws", "--json")
    assert predicted(top, "lazy", *words).stdout == predicted(top, LAZY, *words).stdout
    assert predicted(top, str(folder), *words).status == 0


def test_every_treatment_has_its_table_or_its_reason(top: Path) -> None:
    found = document(top, str(FOLDER / "constrained-sequential.pagecage.zip"), "--type", "gp3")
    reasons = [one["reason"] for one in found["treatments"]]
    assert "its trial ended as oom_killed" in reasons
    assert reasons.count(None) == len([one for one in found["treatments"] if one["volumes"]]) > 3
    page = predicted(top, str(FOLDER / "constrained-sequential.pagecage.zip"), "--type", "gp3")
    assert "no prediction: its trial ended as oom_killed" in page.stdout


def test_excluded_trials_are_told_as_such(top: Path) -> None:
    sweep = str(FOLDER / "sweep-customer-replay.pagecage.zip")
    words = (sweep, "--type", "gp3", "--treatment", "IOReadIOPSMax=500")
    [one] = document(top, *words)["treatments"]
    assert one["source"]["seconds"] == pytest.approx(5.84, abs=0.01)
    page = predicted(top, *words).stdout
    assert "the median of 2 trials; excluded, `pagecage show` has the reason" in page


def altered(top: Path, name: str, change: Change, of: str = "smoke") -> str:
    """Make a run in which each record is changed; return its name."""
    (top / "runs").mkdir(exist_ok=True)
    path = unpacked(of, top / "runs" / name) / "records.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        change(record)
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return name


def test_a_run_without_a_prediction_is_refused_with_its_reason(top: Path) -> None:
    killed = altered(top, "killed", lambda record: record.update(outcome="oom_killed"))
    done = pagecage(top, "predict", killed)
    assert (done.status, done.stdout) == (2, "")
    assert "allows no prediction: its trial ended as oom_killed" in done.stderr
    empty = unpacked("smoke", top / "runs/empty")
    (empty / "records.jsonl").write_text("")
    assert "empty has no record yet" in pagecage(top, "predict", "empty").stderr


def test_varied_caps_are_the_reason(top: Path) -> None:
    def vary(record: Json) -> None:
        bucket = {"kind": "iops", "properties": ["IOReadIOPSMax"], "capacity": 10}
        record["cage"]["credits"] = {
            "buckets": [{**bucket, "credits_at_start": 0, "base": 500, "rate": 900}]
        }

    done = pagecage(top, "predict", altered(top, "varied", vary))
    assert done.status == 2
    assert "burst credits changed the cap while the trial ran" in done.stderr


def test_a_damaged_trace_is_refused(top: Path) -> None:
    (top / "runs").mkdir()
    folder = unpacked("smoke", top / "runs/damaged")
    for trace in folder.glob("trials/*/sampler.jsonl"):
        trace.write_text('{"t": 1}\n' * 3 + '{"t": "x"}\n')
    done = pagecage(top, "predict", "damaged")
    assert done.status == 2, done.stdout
    assert "damaged cannot be read" in done.stderr
    shutil.rmtree(folder)

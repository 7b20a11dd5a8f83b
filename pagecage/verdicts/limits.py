"""Whether every limit was in force: read back right, kept, and driven against at least once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pagecage.model.cage import IO_MAX_KEY, IO_STAT_KEY, MEMORY_FILE, Cage, expected_read_back
from pagecage.model.rate_limits import HORIZON_SECONDS
from pagecage.model.record import Record
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.caps import credits_error, measured_caps, rewritings, shared_limits
from pagecage.verdicts.counters import difference, io_and_seconds, last_known, measured_seconds
from pagecage.verdicts.verdict import LimitVerdict

FIRST_SLICE_SECONDS = 0.1
"""blk-throttle lets a first slice pass at full speed (block/blk-throttle.c, DFL_THROTL_SLICE = HZ/10)."""
GRACE = 1.03
"""Deep-queue direct I/O was seen 1.4 % above its cap over 6 s; twice that, rounded up, is not yet a leak."""
CHARGE_BATCH_BYTES = 64 * 4096
"""Memory is charged in stocks of 64 pages a CPU (mm/memcontrol.c, MEMCG_CHARGE_BATCH)."""
REACHED = 0.9
"""From this share of a cap upwards the trial itself has driven against it."""
CALIBRATION_REACHED = 0.8
"""A calibration that stayed further below its cap has proven nothing."""
UNASKED_NEAR = 0.6
"""A throttled synchronous reader reaches this share of a cap: from here a stranger's may have held it."""
_FILE = {**MEMORY_FILE, **{name: f"io.max.{key}" for name, key in IO_MAX_KEY.items()}, "CPUQuota": "cpu.max"}


def judge_limits(record: Record) -> tuple[LimitVerdict, ...]:
    """One verdict for each requested property, and one for each unasked limit that an ancestor imposes."""
    requested = record.cage.get("requested") or {}
    asked = [_judge(record, name, cap) for name, cap in requested.items()]
    return (*asked, *_unasked(record, set(requested)))


def _judge(record: Record, name: str, cap: Any) -> LimitVerdict:
    if not isinstance(cap, int):
        return LimitVerdict("not_applicable", f"{name} asks for no limit ({cap}).", name)
    if not record.cage.get("read_back") and not record.measured:
        return LimitVerdict("not_applicable", "It ended before its slice was read back.", name, cap)
    observed, calibrated = _observed(record, name), _calibration(record, name).get("observed")
    broken = (_read_back(record, name, cap), _credits(record, name), _ancestor(record, name, cap))
    for found in (*broken, _overrun(record, name, cap), _shared_overrun(record, name)):
        if found:
            return LimitVerdict("leaky", found, name, cap, observed, calibrated)
    word, reason = _proof(record, name, cap)
    return LimitVerdict(word, reason, name, cap, observed, calibrated)


def amount(name: str, value: float) -> str:
    """A property's value for people, in its own unit."""
    if name in MEMORY_FILE:
        return format_bytes(value)
    if name == "CPUQuota":
        return f"{value:.0f} % of one CPU"
    return format_rate(value) if "Bandwidth" in name else f"{value:.0f} I/Os a second"


def _calibration(record: Record, name: str) -> Mapping[str, Any]:
    return (record.cage.get("calibration") or {}).get(name) or {}


def _read_back(record: Record, name: str, cap: int) -> str | None:
    """A sentence when the kernel holds another value than it must hold."""
    outside = record.cage.get("external")
    if outside and name in IO_MAX_KEY:
        held = outside["read_back"].get(name)
        return None if held == cap else f"{outside['by']} holds {name} = {held or 'nothing'} where {cap} was to be."
    expected = expected_read_back(Cage("", {name: cap}))[_FILE[name]]
    got = (record.cage.get("read_back") or {}).get(_FILE[name])
    if got == expected:
        return None
    return f"The kernel holds {_FILE[name]} = {got or 'nothing'} where {expected} was to be."


def _credits(record: Record, name: str) -> str | None:
    """A sentence when burst credits stopped rewriting io.max, so that what was in force since is not what was asked."""
    error = credits_error(record, name)
    return f"The cap did not follow its credits: {error}." if error else None


def _in_force(record: Record, name: str, cap: float) -> float:
    """The cap itself; with burst credits the average of what was in force in the measured part."""
    return measured_caps(record).get(name, cap)


def _limit_value(name: str, text: str | None) -> float | None:
    """The number in a limit file, None for `max`; for cpu.max percent of one CPU."""
    words = (text or "max").split()
    if not words or words[0] == "max":
        return None
    return 100 * float(words[0]) / float(words[1]) if name == "CPUQuota" else float(words[0])


def _ancestor_limits(record: Record, name: str) -> Iterator[tuple[str, float]]:
    for cgroup, files in (record.cage.get("ancestors") or {}).items():
        value = _limit_value(name, files.get(_FILE[name]))
        if value is not None:
            yield cgroup, value


def _ancestor(record: Record, name: str, cap: float) -> str | None:
    """A sentence when a cgroup above holds a tighter limit: then that one was measured, not ours."""
    tighter = [(cgroup, value) for cgroup, value in _ancestor_limits(record, name) if value < cap]
    if not tighter:
        return None
    cgroup, value = min(tighter, key=lambda pair: pair[1])
    return f"{cgroup} above allows only {amount(name, value)}, less than the {amount(name, cap)} asked for."


def _unasked(record: Record, requested: set[str]) -> Iterator[LimitVerdict]:
    """Limits above the slice of a kind the cage does not have: they count once the trial came near them."""
    for name in _FILE.keys() - requested:
        for cgroup, value in _ancestor_limits(record, name):
            observed = _observed(record, name)
            near = bool(observed) and observed is not None and observed >= UNASKED_NEAR * value
            use = "its use is not known" if observed is None else f"the trial came to {amount(name, observed)}"
            reason = f"{cgroup} imposes {amount(name, value)} that the cage does not ask for; {use}."
            yield LimitVerdict("leaky" if near else "not_applicable", reason, name, None, observed)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _observed(record: Record, name: str) -> float | None:
    """What the trial itself used of a property, in its unit."""
    if name == "MemorySwapMax":
        return _number(last_known(record, "memory.swap.current"))
    if name == "MemoryMax":
        return _number(last_known(record, "memory.peak"))
    if name == "CPUQuota":
        usage, seconds = difference(record, "cgroup", "cpu.stat", "usage_usec"), measured_seconds(record)
        return None if usage is None or not seconds else usage / 1e4 / seconds
    moved = io_and_seconds(record, IO_STAT_KEY[name])
    return None if moved is None else moved[0] / moved[1]


def _allowed(record: Record, name: str, cap: float) -> float:
    """The most that a kept limit lets be observed: the cap, the first slice at full speed, and a grace."""
    if name in MEMORY_FILE:
        return 0 if cap == 0 else cap * GRACE + CHARGE_BATCH_BYTES
    key = IO_STAT_KEY.get(name)
    seconds = (io_and_seconds(record, key) or (0, None))[1] if key else measured_seconds(record)
    slices = (1 + rewritings(record, name)) * FIRST_SLICE_SECONDS / (seconds or 1)
    return _in_force(record, name, cap) * (1 + slices) * GRACE


def _overrun(record: Record, name: str, cap: float) -> str | None:
    """A sentence when more went through than the cap allows, in the trial or in the calibration."""
    observed, allowed = _observed(record, name), _allowed(record, name, cap)
    if observed is not None and observed > allowed:
        return f"The trial came to {amount(name, observed)}, over the {_told(record, name, cap)} allowed."
    calibration = _calibration(record, name)
    driven, held = calibration.get("observed"), calibration.get("held")
    if held is False and driven is not None and driven > (calibration.get("allowed") or cap):
        return f"Over-driving calibration got {amount(name, driven)} of {amount(name, cap)} through."
    return None


def _shared_overrun(record: Record, name: str) -> str | None:
    """A sentence when reads and writes took more of a limit that was divided between them than the provider allows."""
    for limit in shared_limits(record):
        if limit.was_split and name in limit.properties and limit.least_seconds > _in_time(limit.seconds):
            took = f"{format_seconds(limit.least_seconds)} of it in {format_seconds(limit.seconds)}"
            return f"Reads and writes share the limit of {amount(name, limit.base)} and took {took}."
    return None


def _in_time(seconds: float) -> float:
    """How long a shared limit may have been filled for in so many seconds: dividing it lags by the horizon."""
    return (seconds + HORIZON_SECONDS + FIRST_SLICE_SECONDS) * GRACE


def _proof(record: Record, name: str, cap: float) -> tuple[str, str]:
    """`enforced` or `never_reached`, for a limit that was read back right and kept."""
    if name == "MemorySwapMax" and cap == 0:
        return "enforced", "Swap is closed: memory.swap.max reads back 0, which needs no driving against."
    calibration = _calibration(record, name)
    driven = calibration.get("observed")
    if calibration.get("held") and driven is not None and driven >= CALIBRATION_REACHED * cap:
        through = f"{amount(name, driven)} of {amount(name, cap)}"
        return "enforced", f"Over-driving calibration ({calibration.get('method')}) got {through} through."
    reached = _reached(record, name, cap)
    if reached:
        return "enforced", reached
    return "never_reached", f"Nothing drove against {amount(name, cap)}: {_idle(record, name, calibration)}."


def _idle(record: Record, name: str, calibration: Mapping[str, Any]) -> str:
    observed = _observed(record, name)
    trial = "its use is not known" if observed is None else f"the trial came to {amount(name, observed)}"
    why = calibration.get("error") or ("it stayed below the cap" if calibration else "there was none")
    return f"{trial}, and calibration did not prove it ({why})"


def _reached(record: Record, name: str, cap: float) -> str | None:
    """A sentence when the trial itself drove against the limit."""
    observed = _observed(record, name)
    if name == "MemoryMax":
        kills = last_known(record, "memory.events", "oom_kill") or 0
        hits = last_known(record, "memory.events", "max") or 0
        what = f"{kills} OOM kill{'s' * (kills > 1)}" if kills else f"{hits} times reclaimed at the limit"
        peak = f", peak {format_bytes(observed)} of {format_bytes(cap)}" if observed is not None else ""
        return f"The trial drove against it: {what}{peak}." if kills or hits else None
    if name == "CPUQuota":
        throttled = difference(record, "cgroup", "cpu.stat", "throttled_usec") or 0
        return f"The trial was throttled for {throttled / 1e6:.2f} s." if throttled else None
    if observed is not None and cap and observed >= REACHED * _in_force(record, name, cap):
        return f"The trial drove against it and came to {amount(name, observed)} of {_told(record, name, cap)}."
    return None


def _told(record: Record, name: str, cap: float) -> str:
    """The cap, and what credits or the other direction made of it."""
    in_force = _in_force(record, name, cap)
    why = "with its burst credits" if in_force > cap else "beside the other direction"
    return f"{amount(name, cap)}{f' ({why} {amount(name, in_force)} on average)' if in_force != cap else ''}"

"""The account of a simulated volume: what each limit let through, and for how long it was met.

The volume counts by the provider's rules, so its operations differ from the kernel's I/Os. The
account is a second witness, independent of cgroups and pressure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagecage.model.cage import TokenBucket
from pagecage.model.record import Record
from pagecage.units import format_seconds
from pagecage.verdicts.counters import disk_views
from pagecage.verdicts.verdict import BindingVerdict, Verdict

GRACE = 1.01
"""The volume decides in continuous time, so that only rounding can exceed a limit."""
BOUND_SHARE = 0.5
"""From this share of the time on, both witnesses must name the limit."""
MOST_LATE_SHARE = 0.01
"""A trial in which the volume answered more requests late was slower than its cage."""
PART_SHARE = 0.1
"""A limit met for less than this share of the time did not bind by the volume's account."""


@dataclass(frozen=True)
class AccountedLimit:
    """A limit of the account.

    `used` is in operations or bytes, and `exceeded_seconds` the time in which a request waited for
    it. `changes` are the moments at which the rate changed between burst and base.
    """

    layer: str
    scope: str
    unit: str
    bucket: TokenBucket
    used: float
    exceeded_seconds: float
    changes: Sequence[Mapping[str, float]]

    @property
    def title(self) -> str:
        """The layer and the kind of the limit, as in `volume IOPS`."""
        return f"{self.layer} {'IOPS' if self.unit == 'operations' else 'bandwidth'}"

    @property
    def properties(self) -> tuple[str, ...]:
        """The systemd properties that limit the same I/O."""
        kind = "IOPSMax" if self.unit == "operations" else "BandwidthMax"
        directions = {"read": ("Read",), "write": ("Write",)}.get(self.scope, ("Read", "Write"))
        return tuple(f"IO{direction}{kind}" for direction in directions)


@dataclass(frozen=True)
class VolumeAccount:
    """The account of the measured part, in seconds of the volume's clock."""

    seconds: float
    limits: tuple[AccountedLimit, ...]
    late_operations: int
    operations: int
    has_latency: bool

    def covering(self, name: str) -> list[AccountedLimit]:
        return [limit for limit in self.limits if name in limit.properties]

    def rate(self, name: str) -> float | None:
        """Return the rate that the volume let through under a property; None without a limit."""
        limits = self.covering(name) if self.seconds else ()
        return max((limit.used / self.seconds for limit in limits), default=None)

    def overrun(self, name: str) -> str | None:
        for limit in self.covering(name):
            least = limit.bucket.least_seconds(limit.used)
            if least > self.seconds * GRACE:
                return (
                    f"By its account the volume let {format_seconds(least)} of this limit through"
                    f" in {format_seconds(self.seconds)}."
                )
        return None

    def reached(self, name: str) -> str | None:
        met = max(self.covering(name), key=lambda limit: limit.exceeded_seconds, default=None)
        if met is None or not met.exceeded_seconds:
            return None
        return (
            f"By the volume's account, requests waited for this limit of the {met.layer} in"
            f" {format_seconds(met.exceeded_seconds)} of {format_seconds(self.seconds)}."
        )


def volume_account(record: Record) -> VolumeAccount | None:
    """Return the account of a trial; None if no simulated volume served its disk to the end."""
    external = record.cage.external or {}
    account = external.get("account")
    if not account or external.get("by") != "volume":
        return None
    own, model = account["pcvolume"], external["model"]
    if len(own["limits"]) != len(model["limits"]):
        raise ValueError("the account of a simulated volume has limits of another model")
    limits = []
    for counted, asked in zip(own["limits"], model["limits"]):  # noqa: B905 - of Python 3.10
        of_credits = asked["credits"] or {}
        keys = ("burst_per_second", "capacity", "start")
        bucket = TokenBucket(asked["per_second"], *(of_credits.get(key, 0.0) for key in keys))
        kind = (counted["layer"], counted["scope"], counted["unit"])
        exceeded_seconds = counted["exceeded_us"] / 1e6
        limits.append(
            AccountedLimit(*kind, bucket, counted["used"], exceeded_seconds, counted["changes"])
        )
    return VolumeAccount(
        own["seconds"],
        tuple(limits),
        own["late_ops"],
        account["total_read_ops"] + account["total_write_ops"],
        bool(model["read_latency"] or model["write_latency"]),
    )


def mean_latency_us(record: Record, direction: str) -> float | None:
    """Return the mean latency of `read` or `write` by the volume's clock; None without any."""
    if volume_account(record) is None:
        return None
    account = (record.cage.external or {})["account"]
    operations, time_us = (account[f"total_{direction}_{what}"] for what in ("ops", "time"))
    return time_us / operations if operations else None


def rate_changes(record: Record) -> list[dict[str, float]]:
    """Return the changes of rates by credits: `t` in CLOCK_MONOTONIC seconds, property to rate."""
    account = volume_account(record)
    if account is None or record.measured is None:
        return []
    start = record.measured.start_monotonic_seconds
    changes = [
        {"t": start + one["seconds"], **dict.fromkeys(limit.properties, one["per_second"])}
        for limit in account.limits
        for one in limit.changes
    ]
    return sorted(changes, key=lambda change: change["t"])


def late_volumes(record: Record) -> tuple[str, ...]:
    """Return a sentence for each disk whose volume answered too many requests late.

    Without a latency, a request that no limit holds back is due when it arrives: the disk below
    decides then, and no figure of the cage is missed.
    """
    found = []
    for name, one in {"": record, **disk_views(record)}.items():
        account = volume_account(one)
        if account is None or not account.has_latency or not account.operations:
            continue
        share = account.late_operations / account.operations
        if share > MOST_LATE_SHARE:
            of_disk = f" of the disk {name}" if name else ""
            found.append(
                f"volume late: {share:.1%} of the replies{of_disk} came more than 100 us, and more"
                " than 5 % of their latency, after the volume had decided, because the machine was"
                " busy or its disk is slower"
            )
    return tuple(found)


def judge_witnesses(record: Record, binding: BindingVerdict) -> Verdict:
    """Hold the diagnosis, from cgroup and pressure, against the volume's account.

    `agree`, `disagree` or `unknown`. They disagree if one names an I/O cap for at least half of the
    time and the other for less than a tenth. With several disks, one volume's account suffices.
    """
    records = (record, *disk_views(record).values())
    accounts = [account for one in records if (account := volume_account(one)) and account.seconds]
    if not accounts or not binding.shares:
        return Verdict("unknown", "There is no second witness: no simulated volume was used.")
    for name, unit in (("iops", "operations"), ("bandwidth", "bytes")):
        seen = binding.shares.get(name, 0.0)
        limits = [(one, limit) for one in accounts for limit in one.limits if limit.unit == unit]
        shares = (limit.exceeded_seconds / account.seconds for account, limit in limits)
        share = max(shares, default=0.0)
        if min(seen, share) < PART_SHARE and max(seen, share) >= BOUND_SHARE:
            return Verdict(
                "disagree",
                f"The cgroup's figures show the {name} cap for {seen:.0%} of the time, and the"
                f" volume's account for {share:.0%}.",
            )
    return Verdict("agree", "The volume's account agrees with the cgroup's figures.")

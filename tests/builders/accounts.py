"""Accounts of simulated volumes, as pcvolume writes them (volume/README.md)."""

from __future__ import annotations

from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json
from pagecage.model.volume_model import volume_model


def account_of(cage: Cage, seconds: float = 10.0, exceeded: float = 0.0, **used: float) -> Json:
    """Return an account of a cage's volume.

    `used` has the units of each limit by its unit (operations, bytes); requests waited for every
    limit in `exceeded` seconds.
    """
    limits = [
        {
            **{key: limit[key] for key in ("layer", "scope", "unit", "per_second")},
            "used": used.get(limit["unit"], 0.0),
            "exceeded_us": exceeded * 1e6,
            "level": None,
            "changes": [],
        }
        for limit in volume_model(cage, 1)["limits"]
    ]
    operations = int(used.get("operations", 0))
    return {
        "total_read_ops": operations,
        "total_write_ops": 0,
        "total_read_bytes": int(used.get("bytes", 0)),
        "total_write_bytes": 0,
        "total_read_time": 1000 * operations,
        "total_write_time": 0,
        "pcvolume": {
            "seconds": seconds,
            "failed_ops": 0,
            "late_ops": 0,
            "late_us": 0,
            "limits": limits,
        },
    }


def external(cage: Cage, account: Json | None) -> Json:
    """Return a record's entry `external` of a volume with this account."""
    read_back = {name: value for name, value in cage.properties.items() if name.startswith("IO")}
    return {
        "by": "volume",
        "read_back": read_back,
        "model": volume_model(cage, 1),
        **({"account": account} if account else {}),
    }

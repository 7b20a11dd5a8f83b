"""Facts of hosts that can serve, and of hosts that cannot."""

from __future__ import annotations

import copy
from typing import Any

from pagecage.model.json_codec import Json

FIT: Json = {
    "uid": 0,
    "systemd": {"pid1": True, "version": 257, "user": False},
    "cgroup": {"v2": True, "controllers": ["cpu", "io", "memory"], "manager": "systemd"},
    "disk": {"name": "vdb", "queue_settings": {"read_ahead_kb": "256"}},
}
USER: Json = {
    **FIT,
    "uid": 1000,
    "systemd": {"pid1": True, "version": 257, "user": True, "user_manager": True},
    "cgroup": {
        "v2": True,
        "controllers": ["cpu", "memory", "pids"],
        "manager": "this user's systemd",
    },
}
"""An ordinary user with systemd's default delegation: without io."""
NO_MANAGER: Json = {
    **USER,
    "systemd": {**USER["systemd"], "user_manager": False},
    "cgroup": {**USER["cgroup"], "controllers": []},
}


def facts(**changes: Any) -> Json:
    changed = copy.deepcopy(FIT)
    for key, value in changes.items():
        changed[key] = (
            {**changed[key], **value} if isinstance(value, dict) and key != "disk" else value
        )
    return changed

"""The command line of tests/preloaded.py without usable hosts, so that nothing is measured.

Words and files are really read. Hosts, guests, inventories and disks refuse.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tests.preloaded import serve

INVENTORY = {
    "_meta": {
        "hostvars": {"r1": {"pagecage_data_dir": "/data"}, "r2": {"pagecage_data_dir": "/data"}}
    },
    "all": {"children": ["rack", "empty"]},
    "rack": {"hosts": ["r1", "r2"]},
    "empty": {},
}
FIT = {
    "systemd": {"pid1": True, "version": 257, "user": False, "user_manager": None},
    "cgroup": {
        "v2": True,
        "controllers": ["cpu", "io", "memory"],
        "manager": "systemd",
        "parent": "/sys/fs/cgroup",
    },
    "disk": {
        "name": "vdb",
        "node": "/dev/vdb",
        "maj_min": "254:16",
        "queue_settings": {"read_ahead_kb": "128"},
    },
}


def refuse(*_: Any, **__: Any) -> NoReturn:
    from pagecage.errors import HostError

    raise HostError("this host refuses", "pagecage doctor")


def arrange() -> None:
    """Import what the verbs import, and replace the hosts."""
    import analysis.results
    import analysis.site
    import analysis.views.render  # noqa: F401 - imported once, for all that are forked
    import pagecage.agent.facts
    import pagecage.cli.cage
    import pagecage.cli.fleet
    import pagecage.cli.host
    import pagecage.cli.memory
    import pagecage.cli.probe
    import pagecage.cli.run
    import pagecage.cli.show
    import pagecage.cli.sweep
    import pagecage.definitions.reader
    import pagecage.fleet.provisioning
    import pagecage.hosts.vm.guest
    import pagecage.hosts.vm.vm_host
    from pagecage.hosts.local import LocalHost

    real = LocalHost.facts
    arranged: list[tuple[Any, str, Any]] = [
        (pagecage.agent.facts, "tool_version", lambda *argv: f"{argv[0]} 257"),
        (LocalHost, "facts", lambda self: {**real(self), **FIT}),
        (LocalHost, "prepare", refuse),
        (pagecage.hosts.vm.vm_host, "ensure_image", refuse),
        (pagecage.hosts.vm.guest, "ensure_image", refuse),
        (pagecage.fleet.provisioning, "inventory_of", lambda *_: INVENTORY),
        (pagecage.cli.fleet, "check_hosts", refuse),
        (pagecage.fleet.provisioning, "run_to_end", refuse),
        (pagecage.cli.probe, "spawn", refuse),
    ]
    for where, name, stand_in in arranged:
        setattr(where, name, stand_in)


if __name__ == "__main__":
    arrange()
    serve()

"""The collectors of pagecage by name: each is in the module of its name."""

from __future__ import annotations

from importlib import import_module

from pagecage.agent.collectors.collector import Collector, CollectorContext


def make_collector(name: str, context: CollectorContext) -> Collector:
    """Return the collector with this name, which imports the module of no other."""
    module = import_module(f"{__package__}.{name.replace('-', '_')}")
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    kinds = [one for one in classes if getattr(one, "name", "") == name]
    made: Collector = kinds[0](context)
    return made

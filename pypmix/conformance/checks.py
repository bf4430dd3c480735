"""All checks, in the order in which `pypmix conform` runs them."""

from __future__ import annotations

from pypmix.conformance import connecting, events, exchange, groups, jobs, losses, publishing
from pypmix.conformance.check import Check

TOPICS = {
    "Exchange": exchange,
    "Publish and lookup": publishing,
    "Events": events,
    "Groups": groups,
    "Connect": connecting,
    "Jobs": jobs,
    "Losses": losses,
}
"""The modules of checks, by title."""

CHECKS = {
    each.name: (title, each)
    for title, module in TOPICS.items()
    for each in vars(module).values()
    if isinstance(each, Check)
}
"""The topic and the check of each promise, by its name."""

"""The terms of a test that runs on several ranks."""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MARKER = (
    "pmix(ranks=2, nodes=1, timeout=None, engine=None, links=None): run the test on so many ranks, each with "
    "fixtures of its own; several numbers of ranks, as in ranks=[1, 2, 4], make as many tests"
)
RANKS = 2
SECONDS = 60.0


class Wish:
    """The terms of a marked test.

    Attributes:
        ranks: The number of ranks.
        nodes: The number of simulated nodes.
        timeout: Its time limit in seconds.
        engine: The engine of its clients; empty for the environment's.
        links: Whether it may act on links; by default if it requests the fixture `pmix_cluster`.
    """

    def __init__(self, item: pytest.Function, marker: pytest.Mark) -> None:
        unknown = set(marker.kwargs) - {"ranks", "nodes", "timeout", "engine", "links"}
        if unknown or len(marker.args) > 1:
            raise pytest.UsageError(f"{item.nodeid}: the marker is {MARKER.partition(':')[0]}")
        config = item.config
        callspec = getattr(item, "callspec", None)
        given = (callspec.params.get("pmix_ranks") if callspec is not None else None) or ranks_of(marker)
        asked = config.getoption("pmix_ranks")
        self.ranks = (RANKS if asked is None else asked) if given is None else given
        self.nodes = marker.kwargs.get("nodes", 1)
        self.timeout = _limit(item, marker)
        self.engine = marker.kwargs.get("engine") or ""
        self.links: bool = marker.kwargs.get("links", "pmix_cluster" in item.fixturenames)
        for name, number in (("ranks", self.ranks), ("nodes", self.nodes)):
            if type(number) is not int or number < 1:
                raise pytest.UsageError(f"{item.nodeid}: {name} is a whole number of at least 1, not {number!r:.80}")


def _limit(item: pytest.Function, marker: pytest.Mark) -> float:
    """Return the time limit of a test, from its marker, the command line, the ini file, or the default."""
    config = item.config
    for found in (marker.kwargs.get("timeout"), config.getoption("pmix_timeout"), config.getini("pmix_timeout")):
        if found in (None, ""):
            continue
        try:
            seconds = float(found)
        except (TypeError, ValueError):
            seconds = 0.0
        if not seconds > 0:
            raise pytest.UsageError(f"{item.nodeid}: timeout is a number of seconds above 0, not {found!r:.80}")
        return seconds
    return SECONDS


def ranks_of(marker: pytest.Mark) -> Any:
    """Return the number of ranks that a marker names, a list of numbers, or None."""
    return marker.args[0] if marker.args else marker.kwargs.get("ranks")


def place(item: pytest.Item) -> str:
    """Return the name of a test for the ranks; the node id may contain another path for files outside of the root."""
    return f"{item.path}::{item.nodeid.partition('::')[2]}"

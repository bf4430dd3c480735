"""What one rank writes concerns the servers here, and not each of thousands of nodes."""

from __future__ import annotations

from types import SimpleNamespace

from pypmix.host.manager import Manager


def test_only_the_nodes_of_this_process_catch_up() -> None:
    caught: list[int] = []
    nodes = [
        SimpleNamespace(here=number < 2, catch_up=lambda number=number: caught.append(number)) for number in range(1000)
    ]
    seen: list[int] = []

    def look():
        for number, node in enumerate(nodes):
            seen.append(number)
            yield node

    Manager.catch_up(SimpleNamespace(nodes=look()))  # type: ignore[arg-type]
    assert caught == [0, 1]
    assert seen == [0, 1, 2]

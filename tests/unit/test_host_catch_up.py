"""Output of one rank concerns the servers that may pass it on, and not each of thousands of nodes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pypmix.host.manager import Manager
from pypmix.standard.types import Proc


class Node:
    """A node that records the output that its server is given."""

    def __init__(self, number, delivered):
        self.number, self.delivered = number, delivered

    def deliver_output(self, output):
        self.delivered.append((self.number, output.data))


class Nodes(tuple):
    """The nodes of a host, none of which is looked at."""

    def __iter__(self):
        pytest.fail("all nodes are looked at")


def test_output_goes_to_the_servers_here_and_to_nodes_that_listen() -> None:
    delivered: list[tuple[int, bytes]] = []
    nodes = [Node(number, delivered) for number in range(1000)]
    host = SimpleNamespace(nodes=Nodes(nodes), here=tuple(nodes[:1]), listeners={nodes[7]: None})
    deliver = Manager.delivery(host, Proc("job@1", 0), 2)  # type: ignore[arg-type]
    deliver(b"text\n")
    assert delivered == [(0, b"text\n"), (7, b"text\n")]


def test_only_the_server_of_libpmix_catches_up() -> None:
    caught: list[str] = []
    server = SimpleNamespace(session=SimpleNamespace(catch_up=lambda: caught.append("server")))
    Manager.catch_up(SimpleNamespace(nodes=Nodes(), server=server))  # type: ignore[arg-type]
    assert caught == ["server"]

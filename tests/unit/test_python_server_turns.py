"""Proves that a proc takes its turn, and no more, from the others: on all of its connections, and after its end."""

from __future__ import annotations

import heapq
from collections import deque

import pytest

from lib.server_world import Client, World
from pypmix.engine.times import LINGER_SECONDS, TURN_SECONDS
from pypmix.standard import statuses
from pypmix.standard.types import Proc
from pypmix.wire.frames import frame
from pypmix.wire.messages import encode_fence

COSTLY = 0.098
"""Seconds that the worst message of 64 KiB takes, as measured."""

HOG = b"costly"


class Sockets(World):
    """A server in the turns of its loop, with what waits in the sockets of its clients; its costly messages count."""

    def __init__(self) -> None:
        super().__init__(size=4)
        self.costs = COSTLY
        self.dealt = 0
        self.waiting: dict[Client, deque[bytes]] = {}
        request = self.server.request

        def costly(peer, tag, payload):
            if payload == HOG:
                self.time += self.costs
                self.dealt += 1
            else:
                request(peer, tag, payload)

        self.server.request = costly

    def put(self, client: Client, data: bytes) -> None:
        self.waiting.setdefault(client, deque()).append(data)

    def turn(self) -> None:
        """Make one turn of the loop: a piece of each connection, and then the timers that are due."""
        for client, pieces in list(self.waiting.items()):
            if client.link.owner is None:
                del self.waiting[client]
            elif pieces and not client.link.held:
                client.link.owner.received(pieces.popleft())
        due = []
        while self.timers and self.timers[0][0] <= self.time:
            due.append(heapq.heappop(self.timers)[2])
        for timer in due:
            if timer.function:
                timer.function()

    def fence(self, clients: list[Client]) -> tuple[int, int]:
        """Have clients fence; return how many turns that takes, and how many costly messages are dealt with."""
        dealt, tags = self.dealt, []
        procs = [client.proc for client in clients]
        for client in clients:
            tag = next(client.tags)
            client.asked[tag] = b""
            tags.append(tag)
            self.put(client, frame(0, tag, encode_fence(client.buffer_type, procs, ())))
        for turns in range(1, 1000):
            self.turn()
            if all(client.status(tag) == statuses.SUCCESS for client, tag in zip(clients, tags, strict=True)):
                return turns, self.dealt - dealt
        raise AssertionError("the fence does not end")


@pytest.fixture
def sockets() -> Sockets:
    return Sockets()


def hog(sockets: Sockets, connections: int, pieces: int) -> list[Client]:
    """Have rank 0 fill the sockets of its connections with costly messages."""
    found = sockets.clients(*[0] * connections)
    for client in found:
        for _ in range(pieces):
            sockets.put(client, frame(0, 7, HOG))
    return found


@pytest.mark.parametrize("connections", [1, 4, 60])
def test_the_connections_of_a_proc_share_one_turn(sockets: Sockets, connections: int) -> None:
    others = sockets.clients(1, 2, 3)
    quiet, _ = sockets.fence(others)
    hog(sockets, connections, 400 // connections)
    fences = [sockets.fence(others) for _ in range(20)]
    assert max(turns for turns, _ in fences) <= 2 * quiet
    assert max(dealt for _, dealt in fences) <= 2, "costly messages come between others' messages"
    # Each connection has its turn, and none of them waits for ever.
    while any(sockets.waiting.values()):
        sockets.turn()
    for _ in range(500):
        sockets.turn()
    assert sockets.dealt == 400 // connections * connections


def test_many_messages_of_one_piece_are_dealt_with_for_the_time_of_a_turn(sockets: Sockets) -> None:
    (other,) = sockets.clients(1)
    (client,) = sockets.clients(0)
    sockets.costs = TURN_SECONDS * 0.7
    sockets.put(client, frame(0, 7, HOG) * 30)
    turns, dealt = sockets.fence([other])
    assert turns == 1 and dealt <= 4, (turns, dealt)
    for _ in range(40):
        sockets.turn()
    assert sockets.dealt == 30


def test_what_an_ended_proc_has_left_in_its_sockets_is_dropped(sockets: Sockets) -> None:
    others = sockets.clients(1, 2, 3)
    hog(sockets, 60, 50)
    for _ in range(5):
        sockets.turn()
    sockets.server.deregister_client(Proc("job", 0))
    ended, dealt = sockets.time, sockets.dealt
    while sockets.time < ended + LINGER_SECONDS:
        sockets.fence(others)
        # A time limit of the others is looked at in between.
        assert sockets.time < ended + LINGER_SECONDS + 3 * COSTLY
    for _ in range(3):
        sockets.turn()
    assert sockets.dealt - dealt <= LINGER_SECONDS / COSTLY + 3
    assert not sockets.server.peers(sockets.server.store.process(Proc("job", 0)))
    before = sockets.dealt
    for _ in range(100):
        sockets.fence(others)
    assert sockets.dealt == before


def test_what_costs_little_is_not_counted(sockets: Sockets) -> None:
    """Most messages do; a turn of theirs needs no timer."""
    others = sockets.clients(1, 2, 3)
    sockets.turn()
    timers = len(sockets.timers)
    for _ in range(10):
        assert sockets.fence(others) == (1, 0)
    assert len(sockets.timers) == timers

"""Messages of a lost server that wait for their basis: each counts once, whatever another one of them causes."""

from __future__ import annotations

import pytest

from pypmix.host.exchange import Exchange, Hub
from pypmix.host.exchange.codec import TEXT
from pypmix.host.exchange.exchange import DISCONNECTED


def test_kept_messages_of_a_lost_server_count_though_one_of_them_ends_another_server():
    hub = Hub()
    a, b, c = (Exchange(hub.carrier(name)) for name in "abc")
    heard, asked = [], []

    def has_basis(sender, basis):
        asked.append((sender, basis))
        if len(asked) > 20:
            pytest.fail(f"it is asked again and again: {asked[-1]}")
        return False

    a.hear("news", lambda sender, data: heard.append((sender, data)))
    a.needs_basis(has_basis)
    for exchange in (a, b, c):
        exchange.start()
    hub.run()
    for number in b"12":
        b.rebase(bytes((number,)), ())
        b.tell("a", "news", bytes((number,)))
        b.tell("a", DISCONNECTED, TEXT.write("c"))
    hub.run()
    assert heard == [] and a.members == ("a", "b", "c")
    hub.lose("b")
    hub.run()
    assert heard == [("b", b"1"), ("b", b"2")]
    assert a.members == ("a",)

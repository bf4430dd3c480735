"""Proves which directives of a collective other servers receive, and that unknown ones change nothing."""

from __future__ import annotations

import pytest

from lib.exchange_groups import CONTEXT, MEMBERS, P, construct
from lib.exchange_world import World
from pypmix.engine.collective.rules import FT
from pypmix.engine.python.attributes import CLIENT, FUNCTIONS, SERVER
from pypmix.host.exchange.deciding import SHARED_DIRECTIVES
from pypmix.standard import attrs, codes, keys
from pypmix.standard.ops.events import procs_in
from pypmix.standard.types import Info, Value

ONE_SERVERS = {keys.TIMEOUT, keys.COLLECT_DATA}
"""Directives that the server that is asked takes in itself: its time limit, and its data."""

COLLECTIVES = "PMIx_Fence", "PMIx_Group_construct", "PMIx_Group_destruct"


def test_a_directive_that_is_supported_is_carried_or_is_for_one_server():
    supported = {
        getattr(attrs, name).key
        for side in (CLIENT, SERVER)
        for function in COLLECTIVES
        for name in FUNCTIONS[side].get(function, "").split()
    }
    tolerant = {key for directives in FT.values() for key in directives}
    assert supported
    assert supported | tolerant <= SHARED_DIRECTIVES | ONE_SERVERS
    assert SHARED_DIRECTIVES.isdisjoint(ONE_SERVERS)


@pytest.mark.parametrize("unknown", [(), (Info("acme.unknown", Value(codes.STRING, "x")),)])
def test_an_unknown_directive_is_ignored_on_several_servers_as_on_one(unknown):
    world = World()
    ends = world.all_ask(lambda name: construct(CONTEXT, *(unknown if name == "b" else ())))
    assert [procs_in(end, MEMBERS) for end in ends] == [tuple(P)] * 3
    assert all(info.key != "acme.unknown" for end in ends for info in end)

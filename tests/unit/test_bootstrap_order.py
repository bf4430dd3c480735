"""Proves that members added by several leaders have one order, whoever calls first and wherever the leaders are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lib.group_party import Party, added, job, leader
from pypmix.host.exchange import deciding
from pypmix.standard import attrs
from pypmix.standard.types import Proc


@pytest.mark.parametrize("calls", [(0, 1), (1, 0)])
def test_on_one_server_it_is_that_of_the_leaders(calls):
    party = Party(5)
    adds = {0: job(4, 2), 1: job(3)}
    tags = {rank: leader(party, rank, 2, attrs.GROUP_ADD_MEMBERS(list(adds[rank]))) for rank in calls}
    for rank in (2, 3, 4):
        added(party, rank)
    assert party.members[0].result(tags[0])["members"] == job(0, 1, 4, 2, 3)


@pytest.mark.parametrize("servers", ["ab", "ba"])
def test_between_servers_it_is_that_of_the_leaders(servers):
    adds = {0: job(4, 2), 1: job(3)}
    parts = [
        (server, SimpleNamespace(procs=job(rank), infos=(attrs.GROUP_ADD_MEMBERS(list(adds[rank])),)))
        for rank, server in enumerate(servers)
    ]
    assert deciding.added_by(sorted(parts, key=lambda part: part[0])) == (Proc("job", 4), *job(2, 3))

"""Answers of a host to queries about its ranks."""

from __future__ import annotations

import os
from types import SimpleNamespace

from pypmix.host.queries import ANSWERS
from pypmix.standard import attrs
from pypmix.standard.ops import QueryInfo
from pypmix.standard.types import Proc, Query


def test_the_memory_of_ranks_on_other_nodes_is_not_read_here():
    here = SimpleNamespace(here=True, hostname="near")
    there = SimpleNamespace(here=False, hostname="far")
    # A pid of another node may be that of any process here.
    ranks = [
        SimpleNamespace(proc=Proc("job", number), pid=os.getpid(), alive=True, node=node)
        for number, node in enumerate((here, there))
    ]
    host = SimpleNamespace(jobs={"job": SimpleNamespace(ranks=ranks)}, node_of=lambda _proc: here)
    replies = []
    op = QueryInfo((Query((attrs.QUERY_MEMORY_USAGE.key,), ()),))
    upcall = SimpleNamespace(op=op, requestor=Proc("tool", 0), reply=replies.append)
    ANSWERS[QueryInfo](host, upcall)
    ((memory,),) = replies
    rows = [info.value.data.items for info in memory.value.data.items if info.key == "pypmix.memory"]
    assert [row[0].value.data for row in rows] == [Proc("job", 0)]

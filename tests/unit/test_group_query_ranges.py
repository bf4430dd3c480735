"""Proves which groups a query of a range counts, on hosts of both engines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pypmix.host.exchange.queries import GroupQueries
from pypmix.standard import attrs, codes
from pypmix.standard.ops import QueryInfo
from pypmix.standard.ops.events import RANGE_NAMESPACE
from pypmix.standard.types import Info, Proc, Query, Value

GROUPS = (("one", (Proc("job", 0), Proc("job", 1))), ("other", (Proc("second", 0),)))
SERVER = Proc("host@0", 0)


@pytest.mark.parametrize(
    ("requestor", "count"), [(Proc("job", 1), 1), (Proc("second", 0), 1), (SERVER, 2), (None, 2)], ids=str
)
def test_groups_of_the_callers_job(requestor, count):
    """libpmix names its server in the place of the client: it counts all rather than none."""
    exchange = SimpleNamespace(name="n0", members=("n0",), handle=lambda topic, asked: None)
    places = SimpleNamespace(server_of=lambda proc: None if proc == SERVER else "n0")
    queries = GroupQueries(exchange, places, SimpleNamespace(list_groups=lambda: GROUPS))
    found = []
    upcall = SimpleNamespace(requestor=requestor, reply=found.extend)
    reach = Info(attrs.RANGE.key, Value(codes.DATA_RANGE, RANGE_NAMESPACE))
    op = QueryInfo((Query((attrs.QUERY_NUM_GROUPS.key,), (reach,)),))
    queries.answer(upcall, op, lambda function: function())
    assert [info.value.data for info in found] == [count]

"""The job info about ranks that stop for a debugger."""

from __future__ import annotations

import pytest

from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.standard import codes, keys
from pypmix.standard.types import RANK_WILDCARD


@pytest.mark.parametrize("ranks", ["", "1"])
def test_all_ranks_of_a_node_are_waited_for(ranks):
    """Servers of libpmix 4.2 and 5.0 count them only if the value is this rank: otherwise the first one is enough."""
    stops = ((keys.DEBUG_STOP_IN_INIT, ranks),)
    layout = JobLayout("job", (Application(("true",), 2),), (NodeLayout("n0", (0, 1)),), stops=stops)
    found = [info.value for info in layout.info().job if info.key == keys.DEBUG_STOP_IN_INIT]
    assert [(value.type, value.data) for value in found] == [(codes.PROC_RANK, RANK_WILDCARD)]

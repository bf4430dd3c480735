"""Constructs between servers in memory."""

from __future__ import annotations

from pypmix.standard import attrs, codes
from pypmix.standard.ops import GroupUpcall
from pypmix.standard.ops.hosting import (
    GROUP_CONSTRUCT,
    GROUP_ROUND,
)
from pypmix.standard.types import Info, Proc, Value

MEMBERS = attrs.GROUP_MEMBERSHIP.key


CONTEXT = attrs.GROUP_ASSIGN_CONTEXT_ID(True)


P = [Proc("job", rank) for rank in range(4)]


def construct(*infos, number=1, members=P):
    return GroupUpcall(GROUP_CONSTRUCT, "g", tuple(members), (Info(GROUP_ROUND, Value(codes.SIZE, number)), *infos))

"""The arguments of group construct and destruct."""

from __future__ import annotations

from pypmix.requests import proc_tuple, seconds
from pypmix.standard import codes
from pypmix.standard.ops import GroupConstruct, GroupDestruct
from pypmix.standard.types import Info, Value
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.requests import Infos, Procs

_ASSIGN = Info("pmix.grp.actxid", Value.unchecked(codes.BOOL, True))


def construct_op(name: str, procs: Procs, context_id: bool, timeout: float | None, info: Infos) -> GroupConstruct:
    if procs is None:
        raise ValueError("there are no procs: name all members of the group, the caller among them")
    directives = infos(info)
    if context_id:
        directives += (_ASSIGN,)
    if timeout is not None:
        directives += (seconds(timeout),)
    return GroupConstruct(name, proc_tuple(procs), directives)


def destruct_op(name: str, timeout: float | None, info: Infos) -> GroupDestruct:
    directives = infos(info)
    if timeout is not None:
        directives += (seconds(timeout),)
    return GroupDestruct(name, directives)

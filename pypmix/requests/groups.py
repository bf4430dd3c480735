"""The arguments of group operations."""

from __future__ import annotations

from pypmix.requests import proc_tuple, seconds
from pypmix.standard import codes, keys
from pypmix.standard.ops import (
    GroupAdmit,
    GroupConstruct,
    GroupDestruct,
    GroupEnter,
    GroupInvite,
    GroupJoin,
    GroupLeave,
    QueryInfo,
)
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, DataArray, Info, Proc, Query, Value
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import ClientSession
    from pypmix.requests import Infos, Procs

_TRUE = Value.unchecked(codes.BOOL, True)
_REFRESH = Info(keys.QUERY_REFRESH_CACHE, _TRUE)


def expanded(session: ClientSession, procs: tuple[Proc, ...]) -> tuple[Proc, ...]:
    """Return each proc once, with those of groups and whole jobs by their ranks as far as this process knows them."""
    found: dict[Proc, None] = {}
    for proc in procs:
        state = session.group_state(proc.nspace)
        if state is not None:
            found.update(dict.fromkeys(state.members if proc.rank == RANK_WILDCARD else (state.members[proc.rank],)))
            continue
        size = session.fetch_local(proc, keys.JOB_SIZE) if proc.rank == RANK_WILDCARD else None
        if size is None:
            found[proc] = None
        else:
            found.update(dict.fromkeys([Proc(proc.nspace, rank) for rank in range(int(size.data))]))
    return tuple(found)


def automatic_name(session: ClientSession, counts: dict[str, Any], procs: Procs) -> str:
    """Return a name that all who name the same procs find by themselves.

    Args:
        session: The caller's.
        counts: How many names the caller has made for which procs; this changes it.
        procs: The members, in any order.
    """
    if procs is None:
        raise ValueError("a group without a name needs the procs: both are left to others where neither is given")
    from hashlib import blake2b
    from itertools import count

    members = sorted(expanded(session, proc_tuple(procs)))
    digest = blake2b(repr([(proc.nspace, int(proc.rank)) for proc in members]).encode(), digest_size=8).hexdigest()
    # Threads may ask at the same time: both steps are single operations of the interpreter.
    number = next(counts.setdefault(digest, count(1)))
    tail = f".{digest}.{number}"
    head = f"pypmix.{members[0].nspace}".encode()[: MAX_NSLEN - len(tail)]
    return head.decode(errors="ignore") + tail


def _flags(given: Infos, timeout: float | None, **flags: object) -> tuple[Info, ...]:
    directives = infos(given)
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} is True or False, not {value!r:.100}")
        if value:
            directives += (Info(_KEYS[name], _TRUE),)
    if timeout is not None:
        directives += (seconds(timeout),)
    return directives


_KEYS = {
    "context_id": keys.GROUP_ASSIGN_CONTEXT_ID,
    "optional": keys.GROUP_OPTIONAL,
    "ft": keys.GROUP_FT_COLLECTIVE,
    "notify_termination": keys.GROUP_NOTIFY_TERMINATION,
    "local_only": keys.GROUP_LOCAL_ONLY,
}


def construct_op(
    caller: Proc,
    name: str,
    procs: Procs,
    *,
    context_id: bool = False,
    leader: Proc | bool | None = None,
    optional: bool = False,
    ft: bool = False,
    notify_termination: bool = False,
    local_only: bool = False,
    bootstrap: int = 0,
    add: Procs = (),
    timeout: float | None = None,
    info: Infos = None,
) -> GroupConstruct:
    directives = _flags(
        info,
        timeout,
        context_id=context_id,
        optional=optional,
        ft=ft,
        notify_termination=notify_termination,
        local_only=local_only,
    )
    if isinstance(leader, bool):
        leader = caller if leader else None
    if leader is not None:
        if not isinstance(leader, Proc):
            raise TypeError(f"the leader is a Proc, or True for the caller, not {leader!r:.100}")
        if leader == caller:
            directives += (Info(keys.GROUP_LEADER, _TRUE),)
        # By the Standard only the leader can say that it leads; this tells the others' engines.
        directives += (Info(GROUP_LEADER_PROC, Value(codes.PROC, leader)),)
    if not isinstance(bootstrap, int) or isinstance(bootstrap, bool) or bootstrap < 0:
        raise ValueError(f"bootstrap is how many leaders there are, not {bootstrap!r:.100}")
    if bootstrap:
        # Each leader knows of itself alone.
        procs = caller if procs is None else procs
        directives += (Info(keys.GROUP_BOOTSTRAP, Value(codes.SIZE, bootstrap)),)
    added = () if add is None or add == () else proc_tuple(add)
    if added:
        if procs is None:
            raise ValueError(
                "a proc that others add to a group cannot add members: name the procs, or the number of leaders"
            )
        directives += (Info(keys.GROUP_ADD_MEMBERS, Value(codes.DATA_ARRAY, DataArray(codes.PROC, added))),)
    return GroupConstruct(name, proc_tuple(procs), directives)


def destruct_op(name: str, timeout: float | None, info: Infos, ft: bool = False) -> GroupDestruct:
    return GroupDestruct(name, _flags(info, timeout, ft=ft))


def invite_op(
    caller: Proc,
    name: str,
    procs: Procs,
    *,
    context_id: bool = False,
    optional: bool = False,
    ft: bool = False,
    notify_termination: bool = False,
    timeout: float | None = None,
    info: Infos = None,
) -> GroupInvite:
    if procs is None:
        raise ValueError("there are no procs: name all who are invited")
    invited = proc_tuple(procs)
    if all(proc == caller for proc in invited):
        raise ValueError("an invitation must name procs besides the caller, which is a member anyway")
    directives = _flags(
        info, timeout, context_id=context_id, optional=optional, ft=ft, notify_termination=notify_termination
    )
    return GroupInvite(name, invited, directives)


def join_op(name: str, leader: Proc, accept: bool, timeout: float | None, info: Infos, reason: str = "") -> GroupJoin:
    if not isinstance(reason, str):
        raise TypeError(f"a reason is a string, not {reason!r:.100}")
    if accept and reason:
        raise ValueError("a reason is for not joining")
    return GroupJoin(name, leader, bool(accept), _flags(info, timeout), reason)


def leave_op(name: str, info: Infos) -> GroupLeave:
    return GroupLeave(name, infos(info))


def admit_op(name: str, proc: Proc, timeout: float | None) -> GroupAdmit:
    return GroupAdmit(name, proc, _flags(None, timeout))


def among(session: ClientSession, procs: Procs) -> Callable[[Proc], bool]:
    """Return a function that tells whether a proc is one of those named."""
    named = frozenset(expanded(session, proc_tuple(procs)))
    return lambda proc: proc in named or Proc(proc.nspace, RANK_WILDCARD) in named


def enter_op(name: str, by: Callable[[Proc], bool], timeout: float | None, info: Infos) -> GroupEnter:
    return GroupEnter(name, by, _flags(info, timeout))


def group_names_op() -> QueryInfo:
    """Return the question for the names of all groups that the server knows, afresh."""
    return QueryInfo((Query((keys.QUERY_GROUP_NAMES,), (_REFRESH,)),))


def group_members_op(name: str) -> QueryInfo:
    """Return the question for the members of a group that the caller is not in."""
    return QueryInfo(
        (Query((keys.QUERY_GROUP_MEMBERSHIP,), (Info(keys.GROUP_ID, Value(codes.STRING, name)), _REFRESH)),)
    )

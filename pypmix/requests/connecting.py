"""The arguments of connect and disconnect."""

from __future__ import annotations

from pypmix.requests import seconds, together
from pypmix.standard import codes
from pypmix.standard.ops import Connect, Disconnect
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_NOTIFY_EACH,
    CONNECT_NOTIFY_REQ,
    CONNECT_OPTIONAL,
    CONNECT_XCHG_ONLY,
)
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, Info, Proc, Value, check_name
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.requests import Infos, Procs


def _flag(key: str) -> Info:
    return Info(key, Value(codes.BOOL, True))


def connect_op(
    procs: Procs,
    *,
    connect_id: str | None,
    optional: bool,
    early_termination: bool,
    notify_each: bool,
    notify_request: bool,
    exchange_only: bool,
    timeout: float | None,
    info: Infos,
) -> Connect:
    if procs is None:
        raise ValueError("there are no procs: name all who take part, the caller among them")
    directives = [*infos(info)]
    if connect_id is not None:
        check_name(connect_id, MAX_NSLEN, "a connect id")
        if not connect_id:
            raise ValueError("a connect id must not be empty")
        directives.append(Info(CONNECT_ID, Value(codes.STRING, connect_id)))
    if exchange_only and early_termination:
        raise ValueError("exchange_only makes no connection that could end early: leave one of the two out")
    flags = (
        (optional, CONNECT_OPTIONAL),
        (early_termination, CONNECT_EARLY_TERM),
        (notify_each, CONNECT_NOTIFY_EACH),
        (notify_request, CONNECT_NOTIFY_REQ),
        (exchange_only, CONNECT_XCHG_ONLY),
        (not exchange_only, CONNECT_ASSIGN),
    )
    directives += [_flag(key) for given, key in flags if given]
    if timeout is not None:
        directives.append(seconds(timeout))
    return Connect(together(procs), tuple(directives))


def disconnect_op(what: Any, notify_each: bool, timeout: float | None, info: Infos) -> Disconnect:
    if what is None or what == "":
        raise ValueError("there is nothing to disconnect from: name the connection, its nspace, or its procs")
    procs = (Proc(what, RANK_WILDCARD),) if isinstance(what, str) else together(what)
    directives = [*infos(info)]
    if notify_each:
        directives.append(_flag(CONNECT_NOTIFY_EACH))
    if timeout is not None:
        directives.append(seconds(timeout))
    return Disconnect(procs, tuple(directives))

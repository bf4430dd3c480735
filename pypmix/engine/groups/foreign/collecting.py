"""The members' own group info, for servers that give it only to procs that get it.

Releases before 6.0 keep it under the group's context id: it is requested under the keys that the caller uses itself."""

from __future__ import annotations

from functools import partial

from pypmix.engine.groups.foreign.rules import KEPT_ENDPOINT
from pypmix.engine.groups.talk import proc
from pypmix.standard import codes
from pypmix.standard.keys import GROUP_CONTEXT_ID, GROUP_ENDPT_DATA, GROUP_INFO, PROCID, TIMEOUT
from pypmix.standard.ops import Get
from pypmix.standard.types import DataArray, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.groups.port import Port
    from pypmix.standard.ops import GroupConstruct, GroupResults
    from pypmix.standard.types import Proc

SAID = frozenset({GROUP_INFO, GROUP_ENDPT_DATA})
"""The keys of the members' own group info."""

QUALIFIER = 8
"""The flag of an info that is part of the question rather than a directive."""

SOON = Info(TIMEOUT, Value(codes.INT, 5))
"""Ends a get that no proc can answer."""


def missing(op: GroupConstruct, result: GroupResults) -> tuple[str, ...]:
    """Return the keys under which to request the members' infos; empty if the answer contains them."""
    if result.context_id is None or any(info.key in SAID for info in result.infos):
        return ()
    keys: dict[str, None] = {}
    for info in op.directives:
        data = info.value.data
        if info.key == GROUP_ENDPT_DATA:
            keys[KEPT_ENDPOINT] = None
        elif info.key == GROUP_INFO and isinstance(data, DataArray) and data.type == codes.INFO:
            keys.update(dict.fromkeys([item.key for item in data.items]))
    return tuple(keys)


def collect(
    port: Port,
    members: Iterable[Proc],
    keys: tuple[str, ...],
    context_id: int,
    done: Callable[[tuple[Info, ...]], None],
) -> None:
    """Request the members' infos; `done` is called with them, in the form that releases from 6.0 on have.

    Args:
        port: The session.
        members: The members.
        keys: The keys, at least one.
        context_id: The context id of the group.
        done: Called with the infos.
    """
    number = Info(GROUP_CONTEXT_ID, Value(codes.SIZE, context_id), QUALIFIER)
    said: dict[Proc, list[Info]] = {each: [] for each in members}
    left = [len(said) * len(keys)]

    def note_value(whose: Proc, key: str, value: Value | None, _error: BaseException | None) -> None:
        if value is not None:
            said[whose].append(Info(GROUP_ENDPT_DATA if key == KEPT_ENDPOINT else key, value))
        left[0] -= 1
        if not left[0]:
            done(tuple([_group_info(each, items) for each, items in said.items() if items]))

    for each in said:
        for key in keys:
            port.submit(Get(each, key, (number, SOON)), partial(note_value, each, key))


def _group_info(whose: Proc, items: Iterable[Info]) -> Info:
    array = DataArray(codes.INFO, (proc(PROCID, whose), *items))
    return Info(GROUP_INFO, Value(codes.DATA_ARRAY, array))

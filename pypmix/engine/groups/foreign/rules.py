"""Differences of the releases of servers and libraries in groups, of requests and of answers, and what works on each.

Releases before 6.0 keep the members' own infos under the group's context id: each member that gets the group requests
them (`collect`), under the keys that it uses itself.
"""

from __future__ import annotations

from functools import partial

from pypmix.engine.groups.constructing import wants_context_id
from pypmix.engine.groups.talk import proc
from pypmix.standard import codes, keys
from pypmix.standard.ops import Get, GroupConstruct
from pypmix.standard.types import DataArray, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.groups.agent import Port
    from pypmix.standard.ops import GroupDestruct, GroupResults
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Proc


ONLY_WITH_CONTEXT_ID: tuple[Release, Release] = (4, 2, 0), (6, 0, 0)
"""The first release, and the end, of servers that get a request for a context id in every construct.

Servers of 5.0 may refuse a construct without that request: PRRTE 3 is such a host. Servers of 4.2 construct it alone if
all members are theirs, and do not inform their host of the group.
"""

TIMED: Release = (6, 0, 0)
"""The first release of servers that get a timeout.

Servers before 4.2.4 crash when the time has run out, and servers of 5.0 apply the timeout to all later operations of
the group. The engine runs the timeout as well, so the caller sees no difference.
"""

LOCAL: Release = (6, 0, 0)
"""The first release of servers that get the directive that a group is local.

To earlier ones it means to assign no context id, and they find out themselves on which nodes the procs are.
"""

FORGETTING: Release = (5, 0, 0)
"""The first release of servers that may construct a group of a name whose members have destructed it by a fence.

Earlier ones keep the group until all of its first members that live call a destruct, and take a construct of its name
for one of these members.
"""

GATHERING: Release = (6, 0, 0)
"""The first release of servers that gather groups from leaders and added members (`PMIX_GROUP_BOOTSTRAP`).

Earlier ones make a separate group for each leader.
"""

ORDERED: Release = (6, 1, 0)
"""The first release of servers that accept an order of the members; earlier ones sort them."""

TELLING: Release = (6, 0, 0)
"""The first release that returns the members' infos with the answer; earlier ones keep them by the context id."""

KEPT_ENDPOINT = "pypmix.grp.endpt"
"""The key of a member's endpoint data among its group info."""

ANSWERS: tuple[Release, ...] = (4, 2, 4), (6, 0, 0)
"""The releases from which a server's answer to a construct has another form than before."""

_ASSIGN = Info(keys.GROUP_ASSIGN_CONTEXT_ID, Value(codes.BOOL, True))

ANY: Release = (0, 0, 0)

FEATURES: dict[str, Release | None] = {
    "group.construct": ANY,
    "group.bootstrap": GATHERING,
    "group.order": ORDERED,
    "group.invite": ANY,
    "group.leave": ANY,
    "group.request": ANY,
    "group.leader": None,
    "group.notify_termination": None,
    "group.ft": None,
    "group.optional": None,
    "get.group_names": None,
}
"""The first release of a server on which each feature works; None if only servers of the Python engine support it.

The features with None are about the construct: the effect of a member that fails before the group is formed, and the
procs that are informed. Later failures are handled by the members, with every server that reports procs that end.
"""

SAID = frozenset({keys.GROUP_INFO, keys.GROUP_ENDPT_DATA})
"""The keys of the members' own group info."""

QUALIFIER = 8
"""The flag of an info that is part of the question rather than a directive."""

SOON = Info(keys.TIMEOUT, Value(codes.INT, 5))
"""Ends a get that no proc can answer."""


def answer_form(release: Release) -> int:
    """Return the number of the form of a release's answers to a construct."""
    return sum(release >= floor for floor in ANSWERS)


def directives_for(op: GroupConstruct | GroupDestruct, server: Release) -> tuple[Info, ...]:
    """Return the directives of an operation in the form that a server of this release needs."""
    given = op.directives
    if server < TIMED:
        given = tuple([info for info in given if info.key != keys.TIMEOUT])
    if server < LOCAL:
        given = tuple([info for info in given if info.key != keys.GROUP_LOCAL_ONLY])
    floor, end = ONLY_WITH_CONTEXT_ID
    if floor <= server < end and isinstance(op, GroupConstruct) and not wants_context_id(op.directives):
        given = (*[info for info in given if info.key != keys.GROUP_ASSIGN_CONTEXT_ID], _ASSIGN)
    return given


def kept(directives: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return directives with all infos of the caller as one group info, endpoint data too.

    Releases before `TELLING` keep nothing else.
    """
    said: list[Info] = []
    others = []
    for info in directives:
        data = info.value.data
        if info.key == keys.GROUP_ENDPT_DATA:
            said.append(Info(KEPT_ENDPOINT, info.value))
            others.append(info)
        elif info.key == keys.GROUP_INFO and isinstance(data, DataArray) and data.type == codes.INFO:
            said += data.items
        else:
            others.append(info)
    if not said:
        return directives
    # Each of them once, even if this was done before.
    said = list({info.key: info for info in said}.values())
    return (*others, Info(keys.GROUP_INFO, Value(codes.DATA_ARRAY, DataArray(codes.INFO, tuple(said)))))


def signed(info: Info, whose: Proc) -> Info:
    """Return group info in the form that servers from `TELLING` on need: with the proc that contributes it first.

    Args:
        info: Any info of a construct.
        whose: The caller.
    """
    data = info.value.data
    if info.key != keys.GROUP_INFO or not isinstance(data, DataArray) or data.type != codes.INFO or not data.items:
        return info
    if data.items[0].value.type == codes.PROC:
        return info
    items = (Info(keys.PROCID, Value(codes.PROC, whose)), *data.items)
    return Info(keys.GROUP_INFO, Value(codes.DATA_ARRAY, DataArray(codes.INFO, items)), info[2])


def works(feature: str, server: Release, same_engine: bool) -> bool:
    """Return True if a feature of groups works.

    Args:
        feature: Its name.
        server: The server's release.
        same_engine: Whether the server is one of the Python engine.
    """
    if feature not in FEATURES:
        return False
    first = FEATURES[feature]
    return same_engine or first is not None and server >= first


# Infos of members


def missing(op: GroupConstruct, result: GroupResults) -> tuple[str, ...]:
    """Return the keys under which to request the members' infos; empty if the answer contains them."""
    if result.context_id is None or any(info.key in SAID for info in result.infos):
        return ()
    wanted: dict[str, None] = {}
    for info in op.directives:
        data = info.value.data
        if info.key == keys.GROUP_ENDPT_DATA:
            wanted[KEPT_ENDPOINT] = None
        elif info.key == keys.GROUP_INFO and isinstance(data, DataArray) and data.type == codes.INFO:
            wanted.update(dict.fromkeys([item.key for item in data.items]))
    return tuple(wanted)


def collect(
    port: Port,
    members: Iterable[Proc],
    requested: tuple[str, ...],
    context_id: int,
    done: Callable[[tuple[Info, ...]], None],
) -> None:
    """Request the members' infos; `done` is called with them, in the form that releases from 6.0 on have.

    Args:
        port: The session.
        members: The members.
        requested: The keys, at least one.
        context_id: The context id of the group.
        done: Called with the infos.
    """
    number = Info(keys.GROUP_CONTEXT_ID, Value(codes.SIZE, context_id), QUALIFIER)
    said: dict[Proc, list[Info]] = {each: [] for each in members}
    left = [len(said) * len(requested)]

    def note_value(whose: Proc, key: str, value: Value | None, _error: BaseException | None) -> None:
        if value is not None:
            said[whose].append(Info(keys.GROUP_ENDPT_DATA if key == KEPT_ENDPOINT else key, value))
        left[0] -= 1
        if not left[0]:
            done(tuple([_group_info(each, items) for each, items in said.items() if items]))

    for each in said:
        for key in requested:
            port.submit(Get(each, key, (number, SOON)), partial(note_value, each, key))


def _group_info(whose: Proc, items: Iterable[Info]) -> Info:
    array = DataArray(codes.INFO, (proc(keys.PROCID, whose), *items))
    return Info(keys.GROUP_INFO, Value(codes.DATA_ARRAY, array))

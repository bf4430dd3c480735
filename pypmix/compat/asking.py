"""The operation of each method, and the value that the method returns, in the forms of the official binding."""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple

from pypmix.compat.children import environment
from pypmix.compat.scalars import (
    from_bytes,
    from_procs,
    refused,
    to_bytes,
    to_int,
    to_key,
    to_nspace,
    to_proc,
    to_procs,
    to_text,
    to_whom,
)
from pypmix.compat.structures import to_units
from pypmix.compat.values import (
    from_infos,
    from_pdata,
    from_value,
    to_app,
    to_info,
    to_infos,
    to_keys,
    to_queries,
    to_value,
)
from pypmix.standard import codes, keys, ops, statuses
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.publishing import read_publish
from pypmix.standard.types import DataArray, Info, Proc, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    R = TypeVar("R")


GROUP_ACCEPT = 1

ABI = frozenset({keys.QUERY_STABLE_ABI_VERSION, keys.QUERY_PROVISIONAL_ABI_VERSION})
NO_ABI = "0.0"
"""The same answer as of OpenPMIx: a version of the ABI is not guaranteed."""


class Shape(NamedTuple):
    """The value that a method returns beside its status.

    Attributes:
        told: Makes the status and the value from the operation and its result.
        nothing: Makes the value that is returned with the status of a failure.
    """

    told: Callable[[Any, Any], tuple[int, Any]]
    nothing: Callable[[], Any]


def _none() -> None:
    return None


def _lookup(op: ops.Lookup, published: tuple[Any, ...]) -> tuple[int, list[dict[str, Any]]]:
    status = statuses.SUCCESS if len(published) >= len(op.keys) else statuses.ERR_PARTIAL_SUCCESS
    return status, [from_pdata(each) for each in published]


def _query(op: ops.QueryInfo, infos: tuple[Info, ...]) -> tuple[int, list[dict[str, Any]]]:
    asked = sum(len(query.keys) for query in op.queries)
    return statuses.SUCCESS if len(infos) >= asked else statuses.QUERY_PARTIAL_SUCCESS, from_infos(infos)


def _group(op: object, results: ops.GroupResults | None) -> tuple[int, list[dict[str, Any]]]:
    if results is None:
        return statuses.SUCCESS, []  # a proc that declines an invitation gets no results
    told: list[Info] = []
    if results.members:
        told.append(
            Info.unchecked(
                keys.GROUP_MEMBERSHIP, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(results.members))), 0
            )
        )
    if results.context_id is not None:
        told.append(Info.unchecked(keys.GROUP_CONTEXT_ID, Value(codes.SIZE, results.context_id), 0))
    return statuses.SUCCESS, from_infos(
        (*told, *[info for info in results.infos if info.key not in (one.key for one in told)])
    )


def _credential(op: object, credential: ops.Credential) -> tuple[int, tuple[dict[str, Any], list[dict[str, Any]]]]:
    return statuses.SUCCESS, (
        {**from_bytes(credential.data), "bytes": bytearray(credential.data)},
        from_infos(credential.infos),
    )


VALUE = Shape(lambda op, found: (statuses.SUCCESS, from_value(found)), _none)
INFOS = Shape(lambda op, found: (statuses.SUCCESS, from_infos(found)), list)
PDATA = Shape(_lookup, list)
ANSWERS = Shape(_query, list)
NSPACE = Shape(lambda op, found: (statuses.SUCCESS, found), _none)
PROCS = Shape(lambda op, found: (statuses.SUCCESS, from_procs(found)), list)
NODES = Shape(lambda op, found: (statuses.SUCCESS, ",".join(found)), _none)
GROUP = Shape(_group, list)
CREDENTIAL = Shape(_credential, lambda: ({}, []))


def fence(me: Proc, peers: object, dicts: object) -> ops.Fence:
    directives = to_infos(dicts)
    rest = tuple([info for info in directives if info.key != keys.COLLECT_DATA])
    return ops.Fence(to_whom(peers, me.nspace), is_set(directives, keys.COLLECT_DATA), rest)


def get(me: Proc, proc: object, key: object, dicts: object) -> ops.Get:
    if key is None:
        raise refused("all that a proc has put cannot be asked for at once: name a key", statuses.ERR_NOT_SUPPORTED)
    return ops.Get(me if proc is None else to_proc(proc), to_key(key), to_infos(dicts))


def put(scope: object, key: object, value: object) -> ops.Put:
    return ops.Put(to_key(key), travelling(to_value(value)), to_int(codes.SCOPE, scope))


def travelling(value: Value) -> Value:
    """Return a value to put or publish.

    Raises:
        PMIxError: The value would arrive altered.
    """
    _check(value.type, value.data)
    return value


def _check(type: int, data: Any) -> None:
    if type == codes.PROC_INFO and data.exit_code:
        raise refused("no message carries the exit code of a PROC_INFO", statuses.ERR_NOT_SUPPORTED)
    if type == codes.REGEX and data.endswith(b"\0"):
        raise refused("a REGEX travels without the NUL that it ends with")
    if type == codes.DATA_ARRAY and data.type in _CONTAINING:
        for item in data.items:
            _check(data.type, item)
    elif type == codes.VALUE:
        _check(data.type, data.data)
    elif type in (codes.INFO, codes.PDATA):
        _check(data.value.type, data.value.data)


_CONTAINING = frozenset({codes.PROC_INFO, codes.REGEX, codes.DATA_ARRAY, codes.VALUE, codes.INFO, codes.PDATA})
"""The types of values that may be altered in messages, and the types that may contain such values."""


def abort(status: object, message: object, peers: object) -> ops.Abort:
    text = "" if message is None else to_text(message)
    return ops.Abort(to_int(codes.STATUS, status), text, to_procs(peers))


def publish(dicts: object) -> ops.Publish:
    infos = to_infos(dicts)
    for info in infos:
        if info.key in (keys.RANGE, keys.PERSISTENCE):
            to_int(codes.UINT8, info.value.data)
        else:
            travelling(info.value)
    return read_publish(infos)


def lookup(key_list: object, dicts: object) -> ops.Lookup:
    """Return the lookup of the keys in a list of strings, or of dicts with a `key`."""
    if not isinstance(key_list, list | tuple):
        raise refused(f"a list of keys is wanted, not {key_list!r:.80}")
    keys = [each.get("key") if isinstance(each, dict) else each for each in key_list]
    return ops.Lookup(to_keys(keys), to_infos(dicts))


def spawn(infos: object, apps: object) -> ops.Spawn:
    if not isinstance(apps, list | tuple) or not apps:
        raise refused("there is no application to spawn")
    # An application without a working directory runs in the caller's.
    found = [app.replace(cwd=app.cwd or os.getcwd(), env=environment(app.env)) for app in map(to_app, apps)]
    return ops.Spawn(tuple(found), to_infos(infos))


def resolve_peers(node: object, nspace: object) -> ops.ResolvePeers:
    return ops.ResolvePeers(_maybe(node, to_text), _maybe(nspace, to_nspace))


def resolve_nodes(nspace: object) -> ops.ResolveNodes:
    return ops.ResolveNodes(_maybe(nspace, to_nspace))


def _maybe(value: object, convert: Callable[[object], str]) -> str | None:
    return None if value is None else convert(value) or None


def query(queries: object) -> tuple[list[Info], tuple[Query, ...]]:
    """Return the infos that are known without a server, and the remaining queries."""
    # The ABI versions have to be available also before `init`.
    own: list[Info] = []
    rest: list[Query] = []
    for each in to_queries(queries):
        own += [Info.unchecked(key, Value.unchecked(codes.STRING, NO_ABI), 0) for key in each.keys if key in ABI]
        others = tuple([key for key in each.keys if key not in ABI])
        if others or not each.keys:
            rest.append(Query(others, each.qualifiers))
    return own, tuple(rest)


def monitor(terms: object, code: object, dicts: object) -> ops.ProcessMonitor:
    """Return the request for a monitor. If `terms` is a list, its first info is used, as in the binding."""
    found = (to_info(terms),) if isinstance(terms, dict) else to_infos(terms)
    if not found:
        raise refused("nothing says what to monitor")
    return ops.ProcessMonitor(found[0], to_int(codes.STATUS, code), to_infos(dicts))


def validate_credential(credential: object, dicts: object) -> ops.ValidateCredential:
    if not credential:
        raise refused("there is no credential", statuses.ERR_BAD_PARAM)
    return ops.ValidateCredential(to_bytes(credential), to_infos(dicts))


def resource_block(directive: object, block: object, units: object, infos: object) -> None:
    """Check the arguments of a request that pypmix does not support."""
    if block is None:
        raise refused("a block of resources has a name")
    to_int(codes.RESBLOCK_DIRECTIVE, directive), to_text(block), to_units(units), to_infos(infos)


def group_construct(me: Proc, group: object, peers: object, dicts: object) -> ops.GroupConstruct:
    # Unlike elsewhere, an empty list remains empty, as in C: other members add the caller, which does not know them.
    empty = isinstance(peers, list | tuple) and not peers
    return ops.GroupConstruct(to_nspace(group), () if empty else to_whom(peers, me.nspace), to_infos(dicts))


def group_invite(me: Proc, group: object, peers: object, dicts: object) -> ops.GroupInvite:
    return ops.GroupInvite(to_nspace(group), to_whom(peers, me.nspace), to_infos(dicts))


def group_join(me: Proc, group: object, leader: object, answer: object, dicts: object) -> ops.GroupJoin:
    accepts = to_int(codes.UINT8, answer) == GROUP_ACCEPT
    return ops.GroupJoin(to_nspace(group), me if leader is None else to_proc(leader), accepts, to_infos(dicts))


def _made(make: Callable[..., R], *converters: Callable[[Any], Any]) -> Callable[..., R]:
    """Return a function that makes an operation from its arguments, each converted by its converter."""
    return lambda *given: make(*[convert(each) for convert, each in zip(converters, given, strict=True)])


def _made_of_procs(make: Callable[..., R]) -> Callable[..., R]:
    """Return a function that makes an operation from the caller, a list of procs, and infos."""
    return lambda me, peers, dicts: make(to_whom(peers, me.nspace), to_infos(dicts))


connect = _made_of_procs(ops.Connect)
disconnect = _made_of_procs(ops.Disconnect)
job_control = _made_of_procs(ops.JobControl)
unpublish = _made(ops.Unpublish, to_keys, to_infos)
log = _made(ops.Log, to_infos, to_infos)
allocation_request = _made(ops.AllocationRequest, partial(to_int, codes.ALLOC_DIRECTIVE), to_infos)
get_credential = _made(ops.GetCredential, to_infos)
group_leave = _made(ops.GroupLeave, to_nspace, to_infos)
group_destruct = _made(ops.GroupDestruct, to_nspace, to_infos)
fabric_register = _made(ops.FabricRegister, to_infos)

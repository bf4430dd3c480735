"""The table of upcalls: for each, the handlers of a server module and their arguments."""

from __future__ import annotations

from pypmix.compat import serveranswers as answers
from pypmix.compat.names import Key
from pypmix.compat.scalars import from_bytes, from_proc, from_procs
from pypmix.compat.serveranswers import Row
from pypmix.compat.structures import from_record
from pypmix.compat.values import from_apps, from_info, from_infos, from_queries
from pypmix.standard import attrs, ops
from pypmix.standard.ops import Credential, Op
from pypmix.standard.types import Info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Upcall

OWN = "pypmix."
"""The prefix of the directives that a Python server adds for hosts of pypmix."""

REQUEST_INFO = 0
UPDATE_INFO = 1


def _to_dicts(infos: Iterable[Info]) -> list[dict[str, Any]]:
    return from_infos([info for info in infos if not info.key.startswith(OWN)])


def _source(upcall: Upcall) -> dict[str, Any]:
    return {} if upcall.requestor is None else {"source": from_proc(upcall.requestor)}


def _caller(upcall: Upcall) -> dict[str, Any]:
    return {} if upcall.requestor is None else {"proc": from_proc(upcall.requestor)}


def _identity(upcall: Upcall) -> list[Info]:
    found = []
    if upcall.uid is not None:
        found.append(attrs.USERID(upcall.uid))
    if upcall.gid is not None:
        found.append(attrs.GRPID(upcall.gid))
    return found


def _connected(op: ops.ClientConnected, upcall: Upcall) -> dict[str, Any]:
    infos = [*op.directives, *_identity(upcall)]
    if op.pid is not None:
        infos.append(attrs.PROC_PID(op.pid))
    if op.release:
        infos.append(attrs.VERSION_INFO(op.release))
    return {"proc": from_proc(op.proc), "directives": _to_dicts(infos)}


def _abort(op: ops.ClientAborted, _upcall: Upcall) -> dict[str, Any]:
    caller, targets = from_proc(op.proc), from_procs(op.targets)
    # `proc` and `procs` are for programs that follow the example of OpenPMIx.
    return {
        "caller": caller,
        "status": op.code,
        "msg": op.message,
        "targets": targets,
        "proc": caller,
        "procs": targets,
    }


def _published(op: ops.Publish, upcall: Upcall) -> dict[str, Any]:
    terms = [attrs.RANGE(op.range), attrs.PERSISTENCE(op.persistence), *_identity(upcall)]
    return {**_caller(upcall), "directives": _to_dicts([*op.infos, *op.directives, *terms])}


def _keys(op: Any, upcall: Upcall) -> dict[str, Any]:
    directives = _to_dicts([*op.directives, *_identity(upcall)])
    return {**_caller(upcall), "keys": [Key(key) for key in op.keys], "directives": directives}


def _together(op: Any, _upcall: Upcall) -> dict[str, Any]:
    return {"procs": from_procs(op.procs), "directives": _to_dicts(op.directives)}


def _tool(op: ops.ToolConnected, upcall: Upcall) -> dict[str, Any]:
    infos = [*op.directives, *_identity(upcall)]
    if op.pid is not None:
        infos.append(attrs.PROC_PID(op.pid))
    if op.proc is not None:
        infos += [attrs.NSPACE(op.proc.nspace), attrs.RANK(op.proc.rank)]
    if op.release:
        infos.append(attrs.VERSION_INFO(op.release))
    if op.launcher:
        infos.append(attrs.LAUNCHER(True))
    told = list({info.key: info for info in infos}.values())
    return {"directives": _to_dicts(told)}


def _stop(op: ops.IOFDeregister, _upcall: Upcall) -> dict[str, Any]:
    return {"channels": 0, "sources": [], "directives": _to_dicts([attrs.IOF_STOP(True), *op.directives])}


def _pushed(op: ops.IOFPush, upcall: Upcall) -> dict[str, Any]:
    payload = from_bytes(op.data) | {"bytes": bytearray(op.data)}
    told = {"targets": from_procs(op.procs), "directives": _to_dicts(op.directives), "payload": payload}
    return {**_source(upcall), **told}


def _fabric(op: Any, upcall: Upcall) -> dict[str, Any]:
    update = isinstance(op, ops.FabricUpdate)
    infos = [attrs.FABRIC_INDEX(op.index)] if isinstance(op, ops.FabricUpdate) else op.directives
    return {**_source(upcall), "op": UPDATE_INFO if update else REQUEST_INFO, "directives": _to_dicts(infos)}


def _directed(op: Any, upcall: Upcall) -> dict[str, Any]:
    return {**_source(upcall), "directives": _to_dicts(op.directives)}


def _infos_row(key: str, args: Callable[[Any, Upcall], dict[str, Any]]) -> Row:
    return Row((key,), args, answers.pypmix_info_cbfunc, answers.infos_result, ())


ROWS: dict[type[Op[Any]], Row] = {
    ops.ClientConnected: Row(("clientconnected2", "clientconnected"), _connected, free=True),
    ops.ClientFinalized: Row(("clientfinalized",), lambda op, _: from_proc(op.proc), free=True),
    ops.ClientAborted: Row(("abort",), _abort),
    ops.FenceUpcall: Row(
        ("fencenb",),
        lambda op, upcall: {**_together(op, upcall), "data": bytearray(op.data)},
        answers.pypmix_modex_cbfunc,
        answers.data_result,
        b"",
    ),
    ops.DirectModex: Row(
        ("directmodex",),
        lambda op, _: {"proc": from_proc(op.proc), "directives": _to_dicts(op.directives)},
        answers.pypmix_modex_cbfunc,
        answers.data_result,
        b"",
    ),
    ops.Publish: Row(("publish",), _published),
    ops.Lookup: Row(("lookup",), _keys, answers.pypmix_lookup_cbfunc, answers.pdata_result, ()),
    ops.Unpublish: Row(("unpublish",), _keys),
    ops.Spawn: Row(
        ("spawn",),
        lambda op, upcall: {**_caller(upcall), "jobinfo": _to_dicts(op.directives), "apps": from_apps(op.apps)},
        answers.pypmix_spawn_cbfunc,
        answers.nspace_result,
        "",
    ),
    ops.Connect: Row(("connect",), _together),
    ops.Disconnect: Row(("disconnect",), _together),
    ops.RegisterEvents: Row(
        ("registerevents",), lambda op, _: {"codes": list(map(int, op.codes)), "directives": _to_dicts(op.directives)}
    ),
    ops.DeregisterEvents: Row(("deregisterevents",), lambda op, _: {"codes": list(map(int, op.codes))}),
    ops.NotifyEvent: Row(
        ("notifyevent", "notify_event"),
        lambda op, upcall: {
            "code": int(op.code),
            **_source(upcall),
            "range": int(op.range),
            "directives": _to_dicts(op.infos),
        },
        done=True,
    ),
    ops.QueryInfo: _infos_row("query", lambda op, upcall: {"queries": from_queries(op.queries), **_source(upcall)}),
    ops.ToolConnected: Row(
        ("toolconnected2", "toolconnected"),
        _tool,
        answers.pypmix_tool_connection_cbfunc,
        answers.proc_result,
        void=True,
    ),
    ops.Log: Row(
        ("log2", "log"),
        lambda op, upcall: {**_source(upcall), "data": _to_dicts(op.data), "directives": _to_dicts(op.directives)},
        void=True,
    ),
    ops.AllocationRequest: _infos_row(
        "allocate",
        lambda op, upcall: {**_source(upcall), "action": int(op.directive), "directives": _to_dicts(op.directives)},
    ),
    ops.JobControl: _infos_row(
        "jobcontrol",
        lambda op, upcall: {
            **_source(upcall),
            "targets": from_procs(op.targets),
            "directives": _to_dicts(op.directives),
        },
    ),
    ops.ProcessMonitor: _infos_row(
        "monitor",
        lambda op, upcall: {
            **_source(upcall),
            "monitor": from_info(op.monitor),
            "error": int(op.error),
            "directives": _to_dicts(op.directives),
        },
    ),
    ops.Heartbeat: Row((), lambda _op, _upcall: {}, free=True),
    ops.GetCredential: Row(
        ("getcredential",),
        _directed,
        answers.pypmix_credential_cbfunc,
        answers.credential_result,
        Credential(b""),
    ),
    ops.ValidateCredential: Row(
        ("validatecredential",),
        lambda op, upcall: {
            **_directed(op, upcall),
            "credential": from_bytes(op.credential) | {"bytes": bytearray(op.credential)},
        },
        answers.pypmix_validation_cbfunc,
        answers.validation_result,
        (),
    ),
    ops.IOFPull: Row(
        ("iofpull",),
        lambda op, _: {
            "channels": int(op.channels),
            "sources": from_procs(op.procs),
            "directives": _to_dicts(op.directives),
        },
    ),
    ops.IOFDeregister: Row(("iofpull",), _stop, free=True),
    ops.IOFPush: Row(("pushstdin",), _pushed),
    ops.GroupUpcall: _infos_row(
        "group",
        lambda op, _: {
            "op": int(op.operation),
            "group": op.group,
            "procs": from_procs(op.procs),
            "directives": _to_dicts(op.directives),
        },
    ),
    ops.FabricRegister: _infos_row("fabric", _fabric),
    ops.FabricUpdate: _infos_row("fabric", _fabric),
    ops.SessionControl: _infos_row(
        "sessioncontrol",
        lambda op, upcall: {
            **({} if upcall.requestor is None else {"requestor": from_proc(upcall.requestor)}),
            "sessionID": op.session,
            "directives": _to_dicts(op.directives),
        },
    ),
    ops.ResourceBlock: Row(
        ("resourceblock",),
        lambda op, upcall: {
            **({} if upcall.requestor is None else {"requestor": from_proc(upcall.requestor)}),
            "directive": int(op.directive),
            "block": op.block,
            "units": [from_record(each) for each in op.units],
            "info": _to_dicts(op.infos),
        },
    ),
}
"""Each upcall that a server module may have a handler for."""

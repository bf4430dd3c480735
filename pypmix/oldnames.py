"""Names that have changed: the table of old and new names, and the warning that an old name gives.

The page "Changes of names" is made from the table, and `python -m pypmix.renames FILE...` rewrites programs by it.
Nothing imports this module until an old name is used.
"""

from __future__ import annotations

import re
import warnings

from pypmix.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

UNTIL = "2027.6"
"""The release without the old names."""


def _moved(names: str, old: str, new: str) -> dict[str, str]:
    """Return rows for names that are in another module now."""
    return {f"{old}.{name}": f"{new}.{name}" for name in names.split()}


def _decorators(names: str) -> dict[str, str]:
    """Return rows for the decorators that a host had for its upcalls."""
    return {f"pypmix.host.Host.on_{name}": f'on("{name}")' for name in names.split()}


def _arguments(methods: str, old: str, new: str) -> dict[str, str]:
    """Return rows for a parameter of several methods."""
    return {f"pypmix.{method}({old})": new for method in methods.split()}


CLIENT = {
    "allocation_request": "allocate(*)",
    "barrier": "fence(*)",
    "cancel_monitor": "monitors.cancel(*)",
    "compute_distances": "fabric.compute_distances(*)",
    "disconnect": "`disconnect` of the connection, or `me.raw.disconnect`",
    "fabric_register": "fabric.register(*)",
    "fabric_update": "fabric.update(*)",
    "finalize": "close(*)",
    "get_credential": "credentials.get(*)",
    "get_value": "`me.raw.get`, which takes the proc first",
    "group_construct": "`construct` of the group, or `me.raw.group_construct`",
    "group_destruct": "raw.group_destruct(*)",
    "group_enter": "`pypmix.recipes.admission.enter(me, name, by)`",
    "group_invite": "invite(*).form()",
    "group_join": "`accept` of the invitation, or `me.raw.group_join`",
    "group_leave": "raw.group_leave(*)",
    "heartbeat": "monitors.send_heartbeat()",
    "iof_deregister": "`close` of the stream",
    "iof_pull": "output(*).open()",
    "iof_push": "`write` and `close` of `me.input(procs)`, or `me.raw.iof_push`",
    "job_control": "control(procs@0).request(*)",
    "kill": "control(procs@0).kill(*)",
    "lookup_all": "lookup(*)",
    "monitor_file": "monitors.watch_file(*)",
    "monitor_heartbeat": "monitors.watch_heartbeat(*)",
    "pause": "control(procs@0).pause(*)",
    "process_monitor": "monitors.watch(*)",
    "push_input": "`write` and `close` of `me.input(procs)`",
    "query_all": "query(*)",
    "query_info": "raw.query_info(*)",
    "register_cleanup": "control(procs@-).register_cleanup(*)",
    "resolve_nodes": "raw.resolve_nodes(nspace@0)",
    "resolve_peers": "`me.raw.resolve_peers`, which has them in the server's order",
    "resume": "control(procs@0).resume(*)",
    "signal": "control(procs@0).signal(*)",
    "spawned": "`me.parent is not None`",
    "terminate": "control(procs@0).terminate(*)",
    "validate_credential": "credentials.validate(*)",
}
"""The old members of clients and tools."""

GROUP = {
    "address": "`Proc(team.name, Rank.WILDCARD)`, or the group itself",
    "admit": "`pypmix.recipes.admission.admit(team, proc)`",
    "barrier": "fence(*)",
    "enter": "`pypmix.recipes.admission.enter(me, name, by)`",
    "epoch": "membership.epoch",
    "form": "`construct`, which returns the group",
    "get": "`me.get(key, team[rank])`",
    "infos": "membership.infos",
    "is_open": "membership.is_open",
    "leader": "membership.leader",
    "notify": "`me.notify(code, targets=team)`",
    "partial": "membership.is_partial",
    "proc": "`Proc(team.name, Rank.WILDCARD)`, or the group itself",
    "procs": "members",
    "state": "membership.state(*)",
}
"""The old members of groups."""

CONNECTION = {
    "barrier": "fence(*)",
    "get": "`me.get(key, both[rank])`",
    "notify": "`me.notify(code, targets=both)`",
}
"""The old members of connections."""

VARIABLES = {"pypmix.Client": "me", "pypmix.Connection": "both", "pypmix.Group": "team"}
"""The variable that stands for an instance of a class in the new forms that readers see."""

RENAMES = {
    **_moved("Answer", "pypmix", "pypmix.events"),
    **_moved(
        "Accepted Change Changes Declined Destructed Failed GroupEvent GroupResults Invitation InvitationStream Invite "
        "InviteAnswer Joined LeaderFailed LeaderSelected Left MemberFailed",
        "pypmix",
        "pypmix.groups",
    ),
    **_moved(
        "Accepted Change Declined Destructed Failed GroupEvent InviteAnswer Joined LeaderFailed LeaderSelected Left "
        "MemberFailed",
        "pypmix.aio",
        "pypmix.groups",
    ),
    **_moved(
        "AllocInheritance Answers App Attr BindEnvelope Coord CoordView Cpuset Credential DataArray DataBuffer "
        "DataType Device DeviceDistance DeviceType Endpoint Envar Fabric Geometry GroupOperation GroupOpt InfoFlags "
        "JobState LinkState Locality NodePid Pdata ProcInfo ProcSets ProcState PsetChange PsetStream Published "
        "RegAttr ResBlockDirective ResourceUnit StorageAccess StorageAccessType StorageMedium "
        "StoragePersistence Timeval Topology array byte cint cuint double float32 info int8 int16 int32 int64 pid size "
        "timestamp typed uint8 uint16 uint32 uint64",
        "pypmix",
        "pypmix.types",
    ),
    **dict.fromkeys(("pypmix.PublishedData", "pypmix.types.PublishedData"), "pypmix.types.LookupResults"),
    **_moved("ProcSet", "pypmix.host", "pypmix"),
    "pypmix.host.Job": "pypmix.host.JobLayout",
    "pypmix.host.Node": "pypmix.host.NodeLayout",
    "pypmix.host.recording.Answer": "pypmix.recording.RecordedAnswer",
    **_moved(
        "Difference Entry Normal RecordedAnswer Recorder Recording Replay compare read replay",
        "pypmix.host.recording",
        "pypmix.recording",
    ),
    "pypmix.host.Host.ended": "report_end",
    **{f"pypmix.host.Host.{name}": f"server.{name}" for name in ("engine", "pending", "proc")},
    **_decorators(
        "client_connected client_finalized client_aborted client_lost fence direct_modex publish lookup unpublish "
        "spawn connect disconnect register_events deregister_events notify_event tool_connected query log allocate "
        "job_control monitor heartbeat get_credential validate_credential iof_pull iof_push group fabric "
        "compute_distances session_control resource_block"
    ),
    "pypmix.host.Request.answered": "is_answered",
    "pypmix.host.Request.asks": "has_flag",
    "pypmix.host.Request.given": "info.infos",
    **{f"pypmix.Client.{old}": new for old, new in CLIENT.items()},
    **{f"pypmix.Group.{old}": new for old, new in GROUP.items()},
    **{f"pypmix.Connection.{old}": new for old, new in CONNECTION.items()},
    **_arguments("types.DataBuffer.one types.DataBuffer.pack types.DataBuffer.unpack", "type", "data_type"),
    **_arguments("Client.allocate", "id", "allocation_id"),
    **_arguments("Client.monitors.watch_heartbeat Client.monitors.watch_file Client.monitors.cancel", "id", "name"),
    **_arguments("Client.credentials.get", "type", "kinds"),
    **_arguments(
        "Client.get Client.lookup Tool.__init__ Tool.attach_to_server Tool.set_server",
        "wait",
        "timeout",
    ),
    **_arguments("Client.lookup Client.notify Client.publish Client.unpublish host.Host.notify", "range", "data_range"),
    **_arguments("Value.__init__", "type", "data_type"),
}
"""Each old name, from `pypmix` on, and the new one.

- An object of a module: its whole name.
- A member of a class: a path of members and calls from the instance on. In `control(procs@0).kill(*)` the first call
  takes the argument `procs`, by name or else by its position, and the second one takes all other arguments. A call
  with a word in quotes is part of the name. If no path does the same, it is a text for readers, with code in backticks.
- A parameter, which stands in parentheses behind its function: its new name.
"""

ALIASES = {
    **{
        f"pypmix.Client.{old}": new
        for old, new in {
            "disconnect": "_disconnect(*)",
            "get_value": "_get_value(*)",
            "group_construct": "group(*)._form()",
            "group_destruct": "_group_destruct(*)",
            "group_enter": "group(name@0)._enter(*)",
            "group_join": "_group_join(*)",
            "group_leave": "_group_leave(*)",
            "iof_deregister": "_iof_deregister(*)",
            "iof_push": "_push_input(*)",
            "push_input": "_push_input(*)",
            "resolve_peers": "_resolve_peers(*)",
            "spawned": "_spawned",
        }.items()
    },
    "pypmix.Connection.get": "_get(*)",
    "pypmix.Connection.notify": "_notify(*)",
    "pypmix.Group.address": "_address",
    "pypmix.Group.admit": "_admit(*)",
    "pypmix.Group.enter": "_enter(*)",
    "pypmix.Group.form": "_form(*)",
    "pypmix.Group.get": "_get(*)",
    "pypmix.Group.notify": "_notify(*)",
    "pypmix.Group.proc": "_address",
}
"""The paths that still do what an old member did, if its new form does less or something else."""


def split_path(path: str) -> list[tuple[str, list[str] | None]]:
    """Return the members of a path, each with what its call takes; None if it is not called."""
    return [
        (found[1], None if found[2] is None else re.findall(r"[^, ]+", found[2]))
        for found in re.finditer(r"(\w+)(?:\(([^)]*)\))?", path)
    ]


def is_call(new: str) -> bool:
    """Return True if a new form takes the arguments of the old method."""
    return new.endswith(")") and not new.endswith('")') and "`" not in new


def show(old: str) -> str:
    """Return the new form of an old name for readers."""
    new, owner = RENAMES[old], old.rpartition(".")[0]
    if "`" in new or old.endswith(")") or not is_member(old):
        return new
    path = re.sub(r"@[\d-]+", "", new).replace("*", "...")
    return f"{VARIABLES.get(owner, owner)}.{path}"


def is_member(old: str) -> bool:
    """Return True if an old name is one of a member of a class."""
    return not old.endswith(")") and old.rpartition(".")[0].rpartition(".")[2][:1].isupper()


def _warn(old: str, level: int) -> None:
    text = f"{old} is now {show(old)}: the old name goes with release {UNTIL}"
    warnings.warn(text, DeprecationWarning, stacklevel=level + 1)


def find(old: str) -> Any:
    """Warn that the name of an object of a module has changed, and return the object; for a function of `__getattr__`.

    Raises:
        AttributeError: The table does not have the name.
    """
    if old not in RENAMES:
        module, _, name = old.rpartition(".")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    _warn(old, 3)
    module, _, name = RENAMES[old].rpartition(".")
    return getattr(load(module), name)


def find_member(instance: Any, owner: str, name: str) -> Any:
    """Return what the old name of a member stands for; for the `__getattr__` of a class.

    Args:
        instance: The object.
        owner: The whole name of the class, as the table has it.
        name: The old name.

    Raises:
        AttributeError: The table does not have the name.
    """
    old = f"{owner}.{name}"
    if old not in RENAMES:
        raise AttributeError(f"{type(instance).__name__!r} object has no attribute {name!r}", name=name, obj=instance)
    path = ALIASES.get(old, RENAMES[old])
    if not is_call(path):
        _warn(old, 3)
        return follow(instance, path, (), {})

    def call(*given: Any, **options: Any) -> Any:
        _warn(old, 2)
        return follow(instance, path, given, options)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"The old name of {show(old)}."
    return call


def share(keys: list[str], rest: dict[Any, Any]) -> dict[Any, Any]:
    """Remove from the arguments of an old method what one call of the new form takes, and return it.

    Args:
        keys: What the call takes.
        rest: The arguments by position and by name.
    """
    found: dict[Any, Any] = {}
    for each in keys:
        key, _, place = each.partition("@")
        if key == "*":
            found.update(rest)
            rest.clear()
        elif key in rest:
            found[0] = rest.pop(key)
        elif place.isdecimal() and int(place) in rest:
            found[0] = rest.pop(int(place))
        elif key[0] == '"':
            found[0] = key.strip('"')
    return found


def follow(start: Any, path: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Make the calls of a path with the arguments of an old method."""
    rest: dict[Any, Any] = dict(enumerate(args))
    rest.update(options)
    found = start
    for name, taken in split_path(path):
        found = getattr(found, name)
        if taken is not None:
            chosen = share(taken, rest)
            named = {key: value for key, value in chosen.items() if isinstance(key, str)}
            found = found(*[value for key, value in chosen.items() if key not in named], **named)
    return found


def rename_arguments(owner: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Rename arguments that have their old names, with a warning; for the wrapper of `lazy.renamed`.

    Raises:
        TypeError: An argument has both names.
    """
    method = function.__name__
    for old in [*options]:
        row = f"{owner}.{method}({old})"
        new = RENAMES.get(row)
        if new is not None:
            if new in options:
                raise TypeError(f"{method}() got both {new!r} and its former name {old!r}")
            _warn(row, 3)
            value = options.pop(old)
            options[new] = time_limit(method, value) if old == "wait" else value


def time_limit(method: str, wait: float | bool | None) -> float | None:
    """Return the `timeout` that means the same as a former `wait`.

    Args:
        method: The name of the method. A get waits unless it is told not to, and other methods do not.
        wait: True, False, or a number of seconds.
    """
    if wait is True:
        return None if method == "get" else float("inf")
    if wait is False:
        return 0 if method == "get" else None
    return wait


def take_wait(method: str, wait: float | bool | None, timeout: float | None) -> float | None:
    """Return the time limit of a client's call that was given a former `wait`, and warn."""
    if timeout is not None:
        raise TypeError(f"{method}() got both 'timeout' and its former name 'wait'")
    _warn(f"pypmix.Client.{method}(wait)", 3)
    return time_limit(method, wait)

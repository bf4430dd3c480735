"""Names that have moved: the table of old and new names, and the warning that an old name gives.

The page "Names that have moved" is made from the table, and `python -m pypmix.rewriter FILE...` rewrites programs by
it. Nothing imports this module until an old name is used.
"""

from __future__ import annotations

import warnings

from pypmix.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


UNTIL = "2027.6"
"""The release without the old names."""


def _moved(names: str, old: str, new: str) -> dict[str, str]:
    """Return rows for names that are in another module now."""
    return {f"{old}.{name}": f"{new}.{name}" for name in names.split()}


def _decorators(names: str) -> dict[str, str]:
    """Return rows for the decorators that a host had for its upcalls."""
    return {f"pypmix.host.Host.on_{name}": f'pypmix.host.Host.on("{name}")' for name in names.split()}


MOVES = {
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
        "PublishedData RegAttr ResBlockDirective ResourceUnit StorageAccess StorageAccessType StorageMedium "
        "StoragePersistence Timeval Topology array byte cint cuint double float32 info int8 int16 int32 int64 pid size "
        "timestamp typed uint8 uint16 uint32 uint64",
        "pypmix",
        "pypmix.types",
    ),
    **{f"pypmix.types.DataBuffer.{name}(type)": "data_type" for name in ("one", "pack", "unpack")},
    **_moved("ProcSet", "pypmix.host", "pypmix"),
    "pypmix.host.Job": "pypmix.host.JobLayout",
    "pypmix.host.Node": "pypmix.host.NodeLayout",
    "pypmix.host.recording.Answer": "pypmix.host.recording.RecordedAnswer",
    "pypmix.host.Host.ended": "pypmix.host.Host.report_end",
    **_moved("engine pending proc", "pypmix.host.Host", "pypmix.host.Host.server"),
    **_decorators(
        "client_connected client_finalized client_aborted client_lost fence direct_modex publish lookup unpublish "
        "spawn connect disconnect register_events deregister_events notify_event tool_connected query log allocate "
        "job_control monitor heartbeat get_credential validate_credential iof_pull iof_push group fabric "
        "compute_distances session_control resource_block"
    ),
    "pypmix.host.Request.answered": "pypmix.host.Request.is_answered",
    "pypmix.host.Request.asks": "pypmix.host.Request.has_flag",
    "pypmix.host.Request.given": "pypmix.host.Request.info.infos",
}
"""Each old name, from `pypmix` on, and its new name.

A method is named by its class: `pypmix.Client.old` and `pypmix.Client.new`, or `pypmix.Client.raw.new`. A parameter
stands in parentheses, and only its new name beside it: `pypmix.Client.method(old)` and `new`.
"""


def warn(old: str, level: int = 1) -> str:
    """Warn that a name has changed, and return the new name.

    Args:
        old: The old name as in `MOVES`.
        level: The number of callers between this function and the program that uses the old name.
    """
    new = MOVES[old]
    warnings.warn(
        f"{old} is now {new}: the old name goes with release {UNTIL}", DeprecationWarning, stacklevel=level + 2
    )
    return new


def find(old: str) -> Any:
    """Warn that the name of an object of a module has changed, and return the object.

    Raises:
        AttributeError: The table does not have the name.
    """
    if old not in MOVES:
        module, _, name = old.rpartition(".")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    module, _, name = warn(old, 2).rpartition(".")
    return getattr(load(module), name)


def takes_old(owner: str, **names: str) -> Callable[[F], F]:
    """Return a decorator of a method that takes arguments by their old names as well, with a warning.

    Args:
        owner: The whole name of the class, as the table has it.
        names: The new name of each old one.
    """

    from functools import wraps

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            for old in names.keys() & options:
                warn(f"{owner}.{function.__name__}({old})")
                options[names[old]] = options.pop(old)
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def find_member(instance: object, owner: str, name: str) -> Any:
    """Warn that the name of a member of a class has changed, and return the member; for the `__getattr__` of a class.

    Args:
        instance: The object.
        owner: The whole name of the class, as the table has it.
        name: The old name.

    Raises:
        AttributeError: The table does not have the name.
    """
    old = f"{owner}.{name}"
    if old not in MOVES:
        raise AttributeError(f"{type(instance).__name__!r} object has no attribute {name!r}")
    found: Any = instance
    for part in warn(old, 2).removeprefix(owner + ".").split("."):
        # A part may be a call with one word, such as `on("fence")`.
        member, _, word = part.rstrip('")').partition('("')
        found = getattr(found, member)
        found = found(word) if word else found
    return found

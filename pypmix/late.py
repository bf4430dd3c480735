"""Methods that are imported on their first use.

Every rank pays for what `import pypmix` and opening a client load, and most ranks use few of PMIx's operations. So the
operations stand in modules by topic, and a client's class has placeholders that put the real function in their place.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")


class Late:
    """Stands for a method of a class in a module that is not imported yet."""

    __slots__ = ("_home", "_name", "_owner")

    def __init__(self, owner: type, home: tuple[str, str], name: str) -> None:
        self._owner = owner
        self._home = home
        self._name = name

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        from sys import modules

        module, name = self._home
        __import__(module)
        function: Any = getattr(modules[module], name).__dict__[self._name]
        setattr(self._owner, self._name, function)
        return function.__get__(instance, kind)


def late(package: str, topics: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that adds methods by topic.

    Args:
        package: The package that has a module for each topic, and in it a class of the same name, capitalized.
        topics: The names of the methods of each, separated by spaces.
    """

    def add(cls: type[T]) -> type[T]:
        for topic, names in topics.items():
            home = f"{package}.{topic}", topic.capitalize()
            for name in names.split():
                setattr(cls, name, Late(cls, home, name))
        return cls

    return add


TOPICS = {
    "connecting": "connect disconnect",
    "control": (
        "log job_control signal kill terminate pause resume register_cleanup allocation_request allocate "
        "process_monitor monitor_heartbeat monitor_file cancel_monitor heartbeat get_credential validate_credential"
    ),
    "events": "events on notify",
    "fabric": "fabric_register fabric_update compute_distances",
    "forwarding": "output input push_input iof_pull iof_deregister iof_push",
    "groups": "group group_construct group_destruct group_leave group_request _group_names",
    "invitations": "invite group_invite group_join invitations",
    "psets": "_psets _pset_names watch_psets",
    "publishing": "publish lookup lookup_all unpublish",
    "queries": "query query_all query_info resolve_peers resolve_nodes",
    "spawning": "spawn spawned parent _job_ends",
}
"""The operations of clients and tools, by topic; the same for the sync and the async form."""

"""Decorators such as `@rm.on_fence`, which register functions as handlers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    F = TypeVar("F", bound=Callable[[Any], Any])

    class Registrar(Protocol):
        """A host, as its decorators see it: it registers handlers."""

        def on(self, name: str) -> Callable[[F], F]: ...


class On:
    """A decorator `on_NAME` that registers the handler of the upcall NAME."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name.removeprefix("on_")
        self.__doc__ = f"A decorator that has a function handle the upcall `{self._name}` instead of the method."

    if TYPE_CHECKING:

        def __call__(self, function: F) -> F: ...

    else:

        def __get__(self, host: Registrar | None, owner: type) -> Any:
            return self if host is None else host.on(self._name)


class Decorators:
    """One decorator for each method of a host."""

    on_client_connected = On()
    on_client_finalized = On()
    on_client_aborted = On()
    on_client_lost = On()
    on_fence = On()
    on_direct_modex = On()
    on_publish = On()
    on_lookup = On()
    on_unpublish = On()
    on_spawn = On()
    on_connect = On()
    on_disconnect = On()
    on_register_events = On()
    on_deregister_events = On()
    on_notify_event = On()
    on_tool_connected = On()
    on_query = On()
    on_log = On()
    on_allocate = On()
    on_job_control = On()
    on_monitor = On()
    on_heartbeat = On()
    on_get_credential = On()
    on_validate_credential = On()
    on_iof_pull = On()
    on_iof_push = On()
    on_group = On()
    on_fabric = On()
    on_compute_distances = On()
    on_session_control = On()
    on_resource_block = On()

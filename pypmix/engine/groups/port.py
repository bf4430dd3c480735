"""An engine's session as its groups see it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from pypmix.engine.base import Cancellable, Done
    from pypmix.engine.chain import Handlers
    from pypmix.engine.groups.foreign import Support
    from pypmix.standard.ops import Notification, Op
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Proc, Value

    Timer = Cancellable

    class Port(Protocol):
        """An engine's session, as its groups see it.

        All methods are called where `enter` leads, and all functions that are passed to them are called there, unless
        they say otherwise: the groups of a session never run on two threads at a time.
        """

        proc: Proc
        server_release: Release
        """The release of the server; zeros if it does not report one."""

        support: Support
        """The services of the server for groups."""

        recorded: bool
        """Whether a libpmix in this process has a record of groups, which ends by a destruct of all members alone."""

        @property
        def handlers(self) -> Handlers:
            """The session's event handlers: `screen` and `conclude` events, and `raised` for those raised here."""

        def enter(self, step: Callable[[], None]) -> None:
            """Run a function while nothing else of the session runs; from any thread that is not there already."""

        def tell(self, function: Callable[[Any], None], argument: object) -> None:
            """Call a function of the user's side outside of there, in the order of these requests."""

        def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
            """Make the server send events of a code, and call the watcher with each before any handler."""

        def unwatch(self, code: int, watcher: Callable[[Notification], None]) -> None:
            """Undo `watch`."""

        def submit(self, op: Op[Any], done: Done[Any]) -> None:
            """Start an operation of the engine itself: an event, a fence, a construct, a query, a get.

            A server that does not know group names never gets one: the caller has replaced it by the procs. `done` is
            called there, later or before this returns; errors are passed to it.
            """

        def give_up(self, op: Op[Any]) -> None:
            """No longer wait for a fence that `submit` has started: its `done` is not called.

            A foreign server still counts this process in it, so the next fence of the same procs continues it.
            """

        def later(self, seconds: float, call: Callable[[], None]) -> Timer:
            """Call a function after some seconds."""

        def fetch(self, proc: Proc, key: str) -> Value | None:
            """Return the value that this process holds of a proc under a key."""

"""Extensions of the launcher: how it finds them, and the interface of warm start.

The core imports and names no module of the periphery. `pypmix/extensions.ini` registers each extension under a name,
which `load_extension` takes. Rosters implement `rosters/base.py`, and the trace of a run implements `tracing.py`.
"""

from __future__ import annotations

import os

import pypmix
from pypmix.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Protocol

    from pypmix.host.job import Application
    from pypmix.host.loop import HostLoop

    class ForkServer(Protocol):
        """A process that forks warm ranks.

        Attributes:
            pid: Its pid.
            session: Whether each rank is to have a session.
        """

        pid: int
        session: bool

        @property
        def is_running(self) -> bool:
            """Whether it has not been found to have exited."""

        def start(self, start: Any, files: Sequence[int]) -> int:
            """Fork a rank, and return its pid.

            Args:
                start: The rank, as `start` of the program returns it.
                files: Its standard input, output and error.

            Raises:
                OSError: The rank cannot be forked.
            """

        def read_exit(self, pid: int) -> tuple[int | None, int, bool] | None:
            """Return how a rank has ended: exit code, signal, and whether it dumped core; None while it runs."""

        def collect(self, pids: Iterable[int]) -> None:
            """Wait for ranks that have ended, or are about to, so that their zombies go."""

        def end(self) -> str:
            """Wait for the exit of this process, and return a text that explains how it ended."""

    class ForkServers(Protocol):
        """Warm start: the fork servers of a host. It is made with the names of the modules that they import.

        Attributes:
            modules: These names.
        """

        modules: tuple[str, ...]

        @property
        def pids(self) -> set[int]:
            """The pids of the running servers."""

        def watch(self, loop: HostLoop, died: Callable[[Any], None]) -> None:
            """Call a function on a loop when a server exits without having been closed, until `unwatch`."""

        def unwatch(self) -> None:
            """Stop watching the servers."""

        def prepare(
            self, app: Application, program: str, inherited: Mapping[str, str], wdir: str, folder: str
        ) -> tuple[Any, ForkServer] | None:
            """Return the program of an application for its fork server, and the server, which is started if needed.

            Args:
                app: The application.
                program: The program's path.
                inherited: The environment that ranks inherit.
                wdir: Their working directory unless the application names another.
                folder: The host's folder, by which its guard recognizes the server.

            Returns:
                None if the program cannot be forked.

            Raises:
                OSError: The fork server cannot be started.
            """

        def close(self) -> None:
            """Kill all servers."""


REGISTER = os.path.join(pypmix.__path__[0], "extensions.ini")
"""The file that registers the extensions."""


def read_register(path: str = REGISTER) -> dict[str, dict[str, str]]:
    """Return the registered names and their values, by section."""
    sections: dict[str, dict[str, str]] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            text = line.strip()
            if text.startswith("["):
                section = sections.setdefault(text.strip("[]"), {})
            elif text and not text.startswith("#"):
                name, _, value = text.partition(" = ")
                section[name] = value
    return sections


def load_extension(name: str) -> Any:
    """Import the extension that is registered under a name."""
    module, _, found = read_register()["extensions"][name].partition(":")
    return load(module, found)

"""`pypmix run` on several nodes: the choice of the roster, its nodes, and their launcher."""

from __future__ import annotations

import os
from functools import partial

from pypmix.cli.usage import UsageError
from pypmix.host.addresses import ANYWHERE, listening_address, own_addresses
from pypmix.host.rosters.base import ElasticRoster, RosterError, Settings
from pypmix.host.rosters.choosing import SLURM_JOB, choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.cli.options import NodeSelection
    from pypmix.host.local import LocalHost
    from pypmix.host.rosters.base import Roster


class Cluster:
    """The nodes of this run.

    Args:
        roster: The roster that names them.
        selection: The nodes that the command line requests.

    Attributes:
        reason: Why this roster was chosen, in a line for people.
    """

    def __init__(self, roster: Roster, reason: str, selection: NodeSelection) -> None:
        self.reason = reason
        self._roster = roster
        self._selection = selection

    @classmethod
    def find(cls, selection: NodeSelection, env: Mapping[str, str]) -> Cluster | None:
        """Return the nodes of this run; None if it runs on this machine.

        Raises:
            UsageError: The nodes cannot be used.
        """
        overrides = {"python": selection.python} if selection.python else {}
        settings = Settings(
            env, selection.hosts, selection.agent, symmetric=selection.symmetric, meet=selection.meet,
            secret_file=selection.secret_file, interface=selection.interface, patience=selection.patience,
            others=selection.others, **overrides,
        )  # fmt: skip
        try:
            choice = choose(settings, selection.roster)
        except RosterError as error:
            raise UsageError(str(error)) from None
        return None if choice is None else cls(choice[0], choice[1], selection)

    @staticmethod
    def alone(env: Mapping[str, str]) -> tuple[int, str]:
        """Return the slots of this machine alone, 0 if no resource manager gives any, and a remark for a person.

        Raises:
            UsageError: The resource manager's variables cannot be read.
        """
        from pypmix.host.rosters.slurm_group import here

        try:
            return here(env) if SLURM_JOB in env else (0, "")
        except RosterError as error:
            raise UsageError(str(error)) from None

    def join(self) -> int | None:
        """Run as a daemon until the session ends, and return an exit code; None if this is the launcher.

        Raises:
            RosterError: The launcher is not reached.
        """
        return self._roster.join()

    def launcher(
        self, env: Mapping[str, str], kind: Callable[..., LocalHost] | None = None
    ) -> Callable[..., LocalHost]:
        """Return a factory of the launcher, with the parameters of `LocalHost`, once the nodes are known.

        Args:
            env: Variables to add to the environment that ranks inherit from their daemon.
            kind: Its class; `LocalHost` by default.

        Raises:
            RosterError: The nodes cannot be used.
        """
        nodes = self._roster.nodes()
        # Meanwhile the roster may be starting processes there.
        from pypmix.host.local import LocalHost
        from pypmix.host.session import NodeSession

        interface = self._selection.interface
        listen = ANYWHERE
        addresses: list[str] = []
        if interface:
            try:
                listen = listening_address(interface, ())
            except OSError as error:
                raise RosterError(f"--interface: {error.strerror}") from None
        else:
            addresses = own_addresses([nodes[-1].name, *nodes[-1].addresses][-1])
        session = NodeSession(
            nodes,
            self._roster.start,
            listen=listen,
            addresses=addresses,
            interface=interface,
            env=env,
            patience=self._selection.patience,
            keep_alive=self._selection.keep_alive,
            obtain=self._roster.obtain if isinstance(self._roster, ElasticRoster) else None,
            release=self._roster.release if isinstance(self._roster, ElasticRoster) else lambda _node: None,
            encrypt=False if self._selection.plain else None,
        )
        self._roster.watch(session.lost)
        if isinstance(self._roster, ElasticRoster):
            self._roster.attend(session)
        return partial(kind or LocalHost, remote=session, env={**os.environ, **env})

    def close(self) -> None:
        """Release the nodes."""
        self._roster.close()

"""`pypmix run` on several nodes: which roster, its nodes, and the launcher over them."""

from __future__ import annotations

import os
from functools import partial

from pypmix.cli.parser import UsageError
from pypmix.host.addresses import ANYWHERE, listening_address, own_addresses
from pypmix.host.rosters.base import ElasticRoster, RosterError, Settings
from pypmix.host.rosters.choosing import choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.cli.options import Where
    from pypmix.host.local import LocalHost
    from pypmix.host.rosters.base import Roster


class Cluster:
    """The nodes of this run.

    Args:
        roster: Where they come from.
        where: What the command line asks for.

    Attributes:
        reason: Why the roster was taken, in a line for people.
    """

    def __init__(self, roster: Roster, reason: str, where: Where) -> None:
        self.reason = reason
        self._roster = roster
        self._where = where

    @classmethod
    def find(cls, where: Where, env: Mapping[str, str]) -> Cluster | None:
        """Return the nodes of this run; None where that is this machine.

        Raises:
            UsageError: They cannot be had.
        """
        given = {"python": where.python} if where.python else {}
        settings = Settings(
            env, where.hosts, where.agent, symmetric=where.symmetric, meet=where.meet, secret_file=where.secret_file,
            interface=where.interface, patience=where.patience, others=where.others, **given,
        )  # fmt: skip
        try:
            found = choose(settings, where.roster)
        except RosterError as error:
            raise UsageError(str(error)) from None
        return None if found is None else cls(found[0], found[1], where)

    @staticmethod
    def alone(env: Mapping[str, str]) -> tuple[int, str]:
        """Return the slots of this machine alone, 0 if no resource manager gives any, and a remark for a person.

        Raises:
            UsageError: The resource manager's variables cannot be read.
        """
        from pypmix.host.rosters.slurm_group import here

        try:
            return here(env) if "SLURM_JOB_ID" in env else (0, "")
        except RosterError as error:
            raise UsageError(str(error)) from None

    def join(self) -> int | None:
        """Be a daemon until the session is over, and return an exit code; None where this is the launcher.

        Raises:
            RosterError: The launcher is not reached.
        """
        return self._roster.join()

    def launcher(self, env: Mapping[str, str]) -> Callable[..., LocalHost]:
        """Return what makes the launcher, as `LocalHost` is made, once the nodes are known.

        Args:
            env: What is added to the environment that ranks have of their daemon.

        Raises:
            RosterError: The nodes cannot be had.
        """
        nodes = self._roster.nodes()
        # Meanwhile the roster may be starting processes there.
        from pypmix.host.local import LocalHost
        from pypmix.host.session import NodeSession

        interface = self._where.interface
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
            patience=self._where.patience,
            keep_alive=self._where.keep_alive,
            obtain=self._roster.obtain if isinstance(self._roster, ElasticRoster) else None,
            release=self._roster.release if isinstance(self._roster, ElasticRoster) else lambda _node: None,
            encrypt=False if self._where.plain else None,
        )
        self._roster.watch(session.lost)
        if isinstance(self._roster, ElasticRoster):
            self._roster.attend(session)
        return partial(LocalHost, remote=session, env={**os.environ, **env})

    def close(self) -> None:
        """Let go of the nodes."""
        self._roster.close()

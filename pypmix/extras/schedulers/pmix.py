"""The nodes of a job of another PMIx launcher that runs the same `pypmix run` once on each node.

`prterun --map-by ppr:1:node pypmix run --roster pmix -n 8 ./app`, and the same with `prun` on a DVM of PRRTE, or with
Flux or Slurm and their PMIx plugins. Rank 0 is the launcher. It puts its address and a secret, and the others receive
both in a fence: the other launcher's PMIx defines the participants, and keeps the secret within its job.
"""

from __future__ import annotations

import os
import socket

from pypmix.client import Client
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.proof import Secret
from pypmix.host.rosters.symmetric import PORTS, Place, SymmetricRoster, ports
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.rosters.base import Settings

ADDRESS = "pypmix.meet"
SECRET = "pypmix.secret"


class PMIxRoster(SymmetricRoster):
    """The procs of a job, one on each node."""

    name = "pmix"

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return a text with the job; the roster is used only if it was named."""
        # Any rank may run a separate job.
        env = settings.env
        return f"rank {env.get('PMIX_RANK')} of the PMIx job {env['PMIX_NAMESPACE']}" if "PMIX_NAMESPACE" in env else ""

    @classmethod
    def place(cls, settings: Settings) -> Place:
        """Agree with the other procs of the job on the address of the meeting, and return this process's place."""
        if "PMIX_NAMESPACE" not in settings.env:
            raise RosterError("this is not a job of a PMIx launcher: PMIX_NAMESPACE is not set")
        try:
            with Client() as me:
                # The job's number of nodes cannot be used: PRRTE also counts nodes without a proc of the job.
                here = len(me.node.local_procs)
                if here != 1:
                    raise RosterError(
                        f"the job has {here} procs on {me.node.hostname}: start one on each node (--map-by ppr:1:node)"
                    )
                if me.rank == 0:
                    me.put(ADDRESS, f"{socket.gethostname()}:{ports(os.getpid())[0]}")
                    me.put(SECRET, os.urandom(32))
                me.fence(collect=True, timeout=settings.patience)
                host, _, port = str(me.get(ADDRESS, proc=me.job[0])).rpartition(":")
                addresses = tuple([(host, each) for each in range(int(port), int(port) + PORTS)])
                common = Secret(bytes(me.get(SECRET, proc=me.job[0])))
                return Place(me.rank, me.job.size, common, addresses, me.node.hostname)
        except PMIxError as error:
            raise RosterError(f"the nodes cannot agree by PMIx of {settings.env['PMIX_NAMESPACE']}: {error}") from None

"""The PMIx client of a torch process, and the environment variables that torch programs read."""

from __future__ import annotations

import os

from pypmix.client import Client
from pypmix.standard import keys
from pypmix.standard.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.types import Proc

_clients: list[Client] = []
"""The client of this process; empty until it is open."""

_losses: dict[Client, set[Proc]] = {}


def client() -> Client:
    """Return the PMIx client of this process for `torch.distributed`.

    The first call opens it, and the exit of the process finalizes it. A program may open further clients.

    Raises:
        Unreachable: The server cannot be reached or refuses this process.
    """
    # In a forked child, such as a worker of a data loader, the parent's client is closed.
    if not _clients or not _clients[0].is_open:
        _clients[:] = [Client().open()]
    return _clients[0]


def losses() -> set[Proc]:
    """Return the procs of this job that ended without finalizing.

    The set grows with each later event. It stays empty if the server sends no such events.
    """
    me = client()
    if me not in _losses:
        lost: set[Proc] = set()
        _losses.clear()
        _losses[me] = lost
        if me.supports("events") and not me.singleton:
            from pypmix.standard.enums import EventCode

            ends = me.on(EventCode.ERR_PROC_ABORTED)
            ends(lambda event: lost.update([proc for proc in event.affected if proc in me.job]))
    return _losses[me]


def environment() -> dict[str, str]:
    """Set the environment variables of `torchrun` that are not set, and return all of them.

    These are `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `GROUP_RANK` and `GROUP_WORLD_SIZE` (the number of
    the node, and the number of nodes), `ROLE_RANK`, `ROLE_WORLD_SIZE` and `ROLE_NAME`. `pmix://` sets them too; a
    program that needs its `LOCAL_RANK` earlier calls this first.
    """
    me = client()
    job, node = me.job, me.node
    try:
        # The ids of a job's nodes need not begin at 0, nor be consecutive.
        node_ids = [me.get(keys.NODEID, proc) for proc in job]
    except NotFound:
        # Slurm provides only the names of other nodes.
        node_ids = [me.get(keys.HOSTNAME, proc) for proc in job]
    nodes = list(dict.fromkeys(node_ids))
    rank, size = str(me.rank), str(job.size)
    variables = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(node.local_rank),
        "LOCAL_WORLD_SIZE": str(len(node.local_procs)),
        "GROUP_RANK": str(nodes.index(node_ids[me.rank])),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": "default",
    }
    return {name: os.environ.setdefault(name, value) for name, value in variables.items()}

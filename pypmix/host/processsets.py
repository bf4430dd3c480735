"""The process sets of a host, which the servers of all of its nodes have."""

from __future__ import annotations

from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.arguments import Procs
    from pypmix.host.job import Application
    from pypmix.host.manager import Manager
    from pypmix.host.nodes import HostNode


class ProcessSets:
    """Defines and deletes the process sets of a host.

    Args:
        host: The host.
    """

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._sets: dict[str, tuple[str, Procs]] = {}
        """The nspace of the job that each set belongs to, empty for none, and its members."""

    def define(self, name: str, members: Procs, *, job: str = "") -> None:
        """Define a process set on all nodes; see `pypmix.Server.define_process_set`.

        Args:
            name: Its name.
            members: Its procs.
            job: The nspace of the job with which it is deleted; empty for none.
        """
        # All servers have the same sets, so the first one refuses a set that another would refuse.
        for node in self._host.nodes:
            node.define_process_set(name, members)
        self._sets[name] = job, members

    def delete(self, name: str) -> None:
        """Delete a process set on all nodes; see `pypmix.Server.delete_process_set`."""
        self._sets.pop(name, None)
        for node in self._host.nodes:
            node.delete_process_set(name)

    def delete_of_job(self, nspace: str) -> None:
        """Delete the process sets of a job."""
        for name in [name for name, (owner, _) in list(self._sets.items()) if owner == nspace]:
            try:
                self.delete(name)
            except NotFound:
                # Another caller has deleted it.
                continue

    def check_apps(self, apps: Iterable[Application]) -> None:
        """Raise an error if the applications of a further job name a set that exists, or a set of another job."""
        for app in apps:
            if app.pset in self._sets or app.pset.rpartition("@")[0] == self._host.space:
                detail = f"the name {app.pset!r} of a process set is taken"
                raise PMIxError(detail, status=statuses.ERR_EXISTS, operation="spawn")

    def define_on(self, node: HostNode) -> None:
        """Define all sets on a node that has joined."""
        for name, (_, members) in self._sets.items():
            node.define_process_set(name, members)

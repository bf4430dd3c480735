"""The ranks of a job as a Dask cluster: one script is its scheduler, its client and its workers.

    from distributed import Client
    from pypmix.dask import PMIxRunner

    with PMIxRunner() as runner, Client(runner) as client:
        print(client.submit(sum, range(10)).result())

`pypmix run -n 6 python script.py` runs it with four workers, and so do `mpirun`, `prterun` and `srun --mpi=pmix`.

All ranks make a `PMIxRunner`, which opens a PMIx client. Rank 0 starts the scheduler, and gives its addresses to all by
`bcast`; the others take the first one at which it answers. The constructor returns in rank 1 alone, the client: there
the script goes on. The others stay in it, as scheduler and workers, until rank 1 leaves the block or ends; then they
end with code 0. Dask's own code runs on the thread of its event loop, and what waits for PMIx on threads of its own.

Launchers end a job of which a rank fails. Where one is told not to, as by `--keep-going`, Dask gives the tasks of a
lost worker to another one; but ranks 0 and 1 abort the job when the other one or the last worker has failed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import threading
from functools import partial

from pypmix.client import Client
from pypmix.dask.threads import elsewhere
from pypmix.host.addresses import REACH_SECONDS, all_addresses, is_loopback, with_port
from pypmix.lazy import missing
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import NotSupported, PartialSuccess, PMIxError, Unreachable
from pypmix.standard.logtext import get_logger

try:
    from dask_jobqueue.runner import BaseRunner, Role
except ImportError as error:
    raise missing("dask-jobqueue", "dask", error) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from distributed import Scheduler, Worker

    from pypmix.events import Event

__all__ = ["PMIxRunner"]

_log = get_logger("pypmix.dask")

LOOPBACK = "127.0.0.1"

PLACE = ("scheduler_ip", "scheduler_file")
"""The options of a worker that say where its scheduler is."""


class PMIxRunner(BaseRunner):  # type: ignore[misc]
    """The ranks of this job as a Dask cluster: rank 0 is the scheduler, rank 1 the client, the others are workers.

    To be made by all ranks, with the same arguments. It is a context manager, and goes to `distributed.Client` in place
    of an address. At its end, or that of the process, the scheduler and the workers end.

    The scheduler listens on loopback where all ranks are on one node, and else on all interfaces; `host` or `interface`
    in `scheduler_options` says otherwise. Nothing is encrypted but with Dask's own TLS.

    Args:
        timeout: Seconds that the ranks have to come.
        options: Those of `dask_jobqueue.runner.BaseRunner`: `scheduler_options`, `worker_options` and `worker_class`;
            `scheduler=False` where another scheduler is used, `client=False` where another program is the client;
            `asynchronous=True` for `async with`.

    Raises:
        PMIxError: There are too few ranks, a rank has failed before it came, or the scheduler cannot be reached.
        OperationTimeout: Not all have come in time; `missing` names the others, if the server tells.
    """

    def __init__(self, *, timeout: float = 300.0, **options: Any) -> None:
        scheduler, client = options.get("scheduler", True), options.get("client", True)
        if scheduler == any(each in (options.get("worker_options") or {}) for each in PLACE):
            raise ValueError(f"workers are told of another scheduler by {' or '.join(PLACE)}, with scheduler=False")
        self._me = Client().open()
        self._timeout = timeout
        roles = [*(["scheduler"] if scheduler else []), *(["client"] if client else [])]
        self._workers = self._me.job.size - len(roles)
        if self._workers < 1:
            raise PMIxError(
                f"a Dask cluster takes {len(roles) + 1} ranks or more, for {', '.join([*roles, 'workers'])}: "
                f"this job has {self._me.job.size}",
                hint="start the script by a launcher: pypmix run -n 4 python script.py",
            )
        self._roles = roles
        self._lost: set[int] = set()
        self._come = threading.Event()
        self._absent = 0
        given = options["scheduler_options"] = dict(options.get("scheduler_options") or {})
        self._everywhere = not given.keys() & {"host", "interface"}
        if self._everywhere and len(self._me.node.local_procs) == self._me.job.size:
            self._everywhere, given["host"] = False, LOOPBACK
        self._place = ""
        super().__init__(**options)
        if self.role == Role.client and not options.get("asynchronous"):
            # Where the script ends without having left the block.
            atexit.register(self.close)

    @property
    def n_workers(self) -> int:
        """The number of workers, without those that have failed before they came; it waits until the others have."""
        if self.role == Role.client:
            self._come.wait()
        return self._workers - self._absent

    def _gather(self) -> None:
        """Wait, on a thread of its own, until all are parts of the Dask cluster, without those that have failed."""
        if "client" in self._roles:
            threading.Thread(target=self._meet, name="pypmix-runner", daemon=True).start()

    def _meet(self) -> None:
        try:
            self._me.fence(timeout=self._timeout)
        except PartialSuccess as error:
            # Servers that do not tell which ranks are missing end the job with the first that fails.
            missing = {proc.rank for proc in error.missing or () if proc in self._me.job}
            self._absent = len([rank for rank in missing if rank >= len(self._roles)])
        except PMIxError as error:
            # One that is late may still come: Dask waits for it, as for any.
            _log.warning("the workers of the Dask cluster have not all come: %s", error)
        finally:
            self._come.set()

    async def on_scheduler_start(self, scheduler: Scheduler) -> None:
        """The scheduler runs."""
        self._gather()

    async def before_client_start(self) -> None:
        """The scheduler can be reached."""
        self._gather()

    async def on_worker_start(self, worker: Worker) -> None:
        """The scheduler knows this worker."""
        self._gather()

    async def _watch(self) -> None:
        """Learn of ranks that fail."""
        # A launcher without this event ends the job itself.
        with contextlib.suppress(NotSupported):
            await elsewhere(lambda: self._me.on(EventCode.ERR_PROC_ABORTED)(self._failed))

    def _failed(self, event: Event) -> None:
        """Abort the job if it cannot go on without the ranks that an event is about."""
        job, roles = self._me.job, self._roles
        self._lost |= {proc.rank for proc in event.affected if proc in job}
        needed = [role for rank, role in enumerate(roles) if rank in self._lost]
        if needed or len(self._lost) == self._workers:
            self._me.abort(1, f"the {needed[0] if needed else 'last worker'} of the Dask cluster has failed")

    async def get_role(self) -> Role:
        """Return the role of this rank."""
        rank = self._me.rank
        return Role(self._roles[rank]) if rank < len(self._roles) else Role.worker

    async def get_worker_name(self) -> int:
        """Return the name of this worker, its rank."""
        return self._me.rank

    async def start_scheduler(self) -> None:
        """Be the scheduler."""
        # It listens meanwhile. Who fails before all have its address is told of by the call that gives it.
        self._watching = asyncio.ensure_future(self._watch())
        await super().start_scheduler()

    async def set_scheduler_address(self, scheduler: Scheduler) -> None:
        """Give the scheduler's addresses to all."""
        protocol, _, place = str(scheduler.address).rpartition("://")
        found = [place]
        if self._everywhere:
            # Dask's own choice is the one that leads to the internet, if any does.
            host, _, port = place.rpartition(":")
            hosts = dict.fromkeys([host.strip("[]"), *all_addresses()])
            found = [with_port(each, port) for each in hosts if not is_loopback(each)]
        await self._watching
        await elsewhere(partial(self._me.bcast, [protocol, *found], codec=json, timeout=self._timeout))

    async def get_scheduler_address(self) -> str:
        """Return the first of the scheduler's addresses at which it answers."""
        if self.role == Role.client:
            await self._watch()
        protocol, *places = await elsewhere(partial(self._me.bcast, codec=json, timeout=self._timeout))
        for place in places:
            if await _answers(place):
                self._place = place
                return f"{protocol}://{place}"
        raise Unreachable(
            f"the scheduler of the Dask cluster cannot be reached from {self._me.node.hostname} at {', '.join(places)}",
            procs=[self._me.job[0]],
            hint="name an interface that leads to it: scheduler_options={'interface': 'ib0'}",
        )

    async def _close(self) -> None:
        # One that has ended already, as by `Client.shutdown`, would be called again and again until Dask's time is up.
        if self._place and not await _answers(self._place):
            self.scheduler_comm = None
        await super()._close()


async def _answers(place: str) -> bool:
    """Tell whether something listens at an address and a port."""
    host, _, port = place.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), REACH_SECONDS)
    except OSError:
        return False
    writer.close()
    return True

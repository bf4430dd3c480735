"""The ranks of a job as a Dask cluster: one script is its scheduler, its client and its workers.

    from distributed import Client
    from pypmix.dask import PMIxRunner

    with PMIxRunner() as runner, Client(runner) as client:
        print(client.submit(sum, range(10)).result())

`pypmix run -n 6 python script.py` runs it with four workers, and so do `mpirun`, `prterun` and `srun --mpi=pmix`.
"""

# All ranks make a `PMIxRunner`, which opens a PMIx client. Rank 0 starts the scheduler, and broadcasts its addresses
# with `bcast`; the other ranks use the first address at which it answers. The constructor returns only in rank 1, the
# client, where the script continues. The other ranks stay in it, as scheduler and workers, until rank 1 leaves the
# block or exits; then they exit with code 0. Dask's code runs in the thread of its event loop, and calls that wait for
# PMIx run in other threads.
#
# Launchers end a job when a rank fails. With an option such as `--keep-going`, Dask moves the tasks of a lost worker to
# another one; but ranks 0 and 1 abort the job when the other of the two, or the last worker, has failed.

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import threading
from functools import partial

from pypmix.client import Client
from pypmix.dask.threads import run_in_thread
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

SCHEDULER_OPTIONS = ("scheduler_ip", "scheduler_file")
"""The options of a worker that name its scheduler."""


class PMIxRunner(BaseRunner):  # type: ignore[misc]
    """The ranks of this job as a Dask cluster: rank 0 is the scheduler, rank 1 the client, the others are workers.

    All ranks must make it, with the same arguments. It is a context manager; pass it to `distributed.Client` in place
    of an address. When its block ends, or the process exits, the scheduler and the workers exit.

    The scheduler listens on loopback if all ranks are on one node, and otherwise on all interfaces; `host` or
    `interface` in `scheduler_options` overrides this. Connections are encrypted only with Dask's TLS.

    Args:
        timeout: Seconds that the ranks have to join.
        options: Options of `dask_jobqueue.runner.BaseRunner`: `scheduler_options`, `worker_options` and
            `worker_class`; `scheduler=False` if another scheduler is used; `client=False` if another program is the
            client; `asynchronous=True` for `async with`.

    Raises:
        PMIxError: There are too few ranks, a rank failed before it joined, or the scheduler cannot be reached.
        OperationTimeout: Some ranks did not join in time; `missing` names them if the server reports them.
    """

    def __init__(self, *, timeout: float = 300.0, **options: Any) -> None:
        scheduler, client = options.get("scheduler", True), options.get("client", True)
        if scheduler == any(each in (options.get("worker_options") or {}) for each in SCHEDULER_OPTIONS):
            names = " or ".join(SCHEDULER_OPTIONS)
            raise ValueError(f"use {names} in worker_options together with scheduler=False, or neither")
        self._me = Client().open()
        self._timeout = timeout
        roles = [*(["scheduler"] if scheduler else []), *(["client"] if client else [])]
        self._workers = self._me.job.size - len(roles)
        if self._workers < 1:
            raise PMIxError(
                f"a Dask cluster needs {len(roles) + 1} ranks or more, for {', '.join([*roles, 'workers'])}: "
                f"this job has {self._me.job.size}",
                hint="start the script by a launcher: pypmix run -n 4 python script.py",
            )
        self._roles = roles
        self._lost: set[int] = set()
        self._all_joined = threading.Event()
        self._absent = 0
        scheduler_options = options["scheduler_options"] = dict(options.get("scheduler_options") or {})
        self._everywhere = not scheduler_options.keys() & {"host", "interface"}
        if self._everywhere and len(self._me.node.local_procs) == self._me.job.size:
            self._everywhere, scheduler_options["host"] = False, LOOPBACK
        self._address = ""
        super().__init__(**options)
        if self.role == Role.client and not options.get("asynchronous"):
            # The script may exit inside of the block.
            atexit.register(self.close)

    @property
    def n_workers(self) -> int:
        """The number of workers that have joined. The client waits until all workers have joined or failed."""
        if self.role == Role.client:
            self._all_joined.wait()
        return self._workers - self._absent

    def _start_fence(self) -> None:
        """Start a thread that waits until all ranks have joined the Dask cluster or failed."""
        if "client" in self._roles:
            threading.Thread(target=self._fence, name="pypmix-runner", daemon=True).start()

    def _fence(self) -> None:
        try:
            self._me.fence(timeout=self._timeout)
        except PartialSuccess as error:
            # A server that does not report the missing ranks ends the job with the first that fails.
            missing = {proc.rank for proc in error.missing or () if proc in self._me.job}
            self._absent = len([rank for rank in missing if rank >= len(self._roles)])
        except PMIxError as error:
            # A late worker may still join: Dask waits for it, as for any.
            _log.warning("some workers have not joined the Dask cluster: %s", error)
        finally:
            self._all_joined.set()

    async def on_scheduler_start(self, scheduler: Scheduler) -> None:
        """Handle that the scheduler runs."""
        self._start_fence()

    async def before_client_start(self) -> None:
        """Handle that the scheduler can be reached."""
        self._start_fence()

    async def on_worker_start(self, worker: Worker) -> None:
        """Handle that the scheduler has accepted this worker."""
        self._start_fence()

    async def _watch(self) -> None:
        """Register for the loss of ranks."""
        # A launcher without this event ends the job itself.
        with contextlib.suppress(NotSupported):
            await run_in_thread(lambda: self._me.on(EventCode.ERR_PROC_ABORTED)(self._handle_loss))

    def _handle_loss(self, event: Event) -> None:
        """Abort the job if the cluster cannot continue without the lost ranks of an event."""
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
        """Run the scheduler in this rank."""
        # The scheduler starts meanwhile. The broadcast of its address reports ranks that fail before.
        self._watching = asyncio.ensure_future(self._watch())
        await super().start_scheduler()

    async def set_scheduler_address(self, scheduler: Scheduler) -> None:
        """Broadcast the scheduler's addresses."""
        protocol, _, address = str(scheduler.address).rpartition("://")
        addresses = [address]
        if self._everywhere:
            # Dask chooses the address with the route to the internet, which other nodes may not reach.
            host, _, port = address.rpartition(":")
            hosts = dict.fromkeys([host.strip("[]"), *all_addresses()])
            addresses = [with_port(each, port) for each in hosts if not is_loopback(each)]
        await self._watching
        await run_in_thread(partial(self._me.bcast, [protocol, *addresses], codec=json, timeout=self._timeout))

    async def get_scheduler_address(self) -> str:
        """Return the first of the scheduler's addresses at which it answers."""
        if self.role == Role.client:
            await self._watch()
        protocol, *addresses = await run_in_thread(partial(self._me.bcast, codec=json, timeout=self._timeout))
        for address in addresses:
            if await _is_listening(address):
                self._address = address
                return f"{protocol}://{address}"
        raise Unreachable(
            f"the scheduler of the Dask cluster cannot be reached from {self._me.node.hostname} at "
            f"{', '.join(addresses)}",
            procs=[self._me.job[0]],
            hint="name the interface of the network between the nodes: scheduler_options={'interface': 'ib0'}",
        )

    async def _close(self) -> None:
        # Dask would call a scheduler that has exited, as by `Client.shutdown`, again and again until its time limit.
        if self._address and not await _is_listening(self._address):
            self.scheduler_comm = None
        await super()._close()


async def _is_listening(address: str) -> bool:
    """Return True if a process listens at an address with a port."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), REACH_SECONDS)
    except OSError:
        return False
    writer.close()
    return True

"""Processes of JAX that find each other by PMIx: it is enough to import this module.

    import jax
    import pypmix.jax

    jax.distributed.initialize()

JAX asks the first of its cluster environments that says it is present; this one, `pmix`, comes before JAX's own, and
is present in every process that a PMIx launcher has started. It needs `pypmix-hpc[jax]`.

Process 0 runs JAX's coordinator, on a port that JAX binds only after it has been told. So process 0 takes a free port
and holds it for good; `SO_REUSEPORT`, which JAX's server sets too, is set on the held socket afterwards, so that the
system lets JAX's server share the port and gives it to no other user's process, nor to one that asks for any port.
The steps, all in the thread that calls `initialize`, and each within its `initialization_timeout`:

1. Process 0 holds a port, answers on it with a random token in a thread, and tells all of its addresses (`bcast`).
2. Each process takes the first address on which it gets the token, and all tell each other (`allgather`). If one has
   found none, all raise.
3. Process 0 answers no more (`barrier`), and goes on to start JAX's server. The others wait until that listens: JAX's
   clients wait for a second where they come too early.

From then on it is JAX's native code that waits for all processes. No Python code runs in the thread that has called it,
and it ends the process at its time limit, so that the end of another process cannot become an exception there. What
PMIx tells of it is logged at once, by another thread.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time

from pypmix.client import Client
from pypmix.host.addresses import ANYWHERE, REACH_SECONDS, all_addresses, listen, with_port
from pypmix.lazy import missing
from pypmix.requests.exchanging import seconds_left
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import OperationTimeout, PartialSuccess, PMIxError, Unreachable
from pypmix.standard.types import decimal

try:
    from jax._src.clusters import ClusterEnv
except ImportError as error:
    raise missing("JAX", "jax", error) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.events import Event
    from pypmix.standard.types import Proc

__all__ = ["PMIxCluster"]

logger = logging.getLogger(__name__)

TIMEOUT = 300
"""JAX's own limit in seconds, where it names none."""

DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

POLL_SECONDS = 0.01

OPERATION = "jax.distributed.initialize"
REACH_HINT = "does a firewall let them through? JAX_COORDINATOR_ADDRESS names another address of process 0, and a port"
PORT_HINT = "JAX_COORDINATOR_PORT has asked for it; without it a free one is taken"


class PMIxCluster(ClusterEnv):  # type: ignore[misc]
    """The cluster environment `pmix`; JAX calls these methods, in their order, in `jax.distributed.initialize`."""

    name: str = "pmix"

    _client: Client | None = None
    _lost: set[Proc]
    _held: socket.socket | None = None

    @classmethod
    def come_first(cls) -> None:
        """Have JAX ask this environment before its own.

        Those for Slurm and Open MPI guess a port, and the one for Slurm takes a daemon's place for those of its ranks.
        """
        cls._cluster_types.remove(cls)
        cls._cluster_types.insert(0, cls)

    @classmethod
    def _me(cls) -> Client:
        # It stays open until the end of the process, by which launchers tell an end from a crash.
        if cls._client is None or not cls._client.is_open:
            me = cls._client = Client(singleton="forbid").open()
            cls._lost = set()
            if me.supports("events"):
                me.on(EventCode.ERR_PROC_ABORTED)(lambda event: cls._loses(me, event))
        return cls._client

    @classmethod
    def _loses(cls, me: Client, event: Event) -> None:
        lost = [proc for proc in event.affected if proc in me.job]
        cls._lost.update(lost)
        for proc in lost:
            logger.error("process %d of JAX (%s) has ended without finalizing; JAX waits to its limit", proc.rank, proc)

    @classmethod
    def is_env_present(cls) -> bool:
        """Tell whether a PMIx launcher has started this process."""
        return "PMIX_NAMESPACE" in os.environ and "PMIX_RANK" in os.environ

    @classmethod
    def get_coordinator_address(cls, timeout_secs: int | None, override_coordinator_port: str | None = None) -> str:
        """Return where this process reaches the coordinator, which process 0 runs on a port that it holds already.

        Args:
            timeout_secs: Seconds until this ends with an error, in every process.
            override_coordinator_port: The port; one that is free by default.

        Raises:
            PartialSuccess: A process has ended without coming.
            OperationTimeout: Not all have come in time, or process 0 does not start JAX's server.
            Unreachable: Some processes do not reach process 0; all raise this.
            PMIxError: The port is not free at process 0; all raise this.
        """
        me = cls._me()
        seconds = TIMEOUT if timeout_secs is None else timeout_secs
        deadline = time.monotonic() + seconds
        offer = _Offer(override_coordinator_port or "0") if me.rank == 0 else None
        try:
            told = me.bcast(offer and offer.told, codec=json, timeout=seconds)
            if "error" in told:
                raise PMIxError(told["error"], operation=OPERATION, hint=PORT_HINT)
            found = _find(told, deadline)
            answers = me.allgather(found, timeout=seconds_left(deadline))
            if lost := [proc for proc, answer in zip(me.job, answers, strict=True) if not answer]:
                where = f"{', '.join(told['addresses'])}, port {told['port']}"
                text = f"process 0 of JAX cannot be reached at {where}"
                raise Unreachable(text, operation=OPERATION, procs=lost, hint=REACH_HINT)
        finally:
            if offer is not None:
                offer.close()
        me.barrier(timeout=seconds_left(deadline))
        if offer is not None:
            cls._held = offer.held
        else:
            _wait(found, told["port"], deadline, seconds, cls._lost)
        return with_port(found, told["port"])

    @classmethod
    def get_process_count(cls) -> int:
        """Return the size of the job."""
        return cls._me().job.size

    @classmethod
    def get_process_id(cls) -> int:
        """Return the rank of this process."""
        return cls._me().rank

    @classmethod
    def get_local_process_id(cls) -> int | None:
        """Return which of its node's devices this process uses: that of its place among the node's processes.

        None, all that it sees, where it sees fewer than there are processes: then they have been shared out already.
        """
        node = cls._me().node
        for name in DEVICES:
            if (seen := os.environ.get(name)) is not None and len(seen.split(",")) < len(node.local_procs):
                return None
        return node.local_rank


PMIxCluster.come_first()


class _Offer:
    """The port that process 0 holds, and the thread that answers on it.

    Args:
        wanted: The port; 0 for any that is free.

    Attributes:
        told: What the others need to find it, or the error.
        held: The socket that holds the port for as long as it is kept.
    """

    def __init__(self, wanted: str) -> None:
        self._listener: socket.socket | None = None
        self.held: socket.socket | None = None
        self.told: dict[str, Any] = {}
        number = decimal(wanted, 0xFFFF)
        if number is None:
            self.told = {"error": f"process 0 cannot hold the port {wanted!r:.80}: that is not a port"}
            return
        try:
            self.held = _hold(number)
            port = self.held.getsockname()[1]
            self._listener = listen((ANYWHERE, port), reuse_port=True)
        except OSError as error:
            self.told = {"error": f"process 0 cannot hold the port {number or '(any)'}: {error.strerror}"}
            return
        self._token = secrets.token_hex(8)
        self.told = {"port": port, "token": self._token, "addresses": all_addresses()}
        threading.Thread(target=self._answer, args=(self._listener,), name="pypmix-jax", daemon=True).start()

    def _answer(self, listener: socket.socket) -> None:
        while True:
            try:
                asking, _ = listener.accept()
            except OSError:
                return
            with asking:
                try:
                    asking.sendall(self._token.encode())
                except OSError:
                    pass  # it has gone

    def close(self) -> None:
        """Answer no more."""
        if self._listener is not None:
            # Closing alone does not wake the thread, which would go on to listen beside JAX's server.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


def _hold(port: int) -> socket.socket:
    """Return a socket that holds a free port, and that lets servers of this user share it from now on.

    Raises:
        OSError: The port is taken.
    """
    held = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    try:
        if held.family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if port:
            # Connections of a job before may not have ended yet.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        held.close()
        raise
    return held


def _find(told: dict[str, Any], deadline: float) -> str:
    """Return the first of process 0's addresses at which it answers; empty if there is none."""
    token = told["token"].encode()
    for address in told["addresses"]:
        left = min(deadline - time.monotonic(), REACH_SECONDS)
        if left <= 0:
            break
        try:
            with socket.create_connection((address, told["port"]), left) as reached:
                if reached.recv(len(token), socket.MSG_WAITALL) == token:
                    return str(address)
        except OSError:
            pass
    return ""


def _wait(address: str, port: int, deadline: float, seconds: float, lost: set[Proc]) -> None:
    """Return when a server listens on the port.

    Raises:
        PartialSuccess: A process has ended, so that JAX would wait for it to no end.
        OperationTimeout: None does in time.
    """
    while True:
        if gone := sorted(lost):
            text = "processes of JAX have ended before all were connected"
            raise PartialSuccess(text, operation=OPERATION, missing=gone)
        try:
            with socket.create_connection((address, port), seconds_left(deadline)) as reached:
                # Where the port is free again, the system may connect a socket to itself.
                if reached.getsockname() != reached.getpeername():
                    return
        except OSError:
            pass
        if time.monotonic() >= deadline:
            text = f"process 0 has not started JAX's coordinator at {address} port {port} within {seconds:g} s"
            raise OperationTimeout(text, operation=OPERATION)
        time.sleep(POLL_SECONDS)

"""JAX processes find each other by PMIx: it is enough to import this module.

    import jax
    import pypmix.jax

    jax.distributed.initialize()

It needs `pypmix-hpc[jax]`.
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
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import OperationTimeout, PartialSuccess, PMIxError, Unreachable
from pypmix.standard.naming import common_job
from pypmix.standard.types import decimal
from pypmix.steps import seconds_left

try:
    from jax._src.clusters import ClusterEnv
except ImportError as error:
    raise missing("JAX", "jax", error) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.events import Event
    from pypmix.standard.types import Proc

# JAX uses the first of its cluster environments that is present. `pmix` precedes JAX's environments, and is present in
# every process that a PMIx launcher has started.
#
# Process 0 runs JAX's coordinator, but JAX binds the port long after it has announced it. So process 0 binds a free
# port and holds it until it exits. It sets `SO_REUSEPORT`, as JAX's server does, only after its bind: the system then
# lets JAX's server share the port, but gives it neither to another user's process nor to a request for any free port.
# All steps run in the thread that calls `initialize`, within its `initialization_timeout`:
#
# 1. Process 0 holds a port, answers on it with a random token in a thread, and broadcasts its addresses (`bcast`).
# 2. Each process chooses the first address on which it receives the token, and all exchange the results (`allgather`).
#    If a process found no address, all raise.
# 3. Process 0 closes its listener (`barrier`), and starts JAX's server. The other processes wait until it listens, as
#    JAX's clients sleep for a second if they connect too early.
#
# Then JAX's native code waits for all processes. It runs no Python code in the calling thread and ends the process at
# its time limit, so the loss of another process cannot raise an exception there: another thread logs it at once.

__all__ = ["PMIxCluster"]

logger = logging.getLogger(__name__)

TIMEOUT = 300
"""JAX's default limit, in seconds."""

DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

POLL_SECONDS = 0.01

OPERATION = "jax.distributed.initialize"
REACH_HINT = "does a firewall let them through? JAX_COORDINATOR_ADDRESS names another address of process 0, and a port"
PORT_HINT = "JAX_COORDINATOR_PORT names this port; unset it to use any free port"


class PMIxCluster(ClusterEnv):  # type: ignore[misc]
    """The cluster environment `pmix`; `jax.distributed.initialize` calls these methods in their order."""

    name: str = "pmix"

    _client: Client | None = None
    _lost: set[Proc]
    _held: socket.socket | None = None

    @classmethod
    def come_first(cls) -> None:
        """Put this environment before JAX's environments."""
        # JAX's environments for Slurm and Open MPI guess a port, and the one for Slurm takes the id of a daemon for the
        # id of its ranks.
        cls._cluster_types.remove(cls)
        cls._cluster_types.insert(0, cls)

    @classmethod
    def _me(cls) -> Client:
        # It stays open until the process exits: launchers take an exit without a finalize for a crash.
        if cls._client is None or not cls._client.is_open:
            me = cls._client = Client(singleton="forbid").open()
            cls._lost = set()
            if me.supports("events"):
                me.on(EventCode.ERR_PROC_ABORTED)(lambda event: cls._record_loss(me, event))
        return cls._client

    @classmethod
    def _record_loss(cls, me: Client, event: Event) -> None:
        lost = [proc for proc in event.affected if proc in me.job]
        cls._lost.update(lost)
        for proc in lost:
            logger.error("process %d of JAX (%s) has ended without finalizing; JAX waits to its limit", proc.rank, proc)

    @classmethod
    def is_env_present(cls) -> bool:
        """Return True if a PMIx launcher has started this process."""
        return "PMIX_NAMESPACE" in os.environ and "PMIX_RANK" in os.environ

    @classmethod
    def get_coordinator_address(cls, timeout_secs: int | None, override_coordinator_port: str | None = None) -> str:
        """Return an address of the coordinator that this process can reach, with a port that process 0 holds already.

        Args:
            timeout_secs: Seconds until this fails, in every process.
            override_coordinator_port: The port; any free port by default.

        Raises:
            PartialSuccess: A process has ended without calling this.
            OperationTimeout: Not all processes called this in time, or process 0 does not start JAX's server.
            Unreachable: Some processes cannot reach process 0; all processes raise this.
            PMIxError: The port is not free at process 0; all processes raise this.
        """
        me = cls._me()
        seconds = TIMEOUT if timeout_secs is None else timeout_secs
        deadline = time.monotonic() + seconds
        offer = _Offer(override_coordinator_port or "0") if me.rank == 0 else None
        try:
            message = me.bcast(offer and offer.message, codec=json, timeout=seconds)
            if "error" in message:
                raise PMIxError(message["error"], operation=OPERATION, hint=PORT_HINT)
            address = _find_address(message, deadline)
            answers = me.allgather(address, timeout=seconds_left(deadline))
            if unable := [proc for proc, answer in zip(me.job, answers, strict=True) if not answer]:
                where = f"{', '.join(message['addresses'])}, port {message['port']}"
                text = f"process 0 of JAX cannot be reached at {where}"
                raise Unreachable(text, operation=OPERATION, procs=unable, hint=REACH_HINT, job=me.nspace)
        finally:
            if offer is not None:
                offer.close()
        me.fence(timeout=seconds_left(deadline))
        if offer is not None:
            cls._held = offer.held
        else:
            _await_server(address, message["port"], deadline, seconds, cls._lost)
        return with_port(address, message["port"])

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
        """Return the index of this process's device: its rank on the node.

        Returns:
            None, for all visible devices, if it sees fewer devices than the node has processes: the launcher has
            already divided them.
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
        port: The port as text; 0 for any free port.

    Attributes:
        message: The port, token and addresses for the other processes, or the error.
        held: The socket that holds the port until it is closed.
    """

    def __init__(self, port: str) -> None:
        self._listener: socket.socket | None = None
        self.held: socket.socket | None = None
        self.message: dict[str, Any] = {}
        number = decimal(port, 0xFFFF)
        if number is None:
            self.message = {"error": f"process 0 cannot hold the port {port!r:.80}: that is not a port"}
            return
        try:
            self.held = _hold(number)
            number = self.held.getsockname()[1]
            self._listener = listen((ANYWHERE, number), reuse_port=True)
        except OSError as error:
            self.message = {"error": f"process 0 cannot hold the port {number or '(any)'}: {error.strerror}"}
            return
        self._token = secrets.token_hex(8)
        self.message = {"port": number, "token": self._token, "addresses": all_addresses()}
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
                    pass  # the process has closed the connection

    def close(self) -> None:
        """Stop answering."""
        if self._listener is not None:
            # `close` does not wake the thread, which would still listen beside JAX's server.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


def _hold(port: int) -> socket.socket:
    """Return a socket that holds a free port, and lets servers of this user share it.

    Raises:
        OSError: The port is taken.
    """
    held = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    try:
        if held.family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if port:
            # Connections of a former job may still be closing.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        held.close()
        raise
    return held


def _find_address(message: dict[str, Any], deadline: float) -> str:
    """Return the first address at which process 0 answers; empty if it answers at none."""
    token = message["token"].encode()
    for address in message["addresses"]:
        left = min(deadline - time.monotonic(), REACH_SECONDS)
        if left <= 0:
            break
        try:
            with socket.create_connection((address, message["port"]), left) as connection:
                if connection.recv(len(token), socket.MSG_WAITALL) == token:
                    return str(address)
        except OSError:
            pass
    return ""


def _await_server(address: str, port: int, deadline: float, seconds: float, lost_procs: set[Proc]) -> None:
    """Wait until a server listens on the port.

    Raises:
        PartialSuccess: A process has ended, so that JAX would wait for it forever.
        OperationTimeout: No server listens in time.
    """
    while True:
        if missing := sorted(lost_procs):
            text = "processes of JAX have ended before all were connected"
            raise PartialSuccess(text, operation=OPERATION, missing=missing, job=common_job(missing))
        try:
            with socket.create_connection((address, port), seconds_left(deadline)) as connection:
                # If the port is free again, the system may connect a socket to itself.
                if connection.getsockname() != connection.getpeername():
                    return
        except OSError:
            pass
        if time.monotonic() >= deadline:
            text = f"process 0 has not started JAX's coordinator at {address} port {port} within {seconds:g} s"
            raise OperationTimeout(text, operation=OPERATION)
        time.sleep(POLL_SECONDS)

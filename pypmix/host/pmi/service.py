"""Serves PMI-1 to the ranks of this node: each process that speaks it is a PMIx client here.

A rank finds the address of this service in its environment. When the first one connects, a thread starts in which each
process that speaks PMI has a client of the Python engine: its puts are puts, its barrier is a collecting fence, and it
spawns, publishes and looks up as a PMIx client does. So every kind of server and any number of nodes serve PMI, and the
other ranks see a rank like any other. Ranks that speak PMIx pay for a few variables only.

The service is reached by an address (`PMI_PORT`), not by a descriptor (`PMI_FD`): shells, `env` and programs that start
other programs may close descriptors. The rule of the Python server decides who may connect (`Admission`): a process
that speaks PMI has no credential but the kernel's report of its user, so it counts as a client of the module `native`.
"""

from __future__ import annotations

import os
import threading
import time
from _weakref import ref

from pypmix.engine.common import NATIVE, UNCHECKED, configured_security
from pypmix.engine.peeruid import Owners, is_current_user, listen_on_loopback
from pypmix.host.loop import READ
from pypmix.host.pmi.registration import PREPUT, Registration
from pypmix.standard.errors import PMIxError
from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import asyncio
    from collections.abc import Mapping

    from pypmix.host.loop import HostLoop
    from pypmix.standard.types import Proc

_log = get_logger("pypmix.host")

BACKLOG = 1024
MAX_NUMBER = 999_999_999
"""PMI ids are random: where the kernel cannot report users, and `unchecked` allows it, the id is what proves a rank."""

_CLIENT = ("PMIX_", "PYPMIX_")
VERSION = "MPIR_CVAR_PMI_VERSION"
"""MPICH refuses to choose if its environment has both PMI and PMIx; a build that knows PMIx alone ignores a 1."""


class Entrance:
    """The users of the processes that connect."""

    def __init__(self) -> None:
        from pypmix.engine.admission import Admission

        self._security = configured_security()
        self._admission = Admission(time.monotonic, is_current_user, self._security)
        self._reported: set[int | None] = set()
        self.delay = self._admission.delay
        self.refused = self._admission.refused

    def reason_to_refuse(self, uid: int | None) -> str:
        """Return why the connections of a user are refused; empty if they are not.

        Args:
            uid: The user that the kernel reports; see `Admission`.
        """
        try:
            self._admission.check_module(NATIVE)
            # The process names its rank in its first command, or is refused then.
            self._admission.check(uid, NATIVE, os.geteuid(), named=True)
            return ""
        except PMIxError as error:
            reason = error.detail
        self.refused(uid)
        if NATIVE not in self._security:
            reason += ": PMI-1 has no credential of munge, so set PYPMIX_SECURITY=native,munge"
        elif uid is None:
            reason += f": PYPMIX_SECURITY={UNCHECKED} admits any process of this machine that knows a rank's PMI_ID"
        if uid not in self._reported:
            self._reported.add(uid)
            _log.warning("processes that speak PMI-1 are refused: %s", reason)
        return reason


class PmiService:
    """The PMI service of a node."""

    def __init__(self) -> None:
        self._loop: HostLoop
        self._registered: dict[int, ref[Registration]] = {}
        self._listener: _socket.socket | None = None
        self._address = ""
        self._thread: threading.Thread | None = None
        self._asyncio: asyncio.AbstractEventLoop | None = None
        self._closed = threading.Event()

    def register(
        self, loop: HostLoop, proc: Proc, size: int, env: Mapping[str, str]
    ) -> tuple[Registration, dict[str, str]]:
        """Let a rank connect.

        Args:
            loop: The loop of the host, which notices the first connection.
            proc: The rank.
            size: The number of ranks of its job.
            env: The environment that it is to have.

        Returns:
            What keeps it registered, and the variables to add to its environment.
        """
        if self._listener is None:
            self._loop = loop
            self._listener = listen_on_loopback(BACKLOG)
            self._address = "{}:{}".format(*self._listener.getsockname()[:2])
            self._loop.watch(self._listener.fileno(), READ, self._start)
        # Few ranks ever connect here: keep what makes a client this rank, and not the rest of its environment.
        own = {name: value for name, value in env.items() if name.startswith(_CLIENT)}
        registration = Registration(self._make_number(), proc, size, own)
        number = registration.number
        self._registered[number] = ref(registration, lambda _gone: self._registered.pop(number, None))
        variables = {
            "PMI_PORT": self._address,
            "PMI_ID": str(registration.number),
            "PMI_RANK": str(proc.rank),
            "PMI_SIZE": str(size),
        }
        if VERSION not in env:
            variables[VERSION] = "1"
        if PREPUT in env:
            variables["PMI_SPAWNED"] = "1"
        return registration, variables

    def _make_number(self) -> int:
        while True:
            number = int.from_bytes(os.urandom(8), "big") % MAX_NUMBER + 1
            if number not in self._registered:
                return number

    def _start(self) -> None:
        """Hand the listener to a thread, as the first process connects."""
        assert self._listener is not None
        self._loop.unwatch(self._listener.fileno())
        self._thread = threading.Thread(target=self._run, name="pypmix-pmi", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import asyncio

        asyncio.run(self._serve())

    async def _serve(self) -> None:
        import asyncio
        import socket

        from pypmix.host.pmi.process import PmiProcess
        from pypmix.host.pmi.wire import encode

        assert self._listener is not None
        listener = socket.socket(fileno=self._listener.detach())
        owners = Owners()
        owners.probe()
        entrance = Entrance()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            uid = owners.find(writer.get_extra_info("socket"))
            try:
                if reason := entrance.reason_to_refuse(uid):
                    writer.write(encode("initack", {"rc": -1, "msg": f"refused: {reason}".replace(" ", "_")}))
                    return
                await asyncio.sleep(entrance.delay(uid))
                if not await PmiProcess(self._registered, reader, writer).serve():
                    entrance.refused(uid)
            except asyncio.CancelledError:
                # The service is closed: its thread ends next, and nothing else waits for this task.
                pass
            finally:
                writer.close()

        done = asyncio.Event()
        self._stop = done.set
        self._asyncio = asyncio.get_running_loop()
        server = await asyncio.start_server(connected, sock=listener)
        try:
            if not self._closed.is_set():
                await done.wait()
        finally:
            # Leaving the server's context would wait for all connections to end, from Python 3.12 on.
            server.close()
            owners.close()

    def close(self) -> None:
        """Stop serving: the clients of processes that are still connected end as processes do that exit."""
        self._closed.set()
        if self._thread is None:
            if self._listener is not None:
                self._loop.unwatch(self._listener.fileno())
                self._listener.close()
        elif self._asyncio is not None:
            self._asyncio.call_soon_threadsafe(self._stop)
            self._thread.join(5)
        self._listener = None

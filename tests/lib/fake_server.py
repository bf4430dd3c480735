"""A tiny PMIx server over a loopback socket, whose answers a test chooses; for tests of the Python client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import Info, Proc
from pypmix.standard.values import from_python, uint32
from pypmix.wire.frames import FrameReader, frame
from pypmix.wire.handshake import HelloReader, encode_reply
from pypmix.wire.jobinfo import encode_jobinfo
from pypmix.wire.messages import Command, encode_get_object, encode_status, peek_command, reply_layout

RELEASE = (5, 0, 11)
NSPACE = "job"


def job(size: int = 4) -> JobInfo:
    """Return the job info of a job on two nodes: all ranks but the last on the first."""
    here = ",".join(map(str, range(size - 1)))
    return JobInfo(
        NSPACE,
        job=(Info("pmix.job.size", uint32(size)), Info("pmix.univ.size", uint32(size))),
        nodes=(
            (
                Info("pmix.nodeid", uint32(0)),
                Info("pmix.hname", from_python("n0")),
                Info("pmix.lpeers", from_python(here)),
            ),
            (Info("pmix.nodeid", uint32(1)), Info("pmix.hname", from_python("n1"))),
        ),
        apps=((Info("pmix.appnum", uint32(0)), Info("pmix.app.size", uint32(size))),),
        procs=tuple(
            (
                rank,
                (
                    Info("pmix.nodeid", uint32(int(rank == size - 1))),
                    Info("pmix.hname", from_python("n1" if rank == size - 1 else "n0")),
                    Info("pmix.appnum", uint32(0)),
                ),
            )
            for rank in range(size)
        ),
    )


def get_reply(proc: Proc, *kvals: bytes, status: int = 0) -> bytes:
    """Return the payload that answers a get."""
    if status:
        return encode_status(1, status)
    return reply_layout(Command.GETNB, RELEASE).encode(
        1, RELEASE, status=0, objects=(encode_get_object(1, proc, kvals),)
    )


class FakeServer:
    """Serves one client at a time.

    Attributes:
        requests: The command and the payload of each message, in the order they came.
        answer: What to reply to a payload, or None for nothing; a test may replace it.
        env: The environment that leads a client here.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self.answer: Callable[[int, bytes], bytes | None] = lambda command, payload: encode_status(1, 0)
        self.hello: Callable[[socket.socket], bool] = lambda peer: True
        self.peer: socket.socket | None = None
        self.tags: list[int] = []
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.env = {
            "PMIX_NAMESPACE": NSPACE,
            "PMIX_RANK": "0",
            "PMIX_SERVER_URI41": f"server.0;tcp4://127.0.0.1:{port}",
            "PMIX_VERSION": "5.0.11rc1",
            "PMIX_SECURITY_MODE": "native",
            "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
            "PMIX_GDS_MODULE": "shmem2,hash",
            "PMIX_HOSTNAME": "n0",
        }
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def reply(self, tag: int, payload: bytes) -> None:
        """Send a reply by hand."""
        assert self.peer is not None
        self.peer.sendall(frame(0, tag, payload))

    def drop(self) -> None:
        """Cut the client off."""
        if self.peer is not None:
            self.peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self.peer is not None:
            try:
                self.peer.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.peer = peer
            with peer:
                try:
                    self._talk(peer)
                except OSError:
                    pass
            self.ended.set()

    def _talk(self, peer: socket.socket) -> None:
        hellos = HelloReader()
        while hellos.feed(data := peer.recv(65536)) is None:
            if not data:
                return
        if not self.hello(peer):
            return
        peer.sendall(encode_reply(0, 7))
        frames = FrameReader()
        while data := peer.recv(65536):
            for tag, payload in frames.feed(data):
                command = peek_command(payload, 1)
                self.requests.append((command, payload))
                self.tags.append(tag)
                reply = encode_jobinfo(job(), 1, RELEASE) if command == Command.REQ else self.answer(command, payload)
                if reply is not None:
                    peer.sendall(frame(0, tag, reply))


@contextmanager
def serving() -> Iterator[FakeServer]:
    """Run a server for the length of a test."""
    server = FakeServer()
    try:
        yield server
    finally:
        server.close()

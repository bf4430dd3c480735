"""A server of the bindings in this process, with clients beside it: what the tests of servers share."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pypmix
from pypmix.compat import PMIX_JOB_SIZE, PMIX_NODE_MAP, PMIX_PROC_MAP, PMIX_STRING, PMIX_SUCCESS, PMIX_UINT32
from pypmix.compat.server import PMIxServer
from pypmix.compat.serverhost import Hosting

LIMIT = 60.0
HERE = socket.gethostname()
ELSEWHERE = "elsewhere"


def connected(proc: Any, cbfunc: Any, cbdata: Any) -> int:
    cbfunc(PMIX_SUCCESS, cbdata)
    return int(PMIX_SUCCESS)


def hosting(server: PMIxServer) -> Hosting:
    """Return what is behind a server."""
    assert server._hosting is not None
    return server._hosting


def info(key: str, value: Any, kind: int) -> dict[str, Any]:
    """Return an info as programs write it."""
    return {"key": key, "value": value, "val_type": kind}


def job_infos(server: PMIxServer, nodes: dict[str, str]) -> list[dict[str, Any]]:
    """Return the infos of a job by the ranks on each node."""
    _, regex = server.generate_regex(list(nodes))
    _, ppn = server.generate_ppn(list(nodes.values()))
    size = sum(len(ranks.split(",")) for ranks in nodes.values() if ranks)
    return [
        info(PMIX_NODE_MAP, regex, PMIX_STRING),
        info(PMIX_PROC_MAP, ppn, PMIX_STRING),
        info(PMIX_JOB_SIZE, size, PMIX_UINT32),
    ]


@contextmanager
def serving(module: dict[str, Any] | None = None, infos: list[dict[str, Any]] | None = None) -> Iterator[PMIxServer]:
    """Serve on the Python engine."""
    server = PMIxServer()
    assert server.init(infos or [], module or {"clientconnected": connected}) == PMIX_SUCCESS
    try:
        yield server
    finally:
        server.finalize()


def client(server: PMIxServer, nspace: str, rank: int) -> pypmix.Client:
    """Return a client of a server, which is not open yet."""
    env: dict[str, str] = {}
    assert server.register_client({"nspace": nspace, "rank": rank}, *_identity()) == PMIX_SUCCESS
    assert server.setup_fork({"nspace": nspace, "rank": rank}, env) == PMIX_SUCCESS
    return pypmix.Client(engine="python", env=env)


def _identity() -> tuple[int, int]:
    import os

    return os.geteuid(), os.getegid()


@contextmanager
def one_client(
    module: dict[str, Any] | None = None, nodes: dict[str, str] | None = None
) -> Iterator[tuple[PMIxServer, pypmix.Client]]:
    """Serve a job of the nspace `job`, whose rank 0 is connected."""
    with serving(module) as server:
        placed = nodes or {HERE: "0"}
        local = len(placed.get(HERE, "").split(","))
        assert server.register_nspace("job", local, job_infos(server, placed)) == PMIX_SUCCESS
        with client(server, "job", 0) as me:
            yield server, me


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions at the same time, and return what they return."""
    found: list[Any] = [None] * len(functions)

    def call(number: int) -> None:
        try:
            found[number] = functions[number]()
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a call hangs"
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


class Mailbox:
    """What callbacks were called with, one after the other."""

    def __init__(self) -> None:
        self._given: list[tuple[Any, ...]] = []
        self._change = threading.Condition()

    def __call__(self, *args: Any) -> None:
        with self._change:
            self._given.append(args)
            self._change.notify_all()

    def wait(self, count: int = 1) -> list[tuple[Any, ...]]:
        """Return what came, once that many have."""
        with self._change:
            assert self._change.wait_for(lambda: len(self._given) >= count, LIMIT), self._given
            return list(self._given)

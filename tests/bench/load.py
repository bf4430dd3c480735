"""Puts a thousand clients on one Python server, and prints as JSON what they take and that they got what they should.

    python tests/bench/load.py [--clients 1000] [--processes 4] [--fences 5]

The server is this process; its clients are sessions in a few others, each of which serves its own with one epoll set.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import select
import subprocess
import sys
import time

from pypmix import Server
from pypmix.engine.python.session import open_client
from pypmix.standard import attrs
from pypmix.standard.errors import NotFound
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import SCOPE_GLOBAL, Commit, Fence, Finalize, Get, Put
from pypmix.standard.types import Proc
from pypmix.standard.values import from_python

NSPACE = "load"
KEY = "load.blob"
SIZE = 1024


def blob(rank: int) -> bytes:
    """Return the KiB that a rank commits."""
    return rank.to_bytes(4, "big") * (SIZE // 4)


class Many:
    """Sessions that one thread serves.

    Args:
        environments: What each of them is started with.
    """

    def __init__(self, environments: list[dict[str, str]]) -> None:
        self.sessions = [open_client(env) for env in environments]
        self.size = int(sys.argv[2])
        self._epoll = select.epoll()
        self._by_fd = {}
        for session in self.sessions:
            session.attach()
            self._by_fd[session.fileno()] = session
            self._epoll.register(session.fileno(), select.EPOLLIN)

    def all(self, make: object) -> list[object]:
        """Have each session carry out an operation, all at a time, and return results and errors."""
        found: dict[int, object] = {}
        for session in self.sessions:
            rank = session.proc.rank

            def done(result: object, error: object, rank: int = rank) -> None:
                assert rank not in found, "an operation ended twice"
                found[rank] = error if error is not None else result

            session.submit(make(rank), done)  # type: ignore[operator]
        deadline = time.monotonic() + 60
        while len(found) < len(self.sessions):
            assert time.monotonic() < deadline, f"{len(self.sessions) - len(found)} operations hang"
            for fd, _ in self._epoll.poll(1):
                self._by_fd[fd].poll()
        return [found[session.proc.rank] for session in self.sessions]

    def fence(self) -> None:
        assert set(self.all(lambda rank: Fence())) == {None}

    def collect(self) -> None:
        assert set(self.all(lambda rank: Fence((), True))) == {None}

    def put(self) -> None:
        assert set(self.all(lambda rank: Put(KEY, from_python(blob(rank)), SCOPE_GLOBAL))) == {None}
        assert set(self.all(lambda rank: Commit())) == {None}

    def get(self) -> None:
        others = [(session.proc.rank + 1) % self.size for session in self.sessions]
        values = self.all(lambda rank: Get(Proc(NSPACE, (rank + 1) % self.size), KEY))
        assert [getattr(value, "data", value) for value in values] == [blob(other) for other in others]

    def miss(self) -> None:
        directives = (attrs.IMMEDIATE(True),)
        errors = self.all(lambda rank: Get(Proc(NSPACE, (rank + 2) % self.size), "load.nothing", directives))
        assert {type(error) for error in errors} == {NotFound}

    def finalize(self) -> None:
        assert set(self.all(lambda rank: Finalize())) == {None}


def client() -> None:
    """Carry out what the lines of standard input say, and answer each with a line."""
    many = Many(json.loads(sys.stdin.readline()))
    print("open", flush=True)
    for line in sys.stdin:
        getattr(many, line.strip())()
        print("done", flush=True)


def resident() -> int:
    """Return the bytes of memory that this process has."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--fences", type=int, default=5)
    options = parser.parse_args()
    size = options.clients
    children = []
    found: dict[str, float] = {"clients": size}
    upcalls: list[object] = []

    def accept(upcall: object) -> None:
        upcalls.append(type(upcall.op).__name__)  # type: ignore[attr-defined]
        upcall.reply()  # type: ignore[attr-defined]

    def phase(name: str, times: int = 1) -> tuple[float, float]:
        """Have all clients do it; return the server's CPU time and the time on the wall for each, in microseconds."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(times):
            for child in children:
                child.stdin.write(name + "\n")
                child.stdin.flush()
            for child in children:
                line = child.stdout.readline()
                if line != "done\n":
                    raise RuntimeError(f"a process of clients failed in {name}")
        return (time.process_time() - cpu) / times / size * 1e6, (time.perf_counter() - wall) / times * 1e6

    with Server(accept) as server:
        # A server imports most of what it needs with its first job.
        server.register_nspace(JobInfo("first", (attrs.JOB_SIZE(1),)))
        server.deregister_nspace("first")
        bare = resident()
        server.register_nspace(JobInfo(NSPACE, (attrs.JOB_SIZE(size),)))
        for rank in range(size):
            server.register_client(Proc(NSPACE, rank), os.geteuid(), os.getegid())
        found["bytes per expected client"] = (resident() - bare) / size
        files = len(os.listdir("/proc/self/fd"))
        cpu, wall = time.process_time(), time.perf_counter()
        share = -(-size // options.processes)
        try:
            for first in range(0, size, share):
                ranks = range(first, min(first + share, size))
                command = [sys.executable, __file__, "client", str(size)]
                child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                children.append(child)
                child.stdin.write(json.dumps([server.client_env(Proc(NSPACE, rank)) for rank in ranks]) + "\n")
                child.stdin.flush()
            for child in children:
                if child.stdout.readline() != "open\n":
                    raise RuntimeError("a process of clients cannot open them")
            found["server cpu/open, us"] = (time.process_time() - cpu) / size * 1e6
            found["open of all, ms"] = (time.perf_counter() - wall) * 1e3
            phase("fence")
            found["bytes per client"] = (resident() - bare) / size
            found["server cpu/fence, us"], wall = phase("fence", options.fences)
            found["fence, ms"] = wall / 1e3
            found["server cpu/commit, us"], _ = phase("put")
            found["bytes per client with 1 KiB"] = (resident() - bare) / size
            found["server cpu/collect, us"], wall = phase("collect", options.fences)
            found["fence collect, ms"] = wall / 1e3
            found["server cpu/get, us"], wall = phase("get")
            found["get of all, ms"] = wall / 1e3
            found["server cpu/missed get, us"], _ = phase("miss")
            found["pending"] = len(server.pending())
            phase("finalize")
        finally:
            for child in children:
                child.stdin.close()
                child.stdout.close()
                child.wait(20)
        deadline = time.monotonic() + 5
        while len(os.listdir("/proc/self/fd")) > files and time.monotonic() < deadline:
            time.sleep(0.01)
        found["descriptors left"] = len(os.listdir("/proc/self/fd")) - files
        found["lost"] = upcalls.count("ClientLost")
        found["finalized"] = upcalls.count("ClientFinalized")
        found["exit codes"] = sum([child.returncode for child in children])
        server.deregister_nspace(NSPACE)
        found["bytes left per client"] = (resident() - bare) / size
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.exit(client() if sys.argv[1:2] == ["client"] else main())

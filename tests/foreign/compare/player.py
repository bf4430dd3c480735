"""Plays a scenario on a server and records its upcalls: `player.py ENGINE SCENARIO RECORDING ENVIRONMENT [REPLAYED]`.

The server is this process, its clients are its children; ENVIRONMENT is what they are given beside what makes them
clients, as a Python literal. With `client` for the engine it is one of these. REPLAYED is a recording that answers
instead of the scripted host.
"""

from __future__ import annotations

import ast
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from foreign.compare.scenarios import SCENARIOS, Scenario, main

from pypmix import attrs
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.recording import Recorder, replay
from pypmix.server import Server
from pypmix.standard import ops
from pypmix.standard.errors import NotFound
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT
from pypmix.standard.types import RANK_WILDCARD, Info, Pdata, Proc
from pypmix.standard.values import info, uint32

NSPACE = "demo"
LOCAL = (0, 1)
LIMIT = 60


class ScriptedHost:
    """Answers everything, and the same each time, one upcall after the other on a thread of its own."""

    def __init__(self, played: Scenario):
        self.played = played
        self.server: Server | None = None
        self.spawned = 0
        self.pulled = 0
        self.work: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._answer_all, daemon=True).start()

    def __call__(self, upcall):
        self.work.put(upcall)

    def _answer_all(self):
        while True:
            upcall = self.work.get()
            try:
                upcall.reply(self.answer(upcall.op))
            except NotFound as error:
                upcall.fail(error)

    def answer(self, op):
        match op:
            case ops.ClientConnected() | ops.ClientFinalized() | ops.ClientLost():
                return None
            case ops.ToolConnected():
                return Proc("the-tool", 0)
            case _ if self.played.fails:
                raise NotFound("this host refuses everything")
            case ops.FenceUpcall():
                return op.data
            case ops.DirectModex():
                raise NotFound("there is no such rank yet")
            case ops.GroupUpcall(operation=operation):
                return self.group(op) if operation == GROUP_CONSTRUCT else ()
            case ops.Lookup():
                return tuple([Pdata(Proc(NSPACE, 0), key, uint32(1)) for key in op.keys if key != "acme.missing"])
            case ops.Spawn():
                return self.spawn(op)
            case ops.QueryInfo():
                return tuple([info(key, uint32(1)) for query in op.queries for key in query.keys])
            case ops.GetCredential():
                return ops.Credential(b"acme\0credential")
            case ops.IOFPull():
                self.pulled += 1
                return self.pulled
            case ops.FabricRegister():
                return (attrs.FABRIC_INDEX(3), attrs.FABRIC_VENDOR("acme"))
            case _:
                return None

    def group(self, op) -> tuple[Info, ...]:
        ranks = {True: range(self.played.size), False: ()}
        members = []
        for proc in op.procs:
            members += [Proc(proc.nspace, rank) for rank in ranks[proc.rank == RANK_WILDCARD]] or [proc]
        found = (attrs.GROUP_MEMBERSHIP(members),)
        wanted = any(each.key == attrs.GROUP_ASSIGN_CONTEXT_ID.key and each.value.data for each in op.directives)
        return (*found, attrs.GROUP_CONTEXT_ID(42)) if wanted else found

    def spawn(self, op) -> str:
        self.spawned += 1
        nspace = f"spawned-{self.spawned}"
        size = sum([app.maxprocs for app in op.apps])
        job = JobLayout(nspace, (Application(("prog",), size),), (NodeLayout("elsewhere", tuple(range(size))),))
        assert self.server is not None
        self.server.register_nspace(job.info(), local=())
        return nspace


def job_info(size: int):
    nodes = [NodeLayout(socket.gethostname(), LOCAL)]
    if size > len(LOCAL):
        nodes.append(NodeLayout("elsewhere", tuple(range(len(LOCAL), size))))
    return JobLayout(NSPACE, (Application(("client",), size),), tuple(nodes)).info()


def play(engine: str, name: str, path: str, environment: dict[str, str], replayed: str = "") -> int:
    played = SCENARIOS[name]
    host = ScriptedHost(played)
    again = replay(replayed) if replayed else None
    command = [sys.executable, __file__, "client", name]
    codes = []
    with tempfile.TemporaryDirectory() as folder, Recorder(path) as recorder:
        host.server = Server(
            recorder.wrap(again or host), engine=engine, nspace="server", tmpdir=folder, tool_support=played.tool
        )
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PMIX_", "PYPMIX_LIB"))}
        with host.server as server:
            started = []
            server.register_nspace(job_info(played.size), local=LOCAL)
            for rank in () if played.tool else LOCAL:
                proc = Proc(NSPACE, rank)
                server.register_client(proc)
                env = {**inherited, **server.client_env(proc), **environment}
                started.append((proc, subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)))
            if played.tool:
                env = {**inherited, **environment, "ACME_SERVER": str(os.getpid()), "TMPDIR": folder}
                started.append((None, subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)))
            for proc, child in started:
                try:
                    codes.append(child.wait(LIMIT))
                except subprocess.TimeoutExpired:
                    print(f"{proc} hangs; the server waits for {server.pending()}", flush=True)
                    child.kill()
                    codes.append(child.wait())
            for proc, _ in started:
                if proc is not None:
                    server.deregister_client(proc)
            server.deregister_nspace(NSPACE)
    if again is not None and again.report():
        print("\n".join(again.report()))
        return 1
    bad = [code for code in codes if code != 0 and code not in played.deadly]
    return abs(bad[0]) if bad else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    if sys.argv[1] == "client":
        main(sys.argv[2])
        sys.exit()
    code = play(sys.argv[1], sys.argv[2], sys.argv[3], ast.literal_eval(sys.argv[4]), *sys.argv[5:])
    sys.stdout.flush()
    # A scripted host's thread and a native library need no farewell.
    os._exit(code)

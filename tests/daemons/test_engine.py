"""Nodes of an engine whose processes are threads of this one: what does not take Dask or Ray."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import pytest

from lib import cluster as clusters
from lib import leftovers, machine
from pypmix.extras.frameworks.agent import NOTHING, Agent, Calls, DaemonEnd, receive, send
from pypmix.extras.frameworks.engine import Nodes, launcher_addresses, name_nodes
from pypmix.extras.frameworks.world import ENDING
from pypmix.host.outcome import Outcome
from pypmix.host.placing import Node, NodeRequest
from pypmix.host.terms import Terms
from pypmix.standard.errors import OperationTimeout, PMIxError

pytestmark = pytest.mark.timeout(170)


class Engine:
    """Runs agents in this process.

    Attributes:
        broken: What `begin` raises, by node.
    """

    name = "an engine"

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.broken: dict[str, Exception] = {}
        self.closed = 0
        self.released: list[str] = []

    def call(self, node: str, method: str, *arguments: bytes) -> Any:
        if method == "begin" and node in self.broken:
            raise self.broken[node]
        return getattr(self.agents.setdefault(node, Agent()), method)(*arguments)

    def joined(self) -> list[Node] | None:
        return None

    def more(self, wanted: NodeRequest) -> list[Node]:
        if wanted.nodes > 1:
            raise ValueError("the cluster is full")
        return name_nodes([("n1", 1, ("127.0.0.1",))], ("n1", "n1-2"))

    def release(self, node: Node) -> None:
        self.released.append(node.name)

    def close(self) -> None:
        self.closed += 1


def nodes_of(engine: Engine, direct: bool | None = None) -> Nodes:
    found = name_nodes([("n1", 2, ("127.0.0.1",)), ("n1", 1, ("127.0.0.1",))])
    return Nodes(engine, found, interface="127.0.0.0/8", direct=direct)


DIRECT = pytest.mark.parametrize("direct", [True, False], ids=["direct", "bridged"])


@DIRECT
def test_jobs_run_one_after_the_other_and_leave_nothing(tmp_path: Path, direct: bool) -> None:
    engine = Engine()
    terms = Terms(stdin=None, shown=(False, False), file=str(tmp_path / "out"))
    with leftovers.nothing_left(), nodes_of(engine, direct) as nodes:
        assert nodes.slots == 3 and repr(nodes) == "<nodes n1 (2), n1-2 (1)>"
        for _ in range(2):
            outcome = nodes.run(["sh", "-c", "echo $PMIX_RANK on $PMIX_HOSTNAME $MORE"], env={"MORE": "x"}, terms=terms)
            assert outcome.code == 0, outcome
        outcome = nodes.run(["sh", "-c", "exit 7"], n=1)
        assert outcome.code == 7 and "exited with code 7" in outcome.reason
    assert engine.closed
    told = sorted(path.read_text() for path in tmp_path.glob("out*") if path.stat().st_size)
    assert [line.split()[:1] for line in told] == [["0"], ["1"], ["2"]]


def test_nodes_that_are_reached_by_ipv6() -> None:
    if not clusters.ipv6():
        machine.lacking("IPv6 in this kernel")
    with leftovers.nothing_left(), Nodes(Engine(), name_nodes([("n1", 1, ("::1",)), ("n2", 1, ("::1",))])) as nodes:
        code = "import pypmix; me = pypmix.Client().open(); me.fence(timeout=60); me.close()"
        outcome = nodes.run([sys.executable, "-c", code], timeout=120)
    assert outcome.code == 0, outcome


def test_a_node_whose_call_fails_is_named() -> None:
    engine = Engine()
    engine.broken["n1-2"] = ValueError("the worker is lost\nmore")
    with leftovers.nothing_left(), nodes_of(engine) as nodes, pytest.raises(PMIxError, match=r"n1-2.*ValueError: the"):
        nodes.run(["true"])
    assert [node.name for node in nodes.nodes] == ["n1"]
    agent = engine.agents["n1"]
    agent.stop()
    agent.wait()


@DIRECT
def test_a_job_asks_for_nodes(tmp_path: Path, direct: bool) -> None:
    code = """
from pypmix import AllocDirective, Client, PMIxError, attrs
with Client() as me:
    try:
        me.allocate(AllocDirective.EXTEND, timeout=60, info={attrs.ALLOC_NUM_NODES: 2})
    except PMIxError as error:
        print("refused", error)
    new = me.allocate(AllocDirective.EXTEND, timeout=60, info={attrs.ALLOC_NUM_NODES: 1})[attrs.ALLOC_NODE_LIST]
    me.spawn(["sh", "-c", "echo on $PMIX_HOSTNAME"], info={attrs.HOST: new}).wait(timeout=60)
    me.allocate(AllocDirective.RELEASE, timeout=60, info={attrs.ALLOC_NODE_LIST: new})
"""
    engine = Engine()
    terms = Terms(stdin=None, shown=(False, False), file=str(tmp_path / "out"))
    with leftovers.nothing_left(), nodes_of(engine, direct) as nodes:
        outcome = nodes.run([sys.executable, "-c", code], n=1, terms=terms)
        assert outcome.code == 0, outcome
        assert [node.name for node in nodes.nodes] == ["n1", "n1-2"]
    assert engine.released == ["n1-3"]
    told = "".join([path.read_text() for path in tmp_path.glob("out*")])
    assert "refused" in told and "the cluster is full" in told, told


def test_a_node_that_is_lost_is_told_where_messages_go_by_calls(tmp_path: Path) -> None:
    """Of what the daemon has sent, nothing comes after that."""
    code = """
import os, signal
from pypmix import Client, PartialSuccess
with Client() as me:
    me.fence(timeout=60)
    if me.node.hostname == "n1-2":
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    try:
        me.fence(timeout=60)
    except PartialSuccess as error:
        print("without", [proc.rank for proc in error.missing])
"""
    terms = Terms(stdin=None, shown=(False, False), file=str(tmp_path / "out"), keep_going=True)
    with leftovers.nothing_left(), nodes_of(Engine(), False) as nodes:
        outcome = nodes.run([sys.executable, "-c", code], terms=terms)
        assert outcome.code == 137 and "n1-2" in outcome.reason, outcome
        assert nodes.run(["true"], n=1).code == 0
    told = "".join([path.read_text() for path in tmp_path.glob("out*")])
    assert told.count("without [2]") == 2, told


def test_functions_reach_ranks_and_results_come_back() -> None:
    """As `Nodes.call` has it, without cloudpickle."""
    from pypmix.extras.frameworks.agent import CALL

    calls = Calls(b"function")
    rank = "import os, socket; from pypmix.extras.frameworks.agent import *; c = socket.socket(socket.AF_UNIX); "
    rank += f"c.connect(chr(0) + os.environ['{CALL}']); got = receive(c); "
    rank += "send(c, bytes([0, 0, 0, 5])); send(c, got * 100000)"
    with leftovers.nothing_left():
        env = {**machine.clean_environment(), CALL: calls.name, "PYTHONPATH": str(machine.ROOT)}
        subprocess.run([sys.executable, "-c", rank], env=env, check=True, timeout=60)
        assert calls.close() == {5: b"function" * 100000}


FUNCTIONS = """
import sys

def leaves(group):
    if group.rank == 1:
        sys.exit(0)
    group.fence(timeout=100)

def raises():
    from there import Fault
    raise Fault("a word")

def returns():
    from there import Fault
    return Fault("a word")

def large(size):
    return bytes(size)

def streams():
    return (number for number in range(3))
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of functions, and pickle for cloudpickle; ranks have a module `there` besides."""
    for name, text in (
        ("cloudpickle", "from pickle import *\n"),
        ("functions", FUNCTIONS),
        ("ranks/there", "class Fault(Exception): ...\n"),
    ):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{tmp_path}/ranks:{machine.ROOT}")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("functions")
    for name in ("cloudpickle", "functions"):
        del sys.modules[name]


@pytest.mark.timing
def test_a_rank_that_leaves_a_world_by_itself_is_not_awaited(functions: Any) -> None:
    with leftovers.nothing_left(), nodes_of(Engine()) as nodes, nodes.world(mpi=False) as world:
        began = time.monotonic()
        with pytest.raises(PMIxError, match=r"(?s)rank 1 of 3 failed: Traceback.*SystemExit: 0"):
            world.run(functions.leaves)
        assert time.monotonic() - began < ENDING / 2
        with pytest.raises(PMIxError, match="the world has ended: rank 1 "):
            world.run(functions.leaves)


def test_results_come_however_large_they_are(functions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine needs its time for them, which is more than it has for the end of a daemon."""
    monkeypatch.setattr("pypmix.extras.frameworks.engine.AGENTS", 4.0)
    monkeypatch.setattr("pypmix.extras.frameworks.agent.PIECE", 1 << 18)
    engine = Engine()
    call = engine.call

    def slow(node: str, method: str, *arguments: Any) -> Any:
        answer = call(node, method, *arguments)
        time.sleep(len(pickle.dumps(answer)) / 5e5)
        return answer

    engine.call = slow  # type: ignore[method-assign]
    with leftovers.nothing_left(), nodes_of(engine) as nodes:
        assert [len(each) for each in nodes.call(functions.large, 2 << 20)] == [2 << 20] * 3
    assert all(agent.idle for agent in engine.agents.values())


def test_results_that_the_engine_does_not_give_are_named(functions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypmix.extras.frameworks.engine.AGENTS", 5.0)
    engine = Engine()
    call, go_on = engine.call, threading.Event()

    def silent(node: str, method: str, *arguments: Any) -> Any:
        answer = call(node, method, *arguments)
        if (node, method) == ("n1-2", "wait"):
            go_on.wait(60)
        return answer

    engine.call = silent  # type: ignore[method-assign]
    with leftovers.nothing_left(), nodes_of(engine) as nodes:
        with pytest.raises(PMIxError, match="an engine does not give what the ranks of n1-2 have returned: nothing"):
            nodes.call(functions.large, 1)
        go_on.set()


def test_what_ranks_have_returned_is_kept_until_it_is_taken(pretending: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or until the next job, or the launcher has gone."""
    monkeypatch.setattr("pypmix.extras.frameworks.agent.PIECE", 10)
    monkeypatch.setattr(Calls, "close", lambda self: {0: bytes(20)})
    agent = Agent()
    for end in ("taken", "next", "gone"):
        agent.begin(b"no line\n", b"function")
        ended = agent.wait()
        assert not agent.idle and len(ended.results) == 10 < ended.size
        data = ended.results
        while end == "taken" and (piece := agent.read_piece(len(data))):
            data += piece
        if end == "taken":
            assert pickle.loads(data) == {0: bytes(20)}
        if end == "next":
            agent.begin(b"no line\n")
            agent.wait()
        if end == "gone":
            agent.leave()
        assert agent.idle and agent.read_piece(10) == b"", end


def test_what_can_be_loaded_in_ranks_alone_is_told(functions: Any) -> None:
    with leftovers.nothing_left(), nodes_of(Engine()) as nodes:
        with pytest.raises(PMIxError, match=r"(?s)rank \d of 3 failed: Traceback.*in raises.*there.Fault: a word"):
            nodes.call(functions.raises)
        with pytest.raises(ModuleNotFoundError, match="there") as caught:
            nodes.call(functions.returns)
        assert caught.value.__notes__ == ["rank 0 has returned what cannot be loaded here"]
        with pytest.raises(TypeError, match="generator") as unwritten:
            nodes.call(functions.streams)
        assert unwritten.value.__notes__[0].startswith("rank ")


def test_results_are_read_though_another_rank_of_the_node_has_none() -> None:
    """One that fails in a world ends the job, and with it the ranks that would never return."""
    calls = Calls(b"")
    found: list[dict[int, bytes]] = []
    with leftovers.nothing_left():
        ranks = []
        for _ in range(2):
            ranks.append(socket.socket(socket.AF_UNIX))
            ranks[-1].connect("\0" + calls.name)
        caller = threading.Thread(target=lambda: found.append(calls.call_in_ranks(b"function", 2)))
        caller.start()
        assert [receive(rank) for rank in ranks] == [b"function"] * 2
        send(ranks[1], bytes([0, 0, 0, 1]))
        send(ranks[1], b"failed")
        assert calls.close() == {}
        caller.join(60)
        for rank in ranks:
            rank.close()
    assert found == [{1: b"failed"}]
    assert calls.call_in_ranks(b"function", 2) == {}


def test_ranks_of_a_daemon_that_is_not_there_give_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypmix.extras.frameworks.agent.BEGIN_SECONDS", 0.1)
    agent = Agent()
    assert agent.idle
    assert agent.call_in_ranks(b"function", 1) == {}
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with leftovers.nothing_left():
        assert b"its daemon cannot be started" in agent.begin(b"line\n", b"")
        assert not agent.idle
        found: list[dict[int, bytes]] = []
        caller = threading.Thread(target=lambda: found.append(agent.call_in_ranks(b"function", 1)))
        caller.start()
        assert agent.wait() == DaemonEnd(0, "", NOTHING, len(NOTHING))
        caller.join(60)
    assert found == [{}] and agent.idle


def test_what_is_not_installed_is_named() -> None:
    for name in ("dask", "ray"):
        blocked = {"dask": "distributed", "ray": "ray"}[name]
        code = f"import sys; sys.modules[{blocked!r}] = None\nfrom pypmix.{name} import nodes"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert f"pip install 'pypmix-hpc[{name}]'" in done.stderr and "ImportError" in done.stderr


def test_names_are_made_unique() -> None:
    found = name_nodes([("a", 1, ()), ("a", 1, ()), ("a-2", 1, ()), ("b", 2, ())])
    assert found == [Node("a"), Node("a-2"), Node("a-2-2"), Node("b", 2)]


def test_loopback_is_taken_only_where_all_are_on_this_machine() -> None:
    assert launcher_addresses(["127.0.0.1", "127.0.0.2"])[0].startswith("127.")
    assert launcher_addresses([]) == ["127.0.0.1"]


def test_a_line_that_cannot_be_read_is_answered() -> None:
    agent = Agent()
    assert b"error" in agent.begin(b"not a launcher's line\n")
    assert agent.wait().code == 1


def test_a_daemon_that_has_ended_takes_nothing_and_no_fault_is_logged_by_the_engine() -> None:
    agent = Agent()
    assert b"error" in agent.begin(b'{"not": "a launcher\'s line"}\n', bridged=True)
    run = agent._run
    assert run is not None and run.process is not None
    run.process.wait(60)
    for _ in range(2):
        agent.push(b"\0" * 64)
    while agent.pull():
        pass
    assert agent.wait().code == 1
    agent.push(b"\0" * 64)
    assert agent.idle


PRETENDS = """
import json, os, socket, sys
line = json.loads(sys.stdin.readline())
with socket.socket(fileno=line["connection"]) as connection:
    print("{}", flush=True)
    while data := connection.recv(100):
        connection.sendall(data)
"""
"""A daemon that sends back what it is sent."""


@pytest.fixture
def pretending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have agents start something else than a daemon."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c '{PRETENDS}'\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


def test_the_end_of_a_daemon_is_not_that_of_the_next_one(pretending: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has pulled what the first one has sent: its end takes longer than the start of the other one."""
    monkeypatch.setattr("pypmix.extras.frameworks.agent.CLOSE_SECONDS", 1.0)
    agent = Agent()
    with leftovers.nothing_left():
        for _ in range(2):
            agent.begin(b"{}\n", b"", bridged=True)
            waiting = threading.Thread(target=agent.wait)
            waiting.start()
            first = locals().get("first") or waiting
        first.join(60)
        agent.push(b"there")
        assert agent.pull() == b"there"
        assert not agent.idle
        agent.stop()
        assert agent.pull() == b""
        waiting.join(60)
        assert agent.idle


def test_no_fault_of_a_start_is_raised_as_engines_log_the_line_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the lack of threads: the line holds the secret."""

    def full(_function: bytes) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("pypmix.extras.frameworks.agent.Calls", full)
    agent = Agent()
    with leftovers.nothing_left():
        answer = agent.begin(b"{}\n", b"function", bridged=True)
        assert b"its daemon cannot be started: can't start new thread" in answer
        for line in (b"no JSON\n", b"[1]\n"):
            assert b"error" in agent.begin(line, bridged=True)
        assert agent.wait().code == 0 and agent.idle


@DIRECT
def test_a_daemon_that_is_given_up_before_it_has_begun_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    monkeypatch.setattr("pypmix.extras.frameworks.engine.AGENTS", 1.0)
    engine = Engine()
    begin = threading.Event()
    call = engine.call

    def late(node: str, method: str, *arguments: bytes) -> Any:
        if (node, method) == ("n1-2", "begin"):
            begin.wait(60)
        return call(node, method, *arguments)

    engine.call = late  # type: ignore[method-assign]
    with leftovers.nothing_left(60.0):
        with nodes_of(engine, direct) as nodes, pytest.raises(PMIxError, match="n1-2 did not join within 3 s") as late:
            nodes.run(["true"], patience=3)
        # On a busy machine the other node may be late, too.
        assert re.search("node n1(-2)?: its daemon cannot be started: an engine has not answered", str(late.value))
        begin.set()
    assert all(agent.idle for agent in engine.agents.values())


def test_a_node_that_answers_nothing_is_named_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose process is stopped: neither the trial of the network nor the start of its daemon waits for it."""
    monkeypatch.setattr("pypmix.extras.frameworks.engine.AGENTS", 1.0)
    monkeypatch.setattr("pypmix.extras.frameworks.reachability.SILENCE", 1.0)
    monkeypatch.setattr("pypmix.extras.frameworks.engine.is_loopback", lambda _address: False)
    engine = Engine()
    go_on, call = threading.Event(), engine.call

    def stopped(node: str, method: str, *arguments: Any) -> Any:
        if node == "n1-2":
            go_on.wait(100)
        return call(node, method, *arguments)

    engine.call = stopped  # type: ignore[method-assign]
    with leftovers.nothing_left(60.0):
        with nodes_of(engine) as nodes, pytest.raises(PMIxError, match="n1-2 did not join within 3 s"):
            nodes.run(["true"], patience=3)
        assert not go_on.is_set()
        go_on.set()
    assert all(agent.idle for agent in engine.agents.values())


def test_a_rank_ends_with_its_result_though_the_process_is_stopped_that_gave_it_the_function() -> None:
    calls = Calls(b"function")
    rank = socket.socket(socket.AF_UNIX)
    with leftovers.nothing_left(), rank:
        rank.connect("\0" + calls.name)
        assert receive(rank) == b"function"
        rank.settimeout(20)
        with pytest.raises(EOFError):
            receive(rank)
        send(rank, b"\1")
        send(rank, b"done")
        assert calls.close() == {1: b"done"}


def test_nodes_run_one_job_at_a_time() -> None:
    """Another one would end the daemons of the first."""
    found: list[Any] = []
    with leftovers.nothing_left(), nodes_of(Engine()) as nodes:
        running = threading.Thread(target=lambda: found.append(nodes.run(["sleep", "3"], n=1)))
        running.start()
        while not nodes.busy:
            time.sleep(0.01)
        with pytest.raises(PMIxError, match="run a job already"):
            nodes.run(["true"])
        with pytest.raises(PMIxError, match="run a job already"):
            nodes.world(mpi=False)
        running.join(60)
    assert found[0].code == 0


def test_what_nodes_cannot_run() -> None:
    engine = Engine()
    with leftovers.nothing_left():
        nodes = nodes_of(engine)
        with pytest.raises(TypeError, match="not the string 'true'"):
            nodes.run("true")
        with pytest.raises(TypeError, match="an environment is made of str: 'THREADS' is 2"):
            nodes.run(["true"], env={"THREADS": 2})  # type: ignore[dict-item]
        none = Nodes(engine, [])
        for use in (lambda: none.run(["true"], n=1), lambda: none.world(mpi=False)):
            with pytest.raises(PMIxError, match="no node is left"):
                use()
        assert not engine.closed
        for _ in range(2):
            nodes.close()
        assert engine.closed == 1
        with pytest.raises(PMIxError, match="have been given back"):
            nodes.run(["true"])
    assert not engine.agents


def test_functions_are_handed_out_again_when_there_are_descriptors_again() -> None:
    """The agent's process is the engine's: what lacks there may be there again."""
    code = """
import os, resource, socket, threading, time
from pypmix.extras.frameworks.agent import *
calls = Calls(b"function")
rank = socket.socket(socket.AF_UNIX)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
rank.connect(chr(0) + calls.name)
time.sleep(0.5)
for each in taken:
    os.close(each)
rank.settimeout(20)
assert receive(rank) == b"function"
send(rank, b"\\1")
send(rank, b"done")
assert calls.close() == {1: b"done"}
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(20)
        assert not thread.is_alive()
"""
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=100)


class Halves(Engine):
    """Lends two nodes at a time, of which the second does not start once the first has been tried for long."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: list[bool] = []

    def more(self, wanted: NodeRequest) -> list[Node]:
        return name_nodes([("n1", 1, ("127.0.0.1",))] * 2, ("n1", "n1-2"))

    def call(self, node: str, method: str, *arguments: bytes) -> Any:
        if (node, method) == ("n1-4", "begin"):
            time.sleep(6)
            raise ValueError("it is broken")
        return super().call(node, method, *arguments)

    def release(self, node: Node) -> None:
        super().release(node)
        self.idle.append(node.name not in self.agents or self.agents[node.name].idle)


class Losing(Engine):
    """Loses the second node while its daemon runs."""

    def call(self, node: str, method: str, *arguments: bytes) -> Any:
        if (node, method) == ("n1-2", "wait"):
            time.sleep(1)
            raise ValueError("it has gone")
        return super().call(node, method, *arguments)


def test_a_node_is_lost_for_the_reason_that_the_engine_tells() -> None:
    """Though its daemon ends for this program at the same time."""
    for _ in range(3):
        engine = Losing()
        with leftovers.nothing_left():
            outcome = nodes_of(engine).run(["sleep", "600"])
            engine.agents["n1-2"].wait()
        assert "with node n1-2: the engine has lost it: ValueError: it has gone" in outcome.reason, outcome


def test_why_a_request_is_not_met_is_told_without_the_frame_of_an_error() -> None:
    engine = Engine()
    told: SimpleQueue[tuple[Any, str]] = SimpleQueue()

    def more(_wanted: NodeRequest) -> list[Node]:
        raise PMIxError("the cluster is full", hint="wait for its end")

    engine.more = more  # type: ignore[method-assign]
    nodes_of(engine)._obtain(NodeRequest(nodes=1), lambda found, reason: told.put((found, reason)))
    assert told.get(timeout=60) == ((), "the cluster is full; wait for its end")


def test_of_the_nodes_of_a_request_all_join_or_none(tmp_path: Path) -> None:
    """No rank is placed on one while another has not come, and none is given back while its daemon runs."""
    code = """
import threading, time
from pypmix import AllocDirective, Client, PMIxError, attrs

def ask():
    try:
        me.allocate(AllocDirective.EXTEND, timeout=60, info={attrs.ALLOC_NUM_NODES: 2})
    except PMIxError as error:
        print("refused", error)

with Client() as me:
    asked = threading.Thread(target=ask)
    asked.start()
    while asked.is_alive():
        try:
            me.spawn(["echo", "spawned"], info={attrs.HOST: "n1-3"}).wait(timeout=60)
        except PMIxError:
            time.sleep(0.1)
    time.sleep(2)
"""
    engine = Halves()
    terms = Terms(stdin=None, shown=(False, False), file=str(tmp_path / "out"))
    with leftovers.nothing_left(), nodes_of(engine) as nodes:
        outcome = nodes.run([sys.executable, "-c", code], n=1, terms=terms, timeout=100)
        assert outcome.code == 0, outcome
        assert [node.name for node in nodes.nodes] == ["n1", "n1-2"]
    told = "".join([path.read_text() for path in tmp_path.glob("out*")])
    assert "refused" in told and "it is broken" in told and "spawned" not in told, told
    assert sorted(engine.released) == ["n1-3", "n1-4"] and engine.idle == [True, True]


def test_functions_go_to_ranks_of_the_same_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypmix.extras.frameworks.agent.peer_uid", lambda _connection: os.geteuid() + 1)
    for function in (b"function", b""):
        calls = Calls(function)
        with leftovers.nothing_left(), socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect("\0" + calls.name)
            with pytest.raises(EOFError):
                receive(stranger)
            assert calls.close() == {}


def test_ranks_take_functions_of_the_same_user_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pypmix.extras.frameworks import calling

    monkeypatch.setitem(sys.modules, "cloudpickle", ModuleType("cloudpickle"))
    calls = Calls(b"function")
    monkeypatch.setenv(calling.CALL, calls.name)
    monkeypatch.setattr(calling, "peer_uid", lambda _connection: os.geteuid() + 1)
    with leftovers.nothing_left():
        assert calling.main() == 1
        assert calls.close() == {}
    assert "belongs to another user" in capsys.readouterr().err


def test_the_end_of_what_a_daemon_has_said_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nseq 2000 >&2; printf 'the last ' >&2; sleep 0.5; echo 'word' >&2; exit 3\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    agent = Agent()
    with leftovers.nothing_left():
        assert agent.begin(b"{}\n") == b""
        ended = agent.wait()
    assert ended.code == 3 and ended.errors.endswith("\n2000\nthe last word\n") and len(ended.errors) <= 4096


def test_what_a_daemon_has_sent_last_is_pulled(pretending: None) -> None:
    agent = Agent()
    found: list[DaemonEnd] = []
    with leftovers.nothing_left():
        agent.begin(b"{}\n", bridged=True)
        waiting = threading.Thread(target=lambda: found.append(agent.wait()))
        waiting.start()
        agent.push(b"last")
        time.sleep(0.5)
        agent.stop()
        # Longer than it waits for a pull that is under way.
        time.sleep(1.5)
        assert agent.pull() == b"last"
        assert agent.pull() == b""
        waiting.join(60)
    assert found[0].code == -signal.SIGKILL


class Host:
    """A launcher that is told to end."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()

    def interrupt(self, _signum: int) -> None:
        self.interrupted.set()


def test_a_world_that_is_closed_before_it_begins_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from pypmix.extras.frameworks import world

    for name in ("BEGINNING", "ENDING", "CLOSING"):
        monkeypatch.setattr(world, name, 0.1)
    monkeypatch.setitem(sys.modules, "cloudpickle", ModuleType("cloudpickle"))
    monkeypatch.setattr(sys.modules["cloudpickle"], "dumps", pickle.dumps, raising=False)
    host, given_up, released = Host(), threading.Event(), threading.Event()

    def job(begun: Any) -> Outcome:
        given_up.wait(60)
        begun(host)
        assert host.interrupted.wait(60)
        return Outcome(143, "ended")

    def ask(*_given: Any) -> dict[int, bytes]:
        given_up.wait(60)
        return {}

    with leftovers.nothing_left():
        with pytest.raises(OperationTimeout):
            world.World({"n1": 1}, job, ask, mpi=False, release=released.set)
        given_up.set()
        assert host.interrupted.wait(10) and released.is_set()


def test_what_the_engine_gets_meanwhile_joins_the_job(tmp_path: Path) -> None:
    code = """
import time
from pypmix import Client, PMIxError, attrs
with Client() as me:
    while True:
        try:
            job = me.spawn(["sh", "-c", "test $PMIX_HOSTNAME = n1-3"], info={attrs.HOST: "n1-3"})
            break
        except PMIxError:
            time.sleep(0.1)
    assert job.wait(timeout=60) == 0
"""
    engine = Engine()
    new = [name_nodes([("n1", 1, ("127.0.0.1",))], ("n1", "n1-2"))]

    def joined() -> list[Node]:
        if not new:
            raise ValueError("the cluster is asked once too often")
        return new.pop()

    engine.joined = joined  # type: ignore[method-assign]
    terms = Terms(stdin=None, shown=(False, False), file=str(tmp_path / "out"))
    with leftovers.nothing_left(), nodes_of(engine) as nodes:
        outcome = nodes.run([sys.executable, "-c", code], n=1, terms=terms, timeout=100)
        assert outcome.code == 0, outcome
        assert [node.name for node in nodes.nodes] == ["n1", "n1-2", "n1-3"]
        assert nodes.run(["true"], terms=terms).code == 0

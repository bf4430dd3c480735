"""LocalHost and Server as parts of other programs: from any thread, several at once, and nothing left of them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lib.command import ROOT
from lib.leftovers import nothing_left
from pypmix import Server
from pypmix.engine.base import Upcall
from pypmix.host import Application, JobLayout, LocalHost, NodeLayout, Outcome, answertable, orphans
from pypmix.host.guard import Guard
from pypmix.standard.errors import NotInitialized, PMIxError
from pypmix.standard.ops import AllocationRequest, ClientConnected, ClientFinalized
from pypmix.standard.types import Proc


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}


def shell(text: str, np: int = 1) -> Application:
    return Application(("sh", "-c", text), np)


def test_an_outcome(env: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert LocalHost([shell("echo $PMIX_RANK", 2)], env=env).run() == Outcome(0)
    assert sorted(capfd.readouterr().out.split()) == ["0", "1"]
    assert os.listdir(env["TMPDIR"]) == []


def test_a_failure_has_a_code_and_a_reason(env: dict[str, str]) -> None:
    outcome = LocalHost([shell("exit 5")], env=env).run()
    assert outcome.code == 5
    assert outcome.reason.startswith("rank 0 (pid ")


def test_no_descriptor_and_no_child_is_left(env: dict[str, str]) -> None:
    before = orphans.children()  # such as the process that other tests fork their ranks from
    with nothing_left():
        for _ in range(3):
            LocalHost([shell("sleep 60 & exit 0", 3)], env=env).run()
    assert orphans.children() == before


def test_a_kernel_without_pidfds(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert LocalHost([shell("exit 0", 3)], env=env).run() == Outcome(0)
    outcome = LocalHost([shell("[ $PMIX_RANK = 1 ] || sleep 60; kill -9 $$", 3)], env=env).run()
    assert outcome.code == 137
    assert "rank 1 " in outcome.reason


def test_several_hosts_at_once_in_threads(env: dict[str, str]) -> None:
    outcomes: list[Outcome] = []

    def run(code: int) -> None:
        outcomes.append(LocalHost([shell(f"exit {code}", 2)], env=env).run())

    threads = [threading.Thread(target=run, args=(code,)) for code in (0, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(outcome.code for outcome in outcomes) == [0, 3, 4]


def test_an_interrupt_from_another_thread(env: dict[str, str]) -> None:
    host = LocalHost([shell("sleep 60", 2)], env=env)
    timer = threading.Timer(0.3, host.interrupt, [signal.SIGTERM])
    timer.start()
    assert host.run() == Outcome(143, "ended by signal 15 (SIGTERM)")


def test_the_grace(env: dict[str, str]) -> None:
    started = time.monotonic()
    host = LocalHost([shell("trap '' TERM; while :; do sleep 0.1; done")], env=env, grace=0.5, timeout=0.3)
    assert host.run().code == 124
    assert time.monotonic() - started > 0.7


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        LocalHost([shell("true")], timeout=timeout)


def test_a_program_that_does_not_exist(env: dict[str, str]) -> None:
    with nothing_left():
        with pytest.raises(FileNotFoundError, match="no-such-program"):
            LocalHost([Application(("no-such-program",))], env=env).run()
        assert os.listdir(env["TMPDIR"]) == []


def test_limits_are_given_back(env: dict[str, str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Too few for the ranks, whatever other tests have left open here.
    few = max(map(int, os.listdir("/proc/self/fd"))) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    try:
        assert LocalHost([shell("exit 0", 60)], env=env).run() == Outcome(0)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_guard_ends_what_it_was_told_of_and_not_what_it_was_told_to_forget(tmp_path: Path) -> None:
    processes = [subprocess.Popen(["sleep", "30"], start_new_session=True) for _ in range(4)]
    guard = Guard(str(tmp_path / "pypmix-nobody"))
    for process in processes:
        guard.add(process.pid)
    guard.remove(processes[1].pid)
    guard.remove(processes[3].pid)
    try:
        # What the kernel does when the host is killed.
        os.close(guard._writer)
        assert [processes[number].wait(10) for number in (0, 2)] == [-signal.SIGTERM] * 2
        os.waitpid(guard.pid, 0)
        assert [processes[number].poll() for number in (1, 3)] == [None, None]
    finally:
        for process in processes:
            process.kill()
            process.wait(5)


def test_the_guard_keeps_its_grace_on_a_slow_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {name: tmp_path / f"{name}s" for name in ("sleep", "grep")}
    for name, does in (("sleep", "exec /bin/sleep 0.5"), ("grep", "exit 1")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho >> {counts[name]}\n{does}\n")
        program.chmod(0o755)
    stubborn = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; sleep 30; sleep 30"], stdout=-1, start_new_session=True
    )
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    guard = Guard(str(tmp_path / "pypmix-nobody"), grace=1)
    try:
        guard.add(stubborn.pid)
        os.close(guard._writer)
        guard._writer = -1
        assert stubborn.wait(20) == -signal.SIGKILL
        os.waitpid(guard.pid, 0)
        # A second is over after two sleeps at most, and all processes are searched before each signal alone.
        assert len(counts["sleep"].read_text()) <= 2
        assert len(counts["grep"].read_text()) == 2
    finally:
        stubborn.kill()
        stubborn.wait(5)
        stubborn.stdout.close()


def test_what_the_guard_does_for_a_rank_does_not_grow_with_their_number(tmp_path: Path) -> None:
    guard = Guard(str(tmp_path / "pypmix-nobody"))
    try:
        for group in range(10**6, 10**6 + 3000):
            guard.add(group)
        for group in range(10**6, 10**6 + 3000):
            guard.remove(group)
        deadline = time.monotonic() + 10
        while "pipe" not in Path(f"/proc/{guard.pid}/wchan").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        words = Path(f"/proc/{guard.pid}/stat").read_text().rpartition(")")[2].split()
        # A list that is copied for each takes many times as long as the limit.
        assert (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") < 1
    finally:
        guard.dismiss()


def test_the_guard_outlives_a_signal_that_everybody_gets(tmp_path: Path) -> None:
    folder = tmp_path / "pypmix-nobody"
    folder.mkdir()
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    guard = Guard(str(folder))
    try:
        guard.add(process.pid)
        # A shell that has begun to read has set its signals.
        deadline = time.monotonic() + 10
        while "pipe" not in Path(f"/proc/{guard.pid}/wchan").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(guard.pid, signal.SIGTERM)
        os.close(guard._writer)
        guard._writer = -1
        assert process.wait(10) == -signal.SIGTERM
        os.waitpid(guard.pid, 0)
        assert not folder.exists()
    finally:
        process.kill()
        process.wait()


def test_a_request_that_nobody_answers_is_refused_by_its_name(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked:
        op = AllocationRequest(1)
        requestor = None
        errors: list[BaseException] = []  # noqa: RUF012

        def fail(self, error: BaseException) -> None:
            self.errors.append(error)

    host = LocalHost([shell("exit 0")], env=env)
    asked = Asked()
    monkeypatch.delitem(answertable._HOME, "AllocationRequest")
    monkeypatch.delitem(answertable.functions, AllocationRequest, raising=False)
    host.answer(host.nodes[0], asked)  # type: ignore[arg-type]
    assert "allocation_request" in str(asked.errors[0])
    host.loop.close()


CLIENT = """
from pypmix import Client
with Client() as me:
    me.fence()
    print(me.rank, me.job.size, me.node.hostname)
"""


def test_a_server_by_itself(env: dict[str, str]) -> None:
    seen: list[object] = []

    def on_upcall(upcall: Upcall) -> None:
        seen.append(upcall.op)
        upcall.reply()

    job = JobLayout("mine", (Application(("x",), 2),), (NodeLayout("here", (0, 1)),))
    with Server(on_upcall) as server:
        server.register_nspace(job.info())
        with pytest.raises(PMIxError):
            server.register_nspace(job.info())
        processes = []
        for rank in (0, 1):
            server.register_client(job.proc(rank))
            child = {**env, **server.client_env(job.proc(rank)), "PYPMIX_ENGINE": "python"}
            processes.append(subprocess.Popen([sys.executable, "-c", CLIENT], env=child, stdout=subprocess.PIPE))
            if rank == 0:
                deadline = time.monotonic() + 30
                while not (pending := server.pending()):
                    assert time.monotonic() < deadline, "the client makes no call"
                    time.sleep(0.01)
                assert [item.missing for item in pending] == [(Proc("mine", 1),)]
        outputs = [process.communicate(timeout=20)[0] for process in processes]
    assert outputs == [b"0 2 here\n", b"1 2 here\n"]
    kinds = [type(op) for op in seen]
    assert kinds.count(ClientConnected) == kinds.count(ClientFinalized) == 2


def test_a_server_by_default_lets_clients_come_and_go_and_refuses_the_rest(env: dict[str, str]) -> None:
    job = JobLayout("mine", (Application(("x",)),), (NodeLayout("here", (0,)),))
    program = "from pypmix import Client, NotSupported\nwith Client() as me:\n    try: me.abort(3)\n"
    program += "    except NotSupported: print('no')"
    with Server() as server:
        server.register_nspace(job.info())
        server.register_client(job.proc(0))
        child = {**env, **server.client_env(job.proc(0)), "PYPMIX_ENGINE": "python"}
        ended = subprocess.run([sys.executable, "-c", program], env=child, capture_output=True, timeout=20)
    assert ended.stdout == b"no\n", ended.stderr


def test_a_server_that_is_not_open() -> None:
    server = Server()
    with pytest.raises(NotInitialized, match="with Server"):
        server.pending()
    server.open()
    assert server.open() is server
    assert server.proc.nspace
    assert server.engine.name == "python"
    server.close()
    server.close()
    with pytest.raises(NotInitialized):
        server.client_env(Proc("x", 0))


def test_a_server_on_an_engine_that_cannot_serve() -> None:
    with pytest.raises(ValueError, match="'fast' runs no server: it is one of native, python"):
        Server(engine="fast").open()

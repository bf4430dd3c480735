"""Standing sessions on this machine: their jobs, their errors, their ends, and what a hundred jobs leave behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib import machine, processes
from lib.command import Command, Ended
from pypmix.host import Application, Session
from pypmix.host.sessions import Link, socket_path
from pypmix.standard.errors import NotFound, PermissionDenied, PMIxError

FENCE = """
import sys
from pypmix import Client
with Client() as me:
    me.fence(timeout=30)
    print(f"{me.rank} of {me.job.size}", *sys.argv[1:], flush=True)
"""

LEAVES = """
import os
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(write, b"left")
    os.execlp("sleep", "sleep", "600")
os.read(read, 4)
print(next(int(each) for each in open(f"/proc/self/task/{os.getpid()}/children").read().split()))
"""

WAITS = "echo ready; exec sleep 600"

COUNTED = str(Path(__file__).with_name("counted_session.py"))

LAYOUTS = ([], ["--nodes", "2"], ["--host", "localhost:4"])
"""One server in the session's process, two there, and one in a daemon."""


class Sessions:
    """The sessions of a test."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.pids: dict[str, int] = {}
        self.begun: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *options: str) -> None:
        ended = self.command("session", "start", name, *options)
        assert ended.code == 0, ended
        self.pids[name] = int(ended.out.decode().partition("pid ")[2].partition(",")[0])

    def run(self, *words: object, name: str = "s", **settings: object) -> Ended:
        return self.command(*self.words(name, words), **settings)

    def begin(self, *words: object, name: str = "s", **settings: object) -> subprocess.Popen[bytes]:
        self.begun.append(self.command.start(*self.words(name, words), **settings))  # type: ignore[arg-type]
        return self.begun[-1]

    @staticmethod
    def words(name: str, words: tuple[object, ...]) -> list[object]:
        """Return a command line; a job has one rank if it does not say otherwise."""
        return ["run", "--session", name, *([] if "-n" in words else ["-n", "1"]), *words]

    def listed(self) -> list[dict[str, object]]:
        return list(json.loads(self.command("session", "list", "--json").out))

    def stop(self) -> None:
        for job in self.begun:
            job.kill()
            for file in (job.stdout, job.stderr):
                if file is not None:
                    file.close()
            job.wait(30)
        for name, pid in self.pids.items():
            if os.path.exists(f"/proc/{pid}"):
                self.command("session", "stop", name)


@pytest.fixture
def sessions(command: Command) -> Iterator[Sessions]:
    found = Sessions(command)
    yield found
    found.stop()


@pytest.fixture(params=LAYOUTS, ids=["here", "simulated", "daemon"])
def standing(sessions: Sessions, request: pytest.FixtureRequest) -> Sessions:
    sessions.start("s", *request.param)
    return sessions


def ready(process: subprocess.Popen[bytes], ranks: int = 1) -> None:
    assert process.stdout is not None
    for _ in range(ranks):
        assert process.stdout.readline() == b"ready\n"


def test_a_job_has_its_command_line_environment_folder_input_and_code(standing: Sessions, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    line = "read line; echo $line $EXTRA $(pwd) $0; exit 7"
    with open(tmp_path / "input", "wb") as file:
        file.write(b"some words\n")
    with open(tmp_path / "input", "rb") as file:
        ended = standing.run("-x", "EXTRA=more", "sh", "-c", line, "zero", stdin=file, cwd=tmp_path / "there")
    assert ended.out.decode() == f"some words more {tmp_path / 'there'} zero\n"
    assert ended.code == 7 and "exited with code 7" in ended.message


def test_ranks_exchange_data_as_in_a_run(standing: Sessions) -> None:
    for _ in range(2):
        ended = standing.run("-n", "2", sys.executable, "-c", FENCE, "and words")
        assert sorted(ended.lines) == ["0 of 2 and words", "1 of 2 and words"], ended
        assert ended.code == 0


def test_much_data_passes_unchanged_both_ways(standing: Sessions, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 5
    (tmp_path / "data").write_bytes(data)
    with open(tmp_path / "data", "rb") as file:
        ended = standing.run("-n", "2", "cat", stdin=file)
    assert ended.out == data and ended.code == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["nosuchprogram"], 127, "program not found"),
        (["-n", "2", "sh", "-c", "kill -9 $$"], 137, "was killed by signal 9"),
        (["--timeout", "0.5", "sleep", "60"], 124, "did not end within 0.5 s"),
        (["--wdir", "/nosuchfolder", "true"], 127, "no such working directory"),
        (["--host", "elsewhere", "true"], 2, "is none of the session's nodes"),
        (["--keep-going", "-n", "2", "sh", "-c", "exit $PMIX_RANK"], 1, "the others went on"),
    ],
)
def test_ends_are_those_of_a_run(standing: Sessions, words: list[str], code: int, text: str) -> None:
    ended = standing.run(*words)
    assert ended.code == code and text in ended.message, ended


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGQUIT, 131)])
def test_a_signal_to_the_command_ends_the_job(standing: Sessions, signum: int, code: int) -> None:
    job = standing.begin("-n", "2", "sh", "-c", WAITS)
    ready(job, 2)
    job.send_signal(signum)
    _, err = job.communicate(timeout=30)
    assert job.returncode == code and b"ended by signal" in err


def test_the_end_of_a_command_depends_on_no_answer_of_its_session(sessions: Sessions) -> None:
    sessions.start("s")
    job = sessions.begin("sh", "-c", WAITS)
    ready(job)
    processes.stop(sessions.pids["s"])
    try:
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=60)
    finally:
        os.kill(sessions.pids["s"], signal.SIGCONT)
    assert job.returncode == 128 + signal.SIGTERM
    text = "session s does not answer, and ends the job when it continues"
    assert err.decode() == f"pypmix run: ended by signal 15 (SIGTERM); {text}\n"
    until(lambda: not sessions.listed()[0]["jobs"])


def test_a_time_limit_depends_on_no_answer_of_its_session(sessions: Sessions) -> None:
    sessions.start("s")
    job = sessions.begin("--timeout", "10", "sh", "-c", WAITS)
    ready(job)
    processes.stop(sessions.pids["s"])
    try:
        _, err = job.communicate(timeout=60)
    finally:
        os.kill(sessions.pids["s"], signal.SIGCONT)
    assert job.returncode == 124
    text = "the job did not end within 10 s; session s does not answer, and ends the job when it continues"
    assert err.decode() == f"pypmix run: {text}\n"
    until(lambda: not sessions.listed()[0]["jobs"])


def test_a_session_that_answers_is_waited_for_beyond_the_limit(sessions: Sessions) -> None:
    sessions.start("s", "--grace", "12")
    began = time.monotonic()
    job = sessions.begin("--timeout", "1", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    ready(job)
    _, err = job.communicate(timeout=60)
    assert job.returncode == 124 and time.monotonic() - began > 12
    assert err.decode().startswith("pypmix run: the job did not end within 1 s and was ended\n")


def test_a_session_that_is_stopped_is_not_asked_for_ever(sessions: Sessions) -> None:
    sessions.start("s")
    sessions.start("t")
    processes.stop(sessions.pids["s"])
    try:
        listed = sessions.command("session", "list", "--json")
        ended = sessions.command("session", "stop", "s")
    finally:
        os.kill(sessions.pids["s"], signal.SIGCONT)
    pid = sessions.pids["s"]
    assert [each["name"] for each in json.loads(listed.out)] == ["t"]
    for done, code in ((listed, 0), (ended, 1)):
        assert done.code == code
        assert re.search(rf"session s does not answer(; |\n)was its process {pid} stopped\?", done.err.decode())


def test_other_signals_reach_the_ranks(standing: Sessions) -> None:
    job = standing.begin("sh", "-c", 'trap "echo got; exit 3" USR2; echo ready; while :; do sleep 0.05; done')
    ready(job)
    job.send_signal(signal.SIGUSR2)
    out, _ = job.communicate(timeout=30)
    assert out == b"got\n" and job.returncode == 3


def test_a_report_is_the_commands_own(standing: Sessions) -> None:
    other, job = standing.begin("sh", "-c", WAITS), standing.begin("sh", "-c", WAITS)
    ready(other)
    ready(job)
    job.send_signal(signal.SIGUSR1)
    assert job.stderr is not None and other.stderr is not None
    assert b"1 of 1 rank runs" in job.stderr.readline()


def test_the_end_of_a_command_ends_its_job_alone(standing: Sessions) -> None:
    killed, kept = (standing.begin("sh", "-c", WAITS) for _ in range(2))
    ready(killed)
    ready(kept)
    killed.kill()
    killed.wait(30)
    # The session has ended the job before it answers a request that comes after the end of the last one's slots.
    standing.run("true")
    until(lambda: len(standing.listed()[0]["jobs"]) == 1)  # type: ignore[arg-type]
    assert kept.poll() is None


def until(there: Callable[[], bool], turns: int = 300) -> None:
    """Wait until something is so; it is looked for again and again, and that takes a while each time."""
    for _ in range(turns):
        if there():
            return
    raise AssertionError("it has not come")


def test_a_reader_that_goes_ends_the_job(standing: Sessions) -> None:
    job = standing.begin("-n", "2", "yes")
    assert job.stdout is not None
    job.stdout.readline()
    job.stdout.close()
    assert job.wait(30) == 128 + signal.SIGPIPE


def test_stopping_ends_jobs_and_leaves_nothing(standing: Sessions) -> None:
    job = standing.begin("-n", "2", "sh", "-c", WAITS)
    ready(job, 2)
    assert standing.command("session", "stop", "s").code == 0
    _, err = job.communicate(timeout=30)
    assert job.returncode == 143 and b"session s was stopped" in err
    found = processes.read(standing.pids["s"])
    assert found is None or found.state == "Z"
    assert standing.listed() == []
    assert [*standing.command.temporary.iterdir()] == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_a_session(standing: Sessions, signum: int) -> None:
    job = standing.begin("sh", "-c", WAITS)
    ready(job)
    os.kill(standing.pids["s"], signum)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 128 + signum and b"session s was stopped" in err


def test_a_killed_session_leaves_nothing_and_its_name_is_free(standing: Sessions) -> None:
    job = standing.begin("sh", "-c", WAITS)
    ready(job)
    os.kill(standing.pids["s"], signal.SIGKILL)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 1 and b"session s has ended while this job ran" in err
    assert not processes.wait_gone(standing.command.mark, 20)
    assert standing.listed() == []
    assert b"you have no session" in standing.run("true").err
    standing.start("s")
    assert standing.run("true").code == 0


def test_processes_that_leave_their_group_end_with_their_job(standing: Sessions) -> None:
    ended = standing.run(sys.executable, "-c", LEAVES)
    left = int(ended.out)
    until(lambda: processes.read(left) is None or processes.read(left).state == "Z")  # type: ignore[union-attr]
    assert standing.listed()[0]["name"] == "s"


def test_jobs_of_a_rank_belong_to_its_command(standing: Sessions, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pypmix import Client\nwith Client() as me:\n"
        "    me.spawn(['sh', '-c', 'echo child; pwd; exit 5'], n=1).wait(timeout=30)\n"
    )
    ended = standing.run(sys.executable, "-c", program, cwd=tmp_path)
    assert "child" in ended.lines and str(tmp_path) in ended.lines and ended.code == 5, ended


def test_the_engine_that_was_chosen_for_a_job_is_that_of_all_jobs_it_leads_to(
    standing: Sessions, tmp_path: Path
) -> None:
    # A spawned job spawns another one; the session itself has the engine that its environment names, or none.
    program = tmp_path / "spawns.py"
    program.write_text(
        "import os, sys\nfrom pypmix import Client\ndepth = int(sys.argv[1])\nwith Client() as me:\n"
        "    print(depth, os.environ['PYPMIX_ENGINE'], flush=True)\n"
        "    if depth:\n"
        "        job = me.spawn([sys.executable, sys.argv[0], str(depth - 1)], n=1)\n"
        "        assert job.wait(timeout=30) == 0\n"
    )
    ended = standing.run("--engine", "python", sys.executable, program, "2")
    assert sorted(ended.lines) == ["0 python", "1 python", "2 python"], ended
    assert standing.run("sh", "-c", "echo ${PYPMIX_ENGINE-none}").lines == ["none"]


def test_slots_are_waited_for_in_order(sessions: Sessions) -> None:
    sessions.start("s", "--host", "localhost:2")
    first = sessions.begin("-n", "2", "sh", "-c", WAITS)
    ready(first, 2)
    second = sessions.begin("-n", "2", "echo", "second")
    assert second.stderr is not None
    assert b"waiting for slots" in second.stderr.readline()
    # It would fit, and does not pass the one that waits.
    third = sessions.begin("-n", "1", "echo", "third")
    assert third.stderr is not None
    assert b"waiting for slots" in third.stderr.readline()
    assert sessions.run("--node-timeout", "0.2", "-n", "1", "true").message == (
        "pypmix run: waiting for slots that other jobs of the session hold\n"
        "pypmix run: no slots have become free for it within 0.2 s"
    )
    assert sessions.run("--oversubscribe", "--node-timeout", "1", "-n", "3", "true").code == 1
    first.send_signal(signal.SIGTERM)
    assert second.communicate(timeout=30)[0] == b"second\nsecond\n"
    assert third.communicate(timeout=30)[0] == b"third\n"
    refused = sessions.run("-n", "3", "true")
    assert refused.code == 1 and "do not fit" in refused.message


def test_a_command_that_waits_can_be_ended(sessions: Sessions) -> None:
    sessions.start("s", "--host", "localhost:1")
    first = sessions.begin("sh", "-c", WAITS)
    ready(first)
    second = sessions.begin("echo", "second")
    assert second.stderr is not None and b"waiting for slots" in second.stderr.readline()
    second.send_signal(signal.SIGINT)
    assert second.wait(30) == 130
    assert sessions.listed()[0]["waiting"] == 0


def test_a_session_ends_with_its_last_node(sessions: Sessions) -> None:
    """Commands that wait for slots get an error, and do not wait for nodes that never come."""
    sessions.start("s", "--host", "localhost:1")
    first = sessions.begin("sh", "-c", WAITS)
    ready(first)
    second = sessions.begin("true")
    assert second.stderr is not None
    assert b"waiting for slots" in second.stderr.readline()
    for child in processes.children(sessions.pids["s"]):
        # Other children may end with the daemon.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    done = sessions.command.end(second)
    assert done.code == 1 and "session s was stopped: all of its nodes are lost" in done.message, done
    assert "was lost with node localhost" in sessions.command.end(first).message
    assert not processes.wait_gone(sessions.command.mark, 20)
    assert sessions.listed() == []


def test_errors_say_what_to_do(sessions: Sessions) -> None:
    run = sessions.run("true", name="nosuch")
    assert run.code == 1 and "there is no session nosuch" in run.message and "session start nosuch" in run.message
    assert "option of `pypmix session start`" in sessions.run("--grace", "3", "true").message
    start = sessions.command("session", "start", "s", "-n", "3")
    assert start.code == 2 and b"option of jobs" in start.err
    assert sessions.command("session", "start", "s/t").code == 2
    assert sessions.command("session", "stop", "nosuch").code == 1
    assert sessions.command("session", "strat").err.startswith(b"pypmix session: there is no strat; did you mean")
    failed = sessions.command("session", "start", "s", "--host", "localhost", "--remote-python", "/nosuchpython")
    assert failed.code == 1 and b"/nosuchpython" in failed.err
    sessions.start("s")
    again = sessions.command("session", "start", "s")
    assert again.code == 1 and b"there is a session s already" in again.err


def test_a_folder_of_others_is_refused(sessions: Sessions) -> None:
    folder = sessions.command.temporary / f"pypmix-sessions-{os.geteuid()}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    assert b"is open to other users" in sessions.command("session", "start", "s").err
    if os.geteuid() == 0:
        folder.chmod(0o700)
        os.chown(folder, 1234, 1234)
        assert b"belongs to user 1234" in sessions.run("true").err
    folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
def test_the_session_of_another_user_is_named(sessions: Sessions) -> None:
    folder = sessions.command.temporary / "pypmix-sessions-1234"
    folder.mkdir(mode=0o700)
    (folder / "s.sock").touch()
    assert "session s is one of user 1234" in sessions.run("true").message
    (folder / "s.sock").unlink()
    folder.rmdir()


def test_what_is_no_request_is_refused(sessions: Sessions) -> None:
    sessions.start("s")
    folder = os.open(next(sessions.command.temporary.glob("pypmix-sessions-*")), os.O_RDONLY)
    try:
        for sent, text in (
            ({"version": "0"}, "the session runs pypmix"),
            ({"version": "x" * 100_000, "job": {}}, "the session runs pypmix"),
            ({"signal": 9999}, "9999 is not a signal"),
            ({"signal": []}, "not one of a command"),
        ):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(socket_path(folder, "s"))
                link = Link(connection)
                with contextlib.suppress(OSError):
                    link.send(sent)
                found = link.receive()
                assert found and text in found[0]["refused"], found
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(socket_path(folder, "s"))
            connection.sendall(b"\xff" * 100)
            assert connection.recv(1) == b""
    finally:
        os.close(folder)
    assert sessions.run("true").code == 0


def test_programs_use_sessions(sessions: Sessions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(sessions.command.temporary))
    monkeypatch.setenv("PYTHONPATH", sessions.command.environment["PYTHONPATH"])
    monkeypatch.setenv(processes.MARK, sessions.command.mark)
    with Session.start("mine", "--nodes", "2") as session:
        assert [node["name"] for node in session.describe()["nodes"]] == ["node0", "node1"]
        with open(tmp_path / "out", "wb") as out:
            files = (-1, out.fileno(), out.fileno())
            ends: list[int] = []
            apps = [Application(("sh", "-c", "echo x; exit 3"), 2)]
            threads = [
                threading.Thread(target=lambda: ends.append(session.run(apps, files=files).code)) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert ends == [3] * 4 and (tmp_path / "out").read_text().count("x") >= 4
        with pytest.raises(PMIxError, match="there is a session mine already"):
            Session.start("mine")
    with pytest.raises(NotFound, match="there is no session mine"):
        session.run(apps)
    with pytest.raises(ValueError, match="a session's name"):
        Session("../mine")
    assert issubclass(PermissionDenied, PMIxError)


def _held(pid: int) -> tuple[int, int, int]:
    """Return the threads, the descriptors and the children of a process."""
    with open(f"/proc/{pid}/status") as status:
        threads = int(next(line for line in status if line.startswith("Threads")).split()[1])
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return threads, len(os.listdir(f"/proc/{pid}/fd")), len(children.read().split())


def _daemons(pid: int) -> list[int]:
    """Return the processes of pypmix that a session has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children if b"pypmix\0" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.mark.parametrize(
    ("engine", "layout"),
    [("python", layout) for layout in LAYOUTS] + [("native", [])],
    ids=["here", "simulated", "daemon", "native"],
)
def test_a_hundred_jobs_leave_nothing(
    sessions: Sessions, layout: list[str], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = layout
    if engine == "native":
        if not machine.libraries():
            machine.lacking("a libpmix")
        options = ["--server-engine", "native", "--server-libpmix", machine.libraries()[-1].path]
    counted = sessions.command.start_words([sys.executable, COUNTED, "s", *options], subprocess.DEVNULL)
    sessions.begun.append(counted)
    assert counted.stderr is not None
    while (line := counted.stderr.readline()) and b"is ready" not in line:
        pass
    assert line, "the session has ended"
    monkeypatch.setenv("TMPDIR", str(sessions.command.temporary))
    session = Session("s")
    pid = session.describe()["pid"]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        watched = [pid, *_daemons(pid)]
        _jobs(session, 20, null)
        _settle(watched)
        before, first = {each: _held(each) for each in watched}, session.describe()
        cheapest = _jobs(session, 10, null)
        _jobs(session, 90, null)
        assert _jobs(session, 10, null) < 1.1 * cheapest
        _settle(watched)
        assert {each: _held(each) for each in watched} == before
        # What was kept of each job would be some kilobytes.
        assert session.describe()["memory"] - first["memory"] < 110 * 1500
        session.stop()
    finally:
        os.close(null)


def _jobs(session: Session, number: int, null: int) -> int:
    """Run jobs one after the other; return the calls of the cheapest one."""
    apps = [Application(("true",), 2)]
    found = [int(session.describe()["calls"])]
    for _ in range(number):
        assert session.run(apps, files=(-1, null, null)).code == 0
        found.append(int(session.describe()["calls"]))
    return min(after - before for before, after in itertools.pairwise(found))


def _settle(watched: list[int]) -> None:
    """Wait until no zombie and no descriptor of the last job is left: servers know it for two more seconds."""
    former: list[tuple[int, int, int]] = []
    same = 0
    while same < 30:
        found = [_held(each) for each in watched]
        same = same + 1 if found == former else 0
        former = found
        threading.Event().wait(0.1)

"""The commands that are tools get right answers from `pypmix run` and from `prterun`, and say what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from lib import machine
from lib.command import Command, Ended

RANK = """
import os, sys, time
import pypmix
from pathlib import Path

folder = Path(sys.argv[1])
with pypmix.Client(engine="python") as me:
    if me.rank == 0:
        me.publish({"port": "tcp://x", "lanes": 4}, persist=pypmix.Persist.SESSION)
    me.fence(timeout=20)
    (folder / f"up.{me.rank}").write_text(f"{me.nspace} {os.getpid()} {me.get(pypmix.attrs.SERVER_NSPACE)}\\n")
    number = 0
    while not (folder / "stop").exists():
        if me.rank == 0 and (folder / "notify").exists():
            (folder / "notify").unlink()
            number += 1
            me.notify(pypmix.EventCode(-5000 - number), data_range=pypmix.Range.GLOBAL, info={"acme.number": number})
            me.notify(pypmix.EventCode.JCTRL_CHECKPOINT, data_range=pypmix.Range.GLOBAL)
        time.sleep(0.01)
"""


class Running:
    """A job of two ranks that waits to be looked at.

    Attributes:
        nspace: The job's nspace.
        pids: The pids of its ranks.
        server: The nspace of its server.
        pid: The launcher's pid.
    """

    def __init__(self, command: Command, server: str, *options: str) -> None:
        self.command = command
        self.name = server
        script = command.folder / "rank.py"
        script.write_text(RANK)
        words = ["-n", "2", sys.executable, str(script), str(command.folder)]
        if server == "pypmix":
            self.process = command.start("run", *options, *words)
        else:
            launcher = machine.launcher(server)
            if launcher is None:
                machine.lacking(f"the server {server}")
            assert launcher is not None
            line = " ".join(["exec", launcher.path, *machine.PRTERUN_OPTIONS, *words])
            self.process = command.start_shell(line)
        found = [text.split() for text in command.wait_for("up", 2)]
        self.pid = self.process.pid
        self.nspace, self.server = found[0][0], found[0][2]
        self.pids = [int(pid) for _, pid, _ in found]

    def notify(self) -> None:
        (self.command.folder / "notify").touch()

    def end(self) -> None:
        """End the job; a `prterun` that more than one tool has attached to does not end by itself."""
        (self.command.folder / "stop").touch()
        if self.name == "pypmix":
            succeeded(self.command.end(self.process))
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        self.process.terminate()
        self.command.end(self.process)
        for folder in self.command.temporary.glob("prtrn.*"):
            shutil.rmtree(folder)


@pytest.fixture(params=["pypmix", "prterun-5.0.11"])
def job(command: Command, request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running(command, request.param)
    yield running
    running.end()


@pytest.fixture
def ours(command: Command) -> Iterator[Running]:
    running = Running(command, "pypmix")
    yield running
    running.end()


def succeeded(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err.decode()
    return ended


def test_ps(command: Command, job: Running) -> None:
    found = json.loads(succeeded(command("ps", "--json")).out)
    (server,) = found["servers"]
    assert server["server"] == f"{job.server}:0"
    (shown,) = [each for each in server["jobs"] if each["nspace"] == job.nspace]
    assert [proc["rank"] for proc in shown["procs"]] == [0, 1]
    assert [proc["pid"] for proc in shown["procs"]] == job.pids
    assert {proc["state"] for proc in shown["procs"]} <= {"RUNNING", "CONNECTED"}
    assert {proc["node"] for proc in shown["procs"]} == {socket.gethostname()}
    assert {proc["exit_code"] for proc in shown["procs"]} == {None}
    lines = succeeded(command("ps")).lines
    assert lines[0].split() == ["JOB", "RANK", "PID", "STATE", "NODE", "PROGRAM"]
    # To prterun a tool is a job with one proc, even after it has gone.
    assert [line.split()[:3] for line in lines[1:] if job.nspace in line] == [
        [job.nspace, str(rank), str(pid)] for rank, pid in enumerate(job.pids)
    ]


def test_ps_of_simulated_nodes(command: Command) -> None:
    running = Running(command, "pypmix", "--nodes", "2")
    try:
        for words in ([], ["--pid", str(running.pid)]):
            (server,) = json.loads(succeeded(command("ps", "--json", *words)).out)["servers"]
            assert server["server"] == f"{running.server}:0"
            (shown,) = [each for each in server["jobs"] if each["nspace"] == running.nspace]
            assert [(proc["pid"], proc["node"]) for proc in shown["procs"]] == [
                (running.pids[0], "node0"),
                (running.pids[1], "node1"),
            ]
    finally:
        running.end()


def test_every_way_to_name_the_server(command: Command, job: Running) -> None:
    (file, *_) = command.temporary.rglob(f"pmix.*.tool.{job.pid}")
    uri = file.read_text().split("\n")[0]
    ways: list[list[object]] = [
        [],
        ["--pid", job.pid],
        ["--nspace", job.server],
        ["--uri", uri],
        ["--uri", f"file:{file}"],
        ["--file", file],
        ["--pid", job.pid, "--wait-for-server", 3],
    ]
    for words in ways:
        ended = succeeded(command("lookup", "port", *words))
        assert ended.lines == ["tcp://x"], words


def test_query(command: Command, job: Running) -> None:
    for key in ("QUERY_NAMESPACES", "PMIX_QUERY_NAMESPACES", "pmix.qry.ns", "query_namespaces"):
        (line,) = succeeded(command("query", key)).lines
        assert job.nspace in line.split(",")
    ended = succeeded(command("query", "QUERY_PROC_TABLE", "--job", job.nspace, "--json"))
    rows = json.loads(ended.out)["QUERY_PROC_TABLE"]
    assert [row["proc"] for row in rows] == [f"{job.nspace}:0", f"{job.nspace}:1"]
    assert [row["pid"] for row in rows] == job.pids


def test_a_query_without_an_answer(command: Command, ours: Running) -> None:
    ended = command("query", "QUERY_NAMESPACES", "pmix.no.such.key", "--json")
    assert ended.code == 1
    assert json.loads(ended.out) == {"QUERY_NAMESPACES": ours.nspace}
    assert "no answer for pmix.no.such.key" in ended.err.decode()
    ended = command("query", "acme.queue", "pypmix.pending", "--json")
    assert ended.code == 1
    assert json.loads(ended.out) == {"pypmix.pending": []}
    assert "no answer for acme.queue" in ended.err.decode()
    ended = command("query", "QUERY_NAMSPACES")
    assert ended.code == 2
    assert "QUERY_NAMESPACES" in ended.err.decode()
    assert command("query", "QUERY_NAMESPACES", "-q", "nonsense").code == 2
    assert command("query", "QUERY_NAMESPACES", "--rank", "0").code == 2


def test_lookup(command: Command, job: Running) -> None:
    assert succeeded(command("lookup", "port")).lines == ["tcp://x"]
    assert succeeded(command("lookup", "port", "lanes")).lines == ["port=tcp://x", "lanes=4"]
    found = json.loads(succeeded(command("lookup", "lanes", "--json")).out)
    assert found == {"lanes": {"value": 4, "by": f"{job.nspace}:0"}}
    ended = command("lookup", "port", "gone")
    assert (ended.code, ended.lines) == (1, ["port=tcp://x"])
    assert "gone" in ended.err.decode()
    began = time.monotonic()
    assert command("lookup", "gone", "--wait", "1").code == 1
    assert time.monotonic() - began > 0.9


HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e[bold red]\npypmix ps: forged"
SHOWN = r"\x1b]0;owned\x07\x9b31m\u202e[bold red]\npypmix ps: forged"

RANK_OF_MALLORY = f"""
import os, sys, time
import pypmix
from pathlib import Path

folder = Path(sys.argv[1])
with pypmix.Client(engine="python") as me:
    if me.rank == 0:
        me.publish({{"key " + {HOSTILE!r}: {HOSTILE!r}, "list": [{HOSTILE!r}]}})
    (folder / f"up.{{me.rank}}").write_text(f"{{me.nspace}}\\n")
    while not (folder / "notify").exists():
        time.sleep(0.01)
    if me.rank == 0:
        me.notify(pypmix.EventCode(-5000), data_range=pypmix.Range.GLOBAL, info={{{HOSTILE!r}: {HOSTILE!r}}})
        me.group({HOSTILE!r}, [pypmix.Proc(me.nspace, 0), pypmix.Proc(me.nspace, 1)], timeout=60).construct()
    else:
        while not (folder / "stop").exists():
            time.sleep(0.01)
        me.group({HOSTILE!r}, [pypmix.Proc(me.nspace, 0), pypmix.Proc(me.nspace, 1)], timeout=60).construct()
"""


def test_what_ranks_have_named_does_nothing_to_the_terminal(command: Command) -> None:
    program = command.folder / HOSTILE.replace("/", "").replace("\n", "")
    program.symlink_to(sys.executable)
    (command.folder / "rank.py").write_text(RANK_OF_MALLORY)
    process = command.start("run", "-n", "2", program, command.folder / "rank.py", command.folder)
    command.wait_for("up", 2)
    listening = Listening(command, "--count", 1)
    (command.folder / "notify").touch()
    key = "key " + HOSTILE

    def lines(*words: object) -> list[str]:
        found = succeeded(command(*words)).out.decode().removesuffix("\n").split("\n")
        assert all(line.isprintable() for line in found), found
        return found

    assert lines("lookup", key) == [SHOWN]
    assert lines("lookup", key, "list")[0] == f"key {SHOWN}={SHOWN}"
    for words in (("lookup", key, "--json"), ("lookup", key, "list", "--json")):
        found = json.loads("\n".join(lines(*words)))
        assert found[key]["value"] == HOSTILE
    ended = command.end(listening.process)
    (event,) = ended.lines
    assert event.isprintable() and event.endswith(f" {SHOWN}={SHOWN}")
    for _ in range(100):
        shown = lines("top", "--once")
        if len(shown) > 3:
            break
    assert SHOWN in shown[-1] and "waiting for" in shown[-1]
    assert SHOWN.replace(r"\n", "")[:10] in lines("ps")[1]
    assert json.loads("\n".join(lines("ps", "--json")))["servers"]
    (nspace,) = lines("query", "QUERY_NAMESPACES")
    (rows,) = lines("query", "QUERY_PROC_TABLE", "--job", nspace)
    assert r"\u001b]0;owned\u0007\u009b31m\u202e[bold red]" in rows
    ended = command("lookup", "\x1b[31mnothing")
    assert ended.err.decode() == "pypmix lookup: not published: \\x1b[31mnothing\n"
    (command.folder / "stop").touch()
    succeeded(command.end(process))


def test_publish(command: Command, job: Running) -> None:
    succeeded(command("publish", "text=a=b", "number:=7", "list:=[1, 2]"))
    assert succeeded(command("lookup", "text", "number", "list")).lines == ["text=a=b", "number=7", "list=[1, 2]"]


def test_unpublish(command: Command, ours: Running) -> None:
    succeeded(command("publish", "one=1", "two=2", "three=3"))
    again = command("publish", "one=1")
    assert again.code == 1
    assert "pypmix publish:" in again.err.decode()
    succeeded(command("unpublish", "one"))
    assert command("lookup", "one").code == 1
    assert succeeded(command("lookup", "two")).lines == ["2"]
    # What a rank has published is not this user's command's to take back.
    assert command("unpublish", "port").code == 1
    succeeded(command("unpublish"))
    assert command("lookup", "two").code == 1
    assert succeeded(command("lookup", "port")).lines == ["tcp://x"]
    succeeded(command("publish", "once=1", "--persist", "first-read"))
    assert succeeded(command("lookup", "once")).lines == ["1"]
    assert command("lookup", "once").code == 1


@pytest.mark.parametrize(
    "words", [["x"], ["=x"], [":=1"], ["x:=nope"], ["x=1", "--range", "none"], ["x=1", "--persist", "none"]]
)
def test_what_cannot_be_published(command: Command, words: list[str]) -> None:
    assert command("publish", *words).code == 2


class Listening:
    """`pypmix events`, and the lines that it has printed."""

    def __init__(self, command: Command, *words: object) -> None:
        self.command = command
        self.process = command.start("events", *words)
        assert self.process.stderr is not None
        assert b"listening at" in self.process.stderr.readline()

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().decode().strip() for _ in range(count)]


def test_events(command: Command, ours: Running) -> None:
    listening = Listening(command, "--code", "JCTRL_*", "--code", "-5001", "--json")
    ours.notify()
    events = [json.loads(line) for line in listening.lines(2)]
    assert [(event["code"], event["source"]) for event in events] == [
        (-5001, f"{ours.nspace}:0"),
        (-106, f"{ours.nspace}:0"),
    ]
    assert events[0]["info"]["acme.number"] == 1
    assert events[1]["name"] == "JCTRL_CHECKPOINT"
    assert abs(events[0]["time"] - time.time()) < 60
    # A second one is not among those that were asked for.
    ours.notify()
    assert [json.loads(line)["code"] for line in listening.lines(1)] == [-106]
    listening.process.send_signal(signal.SIGINT)
    ended = command.end(listening.process)
    assert ended.code == 130
    assert ended.out == b""
    assert b"Traceback" not in ended.err


def test_events_until_there_were_enough_or_the_time_is_over(command: Command, ours: Running) -> None:
    listening = Listening(command, "--count", 2)
    ours.notify()
    ended = succeeded(command.end(listening.process))
    assert len(ended.lines) == 2
    assert "acme.number=1" in ended.lines[0]
    assert f"from {ours.nspace}:0" in ended.lines[0]
    began = time.monotonic()
    assert succeeded(command("events", "--code", "-5999", "--timeout", 1)).lines == []
    assert time.monotonic() - began > 0.9


def test_events_without_a_code_are_all(command: Command) -> None:
    """The ends of procs and jobs come too, which default handlers never get, and each event comes once."""
    running = Running(command, "pypmix", "--keep-going")
    listening = Listening(command, "--json")
    running.notify()
    events = [json.loads(line) for line in listening.lines(2)]
    assert [event["code"] for event in events] == [-5001, -106]
    os.kill(running.pids[1], signal.SIGKILL)
    (aborted,) = [json.loads(line) for line in listening.lines(1)]
    assert aborted["name"].startswith("ERR_PROC_")
    assert aborted["affected"] == [f"{running.nspace}:1"]
    (running.command.folder / "stop").touch()
    rest = [json.loads(line)["name"] for line in command.end(listening.process).lines]
    assert rest.count("EVENT_JOB_END") == 1
    command.end(running.process)


def test_events_of_a_job_that_ends(command: Command) -> None:
    running = Running(command, "pypmix")
    listening = Listening(command, "--code", "-5999")
    running.end()
    ended = succeeded(command.end(listening.process))
    assert b"the server is gone" in ended.err


def test_no_event_of_that_name(command: Command) -> None:
    ended = command("events", "--code", "NO_SUCH_*")
    assert ended.code == 2
    assert b"no event is called NO_SUCH_*" in ended.err


@pytest.mark.parametrize(
    "words", [["ps", "--pid", "1"], ["query", "JOB_SIZE"], ["lookup", "x"], ["publish", "x=1"], ["events"]]
)
def test_nobody_is_there(command: Command, words: list[str]) -> None:
    ended = command(*words)
    assert ended.code == 1
    assert ended.out == b""
    message = ended.err.decode()
    assert message.startswith(f"pypmix {words[0]}: ")
    assert "no server" in message
    assert "Traceback" not in message


def test_ps_without_a_server_has_found_nothing(command: Command) -> None:
    ended = command("ps")
    assert (ended.code, ended.lines) == (1, [])
    assert b"no server of this user runs on this node" in ended.err
    ended = command("ps", "--json")
    assert (ended.code, json.loads(ended.out), ended.err) == (1, {"servers": []}, b"")


def test_the_program_of_a_rank_is_its_script(command: Command, ours: Running) -> None:
    for words in (["ps"], ["top", "--once"]):
        lines = succeeded(command(*words)).lines
        assert [line.split()[5:] for line in lines if line.startswith(ours.nspace)] == [
            ["rank.py", str(command.folder)]
        ] * 2
    (server,) = json.loads(succeeded(command("ps", "--json")).out)["servers"]
    line = f"{sys.executable} {command.folder / 'rank.py'} {command.folder}"
    assert {proc["command"] for job in server["jobs"] for proc in job["procs"]} == {line}


def test_the_programs_of_several_applications(command: Command) -> None:
    command.environment["PYTHONPATH"] += f":{command.folder}"
    running = Running(command, "pypmix", "-n", "1", sys.executable, "-X", "dev", "-m", "rank", str(command.folder), ":")
    try:
        lines = succeeded(command("ps")).lines
        assert [line.split()[5] for line in lines[1:]] == ["-m", "rank.py", "rank.py"]
    finally:
        running.end()


def on_a_terminal(command: Command, *words: str, typed: bytes = b"", until: bytes = b"PROGRAM") -> tuple[str, int]:
    """Run a command on a terminal of 80 columns; type when some output has come, and return all and the exit code."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = command.start(*words, stdin=theirs, stdout=theirs, env={**command.environment, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while select.select([ours], [], [], 20)[0] and (part := os.read(ours, 4096)):
            shown += part
            if typed and until in shown:
                os.write(ours, typed)
                typed = b""
    os.close(ours)
    return shown.decode(), command.end(process).code


def test_a_table_fits_a_terminal_of_80_columns(command: Command, ours: Running) -> None:
    shown, code = on_a_terminal(command, "ps")
    rows = [line for line in shown.splitlines() if "rank.py" in line]
    assert code == 0 and len(rows) == 2
    job = rows[0].split()[0]
    assert len(job) <= 24 and job.endswith(ours.nspace[-7:]) and ours.nspace.startswith(job.partition("…")[0])


def test_q_ends_top(command: Command, ours: Running) -> None:
    shown, code = on_a_terminal(command, "top", "--interval", "20", typed=b"q", until=b"rank.py")
    assert code == 0
    assert shown.endswith("\x1b[?25h\x1b[?1049l")


def test_two_ways_at_once(command: Command) -> None:
    ended = command("ps", "--pid", 1, "--nspace", "x")
    assert ended.code == 2
    assert b"pid and nspace" in ended.err


def test_several_jobs_at_once(command: Command, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = Running(command, "pypmix")
    other = Command(tmp_path_factory.mktemp("other"))
    other.environment["TMPDIR"] = str(command.temporary)
    second = Running(other, "pypmix")
    servers = json.loads(succeeded(command("ps", "--json")).out)["servers"]
    assert {each["nspace"] for server in servers for each in server["jobs"]} == {first.nspace, second.nspace}
    only = json.loads(succeeded(command("ps", "--json", "--pid", first.pid)).out)["servers"]
    assert [each["nspace"] for server in only for each in server["jobs"]] == [first.nspace]
    for words in (["query", "QUERY_NAMESPACES"], ["lookup", "port"], ["events", "--timeout", 1], ["publish", "a=1"]):
        refused = command(*words)
        assert refused.code == 2 and refused.out == b"", refused
        for job in (first, second):
            line = rf"\n  --pid {job.pid}  \d+ (s|min) old  rank\.py {re.escape(str(job.command.folder)[:50])}"
            assert re.search(line, refused.err.decode())
    chosen = command("query", "QUERY_NAMESPACES", "--nspace", second.server)
    assert second.nspace in succeeded(chosen).out.decode().strip().split(",")
    second.end()
    first.end()


def test_a_reader_that_goes_away(command: Command, ours: Running) -> None:
    process = command.start("ps", "--json", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as stderr:
        assert b"Traceback" not in stderr.read()
    process.wait(20)


def test_the_files_of_a_job(command: Command, ours: Running) -> None:
    host = socket.gethostname().partition(".")[0]
    (folder,) = command.temporary.iterdir()
    names = {f"pmix.{host}.tool", f"pmix.{host}.tool.{ours.pid}", f"pmix.{host}.tool.{ours.server}"}
    found = {path.name: path for path in folder.iterdir() if path.name.startswith("pmix.")}
    assert names <= set(found)
    assert {path.stat().st_mode & 0o777 for path in found.values()} == {0o600}


def test_a_launcher_that_a_tool_has_started(command: Command) -> None:
    script = "import sys, time, pathlib; p = pathlib.Path(sys.argv[1])\nwhile not p.exists(): time.sleep(0.01)"
    file, stop = command.temporary / "rendezvous", command.folder / "stop"
    process = command.start("run", sys.executable, "-c", script, stop, env={"PMIX_LAUNCHER_RNDZ_FILE": str(file)})
    succeeded(command("publish", "x=1", "--file", file, "--wait-for-server", 10))
    stop.touch()
    succeeded(command.end(process))
    assert not file.exists()


def test_the_example_of_the_documentation(command: Command, job: Running) -> None:
    example = machine.ROOT / "docs" / "examples" / "tools" / "look.py"
    environment = {**command.environment}
    for words in ([], [str(job.pid)]):
        done = subprocess.run(
            [sys.executable, str(example), *words], env=environment, capture_output=True, text=True, timeout=20
        )
        assert done.returncode == 0, done.stderr
        assert f"server: {job.server}:0 of release" in done.stdout
        assert f"job: {job.nspace} of 2" in done.stdout
        assert "port: tcp://x" in done.stdout
        if job.name != "pypmix":
            break


def test_a_tool_that_is_killed_harms_nobody(command: Command, ours: Running) -> None:
    for _ in range(5):
        listening = Listening(command)
        listening.process.kill()
        command.end(listening.process)
    ours.notify()
    assert succeeded(command("lookup", "port")).lines == ["tcp://x"]
    assert json.loads(succeeded(command("query", "QUERY_NAMESPACES", "--json")).out) == {
        "QUERY_NAMESPACES": ours.nspace
    }


def test_what_a_tool_has_published_lasts_as_long_as_it_was_to(command: Command, ours: Running) -> None:
    code = (
        "import os, sys, pypmix\n"
        "with pypmix.Tool(pid=int(sys.argv[1])) as tool:\n"
        "    keys = [f'{name}.{len(sys.argv)}' for name in ('PROC', 'APP', 'SESSION')]\n"
        "    for key in keys:\n"
        "        tool.publish({key: 1}, persist=pypmix.Persist[key.partition('.')[0]])\n"
        "    assert set(tool.lookup(keys)) == set(keys)\n"
        "    if sys.argv[2:]:\n"
        "        os._exit(0)\n"
    )
    for number, words in enumerate([[], ["without a word"]], 2):
        line = [sys.executable, "-c", code, str(ours.pid), *words]
        subprocess.run(line, env=command.environment, check=True, timeout=20)
        ended = command("lookup", f"PROC.{number}", f"APP.{number}", f"SESSION.{number}")
        assert ended.lines == [f"SESSION.{number}=1"]


def test_a_rendezvous_file_that_cannot_be_written(command: Command) -> None:
    ended = command("run", "true", env={"PMIX_LAUNCHER_RNDZ_FILE": "/no/such/folder/file"})
    assert ended.code == 1
    assert "the rendezvous file /no/such/folder/file cannot be written" in ended.message

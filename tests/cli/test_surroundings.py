"""Commands in broken surroundings: arguments without sense, servers that say nothing, streams that are closed."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import BadStatusLine
from pathlib import Path

import pytest

from lib import machine
from lib.command import Command
from pypmix.cli import reach, show
from pypmix.cli.app import app
from pypmix.cli.streams import prepare
from pypmix.engine.base import Upcall
from pypmix.engine.python import transport
from pypmix.engine.python.rendezvous import host_names
from pypmix.extras.commands import bench
from pypmix.server import Server

LONG = "x" * 600


@pytest.mark.parametrize("words", [
    ["query", "QUERY_NAMESPACES", "--job", "a", "--rank=-1"],
    ["query", "QUERY_NAMESPACES", "--job", LONG, "--rank", "0"],
    ["query", f"{LONG}.a"],
    ["lookup", "a", "--timeout=-1"],
    ["lookup", LONG],
    ["lookup", "a", "a"],
    ["publish", f"{LONG}=1"],
    ["publish", "a:=null"],
    ["publish", "a:=99999999999999999999"],
    ["publish", "a:=" + "[" * 60_000],
    ["publish", "a=1", "--timeout", "nan"],
    ["unpublish", LONG],
    ["grow", "--cpus", "1", "--timeout", "nan"],
    ["grow", "--nodes", "99999999999999999999"],
    ["shrink", "--nodes", "1", "--timeout=-1"],
    ["events", "--timeout", "nan"],
    ["events", "--timeout=-1"],
    ["top", "--interval", "1e999"],
    ["conform", "--timeout", "1e10", "--", "true"],
    ["bench", "--launcher", "'"],
])  # fmt: skip
def test_arguments_without_sense_are_mistakes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app(words) == 2
    message, hint = capsys.readouterr().err.splitlines()
    assert message.startswith(f"pypmix {words[0]}: ")
    assert len(message) < 400
    assert hint == f"Try 'pypmix {words[0]} --help'."


def test_a_folder_that_cannot_be_searched_takes_no_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stat = os.stat

    def denied(path: object, *args: object, **options: object) -> os.stat_result:
        if str(path) == "/root/of/others":
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", denied)
    assert app(["bench", "--json", "/root/of/others"]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.fixture
def unusable(tmp_path: Path) -> str:
    """A launcher that is there and cannot be executed."""
    script = tmp_path / "launch"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    return str(script)


def test_conform_with_a_launcher_that_cannot_be_executed(command: Command, unusable: str) -> None:
    ended = command("conform", "--", unusable)
    assert ended.code == 2
    assert f"{unusable} cannot be executed: No such file or directory" in ended.err.decode().splitlines()[0]


def test_bench_with_a_launcher_that_cannot_be_executed(unusable: str) -> None:
    with pytest.raises(bench.Failed, match="launch cannot be executed: No such file or directory"):
        bench._job(bench.Case(1, f"{unusable} {{n}}", "python", "launch"), 1)


def test_a_machine_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Path", lambda name: Path(f"/no/such/{name}"))
    assert bench.machine()["machine"].endswith(f"{len(os.sched_getaffinity(0))} cores")


# Which servers


def reply(upcall: Upcall) -> None:
    upcall.reply()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; nothing else in the environment tells of a server."""
    for name in [name for name in os.environ if name.startswith(("PMIX_", "PYPMIX_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(reach, "ANSWER_SECONDS", 1)
    return tmp_path


def posted(folder: Path, name: str, port: int, release: str = "7.0.0", pid: int | None = None) -> None:
    """Leave the rendezvous file of a server, newer than those of others."""
    path = folder / f"pmix.{host_names()[-1]}.tool.{name}"
    path.write_text(f"{name}.0;tcp4://127.0.0.1:{port}\n{release}\n{pid or os.getpid()}\n{os.geteuid()}:0\n\n\n")
    os.utime(path, (time.time() + 60,) * 2)


@pytest.fixture
def silent(folder: Path) -> Iterator[int]:
    """The port of a server that accepts connections and says nothing, as one that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        posted(folder, "silent", listener.getsockname()[1])
        yield listener.getsockname()[1]


@pytest.fixture
def good(folder: Path) -> Iterator[Server]:
    place = folder / "good"
    place.mkdir()
    with Server(reply, nspace="good", tmpdir=str(place), tool_support=True) as server:
        yield server


def code_of(words: list[str]) -> int:
    try:
        return app(words)
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.timing
@pytest.mark.parametrize("command", ["ps", "top"])
def test_a_server_that_says_nothing_is_named_beside_the_others(
    command: str, silent: int, good: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert code_of([command, "--json"]) == 1
    # Once as the newest, and once more as the only one that is left.
    assert time.monotonic() - began < 10
    told = capsys.readouterr()
    assert [each["server"] for each in json.loads(told.out)["servers"]] == ["good:0"]
    assert "the server silent" in told.err
    assert "did not finish the handshake in time" in told.err
    assert "is it stopped" in told.err


def test_a_server_that_says_nothing_is_not_none(silent: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(["ps", "--json"]) == 1
    told = capsys.readouterr()
    assert "did not finish the handshake" in told.err
    assert "no server of this user" not in told.err


def test_a_server_that_says_nothing_keeps_none_from_being_asked(
    silent: int, good: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(["lookup", "a"]) == 1
    told = capsys.readouterr().err
    assert "did not finish the handshake" in told
    assert "not published: a" in told


def test_a_server_of_a_foreign_release_is_named_beside_the_others(
    folder: Path, good: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    posted(folder, "old", 1, "2.0.0")
    assert code_of(["ps", "--json"]) == 1
    told = capsys.readouterr()
    assert [each["server"] for each in json.loads(told.out)["servers"]] == ["good:0"]
    assert "old.0 is of release 2.0.0" in told.err


def test_files_of_dead_servers_cost_one_try_each(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(transport, "sleep", slept.append)
    for number in range(20):
        # Numbers that no process has: the last ones do not even fit.
        posted(folder, f"dead{number}", 1 + number, pid=(1 << 31) - 10 + number)
    assert code_of(["ps", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"servers": []}
    assert not slept


def test_a_server_that_the_environment_names_is_not_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PMIX_LAUNCHER_RNDZ_URI", "nonsense")
    assert code_of(["ps"]) == 1
    assert "'nonsense' is not the URI of a server" in capsys.readouterr().err


def test_an_engine_that_does_not_exist(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYPMIX_ENGINE", "steam")
    assert code_of(["ps"]) == 2
    assert "PYPMIX_ENGINE='steam' is not an engine" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["ps", "--json"], ["top", "--json"], ["query", "QUERY_NAMESPACES", "--json"]])
def test_the_native_engine_looks_for_one_server(command: Command, words: list[str]) -> None:
    if not machine.extension() or not machine.libraries():
        machine.lacking("a libpmix or the native engine's extension")
    job = command.start("run", "--forward", "sh", "-c", "echo 1; exec sleep 60")
    assert job.stdout is not None
    assert job.stdout.readline() == b"1\n"
    ended = command(*words, env={"PYPMIX_ENGINE": "native"})
    job.terminate()
    command.end(job)
    assert ended.code == 0, ended.err
    assert len(json.loads(ended.out)) == 1


# Streams


def test_an_output_that_is_closed_takes_all(command: Command) -> None:
    # Without a server, `ps` finds nothing.
    for line, code in (("conform --list >&-", 0), ("ps --json >&-", 1), ("completion bash <&- >&- 2>&-", 0)):
        ended = command.end(command.start_shell(f"exec {sys.executable} -m pypmix {line}"))
        assert ended == (code, b"", b""), line


def test_a_message_without_a_standard_error_is_not_output(command: Command) -> None:
    ended = command.end(command.start_shell(f"exec {sys.executable} -m pypmix query QUERY_NAMESPACES --json 2>&-"))
    assert (ended.code, ended.out) == (1, b"")


def test_characters_that_an_output_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    prepare()
    print("1 µs █")
    print(show.as_json({"name": "é█"}))
    out.flush()
    text, _, found = out.buffer.getvalue().decode("latin-1").partition("\n")  # type: ignore[attr-defined]
    assert text == "1 µs \\u2588"
    assert json.loads(found) == {"name": "é█"}


def test_a_collector_that_speaks_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def garbled(*_: object, **__: object) -> None:
        raise BadStatusLine("SSH-2.0")

    monkeypatch.setattr("urllib.request.urlopen", garbled)
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [], "otherData": TRACE}))
    assert app(["trace", str(trace), "--otlp", "http://127.0.0.1:22"]) == 1
    assert "is not a collector" in capsys.readouterr().err


TRACE = {"format": 1, "pypmix": "x", "began": 0.0, "jobs": {}, "left_out": 0}


IPV6_ALONE = 'ip link set lo up; ip addr del 127.0.0.1/8 dev lo; exec "$@"'
MET = """
import os, sys
from pypmix import Client
if sys.argv[1:]:
    os.environ.pop("PYPMIX_SERVER_SOCKET", None)
with Client(engine="python", singleton="forbid") as me:
    me.fence(timeout=20)
    print(os.environ["PMIX_SERVER_URI41"].partition(";")[2].rpartition(":")[0], flush=True)
"""


@pytest.mark.parametrize("way", [[], ["tcp"]])
@pytest.mark.parametrize(
    "options",
    [[], ["--nodes", "2"], ["--host", "a,b", "--launch-agent", "sh -c {command}"]],
    ids=["one", "nodes", "host"],
)
def test_a_machine_may_have_the_loopback_address_of_ipv6_alone(
    command: Command, options: list[str], way: list[str]
) -> None:
    if not machine.answer("unshare", "--net", "sh", "-c", IPV6_ALONE, "sh", "echo", "inside"):
        machine.lacking("network namespaces, iproute2 or IPv6")
    words = ["run", *options, "-n", "2", sys.executable, "-c", MET, *way]
    inside = ["unshare", "--net", "sh", "-c", IPV6_ALONE, "sh", sys.executable, "-m", "pypmix", *words]
    ended = command.end(command.start_words(inside, subprocess.DEVNULL))
    assert ended.code == 0, ended.err.decode()
    assert ended.lines == ["tcp6://[::1]"] * 2

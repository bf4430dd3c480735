"""Warm ranks, `pypmix run --warm`: forked ranks are what started ones are, and end as these do."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from lib.command import ROOT, Command
from lib.leftovers import nothing_left
from pypmix.host import Application, LocalHost, Outcome

FACTS = Path(__file__).with_name("warm_facts.py")
PYTHON = sys.executable

OPEN = "import pypmix\nwith pypmix.Client() as me: print(me.rank, me.job.size, me.node.hostname)"


@pytest.mark.parametrize("options", [(), ("-u", "-X", "dev")], ids=["plain", "unbuffered"])
def test_a_process_is_as_if_it_had_been_started(command: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Arguments, `__main__`, path, descriptors, signals, standard files, environment."""
    (tmp_path / "there").mkdir()
    words = ("-n", 1, "-x", "A=b c", "--wdir", tmp_path / "there", PYTHON, *options, FACTS, "x", "--warm", "--", "y")
    cold, warm = (json.loads(command("run", *warm, *words).out) for warm in ((), ("--warm",)))
    assert warm.pop("parent") != cold.pop("parent")
    for name in cold:
        assert warm[name] == cold[name], name


def test_a_module_and_code(command: Command, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__main__.py").write_text("import sys; print(__name__, __spec__.name, sys.argv, sys.path[0])")
    there = [command("run", *warm, PYTHON, "-m", "own", "word").out for warm in ((), ("--warm",))]
    assert there[0] == there[1] != b""
    code = "import sys; print(sys.argv, repr(sys.path[0]), __name__)"
    there = [command("run", *warm, PYTHON, "-c", code, "word").out for warm in ((), ("--warm",))]
    assert there[0] == there[1] != b""


def test_a_script_with_an_interpreter_line(command: Command, tmp_path: Path) -> None:
    script = tmp_path / "hello"
    script.write_text(f"#!{PYTHON}\n{OPEN}\nimport os, sys; print(sys.argv, os.getppid())\n")
    script.chmod(0o755)
    lines = command("run", "--warm", "-n", 3, script, "a").lines
    parents = {line.split()[-1] for line in lines if line.startswith("[")}
    assert len(lines) == 6 and len(parents) == 1
    assert sorted(line[:3] for line in lines if line[0] != "[") == ["0 3", "1 3", "2 3"]


ENDS = {
    "code": ("import sys; sys.exit(3)", 3, "exited with code 3", ""),
    "words": ("import sys; sys.exit('so')", 1, "exited with code 1", "so\n"),
    "error": (
        "def f():\n  1 / 0\nf()",
        1,
        "exited with code 1",
        (
            'Traceback (most recent call last):\n  File "<string>", line 3, in <module>\n'
            '  File "<string>", line 2, in f\nZeroDivisionError: division by zero\n'
        ),
    ),
    "signal": ("import os; os.kill(os.getpid(), 11)", 139, "was killed by signal 11 (SIGSEGV)", ""),
    "interrupt": (
        "raise KeyboardInterrupt",
        130,
        "was killed by signal 2 (SIGINT)",
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nKeyboardInterrupt\n',
    ),
    "without finalize": (
        f"import os\n{OPEN.replace('with', 'me =').replace(' as me: ', '.open(); ')}; os._exit(0)",
        1,
        "exited with code 0 without calling finalize",
        "",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_of_a_rank(command: Command, case: str) -> None:
    code, expected, reason, shown = ENDS[case]
    # Or a rank that crashes tells where, and what is called by the fork server has more frames than a program.
    command.environment.pop("PYTHONFAULTHANDLER", None)
    ended = command("run", "--warm", PYTHON, "-c", code)
    assert ended.code == expected
    assert ended.message.startswith("pypmix run: rank 0 (pid ") and ended.message.endswith(reason)
    assert ended.err.decode().partition("pypmix run: ")[0] == shown


def test_what_is_left_at_the_end_is_finished(command: Command, tmp_path: Path) -> None:
    """Threads, functions of `atexit`, destructors, files that were not closed."""
    (tmp_path / "last.py").write_text(
        "import atexit, threading\n"
        "class Last:\n"
        "    def __del__(self): print('destructor')\n"
        "go = threading.Event()\n"
        "def late(): go.wait(); print('thread')\n"
        "last, file = Last(), open('left', 'w')\n"
        "file.write('unflushed')\n"
        "atexit.register(print, 'atexit')\n"
        "threading.Thread(target=late).start()\n"
        "print('main'); go.set()\n"
    )
    ended = command("run", "--warm", "-n", 2, PYTHON, tmp_path / "last.py")
    assert ended.code == 0
    assert sorted(ended.lines) == sorted(["main", "thread", "atexit", "destructor"] * 2)
    assert (tmp_path / "left").read_text() == "unflushed"


def test_a_client_has_all_that_it_imports(command: Command) -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport pypmix\n"
        "with pypmix.Client() as me: me.rank, me.job.size, me.node.hostname\n"
        "print(sorted(set(sys.modules) - before))"
    )
    assert command("run", "--warm", PYTHON, "-c", code, env={"PYPMIX_ENGINE": "python"}).lines == ["[]"]


def test_named_modules_are_imported_once(command: Command, tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text("import os\nby = os.getpid()\n")
    (tmp_path / "ask.py").write_text("import os, random, once\nprint(once.by == os.getppid(), random.random())")
    lines = command("run", "--warm=once", "-n", 3, PYTHON, tmp_path / "ask.py").lines
    assert [line.split()[0] for line in lines] == ["True"] * 3
    assert len({line.split()[1] for line in lines}) == 3, "each rank has random numbers of its own"


def test_other_programs_start_as_ever(command: Command) -> None:
    ended = command("run", "--warm", "-n", 1, "sh", "-c", "echo $PMIX_RANK", ":", "-n", 1, PYTHON, "-c", OPEN)
    assert ended.code == 0 and sorted(line[0] for line in ended.lines) == ["0", "1"]


def test_standard_input_and_output(command: Command) -> None:
    code = "import sys; print(sys.stdin.read().upper())"
    assert command("run", "--warm", PYTHON, "-c", code, data=b"words").lines == ["WORDS"]
    ended = command("run", "--warm", "-n", 2, "--tag-output", PYTHON, "-c", "import os; os.system('echo own')")
    assert sorted(ended.lines) == ["[0]<stdout>: own", "[1]<stdout>: own"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_spawned_jobs_are_warm_too(command: Command, tmp_path: Path, nodes: int) -> None:
    (tmp_path / "parent.py").write_text(
        "import os, sys, pypmix\n"
        'child = \'import os, pypmix\\nwith pypmix.Client() as me: open(f"child.{me.rank}", "w")'
        '.write(f"{os.getppid()}\\\\n")\'\n'
        "with pypmix.Client() as me:\n"
        "    if me.rank == 0:\n"
        "        print(os.getppid())\n"
        "        me.spawn([sys.executable, '-c', child], n=2).wait(timeout=60)\n"
    )
    ended = command("run", "--warm", "-n", 2, "--nodes", nodes, PYTHON, tmp_path / "parent.py")
    assert ended.code == 0, ended.err
    # The folder of the script is the first of the parents' path alone: there are two fork servers.
    assert len(set(command.wait_for("child", 2))) == 1


REFUSED = {
    "mpi4py.MPI": "it initializes MPI in the process that imports it",
    "threaded": "it has started 1 thread",
    "connected": "it has opened a connection",
    "absent": "ModuleNotFoundError: No module named 'absent'",
    "broken": "ZeroDivisionError: division by zero",
    "leaving": "it exits (4)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_forked_is_refused_by_name(command: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    (tmp_path / "connected.py").write_text("import socket\npair = socket.socketpair()")
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "leaving.py").write_text("raise SystemExit(4)")
    (tmp_path / "program.py").write_text("print('started')")
    ended = command("run", f"--warm={name}", "-n", 2, PYTHON, tmp_path / "program.py")
    assert ended.code == 1 and ended.out == b""
    assert ended.message.startswith("pypmix run: cannot start rank 0: warm ranks cannot be forked: " + name)
    assert REFUSED[name] in ended.message and ended.message.endswith("leave it out of --warm (warm=)")


def test_threads_that_end_at_a_fork_do_not_matter(command: Command, tmp_path: Path) -> None:
    """As those of OpenBLAS do, which numpy brings."""
    (tmp_path / "blas.py").write_text(
        "import os, threading\n"
        "class Pool:\n"
        "    def start(self):\n"
        "        self.stop = threading.Event()\n"
        "        self.thread = threading.Thread(target=self.stop.wait, daemon=True)\n"
        "        self.thread.start()\n"
        "    def end(self): self.stop.set(); self.thread.join()\n"
        "pool = Pool(); pool.start()\n"
        "os.register_at_fork(before=pool.end)\n"
    )
    (tmp_path / "program.py").write_text("import blas; print('started')")
    # The kernel may list a thread for a moment that has been joined.
    ended = command("run", "--warm=blas", PYTHON, tmp_path / "program.py")
    assert ended.lines == ["started"], ended.err


def test_a_fork_server_that_is_lost_ends_the_job(command: Command, tmp_path: Path) -> None:
    code = (
        "import os, time, signal, pypmix\n"
        "with pypmix.Client() as me:\n"
        "    me.fence(timeout=30)\n"
        "    if me.rank == 1: os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(60)"
    )
    ended = command("run", "--warm", "-n", 3, PYTHON, "-c", code)
    assert ended.code == 1
    assert "from which ranks are forked, was killed by signal 9 (SIGKILL)" in ended.message
    assert ended.message.endswith("other ranks were ended")


def test_an_interpreter_without_pypmix(command: Command) -> None:
    ended = command("run", "--warm", PYTHON, "-I", "-S", "-c", "print('started')", env={"PYTHONPATH": ""})
    assert ended.code == 1 and ended.out == b""
    assert "imported pypmix; install pypmix for this interpreter, or leave out --warm" in ended.message


def test_a_signal_ends_warm_ranks(command: Command, tmp_path: Path) -> None:
    code = "import os, time; open(f\"up.{os.environ['PMIX_RANK']}\", 'w').write('up\\n'); time.sleep(60)"
    running = command.start("run", "--warm", "-n", 3, PYTHON, "-c", code)
    command.wait_for("up", 3)
    running.send_signal(signal.SIGTERM)
    assert command.end(running).code == 128 + signal.SIGTERM


def test_nothing_outlives_a_host_that_is_killed(command: Command) -> None:
    code = (
        "import os, time; os.setsid() if os.environ['PMIX_RANK'] == '1' and os.fork() == 0 else None\n"
        "open(f\"up.{os.getpid()}\", 'w').write('up\\n'); time.sleep(60)"
    )
    running = command.start("run", "--warm", "-n", 2, PYTHON, "-c", code)
    command.wait_for("up", 3)
    running.kill()
    assert command.end(running).code == -signal.SIGKILL
    # The fixture looks whether anything is left.


def test_a_host_in_a_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}
    with nothing_left():
        assert LocalHost([Application((PYTHON, "-c", OPEN), 3)], env=env, warm=True).run() == Outcome(0)
        outcome = LocalHost([Application((PYTHON, "-c", "exit(7)"), 2)], env=env, warm=["json"], nodes=2).run()
    assert outcome.code == 7
    assert len(capfd.readouterr().out.splitlines()) == 3


def test_a_name_alone_is_not_a_list(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="names of modules in a list"):
        LocalHost([Application(("true",))], warm="numpy")


def test_a_wrong_name_is_refused(command: Command) -> None:
    ended = command("run", "--warm=a/b", "true")
    assert ended.code == 2 and "--warm takes names of modules such as numpy,scipy.linalg, not 'a/b'" in ended.message


def test_a_folder_that_is_missing(command: Command, tmp_path: Path) -> None:
    ended = command("run", "--warm", "--wdir", tmp_path / "none", PYTHON, "-c", "pass")
    assert ended.code == 127 and "no such working directory" in ended.message

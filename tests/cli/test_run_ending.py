"""`pypmix run` ends: its exit code and its one message, and never a process or a file left behind, however it ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from lib import machine, processes
from lib.command import LIMIT, Command

SH = ("sh", "-c")

PTRACE_SEIZE, WALL = 0x4206, 0x40000000
"""Of Linux: to trace a process, and to wait for one that is traced."""

# A rank that tells its pid, by rank, and waits.
WAIT = "echo $$ > pid.$PMIX_RANK; sleep 60 & wait"

CLIENT = """
import os, sys, time
from pypmix import Client
def tell(name):
    with open(f"{name}.{os.environ['PMIX_RANK']}", "w") as file:
        file.write(f"{os.getpid()}\\n")
def hang():
    time.sleep(60)
me = Client().open()
rank = me.rank
"""


def client(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", CLIENT + text)


def since(mark: Path) -> float:
    """Return how many seconds ago a file was made, which is no matter of how long it took a job to start."""
    return time.time() - mark.stat().st_mtime


@pytest.mark.parametrize("code", [1, 7, 255])
def test_the_first_rank_that_fails_gives_the_code_and_ends_the_job(command: Command, code: int) -> None:
    ended = command("run", "-n", 3, *SH, f"[ $PMIX_RANK = 1 ] || sleep 60; echo $$ > pid.1; exit {code}")
    assert ended.code == code
    pid = (command.folder / "pid.1").read_text().strip()
    assert ended.message == (f"pypmix run: rank 1 (pid {pid}) exited with code {code}; 2 other ranks were ended")


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_rank_that_is_killed_ends_the_job_and_is_named(command: Command, signum: signal.Signals) -> None:
    ended = command(
        "run", "-n", 4, *SH, f"[ $PMIX_RANK = 2 ] || sleep 60; echo $$ > pid.2; ulimit -c 0; kill -{signum} $$"
    )
    assert ended.code == 128 + signum
    pid = (command.folder / "pid.2").read_text().strip()
    assert ended.message == (
        f"pypmix run: rank 2 (pid {pid}) was killed by signal {int(signum)} ({signum.name}); 3 other ranks were ended"
    )


def test_a_rank_that_really_segfaults_is_named(command: Command) -> None:
    crash = "import ctypes, os, resource, time; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    crash += "ctypes.string_at(0) if os.environ['PMIX_RANK'] == '0' else time.sleep(60)"
    ended = command("run", "-n", 2, sys.executable, "-c", crash)
    assert ended.code == 139
    assert "rank 0 (pid " in ended.message
    assert "was killed by signal 11 (SIGSEGV)" in ended.message


def test_ranks_that_ignore_sigterm_are_killed(command: Command) -> None:
    text = "trap '' TERM; if [ $PMIX_RANK = 0 ]; then sleep 0.3; exit 3; fi; while :; do sleep 1; done"
    assert command("run", "-n", 2, *SH, text).code == 3


def test_stopped_ranks_end_too(command: Command) -> None:
    text = "if [ $PMIX_RANK = 0 ]; then sleep 0.3; : > end; exit 3; fi; kill -STOP $$"
    assert command("run", "-n", 3, *SH, text).code == 3
    assert since(command.folder / "end") < 4.5


@pytest.mark.parametrize("options", [[], ["--wdir", "/"]])
def test_ranks_have_the_usual_signal_dispositions(command: Command, options: list[str]) -> None:
    ended = command("run", "-n", 2, *options, *SH, "yes | head -n 1; grep -E 'Sig(Blk|Ign)' /proc/self/status")
    assert ended.err == b""
    masks = [line for line in ended.lines if line.startswith("Sig")]
    assert len(masks) == 4
    # glibc's spawn ignores two signals of its own, beyond the 31 that programs know.
    assert not any(int(mask.split()[1], 16) & 0x7FFFFFFF for mask in masks)


@pytest.mark.parametrize("options", [[], ["--wdir", "/"]])
def test_ranks_lead_process_groups_and_inherit_nothing_else(command: Command, options: list[str]) -> None:
    program = "import os; print(os.getsid(0) == os.getsid(os.getppid()), os.getpgrp() == os.getpid(), "
    program += "*sorted(os.listdir('/proc/self/fd'))[:-1])"
    ended = command("run", "-n", 2, *options, sys.executable, "-c", program)
    assert ended.lines == ["True True 0 1 2"] * 2


@pytest.mark.parametrize("options", [[], ["--wdir", "/"]])
def test_ranks_of_a_job_on_a_terminal_are_never_stopped_by_it(command: Command, options: list[str]) -> None:
    """They would be, as jobs in the background, where one reads the terminal or sets its modes."""
    program = "import os, termios\ntry: fd = os.open('/dev/tty', os.O_RDWR)\nexcept OSError as e: print(e.strerror)\n"
    program += "else: termios.tcsetattr(fd, 0, termios.tcgetattr(fd)); print('set its modes')\n"
    program += "print(os.getsid(0) == os.getpgrp() == os.getpid())"
    ours, theirs = os.openpty()
    try:
        take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        take += "os.execv(sys.executable, [sys.executable, '-m', 'pypmix', *sys.argv[1:]])"
        words = [sys.executable, "-c", take, "run", "-n", "2", *options, sys.executable, "-c", program]
        process = command.start_words(words, stdin=theirs)
        ended = command.end(process)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (ended.code, sorted(ended.lines)) == (0, ["No such device or address"] * 2 + ["True"] * 2)


def test_ranks_that_are_more_than_the_cpus_are_told_so(command: Command) -> None:
    """Those of spawned jobs count too: the second job is told, and the first was told nothing."""
    cpus = len(os.sched_getaffinity(0))
    program = "from pypmix import Client, Proc, Rank, Scope, attrs\nimport os, sys\nwith Client() as me:\n"
    program += " told = [me.get(attrs.NODE_OVERSUBSCRIBED, proc, timeout=0, default=None)"
    program += " for proc in (me.proc, Proc(me.nspace, Rank.WILDCARD))]\n"
    program += " print(me.rank, told, flush=True)\n"
    # Each rank stays until the last child has ended: a rank that has left has freed its CPU for the children of others.
    program += " if me.parent is None and sys.argv[1:]:\n"
    program += "  me.spawn([sys.executable, *sys.argv], n=1).wait()\n  me.fence()\n"
    (command.folder / "told.py").write_text(program)
    for nodes in (1, 2):
        ended = command("run", "--nodes", nodes, "-n", cpus + 1, sys.executable, "told.py")
        assert sorted(ended.lines) == sorted(f"{rank} [True, True]" for rank in range(cpus + 1)), ended
    ended = command("run", "-n", cpus, sys.executable, "told.py")
    assert sorted(ended.lines) == sorted(f"{rank} [None, None]" for rank in range(cpus)), ended
    ended = command("run", "-n", cpus, sys.executable, "told.py", "spawn")
    assert sorted(ended.lines) == sorted([f"{rank} [None, None]" for rank in range(cpus)] + ["0 [True, True]"] * cpus)


def test_a_job_that_keeps_going_ends_with_the_first_failure(command: Command) -> None:
    text = "case $PMIX_RANK in 1) exit 4;; 2) sleep 0.4; exit 5;; esac; sleep 0.8; echo on"
    ended = command("run", "-n", 4, "--keep-going", *SH, text)
    assert (ended.code, ended.lines) == (4, ["on", "on"])
    assert ended.message.startswith("pypmix run: rank 1 (pid ")
    assert ended.message.endswith("exited with code 4; the others went on")


def test_an_abort_ends_even_a_job_that_keeps_going(command: Command) -> None:
    ended = command("run", "-n", 2, "--keep-going", *client("me.fence()\nme.abort(3) if rank else hang()"))
    assert ended.code == 3
    assert "called abort with status 3; 1 other rank was ended" in ended.message


HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\npypmix run: rank 0 was killed by root"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\npypmix run: rank 0 was killed by root"


def test_the_message_of_an_abort_does_nothing_to_the_terminal(command: Command) -> None:
    ended = command("run", "-n", 2, *client(f"me.abort(3, {HOSTILE!r}) if rank else hang()"))
    assert ended.code == 3
    assert f"called abort with status 3: {SHOWN}; 1 other rank" in ended.message
    assert ended.err.decode().rstrip("\n").isprintable()


def test_the_name_of_a_stranger_does_nothing_to_the_terminal(command: Command) -> None:
    text = f"""
import socket
from pypmix.wire.handshake import FLAG_CLIENT, Hello, encode_hello, native_credential
port = int(os.environ["PMIX_SERVER_URI41"].rpartition(":")[2])
with socket.create_connection(("127.0.0.1", port)) as sock:
    credential = native_credential(os.getuid(), os.getgid())
    parts = (FLAG_CLIENT, None, None, {HOSTILE!r}, 0, "5.0.11", "v41", 1, "hash", ())
    sock.sendall(encode_hello(Hello("native", credential, *parts)))
    while sock.recv(100):
        pass
me.close()
"""
    ended = command("run", *client(text))
    assert ended.code == 0, ended.err
    (line,) = ended.err.decode().splitlines()
    assert line.isprintable()
    assert f"{SHOWN}:0 refused: " in line


def test_survivors_hear_of_a_rank_that_is_killed(command: Command) -> None:
    text = """
from pypmix import EventCode
codes = (EventCode.ERR_PROC_ABORTED, EventCode.PROC_TERMINATED, EventCode.EVENT_PROC_TERMINATED)
with me.events(*codes, EventCode.ERR_PROC_ABORTED_BY_SIG) as events:
    me.fence(timeout=20)
    if rank == 1:
        os.kill(os.getpid(), 9)
    seen = {int(event.code): event.affected for event in [events.get(20) for _ in range(4)]}
    assert set(seen) == {-7, -111, -201, -402}, seen
    assert {proc.rank for affected in seen.values() for proc in affected} == {1}, seen
    print("heard", flush=True)
me.close()
"""
    for options in ((), ("--nodes", 3)):
        ended = command("run", "--keep-going", "-n", 3, *options, *client(text))
        assert (ended.code, ended.lines) == (137, ["heard"] * 2), ended.err.decode()


def test_success_is_silent(command: Command) -> None:
    ended = command("run", "-n", 3, *client("me.fence(); me.close()"))
    assert (ended.code, ended.out, ended.err) == (0, b"", b"")


def test_exit_without_finalize_ends_the_job(command: Command) -> None:
    ended = command("run", "-n", 2, *client("os._exit(0) if rank == 1 else hang()"))
    assert ended.code == 1
    assert "rank 1 (pid " in ended.message
    assert "exited with code 0 without calling finalize; 1 other rank was ended" in ended.message


def test_exit_without_ever_initializing_is_fine(command: Command) -> None:
    ended = command("run", "-n", 2, *SH, "exit 0")
    assert (ended.code, ended.err) == (0, b"")


def test_a_death_in_a_fence_names_the_dead_and_not_those_who_waited(command: Command) -> None:
    text = "tell('pid')\nif rank == 1: time.sleep(0.3); os.kill(os.getpid(), 9)\nme.fence()"
    ended = command("run", "-n", 3, *client(text))
    assert ended.code == 137
    pid = (command.folder / "pid.1").read_text().strip()
    assert f"pypmix run: rank 1 (pid {pid}) was killed by signal 9 (SIGKILL)" in ended.message


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize(("status", "code"), [(0, 1), (1, 1), (42, 42), (256, 1)])
def test_abort_ends_the_job_with_its_status_and_message(command: Command, status: int, code: int, nodes: int) -> None:
    """An abort is never a success."""
    text = f"tell('pid')\nme.fence()\nif rank == 1: me.abort({status}, 'the mesh is torn')\nhang()"
    ended = command("run", "-n", 3, "--nodes", nodes, *client(text))
    assert ended.code == code
    pid = (command.folder / "pid.1").read_text().strip()
    assert ended.message == (
        f"pypmix run: rank 1 (pid {pid}) called abort with status {status}: the mesh is torn; 2 other ranks were ended"
    )


def test_abort_of_one_rank_ends_it_alone(command: Command) -> None:
    text = "tell('pid')\nme.fence()\nif rank == 1: me.abort(9, 'just that one', [me.job[2]])\nif rank == 2: hang()\n"
    ended = command("run", "-n", 3, *client(text + "print('on', rank); me.close()"))
    assert ended.code == 9
    assert sorted(ended.lines) == ["on 0", "on 1"]
    pids = [(command.folder / f"pid.{rank}").read_text().strip() for rank in range(3)]
    assert ended.message == (
        f"pypmix run: rank 1 (pid {pids[1]}) called abort with status 9: just that one; it ended rank 2 (pid {pids[2]})"
    )


def test_the_time_limit_names_who_waits_for_whose_data(command: Command) -> None:
    text = "tell('pid')\nme.fence()\nme.get('never', proc=me.job[0], timeout=50) if rank == 1 else hang()"
    ended = command("run", "-n", 2, "--timeout", 10, *client(text))
    assert ended.code == 124
    pids = [(command.folder / f"pid.{rank}").read_text().strip() for rank in range(2)]
    assert "get never" in ended.message
    assert f": rank 1 (pid {pids[1]}) has waited " in ended.message
    assert f" s for rank 0 (pid {pids[0]})" in ended.message


def test_the_time_limit_names_who_is_missing_in_what(command: Command) -> None:
    text = "tell('pid')\nme.fence() if rank != 2 else hang()"
    ended = command("run", "-n", 4, "--timeout", 10, *client(text))
    assert ended.code == 124
    pid = (command.folder / "pid.2").read_text().strip()
    lines = [line for line in ended.message.splitlines() if "pypmix run" in line or line.startswith("  ")]
    assert lines[0] == "pypmix run: the job did not end within 10 s and was ended"
    assert "fence" in ended.message
    assert "3 of 4 arrived" in ended.message
    assert f"missing: rank 2 (pid {pid})" in ended.message


def test_the_time_limit_names_ranks_that_never_initialized(command: Command) -> None:
    ended = command("run", "-n", 2, "--timeout", "0.5", "sleep", 60)
    assert ended.code == 124
    assert "running without having initialized: rank 0 (pid " in ended.message
    assert "rank 1 (pid " in ended.message


def test_an_interrupt_of_a_hang_names_who_is_missing(command: Command) -> None:
    said = command.folder / "said"
    with said.open("wb") as file:
        text = "tell('pid')\nme.fence() if rank != 2 else hang()"
        process = command.start("run", "-n", 3, *client(text), stderr=file)
    command.wait_for("pid", 3)
    # What has been pending for a moment only is not told; the report on SIGUSR1 says how long it has been.
    deadline = time.monotonic() + LIMIT / 2
    while not re.search(r"2 of 3 arrived, first ([3-9]|\d\d)\.", said.read_text()):
        assert time.monotonic() < deadline, said.read_text()
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert command.end(process).code == 130
    pid = (command.folder / "pid.2").read_text().strip()
    outcome = said.read_text().partition("pypmix run: ended by signal 2 (SIGINT)\n")[2]
    assert re.match(rf"  fence .*: 2 of 3 arrived, first .* missing: rank 2 \(pid {pid}\)\n", outcome), said.read_text()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_ends_the_job(command: Command, signum: signal.Signals) -> None:
    name = signum.name[3:]
    text = f"trap 'echo got $PMIX_RANK; exit 0' {name}; echo $$ > pid.$PMIX_RANK; while :; do sleep 0.05; done"
    process = command.start("run", "-n", 3, *SH, text)
    command.wait_for("pid", 3)
    process.send_signal(signum)
    ended = command.end(process)
    assert ended.code == 128 + signum
    assert sorted(ended.lines) == ["got 0", "got 1", "got 2"]
    assert ended.message == f"pypmix run: ended by signal {int(signum)} ({signum.name})"
    assert command.left() == []


@pytest.mark.timing
def test_a_second_interrupt_kills_at_once(command: Command) -> None:
    process = command.start(
        "run", "-n", 2, *SH, "trap '' INT TERM; echo $$ > pid.$PMIX_RANK; while :; do sleep 0.05; done"
    )
    command.wait_for("pid", 2)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert command.end(process).code == 130
    assert time.monotonic() - started < 4.5


@pytest.mark.timing
def test_a_rank_in_a_call_that_no_interrupt_reaches_ends_soon(command: Command) -> None:
    process = command.start("run", "-n", 2, *SH, "trap '' INT; echo $$ > pid.$PMIX_RANK; sleep 60 & wait")
    command.wait_for("pid", 2)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert command.end(process).code == 130
    assert time.monotonic() - started < 4.5


def test_user_signals_are_passed_on_and_end_nothing(command: Command) -> None:
    text = "trap 'echo usr $PMIX_RANK; exit 0' USR2; echo $$ > pid.$PMIX_RANK; while :; do sleep 0.05; done"
    process = command.start("run", "-n", 2, *SH, text)
    command.wait_for("pid", 2)
    process.send_signal(signal.SIGUSR2)
    ended = command.end(process)
    assert ended.code == 0
    assert sorted(ended.lines) == ["usr 0", "usr 1"]


def test_an_ignored_signal_stays_ignored(command: Command) -> None:
    line = f"trap '' HUP; exec {sys.executable} -m pypmix run -n 2 sh -c '{WAIT}'"
    process = command.start_shell(line)
    command.wait_for("pid", 2)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert command.end(process).code == 143


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_nothing_of_pmix_ranks_in_a_fence(command: Command, signum: signal.Signals) -> None:
    process = command.start("run", "-n", 4, *client("tell('pid')\nme.fence() if rank else hang()"))
    command.wait_for("pid", 4)
    process.send_signal(signum)
    assert command.end(process).code == 128 + signum
    assert command.left() == []


def test_what_ranks_leave_behind_ends_with_the_job(command: Command) -> None:
    text = "sleep 60 & setsid sleep 60 & (setsid sh -c 'trap \"\" HUP; sleep 60' &); : > end.$PMIX_RANK; exit 0"
    assert command("run", "-n", 2, *SH, text).code == 0
    assert min(since(command.folder / f"end.{rank}") for rank in (0, 1)) < 4.5
    assert processes.marked(command.mark) == []


def test_what_ranks_leave_behind_and_ignores_sigterm_is_killed(command: Command) -> None:
    assert command("run", *SH, "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & sleep 0.5; exit 0").code == 0
    assert processes.marked(command.mark) == []


@pytest.mark.parametrize("text", [WAIT, "echo $$ > pid.$PMIX_RANK; setsid sleep 60 & sleep 60 & wait"])
@pytest.mark.parametrize("options", [(), ("--nspace", "mine"), ("--nodes", "2")])
def test_a_killed_launcher_leaves_nothing(command: Command, text: str, options: tuple[str, ...]) -> None:
    process = command.start("run", "-n", 3, *options, *SH, text)
    command.wait_for("pid", 3)
    os.kill(process.pid, signal.SIGKILL)
    assert command.end(process).code == -9
    assert command.left() == []


@pytest.mark.parametrize("hides", ["", "env -i "])
def test_ranks_of_a_killed_launcher_have_a_grace(command: Command, hides: str) -> None:
    work = "trap 'sleep 0.5; echo $$ > grace.$PMIX_RANK; exit' TERM; echo $$ > pid.$PMIX_RANK; sleep 60 & wait"
    variables = "PMIX_RANK=$PMIX_RANK PATH=$PATH" if hides else ""
    process = command.start("run", "-n", 2, "--nspace", "mine", *SH, f'exec {hides}{variables} sh -c "$0"', work)
    command.wait_for("pid", 2)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    command.end(process)
    command.wait_for("grace", 2)


def test_nobody_reads_on_a_command_line_what_a_job_is_called(command: Command) -> None:
    look = 'case "$(tr "\\0" " " < $each 2> /dev/null)" in *"${PMIX_NAMESPACE%@*}"*) cat $each; esac'
    ended = command("run", *SH, f"for each in /proc/[0-9]*/cmdline; do {look}; done")
    assert (ended.code, ended.lines) == (0, [])


def test_a_killed_launcher_leaves_no_rank_that_hides(command: Command) -> None:
    process = command.start("run", "-n", 2, *SH, "echo $$ > pid.$PMIX_RANK; exec env -i sleep 60")
    ranks = [Path("/proc") / pid for pid in command.wait_for("pid", 2)]
    # The launcher tells its guard of a rank as soon as that has started, which the rank's file may be ahead of.
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    command.end(process)
    deadline = time.monotonic() + 5
    while any(rank.exists() for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(rank.exists() for rank in ranks)


def test_pmix_ranks_of_a_killed_launcher_end(command: Command) -> None:
    process = command.start("run", "-n", 3, *client("tell('pid')\nme.fence() if rank else hang()"))
    command.wait_for("pid", 3)
    os.kill(process.pid, signal.SIGKILL)
    command.end(process)
    assert command.left() == []


def test_a_killed_launcher_leaves_nothing_of_the_jobs_in_its_job(command: Command) -> None:
    inner = f"exec {sys.executable} -m pypmix run -n 2 sh -c '{WAIT.replace('$PMIX_RANK', '$$')}'"
    process = command.start("run", "-n", 2, *SH, inner)
    command.wait_for("pid", 4)
    os.kill(process.pid, signal.SIGKILL)
    assert command.end(process).code == -9
    assert command.left() == []


def test_files_in_the_job_folder_are_removed(command: Command) -> None:
    text = "d=$(ls -d $TMPDIR/pypmix-*); mkdir -p $d/a/b; touch $d/a/b/c; ln -s / $d/a/link; ls -ld $d | cut -c1-10"
    ended = command("run", *SH, text)
    assert (ended.code, ended.lines) == (0, ["drwx------"])
    assert list(command.temporary.iterdir()) == []
    assert Path("/etc").is_dir()


def test_a_program_that_is_not_found(command: Command) -> None:
    ended = command("run", "-n", 2, "no-such-program", "x")
    assert ended.code == 127
    assert ended.message == "pypmix run: program not found: no-such-program"


def test_a_python_file_that_is_run_without_python(command: Command) -> None:
    (command.folder / "hello.py").write_text("")
    ended = command("run", "-n", 2, "hello.py")
    assert ended.code == 127
    assert ended.message == "pypmix run: program not found: hello.py; did you mean `python hello.py`?"
    ended = command("run", "-n", 2, "./hello.py")
    assert ended.code == 126
    assert ended.message.endswith("Permission denied; did you mean `python ./hello.py`?")


def test_a_program_that_is_not_found_starts_nothing(command: Command) -> None:
    ended = command("run", "touch", "was-here", ":", "./no-such-program")
    assert ended.code == 127
    assert ended.message == "pypmix run: program not found: ./no-such-program"
    assert not (command.folder / "was-here").exists()


def test_a_program_that_cannot_be_executed(command: Command) -> None:
    (command.folder / "plain").write_text("text")
    ended = command("run", "./plain")
    assert ended.code == 126
    assert ended.message.startswith("pypmix run: cannot execute ")
    assert "plain: Permission denied" in ended.message


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("#!/no/such/interpreter\n", 127, "the interpreter that its first line names does not"),
        ("\0\0", 126, "neither a binary"),
    ],
)
def test_a_program_that_the_kernel_refuses(command: Command, text: str, code: int, part: str) -> None:
    (command.folder / "odd").write_text(text)
    (command.folder / "odd").chmod(0o755)
    ended = command("run", "-n", 2, "./odd")
    assert ended.code == code
    assert ended.message.startswith("pypmix run: cannot start rank 0: ")
    assert part in ended.message


def test_a_working_directory_that_does_not_exist(command: Command) -> None:
    ended = command("run", "--wdir", "nowhere", "true")
    assert ended.code == 127
    assert ended.message == f"pypmix run: no such working directory: {command.folder}/nowhere"


def test_a_temporary_folder_that_cannot_be_used_is_replaced(command: Command) -> None:
    assert command("run", "true", env={"TMPDIR": "/no/such/folder"}).code == 0


@pytest.mark.parametrize("ranks", [32, 96])
def test_many_ranks(command: Command, ranks: int) -> None:
    ended = command("run", "-n", ranks, *SH, "echo $PMIX_RANK")
    assert ended.code == 0
    assert sorted(map(int, ended.lines)) == list(range(ranks))


def test_more_ranks_than_open_files_are_allowed(command: Command) -> None:
    line = f"ulimit -Sn 128; exec {sys.executable} -m pypmix run -n 60 sh -c 'sleep 0.5; ulimit -Sn'"
    ended = command.end(command.start_shell(line))
    assert ended.code == 0
    assert ended.lines == ["128"] * 60


def test_few_ranks_under_a_low_limit_of_open_files(command: Command) -> None:
    line = f"ulimit -Sn 64; exec {sys.executable} -m pypmix run -n 40 sh -c 'sleep 0.5; ulimit -Sn'"
    ended = command.end(command.start_shell(line))
    assert (ended.code, ended.lines) == (0, ["64"] * 40), ended.err


def test_too_few_open_files_are_said_plainly(command: Command) -> None:
    ended = command.end(command.start_shell(f"ulimit -n 128; exec {sys.executable} -m pypmix run -n 60 true"))
    assert ended.code == 1
    assert "60 ranks need 304 open files here and the limit is 128 (ulimit -Hn)" in ended.message


def test_a_job_inside_of_a_job(command: Command) -> None:
    inner = f"{sys.executable} -m pypmix run -n 2 sh -c 'echo inner $PMIX_NAMESPACE $PMIX_RANK'"
    ended = command("run", "-n", 2, *SH, f"echo outer $PMIX_NAMESPACE $PMIX_RANK; {inner}")
    assert ended.code == 0
    words = [line.split() for line in ended.lines]
    assert len({nspace for kind, nspace, _ in words if kind == "outer"}) == 1
    assert len({nspace for kind, nspace, _ in words if kind == "inner"}) == 2
    assert sorted((kind, rank) for kind, _, rank in words) == sorted(
        [("outer", "0"), ("outer", "1")] + 2 * [("inner", "0"), ("inner", "1")]
    )


def test_ending_the_outer_job_ends_the_inner_one(command: Command) -> None:
    inner = f"exec {sys.executable} -m pypmix run -n 2 sh -c '{WAIT.replace('$PMIX_RANK', '$$')}'"
    process = command.start("run", "-n", 2, *SH, inner)
    command.wait_for("pid", 4)
    process.send_signal(signal.SIGTERM)
    assert command.end(process).code == 143
    assert command.left() == []


@pytest.mark.parametrize("release", [lib.release for lib in machine.libraries()] or ["none"])
def test_a_server_of_libpmix_survives_ranks_that_end_together(command: Command, release: str) -> None:
    """Two losses at once end a fence twice that waits for one of them, and libpmix does not survive that."""
    lib = machine.library(release)
    if lib is None or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")
    assert lib is not None
    line = ["run", "--server-engine", "native", "--timeout", "1", "-n", 4, *client("if rank: me.fence()\nhang()")]
    # Without the care of `LocalNode.signal` every third run ended by a signal.
    for _ in range(5):
        ended = command(*line, env={"PYPMIX_LIBPMIX": lib.path})
        assert ended.code == 124, ended


@pytest.mark.parametrize("signums", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
def test_a_rank_that_cannot_be_killed_is_left_behind(command: Command, signums: tuple[signal.Signals, ...]) -> None:
    """As one in a system call of a dead file system: here a tracer keeps it from being gone."""
    process = command.start("run", "-n", 2, *SH, WAIT)
    command.wait_for("pid", 2)
    pid = int((command.folder / "pid.0").read_text())
    if ctypes.CDLL(None).ptrace(PTRACE_SEIZE, pid, None, None):
        pytest.skip("this user may not trace processes")
    try:
        for signum in signums:
            process.send_signal(signum)
        ended = command.end(process)
    finally:
        os.waitpid(pid, WALL)
    assert ended.code == 128 + signums[0], ended.err
    assert f"rank 0 (pid {pid}) was killed and does not end: it is left behind" in ended.err.decode()

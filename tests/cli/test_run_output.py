"""`pypmix run` passes on what ranks write, whole lines, in order per rank, no byte lost; and its input to rank 0."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import select
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.command import Command

SH = ("sh", "-c")


def test_each_rank_runs_once_with_its_own_rank(command: Command) -> None:
    ended = command("run", "-n", 5, *SH, "echo rank $PMIX_RANK in $PMIX_NAMESPACE")
    assert ended.code == 0
    assert ended.err == b""
    assert sorted(line.split()[1] for line in ended.lines) == ["0", "1", "2", "3", "4"]
    assert len({line.split()[3] for line in ended.lines}) == 1


def test_one_rank_is_the_default(command: Command) -> None:
    assert command("run", *SH, "echo rank $PMIX_RANK").lines == ["rank 0"]


def test_both_streams_are_kept_apart(command: Command) -> None:
    ended = command("run", "-n", 2, *SH, "echo out $PMIX_RANK; echo err $PMIX_RANK >&2")
    assert sorted(ended.lines) == ["out 0", "out 1"]
    assert sorted(ended.err.decode().splitlines()) == ["err 0", "err 1"]


LINES = """
import os, sys
rank = int(os.environ["PMIX_RANK"])
for number in range(300):
    for stream in (sys.stdout, sys.stderr):
        # in two writes, so that another rank can come between them
        stream.write(f"{rank} {number} ")
        stream.flush()
        stream.write("x" * (number * 7 % 400) + "\\n")
        stream.flush()
"""


@pytest.mark.parametrize("tagged", [False, True])
def test_lines_stay_whole_and_in_order_per_rank(command: Command, tagged: bool) -> None:
    ranks = 4
    options = ["--tag-output"] if tagged else []
    ended = command("run", *options, "-n", ranks, sys.executable, "-c", LINES)
    for name, text in (("stdout", ended.out), ("stderr", ended.err)):
        seen = dict.fromkeys(range(ranks), 0)
        for line in text.decode().splitlines():
            if tagged:
                tag, _, line = line.partition(": ")
                assert tag == f"[{line.split()[0]}]<{name}>"
            rank, number, filler = line.split(" ", 2)
            assert int(number) == seen[int(rank)]
            assert filler == "x" * (int(number) * 7 % 400)
            seen[int(rank)] += 1
        assert set(seen.values()) == {300}


def test_lines_of_64_kilobytes_stay_whole(command: Command) -> None:
    program = "import os, sys; [print(os.environ['PMIX_RANK'] * 65536, flush=True) for _ in range(8)]"
    ended = command("run", "-n", 4, sys.executable, "-c", program)
    assert sorted(ended.out.splitlines()) == sorted(b"%d" % rank * 65536 for rank in range(4) for _ in range(8))


def test_a_line_without_end_is_passed_on_in_pieces_and_in_bounded_memory(command: Command) -> None:
    size = 40_000_000
    program = "import sys; from pypmix.cli.run import run; "
    program += f"code = run(['-n', '2', 'head', '-c', '{size}', '/dev/zero']); "
    program += "sys.stderr.write(next(line for line in open('/proc/self/status') if 'VmHWM' in line)); sys.exit(code)"
    ended = subprocess.run([sys.executable, "-c", program], env=command.environment, capture_output=True, timeout=30)
    assert ended.returncode == 0
    assert ended.stdout.count(b"\0") == 2 * size
    assert set(ended.stdout) <= {0, ord("\n")}
    assert int(ended.stderr.split()[1]) < 50_000


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_unfinished_last_line_is_passed_on(command: Command, ranks: int) -> None:
    ended = command("run", "-n", ranks, *SH, "printf 'first\\nlast %s' $PMIX_RANK")
    assert sorted(ended.lines) == sorted(["first"] * ranks + [f"last {rank}" for rank in range(ranks)])


def test_the_launchers_message_begins_a_line_of_its_own(command: Command) -> None:
    ended = command("run", "-n", 2, *SH, "printf unfinished >&2; exit 3")
    *before, last = ended.err.decode().splitlines()
    assert last.startswith("pypmix run: rank ")
    assert before and set(before) == {"unfinished"}


def test_an_unfinished_tagged_line_is_ended(command: Command) -> None:
    ended = command("run", "-n", 2, "--tag-output", *SH, "printf $PMIX_RANK")
    assert sorted(ended.out.splitlines(keepends=True)) == [b"[0]<stdout>: 0\n", b"[1]<stdout>: 1\n"]


def test_empty_lines_are_tagged_too(command: Command) -> None:
    assert (
        command("run", "--tag-output", "printf", "\\n\\na\\n").out == b"[0]<stdout>: \n[0]<stdout>: \n[0]<stdout>: a\n"
    )


@pytest.mark.parametrize("ranks", [1, 3])
def test_input_goes_to_rank_0_and_bytes_come_back_unchanged(command: Command, ranks: int) -> None:
    data = os.urandom(1_000_000)
    ended = command("run", "-n", ranks, "cat", data=data)
    assert ended.code == 0
    assert ended.out == data


def test_other_ranks_read_nothing(command: Command) -> None:
    ended = command("run", "-n", 3, *SH, 'echo "$PMIX_RANK:$(cat)"', data=b"word")
    assert sorted(ended.lines) == ["0:word", "1:", "2:"]


@pytest.mark.parametrize(
    ("reader", "lines"),
    [("1", ["0:", "1:word", "2:"]), ("all", ["0:word", "1:word", "2:word"]), ("none", ["0:", "1:", "2:"])],
)
def test_who_reads_the_input(command: Command, reader: str, lines: list[str]) -> None:
    ended = command("run", "-n", 3, "--stdin", reader, *SH, 'echo "$PMIX_RANK:$(cat)"', data=b"word")
    assert (ended.code, sorted(ended.lines)) == (0, lines)


def test_all_ranks_read_all_of_a_long_input_though_one_does_not_read(command: Command) -> None:
    data = os.urandom(2_000_000)
    ended = command("run", "-n", 3, "--stdin", "all", *SH, "[ $PMIX_RANK = 1 ] || sha256sum", data=data)
    assert ended.code == 0
    assert ended.lines == [f"{hashlib.sha256(data).hexdigest()}  -"] * 2


def test_a_file_is_read_by_all(command: Command) -> None:
    (command.folder / "data").write_bytes(os.urandom(300_000))
    with (command.folder / "data").open("rb") as file:
        ended = command("run", "-n", 2, "--stdin", "all", *SH, "wc -c", stdin=file)
    assert (ended.code, ended.lines) == (0, ["300000"] * 2)


def test_a_lone_rank_with_pipes_reads_and_writes_the_same(command: Command) -> None:
    data = os.urandom(1_000_000)
    ended = command("run", "--forward", "cat", data=data)
    assert (ended.code, ended.out) == (0, data)


def test_stderr_merged_into_stdout_keeps_its_place(command: Command) -> None:
    text = "for n in 1 2 3; do echo $PMIX_RANK out $n; echo $PMIX_RANK err $n >&2; done"
    for ranks in (1, 2):
        ended = command("run", "-n", ranks, "--merge-stderr", *SH, text)
        assert ended.err == b""
        for rank in range(ranks):
            own = [line for line in ended.lines if line.startswith(str(rank))]
            assert own == [f"{rank} {kind} {n}" for n in (1, 2, 3) for kind in ("out", "err")]


def test_lines_with_the_time(command: Command) -> None:
    for options, rest in (((), "word"), (("--tag-output",), "[0]<stdout>: word")):
        (line,) = command("run", "--timestamp-output", *options, "echo", "word").lines
        stamp, _, text = line.partition(" ")
        assert text == rest
        assert abs(datetime.datetime.fromisoformat(stamp).timestamp() - time.time()) < 30


@pytest.mark.parametrize("ranks", [1, 2])
def test_output_in_a_directory_as_well(command: Command, ranks: int) -> None:
    ended = command("run", "-n", ranks, "--output-directory", "logs/a", *SH, "echo out $PMIX_RANK; printf err >&2")
    assert sorted(ended.lines) == [f"out {rank}" for rank in range(ranks)]
    for rank in range(ranks):
        folder = command.folder / "logs" / "a" / "1" / f"rank.{rank}"
        assert (folder / "stdout").read_text() == f"out {rank}\n"
        assert (folder / "stderr").read_text() == "err"


def test_a_directory_that_cannot_be_made(command: Command) -> None:
    (command.folder / "logs").write_text("a file")
    ended = command("run", "--output-directory", "logs", "true")
    assert ended.code != 0
    assert ended.message.startswith("pypmix run: cannot start rank 0: ")
    assert "logs" in ended.message


def test_output_that_arrives_late_is_not_lost(command: Command) -> None:
    ended = command("run", "-n", 2, *SH, "(sleep 0.3; echo late $PMIX_RANK) & wait")
    assert sorted(ended.lines) == ["late 0", "late 1"]


def test_output_is_passed_on_while_the_job_runs(command: Command) -> None:
    process = command.start(
        "run", "-n", 2, *SH, f"echo $PMIX_RANK; while [ ! -e {command.folder}/go ]; do sleep 0.02; done"
    )
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {b"0\n", b"1\n"}
    (command.folder / "go").touch()
    assert command.end(process).code == 0


def test_both_streams_into_one_pipe_keep_lines_whole(command: Command) -> None:
    process = command.start("run", "-n", 3, sys.executable, "-c", LINES, stderr=subprocess.STDOUT)
    # With a reader that is late, both streams wait in the launcher.
    time.sleep(1)
    lines = command.end(process).out.decode().splitlines()
    assert len(lines) == 3 * 300 * 2
    assert all(len(line.split(" ")) == 3 for line in lines)


def test_output_to_a_file_is_complete(command: Command, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        assert command.end(command.start("run", "-n", 3, "seq", 20000, stdout=file)).code == 0
    numbers = (tmp_path / "out").read_text().split()
    assert sorted(map(int, numbers)) == sorted(list(range(1, 20001)) * 3)


def test_a_slow_reader_slows_the_ranks_and_loses_nothing(command: Command) -> None:
    process = command.start("run", "-n", 2, "seq", 400_000)
    assert process.stdout is not None
    time.sleep(1)
    assert process.poll() is None
    total = 0
    while piece := process.stdout.read(65536):
        total += piece.count(b"\n")
    assert total == 800_000
    assert command.end(process).code == 0


def test_a_reader_that_goes_away_ends_the_job_quietly(command: Command) -> None:
    process = command.start("run", "-n", 2, "yes")
    assert process.stdout is not None
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    process.stdout = None
    ended = command.end(process)
    assert ended.code == 128 + 13
    assert ended.err == b""


def test_output_that_cannot_be_written_ends_the_job_and_is_said(command: Command) -> None:
    with open("/dev/full", "wb") as full:
        ended = command.end(command.start("run", "-n", 2, "yes", stdout=full))
    assert ended.code == 1
    assert ended.message == "pypmix run: the ranks' output cannot be written: No space left on device"


def test_a_closed_standard_input_and_output_do_no_harm(command: Command) -> None:
    line = f"exec {sys.executable} -m pypmix run -n 2 sh -c 'cat; echo $PMIX_RANK >&2' <&- >&-"
    ended = subprocess.run(["sh", "-c", line], env=command.environment, capture_output=True, timeout=30)
    assert ended.returncode == 0
    assert sorted(ended.stderr.split()) == [b"0", b"1"]


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal that changes no byte: the side to read from, and the side to give to the command."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def read_until(fd: int, end: bytes) -> bytes:
    """Read from a terminal until it has shown `end`, for some seconds at most."""
    deadline = time.monotonic() + 10
    text = b""
    while end not in text and time.monotonic() < deadline:
        if select.select([fd], [], [], 0.1)[0]:
            text += os.read(fd, 65536)
    return text


def test_a_terminal_sees_lines_that_programs_do_not_flush(command: Command, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    program = "import os, sys, time; print('line', sys.stdout.isatty(), os.environ['PMIX_RANK']); time.sleep(60)"
    process = command.start("run", "-n", 2, sys.executable, "-c", program, stdout=theirs)
    seen = read_until(ours, b"1\n")
    seen += b"" if b"0\n" in seen else read_until(ours, b"0\n")
    assert sorted(seen.splitlines()) == [b"line True 0", b"line True 1"]
    process.send_signal(15)
    command.end(process)


def test_a_terminal_sees_a_question_that_has_no_newline(command: Command, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    text = "[ $PMIX_RANK = 1 ] || { printf 'name? '; read name; echo \"hello $name\"; }"
    process = command.start("run", "-n", 2, "--tag-output", *SH, text, stdin=subprocess.PIPE, stdout=theirs)
    assert read_until(ours, b"name? ") == b"[0]<stdout>: name? "
    ended = command.end(process, b"Ada\n")
    assert ended.code == 0
    assert read_until(ours, b"Ada\n") == b"hello Ada\n"


def test_a_terminal_gets_every_byte_unchanged(command: Command, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    data = bytes(range(256)) * 200 + b"\n"
    (command.folder / "data").write_bytes(data)
    process = command.start("run", "-n", 2, *SH, "[ $PMIX_RANK = 1 ] || cat data", stdout=theirs)
    seen = b""
    while len(seen) < len(data) and (piece := os.read(ours, 65536)):
        seen += piece
    assert seen == data
    assert command.end(process).code == 0


def test_a_terminal_is_told_which_nodes_are_waited_for(command: Command, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    agent = command.folder / "agent"
    agent.write_text('#!/bin/sh\n[ $1 = n2 ] && exec sleep 60\nHOSTNAME=$1 exec "$2" "$3" "$4" "$5"\n')
    agent.chmod(0o755)
    options = ("--host", "n1,n2", "--launch-agent", f"{agent} {{host}}", "--node-timeout", 8)
    process = command.start("run", *options, "true", stderr=theirs)
    seen = b""
    while b" n2\n" not in seen and process.poll() is None:
        seen += read_until(ours, b" n2\n")
    assert re.search(rb"pypmix run: [01] of 2 nodes have come after 4 s; waiting for (n1, )?n2\n", seen), seen
    assert command.end(process).code == 1

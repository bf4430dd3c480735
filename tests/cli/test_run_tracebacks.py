"""Tracebacks of ranks that fail together stay whole, and `pypmix run` names the rank that began.

Where the order of ends matters, the rank that began waits for the ends of the others before it says anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from lib.command import Command, Ended
from pypmix.host.output import KEPT_LIMIT, LIVE, Stream

HEAD = "Traceback (most recent call last):\n"
FRAME = '  File "a.py", line 1, in <module>\n    me.fence()\n'
MISSED = "pypmix.standard.errors.PartialSuccess: fence of job:*: it ended without some of the procs [STATUS -52]\n"
END = r"pypmix run: rank {} \(pid \d+\) exited with code 1( without calling finalize)?"
FOLLOWS = HEAD + FRAME + MISSED
BEGINS = HEAD + FRAME + "KeyError: 'mesh'\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"

PROGRAM = """
import os, time, traceback
import pypmix

def others_have_ended():
    deadline = time.monotonic() + 20
    for name in os.listdir():
        if name.startswith("pid.") and name != f"pid.{rank}":
            pid = open(name).read().strip()
            while open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0] not in "ZX" and time.monotonic() < deadline:
                time.sleep(0.01)

me = pypmix.Client()
me.open()
rank = me.rank
with open(f"pid.{rank}", "w") as file:
    print(os.getpid(), file=file)
me.fence()
if rank != 1:
    me.fence()
"""
CUT = "os.closerange(3, 256)"
CLOSE = "me.close()"
"""Ways to be missed while the process has not ended: on one node, and on several."""


def raising(leave: str) -> tuple[str, str, str]:
    """Return the words of a program in which rank 1 leaves, and tells why when the others have ended."""
    late = "others_have_ended()\n    traceback.print_exc()\n    os._exit(1)\n"
    return python(PROGRAM + f"try:\n    raise KeyError('mesh')\nexcept KeyError:\n    {leave}\n    {late}")


def python(program: str) -> tuple[str, str, str]:
    """Return the words that run a program."""
    return sys.executable, "-c", program


def check_whole(ended: Ended, others: int) -> None:
    """Look for the whole traceback of each rank, and for a line that names rank 1."""
    text = ended.err.decode()
    assert ended.code == 1, text
    assert re.fullmatch(END.format(1), text.splitlines()[-1]), text
    shown = text.split(HEAD)[1:]
    assert len(shown) == others + 1, text
    errors = [[line for line in each.splitlines() if not line.startswith(("  ", "pypmix run"))] for each in shown]
    assert sorted(len(each) for each in errors) == [1] * len(errors), text
    assert [each for [each] in errors].count("KeyError: 'mesh'") == 1, text


@pytest.mark.parametrize(("nodes", "leave"), [(1, CUT), (4, CLOSE)])
def test_the_rank_that_began_is_named_though_it_ends_last(command: Command, nodes: int, leave: str) -> None:
    check_whole(command("run", "-n", 4, "--nodes", nodes, *raising(leave)), 3)


def test_the_rank_that_began_is_named_where_it_ends_first(command: Command) -> None:
    program = (
        "import pypmix\nwith pypmix.Client() as me:\n    me.fence()\n    if me.rank == 1: raise KeyError('mesh')\n"
    )
    text = command("run", "-n", 4, *python(program + "    me.fence()\n")).err.decode()
    # The others are ended with the job, perhaps before they have said anything.
    assert text.count("KeyError: 'mesh'\n") == 1, text
    assert text.splitlines()[-1].startswith("pypmix run: rank 1 (pid "), text


def test_tagged_lines_are_all_shown_and_the_first_rank_is_named(command: Command) -> None:
    text = command("run", "-n", 3, "--tag-output", *raising(CUT)).err.decode()
    assert [text.count(f"[{rank}]<stderr>: {HEAD}") for rank in range(3)] == [1, 1, 1], text
    assert "failed after" not in text and "pypmix run: rank 1 (pid " in text, text


def test_the_first_that_fails_is_named_where_the_rank_that_was_missed_has_not_failed(command: Command) -> None:
    ended = command("run", "-n", 4, "--nodes", 4, *python(f"{PROGRAM}{CLOSE}\nothers_have_ended()\n"))
    text = ended.err.decode()
    assert ended.code == 1 and text.count(HEAD) == 3 and text.startswith(HEAD), text
    assert re.fullmatch(END.format("[023]"), text.splitlines()[-1]), text


def test_those_who_missed_a_killed_rank_do_not_hide_who_it_was(command: Command) -> None:
    ended = command("run", "-n", 4, *python(PROGRAM + f"{CUT}\nothers_have_ended()\nos.kill(os.getpid(), 9)\n"))
    text = ended.err.decode()
    assert ended.code == 137 and text.count(HEAD) == 3, text
    assert re.search(r"pypmix run: rank 1 \(pid \d+\) was killed by signal 9", text.splitlines()[-1]), text


def test_a_traceback_that_a_rank_has_survived_is_shown(command: Command) -> None:
    ended = command("run", "-n", 2, *python(f"import sys; sys.stderr.write({FOLLOWS!r})"))
    assert (ended.code, ended.err.decode()) == (0, FOLLOWS * 2)


class Timers:
    """A loop whose time stands still."""

    def __init__(self) -> None:
        self.due: dict[Timers.Timer, tuple[float, Callable[[], None]]] = {}

    class Timer:
        """A call that can be cancelled."""

        def __init__(self, timers: Timers) -> None:
            self._timers = timers

        def cancel(self) -> None:
            self._timers.due.pop(self, None)

    def later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = self.Timer(self)
        self.due[timer] = delay, callback
        return timer


class Shown:
    """A sink that remembers."""

    terminal = False

    def __init__(self) -> None:
        self.text = ""

    def write(self, _stream: object, data: bytes) -> None:
        self.text += data.decode()

    def is_open(self, _stream: object) -> bool:
        return bool(self.text) and not self.text.endswith("\n")

    def pause(self, _stream: object) -> bool:
        return False


def stream_of(whole: bool = True) -> tuple[Timers, Shown, Stream]:
    """Return a stream of standard error with its loop and its sink."""
    timers, sink = Timers(), Shown()
    return timers, sink, Stream(timers, -1, sink, whole=whole)  # type: ignore[arg-type]


@pytest.mark.parametrize("piece", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("", FOLLOWS),
        ("one\n", FOLLOWS),
        ("", HEAD + FRAME),
        ("", BEGINS + "two\n" + FOLLOWS),
        ("", BEGINS + CAUSED + BEGINS + DURING + BEGINS),
        ("a line with " + FOLLOWS, ""),
        ("progress\rprogress\n", ""),
    ],
)
def test_a_traceback_and_the_output_after_it_are_kept(shown: str, kept: str, piece: int) -> None:
    _, sink, stream = stream_of()
    lines = (shown + kept).encode().splitlines(keepends=True)
    for at in range(0, len(lines), piece or len(lines)):
        stream.take(b"".join(lines[at : at + (piece or len(lines))]))
    assert sink.text == shown
    stream.finish()
    assert sink.text == shown + kept


def test_a_traceback_of_a_rank_that_continues_is_soon_shown() -> None:
    timers, sink, stream = stream_of()
    stream.take(BEGINS.encode())
    stream.take(b"continues\n")
    ((timer, (delay, callback)),) = timers.due.items()
    timers.due.pop(timer)
    callback()
    assert (delay, sink.text) == (LIVE, BEGINS + "continues\n")
    stream.take(b"live\n")
    assert (sink.text, timers.due) == (BEGINS + "continues\nlive\n", {})


def test_a_long_traceback_is_not_kept() -> None:
    timers, sink, stream = stream_of()
    text = HEAD + FRAME * (KEPT_LIMIT // len(FRAME) + 1) + MISSED
    stream.take(text.encode())
    assert (sink.text, timers.due) == (text, {})


def test_other_output_is_not_kept() -> None:
    timers, sink, stream = stream_of(whole=False)
    stream.take(BEGINS.encode())
    assert (sink.text, timers.due) == (BEGINS, {})


CHAINED = """
import pypmix
with pypmix.Client() as me:
    me.fence()
    try:
        {}["a"]
    except KeyError as error:
        raise RuntimeError("bad input") from error
"""


def test_chained_tracebacks_of_several_ranks_stay_whole(command: Command) -> None:
    """No rank is ended in the middle of its own one."""
    for _ in range(3):
        ended = command("run", "--keep-going", "-n", 4, *python(CHAINED))
        text = ended.err.decode()
        errors = re.findall(r"(?m)^(?:KeyError: 'a'|RuntimeError: bad input|The above exception.*)$", text)
        assert ended.code == 1 and errors == ["KeyError: 'a'", CAUSED.strip(), "RuntimeError: bad input"] * 4, text
        assert text.count(HEAD) == 8, text

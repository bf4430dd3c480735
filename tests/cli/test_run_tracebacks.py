"""Of ranks that fail since another one has failed, `pypmix run` shows one line, and names the one that began.

Where the order of ends matters, the rank that began waits for the ends of the others before it says anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from lib.command import Command, Ended
from pypmix.host.cascades import HOLD, LIVE, MOST, Reader, summary
from pypmix.host.output import Stream

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


def check_folded(ended: Ended, ranks: str, count: int) -> None:
    """Look for the whole traceback of rank 1, and a line each on the others and on the end."""
    text = ended.err.decode()
    assert ended.code == 1, text
    shown, error, rest = text.partition("KeyError: 'mesh'\n")
    assert shown.startswith(HEAD) and error, text
    assert all(line.startswith("  ") for line in shown.splitlines()[1:]), text
    folded, end = rest.splitlines()
    others = f"pypmix run: {count} other ranks failed after rank 1 (ranks {ranks}); --all-tracebacks shows theirs"
    assert folded == others, text
    assert re.fullmatch(END.format(1), end), text


@pytest.mark.parametrize(("nodes", "leave"), [(1, CUT), (4, CLOSE)])
def test_the_rank_that_began_is_shown_though_it_ends_last(command: Command, nodes: int, leave: str) -> None:
    check_folded(command("run", "-n", 4, "--nodes", nodes, *raising(leave)), "0, 2 to 3", 3)


def test_the_rank_that_began_is_shown_where_it_ends_first(command: Command) -> None:
    program = (
        "import pypmix\nwith pypmix.Client() as me:\n    me.fence()\n    if me.rank == 1: raise KeyError('mesh')\n"
    )
    text = command("run", "-n", 4, *python(program + "    me.fence()\n")).err.decode()
    shown, _, rest = text.partition("KeyError: 'mesh'\n")
    assert shown.startswith(HEAD) and shown.count(HEAD) == 1 and HEAD not in rest, text
    # The others are ended with the job, perhaps before they have said anything.
    assert len(rest.splitlines()) <= 2 and rest.splitlines()[-1].startswith("pypmix run: rank 1 (pid "), text


def test_all_are_shown_and_the_first_is_named_where_all_tracebacks_are_asked_for(command: Command) -> None:
    text = command("run", "-n", 3, "--all-tracebacks", *raising(CUT)).err.decode()
    assert text.count(HEAD) == 3 and text.count("\npypmix.standard.errors.PartialSuccess: fence") == 2, text
    assert text.count("KeyError: 'mesh'\n") == 1 and "failed after" not in text, text
    assert "pypmix run: rank 1 (pid " in text, text


def test_tagged_lines_are_all_shown_and_the_first_rank_is_named(command: Command) -> None:
    text = command("run", "-n", 3, "--tag-output", *raising(CUT)).err.decode()
    assert [text.count(f"[{rank}]<stderr>: {HEAD}") for rank in range(3)] == [1, 1, 1], text
    assert "failed after" not in text and "pypmix run: rank 1 (pid " in text, text


def test_files_hold_the_tracebacks_that_are_not_shown(command: Command) -> None:
    check_folded(command("run", "-n", 3, "--output-directory", "logs", *raising(CUT)), "0, 2", 2)
    for rank in (0, 2):
        text = (command.folder / "logs" / "1" / f"rank.{rank}" / "stderr").read_text()
        assert text.startswith(HEAD) and "errors.PartialSuccess: fence" in text


def test_one_traceback_is_whole_where_the_rank_that_was_missed_has_not_failed(command: Command) -> None:
    ended = command("run", "-n", 4, "--nodes", 4, *python(f"{PROGRAM}{CLOSE}\nothers_have_ended()\n"))
    text = ended.err.decode()
    assert ended.code == 1 and text.count(HEAD) == 1 and text.startswith(HEAD), text
    error, folded, end = text.splitlines()[-3:]
    assert error.startswith("pypmix.standard.errors.PartialSuccess: fence"), text
    assert folded == "pypmix run: 2 other ranks failed like rank 0 (ranks 2 to 3); --all-tracebacks shows theirs"
    assert re.fullmatch(END.format(0), end), text


def test_those_who_missed_a_killed_rank_do_not_hide_who_it_was(command: Command) -> None:
    ended = command("run", "-n", 4, *python(PROGRAM + f"{CUT}\nothers_have_ended()\nos.kill(os.getpid(), 9)\n"))
    text = ended.err.decode()
    assert ended.code == 137 and HEAD not in text, text
    assert re.search(r"pypmix run: rank 1 \(pid \d+\) was killed by signal 9", text.splitlines()[-1]), text


def test_a_traceback_that_a_rank_has_survived_is_shown(command: Command) -> None:
    ended = command("run", "-n", 2, *python(f"import sys; sys.stderr.write({FOLLOWS!r})"))
    assert (ended.code, ended.err.decode()) == (0, FOLLOWS * 2)


# What is held, piece by piece


def read(text: str, piece: int = 0) -> tuple[str, str, bool]:
    """Return what a reader passes on of a text, what it holds, and whether that follows."""
    reader = Reader()
    lines = text.encode().splitlines(keepends=True)
    pieces = [b"".join(lines[at : at + piece]) for at in range(0, len(lines), piece)] if piece else [b"".join(lines)]
    shown = b"".join([bytes(reader.take(bytearray(each))) for each in pieces])
    return shown.decode(), reader.held.decode(), reader.follows


@pytest.mark.parametrize("piece", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("shown", "held", "follows"),
    [
        ("", FOLLOWS, True),
        ("one\n", FOLLOWS, True),
        ("", BEGINS, False),
        ("", HEAD + FRAME, False),
        (BEGINS + "two\n", FOLLOWS, True),
        ("", FOLLOWS + DURING + HEAD + FRAME + "ValueError: x\n", True),
        ("", FOLLOWS + CAUSED + HEAD + FRAME, True),
        ("", BEGINS + DURING + FOLLOWS, False),
        ("", BEGINS + CAUSED + BEGINS + DURING + BEGINS, False),
        ("", FOLLOWS + "and goes on\n", False),
        (FOLLOWS, BEGINS, False),
        (FOLLOWS, FOLLOWS, True),
        ("", FOLLOWS.replace("fence of", "lookup of"), False),
        ("", FOLLOWS.replace("PartialSuccess", "OperationTimeout"), False),
        ("", HEAD + FRAME + MISSED.replace("pypmix", "\x1b[1;35mpypmix").replace(": f", "\x1b[0m: \x1b[35mf"), True),
        ("a line with " + FOLLOWS, "", False),
        ("progress\rprogress\n", "", False),
        ("", HEAD + "\n  x\n\n" + MISSED, True),
    ],
)
def test_what_is_held_of_a_standard_error(shown: str, held: str, follows: bool, piece: int) -> None:
    assert read(shown + held, piece) == (shown, held, follows)


def test_an_error_that_names_who_was_missed_follows() -> None:
    text = HEAD + FRAME + "pypmix.standard.errors.ConstructAborted: open: given up [X -1]; still missing: job:1\n"
    assert read(text) == ("", text, True)
    assert not read(text.replace("; still missing: job:1", ""))[2]


def test_a_long_traceback_is_not_held() -> None:
    text = HEAD + FRAME * (MOST // len(FRAME) + 1) + MISSED
    for piece in (0, 1):
        shown, held, _ = read(text, piece)
        assert (shown, held) == (text, "")


def test_a_summary_names_ranks_by_spans() -> None:
    assert "(ranks 0 to 2, 6, 8 to 9)" in summary([6, 0, 1, 2, 9, 8], 3, caused=True)
    assert summary([0, 2], 1, caused=True).startswith("2 other ranks failed after rank 1 (ranks 0, 2); ")
    assert summary([3], 1, caused=False).startswith("1 other rank failed like rank 1 (rank 3); ")


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


def lapse(timers: Timers) -> float:
    """Have the only call carried out that is due, and return its delay."""
    ((timer, (delay, callback)),) = timers.due.items()
    del timers.due[timer]
    callback()
    return delay


def test_what_is_held_is_let_go_in_time() -> None:
    timers, sink = Timers(), Shown()
    stream = Stream(timers, -1, sink, reader=Reader(), folds=True)  # type: ignore[arg-type]
    stream.take(b"before\n" + FOLLOWS.encode())
    assert (sink.text, stream.holds, stream.follows) == ("before\n", True, True)
    assert lapse(timers) == LIVE and stream.holds
    assert lapse(timers) == HOLD - LIVE
    assert (sink.text, stream.holds, stream.follows) == ("before\n" + FOLLOWS, False, True)
    stream.take(b"after\n")
    assert (sink.text, timers.due, stream.follows) == ("before\n" + FOLLOWS + "after\n", {}, False)


def test_a_traceback_of_a_rank_that_goes_on_is_soon_shown_with_what_follows_it() -> None:
    timers, sink = Timers(), Shown()
    stream = Stream(timers, -1, sink, reader=Reader(), folds=True)  # type: ignore[arg-type]
    stream.take(BEGINS.encode())
    stream.take(b"goes on\n")
    assert lapse(timers) == LIVE
    assert sink.text == BEGINS + "goes on\n"
    stream.take(b"live\n")
    assert (sink.text, timers.due) == (BEGINS + "goes on\nlive\n", {})


def test_what_is_kept_has_no_timer() -> None:
    timers, sink = Timers(), Shown()
    stream = Stream(timers, -1, sink, reader=Reader(), folds=True)  # type: ignore[arg-type]
    stream.take(FOLLOWS.encode())
    stream.keep()
    stream.close()
    assert (stream.holds, timers.due) == (True, {})
    stream.drop()
    assert (sink.text, stream.holds) == ("", False)


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
    """Whichever ranks come to it before the job is ended."""
    for _ in range(3):
        text = command("run", "-n", 4, *python(CHAINED)).err.decode()
        errors = re.findall(r"(?m)^(?:KeyError: 'a'|RuntimeError: bad input|The above exception.*)$", text)
        assert errors and errors == ["KeyError: 'a'", CAUSED.strip(), "RuntimeError: bad input"] * (len(errors) // 3)
        assert text.count(HEAD) == 2 * len(errors) // 3

"""What a peer has written does nothing to a log or a terminal, and however often it does so, the log stays readable."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypmix.cli.show import as_json, as_text, table
from pypmix.standard.logtext import LINES, MAX_CAUSES, Limit, get_logger, printable, printable_lines

HOSTILE = "\x1b]0;owned\x07\x1b[31m \x9b2J\u202e\u2028\udcff[bold red]\npypmix run: rank 0 was killed by root"


def quiet(text, allowed=""):
    return all(c.isprintable() or c in allowed for c in text)


def test_a_hostile_text_is_one_line_that_shows_what_was_in_it():
    shown = printable(HOSTILE)
    assert quiet(shown)
    for seen in (r"\x1b]0;owned\x07", r"\x9b2J", r"\u202e", r"\u2028", r"\udcff", "[bold red]", r"\npypmix run"):
        assert seen in shown
    assert printable_lines("one\ntwo\x1b") == "one\ntwo\\x1b"
    assert printable("Grüße, 日本") == "Grüße, 日本"
    assert printable("x" * 5000).endswith("x… (904 more characters)")


@given(st.text(st.characters(codec=None), max_size=50))
def test_any_text_is_harmless_and_escaped_once(text):
    shown = printable(text)
    assert quiet(shown) and printable(shown) == shown
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    shown.encode()


@given(st.text(st.characters(codec=None), max_size=50))
def test_what_commands_print_is_harmless_and_json_is_still_the_same(text):
    value = {text: [text, 1]}
    for indent in (None, 2):
        shown = as_json(value, indent)
        assert quiet(shown, "\n")
        assert json.loads(shown) == value
        shown.encode()
    assert quiet(as_text(text)) and quiet(as_text([text]))
    assert quiet(table(("A", "B"), [(text, text)], io.StringIO()), "\n")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_what_repeats_is_counted_and_never_silent_for_ever():
    clock = Clock()
    limit = Limit(clock=clock)
    notes = [limit.take("flood") for _ in range(1552)]
    assert [note for note in notes if note is not None][:-1] == [""] * (LINES - 1)
    assert "only counted" in notes[LINES - 1]
    assert notes[LINES:] == [None] * 1532
    # What else is told is not held up by it.
    assert limit.take("another") == ""
    clock.now += 61
    assert limit.take("flood") == " [… 1,532 more like this in the 61 s before]"
    assert limit.take("flood") == ""
    for _ in range(1000):
        limit.take("flood")
    assert limit.rest() == [("flood", 1002 - LINES)]
    assert limit.take("flood") == ""


def test_the_same_line_is_told_once_in_a_while():
    clock = Clock()
    limit = Limit(clock=clock)
    assert [limit.take("refused", "a"), limit.take("refused", "a"), limit.take("refused", "b")] == ["", None, ""]
    clock.now += 60
    assert limit.take("refused", "a") == " [… 1 more like this in the 60 s before]"


def test_many_causes_take_bounded_memory_and_do_not_silence_later_ones():
    clock = Clock()
    limit = Limit(clock=clock)
    shown = [cause for cause in range(100_000) if limit.take(cause) is not None]
    assert len(shown) == MAX_CAUSES + LINES
    assert len(limit._causes) == MAX_CAUSES + 1
    clock.now += 60
    assert limit.take("new") == ""
    assert len(limit._causes) == 1


@pytest.fixture
def log():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("pypmix.test.logtext")
    logger.propagate = False
    logger.addHandler(handler)
    yield get_logger("pypmix.test.logtext"), out
    logger.removeHandler(handler)


def test_a_logger_escapes_and_limits_by_the_format_and_not_by_what_is_in_it(log):
    logger, out = log
    for number in range(5000):
        logger.warning("%s is refused: %s", number, HOSTILE)
    logger.warning("something else")
    lines = out.getvalue().splitlines()
    assert len(lines) == LINES + 1
    assert all(line.startswith("WARNING ") and quiet(line) for line in lines)
    assert lines[-1] == "WARNING something else"


def test_no_line_of_a_traceback_passes_for_one_of_the_log(log):
    logger, out = log
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("it failed")
    first, *rest = out.getvalue().splitlines()
    assert first == "ERROR it failed"
    assert all(line.startswith("    ") and quiet(line) for line in rest)
    assert sum("rank 0 was killed" in line for line in rest) == 1
    assert rest[0] == "    Traceback (most recent call last):"


def test_loggers_are_not_filtered_twice():
    assert len(get_logger("pypmix.test.twice").filters) == len(get_logger("pypmix.test.twice").filters) == 1


def test_a_logger_imports_logging_with_its_first_warning_only():
    code = (
        "import sys\n"
        "from pypmix.standard.logtext import get_logger\n"
        "log = get_logger('pypmix.test')\n"
        "log.info('%s', 1)\n"
        "print('logging' in sys.modules)\n"
        "log.warning('%s', 2)\n"
        "print('logging' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout.split(), done.stderr) == (["False", "True"], "2\n")


def test_what_is_below_a_warning_is_logged_for_those_who_asked_for_it(log):
    logger, out = log
    logging.getLogger("pypmix.test.logtext").setLevel(logging.INFO)
    logger.info("it is %s", "there")
    assert out.getvalue() == "INFO it is there\n"

"""What a page shows of a command is compared with what the command prints, but for what varies."""

from __future__ import annotations

import pytest

from lib import blocks
from lib.blocks import Block


def shows(*lines: str) -> Block:
    return Block("page.md", "page", "console", 1, "\n".join(["$ command", *lines, ""]))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("rank 2 (pid 4711) is late", "rank 0 (pid 9) is late"),
        ("fence of pypmix-8021-k3v9q2xa@1:0", "fence of pypmix-7-0d4m2xqa@1:3"),
        ("hello from n0", "hello from vm"),
        ("fence  all ranks  0.209 s  153.3 ms", "fence  all ranks   12 ms     7 µs"),
        ("rank 1  fence 1.2 s, get 3 ms", "rank 1  get 90 ms, fence 12 ms"),
        ("2 pypmix run  333,852  (311,834-369,469)  1.00 ████", "2 pypmix run  88  (78-93)  1.00 █"),
        ("AMD EPYC, 2 cores, Python 3.11.7, pypmix 2026.11.0", "Intel Xeon, Gold, 64 cores, Python 3.13, pypmix 1.0"),
        ("run by /usr/bin/python3", "run by /opt/venv/bin/python3.13"),
    ],
)
def test_what_varies_is_not_compared(shown: str, printed: str) -> None:
    blocks.compare(shows(shown), printed, "vm")


def test_lines_come_in_any_order() -> None:
    blocks.compare(shows("one", "two", "two"), "two\none\n\ntwo\n")


@pytest.mark.parametrize(
    ("shown", "printed", "problem"),
    [
        (["one"], "", "does not print: one"),
        (["one"], "one\ntwo", "also prints: two"),
        (["rank 0"], "rank 0\nrank 1", "also prints: rank"),
        (["missing: [2]"], "missing: [2, 3]", "does not print: missing: [2]"),
        (["took 3 s"], "took 3", "does not print: took 3 s"),
        (["one", "..."], "one\ntwo", "does not print: ..."),
    ],
)
def test_all_else_is_compared(shown: list[str], printed: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:1") as found:
        blocks.compare(shows(*shown), printed, "vm")
    assert problem in str(found.value)

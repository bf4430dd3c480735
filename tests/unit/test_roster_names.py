"""Lists of nodes are read as Open MPI, PRRTE and Slurm write them; what cannot be read is refused with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypmix.host.rosters.names import Host, expand, read_hostfile, read_hosts, repeated

HOSTFILE = """\
# the first rack
n1 slots=4 max_slots=8   # a comment
n2:2
me@n3 slots = 3
n4   // as many as it has CPUs
n5 count=2 max-slots=2 username=you

n2 slots=1
^n6
n6 slots=9
""".splitlines()


def test_a_hostfile() -> None:
    assert read_hostfile(HOSTFILE) == [
        Host("n1", 4, 8), Host("n2", 3), Host("me@n3", 3), Host("n4"), Host("you@n5", 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("n1 slots=none", "slots are a whole number of at least 1, not 'none'"),
        ("n1 slots=0", "at least 1"),
        ("n1 slots=4 max_slots=2", "n1 has 4 slots, and 2 at most"),
        ("n1 colour=red", "'colour=red' is not slots=N"),
        ("-oProxyCommand=x slots=1", "cannot name a node"),
        ("$(reboot)", "cannot name a node"),
        ("n1:x", "the slots of n1"),
    ],
)
def test_a_line_that_cannot_be_read(line: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_hostfile(["n0", line], "/etc/hosts.txt")
    assert str(caught.value).startswith("/etc/hosts.txt, line 2: ")
    assert words in str(caught.value)


def test_hosts_of_the_command_line() -> None:
    assert read_hosts("n1,n2:4,n1,you@n3:*") == [Host("n1", 2), Host("n2", 4), Host("you@n3")]
    assert read_hosts("n[1-2,04]:3,me@m") == [Host("n1", 3), Host("n2", 3), Host("n04", 3), Host("me@m", 1)]
    assert read_hosts("::1,[fe80::1%eth0]:2") == [Host("::1", 1), Host("fe80::1%eth0", 2)]
    for text in ("", "n1,,n2", "n1:", "n1:-1", "n1 n2", "--help", "[::1", "[::1]x"):
        with pytest.raises(ValueError):
            read_hosts(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[01-03,7]", ["n01", "n02", "n03", "n7"]),
        ("n[09-11],login", ["n09", "n10", "n11", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
    ],
)
def test_lists_of_slurm(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["", "n[", "n]", "n[1", "n[3-1]", "n[a]", "n[]", "n[1-99999999]", "n[[1]]", "a,,b", "x[1-300]y[1-300]"]
)
def test_lists_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError):
        expand(text)


def test_numbers_of_slurm() -> None:
    assert repeated("4(x2),3") == [4, 4, 3]
    assert repeated("8") == [8]
    for text in ("", "4(x)", "4(x2", "x", "4(x0)", "1(x99999999)", "4,,3"):
        with pytest.raises(ValueError):
            repeated(text)


@given(st.text("n0123[]-,(x)^:= #@.*", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (expand, repeated, read_hosts, lambda text: read_hostfile([text])):
        try:
            read(text)
        except ValueError:
            pass

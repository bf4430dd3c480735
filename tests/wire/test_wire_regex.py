"""Lists of nodes and ranks are expanded from every form that travels, and never beyond their bounds."""

from __future__ import annotations

import struct
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypmix.standard.errors import RemoteProtocolError
from pypmix.wire.regex import MAX_ITEMS, expand_nodes, expand_ppn, extent, make_raw, packed

pytestmark = pytest.mark.timeout(60)


def blob(text: bytes, size: int | None = None) -> bytes:
    data = struct.pack("=I", len(text) if size is None else size) + zlib.compress(text)
    return b"blob:\0component=zlib:\0size=%d:\0%s" % (len(data), data)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("raw:a,b,c", ["a", "b", "c"]),
        (b"raw:a\0", ["a"]),
        ("raw:", []),
        ("", []),
        ("a,b", ["a", "b"]),
        ("pmix[a]", ["a"]),
        ("pmix[a-x.y,b]", ["a-x.y", "b"]),
        ("pmix[n[3:8-11]]", ["n008", "n009", "n010", "n011"]),
        ("pmix[n[1:0-2,7],m,n[2:1,3]-ib]", ["n0", "n1", "n2", "n7", "m", "n01-ib", "n03-ib"]),
        ("pmix[[2:1-2]]", ["01", "02"]),
        (blob(b"a,b"), ["a", "b"]),
        (blob(b"a,b\0"), ["a", "b"]),
    ],
)
def test_nodes(given: str | bytes, names: list[str]) -> None:
    assert expand_nodes(given) == names


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        ("raw:0,1;2,3", [[0, 1], [2, 3]]),
        ("0-2;3", [[0, 1, 2], [3]]),
        ("pmix[0-3;4,6-7]", [[0, 1, 2, 3], [4, 6, 7]]),
        ("raw:0;;1", [[0], [], [1]]),
        ("", []),
        (blob(b"0,1;2"), [[0, 1], [2]]),
    ],
)
def test_ranks(given: str | bytes, ranks: list[list[int]]) -> None:
    assert expand_ppn(given) == ranks


@pytest.mark.parametrize(
    "given",
    [
        "pmix[n[1:0-999999999999]]",
        "pmix[" + ",".join(["n[1:0-999999]"] * 1000) + "]",
        "pmix[n[1:5-3]]",
        "pmix[n[x:1-3]]",
        "pmix[n[1:1-3]",
        "pmix[n[1:a]]",
        "pmix[n[1-3]]",
        "pmix[n[999:1-3]]",
        "pmix[" + "n" * 5000 + "[1:0-999999]]",
        "pmix[n[1:" + "9" * 5000 + "]]",
        "pmix[n[1:²]]",
        "pmix[n[١:1]]"[:-1],
        "raw:" + "," * MAX_ITEMS,
        "a\0b",
        b"blob:\0what",
        b"blob:\0component=zlib:\0size=5:\0",
        b"blob:\0component=zlib:\0size=2:\0ab",
        blob(b"a,b", 4),
        blob(b"a,b", 2**31),
        blob(b"a,b")[:-2],
    ],
    ids=range(20),
)
def test_broken_nodes_are_refused(given: str | bytes) -> None:
    start = time.perf_counter()
    with pytest.raises(RemoteProtocolError):
        expand_nodes(given)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("given", ["raw:a", "0-", "3-1", "raw:0-99999999999", "pmix[0-5", ";" * (MAX_ITEMS + 1), "1 2"])
def test_broken_ranks_are_refused(given: str) -> None:
    with pytest.raises(RemoteProtocolError):
        expand_ppn(given)


def test_a_compressed_list_does_not_explode() -> None:
    bomb = struct.pack("=I", 2**30) + zlib.compress(bytes(1 << 24))
    with pytest.raises(RemoteProtocolError, match="the limit is"):
        expand_nodes(b"blob:\0component=zlib:\0size=%d:\0%s" % (len(bomb), bomb))


@settings(deadline=None)
@given(st.lists(st.text("abcxyz0189.-", min_size=1, max_size=12), min_size=1, max_size=20))
def test_raw_nodes(names: list[str]) -> None:
    assert expand_nodes(make_raw(names)) == names


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=5), min_size=1, max_size=5))
def test_raw_ranks(ranks: list[list[int]]) -> None:
    assert expand_ppn(make_raw(ranks)) == ranks


@pytest.mark.parametrize("name", ["", "a,b", "a;b", "a\0"])
def test_names_that_no_list_can_hold(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a node"):
        make_raw([name])


def test_packed() -> None:
    assert packed(b"raw:a") == packed(b"raw:a\0") == b"raw:a\0"
    assert packed(blob(b"a")) == blob(b"a")
    assert extent(b"xxraw:a\0yy", 2) == 8
    assert extent(b"x" + blob(b"a") + b"y", 1) == 1 + len(blob(b"a"))
    for wrong in (b"", b"a,b", b"raw:a\0b", blob(b"a") + b"x", blob(b"a")[:-1]):
        with pytest.raises(ValueError, match="REGEX"):
            packed(wrong)

"""Lists of nodes and ranks are expanded from every form that travels, and never beyond their bounds."""

from __future__ import annotations

import struct
import sys
import time
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypmix.standard.errors import NotSupported, RemoteProtocolError
from pypmix.wire.regex import MAX_ITEMS, expand_nodes, expand_ppn, extent, make_raw, packed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.timeout(60)


def blob(text: bytes, size: int | None = None, compress: Callable[[bytes], bytes] = zlib.compress) -> bytes:
    data = struct.pack("=I", len(text) if size is None else size) + compress(text)
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
    start = time.process_time()
    with pytest.raises(RemoteProtocolError):
        expand_nodes(given)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("given", ["raw:a", "0-", "3-1", "raw:0-99999999999", "pmix[0-5", ";" * (MAX_ITEMS + 1), "1 2"])
def test_broken_ranks_are_refused(given: str) -> None:
    with pytest.raises(RemoteProtocolError):
        expand_ppn(given)


def test_a_compressed_list_does_not_explode() -> None:
    bomb = struct.pack("=I", 2**30) + zlib.compress(bytes(1 << 24))
    with pytest.raises(RemoteProtocolError, match="the limit is"):
        expand_nodes(b"blob:\0component=zlib:\0size=%d:\0%s" % (len(bomb), bomb))


ZSTD = bytes.fromhex(
    "626c6f623a00636f6d706f6e656e743d7a6c69623a0073697a653d3137393a00af04000028b52ffd60af032d0500c2c81818"
    "80456903201a17faf65a7f48d00ecd14d9dd3de75b46e4b063267ad5dcc341a3a4726f6bde1c52658ddd97c76bd6787eaa6b"
    "d0c8ae08ade74474da4d7dfb9924baaa329bfb61625ebafc794071240b80c340d0b6e5401848314a21310494839040022820"
    "e03703c408478899118e708423c4cc084738c211626684231ce108313384231ce108478899118e708423c4cc084738c21162"
    "6684231ce1e0e13078c909"
)
"""What PMIx_generate_regex of Debian forky's libpmix 7.0.0rc1 makes of `ZSTD_NAMES`."""

ZSTD_NAMES = [f"node-with-a-name-{number * 7919 % 1000:04}.cluster" for number in range(40)]


def test_lists_that_libpmix_7_compresses() -> None:
    """The label says zlib whatever the compression is."""
    assert expand_nodes(ZSTD) == ZSTD_NAMES
    text = ",".join(ZSTD_NAMES).encode() + b"\0"
    for compress in (zlib.compress, zstd.compress, lz4.frame.compress):
        assert expand_nodes(blob(text, None, compress)) == ZSTD_NAMES
        for size in (1, len(text) - 1, len(text) + 1, 1 << 26):
            with pytest.raises(RemoteProtocolError, match="compressed"):
                expand_nodes(blob(text, size, compress))
        with pytest.raises(RemoteProtocolError, match="compressed"):
            expand_nodes(blob(text, None, lambda text, compress=compress: compress(text)[:-9]))


def test_a_list_whose_compression_is_not_known_here_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression", "backports", "lz4"):
        monkeypatch.setitem(sys.modules, name, None)
    for data, package in ((ZSTD, r"backports\.zstd"), (blob(b"x", None, lz4.frame.compress), "lz4")):
        with pytest.raises(NotSupported, match=package):
            expand_nodes(data)


@given(st.lists(st.text("abcxyz0189.-", min_size=1, max_size=12), min_size=1, max_size=20))
def test_raw_nodes(names: list[str]) -> None:
    assert expand_nodes(make_raw(names)) == names


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

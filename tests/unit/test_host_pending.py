"""Proves that what is pending comes through a query as it is, and that other layouts are refused."""

from __future__ import annotations

import pytest

from pypmix.cli.top import waiting
from pypmix.host import pending
from pypmix.standard import codes
from pypmix.standard.types import DataArray, Info, Proc, ProcInfo, Value
from pypmix.standard.values import to_python


def row(rank: int, pid: int) -> ProcInfo:
    return ProcInfo(Proc("demo", rank), "node", None, pid, 6)


ENTRIES = [
    pending.Entry("fence", "4 procs of demo", 12.5, (row(0, 10), row(1, 11)), (row(3, 13),)),
    pending.Entry("query_info", "with the host", 0.0, (row(0, 10),), ()),
]


def test_it_comes_back() -> None:
    assert pending.unpack(to_python(pending.pack(ENTRIES))) == ENTRIES
    assert pending.unpack(to_python(pending.pack([]))) == []


@pytest.mark.parametrize(
    "value",
    [
        Value(codes.STRING, "x"),
        Value(codes.DATA_ARRAY, DataArray(codes.INFO, ())),
        Value(codes.DATA_ARRAY, DataArray(codes.INFO, (Info(pending.OPERATION, Value(codes.STRING, "fence")),))),
    ],
)
def test_another_layout(value: Value) -> None:
    with pytest.raises(ValueError, match="no pending operation"):
        pending.unpack([Info(pending.KEY, value)])


def plain(operation: str, arrived: list[int], missing: list[int], label: str = "") -> dict[str, object]:
    procs = {
        rank: {"proc": f"demo:{rank}", "pid": 4708 + rank if rank < 9 else 0, "node": "n1"}
        for rank in [*arrived, *missing]
    }
    return {
        "operation": operation,
        "label": label,
        "seconds": 12.44,
        "arrived": [procs[rank] for rank in arrived],
        "missing": [procs[rank] for rank in missing],
    }


def test_what_top_says_of_it() -> None:
    assert waiting(plain("fence", [0, 1, 2, 4, 5, 6, 7], [3])) == (
        "fence 7 of 8 procs — waiting for demo:3 (pid 4711, 12.4 s)"
    )
    assert waiting(plain("fence", [0, 1, 2, 4, 5, 6, 7], [3]), several=True) == (
        "fence 7 of 8 procs — waiting for demo:3 (pid 4711 on n1, 12.4 s)"
    )
    assert waiting(plain("group_construct cells", [0], [9])) == (
        "group_construct cells 1 of 2 procs — waiting for demo:9 (12.4 s)"
    )
    assert waiting(plain("get", [0], [3], "acme.key of demo:3")) == (
        "get acme.key of demo:3 — demo:0 (pid 4708) waits for demo:3 (pid 4711, 12.4 s)"
    )
    assert waiting(plain("publish", [1], [])) == "publish — demo:1 (pid 4709, 12.4 s) waits for the server's host"

"""Where a host with several nodes places ranks, what such a job tells its clients, and what is pending on all nodes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pypmix.engine.common import Pending
from pypmix.host import nodes as host_nodes
from pypmix.host.crossings import merged
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.nodes import MAX_NODES, check_nodes, in_blocks, usable_cpus
from pypmix.standard.types import Proc


def nodes(*running: int) -> list[Any]:
    return [SimpleNamespace(number=number, running=count) for number, count in enumerate(running)]


def placed(size: int, *running: int) -> dict[int, tuple[int, ...]]:
    return {node.number: ranks for node, ranks in in_blocks(size, nodes(*running))}


def test_blocks_are_even_and_in_order() -> None:
    assert placed(8, 0, 0) == {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}
    assert placed(7, 0, 0, 0) == {0: (0, 1, 2), 1: (3, 4), 2: (5, 6)}
    assert placed(3, 5, 0, 1) == {0: (0,), 1: (1,), 2: (2,)}


def test_fewer_ranks_than_nodes_take_those_that_run_the_fewest() -> None:
    assert placed(1, 0, 0) == {0: (0,)}
    assert placed(1, 3, 2, 2) == {1: (0,)}
    assert placed(2, 1, 3, 0, 1) == {0: (0,), 2: (1,)}


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 4),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n", "above": "200000 100000"}, 2),
        ({"cpu.max": "nonsense"}, 4),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu.cfs_quota_us": "150000\n"}, 4),
    ],
)
def test_cpus_by_affinity_and_by_control_groups(
    files: dict[str, str], cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "jobs" / "mine"
    own.mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "jobs" / "cpu.max" if name == "above" else own / name).write_text(text)
    monkeypatch.setattr(host_nodes, "CGROUPS", str(tmp_path))
    # A folder that a container does not see stands for one of those that it does.
    monkeypatch.setattr(host_nodes, "_control_groups", lambda: [str(own / "unseen"), str(own)])
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(4)))
    assert usable_cpus() == cpus


@pytest.mark.parametrize("count", [0, -1, MAX_NODES + 1, 1.5, True])
def test_counts_that_make_no_sense(count: Any) -> None:
    with pytest.raises(ValueError, match="1 to 256 nodes"):
        check_nodes(count, "python")


def test_several_nodes_on_the_native_engine_are_refused() -> None:
    check_nodes(1, "native")
    with pytest.raises(ValueError, match="libpmix has one server in a process"):
        check_nodes(2, "native")


def test_a_job_beside_others_on_some_of_the_nodes() -> None:
    apps = (Application(("a",), 3),)
    placement = NodeLayout("n1", (0, 1), 1, 4, 2), NodeLayout("n3", (2,), 3, 0, 0)
    info = JobLayout("demo@2", apps, placement, first=9, others=7).info()
    first, second = [{each.key: each.value.data for each in infos} for infos in info.nodes]
    assert (first["pmix.nodeid"], first["pmix.node.size"]) == (1, 4)
    assert (second["pmix.nodeid"], second["pmix.node.size"]) == (3, 1)
    rows = [{each.key: each.value.data for each in infos} for _, infos in info.procs]
    found = [tuple(row[f"pmix.{key}"] for key in ("nodeid", "lrank", "nrank", "grank")) for row in rows]
    assert found == [(1, 0, 4, 9), (1, 1, 5, 10), (3, 0, 0, 11)]


def procs(*ranks: int) -> tuple[Proc, ...]:
    return tuple([Proc("job", rank) for rank in ranks])


def test_what_servers_do_together_is_pending_once() -> None:
    label = "4 procs of job"
    found = merged(
        [
            Pending("fence", f"{label}, with the host", procs(0, 1), (), 5.0),
            Pending("fence", label, procs(2), procs(3), 4.0),
            Pending("get", "key", procs(0), procs(3), 1.0),
            Pending("get", "key", procs(2), procs(3), 2.0),
        ]
    )
    assert found == [
        Pending("get", "key", procs(0), procs(3), 1.0),
        Pending("get", "key", procs(2), procs(3), 2.0),
        Pending("fence", label, procs(0, 1, 2), procs(3), 4.0),
    ]


def test_a_server_that_has_not_begun_is_missing_with_its_procs() -> None:
    item = Pending("fence", "4 procs of job, with the host", procs(0, 1), (), 5.0)
    known = Pending("fence", "", procs(0, 1), procs(2, 3), 5.5)
    assert merged([item], [known]) == [Pending("fence", "4 procs of job", procs(0, 1), procs(2, 3), 5.0)]

"""C programs of every libpmix at hand are clients of every server, alone and in one job with Python ranks."""

from __future__ import annotations

import socket

import pytest

from lib.c_programs import notes, outcome, succeeded
from lib.job import scenario_command
from lib.pairings import Part
from lib.rank import load
from pypmix import Value

VALUES: dict[str, Value] = load("interop", "sync")["VALUES"]

NOT_FOUND, TIMEOUT, PARTIAL_SUCCESS = -46, -24, -52


@pytest.mark.needs("one node")
def test_put_fence_get_and_job_info(launch, programs, libpmix):
    job = succeeded(launch(Part(3, [programs("modex")], libpmix)))
    host = socket.gethostname()
    for rank in range(3):
        seen = {key: outcome(note)[1] for key, note in notes(job, rank).items() if note[0].isdigit() and "." in note}
        assert notes(job, rank)["library"].split()[1].startswith(libpmix["INTEROP_RELEASE"])
        assert notes(job, rank)["finalize"] == "0"
        assert seen["own-uncommitted"] == f"ok of {rank}"
        for peer in range(3):
            assert seen[f"global-{peer}"] == f"ok of {peer}"
            assert seen[f"local-{peer}"] == f"ok of {peer}"
            hidden = f"ok of {peer}" if peer == rank else f"status {NOT_FOUND}"
            assert (seen[f"remote-{peer}"], seen[f"internal-{peer}"]) == (hidden, hidden)
            assert seen[f"pmix.lrank-{peer}"] == seen[f"pmix.nrank-{peer}"]
            assert seen[f"pmix.appnum-{peer}"] == "ok 0"
            assert seen[f"pmix.hname-{peer}"] == f"ok {host}"
        for key in "pmix.job.size", "pmix.local.size", "node-local-size":
            assert seen[key] == "ok 3", key
        for key in "pmix.lpeers", "node-local-peers":
            assert sorted(seen[key].removeprefix("ok ").split(",")) == ["0", "1", "2"], key
        assert seen["pmix.num.nodes"] == seen["pmix.job.napps"] == "ok 1"
        assert {seen[f"pmix.lrank-{peer}"] for peer in range(3)} == {"ok 0", "ok 1", "ok 2"}
        assert seen["pmix.univ.size"].startswith("ok ")
        assert seen["pmix.parent"] == f"status {NOT_FOUND}"


@pytest.mark.servers("python-server-2-nodes")
def test_scopes_and_job_info_across_nodes(launch, programs, libpmix):
    """Ranks 0 and 1 are on the first node, rank 2 is on the second; each sees what its node may."""
    job = succeeded(launch(Part(3, [programs("modex")], libpmix)))
    node_of = {0: "node0", 1: "node0", 2: "node1"}
    for rank in range(3):
        seen = {key: outcome(note)[1] for key, note in notes(job, rank).items() if note[0].isdigit() and "." in note}
        for peer in range(3):
            here, there = f"ok of {peer}", f"status {NOT_FOUND}"
            together = node_of[peer] == node_of[rank]
            assert seen[f"global-{peer}"] == here
            assert seen[f"local-{peer}"] == (here if together else there)
            assert seen[f"remote-{peer}"] == (here if peer == rank or not together else there)
            assert seen[f"internal-{peer}"] == (here if peer == rank else there)
            assert seen[f"pmix.hname-{peer}"] == f"ok {node_of[peer]}"
        assert (seen["pmix.job.size"], seen["pmix.num.nodes"]) == ("ok 3", "ok 2")
        assert seen["pmix.local.size"] == ("ok 1" if rank == 2 else "ok 2")
        assert sorted(seen["pmix.lpeers"].removeprefix("ok ").split(",")) == (["2"] if rank == 2 else ["0", "1"])


@pytest.mark.timing
def test_missing_and_late_keys(launch, programs, libpmix):
    job = succeeded(launch(Part(2, [programs("missing")], libpmix)))
    for rank in range(2):
        seen = {key: outcome(note) for key, note in notes(job, rank).items() if " ok " in note or " status " in note}
        for key in "immediate", "optional", "nspace", "rank", "job", "reserved":
            seconds, text = seen[key]
            assert text == f"status {NOT_FOUND}", key
            assert seconds < 1, key
        assert seen["timeout"][1] == f"status {TIMEOUT}"
        assert 0.8 < seen["timeout"][0] < 4
        assert seen["plain"][1] in (f"status {TIMEOUT}", f"status {NOT_FOUND}")
        assert 1.5 < seen["plain"][0] < 6
    seconds, text = outcome(notes(job, 0)["late"])
    assert text == "ok there"
    assert 0.2 < seconds < 4


def expected_note(value: Value) -> str:
    """Return how `types.c` notes a value."""

    def text(kind: int, data: object) -> str:
        match data:
            case bool():
                return str(int(data))
            case bytes():
                return data.hex()
            case tuple() if hasattr(data, "nspace"):
                return f"{data.nspace}:{data.rank}"
            case tuple() if hasattr(data, "key"):
                return f"{data.key}={text(data.value.type, data.value.data)}"
            case int() | float():
                return f"{data:d}" if isinstance(data, int) else f"{data:g}"
            case str():
                return data
        if hasattr(data, "sec"):
            return f"{data.sec}.{data.usec:06d}"
        if hasattr(data, "separator"):
            return f"{data.name}={data.value} {data.separator}"
        return "[" + ",".join(text(data.type, item) for item in data) + "]"

    return f"type {int(value.type)} {text(value.type, value.data)}"


def differences(seen: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return what a C rank read otherwise than it was put; a long string may come compressed, as natives send it."""
    different = {}
    for name, value in VALUES.items():
        accepted = [expected_note(value), *(["type 42 compressed"] if name == "string.long" else [])]
        if seen.get(name, "").rstrip(" ") not in [text.rstrip(" ") for text in accepted]:
            different[name] = (seen.get(name, ""), accepted[0])
    return different


def test_types_between_c_ranks(launch, programs, libpmix):
    job = succeeded(launch(Part(2, [programs("types"), "1", "c"], libpmix)))
    for rank in range(2):
        assert not differences(notes(job, rank)), job.report()


@pytest.mark.parametrize("form", ["sync", "asyncio"])
def test_types_between_c_and_python_ranks(launch, programs, libpmix, form):
    """Ranks 0 and 1 are of C, 2 and 3 of Python; each reads what the other language put."""
    python = scenario_command("interop.types", form, {"rank": 0, "prefix": "c"})
    job = launch(
        Part(2, [programs("types"), "2", "py"], libpmix),
        Part(2, python, {"PYPMIX_ENGINE": "python"}),
    )
    succeeded(job)
    for rank in range(2):
        assert not differences(notes(job, rank)), job.report()
    for rank in 2, 3:
        seen = job.ranks[rank].result
        assert {name: (seen[name], value) for name, value in VALUES.items() if seen[name] != value} == {}


@pytest.mark.needs("one node")
def test_scopes_between_c_and_python_ranks(launch, programs, libpmix):
    python = scenario_command("interop.modex", "sync", {})
    job = launch(Part(1, [programs("modex")], libpmix), Part(1, python, {"PYPMIX_ENGINE": "python"}))
    succeeded(job)
    seen = notes(job, 0)
    assert outcome(seen["global-1"])[1] == outcome(seen["local-1"])[1] == "ok of 1"
    assert outcome(seen["remote-1"])[1] == outcome(seen["internal-1"])[1] == f"status {NOT_FOUND}"
    seen = job.ranks[1].result
    assert (seen["global-0"], seen["internal-0"]) == ("of 0", None)


@pytest.mark.needs("one node")
def test_local_scope_between_c_and_python_ranks(launch, programs, libpmix):
    python = scenario_command("interop.modex", "sync", {})
    job = launch(Part(1, [programs("modex")], libpmix), Part(1, python, {"PYPMIX_ENGINE": "python"}))
    assert succeeded(job).ranks[1].result["local-0"] == "of 0"


@pytest.mark.needs("REMOTE stays off the own node", "one node")
def test_remote_scope_between_c_and_python_ranks(launch, programs, libpmix):
    python = scenario_command("interop.modex", "sync", {})
    job = launch(Part(1, [programs("modex")], libpmix), Part(1, python, {"PYPMIX_ENGINE": "python"}))
    assert succeeded(job).ranks[1].result["remote-0"] is None


@pytest.mark.servers("python-server")
@pytest.mark.parametrize(("how", "code"), [("finalize", 0), ("fail", 7), ("kill", 137), ("abort", 9)])
def test_endings(launch, programs, libpmix, how, code):
    """The job's exit code is that of the rank which ended it; nobody is left in the fence."""
    job = launch(Part(3, [programs("ending"), how], libpmix))
    assert not job.hung, job.report()
    assert job.exit_code == code, job.report()
    if how == "finalize":
        for rank in range(2):
            assert outcome(notes(job, rank)["fence"])[1] == str(PARTIAL_SUCCESS), job.report()


@pytest.mark.servers("python-server")
def test_exit_without_finalize(launch, programs, libpmix):
    job = launch(Part(3, [programs("ending"), "exit"], libpmix))
    assert not job.hung, job.report()
    assert job.exit_code != 0, job.report()
    assert "rank 2" in job.stderr, job.report()


@pytest.mark.timing
@pytest.mark.servers("python-server")
def test_absent(launch, programs, libpmix):
    """Every rank that waits is told of the timeout, which the native 5.0 servers tell one of them only."""
    job = succeeded(launch(Part(3, [programs("ending"), "absent"], libpmix)))
    for rank in range(2):
        seconds, text = outcome(notes(job, rank)["fence"])
        assert text == str(TIMEOUT)
        assert 1.5 < seconds < 5


@pytest.mark.servers("python-server")
def test_open_and_close_again_and_again(launch, programs, libpmix):
    if libpmix["INTEROP_RELEASE"] == "5.0.11":
        pytest.skip("libpmix 5.0.11 corrupts its memory when it is initialized a second time")
    job = succeeded(launch(Part(2, [programs("cycle"), "3"], libpmix)))
    for rank in range(2):
        assert outcome(notes(job, rank)["round-2"])[1] == "ok round 2"

"""The description of a job: its placement is checked, its job info has the keys, types and values that clients need."""

from __future__ import annotations

import pytest

from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.launch import find_program, inherited_environment
from pypmix.host.pmi.registration import PREPUT
from pypmix.standard import attrs, codes
from pypmix.standard.attrs import by_key
from pypmix.standard.structures import Device
from pypmix.standard.types import DataArray, Info, Proc, Value

JOB = JobLayout(
    "demo@1",
    apps=(Application(("./a", "-v", "x y"), 3, wdir="/work"), Application(("b",), 2)),
    nodes=(NodeLayout("n0", (0, 3, 1)), NodeLayout("n1", (2, 4))),
    session=77,
    tmpdir="/tmp/demo",
    wdir="/home",
)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Application("true"), TypeError, "not the string 'true'"),
        (lambda: Application(("true", 5)), TypeError, "made of str, not of int"),
        (lambda: Application((b"true",)), TypeError, "made of str, not of bytes"),
        (lambda: Application(("true",), env=(("A", 1),)), TypeError, "made of str, not of int"),
        (lambda: NodeLayout(5, (0,)), TypeError, "must be a str, not int"),
        (lambda: NodeLayout("a\0", (0,)), ValueError, "cannot name a node"),
        (lambda: NodeLayout("a", (0.5,)), TypeError, "are ints, not float"),
        (lambda: NodeLayout("a", (True,)), TypeError, "are ints, not bool"),
        (lambda: JobLayout("j", ("true",), (NodeLayout("a", (0,)),)), TypeError, "are Applications, not str"),
        # Which takes no memory for the ranks that are not there.
        (
            lambda: JobLayout("j", (Application(("true",), 2**31),), (NodeLayout("a", (0,)),)),
            ValueError,
            "must hold each",
        ),
    ],
)
def test_what_describes_no_job_is_refused_at_the_call(make, error, text) -> None:
    with pytest.raises(error, match=text):
        make()


def data(infos: tuple[Info, ...]) -> dict[str, object]:
    found = {info.key: info.value.data for info in infos}
    assert len(found) == len(infos)
    return found


def test_job_level() -> None:
    infos = JOB.info().job
    assert infos[0].key == "pmix.session.id"
    assert data(infos) == {
        "pmix.session.id": 77,
        "pmix.univ.size": 5,
        "pmix.job.size": 5,
        "pmix.max.size": 5,
        "pmix.jobid": "demo@1",
        "pmix.num.nodes": 2,
        "pmix.job.napps": 2,
        "pmix.nlist": "n0,n1",
        "pmix.tmpdir": "/tmp/demo",
        "pmix.nsdir": "/tmp/demo",
        "pmix.tdir.rmclean": True,
    }


def test_node_level() -> None:
    first, second = [data(infos) for infos in JOB.info().nodes]
    procs = first.pop("pmix.lprocs")
    assert procs.type == codes.PROC  # type: ignore[attr-defined]
    assert procs.items == tuple(Proc("demo@1", rank) for rank in (0, 1, 3))  # type: ignore[attr-defined]
    assert first == {
        "pmix.nodeid": 0,
        "pmix.hname": "n0",
        "pmix.local.size": 3,
        "pmix.node.size": 3,
        "pmix.lpeers": "0,1,3",
        "pmix.lldr": 0,
    }
    assert (second["pmix.nodeid"], second["pmix.lpeers"], second["pmix.lldr"]) == (1, "2,4", 2)


def test_application_level() -> None:
    first, second = [data(infos) for infos in JOB.info().apps]
    assert first == {
        "pmix.appnum": 0,
        "pmix.app.size": 3,
        "pmix.aldr": 0,
        "pmix.app.argv": "./a -v x y",
        "pmix.num.nodes": 2,
        "pmix.wdir": "/work",
    }
    assert second == {
        "pmix.appnum": 1,
        "pmix.app.size": 2,
        "pmix.aldr": 3,
        "pmix.app.argv": "b",
        "pmix.num.nodes": 2,
        "pmix.wdir": "/home",
    }


def test_rank_level() -> None:
    procs = dict(JOB.info().procs)
    assert sorted(procs) == [0, 1, 2, 3, 4]
    assert data(procs[3]) == {
        "pmix.rank": 3,
        "pmix.appnum": 1,
        "pmix.lrank": 2,
        "pmix.nrank": 2,
        "pmix.nodeid": 0,
        "pmix.hname": "n0",
        "pmix.grank": 3,
        "pmix.apprank": 0,
        "pmix.pdir": "/tmp/demo/3",
    }
    assert [data(procs[rank])["pmix.lrank"] for rank in range(5)] == [0, 1, 0, 2, 1]
    assert [data(procs[rank])["pmix.apprank"] for rank in range(5)] == [0, 1, 2, 0, 1]


def test_session_level() -> None:
    (session,) = JOB.info().sessions
    assert [info.key for info in session] == ["pmix.session.id", "pmix.univ.size"]


CHILD = JOB.replace(nspace="demo@2", parent=Proc("demo@1", 1), first=5, others=6)


def test_a_spawned_job_knows_its_parent_and_what_else_runs() -> None:
    info = CHILD.info()
    job = data(info.job)
    assert (job["pmix.parent"], job["pmix.spawned"], job["pmix.univ.size"]) == (Proc("demo@1", 1), True, 11)
    assert (job["pmix.job.size"], job["pmix.max.size"]) == (5, 5)
    assert data(info.sessions[0])["pmix.univ.size"] == 11
    node = data(info.nodes[0])
    assert (node["pmix.local.size"], node["pmix.node.size"], node["pmix.lpeers"]) == (3, 9, "0,1,3")
    rank = data(dict(info.procs)[3])
    assert (rank["pmix.parent"], rank["pmix.spawned"]) == (Proc("demo@1", 1), True)
    assert (rank["pmix.lrank"], rank["pmix.nrank"], rank["pmix.grank"], rank["pmix.apprank"]) == (2, 7, 8, 0)


def test_a_job_that_nobody_has_spawned_says_nothing_of_a_parent() -> None:
    info = JOB.info()
    keys = {entry.key for level in (info.job, *[infos for _, infos in info.procs]) for entry in level}
    assert not keys & {"pmix.parent", "pmix.spawned"}


def test_ranks_of_a_node_can_be_numbered_through_all_its_jobs() -> None:
    JOB.replace(first=65530)
    with pytest.raises(OverflowError, match="65535"):
        JOB.replace(first=65533)


def test_the_environment_of_an_application() -> None:
    app = Application(("a",), env=(("NEW", "1"), ("OLD", "2")), unset=("GONE", "NEVER"))
    assert app.environment({"OLD": "1", "GONE": "1", "KEPT": "1"}) == {"NEW": "1", "OLD": "2", "KEPT": "1"}


# What Open MPI and the C libraries read with a fixed type.
WIRE_TYPES = {
    "pmix.job.size": codes.UINT32,
    "pmix.univ.size": codes.UINT32,
    "pmix.session.id": codes.UINT32,
    "pmix.lrank": codes.UINT16,
    "pmix.nrank": codes.UINT16,
    "pmix.nodeid": codes.UINT32,
    "pmix.appnum": codes.UINT32,
    "pmix.rank": codes.PROC_RANK,
    "pmix.grank": codes.PROC_RANK,
    "pmix.apprank": codes.PROC_RANK,
    "pmix.lldr": codes.PROC_RANK,
    "pmix.aldr": codes.PROC_RANK,
    "pmix.lpeers": codes.STRING,
    "pmix.lprocs": codes.DATA_ARRAY,
    "pmix.tdir.rmclean": codes.BOOL,
}


def test_every_key_is_known_and_has_its_type() -> None:
    info = CHILD.info()
    levels = [info.job, *info.nodes, *info.apps, *info.sessions, *[infos for _, infos in info.procs]]
    seen = {}
    for each in [entry for level in levels for entry in level]:
        attribute = by_key(each.key)
        assert attribute is not None, each.key
        assert each.value.type in attribute.types
        # A value of another range would not survive the wire.
        assert Value(each.value.type, each.value.data) == each.value
        seen[each.key] = each.value.type
    assert {key: seen.get(key) for key in WIRE_TYPES} == WIRE_TYPES


def test_no_folder_no_keys_about_it() -> None:
    info = JOB.replace(tmpdir="").info()
    keys = {entry.key for level in (info.job, *[infos for _, infos in info.procs]) for entry in level}
    assert not keys & {"pmix.tmpdir", "pmix.nsdir", "pmix.pdir", "pmix.tdir.rmclean"}


def test_a_node_may_be_empty() -> None:
    nodes = (NodeLayout("n0", (0, 1, 2, 3, 4)), NodeLayout("spare", ()))
    spare = data(JOB.replace(nodes=nodes).info().nodes[1])
    assert (spare["pmix.local.size"], spare["pmix.lpeers"]) == (0, "")
    assert "pmix.lldr" not in spare


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (NodeLayout("n", (0, 1, 2, 3)),),
        (NodeLayout("n", (0, 1, 2, 3, 4, 5)),),
        (NodeLayout("n", (0, 1, 2)), NodeLayout("m", (2, 3, 4))),
    ],
)
def test_each_rank_has_one_place(nodes: tuple[NodeLayout, ...]) -> None:
    with pytest.raises(ValueError, match="each of the ranks 0 to 4 once"):
        JOB.replace(nodes=nodes)


def test_nodes_have_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        JOB.replace(nodes=(NodeLayout("n", (0, 1, 2)), NodeLayout("n", (3, 4))))


@pytest.mark.parametrize("hostname", ["", "a,b"])
def test_a_node_needs_a_name(hostname: str) -> None:
    with pytest.raises(ValueError, match="cannot name a node"):
        NodeLayout(hostname, ())


def test_a_node_holds_as_many_ranks_as_can_be_numbered() -> None:
    NodeLayout("n", tuple(range(65535)))
    with pytest.raises(OverflowError, match="65535"):
        NodeLayout("n", tuple(range(65536)))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"argv": ()}, ValueError),
        ({"argv": ("",)}, ValueError),
        ({"argv": ("a\0b",)}, ValueError),
        ({"argv": ("a",), "np": 0}, ValueError),
        ({"argv": ("a",), "np": True}, TypeError),
        ({"argv": ("a",), "np": 1.0}, TypeError),
        ({"argv": ("a",), "env": (("A=B", "c"),)}, ValueError),
        ({"argv": ("a",), "env": (("", "c"),)}, ValueError),
        ({"argv": ("a",), "wdir": "\0"}, ValueError),
        ({"argv": ("a",), "program": "\0"}, ValueError),
    ],
)
def test_an_application_that_cannot_run(arguments: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        Application(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("nspace", ["", "x" * 256])
def test_a_job_needs_a_name_that_fits(nspace: str) -> None:
    with pytest.raises(ValueError, match="nspace"):
        JOB.replace(nspace=nspace)


def test_the_environment_of_an_outer_job_is_dropped() -> None:
    user = {"PATH": "/bin", "OMPI_MCA_pml": "ob1", "PMIXER": "1", "PYPMIX_ENGINE": "python"}
    user["OMPI_MCA_schizo"] = "ompi"
    assert inherited_environment({**user, "PMIX_VERSION": "5", "PRTE_X": "1", "OMPI_X": "1"}) == user
    assert inherited_environment({**user, "PMI_FD": "5", "PMI_RANK": "1", "PMI_SIZE": "2"}) == user
    assert inherited_environment({**user, "PMI_SPAWNED": "1", PREPUT: "{}"}) == user
    inside = inherited_environment({**user, "PMIX_NAMESPACE": "n", "PMIX_MCA_gds": "hash"})
    # Without this Open MPI 4 does not ask PMIx whether it is one of several.
    assert inside == {"PATH": "/bin", "PMIXER": "1", "PYPMIX_ENGINE": "python", "OMPI_MCA_schizo": "^orte"}


def test_a_node_says_that_it_is_oversubscribed_only_where_it_is() -> None:
    """Open MPI takes the key for a yes, whatever its value."""
    full = NodeLayout("far", (0, 1), oversubscribed=True)
    job = JOB.replace(apps=(Application(("x",), 3),), nodes=(full, NodeLayout("near", (2,))))
    key = attrs.NODE_OVERSUBSCRIBED.key
    said = [[info.value.data for info in node if info.key == key] for node in job.info().nodes]
    assert said == [[True], []]


def test_programs_are_found_as_a_shell_finds_them(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    (tmp_path / "first" / "tool").write_text("not executable")
    (tmp_path / "second" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "second" / "tool").chmod(0o755)
    both = {"PATH": f"{tmp_path}/none:{tmp_path}/first:{tmp_path}/second"}
    assert find_program("tool", both) == f"{tmp_path}/second/tool"
    assert find_program("second/tool", {}, str(tmp_path)) == f"{tmp_path}/second/tool"
    with pytest.raises(PermissionError, match="first/tool"):
        find_program("tool", {"PATH": f"{tmp_path}/first"})
    with pytest.raises(PermissionError):
        find_program(str(tmp_path), {})
    with pytest.raises(FileNotFoundError, match="tool"):
        find_program("tool", {"PATH": str(tmp_path)})


def test_places_on_hardware() -> None:
    nodes = (
        NodeLayout(
            "n0",
            (0, 2),
            cpus=("0-3", "4-7"),
            variables=((), (("CUDA_VISIBLE_DEVICES", "1"),)),
            devices=((), ("nvml0",)),
        ),
        NodeLayout("n1", (1,), cpus=("",)),
    )
    policies = ("BYPACKAGE:NOOVERSUBSCRIBE", "FILL", "PACKAGE")
    job = JobLayout("demo@1", (Application(("prog",), 3),), nodes, policies=policies)
    info = job.info()
    assert [data(infos).get("pmix.cpuset") for _, infos in info.procs] == ["0-3", None, "4-7"]
    assert [data(infos)["pmix.reinc"] for _, infos in info.procs] == [0, 0, 0]
    assert [data(infos).get("pmix.lcpus") for infos in info.nodes] == ["0-3:4-7", None]
    assert [data(info.job)[key] for key in ("pmix.mapby", "pmix.rankby", "pmix.bindto")] == list(policies)
    gpu = DataArray(codes.DEVICE, (Device("gpu://n0::nvml0", "nvml0", 2),))
    assert [data(infos).get("pmix.dev.id") for _, infos in info.procs] == [None, None, gpu]
    assert nodes[0].variables_of(2) == (("CUDA_VISIBLE_DEVICES", "1"),)
    assert nodes[1].variables_of(1) == ()
    with pytest.raises(ValueError, match="node n0 has 2 ranks and 1 bindings"):
        NodeLayout("n0", (0, 1), cpus=("0",))

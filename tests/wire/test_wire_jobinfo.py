"""Job info is told per client release, with its keys only, and every form that servers send it in is read."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import strategies
from pypmix.standard import codes
from pypmix.standard.errors import NotFound, RemoteProtocolError
from pypmix.standard.types import DataArray, Info, KeyValue, Value
from pypmix.wire.codec import Packer, encode_kval
from pypmix.wire.jobinfo import JobInfo, decode_jobinfo, encode_jobinfo

pytestmark = pytest.mark.timeout(60)

JOB = JobInfo(
    nspace="job",
    job=(Info("pmix.job.size", Value(codes.UINT32, 2)), Info("site.note", Value(codes.STRING, "x"))),
    nodes=((Info("pmix.hname", Value(codes.STRING, "n0")), Info("pmix.lpeers", Value(codes.STRING, "0,1"))),),
    apps=((Info("pmix.appnum", Value(codes.UINT32, 0)), Info("pmix.app.size", Value(codes.UINT32, 2))),),
    sessions=((Info("pmix.session.id", Value(codes.UINT32, 0)),),),
    procs=(
        (0, (Info("pmix.lrank", Value(codes.UINT16, 0)),)),
        (1, (Info("pmix.lrank", Value(codes.UINT16, 1)), Info("pmix.hname", Value(codes.STRING, "n0")))),
    ),
)
RELEASES = [(4, 2, 2), (4, 2, 9), (5, 0, 11), (6, 1, 0), (7, 0, 0)]


def message(*kvals: tuple[str, Value], kind: int = 1) -> bytes:
    packed = Packer(kind).pack(codes.STRING, "job").bytes()
    return packed + b"".join(encode_kval(kind, key, value) for key, value in kvals)


def infos(*items: Info) -> Value:
    return Value(codes.DATA_ARRAY, DataArray(codes.INFO, items))


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_round_trip(release: tuple[int, int, int], kind: int) -> None:
    data = encode_jobinfo(JOB, kind, release)
    assert decode_jobinfo(data, kind, release) == JOB


keyed = st.builds(Info, st.text("abc.", min_size=1, max_size=8).map(lambda key: "x" + key), strategies.values(1))
groups = st.lists(keyed, max_size=3).map(tuple)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(
        JobInfo,
        strategies.nspaces,
        groups,
        st.lists(groups, max_size=2).map(tuple),
        st.lists(groups, max_size=2).map(tuple),
        st.lists(groups, max_size=2).map(tuple),
        st.dictionaries(strategies.u32, groups, max_size=2).map(lambda found: tuple(found.items())),
    ),
    st.sampled_from([1, 2]),
)
def test_round_trip_of_anything(job: JobInfo, kind: int) -> None:
    assert decode_jobinfo(encode_jobinfo(job, kind, (5, 0, 11)), kind, (5, 0, 11)) == job


def test_keys_that_a_release_does_not_know_are_left_out() -> None:
    from pypmix.standard import attrs

    known = [attr for attr in map(attrs.by_key, ("pmix.job.size", "pmix.hname")) if attr]
    newer = [
        attr
        for attr in (getattr(attrs, name) for name in attrs.__all__ if name != "by_key")
        if not attr.known_to((4, 2, 2)) and attr.known_to((6, 1, 0)) and attr.types
    ]
    assert len(known) == 2
    assert newer
    extra = Info(newer[0].key, Value(codes.BOOL, True))
    wrong = Info("pmix.no.such.key", Value(codes.BOOL, True))
    more = JOB.replace(
        job=(wrong, extra, *JOB.job),
        nodes=((extra, *JOB.nodes[0], wrong),),
        procs=((0, (extra, *JOB.procs[0][1])),),
    )
    old = decode_jobinfo(encode_jobinfo(more, 1, (4, 2, 2)), 1, (4, 2, 2))
    assert old == JOB.replace(procs=(JOB.procs[0],))
    new = decode_jobinfo(encode_jobinfo(more, 1, (6, 1, 0)), 1, (6, 1, 0))
    assert {info.key for info in new.job} == {newer[0].key_for((6, 1, 0)), *(info.key for info in JOB.job)}


def test_keys_are_spelled_as_the_release_spells_them() -> None:
    from pypmix.standard import attrs

    every = [getattr(attrs, name) for name in attrs.__all__ if name != "by_key"]
    changed = [attr for attr in every if attr.other]
    assert changed
    for attr in changed:
        # Some of the old keys are shared with other attributes, so the newest one stands for the attribute.
        job = JobInfo("job", (Info(attr.key_for((7, 0, 0)), Value(codes.BOOL, True)),))
        for release in filter(attr.known_to, RELEASES):
            (info,) = decode_jobinfo(encode_jobinfo(job, 1, release), 1, release).job
            assert info.key == attr.key_for(release)


def test_forms_of_other_servers() -> None:
    blob = Packer().pack(codes.SIZE, 2).bytes()
    for node, ranks in (("n0", "0,1"), ("n1", "2")):
        blob += Packer().pack(codes.KVAL, KeyValue(node, Value(codes.STRING, ranks))).bytes()
    rank = Info("pmix.rank", Value(codes.PROC_RANK, 5))
    data = message(
        ("pmix.mblob", Value(codes.BYTE_OBJECT, blob)),
        ("pmix.pdata", infos(rank, Info("pmix.lrank", Value(codes.UINT16, 1)))),
        ("pmix.pdata", infos(rank, Info("pmix.nrank", Value(codes.UINT16, 2)))),
        ("pmix.qual.val", infos(Info("a", Value(codes.UINT32, 1)), Info("b", Value(codes.UINT32, 2), 8))),
        ("pmix.who.knows", Value(codes.BOOL, True)),
    )
    job = decode_jobinfo(data, 1)
    assert [[info.value.data for info in node] for node in job.nodes] == [["n0", "0,1"], ["n1", "2"]]
    ((number, found),) = job.procs
    assert number == 5
    assert [info.key for info in found] == ["pmix.lrank", "pmix.nrank"]
    assert [info.key for info in job.job] == ["pmix.qual.val", "pmix.who.knows"]


@pytest.mark.parametrize("kind", [1, 2])
def test_a_lone_status_means_that_there_is_none(kind: int) -> None:
    data = Packer(kind).pack(codes.STATUS, -46).bytes()
    with pytest.raises(NotFound) as caught:
        decode_jobinfo(data, kind)
    assert caught.value.code == -46
    with pytest.raises(NotFound) as caught:
        decode_jobinfo(Packer(kind).pack(codes.STATUS, -1).bytes(), kind)
    assert caught.value.code == -1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\2",
        b"\2\0",
        Packer().pack(codes.STATUS, 0).bytes(),
        Packer().pack(codes.STATUS, -46).bytes() + b"\0",
        message(("PMIX_GDS_SHMEM2_SEG_BLOB", Value(codes.BYTE_OBJECT, b"x"))),
        message(("pmix.node.arr", Value(codes.STRING, "n"))),
        message(("pmix.node.arr", Value(codes.DATA_ARRAY, DataArray(codes.UINT32, (1,))))),
        message(("pmix.pblob", Value(codes.STRING, "n"))),
        message(("pmix.pblob", Value(codes.BYTE_OBJECT, b""))),
        message(("pmix.pblob", Value(codes.BYTE_OBJECT, b"\2\1\2"))),
        message(("pmix.pdata", infos())),
        message(("pmix.pdata", infos(Info("pmix.lrank", Value(codes.UINT16, 1))))),
        message(("pmix.pdata", infos(Info("pmix.rank", Value(codes.STRING, "1"))))),
        message(("pmix.mblob", Value(codes.BYTE_OBJECT, b"\2\1"))) + b"\2",
        message(
            (
                "pmix.mblob",
                Value(
                    codes.BYTE_OBJECT,
                    Packer().pack(codes.SIZE, 1).bytes() + encode_kval(1, "n", Value(codes.BOOL, True)),
                ),
            )
        ),
    ],
    ids=range(16),
)
def test_what_is_no_job_info_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_jobinfo(data, 1)

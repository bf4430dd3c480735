"""What a release cannot decode is refused by every encoder that is given the reader's rule, and left out of lists."""

from __future__ import annotations

import pytest

from pypmix.standard import codes
from pypmix.standard.errors import NotSupported
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.structures import Cpuset, Device
from pypmix.standard.types import DataArray, Info, Value
from pypmix.wire.codec import encode_kval
from pypmix.wire.jobinfo import decode_jobinfo, encode_jobinfo
from pypmix.wire.messages import EVENT, Command, encode_fence, encode_get, reply_layout, request_layout
from pypmix.wire.readers import fit_infos, rule_for, rule_of, rule_of_library, unfit_for

OLD, NEW = (5, 0, 11), (7, 0, 0)
NUMBERS = DataArray(codes.INT, (1, 2))
ARRAYS = Value(codes.DATA_ARRAY, DataArray(codes.DATA_ARRAY, (NUMBERS,)))
CPUSET = Value(codes.PROC_CPUSET, Cpuset("0-3"))
GOOD = Info("good", Value(codes.INT, 1))


def infos(*items: Info) -> Value:
    return Value(codes.DATA_ARRAY, DataArray(codes.INFO, items))


DEEP = infos(GOOD, Info("inner", infos(Info("bad", ARRAYS))))


@pytest.mark.parametrize("value", [ARRAYS, CPUSET, DEEP], ids=["arrays", "cpuset", "deep"])
def test_whatever_is_sent_to_a_release_that_cannot_decode_it_is_refused(value: Value) -> None:
    bad = Info("bad", value)
    for rule in (rule_of(OLD), rule_of(OLD, client=True), rule_of_library(OLD)):
        for encode in (
            lambda rule: encode_kval(1, "bad", value, rule),
            lambda rule: encode_fence(1, (), (bad,), rule),
            lambda rule: encode_get(1, "job", 0, (bad,), "key", rule),
            lambda rule: request_layout(Command.PUBLISHNB, OLD).encode(1, rule, uid=0, infos=(GOOD, bad)),
            lambda rule: reply_layout(Command.QUERY, OLD).encode(1, rule, status=0, infos=(bad,)),
        ):
            with pytest.raises(NotSupported, match=r"libpmix before 7\.0 does not take"):
                encode(rule)
            for other in (rule_of(NEW), rule_for(OLD), rule_for(NEW)):
                assert encode(other)


def test_lists_of_infos_lack_what_cannot_be_decoded_and_nothing_else() -> None:
    bad = Info("bad", ARRAYS)
    given = (GOOD, bad, Info("deep", DEEP))
    left = (GOOD, Info("deep", infos(GOOD, Info("inner", infos()))))
    assert fit_infos(given, rule_of(OLD)) == left
    assert fit_infos(given, rule_of(NEW)) == fit_infos(given, rule_for(OLD)) == given
    message = EVENT.encode_fit(1, rule_of(OLD), code=-1, source=("job", 0), infos=given, range=1)
    assert EVENT.decode(message, 1, OLD)["infos"] == left
    job = JobInfo("job", given, nodes=(given,), procs=((0, given),))
    packed = encode_jobinfo(job, 1, OLD, rule_of(OLD))
    assert decode_jobinfo(packed, 1, OLD) == JobInfo("job", left, nodes=(left,), procs=((0, left),))


def test_a_type_that_the_encoding_lacks_is_refused_in_it_by_all_releases() -> None:
    device = Value(codes.DEVICE, Device("uuid", "name", 1))
    with pytest.raises(NotSupported, match="in the encoding that Python peers speak"):
        encode_kval(1, "bad", device, rule_of(NEW))
    with pytest.raises(NotSupported, match=r"libpmix before 6\.1 does not take a DEVICE"):
        encode_kval(1, "bad", device, rule_of(OLD))
    assert encode_kval(1, "good", device, rule_of_library(NEW))
    assert unfit_for(GOOD.value) == 0


def test_hosts_may_tell_clients_of_attributes() -> None:
    from pypmix.standard.types import RegAttr

    told = Info("attributes", Value(codes.DATA_ARRAY, DataArray(codes.REGATTR, (RegAttr("N", "n", 3, ()),))))
    assert fit_infos((told,), rule_of(OLD, client=True)) == (told,)
    assert reply_layout(Command.QUERY, OLD).encode(1, rule_of(OLD, client=True), status=0, infos=(told,))
    with pytest.raises(NotSupported):
        encode_kval(1, "told", told.value, rule_of(OLD))

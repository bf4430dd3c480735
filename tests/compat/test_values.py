"""Values of the official binding: every type comes back as it was put, or is refused with a status; none is altered."""

from __future__ import annotations

import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from compat.table import CONVERTED, KEPT, PROC_INFO, REFUSED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import pairings
from lib.pairings import Part
from pypmix.compat import pmix_value_roundtrip
from pypmix.compat.asking import travelling
from pypmix.compat.scalars import to_procs
from pypmix.compat.values import from_value, to_apps, to_infos, to_queries, to_value
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import NAMES, Value
from pypmix.types import Cpuset, DataType

SCRIPT = Path(__file__).parent / "scripts" / "values.py"


@pytest.mark.parametrize("name", KEPT)
def test_a_value_comes_back(name):
    assert pmix_value_roundtrip(KEPT[name]) == (0, KEPT[name])


@pytest.mark.parametrize("name", CONVERTED)
def test_another_form_of_a_value_is_taken(name):
    value, expected = CONVERTED[name]
    assert pmix_value_roundtrip(value) == (0, {"value": expected, "val_type": value["val_type"]})


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_value_is_refused(name):
    value, status = REFUSED[name]
    assert pmix_value_roundtrip(value) == (status, None)


MEMBERS = [
    "nspace",
    "rank",
    "type",
    "array",
    "key",
    "value",
    "val_type",
    "flags",
    "bytes",
    "size",
    "sec",
    "usec",
    "source",
    "cpus",
    "coord",
    "view",
    "dims",
    "uuid",
    "osname",
    "fabric",
    "keys",
    "qualifiers",
    "cmd",
    "argv",
    "env",
    "maxprocs",
    "info",
    "proc",
]

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(MEMBERS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


# How long an example takes says nothing, on a machine that does other things too.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(sorted(NAMES)), data=ANYTHING)
def test_nothing_but_a_refusal_comes_of_garbage(kind, data):
    for convert, wanted in (
        (to_value, {"value": data, "val_type": kind}),
        (to_value, {"value": {"type": kind, "array": [data]}, "val_type": 39}),
        (to_infos, [{"key": "k", "value": data, "val_type": kind}, data]),
        (to_infos, data),
        (to_procs, data),
        (to_queries, data),
        (to_apps, data),
    ):
        found = None
        with suppress(PMIxError):
            found = convert(wanted)
        if isinstance(found, Value):
            from_value(found)


def array(kind, item):
    return {"value": {"type": kind, "array": [item]}, "val_type": DataType.DATA_ARRAY}


ENDED = {"value": {**PROC_INFO, "exitcode": 3}, "val_type": int(DataType.PROC_INFO)}
HOLDERS = {
    "itself": ENDED,
    "array": array(DataType.PROC_INFO, ENDED["value"]),
    "array of arrays": array(DataType.DATA_ARRAY, array(DataType.PROC_INFO, ENDED["value"])["value"]),
    "info": array(DataType.INFO, {"key": "acme.ended", **ENDED}),
    "value": {"value": ENDED, "val_type": DataType.VALUE},
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_would_arrive_altered_is_not_sent(name):
    """No message of PMIx has a place for an exit code, wherever in a value it stands."""
    with pytest.raises(PMIxError) as caught:
        travelling(to_value(HOLDERS[name]))
    assert caught.value.code == statuses.ERR_NOT_SUPPORTED


def test_an_array_that_contains_itself_is_refused():
    endless = {"type": DataType.DATA_ARRAY, "array": []}
    endless["array"].append(endless)
    assert pmix_value_roundtrip({"value": endless, "val_type": DataType.DATA_ARRAY}) == (statuses.ERR_BAD_PARAM, None)


def test_a_compressed_value_is_shown_as_what_it_holds():
    text = "node" * 500
    packed = len(text).to_bytes(4, sys.byteorder) + zlib.compress(text.encode())
    assert from_value(Value(DataType.COMPRESSED_STRING, packed)) == {"value": text, "val_type": DataType.STRING}
    shown = from_value(Value(DataType.COMPRESSED_BYTE_OBJECT, packed))
    assert shown == {"value": {"bytes": text.encode(), "size": len(text)}, "val_type": DataType.BYTE_OBJECT}
    broken = from_value(Value(DataType.COMPRESSED_STRING, b"broken"))
    assert broken == {"value": b"broken", "val_type": DataType.COMPRESSED_STRING}


def test_what_a_peer_sends_is_shown_whatever_it_is():
    shown = from_value(Value(DataType.PROC_CPUSET, Cpuset("all of them")))
    assert shown["value"] == {"source": "hwloc", "cpus": "all of them"}


@pytest.mark.forms("sync")
@pytest.mark.servers("python-server")
def test_values_between_processes(run):
    """Each rank puts all of the table, gets the other's from its server, and finds it as it was put."""
    line = pairings.command_line(run.server, [Part(2, [sys.executable, "-m", "pypmix.compat", str(SCRIPT)])])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    assert job.exit_code == 0, job.report()
    assert job.stdout.count("is done") == 2, job.report()

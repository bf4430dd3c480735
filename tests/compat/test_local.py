"""Methods of the official binding that need no server: what they print, pack and compute."""

from __future__ import annotations

import os

import pytest

from pypmix.compat import PMIxClient
from pypmix.compat.names import table

client = PMIxClient()
VALUE = {"value": 5, "val_type": 9}
INFO = {"key": "pmix.timeout", "flags": 1, "value": 5, "val_type": 9}
PROC = {"nspace": "acme", "rank": 3}


@pytest.mark.parametrize(
    ("method", "number", "expected"),
    [
        ("error_string", -24, "PMIX_ERR_TIMEOUT"),
        ("error_string", 0, "PMIX_SUCCESS"),
        ("error_string", -145, "PMIX_EVENT_JOB_END"),
        ("error_string", -9999, "UNKNOWN (-9999)"),
        ("error_string", None, "UNKNOWN (None)"),
        ("proc_state_string", 20, "TERMINATED"),
        ("proc_state_string", 99, "UNKNOWN (99)"),
        ("scope_string", 3, "GLOBAL"),
        ("persistence_string", 3, "APP"),
        ("data_range_string", 4, "SESSION"),
        ("info_directives_string", 0, "OPTIONAL"),
        ("info_directives_string", 1, "REQUIRED"),
        ("data_type_string", 1, "PMIX_BOOL"),
        ("alloc_directive_string", 1, "NEW"),
        ("iof_channel_string", 0, "NONE"),
        ("iof_channel_string", 6, "STDOUT|STDERR"),
        ("job_state_string", 3, "RUNNING"),
        ("link_state_string", 2, "UP"),
        ("device_type_string", 2, "GPU"),
        ("device_type_string", -1, "UNKNOWN (-1)"),
        ("value_comparison_string", 0, "EQUAL"),
        ("group_operation_string", 0, "CONSTRUCT"),
        ("resource_block_directive_string", 1, "DEFINE"),
        ("alloc_inheritance_string", 1, "NONE"),
        ("get_attribute_string", "PMIX_TIMEOUT", "pmix.timeout"),
        ("get_attribute_string", "none", "none"),
        ("get_attribute_name", b"pmix.timeout", "PMIX_TIMEOUT"),
        ("get_attribute_name", "acme.key", "acme.key"),
    ],
)
def test_a_number_has_a_name(method, number, expected):
    assert getattr(client, method)(number) == expected


def test_a_name_has_a_status():
    assert client.error_code("PMIX_ERR_TIMEOUT") == -24
    assert client.error_code(b"ERR_TIMEOUT") == -24
    assert client.error_code("PMIX_UINT64") == table()["PMIX_ERR_NOT_FOUND"]
    assert client.error_code("PMIX_NOTHING") == table()["PMIX_ERR_NOT_FOUND"]
    assert client.error_code(None) == table()["PMIX_ERR_BAD_PARAM"]


def test_structures_are_printed():
    app = {"cmd": "./a", "argv": ["./a", "b"], "maxprocs": 2, "cwd": "/tmp"}
    assert client.value_string(VALUE) == (0, "PMIX_INT32: 5")
    assert client.info_string(INFO) == (0, "PMIX_TIMEOUT (pmix.timeout) [REQUIRED] = PMIX_INT32: 5")
    assert client.proc_string(PROC) == (0, "acme:3")
    assert client.app_string(app) == (0, "2 x ./a b; cwd=/tmp")
    assert client.resource_unit_string({"type": 2, "count": 4}) == (0, "4 x GPU")
    assert client.data_print("> ", VALUE) == (0, "> PMIX_INT32: 5")
    assert client.data_print(None, INFO) == client.info_string(INFO)
    assert client.data_print(None, VALUE, 1) == (table()["PMIX_ERR_NOT_SUPPORTED"], None)
    assert client.value_string({"value": "x", "val_type": 9}) == (table()["PMIX_ERR_TYPE_MISMATCH"], None)
    assert client.proc_string({}) == (table()["PMIX_ERR_BAD_PARAM"], None)


def test_what_is_packed_is_unpacked():
    rc, buffer = client.data_pack(None, VALUE)
    assert rc == 0
    assert buffer["bytes_used"] == len(buffer["bytes"]) > 0
    assert client.data_pack(buffer, INFO, target=PROC) == (0, buffer)
    rc, copy = client.data_copy_payload(None, buffer)
    assert rc == 0
    assert client.data_unpack(buffer) == (0, VALUE)
    assert client.data_unpack(buffer, 24) == (0, INFO)
    assert buffer["bytes_unpacked"] == buffer["bytes_used"]
    assert client.data_unpack(buffer) == (table()["PMIX_ERR_UNPACK_READ_PAST_END_OF_BUFFER"], None)
    assert client.data_unpack(copy) == (0, VALUE)
    rc, rest = client.data_unload(copy)
    assert rc == 0
    assert copy["bytes"] == b""
    assert client.data_load(None, rest)[1]["bytes"] == client.data_embed({}, rest)[1]["bytes"] == rest["bytes"]
    assert client.data_unpack({"bytes": rest["bytes"]}, 24) == (0, INFO)


def test_what_is_no_buffer_is_refused():
    bad = table()["PMIX_ERR_BAD_PARAM"]
    assert client.data_pack("buffer", VALUE) == (bad, "buffer")
    assert client.data_pack(None, 5) == (bad, None)
    assert client.data_unpack(None) == (bad, None)
    assert client.data_unpack({"bytes": b"ab", "bytes_unpacked": 3}) == (bad, None)
    assert client.data_unpack({"bytes": b"\xff" * 9})[0] < 0
    assert client.data_unload(None) == (bad, None)


def test_values_are_copied():
    assert client.data_copy(VALUE) == (0, VALUE)
    assert client.data_copy(INFO) == (0, INFO)
    assert client.data_copy(VALUE, 1) == (table()["PMIX_ERR_NOT_SUPPORTED"], None)


def test_bytes_are_compressed():
    rc, small = client.data_compress(b"a" * 10_000)
    assert rc == 0
    assert len(small) < 100
    assert client.data_decompress(small) == (0, b"a" * 10_000)
    unable = table()["PMIX_ERR_NOT_AVAILABLE"]
    assert client.data_compress(os.urandom(64)) == (unable, None)
    assert client.data_decompress(b"nothing of the kind") == (unable, None)
    assert client.data_compress(None) == (table()["PMIX_ERR_BAD_PARAM"], None)


def test_cores():
    assert client.parse_cpuset_string("hwloc:0-2,8") == (0, {"source": "hwloc", "cpus": [0, 1, 2, 8]})
    assert client.parse_cpuset_string("0-2") == (table()["PMIX_ERR_BAD_PARAM"], {})
    assert client.parse_cpuset_string(None) == (table()["PMIX_ERR_BAD_PARAM"], {})
    rc, cores = client.get_cpuset(table()["PMIX_CPUBIND_THREAD"])
    assert (rc, cores["cpus"]) == (0, sorted(os.sched_getaffinity(0)))
    assert client.get_cpuset(9) == (table()["PMIX_ERR_BAD_PARAM"], {})
    assert client.load_topology() == table()["PMIX_SUCCESS"]


def test_what_two_procs_share():
    names = table()
    first = "hwloc:NM0:SK0:L30-1:L20:L10:CR0:HT0-1"
    second = "hwloc:NM0:SK0:L30-1:L21:L11:CR1:HT2-3"
    shared = [names[f"PMIX_LOCALITY_SHARE_{level}"] for level in ("L3CACHE", "PACKAGE", "NUMA", "NODE")]
    assert client.get_relative_locality(first, second) == (0, shared)
    assert client.get_relative_locality(first.removeprefix("hwloc:"), second.removeprefix("hwloc:")) == (0, shared)
    assert client.get_relative_locality(first, "other:NM0") == (names["PMIX_ERR_NOT_SUPPORTED"], [])
    assert client.get_relative_locality(first, "hwloc:NMx") == (names["PMIX_ERR_BAD_PARAM"], [])

"""Each method of `PMIxServer` does what the official binding's does, in statuses and tuples; none raises."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from compat.serving import ELSEWHERE, HERE, LIMIT, Mailbox, client, connected, info, job_infos, one_client, serving

import pypmix
from lib import machine, pairings
from pypmix import attrs
from pypmix.compat import (
    PMIX_BOOL,
    PMIX_ENVAR,
    PMIX_ERR_BAD_PARAM,
    PMIX_ERR_EXISTS,
    PMIX_ERR_INIT,
    PMIX_ERR_NOT_FOUND,
    PMIX_ERR_NOT_SUPPORTED,
    PMIX_ERR_TYPE_MISMATCH,
    PMIX_ERR_UNREACH,
    PMIX_EVENT_ACTION_COMPLETE,
    PMIX_EVENT_AFFECTED_PROC,
    PMIX_EVENT_HDLR_AFTER,
    PMIX_EVENT_HDLR_BEFORE,
    PMIX_EVENT_HDLR_NAME,
    PMIX_EVENT_NO_ACTION_TAKEN,
    PMIX_FWD_STDIN_CHANNEL,
    PMIX_FWD_STDOUT_CHANNEL,
    PMIX_GLOBAL,
    PMIX_HOSTNAME,
    PMIX_INFO,
    PMIX_INFO_REQD,
    PMIX_INT32,
    PMIX_JOB_SIZE,
    PMIX_LOCAL_PEERS,
    PMIX_NODE_INFO,
    PMIX_PROC,
    PMIX_RANGE_LOCAL,
    PMIX_RANGE_NAMESPACE,
    PMIX_RANK_WILDCARD,
    PMIX_SET_ENVAR,
    PMIX_STRING,
    PMIX_SUCCESS,
    PMIX_UINT32,
)
from pypmix.compat.server import PMIxServer
from pypmix.data import DataBuffer

PROC = {"nspace": "job", "rank": 0}
JOB = {"nspace": "job", "rank": PMIX_RANK_WILDCARD}
BYTES = {"bytes": b"some", "size": 4}
PROGRAM = Path(__file__).parent / "programs" / "host.py"

CALLS: dict[str, tuple[Any, Any]] = {
    "notify_event": (lambda s: s.notify_event(-61, PROC, PMIX_RANGE_NAMESPACE, []), int),
    "register_nspace": (lambda s: s.register_nspace("job", 1, []), int),
    "deregister_nspace": (lambda s: s.deregister_nspace("job"), int),
    "register_client": (lambda s: s.register_client(PROC, 0, 0), int),
    "deregister_client": (lambda s: s.deregister_client(PROC), int),
    "register_resources": (lambda s: s.register_resources([]), int),
    "deregister_resources": (lambda s: s.deregister_resources([]), int),
    "deliver_inventory": (lambda s: s.deliver_inventory([], []), int),
    "setup_local_support": (lambda s: s.setup_local_support("job", []), int),
    "iof_deliver": (lambda s: s.iof_deliver(PROC, PMIX_FWD_STDOUT_CHANNEL, BYTES, []), int),
    "iof_flow_control": (lambda s: s.iof_flow_control(None, PMIX_FWD_STDIN_CHANNEL, True, []), int),
    "session_control": (lambda s: s.session_control(1, []), int),
    "setup_fork": (lambda s: s.setup_fork(PROC, {}), int),
    "register_attributes": (lambda s: s.register_attributes("spawn", ["key"]), int),
    "define_process_set": (lambda s: s.define_process_set([PROC], "pset"), int),
    "delete_process_set": (lambda s: s.delete_process_set("pset"), int),
    "store_internal": (lambda s: s.store_internal(PROC, "key", {"value": 1, "val_type": PMIX_INT32}), int),
    "finalize": (lambda s: s.finalize(), int),
    "dmodex_request": (lambda s: s.dmodex_request(PROC, {}), (None, 0)),
    "setup_application": (lambda s: s.setup_application("job", []), []),
    "collect_inventory": (lambda s: s.collect_inventory([]), []),
    "collect_job_info": (lambda s: s.collect_job_info([PROC]), {"bytes": b"", "size": 0}),
    "generate_regex": (lambda s: s.generate_regex(["n0"]), bytearray()),
    "generate_ppn": (lambda s: s.generate_ppn(["0"]), bytearray()),
    "generate_regex2": (lambda s: s.generate_regex2(["n0"]), None),
    "parse_regex2": (lambda s: s.parse_regex2({"type": "raw", "bytes": b"n0"}), []),
    "generate_cpuset_string": (lambda s: s.generate_cpuset_string({"source": "hwloc", "cpus": [0]}), None),
    "generate_cpuset": (lambda s: s.generate_cpuset("hwloc:0"), {}),
    "generate_locality_string": (lambda s: s.generate_locality_string({"source": "hwloc", "cpus": [0]}), None),
}
"""Each method, and what it returns before `init`: a status, or one with this."""

WITH_CALLBACK = {
    "register_nspace": lambda s, *cb: s.register_nspace("job", 1, [], *cb),
    "register_client": lambda s, *cb: s.register_client(PROC, 0, 0, *cb),
    "setup_local_support": lambda s, *cb: s.setup_local_support("job", [], *cb),
    "notify_event": lambda s, *cb: s.notify_event(-61, PROC, PMIX_RANGE_NAMESPACE, [], *cb),
    "iof_deliver": lambda s, *cb: s.iof_deliver(PROC, PMIX_FWD_STDOUT_CHANNEL, BYTES, [], *cb),
    "iof_flow_control": lambda s, *cb: s.iof_flow_control(None, PMIX_FWD_STDIN_CHANNEL, True, [], *cb),
    "register_resources": lambda s, *cb: s.register_resources([info("acme.key", 1, PMIX_INT32)], *cb),
    "deregister_resources": lambda s, *cb: s.deregister_resources([info("acme.key", 1, PMIX_INT32)], *cb),
    "deliver_inventory": lambda s, *cb: s.deliver_inventory([], [], *cb),
    "deregister_client": lambda s, *cb: s.deregister_client(PROC, *cb),
    "deregister_nspace": lambda s, *cb: s.deregister_nspace("job", *cb),
}


@pytest.mark.parametrize("name", CALLS)
def test_before_init(name):
    call, shape = CALLS[name]
    found = call(PMIxServer())
    assert found == (PMIX_ERR_INIT if shape is int else (PMIX_ERR_INIT, shape))


def test_init_and_finalize():
    server = PMIxServer()
    assert server.initialized() == 0
    for module in (None, {}, {"nonsense": connected}, {"clientconnected": 7}):
        assert server.init([], module) == PMIX_ERR_INIT
    required = {**info("acme.unknown", 1, PMIX_INT32), "flags": PMIX_INFO_REQD}
    assert server.init([required], {"clientconnected": connected}) == PMIX_ERR_NOT_SUPPORTED
    for _ in range(2):
        assert server.init([info("acme.unknown", 1, PMIX_INT32)], {"clientconnected": connected}) == PMIX_SUCCESS
        assert server.initialized() == 1
        assert server.init([], {"clientconnected": connected}) == PMIX_SUCCESS
        assert server.finalize() == PMIX_SUCCESS
    assert server.finalize() == PMIX_ERR_INIT


def test_a_job_by_its_maps():
    with one_client(nodes={HERE: "0,1", ELSEWHERE: "2,3"}) as (server, me):
        assert me.job.size == 4
        assert me.get(attrs.HOSTNAME, me.job[3]) == ELSEWHERE
        assert me.get(attrs.LOCAL_RANK, me.job[3]) == 1
        assert me.get(attrs.NODEID, me.job[0]) == 0
        assert me.get(attrs.LOCAL_PEERS) == "0,1"
        assert me.get(attrs.NUM_NODES, pypmix.Proc("job", pypmix.Rank.WILDCARD)) == 2
        # The server knows the same.
        assert server.get(JOB, PMIX_JOB_SIZE)[1]["value"] == 4
        elsewhere = [info(PMIX_NODE_INFO, True, PMIX_BOOL), info(PMIX_HOSTNAME, ELSEWHERE, PMIX_STRING)]
        assert server.get(JOB, PMIX_LOCAL_PEERS, elsewhere)[1]["value"] == "2,3"
        assert server.get({"nspace": "job", "rank": 2}, PMIX_HOSTNAME)[1]["value"] == ELSEWHERE
        assert server.get(JOB, "acme.nothing") == (PMIX_ERR_NOT_FOUND, None)
        assert server.resolve_nodes("job") == (PMIX_SUCCESS, f"{HERE},{ELSEWHERE}")
        assert server.resolve_peers(ELSEWHERE, "job")[1] == [{"nspace": "job", "rank": rank} for rank in (2, 3)]
        assert server.resolve_peers(ELSEWHERE, "nobody")[0] == PMIX_ERR_NOT_FOUND


def test_a_job_by_its_arrays():
    def array(key: str, *items: dict[str, Any]) -> dict[str, Any]:
        return info(key, {"type": PMIX_INFO, "array": list(items)}, 39)

    rank = info("pmix.rank", 1, 40)
    infos = [
        array("pmix.job.arr", info(PMIX_JOB_SIZE, 2, PMIX_UINT32), info("acme.job", "j", PMIX_STRING)),
        array("pmix.node.arr", info(PMIX_HOSTNAME, "n7", PMIX_STRING), info("acme.node", "n", PMIX_STRING)),
        array("pmix.app.arr", info("pmix.appnum", 0, PMIX_UINT32), info("acme.app", "a", PMIX_STRING)),
        array("pmix.pdata", rank, info("acme.proc", "p", PMIX_STRING)),
        info(PMIX_LOCAL_PEERS, "0,1", PMIX_STRING),
    ]
    with serving() as server:
        assert server.register_nspace("job", 2, infos) == PMIX_SUCCESS
        with client(server, "job", 1) as me:
            assert me.get("acme.job", pypmix.Proc("job", pypmix.Rank.WILDCARD)) == "j"
            assert me.get("acme.proc", me.proc) == "p"
            assert me.get("acme.node", info=[attrs.NODE_INFO(True), attrs.HOSTNAME("n7")]) == "n"
            assert me.get("acme.app", info=[attrs.APP_INFO(True), attrs.APPNUM(0)]) == "a"
            assert me.get(attrs.LOCAL_PEERS) == "0,1"
    bad = [
        [info("pmix.nmap", b"pmix[nonsense", PMIX_STRING)],
        [info("pmix.node.arr", "text", PMIX_STRING)],
        [array("pmix.pdata", info("acme.proc", "p", PMIX_STRING))],
        [info(PMIX_JOB_SIZE, 2**31, PMIX_UINT32)],
        "nonsense",
    ]
    with serving() as server:
        for number, each in enumerate(bad):
            assert server.register_nspace(f"job{number}", 1, each) == PMIX_ERR_BAD_PARAM, each
        assert server.register_nspace("", 1, []) == PMIX_ERR_BAD_PARAM
        assert server.register_nspace("job", "one", []) == PMIX_ERR_TYPE_MISMATCH


def test_a_job_is_told_more_of_until_it_has_clients():
    with serving() as server:
        infos = job_infos(server, {"a": "0", "b": "1"})
        assert server.register_nspace("job", 1, infos) == PMIX_SUCCESS
        assert server.register_nspace("job", 1, [info("acme.more", "m", PMIX_STRING)]) == PMIX_SUCCESS
        assert server.store_internal(JOB, "acme.stored", {"value": "s", "val_type": PMIX_STRING}) == PMIX_SUCCESS
        # Neither node is this one, so that nobody says which rank is here before it is registered.
        with client(server, "job", 1) as me:
            whole = pypmix.Proc("job", pypmix.Rank.WILDCARD)
            assert me.get("acme.more", whole) == "m"
            assert me.get("acme.stored", whole) == "s"
            assert server.register_nspace("job", 1, [info("acme.late", 1, PMIX_INT32)]) == PMIX_ERR_EXISTS
        assert server.register_client({"nspace": "job", "rank": 9}, 0, 0) == PMIX_ERR_BAD_PARAM
        assert server.register_client({"nspace": "nobody", "rank": 0}, 0, 0) == PMIX_ERR_NOT_FOUND
        # What is not there is gone already.
        assert server.deregister_client({"nspace": "nobody", "rank": 0}) == PMIX_SUCCESS
        assert server.deregister_nspace("nobody") == PMIX_SUCCESS


def test_callbacks():
    """`cbfunc` is called if and only if the status says so."""
    with serving() as server:
        for bad in (7, "no function", []):
            for call in WITH_CALLBACK.values():
                assert call(server, bad) == PMIX_ERR_BAD_PARAM
        box = Mailbox()
        for name, call in WITH_CALLBACK.items():
            assert call(server, box, {"name": name}) == PMIX_SUCCESS, name
        assert box.wait(len(WITH_CALLBACK)) == [(PMIX_SUCCESS, {"name": name}) for name in WITH_CALLBACK]
        refused = Mailbox()
        assert server.register_client(PROC, 0, 0, refused, None) == PMIX_ERR_NOT_FOUND
        assert server.session_control(1, [], box, "last") == PMIX_SUCCESS
        assert box.wait(len(WITH_CALLBACK) + 1)[-1] == (PMIX_ERR_UNREACH, [], "last")
        assert refused.wait(0) == []


def test_setup_fork_takes_out_what_ties_to_another_server():
    with serving() as server:
        assert server.register_nspace("job", 1, job_infos(server, {HERE: "0"})) == PMIX_SUCCESS
        env = {"PMIX_SERVER_URI4": "other", "PMIX_NAMESPACE": "other", "HOME": "/home"}
        assert server.setup_fork(PROC, env) == PMIX_SUCCESS
        assert env["PMIX_NAMESPACE"] == "job" and env["HOME"] == "/home" and "PMIX_SERVER_URI4" not in env
        assert server.setup_fork(PROC, None) == PMIX_ERR_BAD_PARAM
        assert server.setup_fork({}, {}) == PMIX_ERR_BAD_PARAM


def test_dmodex_request():
    with one_client(nodes={HERE: "0", ELSEWHERE: "1"}) as (server, me):
        me.put("acme.key", b"\0\1\2")
        me.commit()
        rc, (data, size) = server.dmodex_request(PROC, {})
        assert rc == PMIX_SUCCESS and data is not None and len(data) == size and b"\0\1\2" in data
        assert server.dmodex_request({"nspace": "job", "rank": 1}) == (PMIX_ERR_NOT_FOUND, (None, 0))


def test_application_and_local_support():
    envar = {"envar": "ACME_HOME", "value": "/acme=1", "separator": ":"}
    with serving() as server:
        assert server.register_nspace("job", 1, job_infos(server, {HERE: "0"})) == PMIX_SUCCESS
        rc, found = server.setup_application("job", [])
        assert rc == PMIX_SUCCESS and isinstance(found, list)
        assert server.setup_local_support("job", [*found, info(PMIX_SET_ENVAR, envar, PMIX_ENVAR)]) == PMIX_SUCCESS
        env: dict[str, str] = {}
        assert server.setup_fork(PROC, env) == PMIX_SUCCESS
        assert env["ACME_HOME"] == "/acme=1"


def test_inventory_and_resources():
    with serving() as server:
        rc, found = server.collect_inventory([])
        assert rc == PMIX_SUCCESS and found
        assert server.deliver_inventory(found, []) == PMIX_SUCCESS
        assert server.register_resources([info("acme.fabric", "f", PMIX_STRING)]) == PMIX_SUCCESS
        assert server.register_nspace("job", 1, job_infos(server, {HERE: "0"})) == PMIX_SUCCESS
        with client(server, "job", 0) as me:
            assert me.get("acme.fabric", pypmix.Proc("job", pypmix.Rank.WILDCARD)) == "f"
        assert server.deregister_resources([info("acme.fabric", None, PMIX_STRING)]) == PMIX_SUCCESS


def test_process_sets():
    with one_client() as (server, me):
        assert server.define_process_set([PROC], "acme.set") == PMIX_SUCCESS
        assert list(me.psets["acme.set"]) == [me.proc]
        assert server.define_process_set([PROC], "acme.set") == PMIX_ERR_EXISTS
        assert server.define_process_set(None, "acme.other") == PMIX_ERR_BAD_PARAM
        assert server.delete_process_set("acme.set") == PMIX_SUCCESS
        assert server.delete_process_set("acme.set") == PMIX_ERR_NOT_FOUND


def test_output_is_delivered(tmp_path):
    pulled = Mailbox()

    def pull(args, cbfunc, cbdata):
        pulled(args["channels"], args["sources"])
        cbfunc(PMIX_SUCCESS, cbdata)
        return PMIX_SUCCESS

    infos = [info("pmix.srvr.tmpdir", str(tmp_path), PMIX_STRING), info("pmix.srvr.tool", True, PMIX_BOOL)]
    with serving({"iofpull": pull, "toolconnected": lambda args: (PMIX_SUCCESS, None)}, infos) as server:
        assert server.register_nspace("job", 1, job_infos(server, {HERE: "0"})) == PMIX_SUCCESS
        with pypmix.Tool(pid=os.getpid(), tmpdir=tmp_path, engine="python") as tool:
            with tool.output(pypmix.Proc("job", 0)) as output:
                channels, sources = pulled.wait()[0]
                assert channels & PMIX_FWD_STDOUT_CHANNEL and sources == [PROC]
                payload = {"bytes": b"a\0b\n", "size": 4}
                assert server.iof_deliver(PROC, PMIX_FWD_STDOUT_CHANNEL, payload, []) == PMIX_SUCCESS
                assert output.get(timeout=LIMIT).data == b"a\0b\n"
            assert server.iof_deliver(PROC, PMIX_FWD_STDIN_CHANNEL, payload, []) == PMIX_ERR_BAD_PARAM


def test_flow_control_is_of_input():
    with serving() as server:
        assert server.iof_flow_control(PROC, PMIX_FWD_STDOUT_CHANNEL, True, []) == PMIX_ERR_NOT_SUPPORTED
        assert server.iof_flow_control(PROC, PMIX_FWD_STDIN_CHANNEL, False, []) == PMIX_SUCCESS


def test_lists():
    with serving() as server:
        rc, regex = server.generate_regex(["n0", "n1"])
        assert rc == PMIX_SUCCESS and isinstance(regex, bytearray)
        # The appendix's example gives one string.
        assert server.generate_regex("n0,n1") == (rc, regex)
        rc, ppn = server.generate_ppn(["0-2", "3"])
        assert (rc, ppn) == server.generate_ppn("0,1,2;3")
        assert pypmix.Server.parse_regex(bytes(regex)) == ["n0", "n1"]
        assert pypmix.Server.parse_ppn(bytes(ppn)) == [[0, 1, 2], [3]]
        assert server.generate_regex([]) == (PMIX_ERR_BAD_PARAM, bytearray())
        assert server.generate_ppn(["many"]) == (PMIX_ERR_BAD_PARAM, bytearray())
        rc, encoded = server.generate_regex2(["n0", "n1"])
        assert rc == PMIX_SUCCESS and encoded is not None
        assert server.parse_regex2(encoded) == (PMIX_SUCCESS, ["n0", "n1"])
        assert server.generate_regex2(None) == (PMIX_ERR_BAD_PARAM, None)
        assert server.parse_regex2({"type": "zip", "bytes": b"n0"}) == (PMIX_ERR_NOT_SUPPORTED, [])
        cpus = {"source": "hwloc", "cpus": [0, 1, 2, 8]}
        assert server.generate_cpuset_string(cpus) == (PMIX_SUCCESS, "hwloc:0-2,8")
        assert server.generate_cpuset("hwloc:0-2,8") == (PMIX_SUCCESS, cpus)
        for bad in (None, {"source": "", "cpus": [0]}, 7):
            assert server.generate_cpuset_string(bad) == (PMIX_ERR_BAD_PARAM, None)
        for text in (None, "nonsense", "hwloc:5-2"):
            assert server.generate_cpuset(text) == (PMIX_ERR_BAD_PARAM, {})
        rc, locality = server.generate_locality_string({"source": "hwloc", "cpus": [min(os.sched_getaffinity(0))]})
        assert rc == PMIX_SUCCESS
        assert locality is not None and ":HT" in f":{locality}"
        assert server.generate_locality_string({"source": "hwloc", "cpus": [60000]}) == (PMIX_SUCCESS, None)


def test_events():
    seen, order = Mailbox(), Mailbox()

    def handler(name, status=PMIX_EVENT_ACTION_COMPLETE):
        def called(number, code, source, infos, results):
            order(name)
            seen(code, source, infos, results)
            return status, [info("acme.result", 1, PMIX_INT32)]

        return called

    with one_client() as (server, me):
        assert server.register_event_handler(None, None, handler("default"))[0] == PMIX_SUCCESS
        rc, number = server.register_event_handler([-4242], [], handler("own", -331))
        assert rc == PMIX_SUCCESS
        me.notify(pypmix.EventCode.custom(-4242), data_range=pypmix.Range.NAMESPACE, info={"acme.load": 7})
        (code, source, infos, results), (_, _, _, more) = seen.wait(2)
        assert (code, source, results) == (-4242, PROC, [])
        assert [each["value"] for each in infos if each["key"] == "acme.load"] == [7]
        # As a client's, and libpmix's: how the handler before has ended, and what it has told.
        assert [(each["key"], each["value"]) for each in more] == [("UNKNOWN", -331), ("acme.result", 1)]
        assert order.wait(2) == [("own",), ("default",)]
        assert server.deregister_event_handler(number) == PMIX_SUCCESS
        assert server.deregister_event_handler(number) == PMIX_ERR_NOT_FOUND
        # The server's own event has the source that it names.
        with me.events(pypmix.EventCode.custom(-4243)) as events:
            other = {"nspace": "acme.other", "rank": 3}
            assert server.notify_event(-4243, other, PMIX_RANGE_NAMESPACE, []) == PMIX_SUCCESS
            # A range is of the source's nspace: nobody here hears of this one.
            assert server.notify_event(-4243, PROC, PMIX_RANGE_NAMESPACE, []) == PMIX_SUCCESS
            assert events.get(timeout=LIMIT).source == me.proc
        assert [(code, source) for code, source, _, _ in seen.wait(4)[2:]] == [(-4243, other), (-4243, PROC)]


def test_what_waits_for_a_silent_handler_ends_with_the_server():
    asked, told, ended = Mailbox(), Mailbox(), Mailbox()

    def silent(args, cbfunc, cbdata):
        asked(args)
        return PMIX_SUCCESS

    wanted = [{"keys": ["acme.a"], "qualifiers": []}]
    with serving({"query": silent}) as server:
        assert server.query_nb(wanted, told, "data") == PMIX_SUCCESS
        threading.Thread(target=lambda: ended(server.query(wanted)), daemon=True).start()
        asked.wait(2)
    assert told.wait() == [(PMIX_ERR_INIT, [], "data")]
    assert ended.wait() == [((PMIX_ERR_INIT, []),)]


def test_handlers_stand_where_they_ask_to():
    order = Mailbox()

    def handler(name):
        return lambda *_: (order(name), (PMIX_EVENT_NO_ACTION_TAKEN, None))[1]

    with serving() as server:
        second = [info(PMIX_EVENT_HDLR_NAME, "second", PMIX_STRING)]
        assert server.register_event_handler([-4242], second, handler("second"))[0] == PMIX_SUCCESS
        for key, name in ((PMIX_EVENT_HDLR_BEFORE, "first"), (PMIX_EVENT_HDLR_AFTER, "third")):
            place = [info(key, "second", PMIX_STRING)]
            assert server.register_event_handler([-4242], place, handler(name))[0] == PMIX_SUCCESS
        elsewhere = [info(PMIX_EVENT_HDLR_AFTER, "nobody", PMIX_STRING)]
        assert server.register_event_handler([-4242], elsewhere, handler("")) == (PMIX_ERR_NOT_FOUND, -1)
        of_another = [info(PMIX_EVENT_AFFECTED_PROC, PROC, PMIX_PROC)]
        assert server.register_event_handler([-4242], of_another, handler("of another"))[0] == PMIX_SUCCESS
        affected = [info(PMIX_EVENT_AFFECTED_PROC, {**PROC, "rank": 9}, PMIX_PROC)]
        assert server.notify_event(-4242, None, PMIX_RANGE_LOCAL, affected) == PMIX_SUCCESS
        assert order.wait(3) == [("first",), ("second",), ("third",)]


def test_a_lost_client_is_an_event():
    seen = Mailbox()

    def lost(number, code, source, infos, results):
        seen(code, source)
        return PMIX_EVENT_ACTION_COMPLETE, None

    with serving() as server:
        assert server.register_nspace("job", 1, job_infos(server, {HERE: "0"})) == PMIX_SUCCESS
        assert server.register_event_handler([-61], [], lost)[0] == PMIX_SUCCESS
        me = client(server, "job", 0).open()
        me._session.close()
        assert seen.wait() == [(-61, PROC)]


def test_what_a_server_asks_itself(capsys):
    def query(args, cbfunc, cbdata):
        cbfunc(PMIX_SUCCESS, [info(args["queries"][0]["keys"][0], args["source"]["rank"], PMIX_UINT32)], cbdata)
        return PMIX_SUCCESS

    with serving({"query": query}) as server:
        rc, found = server.query([{"keys": ["acme.key"], "qualifiers": []}])
        assert rc == PMIX_SUCCESS and found[0]["value"] == 0
        assert server.job_control(None, [])[0] == PMIX_ERR_NOT_SUPPORTED
        assert server.publish([info("acme.key", 1, PMIX_INT32)]) == PMIX_ERR_UNREACH
        assert server.fence([], []) == PMIX_ERR_UNREACH
        value = {"value": 7, "val_type": PMIX_INT32}
        assert server.put(PMIX_GLOBAL, "acme.own", value) == PMIX_SUCCESS
        assert server.commit() == PMIX_SUCCESS
        assert server.get(None, "acme.own") == (PMIX_SUCCESS, value)
        assert server.log([info("pmix.log.stdout", "logged\n", PMIX_STRING)], []) == PMIX_SUCCESS
        assert capsys.readouterr().out == "logged\n"


def test_a_handler_may_call_the_server_and_is_not_left_waiting_for_another():
    seen = Mailbox()
    found: list[Any] = []

    def query(args, cbfunc, cbdata):
        # On libpmix's progress thread, each of these would hang.
        found.append(server.register_nspace("another", 0, []))
        found.append(server.deregister_nspace("another"))
        found.append(server.job_control(None, [])[0])
        seen()
        cbfunc(PMIX_ERR_NOT_FOUND, [], cbdata)
        return PMIX_SUCCESS

    module = {"query": query, "jobcontrol": lambda args, cbfunc, cbdata: PMIX_SUCCESS}
    with one_client(module) as (server, me):
        with pytest.raises(pypmix.NotFound):
            me.query("acme.unknown")
        seen.wait()
        assert found == [PMIX_SUCCESS, PMIX_SUCCESS, -15]


def test_attributes_and_job_info():
    with serving() as server:
        assert server.register_attributes("spawn", ["pmix.host"]) == PMIX_SUCCESS
        assert server.register_attributes("spawn", ["pmix.host"]) == PMIX_ERR_EXISTS
        assert server.register_attributes("fence", []) == PMIX_SUCCESS
        assert server.register_attributes(None, ["pmix.host"]) == PMIX_ERR_BAD_PARAM
        assert server.register_nspace("job", 1, [info("acme.key", "text", PMIX_STRING)]) == PMIX_SUCCESS
        rc, blob = server.collect_job_info([PROC])
        assert rc == PMIX_SUCCESS and blob["size"] == len(blob["bytes"])
        buffer = DataBuffer(blob["bytes"])
        assert buffer.one(PMIX_STRING) == "job"
        assert [each.key for each in buffer.unpack(PMIX_INFO)] == ["acme.key"]
        assert server.collect_job_info([]) == (PMIX_ERR_BAD_PARAM, {"bytes": b"", "size": 0})
        assert server.collect_job_info([{"nspace": "nobody", "rank": 0}])[0] == PMIX_ERR_NOT_FOUND


@pytest.mark.parametrize("engine", ["python", "native-4.2.2", "native-5.0.11"])
def test_a_program_that_is_a_host(engine):
    """A host as OpenPMIx's test server is one, twice in one process, with its client in another one."""
    env = machine.clean_environment() | {"PYPMIX_ENGINE": "python"}
    if engine != "python":
        pairings.require_client(engine)
        env |= pairings.client_environment(engine)
    command = [sys.executable, "-m", "pypmix.compat", str(PROGRAM)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=80, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("client done") == 2, done.stdout + done.stderr
    assert "host done" in done.stdout

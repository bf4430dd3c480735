"""A host after OpenPMIx's test server: serves a client of two simulated nodes, twice, and checks what it is asked."""

import os
import socket
import subprocess
import sys

from pmix import *

asked = []


def clientconnected(proc, cbfunc, cbdata):
    asked.append("connected")
    cbfunc(PMIX_SUCCESS, cbdata)
    return PMIX_SUCCESS


def clientfinalized(proc, cbfunc, cbdata):
    asked.append("finalized")
    cbfunc(PMIX_SUCCESS, cbdata)
    return PMIX_SUCCESS


def fencenb(args, cbfunc, cbdata):
    asked.append("fence")
    required = [each for each in args["directives"] if each["flags"] & PMIX_INFO_REQD and "pmix" not in each["key"]]
    if required:
        return PMIX_ERR_NOT_SUPPORTED
    cbfunc(PMIX_SUCCESS, args["data"], cbdata)
    return PMIX_SUCCESS


def group(args, cbfunc, cbdata):
    asked.append("group")
    members = {"type": PMIX_PROC, "array": args["procs"]}
    results = [{"key": PMIX_GROUP_MEMBERSHIP, "value": members, "val_type": PMIX_DATA_ARRAY}]
    results.append({"key": PMIX_GROUP_CONTEXT_ID, "value": 42, "val_type": PMIX_SIZE})
    cbfunc(PMIX_SUCCESS, results, cbdata)
    return PMIX_SUCCESS


def query(args):
    asked.append("query")
    return PMIX_SUCCESS, [{"key": args["queries"][0]["keys"][0], "value": "answer", "val_type": PMIX_STRING}]


module = {name: globals()[name] for name in ("clientconnected", "clientfinalized", "fencenb", "group", "query")}


def serve():
    asked.clear()
    server = PMIxServer()
    assert server.init([], module) == PMIX_SUCCESS
    _, regex = server.generate_regex([socket.gethostname(), "elsewhere"])
    _, ppn = server.generate_ppn(["0", "1"])
    infos = [
        {"key": PMIX_NODE_MAP, "value": regex, "val_type": PMIX_STRING},
        {"key": PMIX_PROC_MAP, "value": ppn, "val_type": PMIX_STRING},
        {"key": PMIX_JOB_SIZE, "value": 2, "val_type": PMIX_UINT32},
    ]
    proc = {"nspace": "job", "rank": 0}
    env = dict(os.environ)
    assert server.register_nspace("job", 1, infos) == PMIX_SUCCESS
    assert server.register_client(proc, os.geteuid(), os.getegid()) == PMIX_SUCCESS
    assert server.setup_fork(proc, env) == PMIX_SUCCESS
    done = subprocess.run([sys.executable, __file__, "client"], env=env, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.returncode
    assert asked[0] == "connected" and {"fence", "group", "query"} <= set(asked), asked
    assert server.deregister_client(proc) == PMIX_SUCCESS
    assert server.deregister_nspace("job") == PMIX_SUCCESS
    assert server.finalize() == PMIX_SUCCESS


def ask():
    client = PMIxClient()
    rc, me = client.init([])
    assert (rc, me) == (PMIX_SUCCESS, {"nspace": "job", "rank": 0})
    assert client.put(PMIX_GLOBAL, "acme.key", {"value": "text", "val_type": PMIX_STRING}) == PMIX_SUCCESS
    assert client.commit() == PMIX_SUCCESS
    assert client.fence(None, [{"key": PMIX_COLLECT_DATA, "value": True, "val_type": PMIX_BOOL}]) == PMIX_SUCCESS
    required = [{"key": "ARBITRARY", "flags": PMIX_INFO_REQD, "value": 10, "val_type": PMIX_INT}]
    assert client.fence(None, required) == PMIX_ERR_NOT_SUPPORTED
    context = {"key": PMIX_GROUP_ASSIGN_CONTEXT_ID, "value": True, "val_type": PMIX_BOOL}
    rc, results = client.group_construct("acme.team", [me, {"nspace": "job", "rank": 1}], [context])
    assert rc == PMIX_SUCCESS, rc
    assert [each["value"] for each in results if each["key"] == PMIX_GROUP_CONTEXT_ID] == [42], results
    rc, found = client.query([{"keys": ["acme.answer"], "qualifiers": []}])
    assert rc == PMIX_SUCCESS and found[0]["value"] == "answer", (rc, found)
    assert client.finalize([]) == PMIX_SUCCESS
    print("client done", flush=True)


if sys.argv[1:] == ["client"]:
    ask()
else:
    serve()
    serve()
    print("host done")

import os
import subprocess
import sys

from pmix import *


def fencenb(args, cbfunc, cbdata):
    # There is one server, so that its own data are all there are.
    cbfunc(PMIX_SUCCESS, args["data"], cbdata)
    return PMIX_SUCCESS


def query(args, cbfunc, cbdata):
    found = []
    for asked in args["queries"]:
        for key in asked["keys"]:
            if key == "acme.queue":
                found.append({"key": key, "value": "short", "val_type": PMIX_STRING})
    cbfunc(PMIX_SUCCESS if found else PMIX_ERR_NOT_FOUND, found, cbdata)
    return PMIX_SUCCESS


server = PMIxServer()
rc = server.init([], {"fencenb": fencenb, "query": query})
if rc != PMIX_SUCCESS:
    raise SystemExit(f"init: {server.error_string(rc)}")
rc, regex = server.generate_regex([os.uname().nodename])
rc, ppn = server.generate_ppn(["0,1"])
infos = [
    {"key": PMIX_NODE_MAP, "value": regex, "val_type": PMIX_STRING},
    {"key": PMIX_PROC_MAP, "value": ppn, "val_type": PMIX_STRING},
    {"key": PMIX_JOB_SIZE, "value": 2, "val_type": PMIX_UINT32},
    {"key": PMIX_UNIV_SIZE, "value": 2, "val_type": PMIX_UINT32},
]
rc = server.register_nspace("acme.job", 2, infos)
if rc not in (PMIX_SUCCESS, PMIX_OPERATION_SUCCEEDED):
    raise SystemExit(f"register_nspace: {server.error_string(rc)}")
procs = []
for rank in range(2):
    proc = {"nspace": "acme.job", "rank": rank}
    env = dict(os.environ)
    rc = server.register_client(proc, os.geteuid(), os.getegid())
    rc = server.setup_fork(proc, env)
    procs.append(subprocess.Popen(sys.argv[1:], env=env))
codes = [proc.wait() for proc in procs]
server.finalize()
print(f"the ranks ended with {codes}", flush=True)

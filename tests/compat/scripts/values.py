"""The table of values, put by each of two ranks and got by the other."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from checks import done, equal
from compat.table import KEPT, REFUSED
from pmix import *

client = PMIxClient()
rc, me = client.init(None)
equal(rc, PMIX_SUCCESS)
peer = {"nspace": me["nspace"], "rank": 1 - me["rank"]}
kept, unable = {}, []
for name, value in KEPT.items():
    rc = client.put(PMIX_GLOBAL, name, value)
    if rc == PMIX_SUCCESS:
        kept[name] = value
    else:
        unable.append((name, client.error_string(rc)))
for name, (value, status) in REFUSED.items():
    equal((name, client.put(PMIX_GLOBAL, name, value)), (name, status))
code = {"value": {**KEPT["proc info"]["value"], "exitcode": 3}, "val_type": PMIX_PROC_INFO}
equal(client.put(PMIX_GLOBAL, "exit code", code), PMIX_ERR_NOT_SUPPORTED)
equal(client.publish([{"key": "exit code", **code}]), PMIX_ERR_NOT_SUPPORTED)
equal(client.commit(), PMIX_SUCCESS)
equal(client.fence([], [{"key": PMIX_COLLECT_DATA, "value": True, "val_type": PMIX_BOOL}]), PMIX_SUCCESS)
for name, value in kept.items():
    equal((name, client.get(peer, name, [])), (name, (PMIX_SUCCESS, value)))
equal(client.finalize([]), PMIX_SUCCESS)
assert all(status == "PMIX_ERR_NOT_SUPPORTED" for _name, status in unable), unable
print("refused by this library:", sorted(name for name, _status in unable), flush=True)
done(me)

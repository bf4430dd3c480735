"""A rank that uses the Standard's own Python binding (Debian's python3-pmix); prints `binding` and JSON of what it saw.

Run by the system's Python, which has that binding and not pypmix.
"""

import json
import sys

import pmix


def check(what, status):
    if status not in (pmix.PMIX_SUCCESS, pmix.PMIX_OPERATION_SUCCEEDED):
        sys.exit(f"{what} returned {status}")


def info(key, value, kind):
    return {"key": key, "value": value, "val_type": kind}


client = pmix.PMIxClient()
status, me = client.init([])
check("init", status)
rank = me["rank"]
job = {"nspace": me["nspace"], "rank": pmix.PMIX_RANK_WILDCARD}
status, size = client.get(job, "pmix.job.size", [])
check("get of the job's size", status)

check("put", client.put(pmix.PMIX_GLOBAL, "word", {"value": f"of {rank}", "val_type": pmix.PMIX_STRING}))
check("commit", client.commit())
check("fence", client.fence([job], [info("pmix.collect", True, pmix.PMIX_BOOL)]))
words = []
for peer in range(size["value"]):
    status, value = client.get({"nspace": me["nspace"], "rank": peer}, "word", [])
    check(f"get of rank {peer}", status)
    words.append(value["value"])

if rank == 0:
    check("publish", client.publish([info("acme.port", "tcp://here", pmix.PMIX_STRING)]))
check("fence after the publish", client.fence([job], []))
status, found = client.lookup([{"key": "acme.port"}], [])
check("lookup", status)
port = [(item["value"], item["proc"]["rank"]) for item in found]
check("fence after the lookup", client.fence([job], []))

check("finalize", client.finalize([]))
print("\nbinding", json.dumps({"rank": rank, "words": words, "port": port}), flush=True)

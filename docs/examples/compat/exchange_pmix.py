from pmix import *

client = PMIxClient()
rc, me = client.init(None)
if rc != PMIX_SUCCESS:
    raise SystemExit(f"init: {client.error_string(rc)}")
job = {"nspace": me["nspace"], "rank": PMIX_RANK_WILDCARD}
rc, size = client.get(job, PMIX_JOB_SIZE, None)

# Each rank tells the others its port.
address = {"value": f"tcp://10.0.0.{me['rank']}:5000", "val_type": PMIX_STRING}
rc = client.put(PMIX_GLOBAL, "acme.address", address)
rc = client.commit()
collect = [{"key": PMIX_COLLECT_DATA, "value": True, "val_type": PMIX_BOOL}]
rc = client.fence(None, collect)
if rc != PMIX_SUCCESS:
    raise SystemExit(f"fence: {client.error_string(rc)}")
found = {}
for rank in range(size["value"]):
    rc, value = client.get({"nspace": me["nspace"], "rank": rank}, "acme.address", None)
    if rc == PMIX_SUCCESS:
        found[rank] = value["value"]
print(f"rank {me['rank']} knows {found}", flush=True)

# All of them form a group, with a number that is its own.
context = [{"key": PMIX_GROUP_ASSIGN_CONTEXT_ID, "value": True, "val_type": PMIX_BOOL}]
rc, results = client.group_construct("acme.all", [job], context)
if rc != PMIX_SUCCESS:
    raise SystemExit(f"group_construct: {client.error_string(rc)}")
number = next(each["value"] for each in results if each["key"] == PMIX_GROUP_CONTEXT_ID)
print(f"rank {me['rank']} is in acme.all, numbered: {isinstance(number, int)}", flush=True)
rc = client.group_destruct("acme.all", None)
rc = client.finalize(None)

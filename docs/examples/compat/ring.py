from pmix import *

client = PMIxClient()
rc, me = client.init(None)
if rc != PMIX_SUCCESS:
    raise SystemExit(client.error_string(rc))

whole = {"nspace": me["nspace"], "rank": PMIX_RANK_WILDCARD}
rc, size = client.get(whole, PMIX_JOB_SIZE, [])
right = {"nspace": me["nspace"], "rank": (me["rank"] + 1) % size["value"]}

client.put(PMIX_GLOBAL, "greeting", {"value": f"rank {me['rank']} says hello", "val_type": PMIX_STRING})
client.commit()
client.fence([whole], [{"key": PMIX_COLLECT_DATA, "value": True, "val_type": PMIX_BOOL}])
rc, greeting = client.get(right, "greeting", [])
print(f"rank {me['rank']} hears: {greeting['value']}")
client.finalize([])

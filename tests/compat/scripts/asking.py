"""What a process publishes, and what it asks of the host."""

from checks import begun, done, equal
from pmix import *

client = PMIxClient()
rc, me = client.init(None)
equal(rc, PMIX_SUCCESS)
peer = {"nspace": me["nspace"], "rank": 1 - me["rank"]}
mine, theirs = f"key.{me['rank']}", f"key.{peer['rank']}"


def value(number):
    return {"value": number, "val_type": PMIX_INT64}


def published(key, rank):
    return {"key": key, "proc": {"nspace": me["nspace"], "rank": rank}, **value(rank)}


equal(client.publish([{"key": mine, **value(me["rank"])}]), PMIX_SUCCESS)
options = [{"key": PMIX_RANGE, "value": PMIX_RANGE_NAMESPACE, "val_type": PMIX_DATA_RANGE}]
equal(begun(client.publish_nb, [{"key": mine + ".nb", **value(me["rank"])}, *options]), (PMIX_SUCCESS,))
equal(client.fence([], []), PMIX_SUCCESS)
equal(client.lookup([{"key": theirs}], []), (PMIX_SUCCESS, [published(theirs, peer["rank"])]))
equal(begun(client.lookup_nb, [theirs + ".nb"], options), (PMIX_SUCCESS, [published(theirs + ".nb", peer["rank"])]))
equal(client.lookup([{"key": mine}, {"key": "gone"}], []), (PMIX_ERR_PARTIAL_SUCCESS, [published(mine, me["rank"])]))
equal(client.lookup([{"key": "gone"}], []), (PMIX_ERR_NOT_FOUND, []))
equal(client.fence([], []), PMIX_SUCCESS)
equal(client.unpublish([mine], []), PMIX_SUCCESS)
equal(begun(client.unpublish_nb, [mine + ".nb"], options), (PMIX_SUCCESS,))
equal(client.publish([]), PMIX_ERR_BAD_PARAM)

query = [{"keys": [PMIX_QUERY_NAMESPACES], "qualifiers": []}]
rc, found = client.query(query)
equal(rc, PMIX_SUCCESS)
equal(found[0]["key"], PMIX_QUERY_NAMESPACES)
assert me["nspace"] in found[0]["value"].split(","), found
equal(begun(client.query_nb, query), (PMIX_SUCCESS, found))
equal(client.query([]), (PMIX_ERR_BAD_PARAM, []))

abi = [{"keys": [PMIX_QUERY_STABLE_ABI_VERSION, PMIX_QUERY_PROVISIONAL_ABI_VERSION], "qualifiers": None}]
rc, versions = client.query(abi)
equal((rc, len(versions)), (PMIX_SUCCESS, 2))
equal(begun(client.query_nb, abi), (PMIX_SUCCESS, versions))
equal(client.query([*abi, *query]), (PMIX_SUCCESS, [*versions, *found]))

rc, procs = client.resolve_peers(None, me["nspace"])
equal(rc, PMIX_SUCCESS)
assert me in procs and peer in procs, procs
rc, nodes = client.resolve_nodes(me["nspace"])
equal(rc, PMIX_SUCCESS)
assert nodes and isinstance(nodes, str), nodes

line = [{"key": PMIX_LOG_STDOUT, "value": "logged\n", "val_type": PMIX_STRING}]
equal(client.log(line, []), PMIX_SUCCESS)
equal(begun(client.log_nb, line, []), (PMIX_SUCCESS,))

name = [{"key": PMIX_JOB_CTRL_ID, "value": "cleanup", "val_type": PMIX_STRING}]
clean = [{"key": PMIX_REGISTER_CLEANUP, "value": f"/nowhere/{mine}", "val_type": PMIX_STRING}, *name]
equal(client.job_control([me], clean), (PMIX_SUCCESS, []))
equal(client.job_ctrl([me], clean), (PMIX_SUCCESS, []))
equal(begun(client.job_control_nb, [me], clean), (PMIX_SUCCESS, []))

beat = [{"key": PMIX_MONITOR_HEARTBEAT, "value": True, "val_type": PMIX_BOOL}]
terms = [
    {"key": PMIX_MONITOR_ID, "value": "beat", "val_type": PMIX_STRING},
    {"key": PMIX_MONITOR_HEARTBEAT_TIME, "value": 600, "val_type": PMIX_UINT32},
]
rc, _results = client.monitor(beat, PMIX_MONITOR_HEARTBEAT_ALERT, terms)
equal(rc, PMIX_SUCCESS)
equal(client.heartbeat(), PMIX_SUCCESS)
stop = [{"key": PMIX_MONITOR_CANCEL, "value": "beat", "val_type": PMIX_STRING}]
equal(begun(client.monitor_nb, stop, 0, [])[0], PMIX_SUCCESS)
equal(client.monitor([], 0, []), (PMIX_ERR_BAD_PARAM, []))

nodes = [{"key": PMIX_ALLOC_NUM_NODES, "value": 1, "val_type": PMIX_UINT64}]
refused = (PMIX_ERR_NOT_SUPPORTED, [])
equal(client.allocation_request(PMIX_ALLOC_NEW, nodes), refused)
equal(begun(client.allocation_request_nb, PMIX_ALLOC_NEW, nodes), refused)
equal(client.resource_block(PMIX_RESOURCE_BLOCK_DEFINE, "block", [], []), PMIX_ERR_NOT_SUPPORTED)
equal(client.resource_block_nb(PMIX_RESOURCE_BLOCK_DEFINE, None, [], [], print), PMIX_ERR_BAD_PARAM)

rc, credential = client.get_credential([])
if rc == PMIX_SUCCESS:
    equal(len(credential["bytes"]), credential["size"])
    rc, same, _infos = begun(client.get_credential_nb, [])
    equal(rc, PMIX_SUCCESS)
    equal(client.validate_credential(credential, [])[0], PMIX_SUCCESS)
    equal(begun(client.validate_credential_nb, credential, [])[0], PMIX_SUCCESS)
else:
    equal((rc, credential), (PMIX_ERR_NOT_SUPPORTED, {}))
equal(client.validate_credential(None, []), (PMIX_ERR_BAD_PARAM, []))

equal(client.fabric_update(), (PMIX_ERR_INIT, None))
equal(client.fabric_deregister(), PMIX_ERR_INIT)
rc, _fabric = client.fabric_register([])
equal(rc, PMIX_ERR_NOT_SUPPORTED)
equal(begun(client.fabric_register_nb, []), (PMIX_ERR_NOT_SUPPORTED,))
equal(client.fabric_update_nb(print), PMIX_ERR_INIT)
equal(client.fabric_deregister_nb(print), PMIX_ERR_INIT)

rc, cores = client.get_cpuset(PMIX_CPUBIND_PROCESS)
equal((rc, cores["source"]), (PMIX_SUCCESS, "hwloc"))
rc, distances = client.compute_distances(cores, [])
equal(begun(client.compute_distances_nb, cores, []), (rc, distances))
equal(client.compute_distances({"source": "hwloc", "cpus": ["many"]}, []), (PMIX_ERR_BAD_PARAM, []))

equal(client.finalize(None), PMIX_SUCCESS)
done(me)

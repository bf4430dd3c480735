"""Put, commit, fence and get, and what is before and after them."""

from checks import begun, done, equal
from pmix import *

client = PMIxClient()
VALUE = {"value": 7, "val_type": PMIX_INT32}
FLAG = {"value": True, "val_type": PMIX_BOOL}

# Before init all methods return a status, and none crashes.
equal(client.initialized(), 0)
equal(client.put(PMIX_GLOBAL, "key", VALUE), PMIX_ERR_INIT)
equal(client.get(None, "key", []), (PMIX_ERR_INIT, None))
equal(client.fence([], []), PMIX_ERR_INIT)
equal(client.fence_nb([], [], print), PMIX_ERR_INIT)
equal(client.group_construct("g", [], []), (PMIX_ERR_INIT, []))
equal(client.finalize([]), PMIX_ERR_INIT)
equal(client.query([{"keys": [PMIX_QUERY_NAMESPACES]}]), (PMIX_ERR_INIT, []))
equal(client.query([{"keys": [PMIX_QUERY_STABLE_ABI_VERSION]}])[0], PMIX_SUCCESS)

rc, me = client.init([{"key": PMIX_PROGRAMMING_MODEL, "value": "TEST", "val_type": PMIX_STRING}])
equal(rc, PMIX_SUCCESS)
equal(client.initialized(), 1)
assert client.get_version().startswith("pypmix "), client.get_version()

# A second object has the same name, and leaves the first one connected.
other = PMIxClient()
equal(other.init(None), (PMIX_SUCCESS, me))
equal(other.finalize([]), PMIX_SUCCESS)
equal(client.initialized(), 1)

job = {"nspace": me["nspace"], "rank": PMIX_RANK_WILDCARD}
peer = {"nspace": me["nspace"], "rank": 1 - me["rank"]}
equal(client.get(job, PMIX_JOB_SIZE, None)[1]["value"], 2)

equal(client.put(PMIX_GLOBAL, "text", {"value": "héllo", "val_type": PMIX_STRING}), PMIX_SUCCESS)
equal(client.put(PMIX_GLOBAL, b"rank", {"value": me["rank"], "val_type": PMIX_UINT32}), PMIX_SUCCESS)
equal(client.put(PMIX_LOCAL, "x" * 512, VALUE), PMIX_ERR_BAD_PARAM)
equal(client.put(99, "scope", VALUE), PMIX_ERR_BAD_PARAM)
equal(client.put(PMIX_GLOBAL, "none", None), PMIX_ERR_BAD_PARAM)
equal(client.put(PMIX_GLOBAL, "word", {"value": "seven", "val_type": PMIX_INT32}), PMIX_ERR_TYPE_MISMATCH)
equal(client.commit(), PMIX_SUCCESS)
equal(client.fence([], [{"key": PMIX_COLLECT_DATA, **FLAG}]), PMIX_SUCCESS)
equal(client.get(peer, "text", []), (PMIX_SUCCESS, {"value": "héllo", "val_type": PMIX_STRING}))
equal(client.get(peer, b"rank", None), (PMIX_SUCCESS, {"value": peer["rank"], "val_type": PMIX_UINT32}))
equal(begun(client.get_nb, peer, "text", []), (PMIX_SUCCESS, {"value": "héllo", "val_type": PMIX_STRING}))

now = [{"key": PMIX_IMMEDIATE, **FLAG}]
equal(client.get(peer, "nothing", now), (PMIX_ERR_NOT_FOUND, None))
equal(begun(client.get_nb, peer, "nothing", now), (PMIX_ERR_NOT_FOUND, None))
equal(client.get(peer, None, []), (PMIX_ERR_NOT_SUPPORTED, None))
equal(client.get({"rank": 0}, "text", []), (PMIX_ERR_BAD_PARAM, None))
equal(client.get(None, "text", []), (PMIX_SUCCESS, {"value": "héllo", "val_type": PMIX_STRING}))

equal(client.store_internal(peer, "mine", VALUE), PMIX_SUCCESS)
equal(client.get(peer, "mine", []), (PMIX_SUCCESS, VALUE))
equal(begun(client.get_nb, peer, "mine", []), (PMIX_SUCCESS, VALUE))

equal(begun(client.fence_nb, [me, peer], None), (PMIX_SUCCESS,))
equal(client.fence_nb([], [], "no function"), PMIX_ERR_BAD_PARAM)
equal(client.fence([{"nspace": 5, "rank": 0}], []), PMIX_ERR_TYPE_MISMATCH)

equal(client.connect([me, peer], []), PMIX_SUCCESS)
equal(client.disconnect([me, peer], []), PMIX_SUCCESS)
equal(begun(client.connect_nb, [me, peer], []), (PMIX_SUCCESS,))
equal(begun(client.disconnect_nb, [me, peer], []), (PMIX_SUCCESS,))

equal(client.progress(), None)
equal(client.progress_thread_stop(), PMIX_ERR_NOT_SUPPORTED)
equal(client.finalize([]), PMIX_SUCCESS)
equal(client.initialized(), 0)
done(me)

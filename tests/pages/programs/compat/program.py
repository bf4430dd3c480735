from pmix import *


def block():
    return PMIxScheduler().resource_block(0, "block", [], 0, [])


client = PMIxClient()
rc, me = client.init([])
assert rc == PMIX_SUCCESS
assert client.fence([], []) == PMIX_SUCCESS
assert client.finalize([]) == PMIX_SUCCESS

"""Groups of two: constructed, by invitation, left and destructed."""

import threading

from checks import LIMIT, begun, done, equal
from pmix import *

client = PMIxClient()
rc, me = client.init(None)
equal(rc, PMIX_SUCCESS)
both = [{"nspace": me["nspace"], "rank": rank} for rank in range(2)]
leader = both[0]
ASSIGN = [{"key": PMIX_GROUP_ASSIGN_CONTEXT_ID, "value": True, "val_type": PMIX_BOOL}]


def told(results):
    return {each["key"]: each["value"] for each in results}


rc, results = client.group_construct("blocking", both, ASSIGN)
equal(rc, PMIX_SUCCESS)
assert isinstance(told(results)[PMIX_GROUP_CONTEXT_ID], int), results
equal(client.fence([{"nspace": "blocking", "rank": PMIX_RANK_WILDCARD}], []), PMIX_SUCCESS)
equal(client.group_destruct("blocking", []), PMIX_SUCCESS)

rc, results = begun(client.group_construct_nb, "callback", both, ASSIGN)
equal(rc, PMIX_SUCCESS)
assert PMIX_GROUP_CONTEXT_ID in told(results), results
equal(begun(client.group_destruct_nb, "callback", []), (PMIX_SUCCESS,))

equal(client.construct_group("left", both, [])[0], PMIX_SUCCESS)
equal(client.group_leave("left", []), PMIX_SUCCESS)
equal(client.group_construct("left.nb", both, [])[0], PMIX_SUCCESS)
equal(begun(client.group_leave_nb, "left.nb", []), (PMIX_SUCCESS,))
# One of them knows of itself alone, and adds the other, who names nobody.
alone = [
    {"key": PMIX_GROUP_BOOTSTRAP, "value": 1, "val_type": PMIX_SIZE},
    {"key": PMIX_GROUP_ADD_MEMBERS, "value": {"type": PMIX_PROC, "array": both[1:]}, "val_type": PMIX_DATA_ARRAY},
]
rc, results = client.group_construct("added", [me] if me == leader else [], alone if me == leader else None)
equal((rc, told(results)[PMIX_GROUP_MEMBERSHIP]["array"]), (PMIX_SUCCESS, both))
equal(client.group_destruct("added", []), PMIX_SUCCESS)
# Nobody named at all is the whole job.
equal(client.group_construct("whole", None, [])[0], PMIX_SUCCESS)
equal(client.group_destruct("whole", []), PMIX_SUCCESS)
equal(client.group_leave("never", []), PMIX_ERR_NOT_FOUND)
equal(client.group_construct("", both, []), (PMIX_ERR_BAD_PARAM, []))

invited = {name: threading.Event() for name in ("invited", "invited.nb", "declined")}


def on_invitation(number, status, source, infos, results):
    equal(source, leader)
    invited[told(infos)[PMIX_GROUP_ID]].set()
    return PMIX_EVENT_ACTION_COMPLETE, []


if me == leader:
    equal(client.fence([], []), PMIX_SUCCESS)
    rc, results = client.group_invite("invited", both, [])
    equal(rc, PMIX_SUCCESS)
    rc, results = begun(client.group_invite_nb, "invited.nb", both, [])
    equal(rc, PMIX_SUCCESS)
    rc, results = client.group_invite("declined", both, [])
    equal((rc, results), (PMIX_GROUP_CONSTRUCT_ABORT, []))
else:
    rc, number = client.register_event_handler([PMIX_GROUP_INVITED], [], on_invitation)
    equal(rc, PMIX_SUCCESS)
    equal(client.fence([], []), PMIX_SUCCESS)
    assert invited["invited"].wait(LIMIT)
    rc, results = client.group_join("invited", leader, PMIX_GROUP_ACCEPT, [])
    equal(rc, PMIX_SUCCESS)
    assert invited["invited.nb"].wait(LIMIT)
    rc, results = begun(client.group_join_nb, "invited.nb", leader, PMIX_GROUP_ACCEPT, [])
    equal(rc, PMIX_SUCCESS)
    assert invited["declined"].wait(LIMIT)
    equal(client.group_join("declined", leader, PMIX_GROUP_DECLINE, []), (PMIX_SUCCESS, []))
for name in ("invited", "invited.nb"):
    equal(client.fence([{"nspace": name, "rank": PMIX_RANK_WILDCARD}], []), PMIX_SUCCESS)
    equal(client.group_destruct(name, []), PMIX_SUCCESS)

equal(client.finalize([]), PMIX_SUCCESS)
done(me)

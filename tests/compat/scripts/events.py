"""Events: handlers in all the forms that they may answer in, and notification."""

import threading

from checks import LIMIT, begun, done, equal
from pmix import *

CODE = -4242
client = PMIxClient()
rc, me = client.init(None)
equal(rc, PMIX_SUCCESS)
first = {"nspace": me["nspace"], "rank": 0}
order = []
heard = {name: threading.Event() for name in ("failing", "asking", "default")}


def failing(number, status, source, infos, results):
    order.append("failing")
    heard["failing"].set()
    raise ValueError("this handler fails")


def asking(number, status, source, infos, results):
    order.append("asking")
    equal((number, status, source), (numbers["asking"], CODE, first))
    equal([each["value"] for each in infos if each["key"] == "acme.load"], [0.5])
    # A blocking call, which hangs the official binding.
    job = {"nspace": me["nspace"], "rank": PMIX_RANK_WILDCARD}
    equal(client.get(job, PMIX_JOB_SIZE, [])[0], PMIX_SUCCESS)
    heard["asking"].set()
    return PMIX_EVENT_NO_ACTION_TAKEN, [{"key": "acme.told", "value": 1, "val_type": PMIX_INT}]


def default(number, status, source, infos, results):
    if status == CODE:
        order.append("default")
        heard["default"].set()


numbers = {}
for name, codes, handler in (("asking", [CODE], asking), ("failing", [CODE], failing), ("default", None, default)):
    rc, numbers[name] = client.register_event_handler(codes, [], handler)
    equal(rc, PMIX_SUCCESS)
    assert numbers[name] >= 0
equal(client.register_event_handler([CODE], [], None), (PMIX_ERR_BAD_PARAM, -1))
equal(client.register_event_handler("codes", [], default), (PMIX_ERR_BAD_PARAM, -1))

equal(client.fence([], []), PMIX_SUCCESS)
if me["rank"] == 0:
    load = [{"key": "acme.load", "value": 0.5, "val_type": PMIX_DOUBLE}]
    equal(client.notify_event(CODE, me, PMIX_RANGE_NAMESPACE, load), PMIX_SUCCESS)
for name, event in heard.items():
    assert event.wait(LIMIT), name
equal(sorted(order[:2]), ["asking", "failing"])
equal(order[2:], ["default"])

equal(client.deregister_event_handler(numbers["asking"]), PMIX_SUCCESS)
equal(begun(client.deregister_event_handler, numbers["failing"]), (PMIX_SUCCESS,))
equal(begun(client.notify_event, -4343, me, PMIX_RANGE_PROC_LOCAL, None), (PMIX_SUCCESS,))
equal(client.notify_event(CODE, me, 77, []), PMIX_ERR_BAD_PARAM)
equal(client.fence([], []), PMIX_SUCCESS)
equal(client.finalize([]), PMIX_SUCCESS)
done(me)

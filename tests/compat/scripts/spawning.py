"""Spawn, in both forms; then the job is aborted."""

import sys

from checks import begun, done, equal
from pmix import *

# What is spawned finds `pmix` too, though it is not this process that starts it.
CHILD = """
import sys
from pmix import *
client = PMIxClient()
assert client.init(None)[0] == PMIX_SUCCESS
stays = {"key": PMIX_PERSISTENCE, "value": PMIX_PERSIST_SESSION, "val_type": PMIX_PERSIST}
word = {"key": sys.argv[1], "value": "from a child", "val_type": PMIX_STRING}
assert client.publish([word, stays]) == PMIX_SUCCESS
client.finalize([])
"""


def program(key):
    return {"cmd": sys.executable, "argv": [sys.executable, "-c", CHILD, key], "maxprocs": 1}


client = PMIxClient()
rc, me = client.init(None)
equal(rc, PMIX_SUCCESS)
rc, first = client.spawn([], [program("first")])
equal(rc, PMIX_SUCCESS)
rc, second = begun(client.spawn_nb, None, [{**program("second"), "env": ["A=1"], "info": []}])
equal(rc, PMIX_SUCCESS)
assert len({me["nspace"], first, second}) == 3, (first, second)
wait = [{"key": PMIX_WAIT, "value": 0, "val_type": PMIX_INT}, {"key": PMIX_TIMEOUT, "value": 30, "val_type": PMIX_INT}]
rc, words = client.lookup([{"key": "first"}, {"key": "second"}], wait)
equal((rc, [each["value"] for each in words]), (PMIX_SUCCESS, ["from a child"] * 2))
equal(client.spawn([], []), (PMIX_ERR_BAD_PARAM, None))
equal(client.spawn([], [{"argv": ["no command"]}]), (PMIX_ERR_BAD_PARAM, None))
done(me)
equal(client.abort(7, "that is enough", []), PMIX_SUCCESS)
client.finalize([])

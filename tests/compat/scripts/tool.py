"""A tool of the server that started it: what it asks, and the input and output of a job that it starts."""

import sys
import threading

from checks import LIMIT, begun, done, equal
from pmix import *

tool = PMIxTool()
equal(tool.initialized(), 0)
equal(tool.get_servers(), (PMIX_ERR_INIT, []))
rc, me = tool.init(None)
equal(rc, PMIX_SUCCESS)
equal(tool.initialized(), 1)
equal(tool.is_connected(), True)
rc, servers = tool.get_servers()
equal(rc, PMIX_SUCCESS)
equal(len(servers), 1)
equal(tool.set_server(servers[0], []), PMIX_SUCCESS)
equal(tool.set_server_module({}), PMIX_ERR_INIT)
rc, found = tool.query([{"keys": [PMIX_QUERY_NAMESPACES], "qualifiers": []}])
equal(rc, PMIX_SUCCESS)

heard = {"out": bytearray(), "end": threading.Event()}


def output(number, channel, source, payload, infos):
    heard["out"] += payload["bytes"]
    if b"told: words" in heard["out"]:
        equal((number, channel & PMIX_FWD_STDOUT_CHANNEL, source), (pull, channel, child))
        heard["end"].set()


program = "print('told:', input(), flush=True)"
forward = [{"key": key, "value": True, "val_type": PMIX_BOOL} for key in (PMIX_FWD_STDIN, PMIX_FWD_STDOUT)]
rc, nspace = tool.spawn(forward, [{"cmd": sys.executable, "argv": [sys.executable, "-c", program], "maxprocs": 1}])
equal(rc, PMIX_SUCCESS)
child = {"nspace": nspace, "rank": 0}
rc, pull = tool.iof_pull([child], PMIX_FWD_STDOUT_CHANNEL, [], output)
equal(rc, PMIX_SUCCESS)
equal(tool.iof_pull([child], PMIX_FWD_STDOUT_CHANNEL, [], None), (PMIX_ERR_BAD_PARAM, -1))
equal(tool.iof_push([child], {"bytes": b"words\n", "size": 6}, []), PMIX_SUCCESS)
equal(begun(tool.iof_push, [child], None, []), (PMIX_SUCCESS,))
assert heard["end"].wait(LIMIT), heard
equal(tool.iof_deregister(pull, []), PMIX_SUCCESS)

nowhere = [{"key": PMIX_SERVER_URI, "value": "none", "val_type": PMIX_STRING}]
equal(tool.attach_to_server(nowhere)[1:], (None, None))
equal(tool.connect_to_server(nowhere)[1:], (None, None))
assert tool.disconnect({"nspace": "nobody", "rank": 0}) in (PMIX_ERR_NOT_FOUND, PMIX_ERR_UNREACH)
equal(tool.finalize(), PMIX_SUCCESS)
equal(tool.finalize(), PMIX_ERR_INIT)
done(me)

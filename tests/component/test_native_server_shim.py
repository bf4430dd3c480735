"""The shim of the native server: each upcall comes whole, is answered once from any thread, and leaves nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lib import machine
from lib.native_programs import PRELUDE, environment, finished

pytestmark = pytest.mark.timeout(120)

LIBRARIES = [lib.release for lib in machine.libraries()] or ["none"]

SERVER = """
import atexit, ctypes, gc, os, select, subprocess, sys, threading, time
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.library import find_library, open_library
from pypmix.engine.native.marshal import Marshal
from pypmix.engine.native.serverside.slots import slots
from pypmix.engine.native.structs import get_proc, get_strings, string
from pypmix.standard.codes import *
from pypmix.standard.errors import *
from pypmix.standard.statuses import *
from pypmix.standard.structures import *
from pypmix.standard.types import *
from pypmix.standard.values import *

UPS = {getattr(lib, name): name[len("PYPMIX_UP_"):] for name in dir(lib)
       if name.startswith("PYPMIX_UP_") and getattr(lib, name) < lib.PYPMIX_UPS}
library = find_library(os.environ).library
open_library(library)
marshal = Marshal(library.release)
queue = lib.pypmix_queue_new(False)
folder = sys.argv[1]
JOB = "shim.job"

def initialize():
    infos, count = marshal.infos((Info("pmix.srv.nspace", Value(STRING, "shim")),
                                  Info("pmix.srv.rank", Value(PROC_RANK, 0)),
                                  Info("pmix.iof.local", Value(BOOL, False)),
                                  Info("pmix.srvr.tool", Value(BOOL, True)),
                                  Info("pmix.srvr.tmpdir", Value(STRING, folder))))
    assert lib.pypmix_server_init(queue, slots(library.release), lib.PYPMIX_UPS, infos, count) == 0
    lib.pypmix_infos_free(infos, count)

def given(kind=UNDEF, items=(), infos=(), more=(UNDEF, ()), number=0):
    made = ffi.new("pypmix_given *")
    marshal.fill(made.items, kind, items)
    marshal.fill(made.more, *more)
    made.infos, made.ninfos = marshal.infos(infos)
    made.number = number
    return made

def ask(what, *args, timeout=10.0, **named):
    # an operation of the server itself: its status, its value and its results
    call = lib.pypmix_call_new()
    lib.pypmix_ask(call, queue, what, given(*args, **named), timeout)
    status = call.status
    value = marshal.read(call.value) if call.value else None
    results = marshal.results(call.results) if call.results.size else ()
    lib.pypmix_call_free(call)
    return status, value, results

def took(seconds=20.0):
    # the next upcall
    limit = time.monotonic() + seconds
    while not (upcall := lib.pypmix_upcall_take()):
        left = limit - time.monotonic()
        assert left > 0, "no upcall came"
        time.sleep(min(left, 0.001))
    return upcall

def contents(upcall):
    # what an upcall says, as Python has it
    items = marshal.get_array(upcall.items).items if upcall.items.size else ()
    return {
        "what": UPS[upcall.what],
        "source": get_proc(upcall.source) if upcall.sourced else None,
        "items": items,
        "infos": {info.key: info.value.data for info in (marshal.results(upcall.infos) if upcall.infos.size else ())},
        "more": {info.key: info.value.data for info in (marshal.results(upcall.more) if upcall.more.size else ())},
        "text": string(upcall.text),
        "bytes": bytes(ffi.buffer(upcall.bytes, upcall.size)) if upcall.size else b"",
        "number": upcall.number,
    }

def answer(upcall, status=0, *args, **named):
    lib.pypmix_upcall_answer(upcall, status, given(*args, **named) if args or named else ffi.NULL)

def register(size, local, nspace=JOB):
    def fixed(key, kind, data):
        return Info(key, Value(kind, data))
    peers = ",".join(map(str, range(local)))
    infos = [fixed("pmix.job.size", UINT32, size), fixed("pmix.univ.size", UINT32, size),
             fixed("pmix.max.size", UINT32, size), fixed("pmix.local.size", UINT32, local),
             fixed("pmix.lpeers", STRING, peers)]
    for rank in range(size):
        own = [Info("pmix.rank", Value(PROC_RANK, rank)), fixed("pmix.lrank", UINT16, rank)]
        infos.append(Info("pmix.pdata", Value(DATA_ARRAY, DataArray(INFO, tuple(own)))))
    status, _, _ = ask(lib.PYPMIX_REGISTER_NSPACE, PROC, (Proc(nspace, 0),), infos, number=local)
    assert status == 0, status
    for rank in range(local):
        number = os.getuid() | os.getgid() << 32
        assert ask(lib.PYPMIX_REGISTER_CLIENT, PROC, (Proc(nspace, rank),), number=number)[0] == 0

def launched(rank, program="client.py", nspace=JOB):
    env = ffi.new("char ***")
    proc = ffi.new("pmix_proc_t *", (nspace.encode(), rank))
    assert lib.pypmix_server_setup_fork(proc, env) == 0
    more = dict(text.split("=", 1) for text in get_strings(env[0]))
    lib.pypmix_strings_free(env[0])
    assert more["PMIX_RANK"] == str(rank), more
    command = [sys.executable, os.path.join(folder, program), str(rank)]
    process = subprocess.Popen(command, env={**os.environ, **more}, stdin=subprocess.DEVNULL)
    atexit.register(process.kill)
    return process

def serve(answers, clients):
    # answer what comes until the clients have gone; returns what came, by kind
    seen = {}
    finals = 0
    while finals < clients:
        upcall = took()
        said = contents(upcall)
        seen.setdefault(said["what"], []).append(said)
        print(said["what"], said["source"], flush=True)
        finals += said["what"] == "CLIENT_FINALIZED"
        how = answers.get(said["what"], lambda upcall, said: answer(upcall))
        how(upcall, said)
    return seen

def ended(*processes):
    codes = [process.wait(20) for process in processes]
    assert not any(codes), codes

def heap():
    class Mallinfo(ctypes.Structure):
        names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
        _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo
    gc.collect()
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd

initialize()
"""

END = """
assert lib.pypmix_server_finalize() == 0
print("served")
"""


@pytest.fixture(params=[*LIBRARIES, "root"])
def serve(request: pytest.FixtureRequest, tmp_path: Path):
    """Run a program as a server, and another as its clients, over one libpmix."""

    def run(server: str, client: str, limit: float = 60) -> None:
        (tmp_path / "server.py").write_text(SERVER + server)
        prelude = PRELUDE.partition("me = opened()")[0] if "open_tool" in client else PRELUDE
        (tmp_path / "client.py").write_text(prelude + client)
        command = [sys.executable, str(tmp_path / "server.py"), str(tmp_path)]
        if request.param == "root":
            if lacking := machine.root_lacking():
                machine.lacking(lacking)
            env = environment()
            command = machine.enter(command, tmp_path)
        else:
            lib = machine.library(request.param)
            if lib is None or not machine.extension():
                machine.lacking("a libpmix or the native engine's extension")
            env = environment(PYPMIX_LIBPMIX=lib.path)
        status, output = finished(command, {**env, "TMPDIR": str(tmp_path)}, limit)
        assert (status, output.splitlines()[-1:]) == (0, ["served"]), output

    return run


def test_upcalls_come_whole_and_answers_arrive(serve) -> None:
    serve(
        """
register(3, 2)
STORE = {}

def publish(upcall, said):
    STORE.update(said["infos"])
    answer(upcall)

def lookup(upcall, said):
    found = [Pdata(Proc(JOB, 1), key, Value(STRING, STORE[key])) for key in said["items"] if key in STORE]
    answer(upcall, 0, PDATA, found)

seen = serve({
    "FENCE": lambda upcall, said: answer(upcall, 0, BYTE_OBJECT, (said["bytes"],)),
    "DIRECT_MODEX": lambda upcall, said: answer(upcall, -46),
    "PUBLISH": publish,
    "LOOKUP": lookup,
    "SPAWN": lambda upcall, said: answer(upcall, 0, STRING, ("new.job",)),
    "JOB_CONTROL": lambda upcall, said: answer(upcall, 0, infos=(Info("acme.back", Value(STRING, "done")),)),
    "ALLOCATE": lambda upcall, said: answer(upcall, -25),
    "GET_CREDENTIAL": lambda upcall, said: answer(
        upcall, 0, BYTE_OBJECT, (b"se\\0cret",), (Info("acme.back", Value(STRING, "mine")),)),
    "VALIDATE_CREDENTIAL": lambda upcall, said: answer(upcall, 0, infos=(Info("acme.valid", Value(BOOL, True)),)),
    "QUERY": lambda upcall, said: answer(upcall, 0, infos=(Info("acme.query", Value(UINT32, 7)),)),
}, 2 if (processes := [launched(0), launched(1)]) else 0)
ended(*processes)

def one(what, **expected):
    (said,) = seen[what]
    for name, value in expected.items():
        assert said[name] == value, (what, name, said)
    return said

assert {said["source"].rank for said in seen["CLIENT_CONNECTED2"]} == {0, 1}
assert {said["source"].rank for said in seen["CLIENT_FINALIZED"]} == {0, 1}
one("FENCE", items=(Proc(JOB, RANK_WILDCARD),))
assert len(seen["FENCE"][0]["bytes"]) > 0
one("DIRECT_MODEX", source=Proc(JOB, 2))
said = one("PUBLISH", source=Proc(JOB, 0))
assert said["infos"]["acme.published"] == "grüße"
one("LOOKUP", source=Proc(JOB, 1), items=("acme.published", "acme.lacking"))
one("UNPUBLISH", source=Proc(JOB, 0), items=("acme.published",))
said = one("SPAWN", source=Proc(JOB, 0))
(app,) = said["items"]
assert (app.cmd, app.argv, app.maxprocs, app.env) == ("prog", ("prog", "-x"), 3, ("A=b",)), app
assert "acme.of.app" in [info.key for info in app.info] and said["infos"]["acme.of.job"] == 5
said = one("JOB_CONTROL", items=(Proc(JOB, 1),))
assert said["infos"]["acme.asked"] == "x" * 5000
one("ALLOCATE", number=3)
said = one("VALIDATE_CREDENTIAL", bytes=b"se\\0cret")
said = one("QUERY", source=Proc("shim", 0))
assert said["items"][0].keys == ("acme.query",), said
said = one("LOG" if "LOG" in seen else "LOG2", source=Proc(JOB, 0))
assert said["infos"]["acme.log"] == "line", said
said = one("ABORT", source=Proc(JOB, 1), number=7, text="enough", items=(Proc(JOB, 2),))
"""
        + END,
        """
rank = int(sys.argv[1])
me.run(Put("acme.put", Value(STRING, f"of {rank}")))
me.run(Commit())
me.run(Fence((), True))
assert me.run(Get(Proc(me.proc.nspace, 1 - rank), "acme.put")).data == f"of {1 - rank}"
pair = (Proc(me.proc.nspace, 0), Proc(me.proc.nspace, 1))
if rank == 0:
    me.run(Publish((Info("acme.published", Value(STRING, "grüße")),)))
    caught(NotFound, me.run, Get(Proc(me.proc.nspace, 2), "acme.lacking", (LIMIT,)))
me.run(Fence(pair))
if rank == 1:
    (found,) = me.run(Lookup(("acme.published", "acme.lacking")))
    assert (found.proc, found.value.data) == (Proc(me.proc.nspace, 1), "grüße"), found
    me.run(Abort(7, "enough", (Proc(me.proc.nspace, 2),)))
me.run(Fence(pair))
if rank == 0:
    me.run(Unpublish(("acme.published",)))
    app = App("prog", ("prog", "-x"), ("A=b",), maxprocs=3, info=(Info("acme.of.app", Value(BOOL, True)),))
    assert me.run(Spawn((app,), (Info("acme.of.job", Value(INT, 5)),))) == "new.job"
    (back,) = me.run(JobControl((Proc(me.proc.nspace, 1),), (Info("acme.asked", Value(STRING, "x" * 5000)),)))
    assert (back.key, back.value.data) == ("acme.back", "done")
    caught(PMIxError, me.run, AllocationRequest(3))
    credential = me.run(GetCredential())
    assert (credential.data, credential.infos[0].value.data) == (b"se\\0cret", "mine"), credential
    (valid,) = me.run(ValidateCredential(b"se\\0cret"))
    assert valid.key == "acme.valid" and valid.value.data is True
    (known,) = me.run(QueryInfo((Query(("acme.query",)),)))
    assert known.value.data == 7, known
    me.run(Log((Info("acme.log", Value(STRING, "line")),)))
me.run(Connect(pair))
me.run(Disconnect(pair))
me.run(Finalize())
""",
    )


def test_asks_of_the_server(serve) -> None:
    serve(
        """
register(2, 1)
process = launched(0)
client = Proc(JOB, 0)
assert contents(upcall := took())["what"] == "CLIENT_CONNECTED2"
answer(upcall)

# what a client has committed, also where it is asked for before that
status, value, _ = ask(lib.PYPMIX_DMODEX_REQUEST, PROC, (client,))
assert status == 0 and b"acme.put" in value.data, (status, value)
assert ask(lib.PYPMIX_DMODEX_REQUEST, PROC, (Proc("no.such.job", 0),), timeout=0.3)[0] < 0

status, _, results = ask(lib.PYPMIX_SETUP_APPLICATION, PROC, (Proc(JOB, 0),), (Info("pmix.envar", Value(BOOL, True)),))
assert status == 0, status
assert ask(lib.PYPMIX_SETUP_LOCAL_SUPPORT, PROC, (Proc(JOB, 0),), results)[0] in (0, -46, -47)
status, _, results = ask(lib.PYPMIX_COLLECT_INVENTORY)
assert status in (0, -46, -47, -1366), status
assert ask(lib.PYPMIX_DELIVER_INVENTORY, INFO, results)[0] in (0, -46, -47)
extra = (Info("acme.resource", Value(STRING, "plenty")),)
assert ask(lib.PYPMIX_REGISTER_RESOURCES, infos=extra)[0] == 0
assert ask(lib.PYPMIX_DEREGISTER_RESOURCES, infos=extra)[0] == 0
name = (STRING, ("some.set",))
assert ask(lib.PYPMIX_DEFINE_PROCESS_SET, PROC, (client,), more=name)[0] == 0
assert ask(lib.PYPMIX_DELETE_PROCESS_SET, more=name)[0] == 0
assert ask(lib.PYPMIX_STORE_INTERNAL, PROC, (client,), (Info("acme.stored", Value(UINT32, 9)),))[0] == 0

(pull,) = [upcall for upcall in [took()] if contents(upcall)["what"] == "IOF_PULL"]
other = Proc(JOB, 1)
assert contents(pull)["items"] == (other,) and contents(pull)["number"] == 2, contents(pull)
answer(pull)
(push,) = [took()]
said = contents(push)
assert (said["what"], said["bytes"], said["items"]) == ("PUSH_STDIN", b"in\\0put", (client,)), said
# the client has its answer to the pull by now
status, _, _ = ask(lib.PYPMIX_IOF_DELIVER, PROC, (other,), more=(BYTE_OBJECT, (b"said\\0so",)), number=2)
assert status == 0, status
answer(push)
serve({}, 1)
ended(process)
assert ask(lib.PYPMIX_DEREGISTER_CLIENT, PROC, (client,))[0] == 0
assert ask(lib.PYPMIX_DEREGISTER_NSPACE, PROC, (Proc(JOB, 0),))[0] == 0
"""
        + END,
        """
heard, ready = [], threading.Event()
def hear(output):
    heard.append(output.data)
    ready.set()
time.sleep(0.3)
me.run(Put("acme.put", Value(STRING, "x")))
me.run(Commit())
number = me.run(IOFPull((Proc(me.proc.nspace, 1),), 2, (), hear))
me.run(IOFPush((me.proc,), b"in\\0put"))
assert ready.wait(10)
assert b"".join(heard) == b"said\\0so", heard
me.run(Finalize())
""",
    )


def test_answers_come_late_and_from_any_thread(serve) -> None:
    """Later upcalls are answered before earlier ones, and many at once."""
    serve(
        """
register(1, 1)
process = launched(0)
threads, kept = [], []

def publish(upcall, said):
    kept.append(upcall)
    if len(kept) == 40:
        for late in reversed(kept):
            thread = threading.Thread(target=answer, args=(late,))
            thread.start()
            threads.append(thread)

def lookup(upcall, said):
    (key,) = said["items"]
    found = Pdata(Proc(JOB, 0), key, Value(STRING, "y" * int(key.rpartition(".")[2])))
    thread = threading.Timer(0.2, answer, (upcall, 0, PDATA, (found,)))
    thread.start()
    threads.append(thread)

serve({"PUBLISH": publish, "LOOKUP": lookup}, 1)
ended(process)
for thread in threads:
    thread.join()
assert len(kept) == 40
"""
        + END,
        """
left, ended = [40], threading.Event()
def done(result, error):
    assert error is None
    left[0] -= 1
    left[0] or ended.set()
for n in range(40):
    me.submit(Publish((Info(f"acme.{n}", Value(INT, n)),)), done)
assert ended.wait(20), left
for n in range(5):
    (found,) = me.run(Lookup((f"acme.{n * 1000}",)))
    assert found.value.data == "y" * n * 1000
me.run(Finalize())
""",
    )


def test_groups_reach_the_host_and_come_back(serve) -> None:
    serve(
        """
register(2, 2)
processes = [launched(0), launched(1)]

def group(upcall, said):
    back = (Info("pmix.grp.ctxid", Value(SIZE, 4711)), Info("pmix.grp.mbrs", array(PROC, said["items"])))
    answer(upcall, 0, infos=() if said["number"] else back)

seen = serve({"GROUP": group}, 2)
ended(*processes)
said = seen["GROUP"][0]
assert (said["text"], said["number"], set(said["items"])) == ("some.group", 0, {Proc(JOB, 0), Proc(JOB, 1)}), said
# releases 5.0 ask once for each member that destructs
assert {said["number"] for said in seen["GROUP"][1:]} == {1}, seen["GROUP"]
"""
        + END,
        """
members = (Proc(me.proc.nspace, 0), Proc(me.proc.nspace, 1))
formed = me.run(GroupConstruct("some.group", members, (Info("pmix.grp.actxid", Value(BOOL, True)),)))
assert "4711" in str(formed), formed
me.run(GroupDestruct("some.group"))
me.run(Finalize())
""",
    )


def test_events_in_the_server_and_from_it(serve) -> None:
    serve(
        """
register(1, 1)
box = lib.pypmix_inbox_new(queue)
code = given(STATUS, (-4242,), number=lib.pypmix_inbox_number(box))
call = lib.pypmix_call_new()
lib.pypmix_ask(call, queue, lib.PYPMIX_REGISTER_EVENT_HANDLER, code, 10.0)
assert call.status == 0
lib.pypmix_call_free(call)
process = launched(0)
heard = []

def notified(upcall, said):
    heard.append(said)
    answer(upcall)
    message = ffi.NULL
    limit = time.monotonic() + 10
    while not message and time.monotonic() < limit:
        message = lib.pypmix_inbox_take(box)
        time.sleep(0.01)
    assert message.code == -4242 and get_proc(message.source) == Proc(JOB, 0)
    lib.pypmix_message_drop(message, -331, ffi.NULL, 0)
    # and one of the server's own
    status, _, _ = ask(lib.PYPMIX_NOTIFY_EVENT, PROC, (Proc("shim", 0),), (Info("acme.own", Value(INT, 1)),),
                       number=(-4243 & 0xFFFFFFFF) | 2 << 32 | (1 << 41 if library.release < (7,) else 0))
    assert status in (0, -157), status

seen = serve({"NOTIFY_EVENT": notified}, 1)
ended(process)
(said,) = heard
assert (said["number"] & 0xFFFFFFFF) - 2**32 == -4242 and said["number"] >> 32 == 4, said
assert (said["source"], said["infos"]["acme.n"]) == (Proc(JOB, 0), 3), said
lib.pypmix_inbox_close(box)
lib.pypmix_inbox_free(box)
"""
        + END,
        """
came = threading.Event()
def hear(delivery):
    came.set()
    delivery.done(-331, ())
me.run(RegisterEventHandler(hear, (-4243,), (), lambda error: None))
me.run(NotifyEvent(-4242, 4, (Info("acme.n", Value(UINT32, 3)),)))
assert came.wait(10)
me.run(Finalize())
""",
    )


def test_tools_are_named_or_turned_away(serve) -> None:
    serve(
        """
def tool(*words):
    command = [sys.executable, os.path.join(folder, "client.py"), str(os.getpid()), *words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    atexit.register(process.kill)
    return process

process = tool("refused")
count = 0
while process.poll() is None:
    if upcall := lib.pypmix_upcall_take():
        said = contents(upcall)
        assert said["what"] in ("TOOL_CONNECTED", "TOOL_CONNECTED2"), said
        assert said["infos"]["pmix.euid"] == os.geteuid(), said
        answer(upcall, -3)
        count += 1
        if library.release < (6,):
            # nothing tells it so
            time.sleep(0.5)
            process.kill()
    time.sleep(0.01)
assert count and (not process.wait() or library.release < (6,))
process = tool()
upcall = took()
assert contents(upcall)["what"] == said["what"]
answer(upcall, 0, PROC, (Proc("the.tool", 3),))
asked = contents(upcall := took())
assert asked["what"] == "JOB_CONTROL" and asked["source"] == Proc("the.tool", 3), asked
answer(upcall)
ended(process)
"""
        + END,
        """
from pypmix.engine.native.tool import open_tool
def opening():
    infos = (Info("pmix.srvr.pidinfo", Value(PID, int(sys.argv[1]))),)
    return open_tool(os.environ, find_library(os.environ).library, infos)
if len(sys.argv) == 3:
    caught(PMIxError, opening)
else:
    me = opening()
    assert me.proc == Proc("the.tool", 3), me.proc
    me.run(JobControl())
    me.run(Finalize())
""",
    )


def test_a_server_ends_with_upcalls_open(serve) -> None:
    """Clients hear of it, and an answer that comes afterwards harms nobody."""
    serve(
        """
register(1, 1)
process = launched(0)
assert contents(upcall := took())["what"] == "CLIENT_CONNECTED2"
answer(upcall)
taken = [took() for _ in range(3)]
while not os.path.exists(os.path.join(folder, "asked")):
    time.sleep(0.01)
# What was asked last is with the library by then, most likely.
time.sleep(0.3)
assert lib.pypmix_server_finalize() == 0
for upcall in taken:
    answer(upcall, 0, BYTE_OBJECT, (b"late",), (Info("acme.late", Value(STRING, "x")),))
assert not lib.pypmix_upcall_take()
assert lib.pypmix_server_finalize() != 0
ended(process)
print("served")
""",
        """
errors = []
def done(result, error):
    errors.append(error)
for op in (Publish((Info("acme.a", Value(INT, 1)),)), Lookup(("acme.a",)), JobControl(), GetCredential(), Unpublish()):
    me.submit(op, done)
open(os.path.join(os.path.dirname(__file__), "asked"), "w").close()
limit = time.monotonic() + 15
while len(errors) < 5 and time.monotonic() < limit:
    time.sleep(0.01)
assert len(errors) == 5 and all(isinstance(error, LostConnection) for error in errors), errors
""",
    )


def test_operations_that_a_server_which_ends_answers_fail_with_the_loss(serve) -> None:
    """The answer comes before the connection closes; it does not say that a participant is missing."""
    serve(
        """
register(1, 1)
process = launched(0)
lost = {what: lambda upcall, said: answer(upcall, ERR_LOST_CONNECTION) for what in ("PUBLISH", "LOOKUP", "JOB_CONTROL")}
serve(lost, 1)
ended(process)
"""
        + END,
        """
for op in (Publish((Info("acme.a", Value(INT, 1)),)), Lookup(("acme.a",)), JobControl()):
    error = caught(LostConnection, lambda: me.run(op))
    assert error.operation == op.name, error
me.run(Finalize())
""",
    )


def test_thousands_of_upcalls_leave_no_memory_behind(serve) -> None:
    serve(
        """
register(1, 1)
process = launched(0)
sizes, count = [], 0

def lookup(upcall, said):
    global count
    count += 1
    if count % 1000 == 0:
        sizes.append(heap())
    infos = [Info(f"acme.{n}", Value(STRING, "z" * 200)) for n in range(4)]
    found = [Pdata(Proc(JOB, 0), info.key, info.value) for info in infos]
    answer(upcall, 0, PDATA, found)

def control(upcall, said):
    answer(upcall, 0, infos=[Info(f"acme.{n}", Value(STRING, "z" * 200)) for n in range(4)])

serve({"LOOKUP": lookup, "JOB_CONTROL": control}, 1)
ended(process)
assert count == 4000
grown = (sizes[-1] - sizes[0]) / 3000
assert grown < 60, sizes
"""
        + END,
        """
for n in range(4000):
    assert len(me.run(Lookup((f"acme.{n}", "acme.x" * 20)))) == 4
    assert len(me.run(JobControl((), (Info("acme.arg", Value(STRING, "x" * 300)),)))) == 4
me.run(Finalize())
""",
        90,
    )

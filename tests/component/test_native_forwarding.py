"""Output and input on the native engine: whole, in order, before and after the pull, to the end; nothing leaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lib import machine
from lib.native_programs import EVENTS, LEAKED, PRELUDE, environment
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.serving import ServerOptions
from pypmix.standard import attrs
from pypmix.standard.errors import PermissionDenied
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import IOFPull, IOFPush, Output
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(120)

HELPERS = """
WRITER, REFUSED = Proc("writer", 0), Proc("nobody", 0)
STDOUT, STDERR = 2, 4

class Read(list):
    def __init__(self):
        self.ends = []
    @property
    def text(self):
        return b"".join(piece.data for piece in self)

def pull(read, channels=STDOUT, procs=(WRITER,), run=True):
    op = IOFPull(procs, channels, (), read.append, read.ends.append)
    if run:
        return me.run(op)
    result, error = submitted(me, op)
    if error is not None:
        raise error
    return result

def write(data, run=True):
    # the host gives what it gets as input back as output
    op = IOFPush((WRITER,), data)
    if run:
        me.run(op)
    else:
        assert submitted(me, op) == (None, None)
"""

WRITER = Proc("writer", 0)
REFUSED = Proc("nobody", 0)


class Host:
    """Gives input back as output of the proc that it is for, by turns on two channels."""

    session: Any = None

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __call__(self, upcall: Any) -> None:
        op = upcall.op
        self.asked.append(op)
        if isinstance(op, IOFPull) and REFUSED in op.procs:
            upcall.fail(PermissionDenied("not that"))
            return
        upcall.reply(1 if isinstance(op, IOFPull) else None)
        if isinstance(op, IOFPush):
            for channel in (2, 4):
                self.session.deliver_output(Output(WRITER, channel, op.data, op.directives))
            if op.data == b"vanish":
                self.session.close()


@pytest.fixture(params=[lib.release for lib in machine.libraries()] or ["none"])
def client(request: pytest.FixtureRequest, tmp_path: Path):
    """Run code as the one client of a Python server, with each libpmix."""
    lib = machine.library(request.param)
    if lib is None or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")
    host = Host()
    host.session = session = ServerSession(host, ServerOptions(hostname="here"))
    proc = Proc("job", 0)
    node = (attrs.NODEID(0), attrs.HOSTNAME("here"), attrs.LOCAL_PEERS("0"), attrs.LOCAL_SIZE(1))
    session.register_nspace(
        JobInfo(
            "job",
            (attrs.JOB_SIZE(1), attrs.UNIV_SIZE(1), attrs.NUM_NODES(1), attrs.NODE_LIST("here")),
            nodes=(node,),
            procs=((0, (attrs.RANK(0), attrs.NODEID(0), attrs.HOSTNAME("here"))),),
        )
    )
    session.register_client(proc, os.getuid(), os.getgid())

    def run(code: str) -> Host:
        path = tmp_path / "program.py"
        path.write_text(PRELUDE + EVENTS + HELPERS + code)
        env = {**environment(PYPMIX_LIBPMIX=lib.path), **session.client_env(proc)}
        done = subprocess.run(
            [sys.executable, str(path)], env=env, timeout=90, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return host

    try:
        yield run
    finally:
        session.close()


def test_output_is_whole_and_in_order_and_goes_to_whom_it_concerns(client) -> None:
    host = client("""
out, err, both, other = Read(), Read(), Read(), Read()
ids = [pull(out), pull(err, STDERR, run=False), pull(both, STDOUT | STDERR), pull(other, procs=(Proc("x", 1),))]
assert len(set(ids)) == 4
pieces = [bytes([n]) * (n * 700 + 1) for n in range(40)]
for n, piece in enumerate(pieces):
    write(piece, n % 2 == 0)
all = b"".join(pieces)
until(lambda: len(both.text) == 2 * len(all) and len(out.text) == len(err.text) == len(all))
assert out.text == err.text == all and not other
assert {(piece.source, piece.channel) for piece in both} == {(WRITER, STDOUT), (WRITER, STDERR)}
# the end of the input, and of the output
write(b"")
until(lambda: out[-1].data == err[-1].data == b"")
# no more of that
me.run(IOFDeregister(ids[0]))
error = caught(NotFound, me.run, IOFDeregister(ids[0]))
assert error.operation == "iof_deregister"
assert isinstance(submitted(me, IOFDeregister(10**6))[1], NotFound)
assert submitted(me, IOFDeregister(ids[2])) == (None, None)
new = Read()
pull(new)
seen = len(out), len(both)
write(b"again")
until(lambda: err.text.endswith(b"again") and new.text == b"again")
assert (len(out), len(both)) == seen
caught(NotSupported, me.run, IOFPush((WRITER,), b"", (Info("pmix.iof.stdin", Value(BOOL, True)),)))
caught(PermissionDenied, pull, Read(), STDOUT, (REFUSED,))
caught(PermissionDenied, pull, Read(), STDOUT, (REFUSED,), False)
write(b"!")
until(lambda: new.text == b"again!")
me.run(Finalize())
me.close()
assert err.ends == new.ends == [None] and not out.ends and not both.ends
assert threading.enumerate() == [threading.main_thread()]
""")
    assert [len(op.data) for op in host.asked if isinstance(op, IOFPush)][:3] == [1, 701, 1401]


def test_a_watched_session_brings_output_in_poll(client) -> None:
    client("""
import select
me.attach()
out, ids = Read(), []
me.submit(IOFPull((WRITER,), STDOUT, (), out.append), lambda *outcome: ids.append(outcome))
def turn():
    assert select.select([me.fileno()], [], [], 10)[0]
    me.poll()
while not ids:
    turn()
me.submit(IOFPush((WRITER,), b"x" * 100_000), lambda *outcome: None)
while len(out.text) < 100_000:
    turn()
assert threading.enumerate() == [threading.main_thread()]
me.run(Finalize())
me.close()
""")


def test_more_than_anybody_reads_is_dropped_and_counted(client) -> None:
    """A program that does not get round to its event loop must not grow without a bound."""
    client("""
import logging, select
records = []
class Noted(logging.Handler):
    def emit(self, record):
        records.append(record)
logging.getLogger("pypmix.native").addHandler(Noted())
me.attach()
out, ids = Read(), []
me.submit(IOFPull((WRITER,), STDOUT, (), out.append), lambda *outcome: ids.append(outcome))
while not ids:
    select.select([me.fileno()], [], [], 10)
    me.poll()
size, count = 8 * 1024 * 1024, 12
for n in range(count):
    me.run(IOFPush((WRITER,), bytes([n]) * size))
time.sleep(1)
while len(out.text) < 7 * size:
    assert select.select([me.fileno()], [], [], 10)[0]
    me.poll()
assert len(out.text) <= 64 * 1024 * 1024 and out[-1].data[-1] == count - 1
assert len(records) == 1 and "dropped" in records[0].getMessage()
me.run(Finalize())
me.close()
""")


def test_the_loss_of_the_server(client) -> None:
    client("""
out = Read()
pull(out)
try:
    write(b"vanish")
except LostConnection:
    pass
until(lambda: out.ends)
assert isinstance(out.ends[0], LostConnection)
caught(LostConnection, pull, Read())
caught(LostConnection, write, b"x")
me.run(Finalize())
me.close()
assert len(out.ends) == 1
""")


def test_nothing_leaks(client) -> None:
    client(
        LEAKED
        + """
more = (Info("acme.x", Value(STRING, "y" * 3000)),)
out = Read()
pull(out)
def pushed():
    del out[:]
    me.run(IOFPush((WRITER,), b"x" * 3000, more))
    assert submitted(me, IOFPush((WRITER,), b"x" * 3000, more)) == (None, None)
    until(lambda: len(out.text) == 6000)
def pulled():
    me.run(IOFDeregister(me.run(IOFPull((WRITER,), STDERR, more, out.append))))
for work in (pushed, pulled):
    grown = leaked(work, 100)
    print(work.__name__, grown)
    assert grown < 2500, (work.__name__, grown)
me.run(Finalize())
"""
    )


def test_a_lone_process_has_no_output_of_others(tmp_path: Path) -> None:
    libraries = machine.libraries()
    if not libraries or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")
    path = tmp_path / "program.py"
    path.write_text(
        PRELUDE
        + HELPERS
        + """
assert not me.supports("output") and not me.supports("input")
caught(Unreachable, pull, Read())
caught(Unreachable, write, b"x")
me.run(Finalize())
"""
    )
    for lib in libraries:
        subprocess.run([sys.executable, str(path)], env=environment(PYPMIX_LIBPMIX=lib.path), timeout=40, check=True)

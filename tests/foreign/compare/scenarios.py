"""What clients do while the upcalls that result are recorded, and how a host answers: run alike on every server.

Each scenario is a function of one rank. It says what rank 0 makes the server ask for it, and what all ranks together
do, as the names of the operations in their order: this is what the Standard says, for all servers alike.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import pypmix
from pypmix import (
    AllocDirective,
    EventCode,
    IOFChannel,
    Persist,
    PMIxError,
    Proc,
    Query,
    Range,
    attrs,
)
from pypmix.standard import ops
from pypmix.types import info, uint32

LIMIT = 10


class Scenario(NamedTuple):
    """A scenario.

    Attributes:
        play: What a rank does; a scenario of a tool is handed the tool.
        size: The number of ranks in the job, of which the first two are the server's.
        asks: What is asked for rank 0 (or the tool) between its start and its end.
        together: What all ranks ask together.
        fails: Whether the host refuses whatever is asked.
        deadly: The exit codes that ranks may end with beside 0.
        tool: Whether a tool, and not the ranks, plays it.
    """

    play: Callable[..., None]
    size: int = 2
    asks: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    fails: bool = False
    deadly: tuple[int, ...] = ()
    tool: bool = False


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    asks: str = "", together: str = "", **options: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(play: Callable[..., None]) -> Callable[..., None]:
        SCENARIOS[play.__name__] = Scenario(play, asks=tuple(asks.split()), together=tuple(together.split()), **options)
        return play

    return add


def attempt(call: Callable[[], object]) -> None:
    """Do something that may fail; what matters is what the host was asked."""
    try:
        call()
    except PMIxError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


@scenario()
def coming_and_going(me):
    """A client connects and finalizes."""


@scenario("client_aborted client_aborted client_aborted")
def aborting(me):
    if me.rank == 0:
        me.abort(17, "all of us")
        me.abort(-3, "", [me.job[1]])
        me.abort(0, "héllo", [me.job[0], Proc("other", 2**32 - 2)])
    me.fence(timeout=LIMIT)


@scenario()
def fences_of_this_node(me):
    """A fence of local procs alone never reaches a host."""
    me.put("key", me.rank)
    me.fence(collect=True)
    me.fence(me.job.procs, timeout=LIMIT)
    me.fence([me.job[0], me.job[1]])


@scenario("", "fence fence fence fence", size=4)
def fences_across_nodes(me):
    me.fence()
    me.put("key", me.rank)
    me.commit()
    me.fence(collect=True)
    me.fence(collect=True, timeout=LIMIT)
    me.fence([me.job[0], me.job[1], me.job[3]], info={"acme.hint": uint32(7)})
    me.fence([me.job[0], me.job[1]])


@scenario("direct_modex direct_modex", size=4)
def direct_modex(me):
    if me.rank == 0:
        attempt(lambda: me.get("acme.key", me.job[2], timeout=LIMIT))
        attempt(lambda: me.get("acme.key", me.job[3], timeout=LIMIT, info={attrs.DATA_SCOPE: pypmix.Scope.REMOTE}))
        # What the server knows it does not ask anybody for.
        assert me.get(attrs.HOSTNAME, me.job[2]) == "elsewhere"


@scenario("", "group group group group")
def groups(me):
    for number, wanted in enumerate((False, True)):
        me.group(f"acme-{number}", me.job, context_id=wanted, timeout=LIMIT).construct()
        me.raw.group_destruct(f"acme-{number}", timeout=LIMIT)


@scenario("", "group group", size=4)
def groups_across_nodes(me):
    me.group("acme", [me.job[0], me.job[1], me.job[3]], context_id=True, info={"acme.hint": uint32(7)}).construct()
    me.raw.group_destruct("acme")


@scenario("", "connect disconnect connect disconnect")
def connections(me):
    me.connect(me.job)
    me.disconnect(me.job)
    me.connect([me.job[1], me.job[0]], timeout=LIMIT)
    me.disconnect([me.job[1], me.job[0]], timeout=LIMIT)


@scenario("", "connect disconnect connect disconnect", size=4)
def connections_across_nodes(me):
    me.connect(me.job)
    me.disconnect(me.job)
    some = [me.job[0], me.job[1], me.job[3]]
    me.connect(some, timeout=LIMIT, info={"acme.hint": uint32(7)})
    me.disconnect(some, timeout=LIMIT)


@scenario("publish publish publish lookup lookup lookup unpublish unpublish")
def publishing(me):
    if me.rank == 0:
        me.publish({"acme.one": uint32(1), "acme.two": ["a", "b"]})
        me.publish({"acme.three": 3}, data_range=Range.NAMESPACE, persist=Persist.FIRST_READ, timeout=LIMIT)
        me.publish({"acme.four": b""}, data_range=Range.CUSTOM, info={attrs.EVENT_CUSTOM_RANGE: me.job[1]})
        me.lookup("acme.one")
        me.lookup(["acme.one", "acme.two"], timeout=LIMIT, count=1, data_range=Range.LOCAL)
        attempt(lambda: me.lookup("acme.missing"))
        me.unpublish("acme.one", "acme.two", data_range=Range.SESSION)
        me.unpublish()
    me.fence(timeout=LIMIT)


@scenario("spawn spawn")
def spawning(me):
    if me.rank == 0:
        app = pypmix.types.App("prog", ("prog", "-x", ""), ("A=1", "B="), "/", 3, (info("acme.app", 1),))
        other = pypmix.types.App("other", ("other",), (), "/tmp", 1)
        me._run(ops.Spawn((app, other), (attrs.NOTIFY_COMPLETION(True), info("acme.job", "x"))))
        me._run(ops.Spawn((pypmix.types.App("prog", ("prog",), (), "/"),)))
    me.fence(timeout=LIMIT)


@scenario("query_info query_info")
def queries(me):
    if me.rank == 0:
        attempt(lambda: me.raw.query_info([Query(("acme.key", "acme.other"), (info("acme.qualifier", uint32(1)),))]))
        attempt(lambda: me.raw.query_info([Query(("acme.a",)), Query(("acme.b",), (attrs.NSPACE("demo"),))]))
    me.fence(timeout=LIMIT)


@scenario("log log")
def logs(me):
    if me.rank == 0:
        attempt(lambda: me._run(ops.Log((info("acme.log", "text"),), (attrs.TIMEOUT(LIMIT),))))
        attempt(
            lambda: me._run(
                ops.Log((info("acme.log", "a"), info("acme.log2", 2)), (attrs.LOG_GENERATE_TIMESTAMP(True),))
            )
        )
    me.fence(timeout=LIMIT)


@scenario("job_control job_control process_monitor process_monitor heartbeat allocation_request allocation_request")
def control(me):
    if me.rank == 0:
        attempt(lambda: me.control(me.job[1]).request(info={attrs.JOB_CTRL_SIGNAL: 10, attrs.JOB_CTRL_ID: "one"}))
        attempt(lambda: me.control(None).request(timeout=LIMIT, info={attrs.JOB_CTRL_PAUSE: True}))
        attempt(
            lambda: me.monitors.watch(
                attrs.MONITOR_HEARTBEAT(True), EventCode.MONITOR_HEARTBEAT_ALERT, info={attrs.MONITOR_HEARTBEAT_TIME: 5}
            )
        )
        attempt(
            lambda: me.monitors.watch(
                attrs.MONITOR_FILE("/file"), -4242, info={attrs.MONITOR_ID: "id", attrs.MONITOR_FILE_SIZE: True}
            )
        )
        me.monitors.send_heartbeat()
        attempt(lambda: me.allocate(AllocDirective.NEW, info={attrs.ALLOC_NUM_NODES: 2, "acme.hint": "x"}))
        attempt(lambda: me.allocate(AllocDirective.RELEASE, timeout=LIMIT, info={attrs.ALLOC_ID: "id"}))
    me.fence(timeout=LIMIT)


@scenario("get_credential get_credential validate_credential")
def credentials(me):
    if me.rank == 0:
        attempt(lambda: me._run(ops.GetCredential()))
        attempt(lambda: me._run(ops.GetCredential((attrs.CRED_TYPE("acme"), attrs.TIMEOUT(LIMIT)))))
        attempt(lambda: me._run(ops.ValidateCredential(b"acme\0credential", (info("acme.hint", 1),))))
    me.fence(timeout=LIMIT)


@scenario("", "register_events register_events deregister_events deregister_events")
def registrations(me):
    """Codes of what happens to the system, which it is the host's to tell."""
    if me.rank == 0:
        with me.events(EventCode.EVENT_NODE_DOWN, info={"acme.hint": uint32(7)}):
            with me.events(EventCode.EVENT_NODE_OFFLINE):
                pass
            me.fence(timeout=LIMIT)
    else:
        me.fence(timeout=LIMIT)
    # What is taken back is answered by nobody: something that is comes after it.
    me.fence(timeout=LIMIT)


@scenario("", "register_events register_events deregister_events deregister_events")
def registrations_of_other_codes(me):
    """Codes of jobs and applications, and all codes."""
    if me.rank == 0:
        with me.events(EventCode.custom(-4242)):
            everything = me.on()(lambda event: None)
            everything.remove()
    me.fence(timeout=LIMIT)


@scenario("notify_event notify_event notify_event notify_event")
def notifications(me):
    """Events of the node itself are nobody else's."""
    if me.rank == 0:
        for range in (Range.LOCAL, Range.PROC_LOCAL, Range.NAMESPACE, Range.SESSION, Range.GLOBAL):
            me.notify(-4242, data_range=range, info={"acme.load": 0.75})
        me.notify(-4243, targets=[me.job[1]])
    me.fence(timeout=LIMIT)


@scenario("notify_event")
def a_notification_for_the_host(me):
    if me.rank == 0:
        # Not every server answers that.
        me._session.submit(ops.NotifyEvent(-4242, Range.RM, (info("acme.load", 0.75),)), lambda _result, _error: None)
    me.fence(timeout=LIMIT)


@scenario("iof_pull iof_deregister iof_pull iof_deregister iof_push iof_push")
def forwarding(me):
    if me.rank == 0:
        with me.output(me.job[1]):
            pass
        with me.output(Proc("other", 2**32 - 2), channels=IOFChannel.STDERR):
            pass
        me.push_input([me.job[1]], b"some\0input")
        me.push_input([me.job[1]], b"")
    me.fence(timeout=LIMIT)


@scenario("fabric_register fabric_update")
def fabrics(me):
    if me.rank == 0:
        fabric: list[Any] = []
        attempt(lambda: fabric.append(me.fabric.register(info={attrs.FABRIC_PLANE: "acme"})))
        if fabric:
            attempt(lambda: me.fabric.update(fabric[0]))
    me.fence(timeout=LIMIT)


@scenario("publish lookup unpublish spawn query_info log job_control get_credential", "group", fails=True)
def refusals(me):
    """A host that refuses is asked once, and nothing follows from it."""
    if me.rank == 0:
        attempt(lambda: me.publish({"acme.one": 1}))
        attempt(lambda: me.lookup("acme.one"))
        attempt(lambda: me.unpublish("acme.one"))
        attempt(lambda: me._run(ops.Spawn((pypmix.types.App("prog", ("prog",), (), "/"),))))
        attempt(lambda: me.raw.query_info([Query(("acme.key",))]))
        attempt(lambda: me._run(ops.Log((info("acme.log", "text"),))))
        attempt(lambda: me.control(me.job[1]).request(info={attrs.JOB_CTRL_SIGNAL: 10}))
        attempt(lambda: me._run(ops.GetCredential()))
    attempt(lambda: me.group("acme", me.job, timeout=LIMIT).construct())
    me.fence(timeout=LIMIT)


@scenario("publish", deadly=(-signal.SIGKILL,))
def killed(me):
    """Rank 0 is killed, which the host of a server is told."""
    if me.rank == 0:
        me.publish({"acme.one": 1})
        os.kill(os.getpid(), signal.SIGKILL)


@scenario("query_info", tool=True)
def tool(me):
    attempt(lambda: me.raw.query_info([Query(("acme.key",))]))


def main(name: str) -> None:
    """Play a scenario in this process."""
    played = SCENARIOS[name]
    if played.tool:
        with pypmix.Tool(pid=int(os.environ["ACME_SERVER"]), tmpdir=os.environ["TMPDIR"]) as me:
            played.play(me)
    else:
        with pypmix.Client() as me:
            played.play(me)

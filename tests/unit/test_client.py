"""The sync and async clients turn calls into operations, errors into the right kind, and end as they should."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from lib.fake_session import FakeSession
from pypmix import (
    Client,
    NotFound,
    NotInitialized,
    OperationTimeout,
    PMIxError,
    Proc,
    Scope,
    Unreachable,
    Value,
    aio,
    attrs,
)
from pypmix import clientbase as client_module
from pypmix.engine import slurm
from pypmix.engine.groups.foreign import rules as groups
from pypmix.engine.native import quirks
from pypmix.engine.python import session as python
from pypmix.engine.python.session import OURS
from pypmix.engine.python.toolsession import RECONNECT
from pypmix.spawned import ChildJob
from pypmix.standard.features import FEATURES
from pypmix.standard.ops import Abort, Commit, Fence, Finalize, Get, Put
from pypmix.types import DataType, uint32

pytestmark = [pytest.mark.timeout(60), pytest.mark.anyio]

ALL = Proc("job", 0xFFFFFFFE)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    fake = FakeSession()
    monkeypatch.setattr(client_module, "open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session: FakeSession) -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_client_knows_who_it_is(me: Client, session: FakeSession) -> None:
    session.data[ALL, "pmix.job.size"] = uint32(3)
    session.data[me.proc, "pmix.hname"] = attrs.HOSTNAME("n0").value
    session.data[ALL, "pmix.lpeers"] = attrs.LOCAL_PEERS("0,2").value
    assert (me.nspace, me.rank, str(me.engine)) == ("job", 1, "fake 1.0")
    assert me.job.size == len(me.job) == 3
    assert me.job[2] == Proc("job", 2)
    assert list(me.job) == [Proc("job", rank) for rank in range(3)]
    assert me.node.hostname == "n0"
    assert me.node.local_procs == (Proc("job", 0), Proc("job", 2))
    with pytest.raises(IndexError, match="ranks 0 to 2"):
        me.job[3]


class Index:
    """An int of an array library: a number, but not an int to compare with."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Incomparable:
    """An object that refuses comparisons, as arrays do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


def test_a_job_is_a_collection_of_its_procs(me: Client, session: FakeSession) -> None:
    session.data[ALL, "pmix.job.size"] = uint32(3)
    assert me.job == me.job
    assert {me.job: 1}[me.job] == 1
    assert me.job != ChildJob(session, "other")  # type: ignore[arg-type]
    assert me.job != "job"
    assert (me.job[-1], me.job[1:]) == (Proc("job", 2), (Proc("job", 1), Proc("job", 2)))
    assert [2 in me.job, 3 in me.job, Proc("job", 2) in me.job, True in me.job] == [True, False, True, False]
    assert [Index(2) in me.job, Index(3) in me.job, Incomparable() in me.job] == [True, False, False]
    assert me.job[Index(2)] == Proc("job", Index(2)) == Proc("job", 2)  # type: ignore[call-overload]
    with pytest.raises(IndexError, match="ranks 0 to 2, not -4"):
        me.job[-4]
    assert repr(me.job) == "<Job job of 3>"
    session.data[Proc("other", ALL.rank), "pmix.job.size"] = uint32(2)
    assert repr(ChildJob(session, "other")) == "<ChildJob other of 2>"  # type: ignore[arg-type]


def test_a_key_of_the_job_is_found_without_the_job(me: Client, session: FakeSession) -> None:
    session.data[ALL, "pmix.job.size"] = uint32(3)
    session.answers[Get] = NotFound("a rank has none")
    session.run = lambda op: (
        session.data[ALL, op.key] if getattr(op, "proc", None) == ALL else FakeSession.run(session, op)
    )  # type: ignore[method-assign]
    assert me.get(attrs.JOB_SIZE) == 3


@pytest.mark.parametrize("form", [Client, aio.Client])
def test_an_engine_that_does_not_exist_is_refused_at_the_call(form: Any) -> None:
    with pytest.raises(ValueError, match="an engine is one of auto, python, native, or None, not 'foo'"):
        form(engine="foo")


def test_a_feature_that_does_not_exist_is_refused(me: Client) -> None:
    assert me.supports("fence.timeout") and not me.supports("fence")
    with pytest.raises(ValueError, match="no feature 'fence.timout'; did you mean 'fence.timeout'"):
        me.supports("fence.timout")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="FEATURES lists them"):
        me.supports("")  # type: ignore[arg-type]


async def test_an_attribute_to_await_may_be_called_first(session: FakeSession, anyio_backend: str) -> None:
    async def psets() -> dict[str, object]:
        return {"gpu": ()}

    async with aio.Client() as me:
        me._psets = psets  # type: ignore[method-assign, assignment]
        assert await me.psets == {"gpu": ()} == await me.psets()


def test_engines_tell_of_features_that_exist() -> None:
    told = {*python.FEATURES, *python._LONE, *quirks.FEATURES, *quirks.NOT_ALONE, *slurm.LACKS, *groups.FEATURES, *OURS}
    assert told | {RECONNECT} == FEATURES.keys()


def test_a_fence_commits_what_was_put_once(me: Client, session: FakeSession) -> None:
    me.put("k", 1, scope=Scope.LOCAL)
    me.fence(collect=True, timeout=1.5)
    me.fence([Proc("job", 0), me.proc])
    kinds = [type(op) for op in session.ops]
    assert kinds == [Put, Commit, Fence, Fence]
    assert session.ops[2] == Fence((), True, (attrs.TIMEOUT(2),))
    assert session.ops[3].procs == (Proc("job", 0), Proc("job", 1))
    me.put("k", 2)
    me.fence(commit=False)
    assert type(session.ops[-1]) is Fence
    assert type(session.ops[-2]) is Put


def test_get_looks_here_first(me: Client, session: FakeSession) -> None:
    session.data[Proc("job", 0), "k"] = uint32(5)
    assert me.get("k", Proc("job", 0)) == 5
    assert session.ops == []
    assert me.get("k", Proc("job", 0), scope=Scope.LOCAL, timeout=3) == 5
    assert session.ops == [Get(Proc("job", 0), "k", (attrs.TIMEOUT(3), attrs.DATA_SCOPE(Scope.LOCAL)))]


def test_get_takes_a_rank_or_a_job_as_well(me: Client, session: FakeSession) -> None:
    session.data[Proc("job", 0), "k"] = uint32(5)
    session.data[ALL, "pmix.job.size"] = uint32(3)
    assert me.get("k", 0) == 5
    assert me.get(attrs.JOB_SIZE, me.job) == 3
    assert session.ops == []
    assert me.raw.get(Proc("job", 0), "k") == uint32(5)
    assert me.raw.get(ALL, attrs.JOB_SIZE.key) == uint32(3)
    assert [op.proc for op in session.ops] == [Proc("job", 0), ALL]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda me: me.get("k", "job"), "a Proc, a rank of the caller's job, or a Job, not str"),
        (lambda me: me.get("k", True), "not bool"),
        (lambda me: me.put("k", 1, scope="local"), "a Scope is expected, such as Scope.LOCAL, not 'local'"),
        (lambda me: me.get("k", scope="local"), "a Scope is expected"),
        (lambda me: me.job["x"], "a job's procs are found by rank, an int, not str"),
    ],
)
def test_errors_name_what_is_taken(me: Client, session: FakeSession, call: Callable[[Client], Any], says: str) -> None:
    session.data[ALL, "pmix.job.size"] = uint32(3)
    with pytest.raises(TypeError, match=says):
        call(me)
    assert session.ops == []


def test_a_key_is_deleted_with_the_value_none(me: Client, session: FakeSession) -> None:
    me.put("k", None, scope=Scope.DEL_GLOBAL)
    assert session.ops == [Put("k", Value(DataType.UNDEF, None), 7)]
    with pytest.raises(TypeError, match="deleted with the value None"):
        me.put("k", 1, scope=Scope.DEL_LOCAL)
    with pytest.raises(TypeError, match="NoneType"):
        me.put("k", None)


def test_a_timeout_says_how_long_a_get_may_take(me: Client, session: FakeSession) -> None:
    session.answers[Get] = NotFound("nobody has it")
    for timeout, directives in [(None, ()), (0, (attrs.IMMEDIATE(True),)), (0.2, (attrs.TIMEOUT(1),))]:
        assert me.get("k", timeout=timeout, default="d") == "d"
        assert session.ops[-1].directives == directives
    assert me.get("k", optional=True, default=None) is None
    assert session.ops[-1].directives == (attrs.OPTIONAL(True),)
    for bad in (-1, "5", 2**40, True, False):
        with pytest.raises((TypeError, ValueError)):
            me.get("k", timeout=bad)  # type: ignore[arg-type]


def test_a_server_that_gives_up_means_not_found_unless_waiting_was_asked_for(me: Client, session: FakeSession) -> None:
    session.answers[Get] = OperationTimeout("2 s are over", operation="get")
    with pytest.raises(NotFound, match="gave up waiting"):
        me.get("k")
    assert me.get("k", default=7) == 7
    with pytest.raises(OperationTimeout):
        me.get("k", timeout=1, default=7)


def test_bad_arguments_fail_at_the_call_and_nothing_is_asked(me: Client, session: FakeSession) -> None:
    for call in (
        lambda: me.put("k" * 600, 1),
        lambda: me.put("k", object()),
        lambda: me.put("k", 2**70),
        lambda: me.fence("job"),  # type: ignore[arg-type]
        lambda: me.fence([]),
        lambda: me.fence(timeout=0),
        lambda: me.get(""),
        lambda: me.get("k", "job"),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call()
    assert session.ops == []


def test_leaving_finalizes_once(session: FakeSession) -> None:
    with Client() as me:
        me.close(info={attrs.EMBED_BARRIER: True})
        me.close()
    assert (session.ops, session.closed) == ([Finalize((attrs.EMBED_BARRIER(True),))], 1)
    me.close()
    assert session.closed == 1
    for use in (lambda: me.put("k", 1), lambda: me.get("k"), lambda: me.fence(), lambda: me.rank):
        with pytest.raises(NotInitialized, match="closed"):
            use()


def test_a_client_that_was_never_opened_says_so() -> None:
    with pytest.raises(NotInitialized, match="not open.*with Client"):
        Client().put("k", 1)


def test_an_exception_finalizes_and_aborts_if_asked(session: FakeSession) -> None:
    with pytest.raises(ZeroDivisionError), Client():
        raise ZeroDivisionError
    assert session.ops == [Finalize()]
    with pytest.raises(ZeroDivisionError), Client(abort_on_error=True):
        raise ZeroDivisionError("by zero")
    assert session.ops[1:] == [Abort(-1, "ZeroDivisionError: by zero"), Finalize()]
    session.answers[Finalize] = PMIxError("gone")
    with pytest.raises(ZeroDivisionError), Client():
        raise ZeroDivisionError
    del session.answers[Finalize]
    session.ops.clear()
    with pytest.raises(SystemExit), Client(abort_on_error=True):
        raise SystemExit(0)
    assert session.ops == [Finalize()]


def test_a_failed_finalize_still_closes(session: FakeSession) -> None:
    session.answers[Finalize] = PMIxError("gone")
    with pytest.raises(PMIxError, match="gone"), Client():
        pass
    assert session.closed == 1


@pytest.mark.parametrize(("wanted", "singleton", "works"), [
    ("allow", True, True), ("allow", False, True), ("require", True, True), ("require", False, False),
    ("forbid", True, False), ("forbid", False, True),
])  # fmt: skip
def test_singletons_are_allowed_required_or_forbidden(
    session: FakeSession, wanted: str, singleton: bool, works: bool
) -> None:
    session.singleton = singleton
    if works:
        assert Client(singleton=wanted).open().singleton == singleton
    else:
        with pytest.raises(Unreachable, match="singleton="):
            Client(singleton=wanted).open()
        assert session.closed == 1
    with pytest.raises(ValueError, match="allow, require, forbid"):
        Client(singleton="maybe")


async def test_the_async_client_does_the_same(session: FakeSession) -> None:
    session.data[Proc("job", 0), "k"] = uint32(5)
    async with aio.Client() as me:
        assert session.watched == 1
        await me.put("k", 1)
        await me.fence(collect=True)
        assert await me.get("k", Proc("job", 0)) == 5
        assert await me.get("k", Proc("job", 0), timeout=1) == 5
        session.answers[Get] = OperationTimeout("over")
        assert await me.get("k", default=None) is None
        with pytest.raises(OperationTimeout):
            await me.get("k", timeout=1)
    assert [type(op) for op in session.ops] == [Put, Commit, Fence, Get, Get, Get, Finalize]
    assert (session.closed, session.watched) == (1, 0)
    for call in (me.fence, me.commit, me.abort):
        with pytest.raises(NotInitialized):
            await call()


async def test_many_tasks_wait_at_once_and_none_is_forgotten(session: FakeSession) -> None:
    done: list[int] = []

    async def fence(me: aio.Client, number: int) -> None:
        await me.fence([Proc("job", number)])
        done.append(number)

    def settle_on_another_thread() -> None:
        thread = threading.Thread(target=lambda: [session.settle() for _ in range(20)])
        thread.start()
        thread.join()

    async with aio.Client() as me:
        session.hold = True
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(fence, me, number)
                await anyio.wait_all_tasks_blocked()
                settle_on_another_thread()
        assert sorted(done) == list(range(20))
        session.hold = False


async def test_a_cancelled_reader_hands_over(session: FakeSession) -> None:
    ended: list[str] = []

    async with aio.Client() as me:
        session.hold = True

        async def cancelled() -> None:
            with anyio.move_on_after(0.05):
                await me.fence([Proc("job", 1)])
            ended.append("cancelled")

        async def waiting() -> None:
            await me.fence([Proc("job", 2)])
            ended.append("waited")

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancelled)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(waiting)
                while ended != ["cancelled"]:
                    await anyio.sleep(0.01)
                session.settle(1)
        assert ended == ["cancelled", "waited"]
        session.settle(0)  # the late answer of the cancelled one harms nobody
        session.hold = False


async def test_the_loop_runs_on_while_a_call_waits(session: FakeSession) -> None:
    ticks = 0
    async with aio.Client() as me:
        session.hold = True
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(me.fence)
                for _ in range(10):
                    await anyio.sleep(0.005)
                    ticks += 1
                session.settle()
        session.hold = False
    assert ticks == 10


def test_ranks_stand_for_procs_of_the_job(me: Client, session: FakeSession) -> None:
    peers = (Proc("job", 0), Proc("job", 2))
    for given in ([0, 2], (0, peers[1]), range(0, 3, 2), iter([0, 2])):
        me.fence(given)
        assert session.ops[-1].procs == peers
    me.fence(2)
    assert session.ops[-1].procs == (peers[1],)
    me.abort(1, "", [2])
    assert session.ops[-1].procs == (peers[1],)
    me.control([0, 2]).kill()
    assert session.ops[-1].targets == peers
    with pytest.raises(TypeError):
        me.fence([True])
    with pytest.raises(TypeError, match="procs are a Proc, a rank, a job, or several of these, not True"):
        me.fence(True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not the string"):
        me.fence("job")  # type: ignore[arg-type]


def test_timeout_is_the_word_for_every_time_limit(me: Client, session: FakeSession) -> None:
    session.data[me.proc, "k"] = uint32(3)
    for call in (me.get, me.lookup):
        with pytest.raises(TypeError, match="both 'timeout' and its former name 'wait'"):
            call("k", timeout=1, wait=2)  # type: ignore[operator]
    session.answers[Get] = uint32(4)
    assert me.get("other", timeout=3) == 4
    assert attrs.TIMEOUT(3) in session.ops[-1].directives


def test_clients_and_jobs_say_why_they_are_not_pickled(me: Client, session: FakeSession) -> None:
    session.data[ALL, "pmix.job.size"] = uint32(2)
    with pytest.raises(TypeError, match=r"a Client cannot be pickled: .*send `me.proc` or `me.job.procs`"):
        pickle.dumps(me)
    with pytest.raises(TypeError, match=r"a Job cannot be pickled: .*`job.procs`"):
        pickle.dumps(me.job)
    assert pickle.loads(pickle.dumps(me.job.procs)) == me.job.procs


def test_an_async_client_in_a_blocking_with_block_says_what_to_write() -> None:
    with pytest.raises(TypeError, match="use `async with aio.Client"), aio.Client():  # type: ignore[attr-defined]
        pass

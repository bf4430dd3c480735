"""Which workers of Dask and actors of Ray become nodes, with clusters that are made up."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from pypmix.host.placing import NodeRequest
from pypmix.standard.errors import PMIxError

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client, get_client=None))  # type: ignore[arg-type]
    yield from _imported("pypmix.dask.workers")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in ("ray", "ray.util", "ray.util.client", "ray.util.scheduling_strategies"):
        monkeypatch.setitem(sys.modules, name, Ray)  # type: ignore[arg-type]
    yield from _imported("pypmix.ray")


def _imported(name: str) -> Iterator[ModuleType]:
    sys.modules.pop(name, None)
    yield importlib.import_module(name)
    del sys.modules[name]


class Client:
    """A client of Dask, with workers in which nothing runs.

    Attributes:
        calls: What was asked of workers.
        keys: The agents that were asked, and the directories of their workers.
        answering: Wait for this before a worker says what it is.
    """

    asynchronous = False
    status = "running"
    cluster: Any = None
    id = "Client-1"

    def __init__(self, *names: str | int) -> None:
        self.known = {
            f"tcp://10.0.0.{place}:9000": {"name": name, "nthreads": 2, "local_directory": f"/tmp/{name}"}
            for place, name in enumerate(names, 1)
        }
        self.calls: list[tuple[str, Any]] = []
        self.keys: list[tuple[str, str]] = []
        self.answering = threading.Event()
        self.answering.set()

        self.scheduler = SimpleNamespace(identity=lambda n_workers: {"workers": dict(self.known)})

    def sync(self, function: Any, *given: Any, callback_timeout: float, **options: Any) -> Any:
        return function(*given, **options)

    def run(
        self,
        _function: Any,
        key: str,
        method: str,
        given: Any,
        workers: list[str],
        client: str = "",
        directory: str = "",
        on_error: str = "",
    ) -> Any:
        self.answering.wait(30)
        self.calls.append((method, given))
        self.keys.append((key, directory))
        if method == "wait":
            assert on_error == "return"
            return dict.fromkeys(workers, OSError("the worker is lost"))
        return dict.fromkeys(workers, "n")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["n", "n-2", "n-3"]),
        ({"n": 2}, ["n", "n-2"]),
        ({"workers": [0, "tcp://10.0.0.2:9000"]}, ["n", "n-2"]),
        ({"workers": ["10.0.0.3"], "slots": 5}, ["n"]),
    ],
)
def test_workers_are_chosen_by_name_number_and_address(
    dask: ModuleType, given: dict[str, Any], found: list[str]
) -> None:
    nodes = dask.nodes(Client(0, 1, 2), **given)
    assert [node.name for node in nodes.nodes] == found
    assert {node.slots for node in nodes.nodes} == {given.get("slots", 2)}


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"n": 0}, ValueError, "n is at least 1, not 0"),
        ({"n": -1}, ValueError, "n is at least 1, not -1"),
        ({"n": "2"}, TypeError, "n is a whole number"),
        ({"slots": 0}, ValueError, "slots is at least 1, not 0"),
        ({"n": 4}, PMIxError, "the cluster has 3 of the 4 workers that are needed"),
        ({"workers": "w1"}, TypeError, "a list of names or addresses, not 'w1'"),
        ({"workers": 0}, TypeError, "a list of names or addresses, not 0"),
        ({"workers": []}, PMIxError, "the cluster has 0 of the 1 workers that are needed"),
        ({"workers": ["nosuch"]}, PMIxError, "the cluster has no worker nosuch"),
        # One machine has two of them.
        ({"workers": ["10.0.0.1", "w1", "w9"]}, PMIxError, "the cluster has no worker w9"),
    ],
)
def test_workers_that_there_are_not(dask: ModuleType, given: dict[str, Any], error: type[Exception], text: str) -> None:
    client = Client("w1", "w2", "w3")
    with pytest.raises(error, match=text):
        dask.nodes(client, **given)
    assert not client.calls


def test_an_asynchronous_client_is_refused(dask: ModuleType) -> None:
    client = Client("w1")
    client.asynchronous = True
    with pytest.raises(PMIxError, match="asynchronous"):
        dask.nodes(client)


def test_a_client_is_connected_before_it_is_asked_for_workers(
    dask: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tasks that ask for the client of their worker at a time, the second one is given it early."""
    client = Client()
    client.status = "connecting"

    def connected(_seconds: float) -> None:
        client.known, client.status = Client("w1").known, "running"

    monkeypatch.setattr(dask.time, "sleep", connected)
    assert len(dask.nodes(client).nodes) == 1
    client.status = "closed"
    with pytest.raises(PMIxError, match="no connection with its scheduler: it is closed"):
        dask.nodes(client)
    with pytest.raises(TypeError, match="not 'tcp://10.0.0.1:8786'"):
        dask.nodes("tcp://10.0.0.1:8786")


def test_two_requests_at_a_time_get_different_workers(dask: ModuleType) -> None:
    """And what joins by itself is neither of them: the daemon of a second node would end the first one's."""
    client = Client("w1")
    engine = dask._Dask(client, None, True)
    engine.make_nodes(dict(engine.workers()))
    client.known |= Client("w1", "w2", "w3", "w4").known
    client.answering.clear()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.extend(engine.more(NodeRequest(nodes=1)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    client.answering.set()
    for thread in threads:
        thread.join(30)
    found += engine.joined()
    assert sorted(node.name for node in found) == ["n-2", "n-3", "n-4"]
    assert len(set(engine._workers.values())) == 4


def test_a_worker_that_is_started_again_at_its_address_is_another_node(dask: ModuleType) -> None:
    client = Client("w1", "w2")
    engine = dask._Dask(client, None, True)
    engine.make_nodes(dict(engine.workers()))
    with pytest.raises(OSError, match="lost"):
        engine.call("n-2", "wait")
    # The scheduler has not noticed it yet.
    assert engine.joined() == []
    with pytest.raises(PMIxError, match=r"too few workers \(missing: 1\)"):
        engine.more(NodeRequest(nodes=1))
    client.known["tcp://10.0.0.2:9000"]["local_directory"] = "/tmp/again"
    assert [node.name for node in engine.joined()] == ["n-3"]
    assert engine.joined() == []


def test_a_call_of_a_lost_worker_does_not_come_to_the_next_one_at_its_address(dask: ModuleType) -> None:
    """Dask dials an address for 30 s: the daemon of the new node was killed in place of the old one's."""
    client = Client("w1")
    engine = dask._Dask(client, None, True)
    engine.make_nodes(dict(engine.workers()))
    with pytest.raises(OSError, match="lost"):
        engine.call("n", "wait")
    client.known["tcp://10.0.0.1:9000"]["local_directory"] = "/tmp/again"
    assert [node.name for node in engine.joined()] == ["n-2"]
    client.keys.clear()
    engine.call("n-2", "begin")
    engine.call("n", "stop")
    (new, its), (old, others) = client.keys
    assert (its, others) == ("/tmp/again", "/tmp/w1") and new != old

    worker = SimpleNamespace(handlers={}, scheduler=Scheduler((ADDED,)), local_directory=its)
    with pytest.raises(PMIxError, match="another one was started at its address"):
        asyncio.run(dask._call(old, "stop", dask._Hidden(), client="c", directory=others, dask_worker=worker))
    assert not dask._agents and not dask._watches


def test_a_worker_that_was_started_again_before_anybody_missed_it_is_the_same_node(dask: ModuleType) -> None:
    client = Client("w1")
    engine = dask._Dask(client, None, True)
    engine.make_nodes(dict(engine.workers()))
    client.known["tcp://10.0.0.1:9000"]["local_directory"] = "/tmp/again"
    assert engine.joined() == []


class Cluster:
    """A cluster that starts workers, as far as it has room."""

    def __init__(self, client: Client, room: int) -> None:
        self.client, self.room = client, room
        self.asked: list[int] = []
        self.ended: list[Any] = []
        self.gone = threading.Event()

    def scale(self, count: int) -> None:
        self.asked.append(count)
        self.client.known |= Client(*[f"w{place}" for place in range(1, min(count, self.room) + 1)]).known

    def scale_down(self, names: list[Any]) -> None:
        self.ended += names
        self.gone.set()

    def sync(self, function: Any, *given: Any) -> None:
        function(*given)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (NodeRequest(nodes=2), 3),
        (NodeRequest(cpus=5), 4),
        (NodeRequest(nodes=1, cpus=4), 3),
        (NodeRequest(nodes=3, cpus=2), 4),
    ],
)
def test_a_cluster_starts_the_workers_that_it_lacks_and_ends_them(
    dask: ModuleType, wanted: NodeRequest, count: int
) -> None:
    client = Client("w1")
    client.cluster = cluster = Cluster(client, 9)
    engine = dask._Dask(client, None, False)
    (first,) = engine.make_nodes(dict(engine.workers()))
    made = engine.more(wanted)
    assert cluster.asked == [count] and len(made) == count - 1
    engine.release(first)
    engine.release(made[0])
    assert cluster.gone.wait(30) and cluster.ended == ["w2"], "one that was there before stays"


def test_a_worker_that_was_there_is_not_ended_with_one_that_was_started(dask: ModuleType) -> None:
    client = Client("w1", "w2")
    client.cluster = cluster = Cluster(client, 9)
    engine = dask._Dask(client, None, False)
    engine.make_nodes(dict(list(engine.workers().items())[:1]))
    for node in engine.more(NodeRequest(nodes=2)):
        engine.release(node)
    assert cluster.gone.wait(30) and cluster.ended == ["w3"]


def test_a_worker_that_was_started_is_taken_though_another_one_is_given_back_meanwhile(
    dask: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would end it otherwise."""
    client = Client("w1", "w2")
    client.cluster = cluster = Cluster(client, 2)
    engine = dask._Dask(client, None, False)
    first, _ = engine.make_nodes(dict(engine.workers()))

    def given_back(_seconds: float) -> None:
        engine.release(first)
        cluster.room = 9
        cluster.scale(cluster.asked.pop())

    monkeypatch.setattr(dask.time, "sleep", given_back)
    (more,) = engine.more(NodeRequest(nodes=1))
    assert engine._workers[more.name][0] == "tcp://10.0.0.3:9000"
    engine.close()
    assert cluster.ended == ["w3"]


def test_a_worker_that_is_about_to_end_is_neither_taken_nor_counted(dask: ModuleType) -> None:
    client = Client("w1")
    client.cluster = cluster = Cluster(client, 9)
    engine = dask._Dask(client, None, False)
    engine.make_nodes(dict(engine.workers()))
    (first,) = engine.more(NodeRequest(nodes=1))
    cluster.plan = {"w1"}  # type: ignore[attr-defined]
    engine.release(first)
    assert cluster.gone.wait(30)
    cluster.room = 0
    with pytest.MonkeyPatch.context() as patch, pytest.raises(PMIxError, match="started none"):
        patch.setattr(dask, "START_SECONDS", 0.3)
        engine.more(NodeRequest(nodes=1))
    assert cluster.asked == [2, 2, 1]


def test_a_worker_that_cannot_be_ended_is_logged(dask: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    client = Client("w1")
    client.cluster = cluster = Cluster(client, 9)
    engine = dask._Dask(client, None, False)
    engine.make_nodes(dict(engine.workers()))
    engine.more(NodeRequest(nodes=1))
    cluster.sync = None  # type: ignore[assignment,method-assign]
    engine.close()
    assert "could not be stopped: 'NoneType' object is not callable" in caplog.text


def test_a_cluster_that_starts_too_few_is_as_large_as_before(dask: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "START_SECONDS", 0.3)
    client = Client("w1")
    engine = dask._Dask(client, None, False)
    engine.make_nodes(dict(engine.workers()))
    with pytest.raises(PMIxError, match=r"too few workers \(missing: 1\)"):
        engine.more(NodeRequest(nodes=1))
    client.cluster = cluster = Cluster(client, 2)
    with pytest.raises(PMIxError, match="started none in"):
        engine.more(NodeRequest(nodes=2))
    assert cluster.asked == [3, 1]
    with pytest.raises(PMIxError, match=r"too few workers \(missing: 1\)"):
        engine.more(NodeRequest((("w7", 0),)))


def test_dask_logs_no_argument_of_a_call(dask: ModuleType) -> None:
    client = Client("w1")
    engine = dask._Dask(client, None, True)
    engine.make_nodes(dict(engine.workers()))
    engine.call("n", "begin", b"the secret", None)
    (_, given) = client.calls[-1]
    assert given.arguments == (b"the secret", None) and "secret" not in repr(given)


ADDED, REMOVED = ((1.0, {"action": f"{what}-client", "client": "c"}) for what in ("add", "remove"))
NOTE = (1.0, "what the client has noted itself")


class Scheduler:
    """A scheduler that is asked what it has noted of a client: each answer once, and then the last one."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def events(self, topic: str) -> Any:
        self.asked.append(topic)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Daemon:
    """The agent of a daemon that runs until it is told to leave.

    Attributes:
        rounds: What was done with it.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.idle = True
        self.rounds: list[str] = []
        self.left = threading.Event()

    def begin(self) -> None:
        self.rounds.append("begin")
        self.idle = False

    def wait(self) -> None:
        self.rounds.append("wait")
        self.left.wait(30)
        self.idle = True

    def leave(self) -> None:
        self.rounds.append("leave")
        self.left.set()


def _daemon(dask: ModuleType, monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler, waits: bool, ends: bool) -> Any:
    """Have a daemon run in a worker, until all that belongs to it has ended or the scheduler was asked ten times."""
    made: list[Daemon] = []

    def agent() -> Daemon:
        made.append(Daemon())
        return made[-1]

    monkeypatch.setattr(dask, "Agent", agent)
    monkeypatch.setattr(dask, "CLIENT_SECONDS", 0.001)
    worker = SimpleNamespace(handlers={}, scheduler=scheduler)

    async def serve() -> None:
        async def call(method: str) -> None:
            await dask._call("key", method, dask._Hidden(), client="c", dask_worker=worker)

        await call("begin")
        waiting = asyncio.ensure_future(call("wait")) if waits else None
        while dask._watches and len(scheduler.asked) < 10:
            await asyncio.sleep(0.001)
        if ends:
            assert made[0].rounds == ["begin", "wait"]
            made[0].left.set()
        if waiting is not None:
            await waiting
        while dask._watches:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(serve(), 30))
    assert not dask._agents and set(scheduler.asked) == {"c"}
    return made[0]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    "gone", [(ADDED, REMOVED), (), (ADDED, REMOVED, ADDED, NOTE, REMOVED)], ids=["removed", "forgotten", "again"]
)
def test_a_daemon_leaves_when_its_client_has_gone(
    dask: ModuleType, monkeypatch: pytest.MonkeyPatch, waits: bool, gone: Any
) -> None:
    """Though its launcher has said before that it is away, and whether anybody has waited for the daemon or not."""
    scheduler = Scheduler((ADDED,), OSError("no answer"), gone)
    daemon = _daemon(dask, monkeypatch, scheduler, waits, False)
    assert daemon.rounds in (["begin", "wait", "leave"], ["begin", "leave", "wait"])
    assert len(scheduler.asked) == 4


@pytest.mark.parametrize(
    "there",
    [[(ADDED,)], [(ADDED, REMOVED, ADDED)], [(NOTE,)], [OSError()], [(ADDED, REMOVED), (ADDED,)] * 9],
    ids=["there", "back", "notes", "silence", "flapping"],
)
def test_a_daemon_stays_while_its_client_is_there(
    dask: ModuleType, monkeypatch: pytest.MonkeyPatch, there: list[Any]
) -> None:
    """Or may be, as far as the scheduler says; and nothing is asked any more when the daemon has ended."""
    assert "leave" not in _daemon(dask, monkeypatch, Scheduler(*there), True, True).rounds


class _Actor:
    """An actor of Ray, as far as it is asked what it is."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.hostname = SimpleNamespace(remote=lambda: "n")
        self.address = SimpleNamespace(remote=lambda: "10.0.0.1")


class Ray(SimpleNamespace):
    """Ray, and its modules."""

    class ray:
        """Ray's client, as `ray.util.client` has it."""

        @staticmethod
        def is_connected() -> bool:
            return False

    class Group:
        def __init__(self, bundles: Any, strategy: str) -> None:
            Ray.groups.append(self)

        def wait(self, _timeout: float) -> bool:
            Ray.reserving()
            return len(Ray.groups) <= Ray.room

    groups: ClassVar[list[Any]] = []
    killed: ClassVar[list[_Actor]] = []
    room = 9
    initialized = True
    placement_group = Group
    exceptions = SimpleNamespace(RayError=RuntimeError, RayTaskError=KeyError)
    NodeAffinitySchedulingStrategy = None

    @staticmethod
    def reserving() -> None: ...

    @staticmethod
    def is_initialized() -> bool:
        return Ray.initialized

    @staticmethod
    def PlacementGroupSchedulingStrategy(group: Any, _bundle: int) -> Any:
        return group

    @staticmethod
    def remote(_kind: type) -> Any:
        def options(scheduling_strategy: Any, **_others: Any) -> Any:
            return SimpleNamespace(remote=lambda *_: _Actor(scheduling_strategy))

        return SimpleNamespace(options=options)

    @staticmethod
    def get(answers: Any, timeout: float) -> Any:
        return answers

    @staticmethod
    def kill(actor: _Actor) -> None:
        Ray.killed.append(actor)

    @staticmethod
    def remove_placement_group(group: Any) -> None:
        Ray.groups.remove(group)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda module: module.nodes(0), ValueError),
        (lambda module: module.nodes(2, num_cpus=0), ValueError),
        (lambda module: module.nodes(2, num_cpus=0.5), TypeError),
        (lambda module: module.world(0), ValueError),
        (lambda module: module.world(2.5), TypeError),
        (lambda module: module.world([]), ValueError),
    ],
)
def test_numbers_of_actors_that_there_cannot_be(ray: ModuleType, call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(ray)
    assert not Ray.groups


def test_each_further_actor_goes_with_its_own_reservation(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though two requests are under way at a time, and one has no room."""
    engine = ray._Ray(1, {"resources": {}}, "SPREAD", 1.0)
    monkeypatch.setattr(Ray, "killed", [])
    monkeypatch.setattr(Ray, "groups", [])
    both = threading.Barrier(2)
    monkeypatch.setattr(Ray, "reserving", both.wait)
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.extend(engine.more(NodeRequest(nodes=1)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(node.name for node in made) == ["n", "n-2"]
    actors = dict(engine._by_name)
    monkeypatch.setattr(Ray, "reserving", lambda: None)
    monkeypatch.setattr(Ray, "room", 3)
    with pytest.raises(PMIxError, match="Ray has no room"):
        engine.more(NodeRequest(nodes=2))
    # All of them, or none: the one that was there is given back.
    assert len(Ray.groups) == 2 and len(Ray.killed) == 1
    for node in made:
        engine.release(node)
        assert Ray.killed[-1] is actors[node.name]
        assert actors[node.name].group not in Ray.groups
    assert not Ray.groups
    engine.close()
    assert len(Ray.killed) == 3


def test_nothing_is_asked_of_ray_once_it_has_been_shut_down(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would start a cluster on this machine for that."""
    monkeypatch.setattr(Ray, "killed", [])
    monkeypatch.setattr(Ray, "groups", [])
    with ray.nodes(2) as nodes:
        monkeypatch.setattr(Ray, "initialized", False)
        with pytest.raises(PMIxError, match="Ray has been shut down"):
            nodes._engine.call("n", "hostname")
    assert not Ray.killed and len(Ray.groups) == 1


def test_actors_of_another_session_of_ray_have_ended(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_actor: Any) -> None:
        raise Ray.exceptions.RayError

    monkeypatch.setattr(Ray, "groups", [])
    with ray.nodes(2):
        monkeypatch.setattr(Ray, "kill", unknown)
    assert not Ray.groups


def test_a_placement_group_has_too_few_bundles(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ray, "groups", [])
    group = SimpleNamespace(bundle_count=2, wait=lambda _timeout: True)
    with pytest.raises(PMIxError, match="has only 2 bundles, not 3"):
        ray.nodes(3, placement_group=group)
    assert len(ray.nodes(placement_group=group).nodes) == 2


def test_a_cluster_of_ray_that_is_not_there(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ray, "nodes", lambda: [{"Alive": True, "Resources": {}}], raising=False)
    with pytest.raises(PMIxError, match="no node of Ray has CPUs"):
        ray.nodes()
    monkeypatch.setattr(Ray, "initialized", False)
    with pytest.raises(PMIxError, match="no Ray yet"):
        ray.nodes()

"""Proves the rules of a host's directory: who finds what, for how long, and when a waiting lookup is answered."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.steps import count_steps
from pypmix import Persist, Range, attrs
from pypmix.host.publisheddata import Caller, Directory
from pypmix.standard import codes
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PermissionDenied, PMIxError
from pypmix.standard.limits import Limits
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.types import array, info, uint32

DUPLICATE, BAD_PARAM, FULL = -53, -27, -29


class World:
    """A directory on virtual time, and what its lookups were answered."""

    class Timer:
        def __init__(self, due, function):
            self.due, self.function = due, function

        def cancel(self):
            self.function = None

    def __init__(self):
        self.time = 0.0
        self.timers = []
        self.directory = Directory(self.later)

    def later(self, delay, function):
        self.timers.append(self.Timer(self.time + delay, function))
        return self.timers[-1]

    def advance(self, seconds):
        self.time += seconds
        for timer in [timer for timer in self.timers if timer.due <= self.time]:
            self.timers.remove(timer)
            if timer.function:
                timer.function()

    def publish(self, who, *keys, value=1, range=Range.SESSION, persist=Persist.APP, directives=()):
        infos = tuple(info(key, value) for key in keys)
        self.directory.publish(who, Publish(infos, range, persist, tuple(directives)))

    def ask(self, who, *keys, wait=None, timeout=None, range=None, directives=()):
        """Return the list that the answer is, or will be, in."""
        if wait is not None:
            directives = (*directives, Info("pmix.wait", wait if isinstance(wait, Value) else Value(codes.INT, wait)))
        if timeout is not None:
            directives = (*directives, attrs.TIMEOUT(timeout))
        if range is not None:
            directives = (*directives, attrs.RANGE(range))
        answers = []

        def answer(found, error):
            answers.append(error or {item.key: (item.value.data, item.proc) for item in found})

        self.directory.lookup(who, Lookup(keys, tuple(directives)), answer)
        return answers

    def find(self, who, *keys, **options):
        (answer,) = self.ask(who, *keys, **options)
        return answer if isinstance(answer, dict) else type(answer)

    def sees(self, who, key, **options):
        return self.find(who, key, **options) is not NotFound


def who(rank, nspace="job", uid=1, gid=1):
    return Caller(Proc(nspace, rank), uid, gid)


A, B, OTHER = who(0), who(1), who(0, "other")


@pytest.fixture
def world():
    return World()


def test_what_is_found_names_its_publisher(world):
    world.publish(A, "x", value=5)
    world.publish(B, "y", value=6)
    assert world.find(B, "x", "y", "gone") == {"x": (5, A.proc), "y": (6, B.proc)}
    assert world.find(B, "gone", "nor.this") is NotFound


@pytest.mark.parametrize(
    ("range", "seen"),
    [
        (Range.PROC_LOCAL, (True, False, False)),
        (Range.NAMESPACE, (True, True, False)),
        (Range.LOCAL, (True, True, True)),
        (Range.SESSION, (True, True, True)),
        (Range.GLOBAL, (True, True, True)),
        (Range.RM, (False, False, False)),
    ],
)
def test_who_is_in_a_range(world, range, seen):
    world.publish(A, "x", range=range)
    assert tuple(world.sees(each, "x") for each in (A, B, OTHER)) == seen


@pytest.mark.parametrize(
    ("procs", "seen"),
    [
        (Value(codes.PROC, B.proc), (False, True, False)),
        (array(codes.PROC, [A.proc, OTHER.proc]), (True, False, True)),
        (Value(codes.PROC, Proc("job", RANK_WILDCARD)), (True, True, False)),
    ],
)
def test_a_custom_range_is_the_procs_that_are_named(world, procs, seen):
    world.publish(A, "x", range=Range.CUSTOM, directives=[Info("pmix.evrange", procs)])
    assert tuple(world.sees(each, "x") for each in (A, B, OTHER)) == seen


def test_a_lookup_may_be_restricted_to_publishers_of_a_range(world):
    world.publish(OTHER, "x")
    assert world.sees(A, "x")
    assert not world.sees(A, "x", range=Range.NAMESPACE)
    assert not world.sees(A, "x", range=Range.PROC_LOCAL)
    assert not world.sees(OTHER, "x", range=Range.RM)
    assert world.sees(OTHER, "x", range=Range.PROC_LOCAL)
    assert world.sees(A, "x", range=Range.CUSTOM, directives=[Info("pmix.evrange", Value(codes.PROC, OTHER.proc))])


def test_a_key_is_published_once_to_a_range_and_all_or_nothing_of_a_publish_holds(world):
    world.publish(A, "x", value="session")
    for each in (A, B, OTHER):
        with pytest.raises(PMIxError) as caught:
            world.publish(each, "new", "x")
        assert caught.value.code == DUPLICATE
    assert not world.sees(A, "new")
    world.publish(A, "x", value="job", range=Range.NAMESPACE)
    world.publish(OTHER, "x", value="other job", range=Range.NAMESPACE)
    world.publish(B, "x", value="own", range=Range.PROC_LOCAL)
    assert [world.find(each, "x")["x"][0] for each in (A, B, OTHER)] == ["job", "own", "other job"]
    with pytest.raises(PMIxError):
        world.publish(B, "x", range=Range.NAMESPACE)


def test_other_users_see_only_what_they_are_granted(world):
    stranger, friend, group = who(1, uid=2, gid=2), who(1, uid=3, gid=2), who(1, uid=2, gid=4)
    users = info("pmix.auids", array(codes.UINT32, [3]))
    groups = info("pmix.agids", array(codes.UINT32, [4]))
    world.publish(A, "private")
    permissions = info("pmix.aperms", array(codes.INFO, [users, groups]))
    world.publish(A, "granted", directives=[permissions])
    assert [world.sees(each, "private") for each in (B, stranger, friend, group)] == [True, False, False, False]
    assert [world.sees(each, "granted") for each in (B, stranger, friend, group)] == [True, False, True, True]
    world.publish(stranger, "private", value="theirs")
    assert world.find(stranger, "private") == {"private": ("theirs", stranger.proc)}
    with pytest.raises(NotFound):
        world.directory.unpublish(who(2, uid=3), Unpublish(("private",)))


@pytest.mark.parametrize(
    ("range", "directive", "error", "code"),
    [
        (Range.CUSTOM, None, PMIxError, BAD_PARAM),
        (Range.CUSTOM, Info("pmix.evrange", uint32(1)), PMIxError, BAD_PARAM),
        (Range.SESSION, Info("pmix.aperms", uint32(1)), PMIxError, BAD_PARAM),
        (Range.SESSION, info("pmix.aperms", array(codes.INFO, [info("pmix.what", 1)])), NotSupported, -47),
    ],
)
def test_directives_that_make_no_sense_are_refused(world, range, directive, error, code):
    with pytest.raises(error) as caught:
        world.publish(A, "x", range=range, directives=[directive] if directive else [])
    assert caught.value.code == code
    assert len(world.directory) == 0


def test_a_wait_that_is_no_number_is_refused(world):
    with pytest.raises(PMIxError) as caught:
        world.ask(A, "x", wait=Value(codes.STRING, "long"))
    assert caught.value.code == BAD_PARAM


def test_first_read_is_read_once_also_among_waiters(world):
    world.publish(A, "x", persist=Persist.FIRST_READ)
    assert world.sees(B, "x")
    assert not world.sees(B, "x")
    first, second = world.ask(B, "x", wait=0), world.ask(OTHER, "x", wait=0)
    world.publish(A, "x", value=2, persist=Persist.FIRST_READ)
    assert (first, second) == ([{"x": (2, A.proc)}], [])
    assert len(world.directory) == 0


def test_what_ends_with_its_publisher(world):
    for persist in Persist.PROC, Persist.APP, Persist.SESSION, Persist.INDEF:
        world.publish(A, persist.name, persist=persist)
        world.publish(B, f"b.{persist.name}", persist=persist)
    names = [key for persist in ("PROC", "APP", "SESSION", "INDEF") for key in (persist, f"b.{persist}")]
    world.directory.leave(A.proc)
    assert list(world.find(B, *names)) == [name for name in names if name != "PROC"]
    world.directory.forget({A.proc, B.proc}, Persist.APP)
    assert list(world.find(B, *names)) == ["b.PROC", "SESSION", "b.SESSION", "INDEF", "b.INDEF"]


@pytest.mark.parametrize(
    ("wait", "needed"),
    [(0, 3), (1, 1), (2, 2), (3, 3), (9, 3), (Value(codes.BOOL, True), 3)],
    ids=["all", "1", "2", "3", "too many", "true"],
)
def test_a_lookup_waits_for_so_many_keys(world, wait, needed):
    answers = world.ask(B, "x", "y", "z", wait=wait)
    for number, key in enumerate(("z", "x", "y"), 1):
        assert len(answers) == (number > needed)
        world.publish(A, key, "unrelated." + key)
    assert len(answers) == 1
    assert len(answers[0]) == needed


def test_waiting_ends_in_time_with_what_there_is(world):
    nothing, some = world.ask(B, "gone", wait=0, timeout=2), world.ask(B, "x", "gone", wait=0, timeout=2)
    world.publish(A, "x")
    world.advance(1.9)
    assert (nothing, some) == ([], [])
    world.advance(0.2)
    assert isinstance(nothing[0], OperationTimeout)
    assert some == [{"x": (1, A.proc)}]
    world.publish(A, "gone")
    assert (len(nothing), len(some)) == (1, 1)


def test_an_answered_lookup_needs_no_timer_and_a_dead_one_no_answer(world):
    answers = world.ask(B, "x", wait=0, timeout=2)
    lost = world.ask(A, "x", wait=0, timeout=2)
    world.directory.leave(A.proc)
    world.publish(B, "x")
    assert (len(answers), lost) == (1, [])
    assert not any(timer.function for timer in world.timers)


def test_unpublish_takes_only_what_is_the_callers_own(world):
    world.publish(A, "x", "y", "z")
    world.publish(A, "x", range=Range.NAMESPACE)
    world.publish(B, "b")
    with pytest.raises(PermissionDenied):
        world.directory.unpublish(B, Unpublish(("x",)))
    with pytest.raises(NotFound):
        world.directory.unpublish(B, Unpublish(("gone",)))
    world.directory.unpublish(A, Unpublish(("x",), (attrs.RANGE(Range.NAMESPACE),)))
    assert world.sees(OTHER, "x")
    world.directory.unpublish(A, Unpublish(("x", "gone")))
    assert list(world.find(A, "x", "y", "z", "b")) == ["y", "z", "b"]
    world.directory.unpublish(A, Unpublish())
    world.directory.unpublish(A, Unpublish())
    assert list(world.find(A, "x", "y", "z", "b")) == ["b"]


def test_a_full_directory_takes_no_more(world):
    world.directory._limits = Limits(directory_values=2)
    world.publish(A, "x")
    with pytest.raises(PMIxError) as caught:
        world.publish(A, "y", "z")
    assert caught.value.code == FULL
    world.directory.unpublish(A, Unpublish())
    world.publish(A, "y", "z")


KEYS = st.sampled_from(["a", "b", "c"])
RANKS = st.sampled_from([A, B])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), RANKS, KEYS),
            st.tuples(st.just("unpublish"), RANKS, KEYS),
            st.tuples(st.just("leave"), RANKS, KEYS),
            st.tuples(st.just("wait"), RANKS, KEYS),
        ),
        max_size=30,
    )
)
def test_it_does_what_a_dict_would(steps):
    """Against a model: one range, values that end with their publisher, waiters answered once and in order."""
    world, model, waiting, answered = World(), {}, [], []
    for action, each, key in steps:
        if action == "publish":
            if key in model:
                with pytest.raises(PMIxError):
                    world.publish(each, key, persist=Persist.PROC)
                continue
            world.publish(each, key, persist=Persist.PROC)
            model[key] = each.proc
            for entry in [entry for entry in waiting if entry[1] == key]:
                waiting.remove(entry)
                answered.append((entry[2], {key: (1, each.proc)}))
        elif action == "unpublish":
            if model.get(key) == each.proc:
                world.directory.unpublish(each, Unpublish((key,)))
                del model[key]
            else:
                with pytest.raises(PMIxError):
                    world.directory.unpublish(each, Unpublish((key,)))
        elif action == "leave":
            world.directory.leave(each.proc)
            model = {key: owner for key, owner in model.items() if owner != each.proc}
            waiting = [entry for entry in waiting if entry[0] != each]
        else:
            answers = world.ask(each, key, wait=0)
            if key in model:
                assert answers == [{key: (1, model[key])}]
            else:
                waiting.append((each, key, answers))
        assert len(world.directory) == len(model)
    assert all(answers == [expected] for answers, expected in answered)
    assert all(answers == [] for _, _, answers in waiting)


def steps_of(function):
    """Return how many steps a call takes in the directory's module."""
    return count_steps(function, inspect.getfile(Directory))


@pytest.mark.parametrize("what", ["ends", "takes all back"])
def test_a_proc_does_not_cost_what_others_have_published(what):
    """Where each of many ranks publishes something and ends, looks at all values would grow with their square."""

    def steps(ranks):
        world = World()
        whos = [who(rank) for rank in range(ranks)]
        for each in whos:
            world.publish(each, f"key {each.proc.rank}", persist=Persist.PROC)
        if what == "ends":
            found = steps_of(lambda: world.directory.leave(whos[0].proc))
        else:
            found = steps_of(lambda: world.directory.unpublish(whos[0], Unpublish()))
        assert len(world.directory) == ranks - 1
        return found

    assert steps(400) == steps(4)


@pytest.mark.parametrize("what", ["publishes", "ends", "looks up", "looks up in vain"])
def test_a_proc_does_not_cost_what_others_wait_for(what):
    """Where each of many ranks waits for a key of its own, looks at all lookups would grow with their square."""

    def steps(ranks):
        world = World()
        waiting = [world.ask(who(rank), f"key {rank}", wait=0) for rank in range(ranks)]
        if what == "publishes":
            found = steps_of(lambda: world.publish(OTHER, "key 1"))
        elif what == "ends":
            found = steps_of(lambda: world.directory.leave(who(1).proc))
        elif what == "looks up":
            world.publish(OTHER, "other")
            found = steps_of(lambda: world.ask(OTHER, "other"))
        else:
            found = steps_of(lambda: world.ask(OTHER, "other"))
        assert sum([len(answers) for answers in waiting]) == (what == "publishes")
        return found

    assert steps(400) == steps(4)


def test_values_that_another_cluster_takes_back_cost_no_others():
    def steps(ranks):
        world = World()
        for rank in range(ranks):
            world.publish(who(rank), f"key {rank}", range=Range.GLOBAL)
        found = steps_of(lambda: world.directory.remove_keys(Range.GLOBAL, who(1).proc, ("key 1", "key 2")))
        assert len(world.directory) == ranks - 1
        return found

    assert steps(400) == steps(4)


def test_of_several_lookups_the_oldest_is_answered_first():
    world = World()
    old, new = world.ask(A, "b", wait=0), world.ask(B, "a", "b", wait=0)
    world.publish(OTHER, "a", "b", persist=Persist.FIRST_READ)
    assert len(old) == 1 and not new
    world.publish(OTHER, "b", persist=Persist.FIRST_READ)
    assert len(new) == 1

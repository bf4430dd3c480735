"""Collective calls on values while members leave and die at any moment, in a world without processes or time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypmix import NotFound, PMIxError, Proc
from pypmix.aio.operations import exchanging
from pypmix.aio.operations.exchanging import Participants, Transfer
from pypmix.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

RANKS = 4
CALLS = 4
WILD = 120
"""The turns in which anything may happen; then all news arrive, and the members go on by turns."""

PROCS = tuple([Proc("job", rank) for rank in range(RANKS)])


class Turn:
    """What a member waits for: its turn, or the end of a fence."""

    def __await__(self) -> Generator[Turn, None, None]:
        yield self


class World:
    """A server that fences the members it has, and members that hear of its departures late."""

    def __init__(self, reports: bool) -> None:
        self.reports = reports
        self.values: dict[tuple[Proc, str], bytes] = {}
        self.present = dict.fromkeys(PROCS)
        self.views = {proc: list(PROCS) for proc in PROCS}
        self.news: list[tuple[Proc, Proc]] = []
        self.arrived: set[Proc] = set()
        self.answers: dict[Proc, frozenset[Proc]] = {}

    def depart(self, gone: Proc, dies: bool) -> None:
        del self.present[gone]
        if dies:
            self.arrived.discard(gone)
        self.news += [(proc, gone) for proc in self.present]
        self.look()

    def look(self) -> None:
        """End the fence if all who are there have come."""
        if self.arrived and self.arrived.issuperset(self.present):
            took_part = frozenset(self.arrived)
            self.answers.update(dict.fromkeys(took_part, took_part))
            self.arrived.clear()

    def hear(self, number: int) -> None:
        proc, gone = self.news.pop(number)
        self.views[proc].remove(gone)


class Member(Participants):
    """A member, and its client in one."""

    changes = ft = True

    def __init__(self, world: World, proc: Proc) -> None:
        super().__init__(self, Steps("team", PROCS))  # type: ignore[arg-type]
        self.world = world
        self.proc = proc

    def supports(self, _name: str) -> bool:
        return True

    def members(self) -> tuple[Proc, ...]:
        return tuple(self.world.views[self.proc])

    async def put(self, key: str, value: bytes) -> None:
        self.world.values[self.proc, key] = value
        await Turn()

    async def get(self, key: str, proc: Proc, timeout: float) -> bytes:
        await Turn()
        if (proc, key) not in self.world.values:
            raise NotFound("nobody has put it")
        return self.world.values[proc, key]

    async def fence(self, _collect: bool, _timeout: float | None) -> frozenset[Proc] | None:
        self.world.arrived.add(self.proc)
        self.world.look()
        while self.proc not in self.world.answers:
            await Turn()
        answer = self.world.answers.pop(self.proc)
        return answer if self.world.reports else None


async def bcast(member: Member, number: int, root: int | Proc) -> object:
    return await Transfer(member, "bcast", root, None, None).bcast(f"{member.proc.rank} in {number}")


async def allgather(member: Member, number: int, _root: int | Proc) -> object:
    found = await Transfer(member, "allgather", None, None, None).allgather(f"{member.proc.rank} in {number}")
    assert list(found) == [f"{proc.rank} in {number}" for proc in found.procs]
    assert member.proc in found.procs
    return found


async def gather(member: Member, number: int, root: int | Proc) -> object:
    transfer = Transfer(member, "gather", root, None, None)
    found = await transfer.gather(f"{member.proc.rank} in {number}")
    assert (found is not None) == transfer.rooted
    assert found is None or list(found) == [f"{proc.rank} in {number}" for proc in found.procs]
    return "gathered"


async def scatter(member: Member, number: int, root: int | Proc) -> object:
    transfer = Transfer(member, "scatter", root, None, None)
    parts = [f"for {proc.rank} in {number}" for proc in member.members()] if transfer.rooted else None
    assert await transfer.scatter(parts) == f"for {member.proc.rank} in {number}"
    return "scattered"


KINDS: dict[str, Callable[[Member, int, int | Proc], Awaitable[object]]] = {
    "bcast": bcast,
    "allgather": allgather,
    "gather": gather,
    "scatter": scatter,
}


async def pause(_seconds: float) -> None:
    await Turn()


async def program(member: Member, calls: list[tuple[str, int | Proc]], outcomes: list[Any]) -> None:
    await Turn()
    for number, (kind, root) in enumerate(calls):
        try:
            outcomes.append(await KINDS[kind](member, number, root))
        except (PMIxError, IndexError) as error:
            outcomes.append(f"failed: {type(error).__name__}" if isinstance(error, IndexError) else "failed")
        await Turn()


roots = st.one_of(st.integers(0, RANKS - 1), st.sampled_from(PROCS))


@pytest.mark.parametrize("reports", [True, False], ids=["the server reports who came", "it does not"])
@settings(max_examples=150, deadline=None)
@given(data=st.data(), calls=st.lists(st.tuples(st.sampled_from(sorted(KINDS)), roots), min_size=1, max_size=CALLS))
def test_all_survivors_have_the_same_outcome(
    reports: bool, data: st.DataObject, calls: list[tuple[str, int | Proc]]
) -> None:
    world = World(reports)
    outcomes: dict[Proc, list[Any]] = {proc: [] for proc in PROCS}
    running = {proc: program(Member(world, proc), calls, outcomes[proc]) for proc in PROCS}
    for each in running.values():
        each.send(None)
    between = dict.fromkeys(PROCS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchanging, "pause", pause)
        patch.setattr(exchanging, "_NEWS_SECONDS", 1000.0)
        for turn in range(3000):
            if not running:
                break
            wild = turn < WILD
            doing = data.draw(st.integers(0, 11)) if wild else 2
            if doing == 0 and len(world.present) > 1:
                # It may be anywhere in a call.
                gone = data.draw(st.sampled_from(sorted(world.present)))
                if gone in running:
                    running.pop(gone).close()
                    world.depart(gone, dies=True)
                    world.news = [each for each in world.news if each[0] != gone]
            elif doing == 1 and len(world.present) > 1:
                ready = [proc for proc in sorted(running) if len(outcomes[proc]) > between[proc] or not outcomes[proc]]
                ready = [proc for proc in ready if proc not in world.arrived and proc not in world.answers]
                ready = [proc for proc in ready if len(outcomes[proc]) > between[proc]]
                if ready:
                    # Between two calls.
                    gone = data.draw(st.sampled_from(ready))
                    running.pop(gone).close()
                    world.depart(gone, dies=False)
                    world.news = [each for each in world.news if each[0] != gone]
            elif doing in (2, 3) and world.news:
                world.hear(data.draw(st.integers(0, len(world.news) - 1)) if wild else 0)
            else:
                for proc in [data.draw(st.sampled_from(sorted(running)))] if wild else sorted(running):
                    before = len(outcomes[proc])
                    try:
                        running[proc].send(None)
                    except StopIteration:
                        del running[proc]
                    between[proc] = before
                    world.look()
        assert not running, "some member waits for ever"
    survivors = [proc for proc in world.present if len(outcomes[proc]) == len(calls)]
    for number in range(len(calls)):
        seen = [outcomes[proc][number] for proc in survivors]
        assert all(each == seen[0] for each in seen), (number, calls[number], seen)

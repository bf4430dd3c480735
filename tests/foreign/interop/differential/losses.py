"""Plans in which a call fails: limits of time that differ, a member that leaves a group, or one that is killed.

What comes first is settled by files, not by time: a rank waits until another one has begun a line, has its result, or
has ended. Each plan goes on after the failure, since a call that failed must not be counted in a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from foreign.interop.differential.lacks import DATA_OF_THE_DEAD, HIDDEN
from foreign.interop.differential.plans import OWN, REDUCING, SUCCESS, Plan, Planner, Step

TIMED_OUT, PARTIAL, ABORTED = "status -24", "status -52", "status -165"

LEAVERS = ("python", "aio", "native")

COLLECTIVES = ("fence", "connect", "disconnect", "construct", "destruct")


def shorter_elsewhere(operation: str) -> Plan:
    """Return the smallest plan in which a limit ends the call at a node that still lacks a caller.

    Rank 2 has a node of its own; rank 1 of the other node comes after rank 2's limit, with which rank 0 times out.
    """
    procs = ("@:0", "@:1", "@:2")
    words = {"fence": ("n", *procs), "connect": procs, "construct": ("g1", *procs)}[operation]
    expected = "g1 0,1,2" if operation == "construct" else SUCCESS
    scripts = [
        [Step(1, 1, (f"{operation}/8", *words), TIMED_OUT), Step(7, 7, (operation, *words), expected)],
        [Step(2, 2, ("after", "2", "5"), SUCCESS), Step(3, 3, (operation, *words), expected)],
        [
            Step(4, 4, ("begun", "0", "1"), SUCCESS),
            Step(5, 5, (f"{operation}/2", *words), TIMED_OUT),
            Step(6, 6, (operation, *words), expected),
        ],
    ]
    ranks = {("main", rank): steps for rank, steps in enumerate(scripts)}
    return Plan(0, OWN, 2, ("python",) * 3, ranks, {})


class LossPlanner(Planner):
    """Makes a plan with calls that fail: some by their limits, or because a member leaves, and the last by a death."""

    def together(self, ranks: Sequence[int], words: Sequence[object], expected: str) -> dict[int, int]:
        """Let ranks do the same, and return the numbers of their lines."""
        return {rank: self.add(rank, words, expected) for rank in ranks}

    def formed(self, ranks: Sequence[int], flags: str = "") -> str:
        name = f"g{self.fresh()}"
        for rank in ranks:
            procs = self.random.sample([f"@:{each}" for each in ranks], len(ranks))
            self.add(rank, [f"construct{flags}", name, *procs], f"{name} {','.join(map(str, ranks))}")
        return name

    def call(self, operation: str, ranks: Sequence[int]) -> list[object]:
        """Return the words of a call of an operation by these ranks, after what it needs was done."""
        procs = [f"@:{rank}" for rank in ranks]
        if operation == "destruct":
            return [operation, self.formed(ranks)]
        if operation == "disconnect":
            self.together(ranks, ["connect", *procs], SUCCESS)
        if operation == "address":
            return ["fence", "n", f"={self.formed(ranks)}:*"]
        if operation == "fence":
            return [operation, "n", *procs]
        return [operation, f"g{self.fresh()}", *procs] if operation == "construct" else [operation, *procs]

    def shorter(self, operation: str, first: bool) -> None:
        """One caller's limit is shorter than the others', and somebody comes only after it: all who wait time out."""
        ranks = self.some(3)
        late, short, *rest = self.random.sample(ranks, len(ranks))
        # Otherwise the shorter limit may expire while the others are still waiting in a loss before.
        self.together(ranks, ["fence", "n", *[f"@:{rank}" for rank in ranks]], SUCCESS)
        name, *words = self.call(operation, ranks)
        numbers: dict[int, int] = {}
        for callers in ([short], rest) if first else (rest, [short]):
            before = dict(numbers)
            for rank in callers:
                for other, number in before.items():
                    self.add(rank, ["begun", other, number])
                numbers[rank] = self.add(rank, [f"{name}/{2 if rank == short else 8}", *words], TIMED_OUT)
        self.add(late, ["after", short, numbers[short]])
        expected = f"{words[0]} {','.join(map(str, ranks))}" if name == "construct" else SUCCESS
        self.together(ranks, [name, *words], expected)
        if name == "construct":
            self.together(ranks, ["destruct", words[0]], SUCCESS)
        elif name == "connect":
            self.together(ranks, ["disconnect", *words], SUCCESS)
        self.sync(ranks)

    def cancelled(self, operation: str) -> None:
        """A task that waits is cancelled; the others wait for its next call."""
        able = [rank for rank in range(self.size) if self.kinds[rank] == "aio"]
        # A server that has all of its callers has sent them to those of other nodes, which count them in.
        pairs = [(one, late) for one in able for late in self.home if late != one and self.home[late] == self.home[one]]
        if not pairs or self.size < 3:
            return
        one, late = self.random.choice(pairs)
        waiting = self.random.choice([rank for rank in range(self.size) if rank not in (one, late)])
        ranks = sorted([one, late, waiting])
        name, *words = self.call(operation, ranks)
        expected = f"{words[0]} {','.join(map(str, ranks))}" if name == "construct" else SUCCESS
        number = self.add(waiting, [name, *words], expected)
        given_up = self.add(one, ["cancelled", waiting, number, name, *words], "cancelled")
        self.add(late, ["after", one, given_up])
        self.together([one, late], [name, *words], expected)
        if name == "construct":
            self.together(ranks, ["destruct", words[0]], SUCCESS)
        elif name == "connect":
            self.together(ranks, ["disconnect", *words], SUCCESS)
        self.sync(ranks)

    def wildcard(self, operation: str) -> None:
        """Some name the whole job, others each of its ranks."""
        everyone = range(self.size)
        if operation == "construct":
            name = f"g{self.fresh()}"
            self.named_both_ways([operation, name], f"{name} {','.join(map(str, everyone))}")
            self.together(everyone, ["destruct", name], SUCCESS)
        elif operation == "connect":
            self.named_both_ways([operation], SUCCESS)
            self.named_both_ways(["disconnect"], SUCCESS)
        else:
            self.named_both_ways([operation, "y"], SUCCESS)

    def named_both_ways(self, words: Sequence[object], expected: str) -> None:
        """Let everyone name all procs; two of them, at least, differ in how."""
        everyone = range(self.size)
        ways = [True, False, *self.random.choices((True, False), k=self.size - 2)]
        for rank, whole in zip(everyone, self.random.sample(ways, self.size), strict=True):
            each = [f"@:{other}" for other in self.random.sample(everyone, self.size)]
            self.add(rank, [*words, *(["@:*"] if whole else each)], expected)

    def leaving(self) -> None:
        """A member leaves its group while the others fence it; afterwards a fence of the same procs waits for all."""
        able = [rank for rank in range(self.size) if self.kinds[rank].split("-")[0] in LEAVERS]
        if not able or self.size < 3:
            return
        leaver = self.random.choice(able)
        others = self.random.sample([rank for rank in range(self.size) if rank != leaver], 2)
        ranks = sorted([leaver, *others])
        name = self.formed(ranks)
        numbers = self.together(others, ["fence/8", "n", f"={name}:*"], PARTIAL)
        for other in others:
            self.add(leaver, ["begun", other, numbers[other]])
        self.add(leaver, ["leave", name])
        self.together(others, ["destruct", name], SUCCESS)
        for other in others:
            self.add(leaver, ["after", other, numbers[other]])
        again = self.formed(ranks)
        self.together(ranks, ["fence", "n", f"={again}:*"], SUCCESS)
        self.together(ranks, ["destruct", again], SUCCESS)
        self.sync(range(self.size))

    def bequeathed(self) -> None:
        """A rank is killed, and the others read what it has put."""
        dead, living = self.parted()
        self.killed(dead, living)
        self.read(living, [dead])
        self.sync(living)

    def hidden(self) -> None:
        """A rank is killed, and the others read what one of them has put for other nodes, after a collecting fence."""
        dead, living = self.parted()
        owner, key, value = self.random.choice(living), f"k{self.fresh()}", self.value()
        self.add(owner, ["put", key, "r", value])
        self.add(owner, ["commit"])
        self.sync(range(self.size), True)
        self.killed(dead, living)
        self.sync(living, True)
        for rank in living:
            if rank != owner:
                self.add(rank, ["get", f"@:{owner}", key], self.seen(rank, owner, "r", value))
        self.sync(living)

    def parted(self) -> tuple[int, list[int]]:
        """Return the rank that is to die, and the others."""
        dead = self.random.randrange(self.size)
        return dead, [rank for rank in range(self.size) if rank != dead]

    def killed(self, dead: int, living: Sequence[int]) -> None:
        """Kill a rank before the others go on."""
        self.add(dead, ["die"], "nothing")
        for rank in living:
            self.add(rank, ["gone", dead])

    def death(self, operation: str, early: bool) -> None:
        """A member is killed before the others call, or while they wait; they go on without it."""
        dead, living = self.parted()
        words = self.call(operation, range(self.size))
        self.sync(range(self.size))
        if early:
            self.killed(dead, living)
        numbers = {}
        for rank in living:
            expected = {"construct": self.aborted(rank), "disconnect": SUCCESS}.get(operation, PARTIAL)
            numbers[rank] = self.add(rank, [f"{words[0]}/8", *words[1:]], expected)
        if not early:
            for rank in living:
                self.add(dead, ["begun", rank, numbers[rank]])
            self.add(dead, ["die"], "nothing")
        if self.has(DATA_OF_THE_DEAD):
            self.read(living, [dead])
        self.sync(living)
        name = self.formed(living)
        self.together(living, ["destruct", name], SUCCESS)
        self.reread(living)

    def reread(self, living: Sequence[int]) -> None:
        """Let the ranks that live exchange what they have put, and read it."""
        self.sync(living, True)
        if not self.has(HIDDEN):
            self.values = [put for put in self.values if put[2] == "g"]
        self.read(living, living)

    def made_without(self, operation: str, early: bool) -> None:
        """A member is killed that a construct is done without, before the others call or while they wait."""
        dead, living = self.parted()
        if operation == "optional":
            # Libraries of C are told of a partial success, and then have no group.
            living = [rank for rank in living if not self.kinds[rank].startswith("c-")]
        ranks = sorted([dead, *living])
        if len(living) < 2:
            return
        name = f"g{self.fresh()}"
        self.sync(range(self.size))
        if early:
            self.killed(dead, living)
        procs = [f"@:{rank}" for rank in ranks]
        numbers = self.together(living, [f"{operation}/8", name, *procs], f"{name} {','.join(map(str, living))}")
        if not early:
            for rank, number in numbers.items():
                self.add(dead, ["begun", rank, number])
            self.add(dead, ["die"], "nothing")
        self.together(living, ["fence", "n", f"={name}:*"], SUCCESS)
        self.together(living, ["destruct", name], SUCCESS)
        self.reread(living)

    def aborted(self, rank: int) -> str:
        """Return what a construct ends with whose member ends: our own server has one status for C's collectives."""
        return PARTIAL if self.server == OWN and self.kinds[rank].startswith("c-") else ABORTED

    def plan(self) -> Plan:
        """Return a plan of some losses that go on with everyone, and a death at the end."""
        self.begin()
        for _ in range(self.random.randint(1, 3)):
            self.happen(LASTING)
        if self.size > 2:
            self.happen(DEATHS)
        return self.made()

    @classmethod
    def alone(cls, name: str, kinds: Sequence[str], server: str, nodes: int = 1) -> Plan | None:
        """Return the plan of one loss alone, for a job of just these ranks; None if that cannot have it."""
        planner = cls(0, kinds, server, len(kinds), len(kinds), (nodes,))
        planner.kinds = tuple(kinds)
        planner.begin()
        before = planner.last
        LOSSES[name](planner)
        return planner.made() if planner.last > before else None

    def begin(self) -> None:
        everyone = list(range(self.size))
        self.sync(everyone)
        self.exchange()
        self.sync(everyone, True)

    def happen(self, losses: Mapping[str, Loss]) -> None:
        """Let one of some losses happen, if the server is declared to lack not all of them."""
        served = [loss for name, loss in losses.items() if self.has(name)]
        if served:
            self.random.choice(served)(self)


Loss = Callable[[LossPlanner], None]

LASTING: Mapping[str, Loss] = MappingProxyType(
    {
        **{
            f"a shorter limit, {'first' if first else 'last'} in a {operation}": partial(
                LossPlanner.shorter, operation=operation, first=first
            )
            for operation in COLLECTIVES
            for first in (True, False)
        },
        **{
            f"a job and its ranks, in a {operation}": partial(LossPlanner.wildcard, operation=operation)
            for operation in ("fence", "connect", "construct")
        },
        "a leave, in a fence": LossPlanner.leaving,
        **{
            f"a cancelled {operation}": partial(LossPlanner.cancelled, operation=operation) for operation in COLLECTIVES
        },
    }
)
"""What may happen to a job that goes on with all of its ranks, by the names that `LACKS` has it under."""

DEATHS: Mapping[str, Loss] = MappingProxyType(
    {
        DATA_OF_THE_DEAD: LossPlanner.bequeathed,
        HIDDEN: LossPlanner.hidden,
        **{
            f"a death {'before' if early else 'during'} a {operation}": partial(
                LossPlanner.death, operation=operation, early=early
            )
            for operation in COLLECTIVES
            for early in (True, False)
        },
        **{
            f"a group made without a death {'before' if early else 'during'} it, {operation}": partial(
                LossPlanner.made_without, operation=operation, early=early
            )
            for operation in REDUCING
            for early in (True, False)
        },
        "a death during a fence of a group": partial(LossPlanner.death, operation="address", early=False),
    }
)
"""The deaths that may end a plan. A group that has lost a member before a fence is the others' alone."""

LOSSES: Mapping[str, Loss] = MappingProxyType({**LASTING, **DEATHS})

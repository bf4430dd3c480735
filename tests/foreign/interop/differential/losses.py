"""Plans in which a call fails: limits of time that differ, a member that leaves a group, or one that is killed.

What comes first is settled by files, not by time: a rank waits until another one has begun a line, has its result, or
has been reaped. Each plan goes on after the failure, since a call that failed must not be counted in a later one.
"""

from __future__ import annotations

from collections.abc import Sequence

from foreign.interop.differential.plans import OWN, SUCCESS, Plan, Planner, Step

TIMED_OUT, PARTIAL, ABORTED = "status -24", "status -52", "status -165"

ORDERS = ("before", "while")
"""When a member is killed: before the others call what needs it, or while they wait in that."""

LEAVERS = ("python", "native")

FORGETFUL = "c-5.0."
"""Libraries whose destruct fails with -20 or -46 once a construct or destruct of that group has failed."""


def unended(operation: str) -> Plan:
    """Return the smallest plan in which a limit does not end the others' call.

    Rank 2 has a node of its own; rank 1 of the other node comes after rank 2's limit. Rank 0 should time out with rank
    2, and its call counts with rank 2's next one instead.
    """
    procs = ("@:0", "@:1", "@:2")
    words = {"fence": ("n", *procs), "connect": procs, "construct": ("g1", *procs)}[operation]
    expected = "g1 0,1,2" if operation == "construct" else SUCCESS
    scripts = [
        [Step(1, 1, (f"{operation}/8", *words), TIMED_OUT)],
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

    def shorter(self) -> None:
        """One caller's limit is shorter than the others', and somebody comes only after it: all who wait time out."""
        ranks = self.some(3)
        late, short, *rest = self.random.sample(ranks, len(ranks))
        if self.reaches_too_few(late, short, rest):
            return
        forgetful = any(self.kinds[rank].startswith(FORGETFUL) for rank in ranks)
        operations = ["fence", "connect", "disconnect", *([] if forgetful else ["construct", "destruct"])]
        operation = self.random.choice(operations)
        name, *words = self.call(operation, ranks)
        first, second = self.random.sample([[short], rest], 2)
        numbers: dict[int, int] = {}
        for callers in (first, second):
            for rank in callers:
                for other in numbers if callers is second else ():
                    self.add(rank, ["begun", other, numbers[other]])
                begun = self.add(rank, [f"{name}/{2 if rank == short else 8}", *words], TIMED_OUT)
                if callers is first:
                    numbers[rank] = begun
                elif rank == short:
                    numbers[short] = begun
        self.add(late, ["after", short, numbers[short]])
        expected = f"{words[0]} {','.join(map(str, ranks))}" if name == "construct" else SUCCESS
        self.together(ranks, [name, *words], expected)
        if name == "construct":
            self.together(ranks, ["destruct", words[0]], SUCCESS)
        elif name == "connect":
            self.together(ranks, ["disconnect", *words], SUCCESS)
        self.sync(ranks)

    def reaches_too_few(self, late: int, short: int, rest: Sequence[int]) -> bool:
        """Return True if a limit does not end the call of everyone; `test_a_shorter_limit_on_another_node` has that.

        A server whose node still lacks a caller does not yet exchange anything with the servers of other nodes.
        """
        near = {self.home[rank] for rank in rest}
        return self.home[late] in {*near, self.home[short]} and len({*near, self.home[short]}) > 1

    def wildcards(self) -> None:
        """Some name the whole job, others each of its ranks."""
        everyone = range(self.size)
        name, members = f"g{self.fresh()}", ",".join(map(str, everyone))
        for words, expected in (
            (["fence", "y"], SUCCESS),
            (["construct", name], f"{name} {members}"),
            (["connect"], SUCCESS),
            (["disconnect"], SUCCESS),
        ):
            for rank in everyone:
                each = [f"@:{other}" for other in self.random.sample(everyone, self.size)]
                self.add(rank, [*words, *self.random.choice((each, ["@:*"]))], expected)
        self.together(everyone, ["destruct", name], SUCCESS)

    def leaving(self) -> None:
        """A member leaves its group while the others fence it; afterwards a fence of the same procs waits for all."""
        able = [rank for rank in range(self.size) if self.kinds[rank].split("-")[0] in LEAVERS]
        if not able or self.size < 3:
            self.wildcards()
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

    def death(self) -> None:
        """A member is killed before the others call, or while they wait; they go on without it."""
        dead, order = self.random.randrange(self.size), self.random.choice(ORDERS)
        living = [rank for rank in range(self.size) if rank != dead]
        operation = self.random.choice(("fence", "address", "construct", "connect", "destruct", "disconnect"))
        words = self.call(operation, range(self.size))
        self.sync(range(self.size))
        if order == "before":
            self.add(dead, ["die"], "nothing")
            for rank in living:
                self.add(rank, ["gone", dead])
        numbers = {}
        for rank in living:
            expected = {"construct": self.aborted(rank), "disconnect": SUCCESS}.get(operation, PARTIAL)
            numbers[rank] = self.add(rank, [f"{words[0]}/8", *words[1:]], expected)
        if order == "while":
            for rank in living:
                self.add(dead, ["begun", rank, numbers[rank]])
            self.add(dead, ["die"], "nothing")
        self.read(living, [dead])
        self.sync(living)
        name = self.formed(living)
        self.together(living, ["destruct", name], SUCCESS)
        self.sync(living, True)
        self.read(living, living)

    def aborted(self, rank: int) -> str:
        """Return what a construct ends with whose member ends: libpmix has one status for all collectives."""
        return PARTIAL if self.kinds[rank].startswith("c-") else ABORTED

    def plan(self) -> Plan:
        everyone = list(range(self.size))
        self.sync(everyone)
        self.exchange()
        self.sync(everyone, True)
        for _ in range(self.random.randint(1, 3)):
            self.random.choice((self.shorter, self.shorter, self.wildcards, self.leaving))()
        if self.size > 2:
            self.death()
        return Plan(self.seed, self.server, self.nodes, self.kinds, self.scripts, self.jobs)

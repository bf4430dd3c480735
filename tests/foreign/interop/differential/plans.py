"""Plans from seeds: what each rank of a job does, and what it has to see, whatever it is made of.

A rank's script has one line for each operation: its batch, its number, and the words that player.c and player.py know.
Lines of one batch are begun at the same time. Keys, groups and serials are never used again, and whoever reads is in a
collective operation with the writer in between, so that a plan has one outcome.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from foreign.interop.differential.lacks import (
    AT_ONCE,
    CONNECTED,
    REFRESHED,
    REMOTE,
    SOME_COLLECT,
    WILDCARD,
    find_lack,
)

from pypmix.host.nodes import in_blocks

SUCCESS, NOT_FOUND = "status 0", "status -46"

CONSTRUCTED = re.compile(r"group (\d+|\?) ([\d,]+|\?)")
HEARD = "heard"

REDUCING = ("optional", "tolerant", "notified")
"""The operations that construct a group without a member that ends before it calls."""

CONSTRUCTS = ("construct", "local", *REDUCING)
"""The operations that construct a group: plainly, as one of this node alone, or `REDUCING`."""

OWN = "python-server"
LAYOUTS = (1, 2, 3, 5)
"""How many nodes our own server has."""

Put = tuple[int, str, str, str]
"""What has been put and committed: whose, its key, its scope, its value."""


class Step(NamedTuple):
    """A line of a script, and what the rank has to tell of it: a text, or the members of a group."""

    batch: int
    number: int
    words: tuple[str, ...]
    expected: str

    def __str__(self) -> str:
        return f"{self.batch} {self.number} {' '.join(self.words)}"


class Plan(NamedTuple):
    """What happens in a job and in those that it spawns.

    Attributes:
        server: The server, as `lib.pairings` calls it.
        nodes: How many nodes there are.
        kinds: What each rank of the first job is made of, by rank.
        scripts: Of each rank, by the label of its job and the rank.
        jobs: What the ranks of spawned jobs are made of, by label.
    """

    seed: int
    server: str
    nodes: int
    kinds: tuple[str, ...]
    scripts: dict[tuple[str, int], list[Step]]
    jobs: dict[str, tuple[str, ...]]

    @property
    def steps(self) -> int:
        return sum(map(len, self.scripts.values()))

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.server}, {self.nodes} nodes, ranks {' '.join(self.kinds)}"]
        lines += [f"job {label}: ranks {' '.join(kinds)}" for label, kinds in self.jobs.items()]
        for (label, rank), steps in self.scripts.items():
            lines.append(f"{label}.{rank}:")
            lines += [f"  {str(step)[:300]} -> {step.expected[:100]}" for step in steps]
        return "\n".join(lines)


class _Node:
    """A node as the host counts its ranks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.running = 0


class Planner:
    """Makes a plan.

    Args:
        seed: What it all comes from.
        kinds: What ranks can be made of.
        server: The server they run under; all but our own one have one node.
        most: How many ranks the first job has at most.
        least: How many it has at least.
        layouts: How many nodes our own server may have.
    """

    def __init__(
        self,
        seed: int,
        kinds: Sequence[str],
        server: str = OWN,
        most: int = 6,
        least: int = 2,
        layouts: Sequence[int] = LAYOUTS,
    ) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.server = server
        self.all_kinds = kinds
        self.size = self.random.randint(least, most)
        self.nodes = self.random.choice(layouts) if server == OWN else 1
        self.kinds = tuple(self.random.choices(kinds, k=self.size))
        self.home = {
            rank: node.number
            for node, ranks in in_blocks(self.size, [_Node(number) for number in range(self.nodes)])  # type: ignore[arg-type]
            for rank in ranks
        }
        self.scripts: dict[tuple[str, int], list[Step]] = {("main", rank): [] for rank in range(self.size)}
        self.jobs: dict[str, tuple[str, ...]] = {}
        self.values: list[Put] = []
        self.events: dict[int, list[int]] = {rank: [] for rank in range(self.size)}
        self.last = 0

    def fresh(self) -> int:
        self.last += 1
        return self.last

    def add(
        self, rank: int, words: Sequence[object], expected: str = SUCCESS, batch: int = 0, job: str = "main"
    ) -> int:
        number = self.fresh()
        step = Step(batch or number, number, tuple(map(str, words)), expected)
        self.scripts[job, rank].append(step)
        return number

    def some(self, least: int = 2, among: Sequence[int] = ()) -> list[int]:
        among = among or range(self.size)
        return sorted(self.random.sample(among, self.random.randint(min(least, len(among)), len(among))))

    def named(self, ranks: Sequence[int]) -> list[str]:
        """Return how a rank names others: one by one, in any order, or the whole job."""
        if len(ranks) == self.size and self.random.random() < 0.5:
            return ["@:*"]
        return [f"@:{rank}" for rank in self.random.sample(ranks, len(ranks))]

    def has(self, feature: str) -> bool:
        """Return True if the server is not declared to lack something."""
        return find_lack(feature, self.server, self.kinds) is None

    def value(self) -> str:
        random = self.random
        kind = random.randrange(4)
        if kind == 0:
            return f"u={random.choice((0, 1, 127, 128, 65535, 2**31, 2**32 - 1, random.randrange(2**32)))}"
        if kind == 1:
            return f"x={random.randbytes(random.choice((1, 2, 30, 300))).hex()}"
        return "s=" + "".join(
            random.choices("abcdefghij\u00e9/.", k=random.choice((1, 5, 40, 2000 if kind == 2 else 9)))
        )

    def sync(self, ranks: Sequence[int], collect: bool = False) -> None:
        words = self.named(ranks)
        for rank in ranks:
            # All name the same procs, for that is what tells one fence from another, but in any order.
            self.add(rank, ["fence", "y" if collect else "n", *self.random.sample(words, len(words))])

    # What may happen; each leaves nothing undone.

    def exchange(self) -> None:
        ranks = self.some()
        for rank in ranks:
            self.put(rank)
        self.sync(ranks, self.random.random() < 0.5)
        self.read(ranks, ranks)

    def put(self, rank: int) -> None:
        found = []
        for _ in range(self.random.choice((0, 1, 1, 2, 4))):
            key, scope, value = (
                f"k{self.fresh()}",
                self.random.choice("gggglr" if self.has(REMOTE) else "ggggl"),
                self.value(),
            )
            self.add(rank, ["put", key, scope, value])
            found.append((rank, key, scope, value))
        if found:
            self.add(rank, ["commit"])
        self.values += found

    def seen(self, reader: int, owner: int, scope: str, value: str) -> str:
        near = self.home[reader] == self.home[owner]
        return value if reader == owner or scope == "g" or near == (scope == "l") else NOT_FOUND

    def read(self, readers: Sequence[int], owners: Sequence[int]) -> None:
        known = [each for each in self.values if each[0] in owners]
        for rank in readers:
            batch = self.fresh() if self.random.random() < 0.5 else 0
            for owner, key, scope, value in self.chosen(rank, known, 4, batch):
                if scope == "r" and self.kinds[rank].startswith("native") and not self.has(REFRESHED):
                    continue
                self.add(rank, ["get", f"@:{owner}", key], self.seen(rank, owner, scope, value), batch)
            if self.random.random() < 0.2:
                self.add(rank, ["peek", f"@:{self.random.choice(owners)}", f"none{self.fresh()}"], NOT_FOUND, batch)

    def chosen(self, rank: int, known: Sequence[Put], most: int, batch: int) -> list[Put]:
        """Return what a rank gets, of what is known.

        libpmix asks once for all gets of a proc that are under way, and takes the answer to one for that to all: where
        it is that there is no such key, or of what was gathered of the proc before, the others find nothing.
        """
        found = self.random.sample(known, min(len(known), self.random.randrange(most)))
        return list({put[0]: put for put in found}.values()) if batch and self.kinds[rank] != "python" else found

    def publishing(self) -> None:
        ranks = self.some()
        owner, key, value = self.random.choice(ranks), f"p{self.fresh()}", self.value()
        value = value if value[0] == "s" else f"s=v{self.fresh()}"
        self.add(owner, ["publish", key, value])
        self.sync(ranks)
        for rank in self.some(1, ranks):
            self.add(rank, ["lookup", key], value)
        if self.random.random() < 0.5:
            self.sync(ranks)
            self.add(owner, ["unpublish", key])
            self.sync(ranks)
            self.add(self.random.choice(ranks), ["lookup", key], NOT_FOUND)

    def group(self) -> None:
        ranks, name = self.some(), f"g{self.fresh()}"
        self.construct(ranks, name)
        if self.random.random() < 0.5:
            self.sync(ranks)
        for rank in ranks:
            self.add(rank, ["destruct", name])

    def construct(
        self,
        ranks: Sequence[int],
        name: str,
        batch: int = 0,
        operation: str = "construct",
        of: Sequence[int] | None = None,
    ) -> None:
        """Let ranks call a construct of a group that is theirs, or `of` them and others."""
        members = ranks if of is None else of
        words = self.named(members) if self.has(WILDCARD) else [f"@:{rank}" for rank in members]
        expected = f"{name} {','.join(map(str, members))}"
        for rank in ranks:
            self.add(rank, [operation, name, *self.random.sample(words, len(words))], expected, batch)

    def local_groups(self) -> None:
        """The ranks of each node make groups that are local, and have context ids; a rank of C calls first."""
        for node in sorted({*self.home.values()}):
            ranks = [rank for rank, home in self.home.items() if home == node]
            first = next(rank for rank in ranks if self.kinds[rank].startswith("c-"))
            for _ in range(2):
                name = f"g{self.fresh()}"
                self.construct([first], name, operation="local", of=ranks)
                number = self.last
                others = [rank for rank in ranks if rank != first]
                for rank in others:
                    self.add(rank, ["begun", first, number])
                self.construct(others, name, operation="local", of=ranks)
                for rank in ranks:
                    self.add(rank, ["destruct", name])

    def addressed(self) -> None:
        """The ranks of the last node, or the last two, have a group; each other rank sends events to its address."""
        everyone = range(self.size)
        members = [rank for rank in everyone if self.home[rank] == self.nodes - 1] if self.nodes > 1 else everyone[-2:]
        name = f"g{self.fresh()}"
        procs, expected = [f"@:{rank}" for rank in members], f"{name} {','.join(map(str, members))}"
        for rank in members:
            self.add(rank, ["construct", name, *procs], expected)
        self.sync(everyone)
        for rank in everyone:
            if rank not in members:
                for place, receivers in (("*", members), ("1", members[1:2])):
                    serial = self.fresh()
                    self.add(rank, ["notify", serial, "c", f"={name}:{place}"])
                    for receiver in receivers:
                        self.events[receiver].append(serial)
        self.hear()
        self.sync(everyone)
        for rank in members:
            self.add(rank, ["destruct", name])

    def connection(self) -> None:
        ranks = self.some()
        words = self.named(ranks)
        for word in ("connect", "disconnect"):
            for rank in ranks:
                self.add(rank, [word, *self.random.sample(words, len(words))])
            if word == "connect":
                # A connect is no exchange.
                self.sync(ranks)
                self.read(ranks, ranks)

    def event(self) -> None:
        source, serial = self.random.randrange(self.size), self.fresh()
        range = self.random.choice("ccnl")
        others = [rank for rank in self.home if rank != source]
        if range == "c":
            others = self.some(1, others)
        elif range == "l":
            others = [rank for rank in others if self.home[rank] == self.home[source]]
        self.add(source, ["notify", serial, range, *([f"@:{rank}" for rank in others] if range == "c" else ())])
        for rank in others:
            self.events[rank].append(serial)

    def at_once(self) -> None:
        """Several fences and constructs of different procs, and gets, all under way at the same time."""
        batch = self.fresh()
        before = {rank: len(self.scripts["main", rank]) for rank in range(self.size)}
        known = [each for each in self.values if each[2] == "g"]
        groups = []
        for ranks in {tuple(self.some()) for _ in range(self.random.randint(1, 3))}:
            words = [f"@:{rank}" for rank in ranks]
            for rank in ranks:
                self.add(rank, ["fence", "n", *self.random.sample(words, len(words))], batch=batch)
        for _ in range(self.random.randint(1, 3)):
            ranks, name = self.some(), f"g{self.fresh()}"
            groups.append((ranks, name))
            self.construct(ranks, name, batch)
        for ranks in {tuple(self.some()) for _ in range(self.random.randrange(2))}:
            words = [f"@:{rank}" for rank in ranks]
            for rank in ranks:
                self.add(rank, ["connect", *self.random.sample(words, len(words))], batch=batch)
        for rank in range(self.size):
            for owner, key, _, value in self.chosen(rank, known, 3, batch):
                # Its owner committed it long ago, whoever has heard of that.
                self.add(rank, ["get", f"@:{owner}", key], value, batch)
            steps = self.scripts["main", rank]
            mine = steps[before[rank] :]
            self.random.shuffle(mine)
            steps[before[rank] :] = mine
        for ranks, name in groups:
            for rank in ranks:
                self.add(rank, ["destruct", name])

    def spawned(self) -> None:
        """A job that does something of its own, and meets the one who has spawned it."""
        parent, label = self.random.randrange(self.size), f"job{self.fresh()}"
        size = self.random.randint(1, 3)
        kinds = tuple(self.random.choices(self.all_kinds, k=size))
        self.jobs[label] = kinds
        number, words = self.add(parent, ["spawn"]), []
        for kind in kinds:
            words += ["+"] * bool(words) + ["RUN", kind, label]
        steps = self.scripts["main", parent]
        steps[-1] = steps[-1]._replace(words=("spawn", *words))
        own = [each for each in self.values if each[0] == parent and each[2] == "g"]
        theirs = []
        collecting = ""
        for rank in range(size):
            self.scripts[label, rank] = []
            key, value = f"k{self.fresh()}", self.value()
            theirs.append((rank, key, value))
            self.add(rank, ["put", key, "g", value], job=label)
            self.add(rank, ["commit"], job=label)
            chosen = self.random.choice("yn")
            collecting = chosen if self.has(SOME_COLLECT) else collecting or chosen
            self.add(rank, ["fence", collecting, "@:*"], job=label)
        for rank in range(size):
            for other, key, value in theirs:
                self.add(rank, ["get", f"@:{other}", key], value, job=label)
            both = ["@:*", "^:"]
            self.add(rank, ["connect", *self.random.sample(both, 2)], job=label)
            if own:
                _, key, _, value = self.random.choice(own)
                self.add(rank, ["get", "^:", key], value, job=label)
            self.add(rank, ["disconnect", *self.random.sample(both, 2)], job=label)
        both = [f"{number}:*", f"@:{parent}"]
        self.add(parent, ["connect", *self.random.sample(both, 2)])
        for rank, key, value in theirs:
            self.add(parent, ["get", f"{number}:{rank}", key], value)
        self.add(parent, ["disconnect", *self.random.sample(both, 2)])

    def plan(self) -> Plan:
        """Return the plan."""
        everyone = list(range(self.size))
        # Whoever is notified has to listen by then.
        self.sync(everyone)
        # What is of all has to be there before it is read at any time.
        self.exchange()
        self.sync(everyone)
        doings = [self.exchange] * 4 + [self.publishing] * 2 + [self.group] * 2 + [self.event] * 2
        doings += [self.at_once] * 3 * self.has(AT_ONCE)
        doings += [self.connection] * self.has(CONNECTED)
        doings += [self.spawned] * self.random.choice((0, 0, 2)) * self.has(CONNECTED)
        for _ in range(self.random.randint(4, 12)):
            doing = self.random.choice(doings)
            doing()
            if doing == self.exchange:
                self.sync(everyone)
        self.hear()
        self.sync(everyone)
        return self.made()

    def hear(self) -> None:
        for rank, serials in self.events.items():
            heard = sorted(serials)
            self.add(rank, ["hear", len(heard)], " ".join([HEARD, *map(str, heard)]))

    def made(self) -> Plan:
        return Plan(self.seed, self.server, self.nodes, self.kinds, self.scripts, self.jobs)


def differences(plan: Plan, told: dict[tuple[str, int], dict[int, str]]) -> tuple[int, list[str]]:
    """Compare what ranks have told with a plan.

    Returns:
        How much was compared, and what is different.
    """
    found: list[str] = []
    checks = 0
    ids: dict[str, dict[str, str]] = {}
    for (label, rank), steps in plan.scripts.items():
        mine = told.get((label, rank), {})
        for step in steps:
            text, wanted = mine.get(step.number, "nothing"), step.expected
            checks += 1
            match = CONSTRUCTED.fullmatch(text)
            if step.words[0].partition("/")[0] in CONSTRUCTS and match and not wanted.startswith("status"):
                name, members = wanted.split()
                if match[2] not in ("?", members):
                    found.append(f"{label}.{rank}: {step}: members {match[2]}, not {members}")
                if match[1] != "?":
                    checks += 1
                    ids.setdefault(name, {})[f"{label}.{rank}"] = match[1]
            elif text != wanted:
                found.append(f"{label}.{rank}: {step}: {text:.200}, not {wanted:.200}")
        checks += 1
        if mine.get(-2) != SUCCESS and not any(step.words[0] == "die" for step in steps):
            found.append(f"{label}.{rank}: finalize: {mine.get(-2, 'nothing')}")
    whose: dict[str, str] = {}
    for name, numbers in ids.items():
        if len(set(numbers.values())) > 1:
            found.append(f"members of {name} do not agree on its context id: {numbers}")
        for number in set(numbers.values()):
            if whose.setdefault(number, name) != name:
                found.append(f"{whose[number]} and {name} have the same context id {number}")
    return checks, found

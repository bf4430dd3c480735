"""The links of a test's cluster: between a rank and its server, and between the servers of two nodes.

A link passes everything on at once and in order. It can be slow (`delay`), let nothing through (`drop`) and break
(`cut`). The same rules hold on real processes, where `relay.py` puts the links of ranks between, and on virtual time.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Call = Callable[[], None]
    Later = Callable[[float, Call], object]
    Link = int | Sequence[int | str]
    Ends = int | tuple[str, str]


class Gate:
    """One direction of a link: makes calls in their order, at once, later, or not before it is opened again.

    Args:
        later: Has a function called after some seconds.
    """

    __slots__ = ("_later", "_waiting", "seconds", "shut")

    def __init__(self, later: Later) -> None:
        self._later = later
        self._waiting: deque[Call] = deque()
        self.seconds = 0.0
        self.shut = False

    def add(self, call: Call) -> None:
        """Have a call made."""
        if not (self.shut or self.seconds or self._waiting):
            call()
            return
        self._waiting.append(call)
        if not self.shut:
            self._later(self.seconds, self._next)

    def slow(self, seconds: float) -> None:
        """Make each call so many seconds later from now on; also what was held back."""
        held, self.shut, self.seconds = self.shut, False, seconds
        for _ in self._waiting if held else ():
            self._later(seconds, self._next)

    def close(self) -> None:
        """Hold back what is on its way, and what comes from now on."""
        self.shut = True

    def open(self) -> None:
        """Make all calls that were held back, and others at once."""
        self.shut, self.seconds = False, 0.0
        while self._waiting and not self.shut:
            self._waiting.popleft()()

    def _next(self) -> None:
        # Calls that a gate has made at its opening leave timers behind.
        if self._waiting and not self.shut:
            self._waiting.popleft()()


class Links:
    """The gates of all links.

    Args:
        later: Has a function called after some seconds, where all that gates let through is called.
        nodes: The names of the nodes, by number.
        ranks: How many ranks there are.
        cut_rank: Ends the connection of a rank.
        cut_nodes: Ends the connection of the servers of two nodes.
    """

    def __init__(
        self,
        later: Later,
        nodes: Sequence[str],
        ranks: int,
        cut_rank: Callable[[int], None],
        cut_nodes: Callable[[str, str], None],
    ) -> None:
        self._later = later
        self._nodes = tuple(nodes)
        self._ranks = ranks
        self._cut_rank = cut_rank
        self._cut_nodes = cut_nodes
        self._gates: dict[int | tuple[str, str], tuple[Gate, Gate]] = {}

    def gates(self, ends: Ends) -> tuple[Gate, Gate]:
        """Return both directions of a link: from a rank to its server and back, or from the first node and back."""
        found = self._gates.get(ends)
        if found is None:
            found = self._gates[ends] = Gate(self._later), Gate(self._later)
        return found

    def between(self, one: str, other: str, call: Call) -> None:
        """Have a call made that goes from the server of a node to that of another."""
        pair = self._gates.get((one, other) if one < other else (other, one))
        if pair is None:
            call()
        else:
            pair[one > other].add(call)

    def ends(self, link: Link) -> Ends:
        """Return the ends of a link as a person has named it: a rank, or two nodes by name or number.

        Raises:
            ValueError: There is no such link.
        """
        if isinstance(link, int):
            if not 0 <= link < self._ranks:
                raise ValueError(f"rank {link} has no link to a server: the ranks are 0 to {self._ranks - 1}")
            return link
        given = link if isinstance(link, list | tuple) else ()
        names = [self._nodes[end] if isinstance(end, int) and 0 <= end < len(self._nodes) else end for end in given]
        if len(names) != 2 or names[0] == names[1] or any(name not in self._nodes for name in names):
            raise ValueError(
                f"{link!r:.80} does not name a link: that is a rank, or two of {', '.join(self._nodes):.200}"
            )
        first, second = sorted(map(str, names))
        return first, second

    def act(self, verb: str, link: Link, seconds: float = 0.0) -> None:
        """Do to a link what `verb` says: `delay`, `drop`, `restore` or `cut` it.

        Raises:
            ValueError: There is no such link, or a delay is negative.
        """
        ends = self.ends(link)
        if not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise ValueError(f"a link cannot be slower by {seconds!r:.80} s")
        if verb == "cut":
            if isinstance(ends, int):
                self._cut_rank(ends)
            else:
                self._cut_nodes(*ends)
            return
        for gate in self.gates(ends):
            if verb == "delay":
                gate.slow(seconds)
            elif verb == "drop":
                gate.close()
            else:
                gate.open()

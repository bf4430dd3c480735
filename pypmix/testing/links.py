"""The links of a test's cluster: between a rank and its server, and between the servers of two nodes.

A link forwards all messages at once and in order. It can be slow (`delay`), hold back messages (`drop`) and break
(`cut`). The same rules apply to real processes, whose links `relay.py` makes, and to virtual time.
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
    """One direction of a link: makes calls in order, at once, delayed, or when it is opened again.

    Args:
        later: Schedules a call after some seconds.
    """

    __slots__ = ("_later", "_waiting", "seconds", "shut")

    def __init__(self, later: Later) -> None:
        self._later = later
        self._waiting: deque[Call] = deque()
        self.seconds = 0.0
        self.shut = False

    def add(self, call: Call) -> None:
        """Add a call to make."""
        if not (self.shut or self.seconds or self._waiting):
            call()
            return
        self._waiting.append(call)
        if not self.shut:
            self._later(self.seconds, self._next)

    def slow(self, seconds: float) -> None:
        """Delay each call by `seconds`, including the calls that were held back."""
        held, self.shut, self.seconds = self.shut, False, seconds
        for _ in self._waiting if held else ():
            self._later(seconds, self._next)

    def close(self) -> None:
        """Hold back pending and later calls."""
        self.shut = True

    def open(self) -> None:
        """Make all calls that were held back, and later calls at once."""
        self.shut, self.seconds = False, 0.0
        while self._waiting and not self.shut:
            self._waiting.popleft()()

    def _next(self) -> None:
        # The timers of calls that `open` has made still expire.
        if self._waiting and not self.shut:
            self._waiting.popleft()()


class Links:
    """The gates of all links.

    Args:
        later: Schedules a call after some seconds, in the thread in which gates make their calls.
        nodes: The names of the nodes, by number.
        ranks: The number of ranks.
        cut_rank: Closes the connection of a rank.
        cut_nodes: Closes the connection of the servers of two nodes.
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

    def gates(self, pair: Ends) -> tuple[Gate, Gate]:
        """Return both directions of a link: from the rank or the first node, and back."""
        gates = self._gates.get(pair)
        if gates is None:
            gates = self._gates[pair] = Gate(self._later), Gate(self._later)
        return gates

    def between(self, one: str, other: str, call: Call) -> None:
        """Add a call from the server of a node to the server of another node."""
        pair = self._gates.get((one, other) if one < other else (other, one))
        if pair is None:
            call()
        else:
            pair[one > other].add(call)

    def resolve_ends(self, link: Link) -> Ends:
        """Return the ends of a link that is named by a rank, or by two nodes as names or numbers.

        Raises:
            ValueError: The link does not exist.
        """
        if isinstance(link, int):
            if not 0 <= link < self._ranks:
                raise ValueError(f"rank {link} has no link to a server: the ranks are 0 to {self._ranks - 1}")
            return link
        parts = link if isinstance(link, list | tuple) else ()
        names = [self._nodes[end] if isinstance(end, int) and 0 <= end < len(self._nodes) else end for end in parts]
        if len(names) != 2 or names[0] == names[1] or any(name not in self._nodes for name in names):
            raise ValueError(f"{link!r:.80} does not name a link: use a rank, or two of {', '.join(self._nodes):.200}")
        first, second = sorted(map(str, names))
        return first, second

    def act(self, verb: str, link: Link, seconds: float = 0.0) -> None:
        """Apply `delay`, `drop`, `restore` or `cut` to a link.

        Raises:
            ValueError: The link does not exist, or a delay is negative.
        """
        ends = self.resolve_ends(link)
        if not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise ValueError(f"the delay of a link is a number of seconds from 0, not {seconds!r:.80}")
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

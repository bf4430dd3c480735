"""The conversion of `register_nspace`'s infos to job info, and a server's lookups in it.

A program describes a job in one list: infos of the job, arrays for nodes, applications and procs, or the maps of nodes
and procs. As libpmix does, this module derives the missing infos from the maps.
"""

from __future__ import annotations

from pypmix.compat.scalars import refused
from pypmix.server import Server
from pypmix.standard import attrs, codes
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NODE_KEYS = frozenset(
    attr.key for attr in (attrs.LOCAL_PEERS, attrs.LOCAL_PROCS, attrs.LOCAL_SIZE, attrs.LOCALLDR, attrs.NODE_SIZE)
)
"""Keys that describe the server's node if they are among the infos of a job, outside of an array for a node."""

RANKS = 1 << 20
"""The maximum number of ranks of a job, so that a typing error in its size does not fill the memory."""

Infos = dict[str, Info]


def _items(info: Info) -> list[Info]:
    data = info.value.data
    if not isinstance(data, DataArray) or data.type != codes.INFO:
        raise refused(f"{info.key} is an array of infos, not {info.value!r:.80}")
    return list(data.items)


def _by_key(infos: Iterable[Info]) -> Infos:
    return {info.key: info for info in infos}


def _number(infos: Infos, key: str) -> int | None:
    info = infos.get(key)
    data = None if info is None else info.value.data
    return int(data) if isinstance(data, int) and not isinstance(data, bool) else None


def _text(infos: Infos, key: str) -> str | None:
    info = infos.get(key)
    data = None if info is None else info.value.data
    return data if isinstance(data, str) else None


def _named(node: Infos) -> tuple[Info, ...]:
    """Return the infos of a node, beginning with its name and id, as libraries require."""
    first = [node[key] for key in (attrs.HOSTNAME.key, attrs.NODEID.key) if key in node]
    return (*first, *[info for info in node.values() if info not in first])


def ranks_of(text: str) -> list[int]:
    """Return the ranks of a list such as `0,2,5-7`.

    Raises:
        PMIxError: The text is not such a list (`ERR_BAD_PARAM`).
    """
    found: list[int] = []
    for part in filter(None, [word.strip() for word in text.split(",")]):
        first, _, last = part.partition("-")
        low, high = decimal(first, RANKS - 1), decimal(last or first, RANKS - 1)
        if low is None or high is None:
            raise refused(f"{part!r:.40} is not a rank")
        found.extend(range(low, high + 1))
    return found


class Layout:
    """The infos of a job, sorted by level and completed.

    Args:
        nspace: The job's namespace.
        infos: The program's infos of the job.
        hostname: The name of the server's node.
        least: The minimum size of the job if the infos do not give its size.
    """

    def __init__(self, nspace: str, infos: Iterable[Info], hostname: str, least: int = 0) -> None:
        self.nspace = nspace
        self.hostname = hostname
        self._least = least
        self.job: Infos = {}
        self.sessions: list[tuple[Info, ...]] = []
        self.nodes: list[Infos] = []
        self.apps: list[tuple[Info, ...]] = []
        self.procs: dict[int, Infos] = {}
        self._own: Infos = {}
        self._maps: list[tuple[str, list[int]]] = []
        names: list[str] | None = None
        ranks: list[list[int]] | None = None
        for info in infos:
            key = info.key
            if key == attrs.NODE_MAP.key:
                names = self._parse(Server.parse_regex, info)
            elif key == attrs.PROC_MAP.key:
                ranks = self._parse(Server.parse_ppn, info)
            else:
                self._take(info)
        if names is not None:
            for number, name in enumerate(names):
                self._placed(number, name, ranks[number] if ranks is not None and number < len(ranks) else [])
        if self._own:
            self._here().update(self._own)
        self._complete()

    @staticmethod
    def _parse(parse: object, info: Info) -> list:  # type: ignore[type-arg]
        data = info.value.data
        data = data.rstrip(b"\0") if isinstance(data, bytes) else data
        try:
            return parse(data)  # type: ignore[operator, no-any-return]
        except (TypeError, ValueError) as error:
            raise refused(f"{info.key}: {error}") from error

    def _take(self, info: Info) -> None:
        key = info.key
        if key == attrs.JOB_INFO_ARRAY.key:
            for each in _items(info):
                self._take(each)
        elif key == attrs.SESSION_INFO_ARRAY.key:
            self.sessions.append(tuple(_items(info)))
        elif key == attrs.APP_INFO_ARRAY.key:
            self.apps.append(tuple(_items(info)))
        elif key == attrs.NODE_INFO_ARRAY.key:
            self.nodes.append(_by_key(_items(info)))
        elif key == attrs.PROC_DATA.key:
            self._proc(_by_key(_items(info)))
        elif key in NODE_KEYS:
            self._own[key] = info
        else:
            self.job[key] = info

    def _proc(self, infos: Infos) -> None:
        rank = _number(infos, attrs.RANK.key)
        if rank is None or not 0 <= rank < RANK_VALID:
            raise refused(f"the infos of a proc of {self.nspace} do not say which rank it is")
        self.procs.setdefault(rank, {}).update(infos)

    def _node(self, number: int, name: str) -> Infos:
        for node in self.nodes:
            if _text(node, attrs.HOSTNAME.key) == name or _number(node, attrs.NODEID.key) == number:
                return node
        node = _by_key([attrs.NODEID(number), attrs.HOSTNAME(name)])
        self.nodes.append(node)
        return node

    def _here(self) -> Infos:
        for node in self.nodes:
            if _text(node, attrs.HOSTNAME.key) == self.hostname:
                return node
        return self._node(len(self.nodes), self.hostname)

    def _placed(self, number: int, name: str, ranks: list[int]) -> None:
        """Add the infos of a node that follow from the maps; the program's own infos take precedence."""
        node = self._node(number, name)
        more = [
            attrs.NODEID(number),
            attrs.HOSTNAME(name),
            attrs.LOCAL_SIZE(len(ranks)),
            attrs.NODE_SIZE(len(ranks)),
            attrs.LOCAL_PEERS(",".join(map(str, ranks))),
            attrs.LOCAL_PROCS(Proc.unchecked_ranks(self.nspace, ranks)),
        ]
        if ranks:
            more.append(attrs.LOCALLDR(ranks[0]))
        for info in more:
            node.setdefault(info.key, info)
        for local, rank in enumerate(ranks):
            proc = self.procs.setdefault(rank, {})
            for info in (
                attrs.RANK(rank),
                attrs.HOSTNAME(name),
                attrs.NODEID(number),
                attrs.LOCAL_RANK(local),
                attrs.NODE_RANK(local),
            ):
                proc.setdefault(info.key, info)

    def _complete(self) -> None:
        size = _number(self.job, attrs.JOB_SIZE.key)
        if size is None:
            size = max(max(self.procs, default=-1) + 1, self._least)
            self.job[attrs.JOB_SIZE.key] = attrs.JOB_SIZE(size)
        if not 0 <= size <= RANKS:
            raise refused(f"a job of {size} procs")
        names = [name for node in self.nodes if (name := _text(node, attrs.HOSTNAME.key)) is not None]
        more = [attrs.JOBID(self.nspace), attrs.UNIV_SIZE(size), attrs.MAX_PROCS(size), attrs.JOB_NUM_APPS(1)]
        if names:
            more += [attrs.NUM_NODES(len(names)), attrs.NODE_LIST(",".join(names))]
        for info in more:
            self.job.setdefault(info.key, info)
        if not self.apps:
            self.apps.append((attrs.APPNUM(0), attrs.APP_SIZE(size), attrs.APPLDR(0)))

    def info(self) -> JobInfo:
        """Return the job info."""
        return JobInfo(
            self.nspace,
            job=tuple(self.job.values()),
            nodes=tuple([_named(node) for node in self.nodes]),
            apps=tuple(self.apps),
            sessions=tuple(self.sessions),
            procs=tuple(
                [
                    (rank, tuple([info for info in infos.values() if info.key != attrs.RANK.key]))
                    for rank, infos in sorted(self.procs.items())
                ]
            ),
        )


class Job:
    """A registered job of a server.

    Args:
        nspace: The job's namespace.
        nlocal: The number of the job's procs on this server.
        infos: The program's infos of the job.
        hostname: The name of the server's node.

    Attributes:
        given: The program's infos of the job.
        local: The ranks on this server; if the infos do not give them, a guess until clients are registered.
        clients: The user and group of each registered client, by rank.
        stored: The values of `store_internal`, by rank and key.
    """

    def __init__(self, nspace: str, nlocal: int, infos: Iterable[Info], hostname: str) -> None:
        self.given = tuple(infos)
        self._layout = Layout(nspace, self.given, hostname, nlocal)
        self.info = self._layout.info()
        self.nspace = nspace
        size = _number(self._layout.job, attrs.JOB_SIZE.key) or 0
        self.ranks = sorted({*range(size), *self._layout.procs})
        self.clients: dict[int, tuple[int, int]] = {}
        self.stored: dict[tuple[int, str], Value] = {}
        self.local = self._guess(nlocal)

    def _guess(self, nlocal: int) -> tuple[int, ...]:
        if nlocal >= len(self.ranks):
            return tuple(self.ranks)
        for node in self._layout.nodes:
            if _text(node, attrs.HOSTNAME.key) == self._layout.hostname:
                peers = [rank for rank in ranks_of(_text(node, attrs.LOCAL_PEERS.key) or "") if rank in self.ranks]
                if peers:
                    return tuple(peers[: max(nlocal, 0)])
        return tuple(self.ranks[: max(nlocal, 0)])

    def admit(self, rank: int) -> bool:
        """Add a rank to the local ranks, in place of a rank without a client; return True if the local ranks change.

        Raises:
            PMIxError: The job has no such rank (`ERR_BAD_PARAM`).
        """
        if rank in self.local:
            return False
        if rank not in self.ranks:
            raise refused(f"the nspace {self.nspace!r} has no rank {rank}")
        spare = [other for other in self.local if other not in self.clients]
        dropped = spare[-1:]
        self.local = tuple(sorted({*self.local, rank} - {*dropped}))
        return True

    def find(self, rank: int, key: str, directives: Iterable[Info]) -> Value | None:
        """Return a value of the job info, None if it is missing.

        Args:
            rank: The rank; the wildcard for the job.
            key: The key.
            directives: The directives of the get, which may choose the level.
        """
        given = _by_key(directives)
        if (stored := self.stored.get((rank, key))) is not None:
            return stored
        for level in self._levels(rank, given):
            for info in level:
                if info.key == key:
                    return info.value
        return None

    def _levels(self, rank: int, infos: Infos) -> list[Iterable[Info]]:
        hostname, nodeid = _text(infos, attrs.HOSTNAME.key), _number(infos, attrs.NODEID.key)
        if attrs.NODE_INFO.key in infos or hostname is not None or nodeid is not None:
            return [
                node.values()
                for node in self._layout.nodes
                if (hostname is None or _text(node, attrs.HOSTNAME.key) == hostname)
                and (nodeid is None or _number(node, attrs.NODEID.key) == nodeid)
            ]
        if attrs.APP_INFO.key in infos or attrs.APPNUM.key in infos:
            number = _number(infos, attrs.APPNUM.key) or 0
            return [app for app in self._layout.apps if (_number(_by_key(app), attrs.APPNUM.key) or 0) == number]
        if attrs.SESSION_INFO.key in infos:
            return [*self._layout.sessions]
        if rank != RANK_WILDCARD and rank in self._layout.procs:
            return [self._layout.procs[rank].values()]
        own = [n for n in self._layout.nodes if _text(n, attrs.HOSTNAME.key) == self._layout.hostname]
        return [
            self._layout.job.values(),
            *self._layout.sessions,
            *[node.values() for node in own],
            *self._layout.apps[:1],
        ]

    def proc(self, rank: int) -> Proc:
        """Return the proc of a rank."""
        return Proc.unchecked(self.nspace, rank)

    def procs_on(self, node: str) -> list[Proc]:
        """Return the procs that run on a node."""
        found = []
        for rank, infos in sorted(self._layout.procs.items()):
            if _text(infos, attrs.HOSTNAME.key) == node:
                found.append(Proc.unchecked(self.nspace, rank))
        return found

    def nodes(self) -> list[str]:
        """Return the names of the nodes with procs of the job, or of all nodes if the placement is not known."""
        used = {_text(infos, attrs.HOSTNAME.key) for infos in self._layout.procs.values()}
        names = [name for node in self._layout.nodes if (name := _text(node, attrs.HOSTNAME.key)) is not None]
        return [name for name in names if name in used] or names

"""Values for all: `bcast`, `allgather`, `gather` and `scatter` of a client, a group and a connection.

Every call is a step: a put, a collecting fence, and gets. Who takes part in a step is decided once, by its fence: the
members of a group or a connection may leave or end at any time, and each rank receives that news at another moment. So
nothing after the fence depends on the membership that a rank knows. A server of the Python engine returns the
participants with the fence. With other servers they are the members that have put something for this step: that is the
same for all, since a member puts before it fences. All ranks then read the heads of all participants, so that they see
the same mistakes. In a job, which loses no member without an error for all, each rank reads only what it needs.
"""

from __future__ import annotations

from pypmix.aio.operations.base import Asks
from pypmix.aio.waits import pause
from pypmix.arguments import timed
from pypmix.engine.collective.rules import checksum
from pypmix.engine.groups.talk import size as size_info
from pypmix.standard.errors import NotFound, OperationTimeout, PartialSuccess, PMIxError, RemoteProtocolError
from pypmix.standard.naming import name_proc
from pypmix.standard.ops import FENCE_PARTICIPANTS, Fence
from pypmix.standard.types import Info, Proc, check_integer
from pypmix.steps import GET_SECONDS, PIECE, Collective, Steps, Values, decode_piece, steps_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from pypmix.aio.waits import Port
    from pypmix.steps import Codec, Piece

_LEAST = 4096
"""The bytes of each rank's value that go with one fence of a scatter, however many ranks there are.

Servers drop the longer pieces once all have read them.
"""

_NEWS_SECONDS = 5.0
"""Seconds in which the news must arrive that a member has left or ended without which a fence has succeeded."""

_NEWS_PAUSE = 0.02


class Participants:
    """The participants of collective calls, as these calls need them; `_call_participants` of each class makes one.

    Attributes:
        changes: Whether members may leave or end without an error for all.
        ft: Whether the others continue without them.
    """

    changes = False
    ft = False

    def __init__(self, client: Asks, steps: Steps) -> None:
        self.client = client
        self.steps = steps

    def members(self) -> tuple[Proc, ...]:
        """Return the participants by rank, as the caller knows them now."""
        raise NotImplementedError

    async def fence(self, collect: bool, timeout: float | None) -> frozenset[Proc] | None:
        """Wait for all participants; return the procs that took part, or None if the server does not report them."""
        raise NotImplementedError

    def attend(self) -> None:
        """From now on process arriving messages even while no operation waits."""


class JobParticipants(Participants):
    """All procs of a client's job."""

    def __init__(self, client: Asks) -> None:
        super().__init__(client, steps_of(client.proc))

    def members(self) -> tuple[Proc, ...]:
        return tuple(self.client.job)

    async def fence(self, collect: bool, timeout: float | None) -> frozenset[Proc] | None:
        await self.client.fence(collect=collect, timeout=timeout)
        return None


class Addressed(Participants):
    """The members of a group or a connection, which has an address; a subclass has `members`.

    Args:
        client: The client.
        port: The way to its session.
        steps: The steps of these members.
        address: The group or connection.
        directives: Further directives for each fence.
    """

    changes = True

    def __init__(
        self, client: Asks, port: Port, steps: Steps, address: Proc, directives: tuple[Info, ...] = ()
    ) -> None:
        super().__init__(client, steps)
        self._port = port
        self._address = address
        self._directives = directives

    async def fence(self, collect: bool, timeout: float | None) -> frozenset[Proc] | None:
        if not collect:
            await self.client.fence(self._address, timeout=timeout, info=self._directives)
            return None
        expected = self.steps.participants
        ask = size_info(FENCE_PARTICIPANTS, checksum(expected))
        await self.client.commit()
        found = await self._port.run(Fence((self._address,), True, timed((*self._directives, ask), timeout)))
        return expected if found is not None and not found else found

    def attend(self) -> None:
        self._port.attend()


class Transfer:
    """One collective call in progress.

    Args:
        callers: The participants.
        call: The operation.
        root: The root, as its rank or as a proc; None if there is no root.
        codec: The codec of all values.
        timeout: Seconds for each wait.

    Raises:
        IndexError: There is no such rank.
        ValueError: The proc is not, and never was, a member.
        TypeError: The root is neither a rank nor a proc, or the codec is not a codec.
    """

    def __init__(
        self, callers: Participants, call: str, root: int | Proc | None, codec: Codec | None, timeout: float | None
    ) -> None:
        self._callers = callers
        self._client = callers.client
        self._steps = steps = callers.steps
        self._timeout = timeout
        self._members = callers.members()
        self._order: Sequence[Proc] = steps.know(self._members) if callers.changes else self._members
        self._renews = self._client.supports("get.refresh")
        self._own = self._client.proc
        self._root: Proc | None = None
        self._no_root: IndexError | None = None
        self._participants = frozenset(self._members)
        name = ""
        if root is not None:
            self._root = self._find_root(call, root)
            name = f"rank {root}" if self._root is None else str(self._root)
        self._call = Collective(call, self._own, name or None, codec)
        self.rooted = self._root == self._own
        # The root compares itself with one of the others, as they do with it.
        at = 0 if self._root is None or self._root not in self._members else self._members.index(self._root)
        self._after = self._members[(at + 1) % len(self._members)]

    def _find_root(self, call: str, root: int | Proc) -> Proc | None:
        """Return the root; None if the caller knows of a departure that has taken away this rank.

        The others may not know it, and wait for the caller: so the call is made, and fails for all.
        """
        if isinstance(root, Proc):
            if root not in self._order:
                raise ValueError(f"the root of {call} is not a member: {name_proc(root, self._own.nspace)}")
            return root
        root = check_integer(root, f"the root of {call}, a rank or a Proc,")
        if 0 <= root < len(self._members):
            return self._members[root]
        error = IndexError(f"the root of {call} is a rank from 0 to {len(self._members) - 1}, not {root}")
        if not 0 <= root < len(self._order):
            raise error
        self._no_root = error
        return None

    async def bcast(self, value: object) -> Any:
        """Return the root's value."""
        call, root = self._call, self._root
        if self.rooted:
            call.give(value)
        heads = await self._begin(call.given[0], sources=(self._after if self.rooted else root,))
        assert root is not None
        if self.rooted:
            for index in range(1, call.pieces()):
                await self._step(call.piece(self._steps.done, index, call.given[0]))
            return call.value(call.given[0])
        parts = [heads[root].data]
        for index in range(1, heads[root].pieces):
            step = await self._step(None)
            self._check_root()
            parts.append((await self._read(root, step, index)).data)
        return call.value(b"".join(parts))

    async def allgather(self, value: object) -> Values:
        """Return the values of all, by rank."""
        call, own = self._call, self._own
        call.give(value)
        heads = await self._begin(call.given[0], sources=self._members)
        parts = {proc: [head.data] for proc, head in heads.items()}
        pieces = {proc: head.pieces for proc, head in heads.items()}
        pieces[own], parts[own] = call.pieces(), call.given
        index = 1
        while index < max(pieces.values()):
            step = await self._step(call.piece(self._steps.done, index, call.given[0]) if index < pieces[own] else None)
            for proc in [proc for proc, count in pieces.items() if proc != own and index < count]:
                if proc in self._participants:
                    parts[proc].append((await self._read(proc, step, index)).data)
                else:
                    # It has left or ended before it had given all of its value.
                    del pieces[proc], parts[proc]
            index += 1
        return self._values(parts)

    async def scatter(self, items: Sequence[object] | Mapping[Proc, object] | None) -> Any:
        """Return the root's value for the caller."""
        call, root, own, size = self._call, self._root, self._own, len(self._members)
        share = max(_LEAST, PIECE // size)
        if self.rooted:
            call.give_each(() if items is None else items, self._members)
        values = dict(zip(self._members, call.given * (size // len(call.given)), strict=True)) if self.rooted else {}
        pieces = call.pieces(share)
        by_proc = {proc: call.piece(self._steps.done, 0, data, share) for proc, data in values.items()}
        heads = await self._begin(b"", by_proc, sources=(self._after if self.rooted else root,), share=share)
        assert root is not None
        parts: list[bytes] = []
        if not self.rooted:
            pieces = heads[root].pieces
        for index in range(pieces):
            step = self._steps.done - 1
            if index:
                by_proc = {proc: call.piece(step + 1, index, data, share) for proc, data in values.items()}
                step = await self._step(None, by_proc)
                self._check_root()
            if not self.rooted:
                parts.append((await self._read(root, step, index, self._key(step, root, own))).data)
        return call.value(values[own] if self.rooted else b"".join(parts))

    async def gather(self, value: object) -> Values | None:
        """Return the values of all, by rank, at the root; None elsewhere."""
        call, root, own = self._call, self._root, self._own
        call.give(value)
        given = call.given[0]
        # Only the root reads values, so only it and the giver need the pieces after the first. If all read the heads,
        # the first piece has a separate key.
        apart = self._callers.changes
        each = {root: call.piece(self._steps.done, 0, given)} if apart and root is not None else {}
        problems: list[PMIxError] = []
        heads = await self._begin(
            b"" if self.rooted or apart else given,
            each,
            sources=self._members if self.rooted else (root,),
            problems=problems if self.rooted else None,
        )
        assert root is not None
        step = self._steps.done - 1
        if not self.rooted:
            await self._give_rest(root, step)
            return None
        parts: dict[Proc, list[bytes]] = {own: [given]}
        for proc, head in heads.items():
            try:
                first = await self._read(proc, step, 0, self._key(step, proc, root)) if apart else head
                parts[proc] = [first.data]
                for index in range(1, first.pieces):
                    await self._client.fence((proc, root), collect=True, timeout=self._timeout)
                    parts[proc].append((await self._read(proc, step, index, self._more(step, index))).data)
            except PMIxError as error:
                parts.pop(proc, None)
                if not (self._callers.ft and isinstance(error, PartialSuccess)):
                    problems.append(error)
        if problems:
            raise problems[0]
        return self._values(parts)

    async def _give_rest(self, root: Proc, step: int) -> None:
        """Give the root of a gather what is beyond the first piece."""
        given = self._call.given[0]
        for index in range(1, self._call.pieces()):
            key = self._more(step, index)
            await self._client.put(key, self._call.piece(step, index, given))
            self._steps.add(key)
            try:
                await self._client.fence((self._own, root), collect=True, timeout=self._timeout)
            except PartialSuccess:
                if not self._callers.ft:
                    raise
                # The root has ended, and the others have no error either.
                return

    def _values(self, parts: Mapping[Proc, list[bytes]]) -> Values:
        procs = [proc for proc in self._order if proc in parts]
        return Values([self._call.value(b"".join(parts[proc])) for proc in procs], procs)

    async def _begin(
        self,
        data: bytes,
        parts: Mapping[Proc, bytes] | None = None,
        *,
        sources: Iterable[Proc | None],
        share: int = PIECE,
        problems: list[PMIxError] | None = None,
    ) -> dict[Proc, Piece]:
        """Take the first step, and return the heads of others.

        Args:
            data: The caller's value for all.
            parts: The pieces of its values for single procs.
            sources: The procs whose heads are read in a job.
            share: The bytes of a piece.
            problems: Takes the errors of others in a job, if these are to be raised later.

        Raises:
            PMIxError: A participant has made another call or could not give its value, or the root has exited.
        """
        call = self._call
        if call.problem is not None:
            data = call.given[0]
        step = await self._step(call.piece(self._steps.done, 0, data, share), parts)
        changes = self._callers.changes
        wanted = [proc for proc in self._order if proc in self._participants] if changes else sources
        heads: dict[Proc, Piece] = {}
        problem: Exception | None = call.problem or self._no_root
        for proc in wanted:
            if proc is None or proc == self._own:
                continue
            try:
                heads[proc] = await self._read(proc, step, 0)
            except PMIxError as error:
                if problems is None or changes:
                    problem = problem or error
                    break
                problems.append(error)
        if problem is not None:
            raise problem
        self._check_root()
        return heads

    def _check_root(self) -> None:
        """Raise an error if the root has left or ended before it came to the last step.

        Raises:
            PartialSuccess: It has.
        """
        root = self._root
        if self._callers.changes and root is not None and root not in self._participants:
            raise self._call.root_error(root)

    async def _step(self, piece: bytes | None, parts: Mapping[Proc, bytes] | None = None) -> int:
        """Put a piece for all, or one for each of some procs, and wait for all; return the number of the step."""
        steps, client = self._steps, self._client
        step = steps.done
        pieces = {self._key(step, self._own, whom): one for whom, one in (parts or {}).items()}
        if piece is not None:
            pieces[steps.key(step, self._renews)] = piece
        for key, one in pieces.items():
            await client.put(key, one)
        kept = [key for key, one in pieces.items() if not self._renews or len(one) > _LEAST]
        for key in steps.follow(kept):
            if key not in pieces:
                await client.put(key, b"")
        try:
            found = await self._callers.fence(True, self._timeout)
        except OperationTimeout:
            raise
        except PMIxError:
            steps.done += 1
            raise
        steps.done += 1
        if self._callers.changes:
            # Those that have given nothing to the first step are not waited for in the next ones.
            self._participants = await self._find_participants(step) if found is None else found
            steps.participants = self._participants
        return step

    async def _find_participants(self, step: int) -> frozenset[Proc]:
        """Return the members that have put a piece for a step, if the server does not report who took part.

        Raises:
            PartialSuccess: A member that has neither left nor ended has put nothing: it has made another call.
        """
        if not self._callers.ft and len(self._steps.participants) == len(self._members):
            # The fence would have failed without one of them.
            return self._steps.participants
        found = {self._own}
        for proc in self._steps.participants:
            if proc != self._own and await self._has_put(proc, step):
                found.add(proc)
        return frozenset(found)

    async def _has_put(self, proc: Proc, step: int) -> bool:
        key = self._steps.key(step, self._renews)
        limit = self._timeout or GET_SECONDS if proc in self._callers.members() else 0
        try:
            if decode_piece(await self._client.get(key, proc, timeout=limit)).step >= step:
                return True
        except (NotFound, OperationTimeout, RemoteProtocolError):
            pass
        self._callers.attend()
        for _ in range(round(_NEWS_SECONDS / _NEWS_PAUSE)):
            if proc not in self._callers.members():
                return False
            await pause(_NEWS_PAUSE)
        raise self._call.silence_error(proc)

    async def _read(self, proc: Proc, step: int, index: int, key: str = "") -> Piece:
        key = key or self._steps.key(step, self._renews)
        try:
            data = await self._client.get(key, proc, timeout=self._timeout or GET_SECONDS)
        except (NotFound, OperationTimeout) as error:
            raise self._call.silence_error(proc, error.engine) from error
        return self._call.read(proc, data, step, index)

    def _key(self, step: int, giver: Proc, whom: Proc) -> str:
        """Return the key of the piece that one proc has for another one alone."""
        return self._steps.key(step, self._renews, whom, giver)

    def _more(self, step: int, index: int) -> str:
        """Return the key of a further piece of a gather."""
        return f"{self._steps.base}.more.{index % 2 if self._renews else f'{step}.{index}'}"


class Exchanging:
    """The collective calls on values, of whatever has participants."""

    def _call_participants(self) -> Participants:
        """Return the participants."""
        raise NotImplementedError

    async def bcast(
        self, value: object = None, root: int | Proc = 0, *, codec: Codec | None = None, timeout: float | None = None
    ) -> Any:
        """Give a value of one rank to all; all ranks have to call it.

        It is a put under a reserved key, a collecting fence and a get, numbered, so that it may be called again
        and again. Values of any size go in pieces of 1 MiB.

        Args:
            value: The root's value: bytes, or any value that `put` accepts. The others leave it out.
            root: The rank that gives it, or its proc; the same at all. While members of a group leave or end, the same
                rank may be another proc for some members: then the call fails for all. A proc is always the same.
            codec: Turns objects into bytes and back, the same at all: an object with `dumps` and `loads`, such as the
                modules `json`, `marshal` and `pickle`. By default values keep their PMIx types, and nothing else is
                taken. Only unpickle what comes from programs that you trust.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The value, at the root too, as `get` returns it.

        Raises:
            IndexError: There is no such rank.
            TypeError, OverflowError: The value has no PMIx type, and no codec was given. The others get an error, too.
            PMIxError: A rank could not give its value, has called something else, or names another root or no codec.
            OperationTimeout: Not all arrived in time; `missing` names them if the server reports them.
            PartialSuccess: A rank ended without coming; in a group that continues without members that fail, it was
                the root.

        Example:
            >>> port = await me.bcast(4242 if me.rank == 0 else None)
        """
        return await Transfer(self._call_participants(), "bcast", root, codec, timeout).bcast(value)

    async def allgather(self, value: object, *, codec: Codec | None = None, timeout: float | None = None) -> Values:
        """Give the values of all ranks to all; all ranks have to call it. See `bcast` for the rest.

        Args:
            value: The value of this rank.
            codec: As for `bcast`.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The values by rank, the same at all ranks. In a group that continues without members that fail, those of the
            members that took part. `procs` of the list names them.

        Example:
            >>> hosts = await me.allgather(me.node.hostname)
            >>> print(hosts[0], hosts.procs[0])
        """
        return await Transfer(self._call_participants(), "allgather", None, codec, timeout).allgather(value)

    async def gather(
        self, value: object, root: int | Proc = 0, *, codec: Codec | None = None, timeout: float | None = None
    ) -> Values | None:
        """Give the values of all ranks to one; all ranks have to call it. See `bcast` for the rest.

        Args:
            value: The value of this rank.
            root: The rank that gets them, or its proc, the same at all; see `bcast`.
            codec: As for `bcast`.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The values by rank at the root, with `procs` as for `allgather`; None at the others.

        Raises:
            NotSupported: A value is above 1 MiB, and the server ends no fence of some procs of several nodes (Slurm).

        Example:
            >>> times = await me.gather(0.25)
            >>> if times is not None:
            ...     print("the slowest took", max(times))
        """
        return await Transfer(self._call_participants(), "gather", root, codec, timeout).gather(value)

    async def scatter(
        self,
        values: Sequence[object] | Mapping[Proc, object] | None = None,
        root: int | Proc = 0,
        *,
        codec: Codec | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Give each rank one of the root's values; all ranks have to call it. See `bcast` for the rest.

        Args:
            values: The root's values, one for each rank in order, or by proc. The others leave it out. In a group a
                sequence is for the members that the root knows when it calls.
            root: The rank that gives them, or its proc, the same at all; see `bcast`.
            codec: As for `bcast`.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The value for this rank.

        Raises:
            ValueError: The number of values is not that of the ranks. The others get an error, too.

        Example:
            >>> mine = await me.scatter([[rank, rank + 1] for rank in range(me.job.size)])
        """
        return await Transfer(self._call_participants(), "scatter", root, codec, timeout).scatter(values)

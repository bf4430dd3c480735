# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Values for all: `bcast`, `allgather`, `gather`, `scatter` and `barrier` of a client, a group and a connection."""

from __future__ import annotations

from pypmix.operations.base import Asks
from pypmix.requests.exchanging import GET_SECONDS, PIECE, Collective, Steps, steps_of
from pypmix.standard.errors import NotFound, OperationTimeout, PartialSuccess, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pypmix.requests.exchanging import Codec, Piece
    from pypmix.standard.types import Proc

_LEAST = 4096
"""The bytes of each rank's value that go with one fence of a scatter, however many ranks there are.

What is longer does not stay with the servers when all have read it.
"""


class Among:
    """The participants of collective calls, and what these calls need of them; `_among` of each class makes one."""

    def __init__(self, client: Asks, steps: Steps) -> None:
        self.client = client
        self.steps = steps

    def members(self) -> tuple[Proc, ...]:
        """Return the participants by rank, as the caller knows them now."""
        raise NotImplementedError

    def fence(self, collect: bool, timeout: float | None) -> None:
        """Wait for all participants."""
        raise NotImplementedError


class Job(Among):
    """All procs of a client's job."""

    def __init__(self, client: Asks) -> None:
        super().__init__(client, steps_of(client.proc))

    def members(self) -> tuple[Proc, ...]:
        return tuple(self.client.job)

    def fence(self, collect: bool, timeout: float | None) -> None:
        self.client.fence(collect=collect, timeout=timeout)


class Transfer:
    """One collective call under way.

    Args:
        among: The participants.
        call: The operation.
        root: The root's rank; None where there is none.
        codec: The codec of all values.
        timeout: Seconds for each wait.

    Raises:
        IndexError: There is no such rank.
        TypeError: The rank or the codec is none.
    """

    def __init__(self, among: Among, call: str, root: int | None, codec: Codec | None, timeout: float | None) -> None:
        self._among = among
        self._client = among.client
        self._steps = among.steps
        self._timeout = timeout
        self._members = among.members()
        self._counts: dict[Proc, int] = {}
        self._renews = self._client.supports("get.refresh")
        own = proc = self._client.proc
        if root is not None:
            if not isinstance(root, int) or isinstance(root, bool):
                raise TypeError(f"the root of {call} is a rank, an int, not {type(root).__name__}")
            if not 0 <= root < len(self._members):
                raise IndexError(f"the root of {call} is a rank from 0 to {len(self._members) - 1}, not {root}")
            proc = self._members[root]
        self._call = Collective(call, own, None if root is None else proc, codec)
        self._root = proc
        self.rooted = proc == own
        # The root compares itself with one of the others, as they do with it.
        self._after = self._members[((root or 0) + 1) % len(self._members)]

    def bcast(self, value: object) -> Any:
        """Return what the root gives."""
        call, root = self._call, self._root
        if self.rooted:
            call.give(value)
        return call.value((self._all((root, self._after) if self.rooted else (root,)))[root])

    def allgather(self, value: object) -> list[Any]:
        """Return what all give, by rank."""
        self._call.give(value)
        found = self._all(None)
        return [self._call.value(found[proc]) for proc in self._members]

    def scatter(self, given: Sequence[object] | None) -> Any:
        """Return what the root gives to the caller."""
        call, root, size = self._call, self._root, len(self._members)
        share = max(_LEAST, PIECE // size)
        if self.rooted:
            call.give_each(() if given is None else given, size)
        here = self._members.index(call.own)
        own = call.given[here % len(call.given)]
        parts: list[bytes] = []
        index, pieces = 0, call.pieces(share) if self.rooted else 1
        while index < pieces:
            each: list[bytes] = []
            if self.rooted:
                values = call.given * (size // len(call.given))
                each = [call.piece(self._steps.done, index, data, share) for data in values]
            # What is for all tells those who take the caller for the root that it is not.
            step = self._step(None if index else call.piece(self._steps.done, 0, b"", share), each)
            if not self.rooted:
                found = self._read(root, step, index, self._steps.key(step, self._renews, here))
                parts.append(found.data)
                pieces = found.pieces
            elif not index and self._after != call.own:
                self._read(self._after, step, 0)
            index += 1
        if call.problem is not None:
            raise call.problem
        return call.value(own if self.rooted else b"".join(parts))

    def gather(self, value: object) -> list[Any] | None:
        """Return what all give, by rank, at the root; None elsewhere."""
        call, root = self._call, self._root
        call.give(value)
        own = call.given[0]
        # Only the root reads values, so that what is beyond the first piece is between it and who gives it.
        step = self._step(call.piece(self._steps.done, 0, b"" if self.rooted else own))
        if not self.rooted:
            try:
                self._read(root, step, 0)
            finally:
                for index in range(1, call.pieces()):
                    key = self._more(step, index)
                    self._client.put(key, call.piece(step, index, own))
                    self._steps.add(key)
                    self._client.fence((call.own, root), collect=True, timeout=self._timeout)
            if call.problem is not None:
                raise call.problem
            return None
        problems: list[PMIxError] = []
        parts: dict[Proc, list[bytes]] = {call.own: [own]}
        for proc in self._members:
            if proc != call.own:
                try:
                    first = self._share(proc, step, 0)
                    if first is not None:
                        parts[proc] = self._rest(first, proc, step)
                except PMIxError as error:
                    problems.append(error)
        if call.problem is not None or problems:
            raise call.problem or problems[0]
        return [call.value(b"".join(parts[proc])) for proc in self._members if proc in parts]

    def _rest(self, first: Piece, proc: Proc, step: int) -> list[bytes]:
        """Read what a rank gives to a gather after its first piece."""
        parts = [first.data]
        for index in range(1, first.pieces):
            self._client.fence((proc, self._root), collect=True, timeout=self._timeout)
            parts.append((self._read(proc, step, index, self._more(step, index))).data)
        return parts

    def _all(self, sources: tuple[Proc, ...] | None) -> dict[Proc, bytes]:
        """Exchange what all give, piece by piece; return what the sources have given, all members by default."""
        call = self._call
        parts: dict[Proc, list[bytes]] = {}
        index, pieces = 0, call.pieces()
        while index < pieces:
            step = self._step(call.piece(self._steps.done, index, call.given[0]) if index < call.pieces() else None)
            for proc in self._members if sources is None else sources:
                if proc == call.own:
                    parts[proc] = call.given
                elif not index or index < self._counts[proc]:
                    found = self._read(proc, step, index) if sources else self._share(proc, step, index)
                    if found is None:
                        self._counts.pop(proc, None)
                        self._members = tuple([member for member in self._members if member != proc])
                        continue
                    self._counts[proc] = found.pieces
                    parts.setdefault(proc, []).append(found.data)
                    pieces = max(pieces, found.pieces)
            index += 1
        if call.problem is not None:
            raise call.problem
        return {proc: b"".join(found) for proc, found in parts.items()}

    def _step(self, piece: bytes | None, each: Sequence[bytes] = ()) -> int:
        """Put a piece for all, or one for each rank, and wait for all; return the number of the step."""
        steps, client = self._steps, self._client
        step = steps.done
        pieces = {steps.key(step, self._renews, whom): one for whom, one in enumerate(each)}
        if piece is not None:
            pieces[steps.key(step, self._renews)] = piece
        for key, one in pieces.items():
            client.put(key, one)
        kept = [key for key, one in pieces.items() if not self._renews or len(one) > _LEAST]
        for key in steps.follow(kept):
            if key not in pieces:
                client.put(key, b"")
        try:
            self._among.fence(True, self._timeout)
        except OperationTimeout:
            raise
        except PMIxError:
            steps.done += 1
            raise
        steps.done += 1
        return step

    def _share(self, proc: Proc, step: int, index: int) -> Piece | None:
        """Return the piece of a member; None of one that was lost, or has left, before it came to the fence.

        Who came counts even if it has left by now: all others have got its piece, and have to return the same.
        """
        left = proc not in self._among.members()
        try:
            return self._read(proc, step, index, left=left)
        except PartialSuccess:
            if proc in self._among.members():
                raise
            return None

    def _read(self, proc: Proc, step: int, index: int, key: str = "", left: bool = False) -> Piece:
        key = key or self._steps.key(step, self._renews)
        try:
            data = self._client.get(key, proc, wait=False if left else self._timeout or GET_SECONDS)
            return self._call.read(proc, data, step, index, left)
        except (NotFound, OperationTimeout) as error:
            raise self._call.lost(proc, key, error) from error

    def _more(self, step: int, index: int) -> str:
        """Return the key of a further piece of a gather."""
        return f"{self._steps.base}.more.{index % 2 if self._renews else f'{step}.{index}'}"


class Exchanging:
    """The collective calls on values, of whatever has participants."""

    def _among(self) -> Among:
        """Return the participants."""
        raise NotImplementedError

    def bcast(
        self, value: object = None, root: int = 0, *, codec: Codec | None = None, timeout: float | None = None
    ) -> Any:
        """Give a value of one rank to all; all ranks have to call it.

        A put under a key of its own, a collecting fence and a get, numbered, so that it may be called again
        and again. Values of any size go in pieces of 1 MiB.

        Args:
            value: What the root gives: bytes, or what `put` takes. The others leave it out.
            root: The rank that gives it, the same at all.
            codec: Turns objects into bytes and back, the same at all: an object with `dumps` and `loads`, such as the
                modules `json`, `marshal` and `pickle`. By default values keep their PMIx types, and nothing else is
                taken. Only unpickle what comes from programs that you trust.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The value, at the root too, as `get` returns it.

        Raises:
            IndexError: There is no such rank.
            TypeError, OverflowError: The value is not one of PMIx, and there is no codec. The others are told.
            PMIxError: A rank could not give its value, has called something else, or names another root or no codec.
            OperationTimeout: Not all had come in time; `missing` names them if the server tells.
            PartialSuccess: A rank ended without coming.
        """
        return Transfer(self._among(), "bcast", root, codec, timeout).bcast(value)

    def allgather(self, value: object, *, codec: Codec | None = None, timeout: float | None = None) -> list[Any]:
        """Give the values of all ranks to all; all ranks have to call it. See `bcast` for what they have in common.

        Args:
            value: What this rank gives.
            codec: As for `bcast`.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The values by rank; in a group that goes on without members that fail, of those who came.
        """
        return Transfer(self._among(), "allgather", None, codec, timeout).allgather(value)

    def gather(
        self, value: object, root: int = 0, *, codec: Codec | None = None, timeout: float | None = None
    ) -> list[Any] | None:
        """Give the values of all ranks to one; all ranks have to call it. See `bcast` for what they have in common.

        Args:
            value: What this rank gives.
            root: The rank that gets them, the same at all.
            codec: As for `bcast`.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The values by rank at the root, None at the others.

        Raises:
            NotSupported: A value is above 1 MiB, and the server ends no fence of some procs of several nodes (Slurm).
        """
        return Transfer(self._among(), "gather", root, codec, timeout).gather(value)

    def scatter(
        self,
        values: Sequence[object] | None = None,
        root: int = 0,
        *,
        codec: Codec | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Give each rank a value of its own from one; all ranks have to call it. See `bcast` for the rest.

        Args:
            values: What the root gives, one for each rank in order. The others leave it out.
            root: The rank that gives them, the same at all.
            codec: As for `bcast`.
            timeout: Seconds to wait for the others at each piece; no limit by default.

        Returns:
            The value for this rank.

        Raises:
            ValueError: There are not as many values as ranks. The others are told.
        """
        return Transfer(self._among(), "scatter", root, codec, timeout).scatter(values)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until all ranks have called it; a `fence` without data.

        Args:
            timeout: Seconds to wait; no limit by default.

        Raises:
            OperationTimeout: Not all had come in time; `missing` names them if the server tells.
            PartialSuccess: A rank ended without coming.
        """
        self._among().fence(False, timeout)

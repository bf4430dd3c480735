"""The values of `bcast`, `allgather`, `gather` and `scatter`: their names, their pieces, and how they are checked.

Theory of operation
-------------------
A collective call is one or more steps of all participants. In each step the ranks with a value put a piece under a key
of the step; a collecting fence follows; then each rank reads the pieces that it needs. `Steps` numbers the steps, and
all participants count alike, since they make the same calls in the same order.

- A piece has a head: the call, the root, the number of the step, and how many pieces there are. So a reader notices
  that others have made another call, named another root, or are at another step, and takes no value for another one.
- Two keys take turns (`Steps.key`). A rank puts step N+2 over step N after the fence of step N+1, which all call when
  they have read step N. So servers hold two pieces of each rank however many calls there were.
- Libraries that answer from their cache need a new key for each step (`renews` is false). The pieces of two steps
  before are then replaced by empty values: only their keys stay, a few dozen bytes. Long pieces are always emptied.
- A rank whose value has no PMIx type still takes part: the head of its piece reports the failure to the others.
- A step that timed out is not counted: late participants call it later. Any other end of the fence counts.
- The counts belong to the process: they continue when a client is closed and another one is opened. When procs join a
  group, all members restart at 0 under other keys; when procs are lost or leave, the remaining members continue.
  A destruct resets the count: by then the members have read all steps. Only if each step needs a new key does the count
  of a destructed group continue when it is formed again.

Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from time import monotonic
from zlib import crc32

from pypmix.data import DataBuffer
from pypmix.psets import ProcSet
from pypmix.standard import codes
from pypmix.standard.errors import PartialSuccess, PMIxError, RemoteProtocolError
from pypmix.standard.naming import common_job, name_proc
from pypmix.standard.record import Record
from pypmix.standard.types import Proc, Value
from pypmix.standard.values import from_python, to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    class Codec(Protocol):
        """Converts objects to bytes and back, as the modules `pickle`, `json` and `marshal` do."""

        def dumps(self, obj: Any, /) -> bytes | str:
            """Return an object as bytes; a string is sent as UTF-8."""

        def loads(self, data: bytes, /) -> Any:
            """Return the object of bytes."""


PIECE = 1 << 20
"""The bytes of a value that go with one fence. Servers relay the pieces of all ranks of a node in one message."""

GET_SECONDS = 60.0
"""Seconds in which a server has to return a piece after the fence, if the call has no time limit."""

_HEAD = Struct("<BBBQIIH")
_VERSION = 1
_CODED = 1
_FAILED = 2
CALLS = ("bcast", "allgather", "gather", "scatter")


def seconds_left(deadline: float) -> float:
    """Return the time limit for a call of several that end together.

    It is never less than a second, the least that PMIx has: a call that is not made at all leaves the others waiting.

    Args:
        deadline: When they end, by `time.monotonic`.
    """
    return max(deadline - monotonic(), 1.0)


class Piece(Record):
    """A piece of a rank's value.

    Args:
        call: The operation.
        step: The number of the step.
        index: The number of the piece, from 0.
        pieces: The number of pieces.
        root: The root as this rank names it; empty for a call without a root.
        data: The bytes.
        coded: Whether a codec made the bytes.
        failed: Whether the bytes are the reason why the rank has no value.
    """

    call: str
    step: int
    index: int
    pieces: int
    root: str
    data: bytes
    coded: bool = False
    failed: bool = False

    def encode(self) -> bytes:
        root = self.root.encode()
        flags = self.coded * _CODED | self.failed * _FAILED
        head = _HEAD.pack(_VERSION, CALLS.index(self.call), flags, self.step, self.index, self.pieces, len(root))
        return b"".join((head, root, self.data))


def decode_piece(data: object) -> Piece:
    """Return a piece.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    try:
        if not isinstance(data, bytes):
            raise ValueError(type(data).__name__)
        version, call, flags, step, index, pieces, length = _HEAD.unpack_from(data)
        body = _HEAD.size + length
        if version != _VERSION or call >= len(CALLS) or not 0 <= index < pieces or body > len(data) or flags > 3:
            raise ValueError(f"head {data[: _HEAD.size]!r}")
        root = data[_HEAD.size : body].decode()
    except (ValueError, StructError) as error:
        raise RemoteProtocolError(f"a piece of a collective call does not parse: {error}") from None
    return Piece(CALLS[call], step, index, pieces, root, data[body:], bool(flags & _CODED), bool(flags & _FAILED))


def encode_value(value: object, codec: Codec | None) -> bytes:
    """Return a value as bytes: with its PMIx type, or as a codec converts it.

    Raises:
        TypeError, OverflowError: It has no PMIx type, and no codec was given.
    """
    if codec is None:
        return DataBuffer().pack(codes.VALUE, from_python(value)).bytes()
    made = codec.dumps(value)
    return made.encode() if isinstance(made, str) else bytes(made)


def decode_value(data: bytes, codec: Codec | None) -> Any:
    """Return the value of bytes.

    Raises:
        RemoteProtocolError: They are not those of one value.
    """
    if codec is not None:
        return codec.loads(data)
    buffer = DataBuffer(data)
    value: Value = buffer.one(codes.VALUE)
    if buffer.more():
        raise RemoteProtocolError("more than one value came where one was given")
    return to_python(value)


class Steps:
    """The steps of the calls among the same procs, as one of them counts them.

    Args:
        name: The name of the group or connection; empty for the job.
        members: The procs that count; empty for all of a job.
    """

    def __init__(self, name: str, members: Iterable[Proc] = ()) -> None:
        self.order: list[Proc] = [*dict.fromkeys(members)]
        """The members by rank, including former ones."""
        self.participants = self.members = frozenset(self.order)
        """`participants` are those of the last step."""
        self.base = f"pypmix.values.{name}"
        if self.members:
            # Others of the same name may have been before, and libraries keep what they have read of them.
            self.base += f".{crc32(' '.join(sorted(map(str, self.members))).encode()):08x}"
        self.done = 0
        self.over = False
        """Whether the group was destructed: the next group of this name starts at 0."""
        self._keys: list[list[str]] = []

    def follow(self, keys: list[str]) -> list[str]:
        """Note the keys of a step that are to be emptied; return those of two steps before, which all have read."""
        self._keys.append(keys)
        return self._keys.pop(0) if len(self._keys) > 2 else []

    def add(self, key: str) -> None:
        """Note one more key of the last step."""
        if key not in self._keys[-1]:
            self._keys[-1].append(key)

    def know(self, members: Iterable[Proc]) -> list[Proc]:
        """Add the members of the group now; return all members by rank, including former ones."""
        self.order += [proc for proc in members if proc not in self.order]
        return self.order

    def key(self, step: int, renews: bool, whom: Proc | None = None, giver: Proc | None = None) -> str:
        """Return the key of a step, or of the piece in it that one proc, the giver, has for `whom` alone."""
        key = f"{self.base}.{step % 2 if renews else step}"
        if whom is None:
            return key
        if giver is not None and whom.nspace == giver.nspace:
            return f"{key}.{whom.rank}"
        from hashlib import blake2b

        # Two names may be longer than a key.
        return f"{key}.{blake2b(whom.nspace.encode(), digest_size=8).hexdigest()}.{whom.rank}"


_all: dict[tuple[Proc, str], dict[frozenset[Proc], Steps]] = {}


def steps_of(proc: Proc, name: str = "", members: Iterable[Proc] = ()) -> Steps:
    """Return the steps among procs, which all clients of a process count together."""
    new = Steps(name, members)
    return _all.setdefault((proc, name), {}).setdefault(new.members, new)


def forget_steps(proc: Proc, name: str) -> None:
    """Forget the steps of a group that all of its members have destructed."""
    for steps in _all.pop((proc, name), {}).values():
        steps.over = True


def forget_job_steps(nspace: str) -> None:
    """Forget the steps of all procs of a job that has ended, as another one of its name begins at 0."""
    for known in [known for known in _all if known[0].nspace == nspace]:
        del _all[known]


class Values(list["Any"]):
    """The values of the ranks that took part in a collective call.

    Attributes:
        procs: The ranks, in the same order.
    """

    def __init__(self, values: Iterable[Any], procs: Iterable[Proc]) -> None:
        super().__init__(values)
        self.procs = ProcSet.unchecked(tuple(procs))


class Collective:
    """One collective call of a rank: its own value, and the values that it reads.

    Args:
        call: The operation.
        caller: The rank itself.
        root: The root, as the rank names it; None for a call without a root.
        codec: The codec of all values.
    """

    def __init__(self, call: str, caller: Proc, root: Proc | str | None, codec: Codec | None) -> None:
        if codec is not None and not (
            callable(getattr(codec, "dumps", None)) and callable(getattr(codec, "loads", None))
        ):
            raise TypeError(
                f"a codec has dumps(object) and loads(bytes), as the modules pickle and json have; not {codec!r:.100}"
            )
        self.call = call
        self.own = caller
        self.codec = codec
        self.problem: Exception | None = None
        self.given: list[bytes] = [b""]
        """The value of this rank, or in a scatter of each rank."""
        self._root = "" if root is None else str(root)

    def give(self, value: object) -> None:
        """Set the value of this rank; an error in it is raised when the others know of the failure."""
        try:
            self.given = [encode_value(value, self.codec)]
        except Exception as error:
            self.fail(error)

    def give_each(self, values: Sequence[object] | Mapping[Proc, object], procs: Sequence[Proc]) -> None:
        """Set a value for each proc; an error in them is raised when the others know of the failure."""
        size = len(procs)
        try:
            if isinstance(values, Mapping):
                missing = [proc for proc in procs if proc not in values]
                if missing:
                    # The others get this text, too.
                    whom = name_proc(missing[0], common_job(procs))
                    raise ValueError(f"scatter takes a value for each rank, and {whom} has none")
                values = [values[proc] for proc in procs]
            if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
                raise TypeError(f"scatter takes a sequence with a value for each rank, not {type(values).__name__}")
            if len(values) != size:
                raise ValueError(f"scatter takes {size} values, one for each rank, not {len(values)}")
            self.given = [encode_value(value, self.codec) for value in values]
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Let this rank take part without a value, so that the others need not wait for it."""
        self.problem = error
        self.given = [f"{type(error).__name__}: {error}".encode()[:PIECE]] * len(self.given)

    def pieces(self, share: int = PIECE) -> int:
        """Return the number of pieces of this rank's value."""
        return max(-(-len(data) // share) or 1 for data in self.given)

    def piece(self, step: int, index: int, data: bytes, share: int = PIECE) -> bytes:
        """Return a piece of this rank's value, as bytes."""
        part = data[index * share : (index + 1) * share]
        coded, failed = self.codec is not None, self.problem is not None
        return Piece(self.call, step, index, self.pieces(share), self._root, part, coded, failed).encode()

    def read(self, proc: Proc, data: object, step: int, index: int) -> Piece:
        """Return the piece that a rank has given in a step.

        Raises:
            PMIxError: It is at another step, has made another call, or could not give its value.
        """
        try:
            found = decode_piece(data)
        except RemoteProtocolError as error:
            error.operation, error.procs, error.job = self.call, (proc,), self.own.nspace
            raise
        if found.step != step:
            raise self._disagree(
                proc,
                f"is at step {found.step + 1} of these calls, and the caller at step {step + 1}",
                "all ranks make the same calls in the same order; a call that failed for some has to be made again by "
                "all in a new group",
            )
        if found.call != self.call or found.root != self._root:
            theirs, ours = (f"{call}(root={self._name(root)})" if root else call for call, root in self._roots(found))
            raise self._disagree(proc, f"has called {theirs}, and the caller {ours}", "all ranks name the same root")
        if found.failed:
            reason = found.data.decode(errors="replace")
            raise PMIxError(
                f"it had no value to give: {reason}", operation=self.call, procs=(proc,), job=self.own.nspace
            )
        if found.coded != (self.codec is not None):
            theirs, ours = ("a codec" if each else "no codec" for each in (found.coded, not found.coded))
            raise self._disagree(proc, f"has used {theirs}, and the caller {ours}", "all ranks give the same codec")
        if found.index != index:
            raise self._disagree(proc, f"gave piece {found.index}, where piece {index} was expected", "")
        return found

    def value(self, data: bytes) -> Any:
        """Return the value of all pieces."""
        return decode_value(data, self.codec)

    def silence_error(self, proc: Proc, engine: str = "") -> PMIxError:
        """Return the error for a rank that joined the fence, or is still a member, and sent nothing."""
        return PartialSuccess(
            f"it sent nothing for this {self.call}: it has ended, or made another call",
            operation=self.call,
            procs=(proc,),
            engine=engine,
            missing=(proc,),
            job=self.own.nspace,
        )

    def root_error(self, root: Proc) -> PMIxError:
        """Return the error where the root has left or ended before it came."""
        text = "the root has left, or has ended, without coming"
        return PartialSuccess(text, operation=self.call, procs=(root,), missing=(root,), job=self.own.nspace)

    def _roots(self, piece: Piece) -> tuple[tuple[str, str], tuple[str, str]]:
        return (piece.call, piece.root), (self.call, self._root)

    def _name(self, root: str) -> str:
        nspace, _, rank = root.rpartition(":")
        return f"rank {rank}" if nspace == self.own.nspace else root

    def _disagree(self, proc: Proc, what: str, hint: str) -> PMIxError:
        return PMIxError(f"it {what}", operation=self.call, procs=(proc,), hint=hint, job=self.own.nspace)

"""The arguments of output forwarding."""

from __future__ import annotations

from pypmix.job import Job, read
from pypmix.requests import proc_tuple
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import Get, IOFPull, IOFPush
from pypmix.standard.ops.forwarding import STDERR, STDOUT
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.base import ClientSession
    from pypmix.requests import Infos, Procs
    from pypmix.standard.ops import Output

MAX_INPUT = 4096
"""Bytes of input that one message carries: of more, PRRTE 3 writes beyond its buffer."""


def sources(procs: Procs) -> tuple[Proc, ...]:
    """Return the procs whose output is meant; a whole job is its wildcard."""
    return (Proc(procs.nspace, RANK_WILDCARD),) if isinstance(procs, Job) else targets(procs)


def targets(procs: Procs) -> tuple[Proc, ...]:
    """Return the procs that input is meant for; one by one, since PRRTE 3 finds no procs for a wildcard."""
    if procs is None:
        raise TypeError("output and input need procs: a Proc, a Job, or several Procs")
    return proc_tuple(procs)


def refused(op: IOFPush, error: PMIxError) -> bool:
    """Tell whether an error of a push is one: that there is no more input may be answered like one."""
    return bool(op.data) or error.code != statuses.ERR_IOF_COMPLETE


def pull_op(
    procs: tuple[Proc, ...],
    channels: int,
    info: Infos,
    handler: Callable[[Output], None],
    ended: Callable[[BaseException | None], None] | None,
) -> IOFPull:
    return IOFPull(procs, int(channels), infos(info), handler, ended)


def push_ops(procs: tuple[Proc, ...], data: object, info: Infos) -> list[IOFPush]:
    """Return the pushes that carry the data; a string goes as UTF-8."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    elif not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"input is bytes or str, not {type(data).__name__}")
    whole = bytes(data)
    directives = infos(info)
    pieces = [whole[start : start + MAX_INPUT] for start in range(0, len(whole), MAX_INPUT)]
    return [IOFPush(procs, piece, directives) for piece in pieces]


def open_channels(session: ClientSession, procs: Iterable[Proc], channels: int) -> set[tuple[Proc, int]]:
    """Return the channels whose ends end the output of these procs; none where that cannot be known.

    The diagnostic channel has no end.
    """
    found: set[tuple[Proc, int]] = set()
    for nspace, rank in procs:
        ranks: Iterable[int] = (rank,)
        if rank == RANK_WILDCARD:
            try:
                ranks = range(int(read(session, Proc.unchecked(nspace, rank), keys.JOB_SIZE)))
            except PMIxError:
                return set()
        found.update(
            [(Proc.unchecked(nspace, one), bit) for one in ranks for bit in (STDOUT, STDERR) if channels & bit]
        )
    return found


def round_trip() -> Get:
    """Return a request that every server answers at once, without its host.

    It asks for a proc of an unknown job. A proc of a job on the node will not do: where that has never opened a
    client, libpmix 5.0's server reads memory that it has not mapped yet (`pmix_gds_shmem2_fetch`) and crashes.
    """
    return Get(
        Proc.unchecked("pypmix.nothing", 0),
        "pypmix.nothing",
        (Info(keys.IMMEDIATE, Value.unchecked(codes.BOOL, True)),),
    )

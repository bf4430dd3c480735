"""The arguments of connect and disconnect."""

from __future__ import annotations

from pypmix.requests import proc_tuple, seconds
from pypmix.standard.ops import Connect, Disconnect
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from pypmix.requests import Infos, Procs

    K = TypeVar("K", Connect, Disconnect)


def connecting_op(kind: type[K], procs: Procs, timeout: float | None, info: Infos) -> K:
    if procs is None:
        raise ValueError("there are no procs: name all who take part, the caller among them")
    directives = infos(info)
    if timeout is not None:
        directives += (seconds(timeout),)
    return kind(proc_tuple(procs), directives)

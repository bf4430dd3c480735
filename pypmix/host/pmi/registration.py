"""The ranks that may connect with PMI-1."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pypmix.standard.types import Proc

PREPUT = "PYPMIX_PMI_PREPUT"
"""The variable with what the parent of a spawned job has put into its key-value space."""


class Registration:
    """A rank that may connect with PMI: it can for as long as somebody keeps this.

    Args:
        proc: The rank.
        size: The number of ranks of its job.
        env: The environment in which a PMIx client is this rank.
    """

    __slots__ = ("__weakref__", "env", "number", "proc", "size")

    def __init__(self, number: int, proc: Proc, size: int, env: Mapping[str, str]) -> None:
        self.number = number
        self.proc = proc
        self.size = size
        self.env = env

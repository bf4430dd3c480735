"""The state of jobs that a client has spawned."""

from __future__ import annotations

from pypmix.job import Job
from pypmix.standard import keys
from pypmix.standard.errors import LostConnection, NotInitialized, PMIxError
from pypmix.standard.ops import Get
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.standard.values import to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pypmix.engine.base import ClientSession
    from pypmix.standard.types import Info


class ChildJob(Job):
    """A job other than the caller's, with its job info."""

    __slots__ = ("_nspace",)

    def __init__(self, session: ClientSession, nspace: str) -> None:
        super().__init__(session)
        self._nspace = nspace

    @property
    def nspace(self) -> str:
        """The job's namespace."""
        return self._nspace

    def _read(self, key: str) -> Any:
        try:
            return super()._read(key)
        except (LostConnection, NotInitialized):
            raise
        except PMIxError:
            # Not all libraries keep what a get has brought of another job.
            return to_python(self._session.run(Get(Proc.unchecked(self._nspace, RANK_WILDCARD), key)))


def ended_job(infos: Iterable[Info]) -> tuple[str, int]:
    """Return the nspace of the job whose end an event reports, and its exit code; an empty nspace if it names none."""
    found: dict[str, Any] = {info.key: info.value.data for info in infos}
    proc = found.get(keys.EVENT_AFFECTED_PROC)
    nspace = proc.nspace if isinstance(proc, Proc) else found.get(keys.NSPACE, "")
    code = found.get(keys.EXIT_CODE)
    if not isinstance(code, int):
        # Natives give the code of the proc that failed as the job's status; an error's says no code.
        status = found.get(keys.JOB_TERM_STATUS)
        code = 0 if not isinstance(status, int) else int(status < 0) or status
    return (nspace if isinstance(nspace, str) else ""), code

"""Spawn as a call of the library."""

from __future__ import annotations

from pypmix.engine.apps import complete
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, text_of
from pypmix.engine.native.quirks import deadline
from pypmix.standard import codes
from pypmix.standard.errors import ERR_NOT_SUPPORTED, ERROR, PMIxError
from pypmix.standard.ops import Spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SPAWN_TIMEOUT = "pmix.sp.time"

_FAILURES = {
    ERR_NOT_SUPPORTED: "the server's host does not start jobs",
    -31: "the host lacks the resources, such as slots, for that many procs",
    -25: "the host cannot reach what it needs for it",
    -171: "a program was not found",
    -172: "a program could not be executed",
    -174: "a working directory was not found",
    -180: "there are not enough resources for that many procs",
}


def _apps(topic: Asking, op: Spawn, given: object) -> None:
    topic.marshal.fill(given.items, codes.APP, [complete(app) for app in op.apps])  # type: ignore[attr-defined]


def _nspace(topic: Asking, call: object) -> str:
    nspace = text_of(topic, call)
    if not nspace:
        raise PMIxError("the server does not say which nspace the job has", status=ERROR)
    return nspace


class Topic(Asking):
    """This operation of one session."""

    rows: Mapping[type, Row] = {Spawn: Row(lib.PYPMIX_SPAWN, _apps, _nspace, _FAILURES)}

    def limit(self, op: Spawn) -> float:
        # PMIX_TIMEOUT is no limit of this request: some hosts take it for that of the job
        return deadline(op.directives, SPAWN_TIMEOUT)

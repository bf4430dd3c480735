"""Spawn as a call of the library."""

from __future__ import annotations

from pypmix.engine.apps import complete, refusal
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, text_of
from pypmix.engine.native.quirks import deadline
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import Spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def _apps(topic: Asking, op: Spawn, parameters: object) -> None:
    topic.marshal.fill(parameters.items, codes.APP, [complete(app) for app in op.apps])  # type: ignore[attr-defined]


def _nspace(topic: Asking, call: object) -> str:
    nspace = text_of(topic, call)
    if not nspace:
        raise PMIxError("the server does not say which nspace the job has", status=statuses.ERROR)
    return nspace


class SpawningTopic(Asking):
    """The spawns of one session."""

    rows: Mapping[type, Row] = {Spawn: Row(lib.PYPMIX_SPAWN, _apps, _nspace)}

    def limit(self, op: Spawn) -> float:
        # PMIX_TIMEOUT is not a limit of this request: some hosts use it as the limit of the job.
        return deadline(op.directives, keys.SPAWN_TIMEOUT)

    def error(self, op: Spawn, status: int) -> PMIxError:
        if self.session.singleton:
            return super().error(op, status)
        text, hint = refusal(op, status)
        return self.session.failed(op.name, status, text, hint=hint)

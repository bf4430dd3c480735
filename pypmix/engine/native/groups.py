"""Groups that all of their members construct and destruct together, as calls of the library."""

from __future__ import annotations

import os

from pypmix.engine.groups.rules import TIMED, Groups, answer_form, directives_for
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, found
from pypmix.standard import codes
from pypmix.standard.errors import (
    ERR_BAD_PARAM,
    ERR_EXISTS,
    ERR_NOT_FOUND,
    ERR_NOT_SUPPORTED,
    ERR_PARTIAL_SUCCESS,
    ERR_TIMEOUT,
    NotFound,
    NotSupported,
)
from pypmix.standard.ops import GroupConstruct, GroupDestruct
from pypmix.standard.releases import release_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pypmix.engine.native.session import NativeSession
    from pypmix.standard.types import Info

_FAILURES = {
    ERR_NOT_SUPPORTED: "the server's host does not offer it",
    ERR_TIMEOUT: "not all members of {} had come when the time ran out",
    ERR_PARTIAL_SUCCESS: "a member of {} ended without coming",
    ERR_EXISTS: "there is a group or an nspace {} already",
    ERR_NOT_FOUND: "the server does not know all of the procs, or not the group {}",
    ERR_BAD_PARAM: "the server does not take these procs for {}",
    -66: "the caller is not a member of {}",
    -165: "a member ended without coming, so that there is no group {}",
}


def _name(op: Any) -> str:
    return repr(op.group)


def _construct(topic: Asking, op: Any, given: Any) -> None:
    assert isinstance(topic, Topic)
    topic.check_answers()
    procs = topic.groups.constructed_of(op, topic.session.fetch_local)
    topic.marshal.fill(given.more, codes.STRING, (op.group,))
    topic.marshal.fill(given.items, codes.PROC, procs)
    topic.groups.begin(op.group)


def _destruct(topic: Asking, op: Any, given: Any) -> None:
    assert isinstance(topic, Topic)
    topic.groups.check_destruct(op.group)
    topic.marshal.fill(given.more, codes.STRING, (op.group,))
    topic.groups.begin(op.group)


class Topic(Asking):
    """These operations of one session."""

    rows: Mapping[type, Row] = {
        GroupConstruct: Row(lib.PYPMIX_GROUP_CONSTRUCT, _construct, found, _FAILURES, _name),
        GroupDestruct: Row(lib.PYPMIX_GROUP_DESTRUCT, _destruct, failures=_FAILURES, about=_name),
    }

    def __init__(self, session: NativeSession) -> None:
        super().__init__(session)
        self.groups = session.groups = Groups(session.proc)

    def directives(self, op: Any) -> tuple[Info, ...]:
        return directives_for(op, self.session.server_release)

    def check_answers(self) -> None:
        """Refuse to ask a server whose answers the library takes for something else, which crashes some of them.

        Raises:
            NotSupported: It is such a server; that of the Python engine answers each release as that one expects.
        """
        session = self.session
        server = session.server_release
        nspace = session.server.partition(" ")[0].rpartition(".")[0]
        ours = os.environ.get("PYPMIX_SERVER", "").partition(" ")[0] == nspace
        adapts = ours and os.environ.get("PYPMIX_SERVER_ENGINE") == "python"
        if any(server) and not adapts and answer_form(server) != answer_form(session._release):
            raise NotSupported(
                f"libpmix {release_text(session._release)} misreads how a server of {release_text(server)} answers"
            )

    def _outcome(self, op: Any, call: Any) -> Any:
        construct = type(op) is GroupConstruct
        # Servers that are told of no timeout know nothing of it.
        if call.status != ERR_TIMEOUT or self.session.server_release >= TIMED:
            self.groups.end(op.group)
        try:
            result = super()._outcome(op, call)
        except NotFound:
            if not construct:
                # Since 4.2.4 the library forgets a group whose destruct fails.
                self.groups.gone(op.group)
            raise
        if construct:
            return self.groups.formed(op, result, self.session.fetch_local)
        self.groups.gone(op.group)
        return None

"""Group operations, and the calls of the library that construct and destruct groups."""

from __future__ import annotations

from pypmix.engine.collective.rules import placed
from pypmix.engine.groups.constructing import FAILURES, results_of
from pypmix.engine.groups.foreign.rules import GATHERING, TELLING, answer_form, collect, kept, missing
from pypmix.engine.groups.talk import COMES_ADDED, flag, listed, text
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, read_results
from pypmix.engine.native.groupport import GroupPort
from pypmix.standard import codes, keys
from pypmix.standard.errors import NotSupported
from pypmix.standard.ops import GroupConstruct, GroupDestruct, GroupResults, QueryInfo
from pypmix.standard.ops.hosting import GROUP_ORDER
from pypmix.standard.releases import Release, release_text
from pypmix.standard.types import Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.native.connection import Connection
    from pypmix.standard.types import Info

UNSORTED: Release = (7, 0, 0)
"""The first release that returns the members in the server's order; releases before 4.2.4 return no members."""


def _name(op: Any) -> str:
    return repr(op.group)


def _construct(topic: Asking, op: Any, parameters: Any) -> None:
    assert isinstance(topic, GroupsTopic)
    topic.check(op)
    topic.marshal.fill(parameters.more, codes.STRING, (op.group,))
    # A library does not know the members of a group that it has not constructed itself.
    procs = topic.port.addresses.expand(op.procs) or (topic.session.proc,) * topic.stands_alone(op)
    topic.marshal.fill(parameters.items, codes.PROC, procs)


def _constructed(topic: Asking, call: Any) -> GroupResults:
    return results_of(read_results(topic, call))


def _destruct(topic: Asking, op: Any, parameters: Any) -> None:
    topic.marshal.fill(parameters.more, codes.STRING, (op.group,))


class GroupsTopic(Asking):
    """The group operations of one session."""

    rows: Mapping[type, Row] = {
        GroupConstruct: Row(lib.PYPMIX_GROUP_CONSTRUCT, _construct, _constructed, FAILURES, _name, collective=True),
        GroupDestruct: Row(lib.PYPMIX_GROUP_DESTRUCT, _destruct, failures=FAILURES, about=_name, collective=True),
    }

    def __init__(self, session: Connection) -> None:
        super().__init__(session)
        self.port = session.groups = GroupPort(session, self.put)

    def run(self, op: Any) -> Any:
        """Carry out an operation, wait for its end, and return its result."""
        return self.session.wait_for(op, self.submit)

    def submit(self, op: Any, done: Done[Any]) -> None:
        """Start an operation; `done` is called with its end."""
        if self.session.singleton:
            raise self.session.alone(op.name, getattr(op, "procs", ()))
        self.port.start(op, done)

    def put(self, op: GroupConstruct | GroupDestruct, done: Done[Any]) -> None:
        """Start a construct or a destruct in the library; under the inbox's lock."""
        if isinstance(op, GroupConstruct) and self.port.support.decides and self.session.release < UNSORTED:
            ended = self.port.steps.make_callback(lambda result, error: self._complete(op, result, error, done))
            super().submit(op, ended)
        else:
            super().submit(op, done)

    def _complete(self, op: GroupConstruct, result: Any, error: BaseException | None, done: Done[Any]) -> None:
        """Ask the server for what the library does not return: the order of the members, and their infos."""
        if error is not None:
            done(None, error)
            return

        def complete(answers: Any, _error: BaseException | None) -> None:
            order = listed(answers or (), keys.QUERY_GROUP_MEMBERSHIP)
            ordered = result.replace(members=placed(order, result.members or order))
            lacking = missing(op, ordered)
            if lacking:
                collect(self.port, ordered.members, lacking, ordered.context_id, lambda infos: finish(ordered, infos))
            else:
                done(ordered, None)

        def finish(ordered: Any, infos: tuple[Info, ...]) -> None:
            done(ordered.replace(infos=(*ordered.infos, *infos)), None)

        formed = text(keys.GROUP_ID, op.group), flag(GROUP_ORDER)
        self.port.submit(QueryInfo((Query((keys.QUERY_GROUP_MEMBERSHIP,), formed),)), complete)

    def stands_alone(self, op: Any) -> bool:
        """Return True if an added proc must name itself, since the library does not allow an empty list."""
        return not getattr(op, "procs", True) and self.session.release < GATHERING

    def directives(self, op: Any) -> tuple[Any, ...]:
        parameters: tuple[Any, ...] = op.directives
        if self.stands_alone(op):
            parameters = (*parameters, flag(COMES_ADDED))
        return kept(parameters) if self.session.release < TELLING else parameters

    def limit(self, op: Any) -> float:
        # The limit applies where the group is constructed. The library's request may still be pending then.
        return -1.0

    def check(self, op: GroupConstruct) -> None:
        """Refuse a construct that the library cannot do, or on which it would crash.

        Raises:
            NotSupported: The library cannot add the caller, or misreads the server's answers. A server of the Python
                engine answers each release in the form that the release expects.
        """
        release, server = self.session.release, self.session.server_release
        if self.port.support.decides:
            return
        if self.stands_alone(op):
            raise NotSupported(f"libpmix {release_text(release)} cannot add procs to a group")
        if any(server) and answer_form(server) != answer_form(release):
            raise NotSupported(
                f"libpmix {release_text(release)} misreads how a server of {release_text(server)} answers"
            )

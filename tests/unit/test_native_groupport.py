"""A library that knows only the groups that it has constructed, in front of a server that knows all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lib.group_port import A, B, C
from pypmix.engine.chain import Handlers
from pypmix.engine.groups.talk import DESTRUCTS, REACTS, flag, text
from pypmix.engine.native.groupport import GroupPort
from pypmix.standard import attrs, keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import Fence, GroupConstruct, GroupDestruct, GroupResults, Notification


class Inbox:
    """The inbox of a session that has one thread."""

    closed = False

    def __init__(self) -> None:
        self.enders: list[Any] = []

    def enter(self, step: Any) -> None:
        step()

    within = enter

    def tell(self, function: Any, argument: object) -> None:
        function(argument)


class Session:
    """A session whose library and server answer when the test does."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.proc = A
        self.server = "host@1.0 5.0.11"
        self.server_release = (7, 0, 0)
        self.handlers = Handlers(A, "host", self.inbox.enter, self.inbox.tell, lambda handler: None)
        self.asked: list[tuple[Any, Any]] = []
        self.library: list[tuple[Any, Any]] = []
        self.port = GroupPort(self, lambda op, done: self.library.append((op, done)))  # type: ignore[arg-type]

    def topic(self, _name: str) -> Any:
        return SimpleNamespace(
            handlers=self.handlers,
            watch=self.handlers.watch,
            inside=lambda op, done: done(None, None),
        )

    def start(self, op: Any, done: Any) -> None:
        self.asked.append((op, done))

    def fetch_local(self, _proc: Any, _key: str) -> None:
        return None

    def named(self, error: PMIxError, _op: object) -> PMIxError:
        return error

    def run(self, op: Any) -> list[tuple[Any, BaseException | None]]:
        outcome: list[tuple[Any, BaseException | None]] = []
        self.port.start(op, lambda result, error: outcome.append((result, error)))
        return outcome

    def built(self) -> None:
        outcome = self.run(GroupConstruct("g", (A, B, C)))
        ((op, done),) = self.library
        assert op == GroupConstruct("g", (A, B, C), (flag(REACTS),))
        self.library.clear()
        done(GroupResults((A, B, C)), None)
        assert outcome == [(GroupResults((A, B, C)), None)]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("PYPMIX_SERVER", "host@1 5.0.11")
    monkeypatch.setenv("PYPMIX_SERVER_ENGINE", "python")
    return Session()


FENCE = Fence((A, B, C), False, (attrs.TIMEOUT(5), text(DESTRUCTS, "g")))


def test_the_library_destructs_its_groups(session: Session) -> None:
    session.built()
    outcome = session.run(GroupDestruct("g"))
    ((op, done),) = session.library
    assert op == GroupDestruct("g")
    done(None, None)
    assert outcome == [(None, None)]
    assert session.port.state("g") is None


def test_the_library_destructs_a_group_that_a_part_has_constructed_for_itself(session: Session) -> None:
    """Such as that of an inviter alone, which brings a context id."""
    outcome: list[Any] = []
    session.port.submit(GroupDestruct("pypmix:1"), lambda result, error: outcome.append((result, error)))
    ((op, done),) = session.library
    assert op == GroupDestruct("pypmix:1")
    done(None, None)
    assert outcome == [(None, None)]


def test_a_group_that_the_library_has_forgotten_is_destructed_by_a_fence(session: Session) -> None:
    session.built()
    outcome = session.run(GroupDestruct("g", (attrs.TIMEOUT(5),)))
    session.library[0][1](None, NotFound("no such group"))
    ((op, done),) = session.asked
    assert op == FENCE and not outcome
    done(None, None)
    assert outcome == [(None, None)]


def test_a_group_that_has_changed_is_destructed_by_a_fence(session: Session) -> None:
    session.built()
    left = Notification(statuses.GROUP_LEFT, C, None, (text(keys.GROUP_ID, "g"),))
    session.handlers.start_chain(left, False)
    session.run(GroupDestruct("g"))
    assert not session.library
    assert session.asked[0][0] == Fence((A, B), False, (text(DESTRUCTS, "g"),))


def test_a_group_that_was_formed_otherwise_is_destructed_by_a_fence(session: Session) -> None:
    session.port.agent.standing.formed("g", (C, A, B))
    session.run(GroupDestruct("g", (attrs.TIMEOUT(5),)))
    assert not session.library
    assert session.asked[0][0] == FENCE

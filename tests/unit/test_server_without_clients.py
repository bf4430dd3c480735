"""A server makes its machine for the first client: until then events wait, and questions are answered without it."""

from __future__ import annotations

import pytest

from pypmix.engine.python import serversession
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.serving import ServerOptions
from pypmix.engine.times import EVENT_SECONDS
from pypmix.standard import attrs
from pypmix.standard.ops import Notification
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import Proc

HOST = Proc("host", 0)


class Posts:
    """A reactor of the caller's thread."""

    def __init__(self):
        self.now = lambda: 0.0

    def call(self, function):
        return function()

    def post(self, function):
        function()


@pytest.fixture
def session(monkeypatch):
    session = ServerSession(lambda upcall: upcall.reply(), ServerOptions(), print, Posts())
    now = [1000.0]
    monkeypatch.setattr(serversession.time, "monotonic", lambda: now[0])
    session.now = now
    return session


def event(code, *infos):
    return Notification(code, HOST, RANGE_SESSION, infos)


def made(session):
    return "_server" in session.__dict__


def test_events_and_questions_do_not_make_the_machine(session):
    session.notify(event(-3001))
    assert session.groups() == session.connections() == ()
    assert session.pending() == []
    assert not made(session)


def test_events_reach_the_machine_with_the_first_client(session, monkeypatch):
    session.notify(event(-3000))
    session.now[0] += EVENT_SECONDS + 1
    session.notify(event(-3001))
    session.notify(event(-3002, attrs.EVENT_DO_NOT_CACHE(True)))
    raised = []
    from pypmix.engine.python.serverside.events import Events

    monkeypatch.setattr(Events, "notify", lambda _self, event: raised.append(event.code))
    session.prepare()
    assert made(session)
    assert raised == [-3001]
    session.notify(event(-3003))
    assert raised == [-3001, -3003]


def test_the_number_of_early_events_is_bounded(session):
    for number in range(serversession.MAX_EARLY + 5):
        session.notify(event(-4000 - number))
    assert len(session._early) == serversession.MAX_EARLY


def test_errors_of_early_events_are_raised_at_once(session):
    with pytest.raises(ValueError, match="custom range"):
        session.notify(Notification(-3001, HOST, RANGE_CUSTOM))
    with pytest.raises(ValueError, match="valid range"):
        session.notify(Notification(-3001, HOST, 99))

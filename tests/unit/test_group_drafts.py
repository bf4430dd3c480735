"""The recipes of the early draft: a leave that all others confirm, an announced construct, and a request to join."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from lib.group_delivery import ME, PEER, THIRD, Delivery, Groups, until
from pypmix import (
    Client,
    NotInitialized,
    OperationTimeout,
    PMIxError,
    Proc,
    Rank,
    aio,
    attrs,
)
from pypmix.aio.recipes import admission as awaited_admission
from pypmix.aio.recipes import draft as awaited
from pypmix.engine.groups import talk
from pypmix.groups import GroupEvent
from pypmix.recipes import admission, joinrequests
from pypmix.recipes.admission import Admission, request
from pypmix.recipes.departures import CONFIRMED, NEVER, NUMBER, Departures
from pypmix.recipes.draft import Consent, announce
from pypmix.recipes.joinrequests import SAYS
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import LostConnection
from pypmix.standard.ops import (
    DeregisterEventHandler,
    GroupAdmit,
    GroupChange,
    GroupEnter,
    GroupLeave,
    GroupUnwatch,
    NotifyEvent,
    QueryInfo,
    RegisterEventHandler,
)
from pypmix.standard.ops.groups import DESTRUCTED, LEFT
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import DataArray, Info, Value

pytestmark = [pytest.mark.timeout(60), pytest.mark.anyio]

FOURTH = Proc("job", 3)


def told(op: NotifyEvent) -> dict[str, Any]:
    return {info.key: info.value.data for info in op.infos}


def to(op: NotifyEvent) -> tuple[Proc, ...]:
    found = told(op)[keys.EVENT_CUSTOM_RANGE]
    return (found,) if isinstance(found, Proc) else tuple(found.items)


def number(value: int) -> Info:
    return Info(NUMBER, Value(codes.SIZE, value))


def answers(source: Proc, confirmed: object = True, group: str = "g", request: int = 1) -> Delivery:
    flag = Info(CONFIRMED, Value.unchecked(codes.BOOL, confirmed))
    return Delivery(statuses.LEAVE_ANSWER, source, attrs.GROUP_ID(group), number(request), flag)


def wants(source: Proc, group: str = "g") -> Delivery:
    return Delivery(statuses.LEAVE_REQUEST, source, attrs.GROUP_ID(group), number(4))


def sent(session: Groups, code: int) -> list[NotifyEvent]:
    return [op for op in session.asked(NotifyEvent) if op.code == code]


def last(session: Groups) -> int:
    """Return the number of the last request of this process."""
    return int(told(sent(session, statuses.LEAVE_REQUEST)[-1])[NUMBER])


# Whom to wait for


class Going:
    """This process wants to leave a group, on a clock of its own."""

    def __init__(self, me: Client, session: Groups, *members: Proc) -> None:
        self.session = session
        self.departures = Departures(me.group("g", members or (PEER, ME, THIRD, FOURTH)).construct(), 5.0)
        self.handler = self.departures.listening(lambda delivery: None, None).handler
        self.woken: list[object] = []
        self.departures.begin(self.woken.append)

    def asks(self, now: float) -> tuple[Proc, ...]:
        op = self.departures.request(now)
        if op is None:
            return ()
        self.number = told(op)[NUMBER]
        return to(op)

    def tells(self, source: Proc, confirmed: object = True, **other: Any) -> None:
        delivery = answers(source, confirmed, **{"request": self.number} | other)
        self.handler(delivery)  # type: ignore[arg-type]
        assert delivery.answer is not None

    def becomes(self, *members: Proc) -> None:
        self.session.states["g"] = self.session.states["g"].replace(members=members)

    def waits(self, now: float) -> dict[Proc, float]:
        return self.departures.missing(now)


def test_all_others_are_asked_and_waited_for(me: Client, session: Groups) -> None:
    going = Going(me, session)
    op = going.departures.request(0)
    assert op is not None
    going.number = told(op)[NUMBER]
    assert (op.code, op.range) == (GroupEvent.LEAVE_REQUEST, RANGE_CUSTOM)
    assert to(op) == (PEER, THIRD, FOURTH)
    assert told(op)[keys.EVENT_AFFECTED_PROC] == ME and told(op)[keys.GROUP_ID] == "g"
    assert told(op)[keys.EVENT_NON_DEFAULT] is True
    assert going.asks(0) == (), "each is asked once"
    assert going.waits(1) == {PEER: 5, THIRD: 5, FOURTH: 5}
    going.tells(PEER, False)
    assert going.waits(1) == {PEER: NEVER, THIRD: 5, FOURTH: 5}, "whose function is called is waited for"
    going.tells(THIRD)
    going.tells(THIRD, False)
    assert going.waits(4) == {PEER: NEVER, FOURTH: 5}
    assert going.waits(5) == {PEER: NEVER}, "who sends nothing is not waited for long"
    going.tells(PEER)
    assert going.waits(5) == {}
    assert len(going.woken) == 3


def test_the_last_one_needs_no_consent(me: Client, session: Groups) -> None:
    going = Going(me, session, ME)
    assert going.asks(0) == () and going.waits(0) == {}


def test_who_ends_or_leaves_has_confirmed(me: Client, session: Groups) -> None:
    going = Going(me, session)
    going.asks(0)
    for each in (PEER, THIRD, FOURTH):
        going.tells(each, False)
    going.becomes(ME, FOURTH)
    assert going.waits(7) == {FOURTH: NEVER}


def test_who_joins_meanwhile_is_asked_too(me: Client, session: Groups) -> None:
    going = Going(me, session, PEER, ME)
    going.asks(0)
    going.tells(PEER)
    going.becomes(PEER, ME, THIRD)
    assert going.waits(3) == {THIRD: NEVER}
    assert going.asks(3) == (THIRD,)
    assert going.waits(4) == {THIRD: 8}


def test_answers_to_others_and_nonsense_confirm_nothing(me: Client, session: Groups) -> None:
    going = Going(me, session, PEER, ME)
    going.asks(0)
    going.tells(PEER, False)
    going.tells(PEER, group="other")
    going.tells(PEER, request=going.number + 1)
    going.tells(THIRD)
    for nonsense in (1, "x", None, b""):
        going.tells(PEER, nonsense)
    going.handler(Delivery(statuses.LEAVE_ANSWER, PEER))  # type: ignore[arg-type]
    assert going.waits(6) == {PEER: NEVER}
    going.departures.begin(going.woken.append)
    going.tells(PEER)
    going.asks(7)
    assert going.waits(7) == {PEER: 12}


# Who leaves


def leaves(consent: Any, **arguments: Any) -> Callable[[], list[BaseException | None]]:
    """Leave in a thread; return what waits for its end, and returns the error."""
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            found.append(consent.leave(**arguments))
        except PMIxError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join() -> list[BaseException | None]:
        thread.join(20)
        assert not thread.is_alive()
        return found

    return join


def comes(true: Callable[[], object]) -> None:
    for _ in range(2000):
        if true():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it does not come")


def test_a_leave_where_calls_block(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME, THIRD]) as g, Consent(g) as consent:
        join = leaves(consent)
        comes(lambda: sent(session, statuses.LEAVE_REQUEST))
        with pytest.raises(PMIxError) as caught:
            consent.leave()
        assert caught.value.code == statuses.ERR_RESOURCE_BUSY
        session.raises(answers(PEER, request=last(session)))
        assert not session.asked(GroupLeave)
        session.tell(LEFT, "g", THIRD, members=(PEER, ME))
        assert join() == [None]
        assert session.asked(GroupLeave) == [GroupLeave("g")]
        assert not g.membership.is_open
    assert session.handlers == {}
    assert len(session.asked(GroupUnwatch)) == 1


def test_whoever_stays_may_ask_again(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]) as g, Consent(g, patience=1.0) as consent:
        with pytest.raises(OperationTimeout) as caught:
            consent.leave(timeout=0.01)
        assert caught.value.missing == {PEER} and g.membership.is_open and not session.asked(GroupLeave)
        # The answer to the first one is late.
        late = last(session)
        session.raises(answers(PEER, request=late))
        consent.leave()
        assert last(session) != late
        assert not g.membership.is_open
        with pytest.raises(NotInitialized):
            consent.leave()
    assert session.handlers == {}


@pytest.mark.parametrize("error", [None, LostConnection("gone")])
def test_a_group_may_end_while_somebody_waits(me: Client, session: Groups, error: PMIxError | None) -> None:
    with me.group("g", [PEER, ME]) as g, Consent(g) as consent:
        join = leaves(consent)
        comes(lambda: sent(session, statuses.LEAVE_REQUEST))
        watch, state = session.watches["g"], session.states.pop("g")
        if error is None:
            watch.changed(GroupChange(DESTRUCTED, state))
        assert watch.ended is not None
        watch.ended(error)
        (found,) = join()
        assert found is error or isinstance(found, NotInitialized)
    assert session.handlers == {}


def test_a_request_that_cannot_be_sent_ends_the_wait(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]) as g, Consent(g) as consent:
        session.refuses[NotifyEvent] = LostConnection("gone")
        with pytest.raises(LostConnection):
            consent.leave()
        assert g.membership.is_open and len(session.asked(GroupUnwatch)) == 1


@pytest.mark.parametrize("gone", [LostConnection("gone"), NotInitialized("closed")])
def test_the_end_of_the_session_is_told_as_it_is(me: Client, session: Groups, gone: PMIxError) -> None:
    lost = LostConnection("the server has ended")
    with pytest.raises(LostConnection) as caught, Consent(me.group("g", [PEER, ME]).construct()) as consent:
        join = leaves(consent)
        comes(lambda: sent(session, statuses.LEAVE_REQUEST))
        session.refuses |= {GroupUnwatch: gone, DeregisterEventHandler: gone}
        ended = session.watches["g"].ended
        assert ended is not None
        ended(lost)
        assert join() == [lost]
        raise lost
    assert caught.value is lost
    # A session that ends tells all handlers, whose thread ends then.
    for op in session.asked(RegisterEventHandler):
        assert op.ended is not None
        op.ended(lost)
    comes(lambda: not [each for each in threading.enumerate() if each.name.startswith("pypmix-handlers")])


def test_a_group_of_the_same_name_is_another_one(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]) as g, Consent(g) as consent:
        join = leaves(consent)
        comes(lambda: sent(session, statuses.LEAVE_REQUEST))
        session.over("g")
        (found,) = join()
        assert isinstance(found, NotInitialized) and not session.asked(GroupLeave)


async def test_a_leave_in_an_event_loop(session: Groups) -> None:
    async with aio.Client() as me, me.group("g", [PEER, ME]) as g, awaited.Consent(g) as consent:
        with anyio.move_on_after(0.05):
            await consent.leave()
        assert g.membership.is_open and len(session.asked(GroupUnwatch)) == 1, (
            "who gives the wait up leaves nothing behind"
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consent.leave)
            await until(lambda: len(sent(session, statuses.LEAVE_REQUEST)) == 2)
            session.raises(answers(PEER, request=last(session)))
        assert not g.membership.is_open
    assert session.handlers == {}


# Who is asked


def test_who_is_asked_says_so_at_once_and_confirms_when_the_function_ends(me: Client, session: Groups) -> None:
    begun, over = threading.Event(), threading.Event()
    heard = []

    def confirm(event: Any) -> None:
        heard.append((event.code, event.source, event.info[keys.GROUP_ID]))
        begun.set()
        over.wait(20)

    with me.group("g", [PEER, ME, THIRD]) as g, Consent(g, confirm):
        session.raises(wants(PEER))
        assert begun.wait(20)
        # The thread of handlers is busy.
        session.raises(wants(THIRD))
        asking = sent(session, statuses.LEAVE_ANSWER)
        assert [(to(op), told(op)[CONFIRMED], told(op)[NUMBER]) for op in asking] == [
            ((PEER,), False, 4),
            ((THIRD,), False, 4),
        ]
        assert all(told(op)[keys.EVENT_DO_NOT_CACHE] for op in asking)
        over.set()
        comes(lambda: len(sent(session, statuses.LEAVE_ANSWER)) == 4)
        confirmed = sent(session, statuses.LEAVE_ANSWER)[2:]
        assert [(to(op), told(op)[CONFIRMED]) for op in confirmed] == [((PEER,), True), ((THIRD,), True)]
    assert heard == [(GroupEvent.LEAVE_REQUEST, each, "g") for each in (PEER, THIRD)]


async def test_who_is_asked_in_an_event_loop(session: Groups) -> None:
    over = anyio.Event()

    async def confirm(event: Any) -> None:
        await over.wait()

    async with aio.Client() as me, me.group("g", [PEER, ME]) as g, awaited.Consent(g, confirm):
        delivery = session.raises(wants(PEER))
        assert [told(op)[CONFIRMED] for op in sent(session, statuses.LEAVE_ANSWER)] == [False]
        assert delivery.answer is None
        over.set()
        await until(lambda: delivery.answer)
        assert [told(op)[CONFIRMED] for op in sent(session, statuses.LEAVE_ANSWER)] == [False, True]


def test_a_function_that_fails_confirms(me: Client, session: Groups, caplog: pytest.LogCaptureFixture) -> None:
    def confirm(event: Any) -> None:
        raise RuntimeError("on purpose")

    with me.group("g", [PEER, ME]) as g, Consent(g, confirm):
        delivery = session.raises(wants(PEER))
        comes(lambda: delivery.answer)
        assert [told(op)[CONFIRMED] for op in sent(session, statuses.LEAVE_ANSWER)] == [False, True]
    assert "on purpose" in caplog.text


def test_strangers_and_other_groups_are_not_answered(me: Client, session: Groups) -> None:
    called: list[Any] = []
    with me.group("g", [PEER, ME]) as g, Consent(g, called.append):
        for delivery in (wants(THIRD), wants(PEER, "other"), Delivery(statuses.LEAVE_REQUEST, PEER)):
            assert session.raises(delivery).answer is not None
        assert called == [] and sent(session, statuses.LEAVE_ANSWER) == []
        # A member that does not say which request it is gets an answer that is of no use.
        session.raises(Delivery(statuses.LEAVE_REQUEST, PEER, attrs.GROUP_ID("g")))
        comes(lambda: len(sent(session, statuses.LEAVE_ANSWER)) == 2)
        called.clear()
        session.ops.clear()
        g.leave()
        assert session.raises(wants(PEER)).answer is not None
    assert called == [] and sent(session, statuses.LEAVE_ANSWER) == []


def test_what_could_never_work_is_refused(me: Client) -> None:
    g = me.group("g", [PEER, ME])
    with pytest.raises(NotInitialized), Consent(g):
        pass
    g.construct()
    with pytest.raises(ValueError):
        Consent(g, patience=-1)
    with Consent(g) as consent, pytest.raises(ValueError):
        consent.leave(timeout=-1)


# Around a construct


@pytest.mark.parametrize("code", [GroupEvent.REQUESTED, GroupEvent.HAS_JOINED])
def test_those_who_are_wanted_hear_of_a_construct(me: Client, session: Groups, code: int) -> None:
    whole = Proc("job", Rank.WILDCARD)
    for procs in ([PEER, ME, THIRD], whole):
        session.ops.clear()
        announce(me.group("g", procs), procs, code)
        (op,) = session.asked(NotifyEvent)
        assert (op.code, op.range) == (code, RANGE_CUSTOM)
        assert to(op) == (PEER, THIRD)
        assert told(op)[keys.GROUP_ID] == "g" and told(op)[keys.GROUP_MEMBERSHIP].items == (PEER, ME, THIRD)
        assert told(op)[keys.EVENT_AFFECTED_PROC] == ME and told(op)[keys.EVENT_NON_DEFAULT] is True
    session.ops.clear()
    announce(me.group("g", [ME]), [ME], code)
    assert session.ops == []


async def test_a_construct_is_announced_in_an_event_loop(session: Groups) -> None:
    async with aio.Client() as me:
        await awaited.announce(me.group("g", [PEER, ME]), [PEER, ME])
        await awaited.announce(me.group("g", [ME]), [ME])
    (op,) = session.asked(NotifyEvent)
    assert op.code == GroupEvent.REQUESTED and to(op) == (PEER,)


# Requests to join, where calls block and in an event loop; what is decided is tested on virtual time


def says(what: str, source: Proc, *infos: Info) -> Delivery:
    return Delivery(statuses.JOIN_TALK, source, attrs.GROUP_ID("g"), talk.text(SAYS, what), *infos)


def asks(source: Proc, request: int = 4) -> Delivery:
    return says("ask", source, talk.size(joinrequests.NUMBER, request))


def approves(source: Proc, asker: Proc, request: int = 4) -> Delivery:
    return says("verdict", source, talk.proc(keys.EVENT_AFFECTED_PROC, asker), talk.size(joinrequests.NUMBER, request))


def said(session: Groups, what: str) -> list[NotifyEvent]:
    return [op for op in sent(session, statuses.JOIN_TALK) if told(op)[SAYS] == what]


def is_asked(session: Groups, asker: Proc) -> Delivery:
    """Bring the request that this process has put to all members to itself."""
    op = sent(session, statuses.JOIN_REQUEST)[-1]
    assert told(op)[keys.EVENT_AFFECTED_PROC] == asker
    return session.raises(Delivery(statuses.JOIN_REQUEST, ME, *op.infos))


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("pypmix-")]


def test_requests_are_taken_where_calls_block(me: Client, session: Groups) -> None:
    heard = []

    def decide(event: Any) -> Any:
        heard.append((event.code, event.source, event.info[keys.GROUP_ID]))
        return event.refuse("full") if event.source == FOURTH else None

    with me.group("g", [ME, PEER]) as g, Admission(g, decide):
        session.raises(asks(THIRD))
        assert [to(op) for op in said(session, "taken")] == [(THIRD,)], "at once"
        comes(lambda: sent(session, statuses.JOIN_REQUEST))
        assert to(sent(session, statuses.JOIN_REQUEST)[0]) == (ME, PEER)
        delivery = is_asked(session, THIRD)
        comes(lambda: said(session, "verdict"))
        assert delivery.answer is not None
        session.raises(approves(ME, THIRD))
        assert not session.asked(GroupAdmit)
        session.raises(approves(PEER, THIRD))
        comes(lambda: session.asked(GroupAdmit))
        assert session.asked(GroupAdmit) == [GroupAdmit("g", THIRD, (attrs.TIMEOUT(5),))]
        session.raises(asks(FOURTH))
        comes(lambda: len(sent(session, statuses.JOIN_REQUEST)) == 2)
        is_asked(session, FOURTH)
        comes(lambda: len(said(session, "verdict")) == 2)
        verdict = told(said(session, "verdict")[1])
        assert (verdict[talk.ERROR_STATUS], verdict[talk.REASON]) == (statuses.ERR_NO_PERMISSIONS, "full")
        session.refuses[GroupAdmit] = PMIxError("no")
        session.raises(asks(THIRD, 5))
    assert [to(op) for op in said(session, "refused")] == [(FOURTH,), (THIRD,)], "it takes no requests any more"
    assert heard == [(GroupEvent.JOIN_REQUEST, each, "g") for each in (THIRD, FOURTH)]
    assert session.handlers == {} and len(session.asked(GroupUnwatch)) == 1
    comes(lambda: not threads())


async def test_requests_are_taken_in_an_event_loop(session: Groups) -> None:
    over = anyio.Event()

    async def decide(event: Any) -> None:
        await over.wait()

    async with aio.Client() as me, me.group("g", [ME, PEER]) as g, awaited_admission.Admission(g, decide):
        session.raises(asks(THIRD))
        await until(lambda: sent(session, statuses.JOIN_REQUEST))
        is_asked(session, THIRD)
        session.raises(approves(PEER, THIRD))
        await anyio.sleep(0.01)
        assert not said(session, "verdict") and len(said(session, "at it")) == 1
        over.set()
        await until(lambda: said(session, "verdict"))
        session.raises(approves(ME, THIRD))
        await until(lambda: session.asked(GroupAdmit))
    assert session.handlers == {} and said(session, "refused") == []


def test_a_function_that_fails_refuses(me: Client, session: Groups, caplog: pytest.LogCaptureFixture) -> None:
    def decide(event: Any) -> Any:
        return "yes"

    with me.group("g", [ME, PEER]) as g, Admission(g, decide):
        session.raises(asks(THIRD))
        comes(lambda: sent(session, statuses.JOIN_REQUEST))
        is_asked(session, THIRD)
        comes(lambda: said(session, "verdict"))
        assert told(said(session, "verdict")[0])[talk.ERROR_STATUS] == statuses.ERROR
        comes(lambda: "ev.refuse" in caplog.text)


@pytest.mark.parametrize("error", [None, LostConnection("gone")])
def test_a_group_may_end_while_requests_wait(me: Client, session: Groups, error: PMIxError | None) -> None:
    with me.group("g", [ME, PEER]) as g, Admission(g):
        session.raises(asks(THIRD))
        comes(lambda: sent(session, statuses.JOIN_REQUEST))
        watch, state = session.watches["g"], session.states.pop("g")
        if error is None:
            watch.changed(GroupChange(DESTRUCTED, state))
        assert watch.ended is not None
        watch.ended(error)
    assert [told(op)[talk.ERROR_STATUS] for op in said(session, "refused")] == [
        statuses.ERR_NOT_FOUND if error is None else statuses.ERR_NOT_SUPPORTED
    ]
    comes(lambda: not threads())


def test_a_request_where_calls_block(me: Client, session: Groups) -> None:
    session.answers_with[QueryInfo] = (Info("k", Value(codes.DATA_ARRAY, DataArray(codes.PROC, (PEER, THIRD)))),)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(request(me, "g", timeout=20)))
    thread.start()
    comes(lambda: said(session, "ask"))
    assert to(said(session, "ask")[0]) == (PEER,)
    (op,) = session.asked(GroupEnter)
    assert op.by(PEER) and op.by(THIRD) and not op.by(FOURTH)
    session.end(GroupEnter, session.form("g", PEER, THIRD, ME))
    thread.join(20)
    assert found[0].members == (PEER, THIRD, ME)
    assert session.handlers == {} and not session.asked(GroupLeave)


async def test_a_request_that_is_given_up_in_an_event_loop(session: Groups) -> None:
    session.answers_with[QueryInfo] = (Info("k", Value(codes.DATA_ARRAY, DataArray(codes.PROC, (PEER,)))),)
    async with aio.Client() as me:
        with anyio.move_on_after(0.05):
            await awaited_admission.request(me, "g")
    assert [to(op) for op in said(session, "withdraw")] == [(PEER,)]
    assert session.asked(GroupLeave) == [GroupLeave("g")] and session.handlers == {}


async def test_a_wait_that_is_given_up_in_an_event_loop(session: Groups) -> None:
    async with aio.Client() as me:
        with anyio.move_on_after(0.05):
            await awaited_admission.enter(me, "g", by=PEER)
    assert session.asked(GroupLeave) == [GroupLeave("g")]


def test_whom_a_wait_names(me: Client, session: Groups) -> None:
    session.refuses[GroupEnter] = PMIxError("no")
    job = me.job
    for by in (PEER, 0, [PEER], job):
        with pytest.raises(PMIxError, match="no"):
            admission.enter(me, "g", by=by)
        op = session.asked(GroupEnter)[-1]
        assert op.by(PEER) and op.by(THIRD) is (by is job) and not op.by(Proc("other", 0))
    with pytest.raises(ValueError):
        admission.enter(me, "g", by=[])
    assert not session.asked(GroupLeave)

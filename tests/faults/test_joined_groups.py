"""Proves that groups of servers joined by crossings agree, whatever their members, leaders and servers come to."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from faults.joined import Joined
from faults.world import held
from pypmix.engine.groups import talk
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.enums import Status
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.wire.frames import TAG_NOTIFY
from pypmix.wire.messages import EVENT, Command, encode_fence, reply_layout, request_layout

pytestmark = pytest.mark.timeout(900)

EXAMPLES = max(200, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
VERSION, RELEASE = "7.0.0", (7, 0, 0)
DEFINED = frozenset(int(status) for status in Status) | {-165, -66}
RANGE_LOCAL, RANGE_CUSTOM = 2, 6
HEARD = (
    statuses.GROUP_MEMBER_FAILED,
    statuses.GROUP_LEADER_FAILED,
    statuses.GROUP_LEADER_SELECTED,
    statuses.GROUP_CONSTRUCT_ABORT,
    statuses.GROUP_LEFT,
)
ONCE = (statuses.GROUP_MEMBER_FAILED, statuses.GROUP_LEADER_FAILED, statuses.GROUP_LEFT)

LAYOUTS = [
    {"job": (0, 1)},
    {"job": (0, 0, 1, 1)},
    {"job": (0, 1, 2, 0, 1), "other": (1, 2)},
    {"job": (0, 1, 2, 3), "other": (0, 3), "lone": (2,)},
]
FLAGS = (attrs.GROUP_OPTIONAL(True), attrs.GROUP_FT_COLLECTIVE(True), attrs.GROUP_NOTIFY_TERMINATION(True))

PLANS = st.lists(
    st.tuples(
        st.integers(1, 127),
        st.integers(0, 7),
        st.one_of(st.none(), st.integers(0, 6)),
        st.sampled_from((0, 0, 1, 3)),
        st.sampled_from(("named", "named", "named", "boot", "add")),
    ),
    min_size=1,
    max_size=3,
)
"""Groups: who is meant, with which directives, under which leader, in how many seconds, found how."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("all", "call", "call", "call", "fence", "destruct", "leave", "die", "die", "lose")),
        st.integers(0, 6),
        st.integers(0, 63),
        st.sampled_from((0.0, 0.0, 0.01, 0.3, 2.5)),
    ),
    min_size=1,
    max_size=40,
)


class Life:
    """One run of some servers, their clients, and the groups that these try to make."""

    def __init__(self, layout, delays, plans):
        numbers = iter(range(1 << 30))
        servers = 1 + max(max(places) for places in layout.values())
        self.world = Joined(servers, lambda _from, _to: delays[next(numbers) % len(delays)])
        for nspace, places in layout.items():
            self.world.add_job(nspace, places)
        self.world.advance(5)
        self.procs = sorted(self.world.where)
        self.plans = [(self.chosen(plan[0]), *plan[1:]) for plan in plans]
        self.clients = {proc: self.world.client(proc, version=VERSION) for proc in self.procs}
        self.requests = []
        self.called = set()
        self.left = set()
        self.formed = {}
        self.failed = defaultdict(set)
        self.heard = set()
        for client in self.clients.values():
            layout = request_layout(Command.REGEVENTS, RELEASE)
            self.ask(client, "register", layout.encode(1, RELEASE, codes=HEARD, infos=()), None)
        self.world.advance(1)
        self.check()

    def chosen(self, bits):
        found = [proc for place, proc in enumerate(self.procs) if bits >> place & 1]
        return found or [self.procs[0]]

    def ask(self, client, kind, payload, name):
        self.requests.append((client, kind, client.send(payload), name))

    def request(self, client, command, kind, name, **fields):
        self.ask(client, kind, request_layout(command, RELEASE).encode(1, RELEASE, **fields), name)

    def step(self, kind, who, number, pause):
        plan = number % len(self.plans)
        members = self.plans[plan][0]
        if kind == "all":
            for proc in members:
                self.do("call", proc, plan)
        elif kind == "lose":
            if number % 8 == 0:
                self.lose(self.world.where[self.procs[who % len(self.procs)]])
        else:
            among = self.procs if kind == "die" else members
            self.do(kind, among[who % len(among)], plan)
        self.world.advance(pause)
        self.check()

    def do(self, kind, proc, plan):
        client = self.clients.get(proc)
        if client is not None:
            getattr(self, f"do_{kind}")(proc, client, plan)

    def do_call(self, proc, client, number):
        if (proc, number) in self.called:
            return
        self.called.add((proc, number))
        members, flags, leader, limit, how = self.plans[number]
        infos = [flag for bit, flag in enumerate(FLAGS) if flags >> bit & 1]
        infos += [attrs.GROUP_ASSIGN_CONTEXT_ID(True), talk.flag(talk.REACTS)]
        infos.append(attrs.GROUP_INFO((Info("acme.note", Value(codes.UINT32, proc.rank)),)))
        if limit:
            infos.append(attrs.TIMEOUT(limit))
        added = members[len(members) - len(members) // 2 :] if how != "named" else []
        leading = [each for each in members if each not in added]
        named = tuple(leading) if proc in leading else ()
        if how == "boot" and named:
            named = (proc,)
            infos.append(attrs.GROUP_BOOTSTRAP(len(leading)))
        if added and proc == leading[0]:
            infos.append(attrs.GROUP_ADD_MEMBERS(added))
        if leader is not None and proc == members[leader % len(members)] and how == "named":
            infos.append(attrs.GROUP_LEADER(True))
        self.request(
            client, Command.GROUP_CONSTRUCT, "construct", number, group=f"g{number}", procs=named, infos=tuple(infos)
        )

    def do_fence(self, proc, client, number):
        if proc in self.formed.get(number, ((),))[0] and (proc, number) not in self.left:
            infos = (attrs.GROUP_FT_COLLECTIVE(True), attrs.TIMEOUT(3)) if number % 2 else (attrs.TIMEOUT(3),)
            self.ask(client, "fence", encode_fence(1, (Proc(f"g{number}", RANK_WILDCARD),), infos), number)

    def do_destruct(self, proc, client, number):
        fields = {"group": f"g{number}", "members": (), "infos": (attrs.TIMEOUT(3),)}
        self.request(client, Command.GROUP_DESTRUCT, "destruct", number, **fields)

    def do_leave(self, proc, client, number):
        members = self.formed.get(number, ((),))[0]
        if proc in members and (proc, number) not in self.left:
            self.left.add((proc, number))
            others = [each for each in members if each != proc]
            infos = (attrs.EVENT_CUSTOM_RANGE(others), talk.text(keys.GROUP_ID, f"g{number}"))
            self.notify(client, statuses.GROUP_LEFT, RANGE_CUSTOM, (*infos, talk.proc(keys.EVENT_AFFECTED_PROC, proc)))

    def notify(self, client, code, reach, infos):
        self.request(client, Command.NOTIFY, "notify", None, code=code, range=reach, infos=infos)

    def do_die(self, proc, client, number):
        self.leave(proc)
        client.die()
        self.world.exit(proc)

    def lose(self, node):
        """A server is lost, with all of its clients."""
        if len(self.world.nodes) > 1 and node in self.world.nodes:
            for proc in [proc for proc in list(self.clients) if self.world.where[proc] is node]:
                self.leave(proc)
            self.world.nodes.remove(node)
            self.world.hub.lose(node.name)

    def leave(self, proc):
        self.check()
        client = self.clients.pop(proc)
        self.requests = [entry for entry in self.requests if entry[0] is not client]

    def check(self):
        for client in list(self.clients.values()):
            client.read()
            pushed, client.pushed = client.pushed, []
            for tag, payload in pushed:
                if tag == TAG_NOTIFY:
                    self.event(client, EVENT.decode(payload, 1, RELEASE))
        for client, kind, tag, name in self.requests:
            if tag in client.replies:
                self.answered(client, kind, tag, name)
        self.requests = [entry for entry in self.requests if entry[2] not in entry[0].replies]

    def event(self, client, event):
        code, infos = event["code"], event["infos"]
        group = talk.found(infos, keys.GROUP_ID, str)
        affected = talk.found(infos, keys.EVENT_AFFECTED_PROC, Proc)
        if code in ONCE:
            what = client.proc, code, group, affected
            assert what not in self.heard, f"{client.proc} has heard {code} of {affected} in {group} twice"
            self.heard.add(what)
            assert affected != client.proc
        if code in (statuses.GROUP_MEMBER_FAILED, statuses.GROUP_LEADER_FAILED):
            # As a library does once the handlers have answered.
            wish = (talk.GO_ON, talk.CLAIM, talk.GO_ON, talk.ABORT)[(client.proc.rank + affected.rank) % 4]
            said = talk.text(talk.SAYS, talk.REACTION), talk.text(talk.VERDICT, wish)
            about = talk.text(keys.GROUP_ID, group), talk.proc(keys.EVENT_AFFECTED_PROC, affected)
            self.notify(client, statuses.TALK, RANGE_LOCAL, (*said, *about, talk.flag(keys.EVENT_DO_NOT_CACHE)))

    def answered(self, client, kind, tag, name):
        status = client.status(tag)
        assert status in DEFINED, (kind, status)
        if kind != "construct":
            return
        if status != statuses.SUCCESS:
            self.failed[name].add(client.proc)
            return
        reply = reply_layout(Command.GROUP_CONSTRUCT, RELEASE).decode(client.replies[tag], 1, RELEASE)
        found = tuple(reply["members"]), reply["context_id"]
        assert client.proc in found[0]
        assert found[1] is not None
        assert set(found[0]) <= set(self.plans[name][0])
        assert len(set(found[0])) == len(found[0])
        known = self.formed.get(name, found)
        if self.plans[name][1] & 1 and self.plans[name][3] and not set(known[0]) & set(found[0]):
            # Whoever comes long after the others have gone on without it is a group of its own.
            return
        assert self.formed.setdefault(name, found) == found, "members of a group do not agree on it"
        if not self.plans[name][1] and self.plans[name][2] is None:
            assert set(found[0]) == set(self.plans[name][0])

    def end(self):
        # Whatever must come to its end by itself has come to it.
        for _ in range(8):
            self.world.advance(10)
            self.check()
        for number, (members, _flags, _leader, limit, how) in enumerate(self.plans):
            waiting = [entry for entry in self.requests if entry[1:4:2] == ("construct", number)]
            living = [proc for proc in members if proc in self.clients]
            if how == "named" and all((proc, number) in self.called for proc in living):
                assert not waiting, f"g{number}: {[str(entry[0].proc) for entry in waiting]} wait for nobody"
            if limit:
                assert not waiting, f"g{number} waits beyond its time"
            elif number in self.formed and how == "named":
                assert not self.failed[number] & set(self.formed[number][0]), "it stands, and has failed for a member"
        contexts = [context_id for _, context_id in self.formed.values()]
        assert len(set(contexts)) == len(contexts)
        assert not [entry for entry in self.requests if entry[1] != "construct"], self.requests
        for proc in list(self.clients):
            self.do_die(proc, self.clients[proc], 0)
        self.world.advance(60)
        self.world.where = {proc: node for proc, node in self.world.where.items() if node in self.world.nodes}
        self.world.check_empty(held)
        for node in self.world.nodes:
            assert not len(node.crossing._collectives.record)
            assert not node.exchange.collectives.coordinator.late


def play(layout, delays, plans, steps):
    life = Life(layout, delays, plans)
    for step in steps:
        life.step(*step)
    life.end()


@example(LAYOUTS[2], [0.0], [(9, 1, None, 1, "add")], [("call", 0, 0, 0.0)])
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.sampled_from((0.0, 0.01, 0.1, 1.5)), min_size=1, max_size=7),
    PLANS,
    STEPS,
)
def test_groups_agree_on_all_servers(layout, delays, plans, steps):
    play(layout, delays, plans, steps)

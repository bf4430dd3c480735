"""Events that programs expect because a libpmix raises them by itself."""

from __future__ import annotations

import pytest
from compat.serving import Mailbox, info, serving

from pypmix.compat import (
    PMIX_EVENT_ACTION_COMPLETE,
    PMIX_EVENT_AFFECTED_PROC,
    PMIX_GROUP_INVITE_DECLINED,
    PMIX_GROUP_INVITE_FAILED,
    PMIX_MODEL_DECLARED,
    PMIX_PROGRAMMING_MODEL,
    PMIX_RANGE_LOCAL,
    PMIX_STRING,
    PMIX_SUCCESS,
    PMIxClient,
)


def into(box):
    def handler(number, code, source, infos, results):
        box(code, source, {each["key"]: each["value"] for each in infos})
        return PMIX_EVENT_ACTION_COMPLETE, None

    return handler


def test_a_model_that_is_declared_at_init(monkeypatch):
    """As in OpenPMIx's test client: the handler comes after `init`, and a default one does not get it."""
    monkeypatch.setenv("PYPMIX_ENGINE", "python")
    client, declared, other = PMIxClient(), Mailbox(), Mailbox()
    rc, me = client.init([info(PMIX_PROGRAMMING_MODEL, "TEST", PMIX_STRING)])
    assert rc == PMIX_SUCCESS
    try:
        assert client.register_event_handler(None, None, into(other))[0] == PMIX_SUCCESS
        assert client.register_event_handler([PMIX_MODEL_DECLARED], None, into(declared))[0] == PMIX_SUCCESS
        code, source, infos = declared.wait()[0]
        assert (code, source, infos["pmix.pgm.model"]) == (PMIX_MODEL_DECLARED, me, "TEST")
        assert other.wait(0) == []
    finally:
        assert client.finalize([]) == PMIX_SUCCESS


@pytest.mark.parametrize("codes", [[PMIX_GROUP_INVITE_FAILED], [PMIX_GROUP_INVITE_FAILED, PMIX_GROUP_INVITE_DECLINED]])
def test_a_refused_invitation_is_one_that_failed(codes):
    """Unless the program asks for refusals themselves."""
    decliner = {"nspace": "job", "rank": 3}
    with serving() as server:
        box = Mailbox()
        assert server.register_event_handler(codes, None, into(box))[0] == PMIX_SUCCESS
        assert server.notify_event(PMIX_GROUP_INVITE_DECLINED, decliner, PMIX_RANGE_LOCAL, []) == PMIX_SUCCESS
        code, source, infos = box.wait()[0]
        assert source == decliner
        if len(codes) == 1:
            assert code == PMIX_GROUP_INVITE_FAILED and infos[PMIX_EVENT_AFFECTED_PROC] == decliner
        else:
            assert code == PMIX_GROUP_INVITE_DECLINED

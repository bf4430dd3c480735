"""A client asks whose its server is before it sends anything: `check_server`, as an ordinary user sees it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pypmix.engine import peeruid
from pypmix.engine.peeruid import UNKNOWN_USER, check_server
from pypmix.standard.errors import Unreachable

OWN, OTHER, THIRD = 1000, 1001, 1002
SERVER = ("127.0.0.1", 4711)


class Kernel:
    """What the kernel says of a listener."""

    owner = OTHER

    def __init__(self, *, tcp: bool = True) -> None:
        assert tcp
        self.trouble = "nobody knows" if self.owner == UNKNOWN_USER else ""
        self.doubt = ""

    def listener(self, host: str, port: int) -> int:
        assert (host, port) == SERVER
        return self.owner

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> type[Kernel]:
    monkeypatch.setattr(peeruid, "Owners", Kernel)
    monkeypatch.setattr(Kernel, "owner", OTHER)
    monkeypatch.setattr(os, "geteuid", lambda: OWN)
    return Kernel


@pytest.mark.parametrize("owner", [0, OWN])
def test_root_and_the_own_user_are_trusted(monkeypatch: pytest.MonkeyPatch, owner: int) -> None:
    monkeypatch.setattr(Kernel, "owner", owner)
    check_server(SERVER, "there", ())


@pytest.mark.parametrize("allowed", ["", f"{THIRD}", "10010,100", f"-{OTHER}", "anybody", "ANY"])
def test_another_user_is_refused_by_name(allowed: str) -> None:
    with pytest.raises(Unreachable) as caught:
        check_server(SERVER, "tcp4://there", (THIRD,), allowed)
    assert f"the server at tcp4://there belongs to user {OTHER}, and this process to user {OWN}" in str(caught.value)
    assert f"PYPMIX_SERVER_OWNER={OTHER}" in caught.value.hint


@pytest.mark.parametrize("allowed", ["any", f"{OTHER}", f" {THIRD}, {OTHER} "])
def test_another_user_is_trusted_if_the_environment_names_it(allowed: str) -> None:
    check_server(SERVER, "there", (), allowed)


def test_another_user_is_trusted_if_the_caller_names_it() -> None:
    check_server(SERVER, "there", (THIRD, OTHER))


@pytest.mark.parametrize("allowed", ["", f"{OTHER}", f"{UNKNOWN_USER}"])
def test_a_server_of_an_unknown_user_is_refused(monkeypatch: pytest.MonkeyPatch, allowed: str) -> None:
    monkeypatch.setattr(Kernel, "owner", UNKNOWN_USER)
    with pytest.raises(Unreachable, match="does not tell whose server is at there: nobody knows") as caught:
        check_server(SERVER, "there", (UNKNOWN_USER,), allowed)
    assert "PYPMIX_SERVER_OWNER=any" in caught.value.hint


def test_who_trusts_anybody_need_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(peeruid, "Owners", lambda **about: asked.append(about))
    check_server(SERVER, "there", (), "any")
    assert not asked

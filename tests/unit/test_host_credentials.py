"""Proves that a credential tells who has asked for it, to its own host alone and only for a while."""

from __future__ import annotations

import pytest

from pypmix.host.credentials import LIFETIME, Seal
from pypmix.standard.enums import Status
from pypmix.standard.errors import PermissionDenied
from pypmix.standard.types import Proc

PROC = Proc("job.1", 7)


NOW = 1000.0


def refused(seal: Seal, token: bytes, now: float = NOW) -> None:
    with pytest.raises(PermissionDenied) as caught:
        seal.check(token, now)
    assert caught.value.code == Status.ERR_INVALID_CRED


def test_it_says_who_has_asked() -> None:
    seal = Seal()
    claims = seal.check(seal.issue(PROC, 1001, 100, NOW), NOW)
    assert (claims["nspace"], claims["rank"], claims["uid"], claims["gid"]) == ("job.1", 7, 1001, 100)


def test_every_one_is_another() -> None:
    seal = Seal()
    assert seal.issue(PROC, 1, 2, NOW) != seal.issue(PROC, 1, 2, NOW)


def test_it_expires() -> None:
    seal = Seal()
    token = seal.issue(PROC, 1, 2, NOW)
    seal.check(token, NOW + LIFETIME - 0.001)
    refused(seal, token, NOW + LIFETIME)


def test_no_byte_of_it_can_be_changed() -> None:
    seal = Seal()
    token = seal.issue(PROC, 1, 2, NOW)
    for number in range(len(token)):
        for bit in (1, 0x20, 0x80):
            altered = bytearray(token)
            altered[number] ^= bit
            refused(seal, bytes(altered))
    for length in range(len(token)):
        refused(seal, token[:length])
    refused(seal, token + b"x")


@pytest.mark.parametrize("token", [b"", b".", b"nonsense", b"pypmix1.e30=.", b"\xff" * 100])
def test_nonsense(token: bytes) -> None:
    refused(Seal(), token)


def test_another_host_does_not_know_it() -> None:
    refused(Seal(), Seal().issue(PROC, 1, 2, NOW))

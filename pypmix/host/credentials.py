"""Credentials: a token that names its owner, signed with a key that only this host has, valid for some minutes.

It is `pypmix1.`, the claims as JSON and their HMAC-SHA256, both in base64. Only the host that has issued it can check
that it is genuine. The holder of a token can show it until it expires, so it must be kept like a password; the nonce
makes each token unique.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import time

from pypmix.standard import attrs
from pypmix.standard.enums import Status
from pypmix.standard.errors import NotSupported, PermissionDenied
from pypmix.standard.ops import Credential, GetCredential, ValidateCredential
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.standard.types import Info

TYPE = "pypmix"
PREFIX = b"pypmix1"

LIFETIME = 300.0
"""Seconds for which a credential is valid."""


class Seal:
    """Signs claims and verifies them; times are in seconds since 1970."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def issue(self, proc: Proc, uid: int, gid: int, now: float) -> bytes:
        """Return a token for a proc, issued now."""
        claims = {
            "nspace": proc.nspace,
            "rank": proc.rank,
            "uid": uid,
            "gid": gid,
            "issued": now,
            "expires": now + LIFETIME,
            "nonce": os.urandom(16).hex(),
        }
        body = PREFIX + b"." + base64.urlsafe_b64encode(json.dumps(claims).encode())
        return body + b"." + self._sign(body)

    def check(self, token: bytes, now: float) -> dict[str, Any]:
        """Return the claims of a token that is presented now.

        Raises:
            PermissionDenied: It was altered, has expired, or was issued by another host (`ERR_INVALID_CRED`).
        """
        body, _, signature = token.rpartition(b".")
        if not hmac.compare_digest(signature, self._sign(body)):
            raise _invalid("it is not one of this host")
        try:
            claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body.partition(b".")[2]))
        except (ValueError, binascii.Error):
            raise _invalid("it cannot be read") from None
        if not claims["issued"] - LIFETIME <= now < claims["expires"]:
            raise _invalid("it has expired")
        return claims

    def _sign(self, body: bytes) -> bytes:
        return base64.urlsafe_b64encode(hmac.new(self._key, body, hashlib.sha256).digest())


class Seals:
    """The host's seal."""

    def __init__(self, _host: Manager) -> None:
        self.seal = Seal()


def _invalid(detail: str) -> PermissionDenied:
    return PermissionDenied(detail, status=Status.ERR_INVALID_CRED, operation="validate_credential")


def _check_type(directives: tuple[Info, ...], operation: str) -> None:
    """Raise `NotSupported` if only credentials of other types are accepted."""
    wanted = next((info.value.data for info in directives if info.key == attrs.CRED_TYPE.key), None)
    if wanted and TYPE not in [name.strip() for name in str(wanted).split(",")]:
        raise NotSupported(f"this host has credentials of the type {TYPE}, not {wanted}", operation=operation)


def _get(host: Manager, upcall: Upcall) -> None:
    op, proc = upcall.op, upcall.requestor
    assert isinstance(op, GetCredential)
    assert proc is not None and upcall.uid is not None and upcall.gid is not None
    _check_type(op.directives, op.name)
    token = host.part(Seals).seal.issue(proc, upcall.uid, upcall.gid, time.time())
    upcall.reply(Credential(token, (attrs.CRED_TYPE(TYPE),)))


def _validate(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, ValidateCredential)
    _check_type(op.directives, op.name)
    claims = host.part(Seals).seal.check(op.credential, time.time())
    proc = Proc.unchecked(claims["nspace"], claims["rank"])
    upcall.reply((attrs.CRED_TYPE(TYPE), attrs.USERID(claims["uid"]), attrs.GRPID(claims["gid"]), attrs.PROCID(proc)))


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {GetCredential: _get, ValidateCredential: _validate}

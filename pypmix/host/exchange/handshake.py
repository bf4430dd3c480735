"""Two servers prove to each other that they belong to one session: both know its secret, and neither sends it.

The dialing server sends its name, the name of the other one, and a number that it has never sent before; the other one
does the same and proves that it knows the secret by a code over all of this; then the first one proves it as well. The
connection is secret from then on if it is encrypted (`pypmix.host.tls`): the codes are bound to this connection then,
so that a third process cannot sit between the two. If it is not encrypted, the network is responsible.

A connection that was reset is restored by the same handshake: with its proof, each side sends its progress (`Progress`;
`stream` has the theory). The dialed side decides when it has the proof of the other one: `welcome` admits it.
"""

from __future__ import annotations

import hmac
import os

from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import BYTES, NUMBER, TEXT
from pypmix.host.naming import check_name, shown
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar

    from pypmix.host.exchange.rendezvous import Address

HELLO = 1
CHALLENGE = 2
PROOF = 3
WELCOME = 4
REFUSED = 5

MAGIC = b"pypmix exchange 8"
NONCE = 32
STREAM_NUMBER = 16
MAX_FRAME = 4096
"""The longest message before both have proved who they are."""


class Progress(Record):
    """The state of one side of a stream; a new one has only the life of the server.

    Attributes:
        stream: The number of the stream; empty for a new one.
        dialed: How often this side has dialed to restore it.
        received: How many messages have arrived.
        life: The number of this side's process.
    """

    stream: bytes = b""
    dialed: int = 0
    received: int = 0
    life: bytes = b""


ADDRESS: codec.Field[Address] = codec.message(TEXT, NUMBER)
PROGRESS: codec.Field[Progress] = codec.record(Progress, BYTES, NUMBER, NUMBER, BYTES)
NEW = Progress()


class HandshakeError(Exception):
    """The handshake has failed; the text says why.

    Attributes:
        retry: Whether it may be tried again soon.
    """

    def __init__(self, detail: str, retry: bool = False) -> None:
        super().__init__(detail)
        self.retry = retry


class Handshake:
    """One side of a handshake: takes messages, and returns answers.

    Args:
        name: This server's name.
        secret: The secret of all servers of the session.
        to: The name of the server that is dialed; empty for the dialed side.
        progress: The progress of this side, if it dials.

    Attributes:
        dials: Whether this side has dialed.
        peer: The name of the other side, once it has sent it.
        listens: The host and port that the dialing side listens on; port 0 if it dials from another
            host.
        theirs: The progress of the other side, once it has proved that it knows the secret.
        proved: Whether this side has proved it, so that the other one may take it for a member.
        done: Whether the other side has proved it: a dialing side waits for `welcome` then.
        binding: Returns a value that only the two ends of an encrypted connection know alike.
    """

    def __init__(self, name: str, secret: bytes, to: str = "", *, progress: Progress = NEW) -> None:
        self.peer = to
        self.listens: Address = ("", 0)
        self.theirs = NEW
        self.proved = False
        self.done = False
        self.binding: Callable[[], bytes] = bytes
        self._name = name
        self._secret = secret
        self.dials = bool(to)
        self._progress = progress
        self._nonce = os.urandom(NONCE)
        self._other = b""
        self._expected: tuple[int, ...] = (CHALLENGE, WELCOME) if to else (HELLO, PROOF)

    def begin(self) -> bytes:
        """Return the first message of the dialing side."""
        names = TEXT.write(self._name), TEXT.write(self.peer)
        return codec.pack(HELLO, MAGIC, *names, self._nonce, ADDRESS.write(self.listens))

    def take(self, message: bytes) -> bytes:
        """Process a message. Return the answer, which may be empty.

        Raises:
            HandshakeError: The other side does not know the secret, is another server than expected, has refused, or is
                not a server.
        """
        try:
            kind, parts = codec.unpack(message)
            if kind == REFUSED and self.dials:
                reason, retry = codec.expect(parts, 2)
                raise HandshakeError(f"{shown(self.peer)} refuses: {TEXT.read(reason)[:200]}", retry == b"\1")
            if not self._expected or kind != self._expected[0]:
                raise HandshakeError(f"a message of kind {kind} came out of turn")
            self._expected = self._expected[1:]
            return self._STEPS[kind](self, parts)
        except RemoteProtocolError as error:
            raise HandshakeError(f"it does not send a handshake: {error.detail}") from None

    def _hello(self, parts: list[bytes]) -> bytes:
        magic, name, to, nonce, listens = codec.expect(parts, 5) if parts[:1] == [MAGIC] else [b""] * 5
        self.listens = ADDRESS.read(listens) if magic else ("", -1)
        if not 0 <= self.listens[1] < 1 << 16 or len(nonce) != NONCE:
            raise HandshakeError("it does not send a handshake of this version")
        try:
            self.peer = check_name(TEXT.read(name))
        except ValueError as error:
            raise HandshakeError(str(error)) from None
        if TEXT.read(to) != self._name:
            raise HandshakeError(f"{shown(self.peer)} means {TEXT.read(to)!r:.80}, and this is {shown(self._name)}")
        self._other = nonce
        return codec.pack(CHALLENGE, self._nonce, self._code(b"dialed"))

    def _challenge(self, parts: list[bytes]) -> bytes:
        self._other, proof = codec.expect(parts, 2)
        self._check(proof, b"dialed")
        self.proved = True
        state = PROGRESS.write(self._progress)
        return codec.pack(PROOF, self._code(b"dials", state), state)

    def welcome(self, progress: Progress = NEW) -> bytes:
        """Admit the dialing side, which has proved that it knows the secret. Return the answer.

        Args:
            progress: The progress of this side.
        """
        state = PROGRESS.write(progress)
        return codec.pack(WELCOME, self._code(b"welcomes", state), state)

    def _record_progress(self, parts: list[bytes]) -> bytes:
        """Record the progress of the other side, which proves that it knows the secret."""
        proof, state = codec.expect(parts, 2)
        self._check(proof, b"welcomes" if self.dials else b"dials", state)
        self.theirs = PROGRESS.read(state)
        self.done = True
        return b""

    _STEPS: ClassVar[dict[int, Callable[[Handshake, list[bytes]], bytes]]] = {
        HELLO: _hello,
        CHALLENGE: _challenge,
        PROOF: _record_progress,
        WELCOME: _record_progress,
    }

    def _check(self, proof: bytes, side: bytes, state: bytes = b"") -> None:
        if len(self._other) != NONCE or not hmac.compare_digest(proof, self._code(side, state)):
            raise HandshakeError(f"{shown(self.peer)} does not know the secret of this session")

    def number(self) -> bytes:
        """Return a number that only the two sides of this handshake know."""
        return self._code(b"link")[:STREAM_NUMBER]

    def _code(self, side: bytes, state: bytes = b"") -> bytes:
        """Return a code that only a server with the secret can make, in this handshake, as this side."""
        if self.dials:
            sides = (self._name, self.peer, self._nonce, self._other)
        else:
            sides = (self.peer, self._name, self._other, self._nonce)
        names, nonces = [TEXT.write(name) for name in sides[:2]], sides[2:]
        listens = ADDRESS.write(self.listens)
        message = codec.pack(0, MAGIC, side, *names, *nonces, listens, state, self.binding())
        return hmac.digest(self._secret, message, "sha256")


def refusal(error: HandshakeError) -> bytes:
    """Return the message with the reason for which a dialing server is refused."""
    return codec.pack(REFUSED, TEXT.write(str(error)[:200]), b"\1" if error.retry else b"\0")

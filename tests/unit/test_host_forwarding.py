"""Proves the pieces of output and input forwarding: taps, copies, inputs that block nobody, and the limits of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pypmix.host.feeding import Feed, Input
from pypmix.host.loop import Loop
from pypmix.host.output import Copy, Sink, Stream, channel


class Owner:
    """The host of an output, which must not break unless a test expects it."""

    def __init__(self) -> None:
        self.errors: list[OSError] = []

    def unwritable(self, error: OSError) -> None:
        self.errors.append(error)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def settle(loop: Loop, done: object = None) -> None:
    """Run the loop until a condition holds, for a few seconds at most."""
    over: list[bool] = []
    timer = loop.later(5, lambda: over.append(True))
    loop.run(lambda: bool(over) or (callable(done) and bool(done())))
    timer.cancel()
    assert not over


def test_a_tap_gets_pieces_as_they_come_and_then_none(loop: Loop) -> None:
    reader, writer = channel(-1)
    stream = Stream(loop, reader, None)
    pieces: list[bytes] = []
    stream.tap = pieces.append
    os.write(writer, b"no line")
    settle(loop, lambda: pieces)
    os.write(writer, b" yet\n")
    settle(loop, lambda: len(pieces) == 2)
    assert not stream.ended
    os.close(writer)
    settle(loop, lambda: stream.ended)
    assert pieces == [b"no line", b" yet\n", b""]
    stream.close()
    assert pieces[3:] == []


def test_who_is_asked_before_a_piece_is_dropped_may_set_a_tap_for_it(loop: Loop) -> None:
    reader, writer = channel(-1)
    stream = Stream(loop, reader, None)
    pieces: list[bytes] = []
    asked: list[int] = []

    def untapped() -> None:
        asked.append(1)
        if len(asked) == 2:
            stream.tap = pieces.append

    stream.untapped = untapped
    os.write(writer, b"nobody's")
    settle(loop, lambda: asked)
    os.write(writer, b"for the tap")
    settle(loop, lambda: pieces)
    os.write(writer, b"again")
    os.close(writer)
    settle(loop, lambda: stream.ended)
    assert len(asked) == 2 and pieces == [b"for the tap", b"again", b""]


def test_stamped_lines(loop: Loop) -> None:
    out_reader, out_writer = os.pipe()
    sink = Sink(loop, out_writer, Owner())
    reader, writer = channel(-1)
    stream = Stream(loop, reader, sink, b"[0]: ", stamped=True)
    os.write(writer, b"one\ntwo\nthree")
    os.close(writer)
    settle(loop, lambda: stream.ended)
    lines = os.read(out_reader, 1000).decode().splitlines()
    assert [line[23:] for line in lines] == [" [0]: one", " [0]: two", " [0]: three"]
    assert all(line[10] == "T" and line[19] == "." for line in lines)
    os.close(out_reader)
    os.close(out_writer)


def test_a_copy_holds_what_was_written(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    path.parent.mkdir(parents=True)
    path.write_text("from before")
    reader, writer = channel(-1)
    stream = Stream(loop, reader, None, b"[0]", copy=Copy(str(path), Owner()))
    os.write(writer, b"raw\0\n\nbytes")
    os.close(writer)
    settle(loop, lambda: stream.ended)
    assert path.read_bytes() == b"raw\0\n\nbytes"


def test_a_copy_that_fails_says_so_once() -> None:
    owner = Owner()
    copy = Copy("/dev/full", owner)
    copy.write(b"x")
    copy.write(b"y")
    copy.close()
    assert [error.errno for error in owner.errors] == [28]


def pipe_input(loop: Loop) -> tuple[int, Input]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    return reader, Input(loop, writer)


def test_input_waits_for_a_rank_that_does_not_read(loop: Loop) -> None:
    reader, fed = pipe_input(loop)
    done: list[str] = []
    data = os.urandom(300_000)
    fed.write(data, lambda: done.append("data"))
    fed.write(b"last", lambda: done.append("last"))
    fed.write(b"", lambda: done.append("end"))
    assert done == ["end"]
    assert fed.closed
    assert fed.held > 200_000
    fed.write(b"too late", lambda: done.append("dropped"))
    taken = bytearray()

    def read() -> None:
        taken.extend(os.read(reader, 65536))

    loop.watch(reader, 1, read)
    settle(loop, lambda: len(taken) == len(data) + 4)
    loop.unwatch(reader)
    assert bytes(taken) == data + b"last"
    assert done == ["end", "dropped", "data", "last"]
    assert fed.held == 0
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_input_of_a_rank_that_reads_no_more_is_dropped(loop: Loop) -> None:
    reader, fed = pipe_input(loop)
    done: list[int] = []
    fed.write(bytes(300_000), lambda: done.append(1))
    fed.write(b"more", lambda: done.append(2))
    os.close(reader)
    settle(loop, lambda: fed.closed)
    assert done == [1, 2]
    fed.write(b"x", lambda: done.append(3))
    assert done == [1, 2, 3]
    fed.close()


def read_all(loop: Loop, fds: list[int]) -> list[bytes]:
    found = [bytearray() for _ in fds]
    open_fds = set(fds)

    def take(number: int) -> None:
        data = os.read(fds[number], 1 << 20)
        found[number].extend(data)
        if not data:
            loop.unwatch(fds[number])
            os.close(fds[number])
            open_fds.discard(fds[number])

    for number, fd in enumerate(fds):
        loop.watch(fd, 1, lambda number=number: take(number))  # type: ignore[misc]
    settle(loop, lambda: not open_fds)
    return [bytes(each) for each in found]


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_one_input_feeds_several_at_the_pace_of_the_slowest(loop: Loop, tmp_path: Path, kind: str) -> None:
    data = os.urandom(500_000)
    path = tmp_path / "data"
    path.write_bytes(data)
    writer = -1
    if kind == "file":
        source = os.open(path, os.O_RDONLY)
    else:
        source, writer = os.pipe()
        os.set_blocking(writer, False)
    pairs = [pipe_input(loop) for _ in range(3)]
    feed = Feed(loop, source, [fed for _, fed in pairs])
    if kind == "pipe":
        producer = Input(loop, writer)
        producer.write(data, lambda: None)
        producer.write(b"", lambda: None)
    readers = [reader for reader, _ in pairs]
    # Nobody reads: what is held is bounded, however much there is.
    over: list[bool] = []
    loop.later(0.2, lambda: over.append(True))
    loop.run(lambda: bool(over))
    assert max(fed.held for _, fed in pairs) <= 1 << 16
    # One of them goes away; that slows nobody down.
    os.close(readers[0])
    assert read_all(loop, readers[1:]) == [data, data]
    feed.close()
    feed.close()
    os.close(source)

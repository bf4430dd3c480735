"""The text protocols of PMI-1 and PMI-2."""

from __future__ import annotations

import pytest

from pypmix import RemoteProtocolError
from pypmix.host.pmi.wire import MAX_COMMAND, MAX_LINE, Decoder, encode

SPAWN = (
    b"mcmd=spawn\nnprocs=2\nexecname=./a program\ntotspawns=2\nspawnssofar=1\narg1=x y\nargcnt=1\npreput_num=1\n"
    b"preput_key_0=K\npreput_val_0=v=1\ninfo_num=0\nendcmd\n"
    b"mcmd=spawn\nnprocs=1\nexecname=./b\ntotspawns=2\nspawnssofar=2\nargcnt=0\nendcmd\n"
)


def decoded(data: bytes, size: int = 0, version: int = 1) -> list[tuple[str, dict[str, str]]]:
    """Return the commands of some bytes, which arrive in pieces of a size, or at once."""
    decoder = Decoder()
    decoder.version = version
    pieces = [data[start : start + size] for start in range(0, len(data), size)] if size else [data]
    return [(command.name, command.fields) for piece in pieces for command in decoder.feed(piece)]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_lines(size):
    data = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=j key=a/b value=x=[2]\\;y\ncmd=barrier_in\n"
    assert decoded(data, size) == [
        ("init", {"pmi_version": "1", "pmi_subversion": "1"}),
        ("put", {"kvsname": "j", "key": "a/b", "value": "x=[2]\\;y"}),
        ("barrier_in", {}),
    ]


@pytest.mark.parametrize("size", [0, 1, 13])
def test_a_spawn_of_two_programs_is_one_command(size):
    decoder = Decoder()
    pieces = [SPAWN[start : start + size] for start in range(0, len(SPAWN), size)] if size else [SPAWN]
    commands = [command for piece in pieces for command in decoder.feed(piece)]
    assert [command.name for command in commands] == ["spawn"]
    assert [part["execname"] for part in commands[0].parts] == ["./a program", "./b"]
    assert commands[0].fields["preput_val_0"] == "v=1"
    assert commands[0].parts[0]["arg1"] == "x y"
    # The block is complete: the next line is a command again.
    assert [command.name for command in decoder.feed(b"cmd=finalize\n")] == ["finalize"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\n", "not with 'cmd='"),
        (b"\n", "not with 'cmd='"),
        (b"cmd=\n", "not with 'cmd=' and a name"),
        (b"cmd=put key=\xff\n", "not text"),
        (b"x" * (MAX_LINE + 1), "longer than"),
        (b"mcmd=spawn\n" + b"arg=1234567890\n" * (MAX_COMMAND // 14), "longer than"),
        (b"mcmd=spawn\ntotspawns=x\nendcmd\n", "not a number"),
    ],
)
def test_bytes_that_are_not_pmi_are_refused(data, text):
    with pytest.raises(RemoteProtocolError, match=text):
        decoded(data)


@pytest.mark.parametrize(("text", "expected"), [("12", 12), ("-1", -1), ("1x", None), ("", None), ("9" * 12, None)])
def test_numbers(text, expected):
    (command,) = Decoder().feed(b"cmd=initack pmiid=%b other=\n" % text.encode())
    if expected is None:
        with pytest.raises(RemoteProtocolError, match="'pmiid' is .*, which is not a number"):
            command.number("pmiid")
    else:
        assert command.number("pmiid") == expected
    assert command.number("absent", 7) == 7
    with pytest.raises(RemoteProtocolError, match="'initack' has no field 'absent'"):
        command.text("absent")


def test_an_answer():
    assert encode("get_result", {"rc": 0, "value": "v"}) == b"cmd=get_result rc=0 value=v\n"

"""Every pairing: what procs write reaches those who pull it, whole and in order, and input reaches procs."""

from __future__ import annotations

import hashlib
import random

import pytest

from pypmix import IOFChannel, Unreachable

EXPECTED = {
    (rank, channel): text.encode()
    for rank in (0, 1)
    for channel, text in (("STDOUT", f"one of {rank}\ntwo of {rank} ü"), ("STDERR", f"error of {rank}\n"))
}


@pytest.mark.needs("output for clients")
def test_the_output_of_a_child(run):
    assert run("forwarding.pulled", ranks=2)[0] == (EXPECTED, True, 0)


@pytest.mark.needs("output for clients", "kept output comes before the end of the job")
def test_output_that_was_written_before_it_was_asked_for(run):
    assert run("forwarding.pulled", ranks=1, early=True)[0] == (EXPECTED, True, 0)


@pytest.mark.needs("output for clients")
@pytest.mark.parametrize("name", ["STDOUT", "STDERR"])
def test_one_channel(run, name):
    expected = {key: data for key, data in EXPECTED.items() if key[1] == name}
    assert run("forwarding.pulled", ranks=1, channels=int(IOFChannel[name]))[0] == (expected, True, 0)


def much():
    """Return what the scenario of the name returns."""
    data = [random.Random(rank).randbytes(300_000) for rank in (0, 1)]
    return {(rank, "STDOUT"): (300_000, hashlib.sha256(data[rank]).hexdigest()) for rank in (0, 1)}, 0


@pytest.mark.needs("output for clients")
def test_much_output_is_whole(run):
    assert run("forwarding.much", ranks=1)[0] == much()


@pytest.mark.needs("output for clients", "what was kept comes before what is new")
def test_output_stays_in_order_across_the_moment_at_which_it_is_asked_for(run):
    assert run("forwarding.much", ranks=1, early=True)[0] == much()


@pytest.mark.needs("output for clients")
def test_two_readers(run):
    line = b"x" * 10 + b"\n"
    first, second = run("forwarding.two_readers", ranks=2)
    assert first == {(0, "STDOUT"): line, (1, "STDOUT"): line}
    assert second == {(1, "STDOUT"): line}


@pytest.mark.needs("output for clients")
def test_a_slow_reader(run):
    assert run("forwarding.slow", ranks=1)[0] == (5, 5, True)


@pytest.mark.needs("output for clients")
def test_the_output_of_ones_own_job(run):
    assert run("forwarding.own_job", ranks=2)[0] == {(1, "STDOUT"): b"hello from 1\n"}


@pytest.mark.forms("sync")
@pytest.mark.needs("input from clients")
def test_input_reaches_a_child(run):
    assert run("forwarding.pushed", ranks=2)[0] == "a line\n"


@pytest.mark.needs("input from clients")
def test_input_and_its_end(run):
    expected = b"got first\ngot " + b"x" * 9_999 + b"\nend\n"
    assert run("forwarding.echoed", ranks=1)[0] == {(0, "STDOUT"): expected}


@pytest.mark.needs("input from clients", "input for every rank")
def test_input_for_all_procs_of_a_job(run):
    assert run("forwarding.to_all", ranks=1)[0] == {(rank, "STDOUT"): b"for all\n" for rank in (0, 1)}


@pytest.mark.needs("output for clients")
def test_output_that_a_spawn_asked_for_is_printed(run):
    job = run.job("forwarding.printed", ranks=1)
    assert job.exit_code == 0, job.report()
    assert "from the child\n" in job.stdout, job.report()


def test_a_lone_process_has_nobody_to_ask(alone):
    pulled, pushed, output, input = alone("forwarding.lonely")
    assert isinstance(pulled, Unreachable)
    assert isinstance(pushed, Unreachable)
    assert (output, input) == (False, False)

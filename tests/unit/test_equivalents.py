"""Proves that options of other launchers are understood, or answered with the way that there is here."""

from __future__ import annotations

import pytest

from pypmix.cli.equivalents import EQUIVALENTS, translate
from pypmix.cli.options import OPTIONS, parse
from pypmix.cli.parser import UsageError


def dashed(name):
    return f"-{name}" if len(name) == 1 else f"--{name}"


def refusal(*words):
    with pytest.raises(UsageError) as caught:
        parse([*words, "prog"], {})
    return str(caught.value)


@pytest.mark.parametrize("each", EQUIVALENTS, ids=lambda each: each.names[0])
def test_each_is_understood_or_answered_in_one_line(each):
    values = ["btl", "tcp"] if each.values == 2 else ["4"] if each.ours[:1] in (("-n",), ("--map-by",)) else ["n1"]
    values = values[: each.values]
    for name in each.names:
        assert not any(dashed(name) in option.names for option in OPTIONS)
        if each.advice:
            text = refusal(dashed(name), *values)
            assert text.startswith(f"there is no {dashed(name)} here, an option of ")
            assert len(text) < 250
            assert "\n" not in text
        elif each.names != ("f",):  # Its file would have to exist.
            assert parse([dashed(name), *values, "prog"], {}).apps[0].argv == ("prog",)


def test_values_stand_behind_an_equals_sign_or_without_a_space():
    assert parse(["--ntasks=3", "prog"], {}).apps[0].np == 3
    assert parse(["-n3", "prog"], {}).apps[0].np == 3
    assert "--map-by ppr:2:node" in refusal("-N2")
    assert parse(["-npernode", "2", "prog"], {}).selection.mapping.each == 2


def test_parameters_of_open_mpi_are_variables_of_the_application():
    request = parse(["-n", "2", "--mca", "btl", "self,tcp", "a", ":", "--pmixmca", "gds", "hash", "b"], {})
    assert [app.env for app in request.apps] == [(("OMPI_MCA_btl", "self,tcp"),), (("PMIX_MCA_gds", "hash"),)]


def test_a_value_that_is_missing_is_named():
    with pytest.raises(UsageError, match="^--mca, an option of mpirun, needs a name and a value$"):
        translate(["--mca", "btl"])


def test_no_binding_is_what_there_is():
    assert parse(["--bind-to", "none", "-n", "2", "prog"], {}).apps[0].np == 2
    assert "taskset" in refusal("--bind-to", "core")


def test_words_of_the_program_are_its_own():
    assert parse(["prog", "--mca", "-N", "2"], {}).apps[0].argv == ("prog", "--mca", "-N", "2")
    assert parse(["--", "-N"], {}).apps[0].argv == ("-N",)


def test_what_no_launcher_has_is_an_option_that_does_not_exist():
    assert refusal("--verbos").startswith("there is no option --verbos")

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


VALUES = {
    ("-n",): ["4"],
    ("--map-by",): ["4"],
    ("--cpus-per-rank",): ["4"],
    ("--cpu-set",): ["0-3"],
    ("--rank-by",): ["slot"],
    ("--bind-to",): ["core"],
}


@pytest.mark.parametrize("each", EQUIVALENTS, ids=lambda each: each.names[0])
def test_each_is_understood_or_answered_in_one_line(each):
    values = ["btl", "tcp"] if each.values == 2 else VALUES.get(each.ours[:1], ["n1"])
    values = ["core"] if each.names == ("mapby",) else values[: each.values]
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


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["--cpus-per-task", "2"], ["--cpus-per-rank", "2"]),
        (["--cpus-per-task=2"], ["--map-by", "slot:pe=2"]),
        (["--mapby", "core:span", "--bindto", "l3"], ["--map-by", "core:span", "--bind-to", "l3cache"]),
        (["--gpus-per-task", "2"], ["--map-by", "device=gpu:2"]),
        (["-bind-to", "socket", "-map-by", "numa"], ["--bind-to", "package", "--map-by", "numa"]),
        (["--display-map", "--report-bindings"], ["--display", "map,bind"]),
        (["--npersocket", "2"], ["--map-by", "ppr:2:package"]),
        (["--cpu-list", "0-3"], ["--cpu-set", "0-3"]),
    ],
)
def test_places_by_other_launchers_words(words, ours):
    one, other = [parse([*each, "prog"], {}) for each in (words, ours)]
    assert one.terms == other.terms
    # `slot:pe=2` and two cores for each rank differ only in the mapping that is named.
    assert one.selection.mapping.settled().replace(by="") == other.selection.mapping.settled().replace(by="")


def test_contradictions_of_places_are_refused():
    assert "leave out --bind-to none" in refusal("--cpus-per-rank", "2", "--bind-to", "none")
    assert "such as 0-3,8" in refusal("--cpu-set", "x")
    assert "cannot be read" in refusal("--rankfile", "/nosuch")
    assert "ranks are bound to none" in refusal("--bind-to", "board")
    assert "takes map and bind" in refusal("--display", "topo")


def test_words_of_the_program_are_its_own():
    assert parse(["prog", "--mca", "-N", "2"], {}).apps[0].argv == ("prog", "--mca", "-N", "2")
    assert parse(["--", "-N"], {}).apps[0].argv == ("-N",)


def test_what_no_launcher_has_is_an_option_that_does_not_exist():
    assert refusal("--verbos").startswith("there is no option --verbos")

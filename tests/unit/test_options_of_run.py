"""How `pypmix run` reads its words: options, their values, and the first word of the program."""

from __future__ import annotations

import pytest

from pypmix.cli.options import parse
from pypmix.cli.usage import UsageError


@pytest.mark.parametrize("words", ["-n 4", "-n4", "-n=4", "--np 4", "--np=4", "-np 4"])
def test_a_value_stands_after_an_option_or_in_the_same_word(words):
    (app,) = parse([*words.split(), "./app", "-n", "9"], {}).apps
    assert (app.np, app.argv) == (4, ("./app", "-n", "9"))


@pytest.mark.parametrize("words", [["-xA=b=c"], ["-x", "A=b=c"]])
def test_a_variable_keeps_the_signs_of_its_value(words):
    assert parse([*words, "./app"], {}).apps[0].env == (("A", "b=c"),)


@pytest.mark.parametrize(("words", "argv"), [
    (["--", "-x", "--", "y"], ("-x", "--", "y")),
    (["--tag-output", "--", "app"], ("app",)),
    (["-", "app"], ("-", "app")),
    (["app", "--"], ("app", "--")),
    (["--warm", "app"], ("app",)),
    (["--warm=os,json", "app", "--warm"], ("app", "--warm")),
])  # fmt: skip
def test_words_after_the_options_are_the_programs(words, argv):
    assert parse(words, {}).apps[0].argv == argv


def test_a_value_may_begin_with_a_dash_unless_it_is_an_option():
    assert parse(["--launch-agent", "-q run", "--host", "n1", "app"], {}).selection.agent == "-q run"
    with pytest.raises(UsageError, match="--timeout takes a number of seconds above 0, not '-5'"):
        parse(["--timeout", "-5", "app"], {})
    with pytest.raises(UsageError, match="-n needs a value: -n N"):
        parse(["-n", "--tag-output", "app"], {})


@pytest.mark.parametrize(("words", "text"), [
    ("-n", "-n needs a value: -n N"),
    ("--tag-output=1 app", "--tag-output takes no value"),
    ("--tag-outptu app", "there is no option --tag-outptu; did you mean --tag-output?"),
    ("-qqq app", "there is no option -qqq"),
    ("-n 1", "no program to run was given"),
    ("-n 1 app : -n 1", "no program to run was given after ':'"),
    ("--map-by slot a : --map-by node b", "--map-by has two values"),
])  # fmt: skip
def test_words_that_cannot_be_carried_out(words, text):
    with pytest.raises(UsageError) as caught:
        parse(words.split(), {})
    assert str(caught.value).startswith(text)

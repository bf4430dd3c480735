"""Both engines: what may stand for an integer or a number of seconds, and what errors about arguments say."""

from __future__ import annotations

import pytest
from suite.scenarios.arguments import WRONG

pytestmark = [pytest.mark.servers("python-server")]


def test_integers(run):
    expected = [7, 7, 1, 9, "events: nothing came within 0 s"]
    assert run("arguments.integers", ranks=2) == [expected] * 2


def test_errors_name_the_call(run):
    (found,) = run("arguments.wrong", ranks=1)
    assert found.pop("an attribute") == "TIMEOUT takes INT or UINT32 or UINT: INT cannot hold a str: '1'"
    assert found.keys() == WRONG.keys()
    for name, text in found.items():
        call = name.partition(" ")[0]
        assert text.startswith(f"{call}: "), (name, text)
        # The call is named once.
        assert text.count(f"{call}: ") == 1, (name, text)

"""Proves what becomes of handlers that fail, answer from elsewhere, late, twice, never, or with nonsense."""

from __future__ import annotations

import json

import pytest

from lib import hosting

STATUS = "the status of "


def test_what_handlers_raise_is_the_status_of_clients(host):
    """All operations, but for those of which a library keeps it to itself."""
    line = next(line for line in host("errors.raised").stdout.splitlines() if line.startswith("wrong "))
    wrong = json.loads(line.removeprefix("wrong "))
    features = {lack.feature for lack in hosting.LACKS if lack.feature.startswith(STATUS)}
    declared = {feature.removeprefix(STATUS) for feature in features if host.cell.lack(feature)}
    assert set(wrong) == declared, f"other statuses than the host's: {wrong}; declared: {declared}"


@pytest.mark.parametrize("program", ["senseless", "elsewhere", "missing", "late", "another_key"])
def test_handlers(host, program):
    host(f"errors.{program}")


@pytest.mark.parametrize("program", ["thrown", "registering"])
def test_functions_of_a_server(host, program):
    host(f"errors.{program}")


@pytest.mark.cells("python/python")
def test_clients_are_told_in_the_words_of_the_host(host):
    host("errors.words")

"""Proves that handlers are given what clients ask, and clients what handlers answer, on every engine."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "program",
    [
        "publishing",
        "questions",
        "control",
        "credentials",
        "spawning",
        "events",
        "forwarding",
        "process_sets",
        "coming_and_going",
    ],
)
def test_answers(host, program):
    host(f"answers.{program}")

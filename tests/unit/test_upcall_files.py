"""The generated requests and methods of a host are current, and have the fields of their operations."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from pypmix.host.callbacks import requests, upcalls
from pypmix.standard import ops

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = runpy.run_path(str(ROOT / "native" / "upcalls.py"))


def test_the_files_are_those_that_the_generator_writes() -> None:
    for name, text in GENERATOR["make_files"]().items():
        assert (ROOT / "pypmix" / "host" / "callbacks" / name).read_text() == text, f"{name}: run native/upcalls.py"


@pytest.mark.parametrize("kind", upcalls.ROUTES, ids=lambda kind: kind.__name__)
def test_a_request_declares_the_fields_of_its_operation(kind: type[ops.Op[object]]) -> None:
    _, request = upcalls.ROUTES[kind]
    shared = [each.__declared__.keys() for each, (_, other) in upcalls.ROUTES.items() if other is request]  # type: ignore[attr-defined]
    for field in set.intersection(*map(set, shared)):
        assert field in request.__annotations__ or hasattr(request, field), field


def test_each_method_of_the_table_is_a_method_of_a_host() -> None:
    assert len(upcalls.METHODS) == 31
    for name in upcalls.METHODS:
        assert callable(getattr(upcalls.Upcalls, name))
    assert upcalls.find_route(ops.Commit()) == ("", requests.Request)

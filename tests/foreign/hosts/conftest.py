"""The fixture `host` for the tests of this folder."""

from __future__ import annotations

import pytest

from lib import hosting
from lib.hosting import host

__all__ = ["host", "pytest_generate_tests"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "host" in metafunc.fixturenames:
        hosting.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    hosting.deselect(config, items)

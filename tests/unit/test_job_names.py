"""The nspaces that sessions make up are short, and long where nothing else proves who a rank is."""

from __future__ import annotations

import os
import re

import pytest

from pypmix.cli import ps, reach
from pypmix.host import job
from pypmix.host.job import ALPHABET, is_sole_proof, new_nspace


@pytest.mark.parametrize(("sole", "length"), [(False, 8), (True, 20)])
def test_a_name_is_the_pid_and_random_characters(sole: bool, length: int) -> None:
    found = [new_nspace(sole) for _ in range(200)]
    assert len(set(found)) == 200
    for name in found:
        assert re.fullmatch(rf"pypmix-{os.getpid()}-[{ALPHABET}]{{{length}}}", name), name


def test_all_bytes_are_used_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(200, 200 + count)))
    assert new_nspace(True).rpartition("-")[2] == "".join([ALPHABET[number % 32] for number in range(200, 220)])
    assert len(set(ALPHABET)) == 32 and not set("ilou") & set(ALPHABET)


def test_a_job_is_shown_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.os, "getpid", lambda: 4194303)
    assert len(f"{new_nspace(False)}@1") <= ps.JOB_WIDTH


@pytest.mark.parametrize(
    ("engine", "security", "expected"),
    [
        ("python", None, False),
        ("python", "native", False),
        ("python", "munge, unchecked", True),
        ("native", None, True),
        ("auto", None, False),
    ],
)
def test_the_name_is_the_only_proof_to_some_servers(
    monkeypatch: pytest.MonkeyPatch, engine: str, security: str | None, expected: bool
) -> None:
    monkeypatch.delenv("PYPMIX_SECURITY", raising=False)
    if security is not None:
        monkeypatch.setenv("PYPMIX_SECURITY", security)
    assert is_sole_proof(engine) is expected


def test_the_age_of_a_server() -> None:
    own = reach.age_of(os.getpid())
    first = reach.age_of(1)
    assert own is not None and first is not None and 0 <= own <= first
    assert reach.age_of(1 << 30) is None
    ages = (0.4, 42, 119, 200, 7200, 90_000, 200_000)
    assert [reach.age_text(age) for age in ages] == ["0 s", "42 s", "119 s", "3 min", "2 h", "25 h", "2 days"]

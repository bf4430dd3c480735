"""Nspaces that no URI can carry are refused where they are given: by a host, for a server, and for a job."""

from __future__ import annotations

import pytest

from pypmix.host import Application
from pypmix.host.local import LocalHost
from pypmix.server import Server
from pypmix.serverbase import check_nspace

BAD = ["a;b", "a\nb", "a\rb", "\x1b[2J", "a\udce9", "a\u2028b"]


@pytest.mark.parametrize("nspace", BAD)
def test_an_nspace_that_no_uri_carries_is_refused_everywhere(nspace: str) -> None:
    with pytest.raises(ValueError, match=r"must be printable text without a semicolon"):
        LocalHost((Application(("true",)),), nspace=nspace)
    with pytest.raises(ValueError, match=r"^the server's nspace cannot be "):
        Server(nspace=nspace)
    with pytest.raises(ValueError, match=r"^an nspace cannot be "):
        check_nspace(nspace)


@pytest.mark.parametrize("nspace", ["a", "a b", "a.b", "a,b", "slurm.pmix.12.0", "é", "prterun-n1-7@1"])
def test_others_are_taken(nspace: str) -> None:
    check_nspace(nspace)
    Server(nspace=nspace)

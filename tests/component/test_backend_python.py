"""The build backend with a Python that is too old: it gives the metadata from which pip says which one is needed."""

from __future__ import annotations

import subprocess
import sys

from lib.machine import ROOT

OLD = """
import sys
sys.path.insert(0, "native")
sys.modules["tomllib"] = None
import backend
sys.version_info = (3, 10, 13, "final", 0)
assert not backend._wanted()
assert "https://" in backend._readme()
"""


def test_metadata_with_an_older_python() -> None:
    done = subprocess.run([sys.executable, "-c", OLD], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

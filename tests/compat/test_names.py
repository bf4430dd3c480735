"""`from pmix import *` gives what the official binding gives: its classes, and each `PMIX_*` name with its value."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pypmix import attrs
from pypmix.compat.names import Key, table

OFFICIAL = "/usr/bin/python3"
CLASSES = {"PMIxClient", "PMIxServer", "PMIxTool", "PMIxScheduler"}
HELPERS = {"pmix_bool_convert", "pmix_int_types", "pmix_value_roundtrip", "pmix_cpuset_from_string"}
SHOW = """
import json, warnings
warnings.simplefilter("ignore")
from pmix import *
found = {name: value for name, value in globals().items() if name[:4] in ("PMIX", "PMIx", "pmix")}
print(json.dumps({name: value.decode() if isinstance(value, bytes) else value if isinstance(value, (int, str)) else None
                  for name, value in found.items()}))
"""


def names_of(command: list[str], program: str = SHOW) -> dict[str, object]:
    ended = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60)
    if ended.returncode and "No module named 'pmix'" in ended.stderr:
        pytest.skip("the official binding is not installed (Debian's python3-pmix)")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def ours(tmp_path_factory) -> dict[str, object]:
    script = tmp_path_factory.mktemp("names") / "names.py"
    script.write_text(SHOW)
    return names_of([sys.executable, "-m", "pypmix.compat", str(script)])


def test_a_star_import_gives_all_names(ours):
    assert ours.keys() >= CLASSES | HELPERS | table().keys()
    assert ours["PMIX_ERR_TIMEOUT"] == -24
    assert ours["PMIX_TIMEOUT"] == "pmix.timeout"
    assert ours["PMIX_RANK_WILDCARD"] == 2**32 - 2


def test_a_star_import_brings_no_modules(tmp_path):
    script = tmp_path / "modules.py"
    script.write_text(
        "import time\nmine = time\nfrom pmix import *\nassert time is mine\nassert 'os' not in globals()\n"
    )
    command = [sys.executable, "-m", "pypmix.compat", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_names_are_those_of_the_official_binding(ours):
    official = names_of([OFFICIAL, "-"])
    constants = {name: value for name, value in official.items() if name.startswith("PMIX_")}
    assert len(constants) > 700
    assert {name: ours.get(name) for name in constants} == constants
    # What it takes apart its own dicts with is no part of the API.
    assert {name for name in official if name not in ours} <= {"pmixservermodule"}


METHODS = """
import json, warnings
warnings.simplefilter("ignore")
import pmix
classes = [pmix.PMIxClient, pmix.PMIxServer, pmix.PMIxTool]
print(json.dumps({cls.__name__: [name for name in dir(cls) if name[0] != "_"] for cls in classes}))
"""


def test_methods_are_those_of_the_official_binding(tmp_path):
    script = tmp_path / "methods.py"
    script.write_text(METHODS)
    official = names_of([OFFICIAL, "-"], METHODS)
    ours = names_of([sys.executable, "-m", "pypmix.compat", str(script)], "")
    assert official.keys() <= ours.keys()
    for name, found in official.items():
        assert set(found) <= set(ours[name])


def test_a_key_is_a_string_and_its_bytes():
    key = table()["PMIX_TIMEOUT"]
    assert isinstance(key, Key)
    assert key == "pmix.timeout" == key
    assert key == b"pmix.timeout"
    assert key != b"pmix.time"
    assert key.decode("ascii") == "pmix.timeout"
    assert {key: 1}["pmix.timeout"] == 1
    assert key == attrs.TIMEOUT.key
